//! Limits of a run, and the answers of runs that reach one.

use std::time::Duration;

use levity::agent::{ModelPlanner, ModelReflector};
use levity::core::{Limit, Status, ToolChoice};
use levity::prelude::*;
use levity::test::{ManualWorld, RecordingTool, ScriptedModel, Turn};
use serde_json::{Value, json};

use crate::support::{add, assert_complete, broken};

fn calling_turn() -> Turn {
    Turn::new()
        .text("One more.")
        .call("add", json!({"a": 1, "b": 1}))
        .usage(3_000, 200)
}

/// A model that calls a tool `calls` times and would then answer.
fn model(calls: usize) -> ScriptedModel {
    let model = (0..calls).fold(ScriptedModel::new(), |model, _| model.turn(calling_turn()));
    model.turn(Turn::new().text("That is what I have.").usage(100, 5))
}

#[tokio::test]
async fn last_turn_is_announced_and_gives_best_effort_answer() {
    let model = model(2);
    let agent = Agent::builder(model.clone())
        .tool(add)
        .max_turns(3)
        .build()
        .unwrap();
    let answer = agent.run("Count").await.unwrap();
    model.assert_finished();
    assert!(answer.is_best_effort());
    assert_eq!(*answer.status(), Status::BestEffort(Limit::Turns));
    let last = &model.requests()[2];
    assert_eq!(
        (last.tools.len(), &last.tool_choice),
        (1, &ToolChoice::None)
    );
    assert!(
        last.history
            .messages()
            .last()
            .unwrap()
            .text()
            .contains("last turn")
    );
}

#[tokio::test]
async fn last_turn_with_tool_calls_answers_with_its_text() {
    let agent = Agent::builder(ScriptedModel::looping(calling_turn()))
        .tool(add)
        .max_turns(2)
        .build()
        .unwrap();
    let answer = agent.run("Count").await.unwrap();
    assert_eq!(answer.text(), "One more.");
    assert!(answer.is_best_effort());
    assert_complete(answer.history());
}

/// Checks the status of a run with these limits, and the number of its requests.
async fn check(limits: Limits, calls: usize, expected: Status, requests: usize) {
    let model = model(calls);
    let agent = Agent::builder(model.clone())
        .tool(add)
        .limits(limits)
        .max_turns(50)
        .build()
        .unwrap();
    let status = match agent.run("Count").await {
        Ok(answer) => answer.status().clone(),
        Err(error) => {
            let partial: Answer = error.partial_as().expect(
                "the error must contain the partial \
                result",
            );
            assert_complete(partial.history());
            partial.status().clone()
        }
    };
    assert_eq!(status, expected);
    assert_eq!(model.requests().len(), requests);
}

#[tokio::test]
async fn reached_limit_is_reported_in_answer_status() {
    let limits = Limits::new();
    check(
        limits.model_calls(3),
        2,
        Status::BestEffort(Limit::ModelCalls),
        3,
    )
    .await;
    check(
        limits.tool_calls(2),
        2,
        Status::BestEffort(Limit::ToolCalls),
        3,
    )
    .await;
    // After two calls of 3,200 tokens, the limit allows one more with a reply of 1,024, but not
    // two.
    check(
        limits.tokens(11_000),
        2,
        Status::BestEffort(Limit::Tokens),
        3,
    )
    .await;
    check(limits, 2, Status::Complete, 3).await;
}

#[tokio::test]
async fn limit_of_one_model_call_forces_answer() {
    check(
        Limits::new().model_calls(1),
        0,
        Status::BestEffort(Limit::ModelCalls),
        1,
    )
    .await;
}

#[tokio::test]
async fn model_that_never_answers_stops_with_partial_result() {
    let silent = Turn::new()
        .call("add", json!({"a": 1, "b": 1}))
        .usage(10, 1);
    let model = ScriptedModel::looping(silent);
    let agent = Agent::builder(model.clone())
        .tool(add)
        .limits(Limits::new().model_calls(3))
        .build()
        .unwrap();
    let error = agent.run("Count").await.unwrap_err();
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
    assert_eq!(error.partial().unwrap().stats().tool_calls, 2);
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn tool_calls_over_limit_are_refused_individually() {
    let turn = (0..5).fold(Turn::new(), |turn, n| {
        turn.call("add", json!({"a": n, "b": 0}))
    });
    let model = ScriptedModel::new().turn(turn).reply("Some of them.");
    let agent = Agent::builder(model)
        .tool(add)
        .limits(Limits::new().tool_calls(3))
        .build()
        .unwrap();
    let answer = agent.run("Count").await.unwrap();
    let errors: Vec<bool> = answer
        .history()
        .calls()
        .map(|(_, result)| result.is_error())
        .collect();
    assert_eq!(errors, [false, false, false, true, true]);
}

#[tokio::test]
async fn wall_time_ends_run_during_model_call() {
    let world = ManualWorld::new();
    let model = ScriptedModel::new().turn(calling_turn()).hang();
    let agent = Agent::builder(model)
        .tool(add)
        .limits(Limits::new().wall_time(Duration::from_secs(5)))
        .runtime(Runtime::new().with_world(world.clone()))
        .build()
        .unwrap();
    let run = agent.start("Count");
    world.until_sleeping(2).await; // The deadline of the run and the timeout of the model.
    world.advance(Duration::from_secs(5));
    let error = run.await.unwrap_err();
    assert!(
        matches!(
            error,
            levity::Error::Limit {
                limit: Limit::WallTime,
                ..
            }
        ),
        "{error}"
    );
    let partial: Answer = error.partial_as().unwrap();
    assert_eq!(partial.text(), "One more.");
    assert_complete(partial.history());
}

#[tokio::test]
async fn single_tool_mode_allows_one_call_and_then_forces_answer() {
    let model = ScriptedModel::new()
        .turn(
            Turn::new()
                .call("add", json!({"a": 1, "b": 1}))
                .call("broken", json!({})),
        )
        .reply("2");
    let agent = Agent::builder(model.clone())
        .tool(add)
        .tool(broken)
        .single_tool()
        .build()
        .unwrap();
    let answer = agent.run("Add").await.unwrap();
    assert_eq!(*answer.status(), Status::Complete);
    let errors: Vec<bool> = answer
        .history()
        .calls()
        .map(|(_, result)| result.is_error())
        .collect();
    assert_eq!(errors, [false, true]);
    assert_eq!(model.requests()[1].tool_choice, ToolChoice::None);
}

#[tokio::test]
async fn wall_time_ends_run_that_never_sleeps() {
    let world = ManualWorld::new();
    let clock = world.clone();
    let slow = RecordingTool::new("slow", move |_: &Value| {
        clock.advance(Duration::from_secs(10));
        Ok(ToolOutput::text("ok"))
    });
    let model = (0..5)
        .fold(ScriptedModel::new(), |model, _| {
            model.call("slow", json!({}))
        })
        .reply("Done.");
    let agent = Agent::builder(model)
        .tool(slow.clone())
        .limits(Limits::new().wall_time(Duration::from_secs(5)))
        .runtime(Runtime::new().with_world(world))
        .build()
        .unwrap();
    let end = agent.run("Count").await;
    assert!(
        end.is_err(),
        "50 s of work with a limit of 5 s; {} calls",
        slow.calls().len()
    );
}

#[tokio::test]
async fn planner_leaves_last_model_call_for_answer() {
    let model = ScriptedModel::new().reply("A plan.").reply("An answer.");
    let agent = Agent::builder(model)
        .planner(ModelPlanner::new())
        .limits(Limits::new().model_calls(1));
    agent.build().unwrap().run("Count").await.unwrap();
}

#[tokio::test]
async fn reflector_leaves_last_model_call_for_answer() {
    let model = ScriptedModel::new()
        .turn(calling_turn())
        .reply("A thought.")
        .reply("An answer.");
    let agent = Agent::builder(model)
        .tool(add)
        .reflector(ModelReflector::new());
    agent
        .limits(Limits::new().model_calls(2))
        .build()
        .unwrap()
        .run("Count")
        .await
        .unwrap();
}

#[tokio::test]
async fn tool_call_without_tools_is_not_reported_as_limit() {
    let agent = Agent::builder(ScriptedModel::new().call("add", json!({})).reply("Fine."))
        .build()
        .unwrap();
    let end = agent.run("Count").await;
    assert!(
        !matches!(end, Err(levity::Error::Limit { .. })),
        "{}",
        end.unwrap_err()
    );
}
