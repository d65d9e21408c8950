//! The features that a first program uses.

use levity::agent::LowBudgetAction;
use levity::core::{EventKind, Finish, Phase, Role, Status};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

use crate::support::{add, assert_complete, collect_events};

fn model() -> ScriptedModel {
    ScriptedModel::new()
        .turn(
            Turn::new()
                .text("Let me see.")
                .call("add", json!({"a": 2, "b": 5}))
                .usage(10, 4),
        )
        .turn(Turn::new().in_pieces(["The sum ", "is 7."]).usage(20, 3))
}

#[tokio::test]
async fn agent_calls_tool_and_returns_answer() {
    let model = model();
    let agent = Agent::builder(model.clone())
        .instructions("Be brief.")
        .tool(add)
        .build()
        .unwrap();
    let answer = agent.run("What is 2 + 5?").await.unwrap();
    model.assert_finished();

    assert_eq!(answer.to_string(), "The sum is 7.");
    assert_eq!(*answer.status(), Status::Complete);
    assert_eq!(
        (answer.usage().input, answer.usage().output),
        (Some(30), Some(7))
    );
    assert_eq!((answer.stats().turns, answer.stats().tool_calls), (2, 1));
    let roles: Vec<_> = answer
        .history()
        .messages()
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::Tool, Role::Assistant]
    );
    assert_complete(answer.history());

    // Text beside a call is not the answer, and the second request contains the result.
    let requests = model.requests();
    assert_eq!(requests[0].system.as_deref(), Some("Be brief."));
    assert_eq!(requests[0].tools[0].name, "add");
    let result = requests[1]
        .history
        .messages()
        .last()
        .unwrap()
        .results()
        .next()
        .unwrap()
        .clone();
    assert_eq!(result.value, Some(json!(7.0)));
}

#[tokio::test]
async fn context_value_has_documented_shape() {
    let agent = Agent::builder(model())
        .tool(add)
        .workspace(levity::core::WorkspaceView::new("project", ["notes.txt"]))
        .build()
        .unwrap();
    let answer = agent.run("What is 2 + 5?").await.unwrap();
    assert_eq!(
        serde_json::to_value(answer.context()).unwrap(),
        json!({
            "intent": "What is 2 + 5?",
            "workspace": {"root": "project", "files": ["notes.txt"]},
            "history": [{
                "step": 1,
                "action": {"tool": "add", "args": {"a": 2, "b": 5}},
                "observation": {"ok": true, "output": 7.0},
            }],
            "memory": {},
        })
    );
}

#[tokio::test]
async fn started_run_emits_phases_and_streams_text() {
    let agent = Agent::builder(model()).tool(add).build().unwrap();
    let (events, answer) = collect_events(agent.start("What is 2 + 5?")).await;
    assert_eq!(answer.unwrap().text(), "The sum is 7.");

    let phases: Vec<Phase> = events
        .iter()
        .filter_map(|event| {
            if let EventKind::Phase(phase) = event.kind {
                Some(phase)
            } else {
                None
            }
        })
        .collect();
    use Phase::{Act, End, Goal, Observe, Plan, Reflect};
    assert_eq!(phases, [Goal, Plan, Act, Observe, Reflect, Act, End]);

    let text: Vec<String> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Delta {
                delta: levity::core::Delta::Text(text),
                ..
            } => Some(text.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(text, ["Let me see.", "The sum ", "is 7."]);
    assert!(matches!(
        events.first().unwrap().kind,
        EventKind::RunStarted { .. }
    ));
    assert!(matches!(
        events.last().unwrap().kind,
        EventKind::RunEnded(_)
    ));
}

#[tokio::test]
async fn run_continues_from_history_of_earlier_answer() {
    let agent = Agent::builder(ScriptedModel::new().reply("Hello, Ada.").reply("Ada."))
        .build()
        .unwrap();
    let first = agent.run("I am Ada.").await.unwrap();
    let second = agent
        .run("Who am I?")
        .history(first.history().clone())
        .await
        .unwrap();
    assert_eq!(second.history().len(), 4);
    assert_eq!(
        first.history().len(),
        2,
        "the first answer must keep its own history"
    );
}

#[tokio::test]
async fn linked_tools_are_registered_automatically() {
    let model = model();
    let agent = Agent::builder(model.clone())
        .linked_tools()
        .build()
        .unwrap();
    assert_eq!(
        agent.run("What is 2 + 5?").await.unwrap().text(),
        "The sum is 7."
    );
    let names: Vec<_> = model.requests()[0]
        .tools
        .iter()
        .map(|spec| spec.name.clone())
        .collect();
    assert!(
        names.contains(&"add".to_owned()) && names.contains(&"broken".to_owned()),
        "{names:?}"
    );
}

#[test]
fn blocking_run_works_without_async() {
    let agent = Agent::builder(model()).tool(add).build().unwrap();
    let answer = agent.run("What is 2 + 5?").blocking().unwrap();
    assert_eq!(answer.text(), "The sum is 7.");
}

#[tokio::test]
async fn blocking_call_inside_async_runtime_fails() {
    let agent = Agent::builder(model()).build().unwrap();
    let error = agent.run("What?").blocking().unwrap_err();
    assert!(
        error.to_string().contains("inside an async runtime"),
        "{error}"
    );
}

#[test]
fn build_rejects_contradictory_settings() {
    #[track_caller]
    fn check(builder: levity::agent::AgentBuilder, expected: &str) {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let builder = || Agent::builder(ScriptedModel::new());
    check(
        builder().tool(add).tool(add),
        "two tools are named `add`; rename one with `.tool_as(..)`",
    );
    check(builder().max_turns(0), "`max_turns` is 0");
    check(
        builder().single_tool(),
        "`single_tool` is set, but there is no tool",
    );
    check(
        builder().model_for("writer", ScriptedModel::new()),
        "there are `planner`, `reflector`, `summariser` and `cheap`",
    );
    check(
        builder().model_for("cheap", ScriptedModel::new()),
        "add `.on_low_budget(LowBudgetAction::Switch)`",
    );
    check(
        builder().on_low_budget(LowBudgetAction::Switch),
        "add `.model_for(\"cheap\", ..)`",
    );
}

#[tokio::test]
async fn delta_event_has_number_of_its_model_call() {
    let agent = Agent::builder(ScriptedModel::new().reply("7"))
        .build()
        .unwrap();
    let (events, _) = collect_events(agent.start("What is 2 + 5?")).await;
    let number = |wanted: fn(&EventKind) -> bool| {
        events.iter().find(|event| wanted(&event.kind)).unwrap().seq
    };
    let started = number(|kind| matches!(kind, EventKind::ModelStarted { .. }));
    assert_eq!(
        started,
        number(|kind| matches!(kind, EventKind::Delta { .. }))
    );
}

#[tokio::test]
async fn truncated_answer_reports_finish_length() {
    let cut = Turn::new().text("The sum is").finish(Finish::Length);
    let agent = Agent::builder(ScriptedModel::new().turn(cut))
        .build()
        .unwrap();
    assert_eq!(
        agent.run("What is 2 + 5?").await.unwrap().finish(),
        Some(&Finish::Length)
    );
}
