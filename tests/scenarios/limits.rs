use std::time::Duration;

use levity::agent::{PlanByModel, ReflectByModel};
use levity::core::{Limit, Status, ToolChoice};
use levity::prelude::*;
use levity::test::{ManualWorld, RecordingTool, ScriptedModel, Turn};
use serde_json::{Value, json};

use crate::support::{add, assert_whole, broken};

fn busy() -> Turn {
    Turn::new()
        .text("One more.")
        .call("add", json!({"a": 1, "b": 1}))
        .usage(3_000, 200)
}

/// A model that calls a tool `calls` times and would then answer.
fn model(calls: usize) -> ScriptedModel {
    let model = (0..calls).fold(ScriptedModel::new(), |model, _| model.turn(busy()));
    model.turn(Turn::new().text("That is what I have.").usage(100, 5))
}

#[tokio::test]
async fn the_last_turn_is_announced_and_gives_a_best_effort_answer() {
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
async fn a_last_turn_that_calls_tools_all_the_same_is_answered_by_its_words() {
    let agent = Agent::builder(ScriptedModel::looping(busy()))
        .tool(add)
        .max_turns(2)
        .build()
        .unwrap();
    let answer = agent.run("Count").await.unwrap();
    assert_eq!(answer.text(), "One more.");
    assert!(answer.is_best_effort());
    assert_whole(answer.history());
}

/// How a run ends under limits, and how many requests it made.
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
            let partial: Answer = error.partial_as().expect("what was reached is kept");
            assert_whole(partial.history());
            partial.status().clone()
        }
    };
    assert_eq!(status, expected);
    assert_eq!(model.requests().len(), requests);
}

#[tokio::test]
async fn every_limit_ends_in_a_marked_answer() {
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
    // After two calls of 3,200 there is room for one more, with a reply of 1,024, and not for two.
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
async fn a_limit_of_one_call_leaves_no_room_for_tools() {
    check(
        Limits::new().model_calls(1),
        0,
        Status::BestEffort(Limit::ModelCalls),
        1,
    )
    .await;
}

#[tokio::test]
async fn a_model_that_will_not_finish_is_stopped_with_its_work_kept() {
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
async fn more_calls_than_allowed_are_refused_one_by_one() {
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
async fn time_is_up_even_while_a_model_thinks() {
    let world = ManualWorld::new();
    let model = ScriptedModel::new().turn(busy()).hang();
    let agent = Agent::builder(model)
        .tool(add)
        .limits(Limits::new().wall_time(Duration::from_secs(5)))
        .runtime(Runtime::new().with_world(world.clone()))
        .build()
        .unwrap();
    let run = agent.start("Count");
    world.until_sleeping(2).await; // the run's deadline and the model's own limit
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
    assert_whole(partial.history());
}

#[tokio::test]
async fn single_tool_mode_allows_one_call_and_then_wants_the_answer() {
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
async fn time_is_up_even_when_nothing_is_ever_waited_for() {
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
        "50 s of work within a limit of 5 s; {} calls",
        slow.calls().len()
    );
}

#[tokio::test]
async fn a_planner_leaves_the_last_call_for_the_answer() {
    let model = ScriptedModel::new().reply("A plan.").reply("An answer.");
    let agent = Agent::builder(model)
        .planner(PlanByModel::new())
        .limits(Limits::new().model_calls(1));
    agent.build().unwrap().run("Count").await.unwrap();
}

#[tokio::test]
async fn a_reflector_leaves_the_last_call_for_the_answer() {
    let model = ScriptedModel::new()
        .turn(busy())
        .reply("A thought.")
        .reply("An answer.");
    let agent = Agent::builder(model)
        .tool(add)
        .reflector(ReflectByModel::new());
    agent
        .limits(Limits::new().model_calls(2))
        .build()
        .unwrap()
        .run("Count")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_call_where_there_are_no_tools_is_not_taken_for_a_limit() {
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
