//! Policies that take time to decide.

use std::sync::mpsc::channel;
use std::time::Duration;

use levity_core::{EventKind, ToolOutput};
use levity_loop::Agent;
use levity_test::{RecordingTool, ScriptedModel};
use levity_tools::{Policy, Rule};
use serde_json::json;
use tokio::task::JoinSet;

/// The rule blocks its thread until another task of the same thread has sent something, once for
/// each decision.
#[tokio::test(flavor = "current_thread")]
async fn blocking_policy_does_not_block_other_tasks() {
    let (send, receive) = channel();
    let (asked, mut is_asked) = tokio::sync::mpsc::unbounded_channel();
    let receive = std::sync::Mutex::new(receive);
    let rule = Rule::tool("add").when_blocking(move |_, _| {
        asked.send(()).unwrap();
        // It takes this long only if no other task runs on the thread.
        receive
            .lock()
            .unwrap()
            .recv_timeout(Duration::from_secs(20))
            .is_err()
    });
    let policy = Policy::new().rule(rule.deny("the thread was held"));
    let tool = RecordingTool::new("add", |_| Ok(ToolOutput::text("7")));
    let model = ScriptedModel::new().call("add", json!({})).reply("7.");
    let agent = Agent::builder(model)
        .tool(tool.clone())
        .policy(policy)
        .build()
        .unwrap();
    let mut other = JoinSet::new();
    other.spawn(async move {
        while is_asked.recv().await.is_some() {
            send.send(()).unwrap();
        }
    });
    assert_eq!(agent.run("Add them up").await.unwrap().text(), "7.");
    assert_eq!(tool.calls().len(), 1, "it was not denied");
    drop(agent);
    other.join_next().await.unwrap().unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn agent_is_cancelled_during_policy_decision() {
    let (send, receive) = channel::<()>();
    let (asked, mut is_asked) = tokio::sync::mpsc::unbounded_channel();
    let receive = std::sync::Mutex::new(receive);
    let rule = Rule::tool("add").when_blocking(move |_, _| {
        asked.send(()).unwrap();
        receive
            .lock()
            .unwrap()
            .recv_timeout(Duration::from_secs(20))
            .is_err()
    });
    let tool = RecordingTool::new("add", |_| Ok(ToolOutput::text("7")));
    let model = ScriptedModel::new().call("add", json!({})).reply("7.");
    let builder = Agent::builder(model)
        .tool(tool.clone())
        .policy(Policy::new().rule(rule.ask("slow")));
    let mut run = builder.build().unwrap().start("Add them up");
    let mut events = run.events();
    is_asked.recv().await.unwrap();
    run.control().cancel("enough").await.unwrap();
    assert!(run.await.is_err());
    while let Some(event) = events.next().await {
        assert!(!matches!(event.kind, EventKind::ToolStarted { .. }));
    }
    assert!(tool.calls().is_empty());
    // This ends the decision that no one waits for any more.
    drop(send);
}
