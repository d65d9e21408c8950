//! Planners, reflectors and context sources.

use async_trait::async_trait;
use levity::agent::{ModelPlanner, ModelReflector, RulePlanner, RuleReflector};
use levity::core::{
    ContextBlock, ContextError, ContextRequest, ContextSource, EventKind, Role, ToolChoice,
};
use levity::prelude::*;
use levity::test::ScriptedModel;
use serde_json::json;

use crate::support::{RulesFile, add, broken, collect_events};

#[tokio::test]
async fn plan_rules_need_no_model_call() {
    let model = ScriptedModel::new().reply("7");
    let rules = RulePlanner::new()
        .when("deploy", ["test", "deploy"])
        .when("WHAT", ["add", "answer"]);
    let agent = Agent::builder(model.clone())
        .planner(rules)
        .build()
        .unwrap();
    let (events, _) = collect_events(agent.start("What is 2 + 5?")).await;
    let plan = EventKind::Plan {
        steps: vec!["add".into(), "answer".into()],
    };
    assert!(events.iter().any(|event| event.kind == plan));
    let note = model.requests()[0]
        .history
        .messages()
        .last()
        .unwrap()
        .clone();
    assert_eq!(
        (note.role, &*note.text()),
        (Role::System, "The plan:\n1. add\n2. answer")
    );
}

#[tokio::test]
async fn planner_model_is_called_separately() {
    let planner = ScriptedModel::new().reply("1. look\n- think\n\n* 3) answer");
    let model = ScriptedModel::new().reply("7");
    let agent = Agent::builder(model.clone())
        .planner(ModelPlanner::new())
        .model_for("planner", planner.clone())
        .build();
    let answer = agent.unwrap().run("What is 2 + 5?").await.unwrap();
    planner.assert_finished();
    assert!(planner.requests()[0].tools.is_empty());
    assert_eq!(answer.stats().model_calls, 2);
    let note = model.requests()[0].history.messages()[1]
        .text()
        .into_owned();
    assert_eq!(note, "The plan:\n1. look\n2. think\n3. answer");
}

#[tokio::test]
async fn reflection_rules_need_no_model_call() {
    let model = ScriptedModel::new()
        .call("broken", json!({}))
        .call("add", json!({"a": 1, "b": 1}))
        .reply("2");
    let rules = RuleReflector::new()
        .when_fails("broken", "Use `add`.")
        .finish_after("add");
    let agent = Agent::builder(model.clone())
        .tool(add)
        .tool(broken)
        .reflector(rules)
        .build()
        .unwrap();
    agent.run("Add").await.unwrap();
    let requests = model.requests();
    assert!(
        requests[1]
            .history
            .messages()
            .iter()
            .any(|message| message.text() == "Use `add`.")
    );
    assert_eq!(
        requests[2].tool_choice,
        ToolChoice::None,
        "after `add` the answer is wanted"
    );
}

#[tokio::test]
async fn reflector_model_is_called_separately() {
    let model = ScriptedModel::new()
        .call("add", json!({"a": 1, "b": 1}))
        .reply("All is there.")
        .reply("2");
    let agent = Agent::builder(model.clone())
        .tool(add)
        .reflector(ModelReflector::new())
        .build()
        .unwrap();
    assert_eq!(agent.run("Add").await.unwrap().text(), "2");
    let last = model.requests()[2]
        .history
        .messages()
        .last()
        .unwrap()
        .text()
        .into_owned();
    assert_eq!(last, "Looking back: All is there.");
}

struct FailingContext;

#[async_trait]
impl ContextSource for FailingContext {
    async fn blocks(&self, _: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        Err(ContextError::new("gone", "no such folder"))
    }
}

#[tokio::test]
async fn context_precedes_instructions() {
    let model = ScriptedModel::new().reply("Yes.");
    let agent = Agent::builder(model.clone())
        .instructions("Be brief.")
        .context(RulesFile)
        .build()
        .unwrap();
    agent.start("Well?").await.unwrap();
    let system = model.requests()[0].system.clone().unwrap();
    let (introduction, blocks) = system.split_once("\n\n").unwrap();
    assert!(
        introduction.contains("given for information"),
        "{introduction}"
    );
    assert_eq!(
        blocks,
        "--- rules.md ---\nNo jokes.\n\n--- end of context ---\n\nBe brief."
    );
}

#[tokio::test]
async fn failed_context_returns_error_with_reason() {
    let agent = Agent::builder(ScriptedModel::new())
        .context(FailingContext)
        .build()
        .unwrap();
    let error = agent.run("Well?").await.unwrap_err();
    let mut text = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    assert!(
        text.contains("`gone`") && text.contains("no such folder"),
        "{text}"
    );
}
