//! Tests of runs that are stopped after every record in turn and resumed, and of runs that are
//! parked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{Approver, Ask, Decision, EventKind, Journal, RunId, RunRequest, ToolError};
use levity_dag::{
    Error, Function, Plan, PlannerInput, Retry, Step, StepInput, StepStatus, Team, TeamBuilder,
    TeamInput, TeamPlanner,
};
use levity_loop::Agent;
use levity_runtime::{Durability, FileJournal, MemoryJournal, Runtime};
use levity_test::crash::{self, Life};
use levity_test::{ManualWorld, ScriptedModel};
use serde_json::{Value, json};

use crate::support::within;

/// A planner that returns a plan first, and then a fallback for the failed step.
struct TestPlanner;

#[async_trait]
impl TeamPlanner for TestPlanner {
    async fn plan(&self, brief: &PlannerInput) -> Result<Value, ToolError> {
        let step = |id: &str, agent: &str, reads: &[&str]| {
            json!({"id": id, "agent": agent,
            "inputs": {"me": id}, "reads": reads, "writes": [id]})
        };
        if brief.replan.is_some() {
            let other = json!({"id": "e2", "agent": "work", "inputs": {"me": "e2"}, "writes": ["e"],
                "instead_of": "e"});
            return Ok(json!({"reason": "another way", "add": [other]}));
        }
        let mut list = step("each", "work", &["a"]);
        list["map"] = json!({"over": "list"});
        let mut flaky = step("flaky", "flaky", &["a"]);
        flaky["retry"] = json!({"attempts": 3, "pause": 60});
        let mut said = step("said", "Writer", &["b"]);
        said["prompt"] = json!("Say it.");
        let all = step("all", "work", &["b", "each", "flaky", "said", "e"]);
        let steps = [
            step("a", "work", &[]),
            step("b", "work", &[]),
            list,
            flaky,
            said,
            step("e", "fail", &["a"]),
            all,
        ];
        Ok(json!({"steps": steps}))
    }
}

struct Yes;

#[async_trait]
impl Approver for Yes {
    async fn decide(&self, _: &Ask) -> Decision {
        Decision::Allow
    }
}

/// Adds up its inputs, and records the call.
fn work(life: &Life, input: &StepInput) -> Value {
    life.world
        .record_action(format!("{} {}", input.get("me"), input.get("item")));
    let sum =
        |all: i64, value: &Value| all + value.as_i64().unwrap_or(value.to_string().len() as i64);
    json!(input.values.values().fold(0, sum))
}

fn team(life: &Arc<Life>) -> Team {
    let world = ManualWorld::auto();
    let runtime = Runtime::new()
        .with_journal(life.journal.clone())
        .with_world(world);
    let writer = ScriptedModel::new()
        .call("look", json!({}))
        .reply("{\"said\": \"so it is\"}")
        .by_history();
    let look =
        levity_test::RecordingTool::new("look", |_| Ok(levity_core::ToolOutput::text("a sea")));
    let agent = Agent::builder(writer).tool(look).build().unwrap();
    let (does, fails) = (life.clone(), life.clone());
    Team::builder()
        .function(
            "work",
            Function::new(move |input| std::future::ready(Ok(work(&does, &input)))).idempotent(),
        )
        .function(
            "flaky",
            Function::new(move |input: StepInput| {
                let first = fails.world.ever("flaky") == 0;
                fails.world.record_action("flaky");
                let value = json!(input.get("a").as_i64());
                std::future::ready(if first {
                    Err(ToolError::failed("not yet"))
                } else {
                    Ok(value)
                })
            })
            .idempotent(),
        )
        .function(
            "fail",
            Function::new(|_| std::future::ready(Err(ToolError::failed("it broke")))).idempotent(),
        )
        .agent("Writer", "writes", agent)
        .planner(TestPlanner)
        .approve_plans()
        .approver(Yes)
        .max_parallel(3)
        .runtime(runtime)
        .build()
        .unwrap()
}

async fn life(life: Life) -> (String, String, Vec<(String, StepStatus)>) {
    let life = Arc::new(life);
    let team = team(&life);
    let finished = match life.knows("r").await {
        true => within(team.resume("r")).await,
        false => {
            within(
                team.run(TeamInput::from("Do it all.").given("list", json!([3, 1, 2])))
                    .id("r"),
            )
            .await
        }
    };
    let finished = finished.unwrap();
    let steps = finished
        .steps()
        .into_iter()
        .map(|step| (step.step.to_string(), step.status));
    (
        finished.text().to_owned(),
        json!(finished.variables()).to_string(),
        steps.collect(),
    )
}

/// Checks that a run stopped at any point has the same result, and that recorded work is not
/// repeated.
async fn check<J: Journal + 'static>(journal: impl Fn() -> J) {
    let report = crash::after_every_record(journal, life).await;
    report.assert_same();
    assert!(report.stops.len() > 60, "{}", report.stops.len());
    assert!(
        report.whole.world.all().values().all(|times| *times <= 2),
        "{:?}",
        report.whole.world.all()
    );
    for end in &report.stops {
        let (all, whole) = (end.world.all(), report.whole.world.all());
        let more: usize = all
            .iter()
            .map(|(what, times)| times - whole.get(what).copied().unwrap_or(0).min(*times))
            .sum();
        // At most the steps that were running at the stop are repeated.
        assert!(more <= 3, "{end}: {all:?}");
    }
}

#[tokio::test]
async fn plan_stopped_after_every_record_has_same_result() {
    check(MemoryJournal::new).await;
}

#[tokio::test]
async fn plan_stopped_after_every_record_of_file_journal_has_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let next = AtomicUsize::new(0);
    check(|| {
        let folder = folder
            .path()
            .join(next.fetch_add(1, Ordering::SeqCst).to_string());
        FileJournal::new(folder)
            .unwrap()
            .with_durability(Durability::Buffered)
    })
    .await;
}

fn waiting_team(
    world: &ManualWorld,
    journal: &MemoryJournal,
    attempts: &Arc<AtomicUsize>,
) -> TeamBuilder {
    let runtime = Runtime::new()
        .with_journal(journal.clone())
        .with_world(world.clone());
    let attempts = attempts.clone();
    let flaky = Function::new(move |_: StepInput| {
        let first = attempts.fetch_add(1, Ordering::SeqCst) == 0;
        std::future::ready(if first {
            Err(ToolError::failed("not yet"))
        } else {
            Ok(json!(1))
        })
    });
    let give = Function::new(|input: StepInput| std::future::ready(Ok(input.get("give").clone())));
    Team::builder()
        .function("flaky", flaky)
        .function("give", give)
        .runtime(runtime)
}

async fn parked(
    run: impl IntoFuture<Output = levity_dag::Result<levity_dag::TeamAnswer>>,
) -> RunId {
    match within(run).await {
        Err(Error::Parked { run, .. }) => run,
        other => panic!("it was not parked: {other:?}"),
    }
}

#[tokio::test]
async fn run_is_parked_while_step_pauses() {
    let (world, journal, attempts) = (ManualWorld::new(), MemoryJournal::new(), Arc::default());
    let team = waiting_team(&world, &journal, &attempts).build().unwrap();
    let retry = Retry::attempts(2).pause(Duration::from_secs(100));
    let plan = Plan::new()
        .step(Step::new("give", "give").input("give", 7).writes(["x"]))
        .step(Step::new("s", "flaky").retry(retry).writes(["y"]))
        .step(
            Step::new("last", "give")
                .input("give", 5)
                .reads(["x", "y"])
                .writes(["z"]),
        );
    let run = parked(team.run(plan).park()).await;
    world.advance(Duration::from_secs(99));
    assert_eq!(parked(team.resume(run.clone()).park()).await, run);
    assert_eq!(
        attempts.load(Ordering::SeqCst),
        1,
        "the retry came too early"
    );
    world.advance(Duration::from_secs(1));
    let finished = within(team.resume(run).park()).await.unwrap();
    assert_eq!(
        (finished.variable("y"), finished.variable("z")),
        (Some(&json!(1)), Some(&json!(5)))
    );
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn run_is_parked_while_step_asks_person() {
    let (world, journal) = (ManualWorld::auto(), MemoryJournal::new());
    let make = || {
        let question = ScriptedModel::new().call("ask_user", json!({"question": "Which?"}));
        let asking =
            Agent::builder(question.reply("{\"colour\": \"red\"}").by_history()).ask_user();
        waiting_team(&world, &journal, &Arc::default())
            .agent("Clarification", "asks", asking.build().unwrap())
            .build()
            .unwrap()
    };
    let plan = Plan::new()
        .step(Step::new("give", "give").input("give", 7).writes(["x"]))
        .step(
            Step::new("ask", "Clarification")
                .prompt("Ask.")
                .writes(["colour"]),
        )
        .step(
            Step::new("last", "give")
                .input("give", 5)
                .reads(["x", "colour"])
                .writes(["z"]),
        );
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asks = asked.clone();
    let run = make().run(plan).park().on_event(move |event| {
        if let EventKind::Asked(ask) = &event.kind {
            asks.lock().unwrap().push(ask.clone());
        }
    });
    let run = parked(run).await;
    assert_eq!(parked(make().resume(run.clone()).park()).await, run);
    let [ask] = &*std::mem::take(&mut *asked.lock().unwrap()) else {
        panic!("it asks once")
    };
    let post = RunRequest::Decide {
        effect: ask.effect,
        decision: Decision::answer("red"),
    };
    make().runtime().send_request(&ask.run, post).await.unwrap();
    let finished = within(make().resume(run).park()).await.unwrap();
    assert_eq!(finished.variable("colour"), Some(&json!("red")));
    assert!(
        finished
            .steps()
            .iter()
            .all(|step| step.status == StepStatus::Completed)
    );
}
