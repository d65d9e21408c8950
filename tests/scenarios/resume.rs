//! A run that is resumed goes on where it was: what has ended stays ended, and what was used stays
//! used.

use levity::core::{Event, Journal, RunQuery};
use levity::prelude::*;
use levity::runtime::{MemoryJournal, RunHandle};
use levity::test::{FaultyJournal, ScriptedModel, Turn};
use serde_json::json;

use crate::support::{add, drop_at, runtime};

/// What every process that shares this journal runs on.
fn on(journal: &MemoryJournal) -> Runtime {
    Runtime::new().with_journal(journal.clone())
}

fn agent(model: &ScriptedModel, runtime: Runtime) -> Agent {
    Agent::builder(model.clone())
        .tool(add)
        .runtime(runtime)
        .build()
        .unwrap()
}

/// An agent that may hand work to a helper, and calls models eight times together with it.
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

fn asks() -> ScriptedModel {
    ScriptedModel::new().call("helper", json!({"task": "1 + 1"}))
}

fn adds() -> Turn {
    Turn::new().call("add", json!({"a": 1, "b": 1}))
}

/// Waits until a started run calls its model, or ends.
async fn until_model(run: &mut RunHandle<Agent>) {
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if matches!(event.kind, EventKind::ModelStarted { .. }) {
            return;
        }
    }
}

#[tokio::test]
async fn resuming_a_run_that_has_ended_writes_nothing() {
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
async fn resuming_a_run_that_was_cancelled_writes_nothing_even_for_its_child() {
    let (runtime, journal) = runtime();
    let agent = lead(&asks(), ScriptedModel::new().hang(), runtime);
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
async fn a_run_that_was_paused_begins_nothing_when_it_is_resumed() {
    let journal = MemoryJournal::new();
    let mut run = agent(&ScriptedModel::new().hang(), on(&journal))
        .run("Add")
        .id("r")
        .start();
    until_model(&mut run).await;
    run.pause().await.unwrap();
    run.stop().await;

    let model = ScriptedModel::new().reply("2");
    let run = agent(&model, on(&journal)).resume("r").start();
    // An answer to this shows that the run has begun all that it would begin.
    run.control().asks().await.unwrap();
    assert_eq!(model.requests().len(), 0, "a paused run called its model");
    run.resume().await.unwrap();
    assert_eq!(run.await.unwrap().text(), "2");
}

#[tokio::test]
async fn the_limits_of_a_run_hold_when_it_is_resumed() {
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
    let _ = agent(&model, on(&journal)).resume("r").await;
    assert!(
        model.requests().len() <= 1,
        "{} more calls under a limit of 2",
        model.requests().len()
    );
}

#[tokio::test]
async fn what_a_child_used_counts_when_its_parent_is_resumed() {
    let journal = MemoryJournal::new();
    // One call of the lead and three of its helper are done when the lead calls again.
    let helper = ScriptedModel::new().turn(adds()).turn(adds()).reply("2");
    let run = lead(&asks().hang(), helper, on(&journal))
        .run("Add")
        .id("r")
        .start();
    let second_turn = |event: &Event| {
        event.run.as_str() == "r" && matches!(event.kind, EventKind::TurnStarted { turn: 2, .. })
    };
    drop_at(run, second_turn).await;

    let model = ScriptedModel::looping(adds());
    let _ = lead(&model, ScriptedModel::new(), on(&journal))
        .resume("r")
        .await;
    assert!(
        model.requests().len() <= 4,
        "{} calls after 4 of 8 were used",
        model.requests().len()
    );
}

#[tokio::test]
async fn a_model_call_that_begins_again_counts_again() {
    let journal = MemoryJournal::new();
    let mut sent = 0;
    for round in 0..5 {
        let model = ScriptedModel::new().hang();
        let limits = Limits::new().model_calls(2);
        let agent = Agent::builder(model.clone())
            .limits(limits)
            .runtime(on(&journal))
            .build()
            .unwrap();
        let mut run = if round == 0 {
            agent.run("Add").id("r").start()
        } else {
            agent.resume("r").start()
        };
        until_model(&mut run).await;
        // A run that still answers has sent its request by now; one that was refused has ended.
        if run.control().asks().await.is_ok() {
            sent += model.requests().len();
        }
        run.stop().await;
    }
    assert_eq!(sent, 2, "requests under a limit of 2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_that_was_stopped_can_be_resumed_at_once() {
    for number in 0..50 {
        let id = format!("r{number}");
        let agent = agent(
            &ScriptedModel::new().hang().reply("2"),
            on(&MemoryJournal::new()),
        );
        let mut run = agent.run("Add").id(id.clone()).start();
        until_model(&mut run).await;
        run.stop().await;
        agent.resume(id).await.unwrap();
    }
}

#[test]
fn a_run_is_resumed_without_async_too() {
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
