//! Tests of random plans in the real runtime, against a sequential run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::{ToolError, World as _};
use levity_dag::{
    Error, Function, OnFailure, Plan, Retry, Step, StepInput, StepStatus, Team, TeamAnswer,
};
use levity_runtime::Runtime;
use levity_test::ManualWorld;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::within;

fn mixed(seed: u64, what: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = what.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, fold);
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
}

/// Creates steps that each follow some earlier ones, by `after` or by `reads`.
fn plan(seed: u64, steps: usize) -> Plan {
    let mut plan = Plan::new();
    for n in 0..steps {
        let roll = |what: &str| mixed(seed, &format!("{what} {n}"));
        let id = format!("s{n}");
        let mut step = Step::new(id.as_str(), "work")
            .input("me", id.as_str())
            .writes([format!("v{n}")]);
        let earlier = |what: &str| format!("{}", roll(what) as usize % n);
        let some = |what: &str| n > 0 && roll(what) % 3 > 0;
        let reads = ["read", "read too"].into_iter().filter(|what| some(what));
        let reads: BTreeSet<String> = reads.map(|what| format!("v{}", earlier(what))).collect();
        step = step.reads(reads);
        if some("after") {
            step = step.after(format!("s{}", earlier("comes after")));
        }
        if roll("tries").is_multiple_of(3) {
            step = step.retry(Retry::attempts(3));
        }
        plan = plan.step(match roll("failure") % 4 {
            0 => step.on_failure(OnFailure::Skip),
            1 => step.on_failure(OnFailure::Continue),
            _ => step,
        });
    }
    plan
}

fn fails(seed: u64, id: &str, attempt: u32, percent: u64) -> bool {
    mixed(seed, &format!("fails {id} {attempt}")) % 100 < percent
}

fn value(inputs: &Map<String, Value>) -> Value {
    let text: BTreeMap<_, _> = inputs.iter().collect();
    json!(mixed(7, &json!(text).to_string()) % 1_000)
}

/// Returns the results of a sequential run.
fn run_sequentially(plan: &Plan, seed: u64, percent: u64) -> BTreeMap<String, (StepStatus, Value)> {
    let mut results: BTreeMap<String, (StepStatus, Value)> = BTreeMap::new();
    for step in &plan.steps {
        let written = step.reads.iter().map(|name| name.replace('v', "s"));
        let mut before = step
            .after
            .iter()
            .map(|after| after.step.to_string())
            .chain(written);
        let is_dead = |id: &String| {
            let on_failure = plan
                .steps
                .iter()
                .find(|step| step.id.as_str() == id)
                .map(|step| &step.on_failure);
            match results[id].0 {
                StepStatus::Completed => false,
                StepStatus::Failed => on_failure != Some(&OnFailure::Continue),
                _ => true,
            }
        };
        let id = step.id.to_string();
        if before.any(|id| is_dead(&id)) {
            results.insert(id, (StepStatus::Skipped, Value::Null));
            continue;
        }
        let mut inputs: Map<String, Value> = step
            .inputs()
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect();
        inputs.extend(
            step.reads
                .iter()
                .map(|name| (name.to_string(), results[&name.replace('v', "s")].1.clone())),
        );
        let good =
            (1..=step.retry_policy().attempts).any(|attempt| !fails(seed, &id, attempt, percent));
        let done = if good {
            (StepStatus::Completed, value(&inputs))
        } else {
            (StepStatus::Failed, Value::Null)
        };
        results.insert(id, done);
    }
    results
}

/// The observed calls of the functions.
#[derive(Default)]
struct Observed {
    now: AtomicUsize,
    max_at_once: AtomicUsize,
    attempts: Mutex<BTreeMap<String, u32>>,
}

fn team(seed: u64, percent: u64, parallel: usize, observed: &Arc<Observed>) -> Team {
    let world = ManualWorld::auto();
    let (clock, observed) = (world.clone(), observed.clone());
    let work = Function::new(move |input: StepInput| {
        let (clock, observed) = (clock.clone(), observed.clone());
        async move {
            observed.max_at_once.fetch_max(
                observed.now.fetch_add(1, Ordering::SeqCst) + 1,
                Ordering::SeqCst,
            );
            let id: String = input.parse("me")?;
            let attempt = {
                let mut attempts = observed.attempts.lock().unwrap();
                let attempt = attempts.entry(id.clone()).or_default();
                *attempt += 1;
                *attempt
            };
            clock
                .sleep(Duration::from_millis(
                    mixed(seed, &format!("time {id} {attempt}")) % 50,
                ))
                .await;
            observed.now.fetch_sub(1, Ordering::SeqCst);
            if fails(seed, &id, attempt, percent) {
                Err(ToolError::failed("it broke"))
            } else {
                Ok(value(&input.values))
            }
        }
    });
    let runtime = Runtime::new().with_world(world);
    Team::builder()
        .function("work", work)
        .max_parallel(parallel)
        .runtime(runtime)
        .build()
        .unwrap()
}

async fn finished(team: &Team, plan: Plan) -> TeamAnswer {
    match within(team.run(plan)).await {
        Ok(finished) => finished,
        Err(Error::Unreached { partial, .. }) => partial.downcast().unwrap(),
        Err(other) => panic!("{other:?}"),
    }
}

async fn check(seed: u64, steps: usize, parallel: usize, percent: u64) {
    let (plan, observed) = (plan(seed, steps), Arc::new(Observed::default()));
    let expected = run_sequentially(&plan, seed, percent);
    let finished = finished(&team(seed, percent, parallel, &observed), plan.clone()).await;
    let values = finished.variables();
    for report in finished.steps() {
        let (status, value) = &expected[report.step.as_str()];
        assert_eq!(report.status, *status, "{}", report.step);
        let found = values.get(report.step.as_str().replace('s', "v").as_str());
        assert_eq!(
            found,
            (*status == StepStatus::Completed).then_some(value),
            "{}",
            report.step
        );
        let ran = observed
            .attempts
            .lock()
            .unwrap()
            .get(report.step.as_str())
            .copied()
            .unwrap_or(0);
        assert_eq!(
            report.spent.attempts, ran,
            "{} ran once per attempt",
            report.step
        );
    }
    assert!(observed.max_at_once.load(Ordering::SeqCst) <= parallel);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn runtime_matches_sequential_run(
        seed in any::<u64>(), steps in 1..30_usize, parallel in 1..6_usize, percent in 0..40_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(seed, steps, parallel, percent));
    }
}

#[tokio::test]
async fn two_thousand_steps_match_sequential_run() {
    check(1, 2_000, 16, 5).await;
    check(2, 2_000, 2_000, 0).await;
}
