//! Runs whose budget is low or too small for a request.

use levity::agent::LowBudgetAction;
use levity::core::{EventKind, Limit, ModelCard, Price, Status, ToolChoice};
use levity::prelude::*;
use levity::runtime::replay;
use levity::test::{RecordingTool, ScriptedModel, Turn};
use serde_json::json;

use super::{card, dollars, endless_model};
use crate::support::{add, collect_events, runtime};

#[tokio::test]
async fn low_budget_switches_run_and_children_to_cheap_model() {
    let (runtime, journal) = runtime();
    let small = ModelCard::new("test", "small")
        .with_price(Price::new(0.1, 0.4))
        .with_max_output(1_000);
    let cheap =
        || ScriptedModel::looping(Turn::new().text("2").usage(2_000, 10)).with_card(small.clone());
    let (expensive, child, own) = (endless_model(card()), cheap(), cheap());
    let helper = Agent::builder(endless_model(card())).tool(add);
    let helper = helper
        .on_low_budget(LowBudgetAction::Switch)
        .model_for("cheap", child.clone())
        .build()
        .unwrap();
    let delegation = Turn::new()
        .call("helper", json!({"task": "Count"}))
        .usage(2_000, 100);
    let model = ScriptedModel::new().turn(delegation).with_card(card());
    let agent = Agent::builder(model)
        .agent("helper", "Counts.", helper)
        .on_low_budget(LowBudgetAction::Switch)
        .model_for("cheap", own.clone())
        .limits(Limits::new().money(dollars(0.08)).low(70))
        .runtime(runtime)
        .build()
        .unwrap();
    let (events, answer) = collect_events(agent.run("Count").id("r").start()).await;
    let answer = answer.unwrap();
    assert_eq!(*answer.status(), Status::Complete);
    assert_eq!(
        (
            child.requests().len(),
            own.requests().len(),
            expensive.requests().len()
        ),
        (1, 1, 0)
    );
    let low: Vec<_> = events
        .iter()
        .filter(|event| event.kind == EventKind::LimitLow(Limit::Money))
        .collect();
    assert_eq!(low.len(), 2, "each run emits the event once");

    let own: Vec<_> = events
        .into_iter()
        .filter(|e| e.run.as_str() == "r" && !e.kind.is_transient())
        .collect();
    let replayed = replay(answer.run(), &journal.records(answer.run()), |_, state| {
        agent.restore(state)
    })
    .unwrap();
    assert_eq!(replayed.events, own);
}

#[tokio::test]
async fn child_started_on_low_budget_uses_cheap_model() {
    let small = ModelCard::new("test", "small")
        .with_price(Price::new(0.1, 0.4))
        .with_max_output(1_000);
    let cheap = ScriptedModel::looping(Turn::new().text("2").usage(20, 10)).with_card(small);
    let expensive = endless_model(card());
    let helper = Agent::builder(expensive.clone())
        .tool(add)
        .on_low_budget(LowBudgetAction::Switch)
        .model_for("cheap", cheap.clone());
    let delegation = Turn::new()
        .call("helper", json!({"task": "Count"}))
        .usage(2_000, 100);
    let model = ScriptedModel::new()
        .turn(delegation)
        .turn(Turn::new().text("2").usage(20, 10));
    let agent =
        Agent::builder(model.with_card(card())).agent("helper", "Counts.", helper.build().unwrap());
    let agent = agent
        .limits(Limits::new().money(dollars(0.1)).low(99))
        .build()
        .unwrap();
    agent.run("Count").await.unwrap();
    assert_eq!((expensive.requests().len(), cheap.requests().len()), (0, 1));
}

#[tokio::test]
async fn low_budget_without_cheap_model_forces_answer() {
    let model = endless_model(card());
    let limits = Limits::new().money(dollars(1.0)).low(98);
    let agent = Agent::builder(model.clone())
        .tool(add)
        .limits(limits)
        .build()
        .unwrap();
    let answer = agent.run("Count").await.unwrap();
    assert_eq!(*answer.status(), Status::BestEffort(Limit::Money));
    assert_eq!(
        model.requests().len(),
        4,
        "one call costs $0.0075: less than 98 % remains after the third"
    );
    assert_eq!(model.requests()[3].tool_choice, ToolChoice::None);
}

#[tokio::test]
async fn run_near_its_limit_gives_best_effort_answer() {
    for at in [0.06, 0.08, 0.1, 0.12] {
        for limits in [
            Limits::new().money(dollars(at)),
            Limits::new().tokens((at * 200_000.0) as u64),
        ] {
            let model = endless_model(card());
            let agent = Agent::builder(model.clone())
                .tool(add)
                .max_turns(100)
                .limits(limits)
                .build()
                .unwrap();
            let answer = agent.run("Count").await.unwrap();
            assert!(answer.is_best_effort(), "{at}: {}", answer.status());
            assert!(
                model.requests().len() > 2,
                "{at}: {} calls",
                model.requests().len()
            );
        }
    }
}

#[tokio::test]
async fn request_too_expensive_with_tools_is_sent_without_them() {
    let sums = RecordingTool::new("sums", |_| Ok(ToolOutput::text("2")));
    let sums =
        sums.with_input(json!({"type": "object", "description": "Adds numbers. ".repeat(2_000)}));
    let model = ScriptedModel::new()
        .with_card(card())
        .turn(Turn::new().text("2").usage(10, 1));
    let agent = Agent::builder(model.clone())
        .tool(sums)
        .limits(Limits::new().money(dollars(0.05)));
    let agent = agent.build().unwrap();
    let answer = agent.run("Count").await.unwrap();
    assert_eq!(*answer.status(), Status::BestEffort(Limit::Money));
    assert!(model.requests()[0].tools.is_empty());
}

#[tokio::test]
async fn last_turn_under_money_limit_still_lists_tools() {
    let model = endless_model(card());
    let limits = Limits::new().money(dollars(1.0));
    let agent = Agent::builder(model.clone())
        .tool(add)
        .max_turns(2)
        .limits(limits)
        .build()
        .unwrap();
    agent.run("Count").await.unwrap();
    let last = &model.requests()[1];
    assert_eq!(
        (last.tools.len(), &last.tool_choice),
        (1, &ToolChoice::None)
    );
}

#[tokio::test]
async fn run_with_low_budget_from_start_can_be_forked() {
    let (runtime, _) = runtime();
    let build = || {
        let cheap = ScriptedModel::looping(Turn::new().text("2").usage(20, 10)).with_card(card());
        Agent::builder(endless_model(card()))
            .tool(add)
            .on_low_budget(LowBudgetAction::Switch)
            .model_for("cheap", cheap)
            .limits(Limits::new().money(dollars(1.0)).low(100))
            .runtime(runtime.clone())
            .build()
            .unwrap()
    };
    build().run("Count").id("old").await.unwrap();
    assert_eq!(
        build().fork("old").after(1).id("new").await.unwrap().text(),
        "2"
    );
}

#[tokio::test]
async fn request_too_expensive_goes_to_cheap_model() {
    let small = ModelCard::new("test", "small")
        .with_price(Price::new(0.1, 0.4))
        .with_max_output(1_000);
    let cheap = ScriptedModel::looping(Turn::new().text("2").usage(2_000, 10)).with_card(small);
    for builder in [
        Agent::builder(endless_model(card())),
        Agent::builder(endless_model(card())).tool(add),
    ] {
        let agent = builder
            .instructions("Count well. ".repeat(500))
            .on_low_budget(LowBudgetAction::Switch)
            .model_for("cheap", cheap.clone())
            .limits(Limits::new().money(dollars(0.01)).low(10))
            .build()
            .unwrap();
        let answer = agent.run("Count").await.unwrap();
        assert_eq!(answer.text(), "2");
    }
}

#[tokio::test]
async fn child_leaves_enough_tokens_for_answer_of_parent() {
    for tokens in (40_000..60_000).step_by(1_000) {
        let helper = Agent::builder(endless_model(card()))
            .tool(add)
            .max_turns(100)
            .build()
            .unwrap();
        let delegation = Turn::new()
            .call("helper", json!({"task": "Count"}))
            .usage(3_000, 100);
        let model = ScriptedModel::new()
            .turn(delegation)
            .turn(Turn::new().text("2").usage(3_000, 10));
        let agent = Agent::builder(model.with_card(card()))
            .instructions("Count well. ".repeat(1_000))
            .agent("helper", "Counts.", helper)
            .limits(Limits::new().tokens(tokens))
            .build()
            .unwrap();
        let answer = agent.run("Count").await;
        assert!(answer.is_ok(), "{tokens}: {}", answer.unwrap_err());
    }
}
