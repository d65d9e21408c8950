//! A resumed run continues where it stopped. Ended runs stay ended, and earlier usage still counts.

use levity::core::{Event, Journal, RunQuery};
use levity::prelude::*;
use levity::runtime::{MemoryJournal, RunHandle};
use levity::test::{FaultyJournal, ScriptedModel, Turn};
use serde_json::json;

use crate::support::{add, drop_at, runtime};

/// Creates a runtime for each process that shares this journal.
fn runtime_with(journal: &MemoryJournal) -> Runtime {
    Runtime::new().with_journal(journal.clone())
}

fn agent(model: &ScriptedModel, runtime: Runtime) -> Agent {
    Agent::builder(model.clone())
        .tool(add)
        .runtime(runtime)
        .build()
        .unwrap()
}

/// Builds an agent that can delegate to a helper. Both together may make eight model calls.
fn lead(model: &ScriptedModel, helper: ScriptedModel, runtime: Runtime) -> Agent {
    Agent::builder(model.clone())
        .tool(add)
        .agent(
            "helper",
            "Helps.",
            Agent::builder(helper).tool(add).build().unwrap(),
        )
        .limits(Limits::new().model_calls(8))
        .runtime(runtime)
        .build()
        .unwrap()
}

fn delegating_model() -> ScriptedModel {
    ScriptedModel::new().call("helper", json!({"task": "1 + 1"}))
}

fn adding_turn() -> Turn {
    Turn::new().call("add", json!({"a": 1, "b": 1}))
}

/// Waits until a started run calls its model, or ends.
async fn wait_for_model_call(run: &mut RunHandle<Agent>) {
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if matches!(event.kind, EventKind::ModelStarted { .. }) {
            return;
        }
    }
}

#[tokio::test]
async fn resume_of_ended_run_writes_nothing() {
    let (runtime, journal) = runtime();
    let agent = agent(&ScriptedModel::new().reply("2"), runtime);
    let answer = agent.run("Add").await.unwrap();
    let before = journal.records(answer.run()).len();
    for _ in 0..2 {
        agent.resume(answer.run().clone()).await.unwrap();
    }
    assert_eq!(journal.records(answer.run()).len(), before);
}

#[tokio::test]
async fn resume_of_cancelled_run_writes_nothing_for_its_child() {
    let (runtime, journal) = runtime();
    let agent = lead(&delegating_model(), ScriptedModel::new().hang(), runtime);
    let mut run = agent.start("Add");
    let id = run.id().clone();
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if event.run != id && matches!(event.kind, EventKind::ModelStarted { .. }) {
            run.cancel("enough").await.unwrap();
        }
    }
    let _ = run.await;
    let child = journal
        .list(&RunQuery::new())
        .await
        .unwrap()
        .into_iter()
        .find(|summary| summary.run != id)
        .unwrap()
        .run;
    let written = || (journal.records(&id).len(), journal.records(&child).len());
    let before = written();
    let _ = agent.resume(id.clone()).await;
    assert_eq!(written(), before);
}

#[tokio::test]
async fn resumed_process_keeps_run_paused() {
    let journal = MemoryJournal::new();
    let mut run = agent(&ScriptedModel::new().hang(), runtime_with(&journal))
        .run("Add")
        .id("r")
        .start();
    wait_for_model_call(&mut run).await;
    run.pause().await.unwrap();
    run.stop().await;

    let model = ScriptedModel::new().reply("2");
    let run = agent(&model, runtime_with(&journal)).resume("r").start();
    // The reply to this command shows that the run has started everything that it would start.
    run.control().pending_asks().await.unwrap();
    assert_eq!(model.requests().len(), 0, "a paused run called its model");
    run.resume().await.unwrap();
    assert_eq!(run.await.unwrap().text(), "2");
}

#[tokio::test]
async fn limits_of_run_apply_after_resume() {
    let journal = MemoryJournal::new();
    let busy = Turn::new()
        .text("One more.")
        .call("add", json!({"a": 1, "b": 1}));
    let model = || ScriptedModel::looping(busy.clone());
    let crashing = FaultyJournal::new(journal.clone()).stop_after_records(3);
    let first = agent(&model(), Runtime::new().with_journal(crashing));
    let _ = first
        .run("Add")
        .id("r")
        .limits(Limits::new().model_calls(2))
        .await;

    let model = model();
    let _ = agent(&model, runtime_with(&journal)).resume("r").await;
    assert!(
        model.requests().len() <= 1,
        "{} more calls with a limit of 2",
        model.requests().len()
    );
}

#[tokio::test]
async fn usage_of_child_counts_after_resume_of_parent() {
    let journal = MemoryJournal::new();
    // When the lead calls its model again, it has made one call and its helper three.
    let helper = ScriptedModel::new()
        .turn(adding_turn())
        .turn(adding_turn())
        .reply("2");
    let run = lead(&delegating_model().hang(), helper, runtime_with(&journal))
        .run("Add")
        .id("r")
        .start();
    let second_turn = |event: &Event| {
        event.run.as_str() == "r" && matches!(event.kind, EventKind::TurnStarted { turn: 2, .. })
    };
    drop_at(run, second_turn).await;

    let model = ScriptedModel::looping(adding_turn());
    let _ = lead(&model, ScriptedModel::new(), runtime_with(&journal))
        .resume("r")
        .await;
    assert!(
        model.requests().len() <= 4,
        "{} calls after 4 of 8 were used",
        model.requests().len()
    );
}

#[tokio::test]
async fn repeated_model_call_counts_again() {
    let journal = MemoryJournal::new();
    let mut sent = 0;
    for round in 0..5 {
        let model = ScriptedModel::new().hang();
        let limits = Limits::new().model_calls(2);
        let agent = Agent::builder(model.clone())
            .limits(limits)
            .runtime(runtime_with(&journal))
            .build()
            .unwrap();
        let mut run = if round == 0 {
            agent.run("Add").id("r").start()
        } else {
            agent.resume("r").start()
        };
        wait_for_model_call(&mut run).await;
        // A run in progress has sent its request by now; a refused run has ended.
        if run.control().pending_asks().await.is_ok() {
            sent += model.requests().len();
        }
        run.stop().await;
    }
    assert_eq!(sent, 2, "requests with a limit of 2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stopped_run_can_be_resumed_at_once() {
    for number in 0..50 {
        let id = format!("r{number}");
        let agent = agent(
            &ScriptedModel::new().hang().reply("2"),
            runtime_with(&MemoryJournal::new()),
        );
        let mut run = agent.run("Add").id(id.clone()).start();
        wait_for_model_call(&mut run).await;
        run.stop().await;
        agent.resume(id).await.unwrap();
    }
}

#[test]
fn blocking_resume_works_without_async() {
    let (runtime, _) = runtime();
    let agent = agent(&ScriptedModel::new().reply("2"), runtime);
    let answer = agent.run("Add").blocking().unwrap();
    assert_eq!(
        agent
            .resume(answer.run().clone())
            .blocking()
            .unwrap()
            .text(),
        "2"
    );
}
