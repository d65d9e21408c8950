//! Tests of function steps: order, parallel paths, failures, conditions and fan-outs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::ToolError;
use levity_dag::{
    Condition, Error, FanOut, Faults, Function, Join, OnFailure, Plan, PlanNotice, Reducer, Retry,
    Step, StepInput, StepStatus, Team, TeamAnswer, TeamDetails, Variable,
};
use levity_runtime::Runtime;
use levity_test::ManualWorld;
use serde_json::{Value, json};

use crate::support::{Log, collect, logging_function, simple, within};

fn give(id: &str, value: impl Into<Value>) -> Step {
    Step::new(id, "give").input("give", value).writes([id])
}

fn status(finished: &TeamAnswer, id: &str) -> StepStatus {
    finished.step(id).unwrap().status
}

async fn run(plan: Plan) -> TeamAnswer {
    within(simple(&Log::default()).build().unwrap().run(plan))
        .await
        .unwrap()
}

async fn partial(plan: Plan) -> (String, TeamAnswer) {
    match within(simple(&Log::default()).build().unwrap().run(plan)).await {
        Err(Error::Unreached { why, partial }) => (why, partial.downcast().unwrap()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn diamond_runs_in_dependency_order() {
    let plan = Plan::new()
        .step(
            Step::new("all", "sum")
                .reads(["left", "right"])
                .writes(["all"]),
        )
        .step(
            Step::new("left", "sum")
                .reads(["top"])
                .input("plus", 1)
                .writes(["left"]),
        )
        .step(
            Step::new("right", "sum")
                .reads(["top"])
                .input("plus", 10)
                .writes(["right"]),
        )
        .step(give("top", 100));
    let finished = run(plan).await;
    assert_eq!(finished.variable("all"), Some(&json!(211)));
    assert_eq!(finished.text(), "211");
    assert!(
        finished
            .steps()
            .iter()
            .all(|step| step.status == StepStatus::Completed)
    );
}

#[tokio::test]
async fn failed_step_stops_only_its_dependents() {
    let plan = Plan::new()
        .step(give("a", 1))
        .step(Step::new("b", "fail").after("a").writes(["b"]))
        .step(Step::new("c", "sum").reads(["b"]).writes(["c"]))
        .step(Step::new("d", "sum").reads(["a"]).writes(["d"]));
    let (reason, finished) = partial(plan).await;
    assert_eq!(reason, "step `b` failed: it broke; step `c` was skipped");
    assert_eq!(status(&finished, "b"), StepStatus::Failed);
    assert_eq!(status(&finished, "c"), StepStatus::Skipped);
    assert_eq!(finished.variable("d"), Some(&json!(1)));
    assert_eq!(finished.variable("c"), None);
}

#[tokio::test]
async fn failure_policy_of_plan_decides_about_dependents() {
    let base = |failing: Step| {
        let after = Step::new("after", "give")
            .input("give", 5)
            .reads(["x"])
            .writes(["after"]);
        Plan::new().step(failing.writes(["x"])).step(after)
    };
    let skipped = run(base(Step::new("s", "fail").on_failure(OnFailure::Skip))).await;
    assert_eq!(status(&skipped, "after"), StepStatus::Skipped);
    let continued = run(base(Step::new("s", "fail").on_failure(OnFailure::Continue))).await;
    assert_eq!(status(&continued, "after"), StepStatus::Completed);
    let other = Step::new("other", "give").input("give", 7).writes(["x"]);
    let plan = base(Step::new("s", "fail").on_failure(OnFailure::Fallback("other".into())))
        .step(other.clone());
    let fallen_back = run(plan).await;
    assert_eq!(status(&fallen_back, "after"), StepStatus::Completed);
    assert_eq!(fallen_back.variable("x"), Some(&json!(7)));
    let fine = Step::new("s", "give")
        .input("give", 3)
        .on_failure(OnFailure::Fallback("other".into()));
    let not_needed = run(base(fine).step(other)).await;
    assert_eq!(status(&not_needed, "other"), StepStatus::Skipped);
    assert_eq!(not_needed.variable("x"), Some(&json!(3)));
}

#[tokio::test]
async fn dependent_of_unused_fallback_is_skipped() {
    let plan = Plan::new()
        .step(
            Step::new("s", "give")
                .input("give", 1)
                .writes(["x"])
                .on_failure(OnFailure::Fallback("f".into())),
        )
        .step(Step::new("f", "give").input("give", 2).writes(["x"]))
        .step(Step::new("cleanup", "give").after("f"));
    let finished = run(plan).await;
    assert_eq!(status(&finished, "cleanup"), StepStatus::Skipped);
}

#[tokio::test]
async fn only_branch_with_true_condition_is_taken() {
    let when = |text| Condition::parse(text).unwrap();
    let plan = |score: f64| {
        Plan::new()
            .variable("way", Variable::new().reducer(Reducer::Last))
            .step(give("score", score))
            .step(
                Step::new("good", "give")
                    .input("give", "good")
                    .after_if("score", when("score >= 0.5"))
                    .writes(["way"]),
            )
            .step(
                Step::new("bad", "give")
                    .input("give", "bad")
                    .after_if("score", when("score < 0.5"))
                    .writes(["way"]),
            )
            .step(
                Step::new("end", "give")
                    .input("give", 1)
                    .reads(["way"])
                    .join(Join::Any),
            )
            .step(
                Step::new("never", "give")
                    .when(when("score > 1"))
                    .after("score"),
            )
    };
    let (good, bad) = (run(plan(0.9)).await, run(plan(0.1)).await);
    assert_eq!(
        (good.variable("way"), bad.variable("way")),
        (Some(&json!("good")), Some(&json!("bad")))
    );
    assert_eq!(
        (status(&good, "bad"), status(&bad, "good")),
        (StepStatus::Skipped, StepStatus::Skipped)
    );
    assert_eq!(
        (status(&good, "end"), status(&good, "never")),
        (StepStatus::Completed, StepStatus::Skipped)
    );
}

#[tokio::test]
async fn step_is_retried_after_doubling_pause() {
    let world = ManualWorld::auto();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counting = attempts.clone();
    let flaky = Function::new(move |_: StepInput| {
        let first = counting.fetch_add(1, Ordering::SeqCst) < 2;
        async move {
            if first {
                Err(ToolError::failed("not yet"))
            } else {
                Ok(json!(1))
            }
        }
    });
    let notices = Arc::default();
    let runtime = Runtime::new().with_world(world.clone());
    let team = Team::builder()
        .function("flaky", flaky)
        .runtime(runtime)
        .build()
        .unwrap();
    let before = levity_core::World::now(&world);
    let plan = Plan::new().step(Step::new("s", "flaky").retry(Retry::attempts(3)));
    let finished = within(team.run(plan).on_event(collect(&notices)))
        .await
        .unwrap();
    assert_eq!(finished.step("s").unwrap().spent.attempts, 3);
    // The pauses are one second and two seconds.
    assert_eq!(
        levity_core::World::now(&world).since(before),
        Duration::from_secs(3)
    );
    let notices: Vec<PlanNotice> = std::mem::take(&mut *notices.lock().unwrap());
    let retried = notices
        .iter()
        .filter(|notice| matches!(notice, PlanNotice::StepRetried { .. }))
        .count();
    assert_eq!(retried, 2);
}

#[tokio::test]
async fn step_times_out_after_its_timeout() {
    let world = ManualWorld::auto();
    let runtime = Runtime::new().with_world(world);
    let stuck = Function::new(|_: StepInput| std::future::pending());
    let team = Team::builder()
        .function("stuck", stuck)
        .runtime(runtime)
        .build()
        .unwrap();
    let plan = Plan::new().step(Step::new("s", "stuck").timeout(Duration::from_secs(5)));
    let Err(Error::Unreached { why, .. }) = within(team.run(plan)).await else {
        panic!("the run must fail")
    };
    assert_eq!(why, "step `s` failed: timed out after 5s");
}

#[tokio::test]
async fn fan_out_collects_in_list_order_within_parallel_limit() {
    let (now, max_at_once) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (now.clone(), max_at_once.clone());
    let work = Function::new(move |input: StepInput| {
        let (now, max_at_once) = counts.clone();
        async move {
            max_at_once.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let n: u64 = input.parse("item")?;
            for _ in 0..(n * 7) % 5 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(json!(n * 2))
        }
    });
    let team = Team::builder().function("work", work).build().unwrap();
    let list: Vec<u64> = (0..1_000).collect();
    let plan = Plan::new().given("list", json!(list)).step(
        Step::new("twice", "work")
            .map(FanOut::over("list"))
            .writes(["twice"]),
    );
    let finished = within(team.run(plan)).await.unwrap();
    assert_eq!(
        finished.parse_variable::<Vec<u64>>("twice"),
        Some(list.iter().map(|n| n * 2).collect())
    );
    assert_eq!(max_at_once.load(Ordering::SeqCst), 16);
}

#[tokio::test]
async fn fan_out_succeeds_with_quorum_and_fails_without() {
    let odd = |input: &StepInput| match input.parse::<i64>("item")? {
        n if n % 2 == 1 => Ok(json!(n)),
        _ => Err(ToolError::failed("even")),
    };
    let log = Log::default();
    let team = Team::builder()
        .function("odd", logging_function(&log, "odd", odd))
        .max_parallel(1)
        .build()
        .unwrap();
    let plan = |list: Value, fan_out: FanOut| {
        Plan::new()
            .given("list", list)
            .step(Step::new("s", "odd").map(fan_out).writes(["out"]))
    };
    let over = || FanOut::over("list");
    let finished = within(team.run(plan(json!([1, 2, 3]), over().quorum(2))))
        .await
        .unwrap();
    assert_eq!(finished.variable("out"), Some(&json!([1, null, 3])));
    let sum = over().quorum(2).reducer(Reducer::Sum);
    let finished = within(team.run(plan(json!([1, 2, 3]), sum))).await.unwrap();
    assert_eq!(finished.variable("out"), Some(&json!(4)));
    log.take();
    let finished = within(team.run(plan(json!([1, 3, 5, 7]), over().first(2))))
        .await
        .unwrap();
    assert_eq!(finished.variable("out"), Some(&json!([1, 3, null, null])));
    assert_eq!(log.take().len(), 2);
    let Err(Error::Unreached { why, .. }) = within(team.run(plan(json!([2, 1, 3]), over()))).await
    else {
        panic!("it fails")
    };
    assert_eq!(
        why,
        "step `s` failed: 0 of 3 elements succeeded, but 3 are required; element 0: even"
    );
    // Once the result is certain, no more elements start.
    assert_eq!(log.take().len(), 1);
    let finished = within(team.run(plan(json!([]), over()))).await.unwrap();
    assert_eq!(finished.variable("out"), Some(&json!([])));
}

#[tokio::test]
async fn fan_out_over_invalid_or_too_long_list_fails() {
    for (list, expected) in [
        (json!(5), "`list` is not a list"),
        (json!([1, 2, 3]), "raise `most`"),
    ] {
        let plan = Plan::new().step(give("list", list)).step(
            Step::new("s", "give")
                .map(FanOut::over("list").max_items(2))
                .writes(["out"]),
        );
        let (why, _) = partial(plan).await;
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test]
async fn slow_sibling_delays_no_other_step() {
    let world = ManualWorld::new();
    let runtime = Runtime::new().with_world(world.clone());
    let finished_at = Arc::new(Mutex::new(Vec::new()));
    let slow = {
        let (world, finished_at) = (world.clone(), finished_at.clone());
        Function::new(move |input: StepInput| {
            let (world, finished_at) = (world.clone(), finished_at.clone());
            async move {
                let (name, time): (String, u64) = (input.parse("name")?, input.parse("time")?);
                levity_core::World::sleep(&world, Duration::from_secs(time)).await;
                finished_at
                    .lock()
                    .unwrap()
                    .push((name, levity_core::World::now(&world)));
                Ok(Value::Null)
            }
        })
    };
    let step = |id: &str, time: u64| Step::new(id, "slow").input("name", id).input("time", time);
    let plan = Plan::new()
        .step(step("slow", 100))
        .step(step("a", 1))
        .step(step("b", 1).after("a"))
        .step(step("c", 1).after("b"))
        .step(step("last", 1).after("slow"));
    let start = levity_core::World::now(&world);
    let team = Team::builder()
        .function("slow", slow)
        .runtime(runtime)
        .build()
        .unwrap();
    let run = team.run(plan).start();
    let drive = async {
        loop {
            tokio::task::yield_now().await;
            world.advance(Duration::from_secs(1));
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::select! {
        finished = within(run) => drop(finished.unwrap()),
        () = drive => {}
    }
    let at: Vec<(String, u64)> = finished_at
        .lock()
        .unwrap()
        .iter()
        .map(|(name, at)| (name.clone(), at.since(start).as_secs()))
        .collect();
    let expected = [("a", 1), ("b", 2), ("c", 3), ("slow", 100), ("last", 101)];
    assert_eq!(at, expected.map(|(name, at)| (name.to_owned(), at)));
}

#[tokio::test]
async fn panic_in_function_fails_only_its_step() {
    let log = Log::default();
    let team = simple(&log)
        .function("bad", Function::new(|_: StepInput| async { panic!("oh") }))
        .build()
        .unwrap();
    let plan = Plan::new().step(Step::new("p", "bad")).step(give("ok", 1));
    let Err(error) = within(team.run(plan)).await else {
        panic!("it fails")
    };
    assert_eq!(
        error.partial_as::<TeamDetails>().unwrap().variable("ok"),
        Some(&json!(1))
    );
    assert!(
        error.to_string().contains("the function panicked"),
        "{error}"
    );
}

#[tokio::test]
async fn invalid_plan_starts_nothing() {
    let log = Log::default();
    let team = simple(&log).build().unwrap();
    let plan = Plan::new()
        .step(give("a", 1))
        .step(Step::new("b", "nobody").reads(["zzz"]));
    let error = within(team.run(plan)).await.unwrap_err();
    let faults = error.downcast_ref::<Faults>().unwrap();
    assert!(
        faults.to_string().contains("nobody") && faults.to_string().contains("zzz"),
        "{faults}"
    );
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn steps_on_longest_path_start_first() {
    let log = Log::default();
    let names = log.clone();
    let named = Function::new(move |input: StepInput| {
        names.add(input.get("name").as_str().unwrap_or_default());
        async { Ok(Value::Null) }
    });
    let team = Team::builder()
        .function("named", named)
        .max_parallel(1)
        .build()
        .unwrap();
    let step = |id: &str| Step::new(id, "named").input("name", id);
    // All three may start at once; two steps wait for the last of them.
    let plan = Plan::new()
        .step(step("alone"))
        .step(step("pair"))
        .step(step("long"))
        .step(step("after_pair").after("pair"))
        .step(step("middle").after("long"))
        .step(step("end").after("middle"));
    within(team.run(plan)).await.unwrap();
    assert_eq!(
        log.take(),
        ["long", "pair", "middle", "alone", "after_pair", "end"]
    );
}
