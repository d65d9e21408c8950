//! Tests of team runs whose machines are restored after every record.

use levity_core::{Decision, Journal as _};
use levity_dag::{FanOut, Plan, Retry, Step, TeamBuilder, TeamInput};
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{ManualWorld, RecordingTool, ScriptedModel, conformance};
use levity_tools::{Policy, Rule};
use serde_json::json;

use crate::bounds::{agent, code, give, judge};
use crate::replan::Script;
use crate::support::{Log, simple, within};

/// Runs the team and checks its machine; returns the number of records.
async fn check(builder: TeamBuilder, input: impl Into<TeamInput>) -> usize {
    let journal = MemoryJournal::new();
    let runtime = Runtime::new()
        .with_journal(journal.clone())
        .with_world(ManualWorld::auto());
    let team = builder.runtime(runtime).build().unwrap();
    // Some runs fail; their machines are checked anyway.
    let _ = within(
        team.run(input)
            .id("r")
            .approver(|_: &levity_core::Ask| Decision::Allow),
    )
    .await;
    conformance::recorded(&team, &journal, &"r".into()).await;
    journal.read(&"r".into()).await.unwrap().len()
}

#[tokio::test]
async fn graph_is_restored_between_replans_and_approvals() {
    let step = |id: &str, agent: &str| {
        json!({"id": id, "agent": agent, "writes": [id],
        "inputs": {"give": 2}})
    };
    let script = Script::new([
        json!("no plan"),
        json!({"steps": [step("a", "fail"), step("b", "give"),
            {"id": "c", "agent": "sum", "reads": ["a", "b"], "writes": ["c"]}]}),
        json!({"add": [{"id": "a2", "agent": "fail", "writes": ["a"], "instead_of": "a"}]}),
        json!({"add": [{"id": "a3", "agent": "give", "inputs": {"give": 40}, "writes": ["a"],
            "instead_of": "a2"}]}),
    ]);
    let builder = simple(&Log::default()).planner(script).approve_plans();
    assert!(check(builder, TeamInput::from("Add")).await > 18);
}

#[tokio::test]
async fn graph_is_restored_between_retries_fan_outs_and_questions() {
    let look = RecordingTool::new("look", |_| Ok(levity_core::ToolOutput::text("seen")));
    let policy = Policy::new().rule(Rule::tool("look").ask("it looks"));
    let plan = Plan::new()
        .given("list", json!([1, 2, 3, 4, 5]))
        .step(
            Step::new("each", "give")
                .map(FanOut::over("list"))
                .input("give", 1)
                .writes(["each"]),
        )
        .step(Step::new("late", "fail").retry(Retry::attempts(3)))
        .step(Step::new("look", "look").writes(["look"]))
        .step(
            Step::new("sum", "sum")
                .reads(["each", "look"])
                .writes(["sum"]),
        );
    let builder = simple(&Log::default())
        .tool(look)
        .policy(policy)
        .max_parallel(2);
    assert!(check(builder, plan).await > 20);
}

#[tokio::test]
async fn graph_is_restored_between_verdicts_rounds_and_code() {
    let writer = ScriptedModel::new()
        .reply("{\"forgotten\": 1}")
        .reply("{\"code\": \"1 + 1\"}")
        .reply("{\"draft\": \"bad\"}")
        .reply("{\"call_self\": true, \"next_instruction\": \"Go on.\"}")
        .reply("{\"draft\": \"good\"}");
    let judges = ScriptedModel::new()
        .reply("{\"verdict\": \"revise\", \"issues\": [\"too short\"], \"steps\": []}")
        .reply("{\"verdict\": \"pass\"}");
    let (card, second) = judge(&judges);
    let runs = code(&ScriptedModel::new().fail(levity_core::ModelErrorKind::BadRequest));
    let builder = simple(&Log::default())
        .agent("Writer", "writes", agent(&writer))
        .runner("Judge", card, second)
        .code(runs);
    let plan = Plan::new()
        .step(give("a", 1))
        .step(Step::new("write", "Writer").reads(["a"]).writes(["draft"]))
        .step(Step::new("check", "Judge").reads(["draft"]));
    assert!(check(builder, TeamInput::from(plan).goal("Write")).await > 16);
}
