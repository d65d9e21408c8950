use levity_core::{ModelCard, Price};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::json;

use super::*;
use crate::step::{FanOut, OnFailure, Retry};
use crate::{PlanEstimate, Team};

fn agent(card: ModelCard, tools: bool) -> Agent {
    let agent = Agent::builder(ScriptedModel::new().with_card(card)).max_turns(10);
    let tool = RecordingTool::new("look", |_| Ok(levity_core::ToolOutput::text("a shed")));
    match tools {
        true => agent.tool(tool).build().unwrap(),
        false => agent.build().unwrap(),
    }
}

fn team() -> Team {
    let priced = || ModelCard::new("acme", "small").with_price(Price::new(1.0, 4.0));
    Team::builder()
        .agent("Thinker", "thinks", agent(priced(), false))
        .agent("Coder", "codes", agent(priced(), true))
        .agent(
            "Local",
            "thinks",
            agent(ModelCard::new("local", "free"), false),
        )
        .agent(
            "Brief",
            "thinks",
            agent(priced().with_max_output(20).with_window(100), true),
        )
        .build()
        .unwrap()
}

async fn estimate(steps: &[Step]) -> PlanEstimate {
    let plan = steps.iter().cloned().fold(Plan::new(), Plan::step);
    team().estimate(plan, "Compare").await.unwrap()
}

#[tokio::test]
async fn agent_with_tools_costs_more_than_one_without() {
    let steps = [Step::new("a", "Thinker"), Step::new("b", "CoderAgent")];
    let steps = estimate(&steps).await.steps;
    let calls = |at: usize| (steps[at].calls.low, steps[at].calls.high);
    assert_eq!((calls(0), calls(1)), ((1, 2), (2, 5)));
    assert!(
        steps[1].input.low > steps[0].input.low,
        "tools and their results are sent"
    );
    // The texts of the first four turns are sent ten times in the five turns.
    let grown = 10 * (LONG.output + LONG.results);
    assert!(
        (grown..grown + 2_000).contains(&steps[1].input.high),
        "{:?}",
        steps[1]
    );
    assert_eq!((steps[0].output.low, steps[0].output.high), (150, 3_000));
    let cost = steps[0].cost.unwrap();
    let exact = |range: fn(&EstimateRange<u64>) -> u64| {
        Money::from_nanos(range(&steps[0].input) * 1_000 + range(&steps[0].output) * 4_000)
    };
    assert_eq!((cost.low, cost.high), (exact(|r| r.low), exact(|r| r.high)));
}

#[tokio::test]
async fn unknown_price_is_reported_and_not_counted_as_zero() {
    let found = estimate(&[Step::new("a", "Local"), Step::new("b", "Thinker")]).await;
    assert_eq!(found.steps[0].cost, None);
    assert_eq!(found.unpriced_models(), ["local:free"]);
    assert_eq!(Some(found.known_cost()), found.steps[1].cost);
    let all = found
        .steps
        .iter()
        .map(|step| step.input.low + step.output.low);
    assert_eq!(found.tokens().low, all.sum::<u64>());
}

#[tokio::test]
async fn runs_depend_on_lists_conditions_and_retries() {
    let when = || crate::Condition::parse("x == 1").unwrap();
    let list = Step::new("list", "Thinker").writes(["pages"]);
    let each = |over: &str| Step::new(format!("each {over}"), "Thinker").map(FanOut::over(over));
    let steps = [
        list.on_failure(OnFailure::Fallback("other".into())),
        Step::new("other", "Thinker").writes(["pages"]),
        each("pages"),
        each("cities"),
        Step::new("maybe", "Thinker").when(when()),
        Step::new("again", "Thinker").retry(Retry::attempts(3)),
    ];
    let plan = steps.into_iter().fold(Plan::new(), Plan::step);
    let plan = plan
        .given("cities", json!(["Oslo", "Bergen", "Moss"]))
        .given("x", 1);
    let calls: Vec<_> = team().estimate(plan, "").await.unwrap().steps;
    let calls: Vec<_> = calls
        .iter()
        .map(|step| (step.calls.low, step.calls.high))
        .collect();
    assert_eq!(calls, [(1, 2), (0, 2), (1, 20), (3, 6), (0, 2), (1, 6)]);
}

#[tokio::test]
async fn card_limits_input_and_output_of_each_call() {
    let step = Step::new("a", "Brief").prompt("word ".repeat(1_000));
    let step = &estimate(&[step]).await.steps[0];
    assert_eq!((step.input.high, step.output.high), (5 * 100, 5 * 20));
}

#[tokio::test]
async fn goal_is_a_variable_as_in_a_run() {
    let step = || Step::new("a", "Thinker").reads(["original_query"]);
    let short = estimate(&[step()]).await;
    let long = team()
        .estimate(Plan::new().step(step()), &"Compare. ".repeat(1_000))
        .await
        .unwrap();
    assert!(long.tokens().low > short.tokens().low + 4_000);
    assert!(team().estimate(Plan::new().step(step()), "").await.is_err());
}

#[tokio::test]
async fn invalid_plan_is_rejected() {
    let error = team()
        .estimate(Plan::new().step(Step::new("a", "Codr")), "")
        .await;
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("did you mean `Coder`")
    );
}
