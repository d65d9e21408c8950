//! Agents that delegate work to child runs.

use levity::core::{Event, EventKind, Journal as _, Limit, Status, ToolErrorKind};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::{ScriptedModel, Turn};
use levity::tools::{Policy, Rule};
use serde_json::json;

use crate::support::{RulesFile, add, assert_complete, collect_events, drop_at, runtime};

fn helper(model: ScriptedModel) -> Agent {
    Agent::builder(model)
        .instructions("You add.")
        .tool(add)
        .build()
        .unwrap()
}

fn lead(model: ScriptedModel, helper: Agent) -> levity::agent::AgentBuilder {
    Agent::builder(model).agent("adder", "Adds numbers.", helper)
}

fn delegating_model() -> ScriptedModel {
    ScriptedModel::new().turn(
        Turn::new()
            .call("adder", json!({"task": "2 + 5"}))
            .usage(10, 1),
    )
}

fn adding_model() -> ScriptedModel {
    ScriptedModel::new()
        .turn(
            Turn::new()
                .call("add", json!({"a": 2, "b": 5}))
                .usage(100, 10),
        )
        .turn(Turn::new().text("7").usage(100, 10))
}

#[tokio::test]
async fn child_run_shares_event_stream_of_parent() {
    let (runtime, journal) = runtime();
    let agent = lead(
        delegating_model().turn(Turn::new().text("It is 7.").usage(10, 1)),
        helper(adding_model()),
    );
    let agent = agent.runtime(runtime).build().unwrap();
    let (events, answer) = collect_events(agent.start("What is 2 + 5?")).await;
    let answer = answer.unwrap();
    assert_eq!(answer.text(), "It is 7.");
    assert_eq!(answer.history().calls().next().unwrap().1.text(), "7");
    assert_eq!(
        answer.usage().input,
        Some(220),
        "the usage of the child must count"
    );

    let child = events
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::ChildStarted { child, .. } => Some(child.clone()),
            _ => None,
        })
        .unwrap();
    assert_eq!(child.parent().as_ref(), Some(answer.run()));
    let tool = events
        .iter()
        .find(|event| matches!(event.kind, EventKind::ToolStarted { .. }))
        .unwrap();
    assert_eq!(tool.run, child, "the child must call the tool");
    assert!(
        !journal.records(&child).is_empty(),
        "the child must have its own log"
    );
}

#[tokio::test]
async fn child_run_counts_towards_limits_of_parent() {
    let looping = ScriptedModel::looping(Turn::new().call("add", json!({"a": 1, "b": 1})));
    let agent = lead(
        delegating_model().reply("No luck."),
        helper(looping.clone()),
    );
    let agent = agent.limits(Limits::new().model_calls(4)).build().unwrap();
    let error = agent.run("What is 2 + 5?").await.unwrap_err();
    assert!(
        matches!(
            error,
            levity::Error::Limit {
                limit: Limit::ModelCalls,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        looping.requests().len(),
        3,
        "one of the four calls belongs to the parent"
    );
    assert_complete(
        error
            .partial_as::<levity::agent::AgentDetails>()
            .unwrap()
            .history(),
    );
}

#[tokio::test]
async fn failed_child_run_is_returned_as_failed_call() {
    let failing = ScriptedModel::new().fail(levity::core::ModelErrorKind::Auth);
    let agent = lead(delegating_model().reply("I know: 7."), helper(failing))
        .build()
        .unwrap();
    let answer = agent.run("What is 2 + 5?").await.unwrap();
    assert_eq!(*answer.status(), Status::Complete);
    let result = answer.history().calls().next().unwrap().1.clone();
    assert_eq!(result.error, Some(ToolErrorKind::Failed));
    assert!(
        result.text().contains("the model gave no reply"),
        "{}",
        result.text()
    );
}

#[tokio::test]
async fn delegation_without_task_names_missing_argument() {
    let model = ScriptedModel::new()
        .call("adder", json!({"work": "2 + 5"}))
        .reply("Hm.");
    let answer = lead(model, helper(adding_model()))
        .build()
        .unwrap()
        .run("Go")
        .await
        .unwrap();
    assert!(
        answer
            .history()
            .calls()
            .next()
            .unwrap()
            .1
            .text()
            .contains("`task`")
    );
}

#[tokio::test]
async fn circular_delegation_stops_at_depth_limit() {
    let endless = || ScriptedModel::looping(Turn::new().call("adder", json!({"task": "again"})));
    let mut agent = helper(ScriptedModel::new());
    for _ in 0..20 {
        agent = lead(endless(), agent).max_turns(2).build().unwrap();
    }
    let agent = lead(endless(), agent)
        .limits(Limits::new().depth(3))
        .max_turns(2)
        .build()
        .unwrap();
    let (events, end) = collect_events(agent.start("Go")).await;
    assert!(matches!(
        end,
        Err(levity::Error::Limit {
            limit: Limit::Turns,
            ..
        })
    ));
    assert_eq!(events.iter().map(|event| event.run.depth()).max(), Some(3));
    assert!(events.iter().any(|event| matches!(
        event.kind,
        EventKind::Refused {
            limit: Limit::Depth,
            ..
        }
    )));
}

#[tokio::test]
async fn cancelling_parent_ends_child_and_its_log() {
    let (runtime, journal) = runtime();
    let agent = lead(delegating_model(), helper(ScriptedModel::new().hang()))
        .runtime(runtime)
        .build()
        .unwrap();
    let mut run = agent.start("Go");
    let mut events = run.events();
    let mut child = None;
    while let Some(event) = events.next().await {
        match event.kind {
            EventKind::ChildStarted { child: id, .. } => child = Some(id),
            EventKind::ModelStarted { .. } if child.as_ref() == Some(&event.run) => {
                run.cancel("enough").await.unwrap();
            }
            _ => {}
        }
    }
    assert!(matches!(run.await, Err(levity::Error::Cancelled { .. })));
    let records = journal.records(&child.unwrap());
    let last = serde_json::to_string(&records.last().unwrap().entry).unwrap();
    assert!(
        last.contains("ended") && last.contains("cancelled"),
        "{last}"
    );
}

#[tokio::test]
async fn one_child_can_be_cancelled_alone() {
    let agent = lead(
        delegating_model().reply("Without it, then."),
        helper(ScriptedModel::new().hang()),
    )
    .build()
    .unwrap();
    let mut run = agent.start("Go");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if event.run != *run.id() && matches!(event.kind, EventKind::ModelStarted { .. }) {
            run.control()
                .child(&event.run)
                .cancel("too slow")
                .await
                .unwrap();
        }
    }
    let answer = run.await.unwrap();
    assert_eq!(answer.text(), "Without it, then.");
    assert!(
        answer
            .history()
            .calls()
            .next()
            .unwrap()
            .1
            .text()
            .contains("too slow")
    );
}

fn answering_model() -> ScriptedModel {
    ScriptedModel::looping(Turn::new().text("7"))
}

#[tokio::test]
async fn policy_of_agent_applies_to_delegation() {
    let model = answering_model();
    let policy = Policy::new().rule(Rule::tool("adder").deny("never"));
    let agent = lead(delegating_model().reply("So be it."), helper(model.clone()))
        .policy(policy)
        .build()
        .unwrap();
    agent.run("Go").await.unwrap();
    assert_eq!(model.requests().len(), 0, "a denied child run started");
}

#[tokio::test]
async fn depth_limit_of_parent_applies_to_grandchildren() {
    let model = answering_model();
    let child = lead(delegating_model().reply("7"), helper(model.clone()))
        .build()
        .unwrap();
    let agent = lead(delegating_model().reply("7"), child)
        .limits(Limits::new().depth(1))
        .build()
        .unwrap();
    let _ = agent.run("Go").await;
    assert_eq!(
        model.requests().len(),
        0,
        "a grandchild ran with a depth limit of 1"
    );
}

#[tokio::test]
async fn dots_in_a_run_id_do_not_count_as_depth() {
    let model = answering_model();
    let agent = lead(delegating_model().reply("7"), helper(model.clone()))
        .build()
        .unwrap();
    agent
        .run("Go")
        .id("2025.01.02.03.04.05.06.07.08")
        .await
        .unwrap();
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn child_run_has_context_of_its_agent() {
    let model = answering_model();
    let helper = Agent::builder(model.clone())
        .context(RulesFile)
        .build()
        .unwrap();
    lead(delegating_model().reply("7"), helper)
        .build()
        .unwrap()
        .run("Go")
        .await
        .unwrap();
    let system = model.requests()[0].system.clone().unwrap_or_default();
    assert!(system.contains("No jokes"), "{system}");
}

#[tokio::test]
async fn resumed_child_keeps_its_instructions() {
    let journal = MemoryJournal::new();
    let agent = |model: &ScriptedModel, helper: &ScriptedModel, instructions: &str| {
        let helper = Agent::builder(helper.clone())
            .instructions(instructions)
            .tool(add)
            .build()
            .unwrap();
        let runtime = Runtime::new().with_journal(journal.clone());
        lead(model.clone(), helper)
            .instructions(instructions)
            .runtime(runtime)
            .build()
            .unwrap()
    };
    let run = agent(&delegating_model(), &ScriptedModel::new().hang(), "old")
        .run("Go")
        .id("r")
        .start();
    let in_child = |event: &Event| {
        event.run.as_str() != "r" && matches!(event.kind, EventKind::ModelStarted { .. })
    };
    drop_at(run, in_child).await;

    let (model, helper) = (
        ScriptedModel::new().reply("It is 7."),
        ScriptedModel::new().reply("7"),
    );
    agent(&model, &helper, "new").resume("r").await.unwrap();
    for model in [model, helper] {
        assert_eq!(model.requests()[0].system.as_deref(), Some("old"));
    }
}

#[tokio::test]
async fn stale_log_is_not_reused_for_new_child() {
    let (runtime, journal) = runtime();
    let first = lead(delegating_model().reply("It is 7."), helper(adding_model()))
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let answer = first.run("What is 2 + 5?").id("monday").await.unwrap();
    let child = answer.run().child(levity::core::EffectId::new(1));
    assert!(!journal.records(&child).is_empty());

    // The log of the child exists without the log of its parent, as after a manual deletion of a
    // file.
    let stray = MemoryJournal::new();
    let mut open = stray.open(&child).await.unwrap();
    open.log.append(&journal.records(&child)).await.unwrap();
    drop(open);
    let other = ScriptedModel::new()
        .call("adder", json!({"task": "100 + 100"}))
        .reply("done");
    let model = ScriptedModel::new().reply("200");
    let second = lead(other, helper(model.clone()))
        .runtime(runtime.with_journal(stray))
        .build()
        .unwrap();
    let error = second
        .run("What is 100 + 100?")
        .id("monday")
        .await
        .unwrap_err();
    let levity::Error::Runtime { source, .. } = error else {
        panic!("{error}")
    };
    assert!(matches!(source, levity::core::RuntimeError::Exists(run) if run == child));
    assert_eq!(model.requests().len(), 0);

    assert!(journal.remove(answer.run()).await.unwrap());
    assert!(
        journal.records(&child).is_empty(),
        "removing a run must remove its children"
    );
}
