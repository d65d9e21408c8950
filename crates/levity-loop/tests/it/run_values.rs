//! Values and approvers that a program gives to one run.

use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Ask, Decision, Hints, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::{Value, json};

struct User(u32);

/// A tool that returns the logged-in user.
struct WhoAmI(ToolSpec);

impl WhoAmI {
    fn new() -> Self {
        Self(ToolSpec::new("who_am_i", "Says who is logged in."))
    }
}

#[async_trait]
impl Tool for WhoAmI {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let user = cx
            .get::<User>()
            .ok_or_else(|| ToolError::failed("nobody is logged in"))?;
        Ok(ToolOutput::text(format!("user {}", user.0)))
    }
}

fn asks_who() -> ScriptedModel {
    ScriptedModel::new()
        .call("who_am_i", json!({}))
        .reply("I see.")
        .by_history()
}

/// Returns the last result of the tool.
fn result_of(model: &ScriptedModel) -> String {
    let requests = model.requests();
    let messages = requests.last().unwrap().history.messages();
    let mut results = messages.iter().rev().flat_map(|message| message.results());
    results.next().unwrap().text().into_owned()
}

#[tokio::test]
async fn tools_get_values_of_their_own_run_only() {
    let model = asks_who();
    let agent = Agent::builder(model.clone())
        .tool(WhoAmI::new())
        .build()
        .unwrap();
    agent.run("Who?").with(User(6)).with(User(7)).await.unwrap();
    assert_eq!(result_of(&model), "user 7");
    agent.run("Who?").await.unwrap();
    assert!(
        result_of(&model).contains("nobody is logged in"),
        "{}",
        result_of(&model)
    );
    agent.run("Who?").with(User(8)).start().await.unwrap();
    assert_eq!(result_of(&model), "user 8");
}

#[tokio::test]
async fn values_reach_tools_of_child_agents() {
    let model = asks_who();
    let inner = Agent::builder(model.clone())
        .tool(WhoAmI::new())
        .build()
        .unwrap();
    let outer = ScriptedModel::new()
        .call("helper", json!({"task": "Who?"}))
        .reply("Done.");
    let agent = Agent::builder(outer)
        .agent("helper", "Helps.", inner)
        .build()
        .unwrap();
    agent.run("Who?").with(User(7)).await.unwrap();
    assert_eq!(result_of(&model), "user 7");
}

#[tokio::test]
async fn resumed_run_has_the_new_values() {
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let model = ScriptedModel::new()
        .call("send", json!({}))
        .call("who_am_i", json!({}))
        .reply("Sent.")
        .by_history();
    let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
    let send = send.with_hints(Hints::new().destructive());
    let agent = Agent::builder(model.clone())
        .tool(send)
        .tool(WhoAmI::new())
        .runtime(runtime)
        .build()
        .unwrap();
    agent
        .run("Send it")
        .id("r")
        .with(User(6))
        .park()
        .await
        .unwrap_err();
    let answer = agent
        .resume("r")
        .with(User(7))
        .approver(|_: &Ask| Decision::Allow)
        .await
        .unwrap();
    assert_eq!((answer.text(), &*result_of(&model)), ("Sent.", "user 7"));
}

#[tokio::test]
async fn on_ask_answers_questions_of_run_and_children() {
    let sent = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tool = || {
        let sent = sent.clone();
        let send = RecordingTool::new("send", move |args| {
            sent.lock().unwrap().push(args["to"].to_string());
            Ok(ToolOutput::text("sent"))
        });
        send.with_hints(Hints::new().destructive())
    };
    let inner = ScriptedModel::new()
        .call("send", json!({"to": "below"}))
        .reply("Done.")
        .by_history();
    let inner = Agent::builder(inner).tool(tool()).build().unwrap();
    let outer = ScriptedModel::new()
        .call("send", json!({"to": "me"}))
        .call("helper", json!({"task": "Send"}))
        .reply("Done.")
        .by_history();
    let agent = Agent::builder(outer)
        .tool(tool())
        .agent("helper", "Helps.", inner)
        .build()
        .unwrap();
    agent
        .run("Send")
        .approver(|ask: &Ask| match ask.call.args["to"] == "me" {
            true => Decision::deny("not to me"),
            false => Decision::Allow,
        })
        .await
        .unwrap();
    assert_eq!(*sent.lock().unwrap(), ["\"below\""]);
    // Without it, no one answers.
    agent.run("Send").await.unwrap();
    assert_eq!(sent.lock().unwrap().len(), 1);
}
