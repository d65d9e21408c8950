use levity::core::{EventKind, Limit, Status, ToolErrorKind};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

use crate::support::{add, assert_whole, runtime, watch};

fn helper(model: ScriptedModel) -> Agent {
    Agent::builder(model).instructions("You add.").tool(add).build().unwrap()
}

fn lead(model: ScriptedModel, helper: Agent) -> levity::agent::AgentBuilder {
    Agent::builder(model).agent("adder", "Adds numbers.", helper)
}

fn asks() -> ScriptedModel {
    ScriptedModel::new().turn(Turn::new().call("adder", json!({"task": "2 + 5"})).usage(10, 1))
}

fn adds() -> ScriptedModel {
    ScriptedModel::new()
        .turn(Turn::new().call("add", json!({"a": 2, "b": 5})).usage(100, 10))
        .turn(Turn::new().text("7").usage(100, 10))
}

#[tokio::test]
async fn work_is_handed_on_and_seen_in_one_stream() {
    let (runtime, journal) = runtime();
    let agent = lead(asks().turn(Turn::new().text("It is 7.").usage(10, 1)), helper(adds()));
    let agent = agent.runtime(runtime).build().unwrap();
    let (events, answer) = watch(agent.start("What is 2 + 5?")).await;
    let answer = answer.unwrap();
    assert_eq!(answer.text(), "It is 7.");
    assert_eq!(answer.history().calls().next().unwrap().1.text(), "7");
    assert_eq!(answer.usage().input, Some(220), "what the child used counts");

    let child = events
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::ChildStarted { child, .. } => Some(child.clone()),
            _ => None,
        })
        .unwrap();
    assert_eq!(child.parent().as_ref(), Some(answer.run()));
    let tool = events.iter().find(|event| matches!(event.kind, EventKind::ToolStarted { .. })).unwrap();
    assert_eq!(tool.run, child, "the tool was called by the child");
    assert!(!journal.records(&child).is_empty(), "the child has a log of its own");
}

#[tokio::test]
async fn a_child_lives_within_its_parents_limits() {
    let looping = ScriptedModel::looping(Turn::new().call("add", json!({"a": 1, "b": 1})));
    let agent = lead(asks().reply("No luck."), helper(looping.clone()));
    let agent = agent.limits(Limits::new().model_calls(4)).build().unwrap();
    let error = agent.run("What is 2 + 5?").await.unwrap_err();
    assert!(matches!(error, levity::Error::Limit { limit: Limit::ModelCalls, .. }), "{error}");
    assert_eq!(looping.requests().len(), 3, "one call was the parent's");
    assert_whole(error.partial().unwrap().history());
}

#[tokio::test]
async fn a_child_that_fails_is_a_failed_call() {
    let failing = ScriptedModel::new().fail(levity::core::ModelErrorKind::Auth);
    let agent = lead(asks().reply("I know: 7."), helper(failing)).build().unwrap();
    let answer = agent.run("What is 2 + 5?").await.unwrap();
    assert_eq!(*answer.status(), Status::Complete);
    let result = answer.history().calls().next().unwrap().1.clone();
    assert_eq!(result.error, Some(ToolErrorKind::Failed));
    assert!(result.text().contains("the model gave no reply"), "{}", result.text());
}

#[tokio::test]
async fn a_call_without_a_task_says_what_is_missing() {
    let model = ScriptedModel::new().call("adder", json!({"work": "2 + 5"})).reply("Hm.");
    let answer = lead(model, helper(adds())).build().unwrap().run("Go").await.unwrap();
    assert!(answer.history().calls().next().unwrap().1.text().contains("`task`"));
}

#[tokio::test]
async fn agents_that_hand_work_round_in_circles_are_stopped() {
    let endless = || ScriptedModel::looping(Turn::new().call("adder", json!({"task": "again"})));
    let mut agent = helper(ScriptedModel::new());
    for _ in 0..20 {
        agent = lead(endless(), agent).max_turns(2).build().unwrap();
    }
    let agent = lead(endless(), agent).limits(Limits::new().depth(3)).max_turns(2).build().unwrap();
    let (events, end) = watch(agent.start("Go")).await;
    assert!(matches!(end, Err(levity::Error::Limit { limit: Limit::Turns, .. })));
    assert_eq!(events.iter().map(|event| event.run.depth()).max(), Some(3));
    assert!(events.iter().any(|event| matches!(event.kind, EventKind::Refused { limit: Limit::Depth, .. })));
}

#[tokio::test]
async fn cancelling_the_parent_ends_the_child_and_its_log() {
    let (runtime, journal) = runtime();
    let agent = lead(asks(), helper(ScriptedModel::new().hang())).runtime(runtime).build().unwrap();
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
    assert!(last.contains("ended") && last.contains("cancelled"), "{last}");
}

#[tokio::test]
async fn one_child_can_be_stopped_alone() {
    let agent = lead(asks().reply("Without it, then."), helper(ScriptedModel::new().hang())).build().unwrap();
    let mut run = agent.start("Go");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if event.run != *run.id() && matches!(event.kind, EventKind::ModelStarted { .. }) {
            run.control().child(&event.run).cancel("too slow").await.unwrap();
        }
    }
    let answer = run.await.unwrap();
    assert_eq!(answer.text(), "Without it, then.");
    assert!(answer.history().calls().next().unwrap().1.text().contains("too slow"));
}
