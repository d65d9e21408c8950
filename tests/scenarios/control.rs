use async_trait::async_trait;
use levity::core::{Approver, Ask, Decision, EventKind, ToolErrorKind};
use levity::prelude::*;
use levity::test::{RecordingTool, ScriptedModel, Turn};
use serde_json::{Value, json};

use crate::support::{add, assert_whole, runtime};

fn delete() -> RecordingTool {
    RecordingTool::new("delete", |args: &Value| Ok(ToolOutput::text(format!("deleted {}", args["path"]))))
        .with_input(
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
        )
        .with_hints(levity::core::Hints::new().destructive())
}

fn model() -> ScriptedModel {
    ScriptedModel::new().call("delete", json!({"path": "a.txt"})).reply("Done.")
}

/// Runs to the question, decides, and returns the result of the call.
async fn decide(decision: Decision) -> (levity::core::ToolResult, Vec<Value>) {
    let tool = delete();
    let agent = Agent::builder(model()).tool(tool.clone()).build().unwrap();
    let mut run = agent.start("Tidy up");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            assert_eq!(ask.call.args, json!({"path": "a.txt"}));
            assert!(tool.calls().is_empty(), "nothing is done before the decision");
            run.control().decide(&ask, decision.clone()).await.unwrap();
            assert!(run.approve(&ask).await.is_err(), "a question is answered once");
        }
    }
    let answer = run.await.unwrap();
    assert_whole(answer.history());
    let result = answer.history().calls().next().unwrap().1.clone();
    (result, tool.calls().into_iter().map(|call| call.args).collect())
}

#[tokio::test]
async fn what_is_approved_is_done() {
    let (result, calls) = decide(Decision::Allow).await;
    assert_eq!(calls, [json!({"path": "a.txt"})]);
    assert_eq!(result.text(), "deleted \"a.txt\"");
}

#[tokio::test]
async fn what_is_denied_is_not_done_and_the_model_learns_why() {
    let (result, calls) = decide(Decision::deny("it is still needed")).await;
    assert!(calls.is_empty());
    assert_eq!(result.error, Some(ToolErrorKind::Denied));
    assert!(result.text().contains("it is still needed"));
}

#[tokio::test]
async fn what_is_edited_is_done_otherwise_and_the_model_is_told() {
    let (result, calls) = decide(Decision::edit(json!({"path": "b.txt"}))).await;
    assert_eq!(calls, [json!({"path": "b.txt"})]);
    assert!(result.text().contains("changed the arguments") && result.text().contains("b.txt"));
}

#[tokio::test]
async fn edited_arguments_are_checked_like_the_models_own() {
    let (result, calls) = decide(Decision::edit(json!({"path": 5}))).await;
    assert!(calls.is_empty());
    assert_eq!(result.error, Some(ToolErrorKind::InvalidArgs));
}

#[tokio::test]
async fn with_nobody_to_ask_the_call_is_denied_and_the_run_goes_on() {
    let tool = delete();
    let agent = Agent::builder(model()).tool(tool.clone()).build().unwrap();
    let answer = agent.run("Tidy up").await.unwrap();
    assert_eq!(answer.text(), "Done.");
    assert!(tool.calls().is_empty());
    let result = answer.history().calls().next().unwrap().1;
    assert!(result.text().contains("nobody is there to ask"), "{}", result.text());
}

struct Yes;

#[async_trait]
impl Approver for Yes {
    async fn decide(&self, _: &Ask) -> Decision {
        Decision::Allow
    }
}

#[tokio::test]
async fn an_approver_answers_in_place_of_the_host() {
    let tool = delete();
    let agent = Agent::builder(model()).tool(tool.clone()).approver(Yes).build().unwrap();
    agent.run("Tidy up").await.unwrap();
    assert_eq!(tool.calls().len(), 1);
}

#[tokio::test]
async fn a_paused_run_begins_nothing_until_it_is_resumed() {
    let agent = Agent::builder(model()).tool(delete()).build().unwrap();
    let mut run = agent.start("Tidy up");
    let mut events = run.events();
    let ask = loop {
        if let EventKind::Asked(ask) = events.next().await.unwrap().kind {
            break ask;
        }
    };
    run.pause().await.unwrap();
    run.approve(&ask).await.unwrap();
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(EventKind::Decided { .. })) {
        seen.push(events.next().await.unwrap().kind);
    }
    assert!(seen.contains(&EventKind::Paused));
    // The call is allowed and wanted, and does not begin: the next thing to happen is the resuming.
    run.resume().await.unwrap();
    assert_eq!(events.next().await.unwrap().kind, EventKind::Resumed);
    assert!(matches!(events.next().await.unwrap().kind, EventKind::ToolStarted { .. }));
    assert_eq!(run.await.unwrap().text(), "Done.");
}

#[tokio::test]
async fn what_the_host_says_is_taken_in_before_the_next_call() {
    let model = model();
    let agent = Agent::builder(model.clone()).tool(delete()).build().unwrap();
    let mut run = agent.start("Tidy up");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            run.say("Be careful!").await.unwrap();
            run.approve(&ask).await.unwrap();
        }
    }
    run.await.unwrap();
    let messages = model.requests()[1].history.messages().to_vec();
    assert_eq!(messages.last().unwrap().text(), "Be careful!");
    assert_whole(&model.requests()[1].history);
}

#[tokio::test]
async fn a_cancelled_run_leaves_a_whole_history_to_go_on_from() {
    let tool = delete();
    let model = model();
    let agent = Agent::builder(model.clone()).tool(tool.clone()).build().unwrap();
    let mut run = agent.start("Tidy up");
    let mut events = run.events();
    let control = run.control().clone();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(_) = event.kind {
            control.cancel("changed my mind").await.unwrap();
        }
    }
    let error = run.await.unwrap_err();
    let levity::Error::Cancelled { reason, partial } = error else { panic!("{error}") };
    assert_eq!(reason, "changed my mind");
    assert_whole(partial.history());
    assert_eq!(partial.history().calls().next().unwrap().1.error, Some(ToolErrorKind::Cancelled));
    assert!(tool.calls().is_empty());
    assert!(control.pause().await.is_err(), "a run that has ended takes no commands");

    let answer = agent.run("Go on").history(partial.history().clone()).await.unwrap();
    assert_eq!(answer.text(), "Done.");
}

#[tokio::test]
async fn every_command_is_in_the_journal() {
    let (runtime, journal) = runtime();
    let agent = Agent::builder(model()).tool(delete()).runtime(runtime).build().unwrap();
    let mut run = agent.start("Tidy up");
    let id = run.id().clone();
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            run.pause().await.unwrap();
            run.resume().await.unwrap();
            run.say("Go on.").await.unwrap();
            run.approve(&ask).await.unwrap();
        }
    }
    run.await.unwrap();
    let text = serde_json::to_string(&journal.records(&id)).unwrap();
    for part in ["\"pause\"", "\"resume\"", "Go on.", "\"decision\":\"allow\""] {
        assert!(text.contains(part), "{part} is not in the journal");
    }
}

#[tokio::test]
async fn two_calls_of_one_turn_may_be_decided_in_any_order() {
    let turn = Turn::new().call("add", json!({"a": 1, "b": 2})).call("add", json!({"a": 3, "b": 4}));
    let agent = Agent::builder(ScriptedModel::new().turn(turn).reply("3 and 7"))
        .tool(add)
        .policy(Policy::ask_all())
        .build()
        .unwrap();
    let mut run = agent.start("Add");
    let mut events = run.events();
    let mut asks = Vec::new();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            asks.push(ask);
            if asks.len() == 2 {
                run.approve(&asks[1]).await.unwrap();
                run.deny(&asks[0], "no").await.unwrap();
            }
        }
    }
    let answer = run.await.unwrap();
    let errors: Vec<bool> = answer.history().calls().map(|(_, result)| result.is_error()).collect();
    assert_eq!(errors, [true, false]);
}
