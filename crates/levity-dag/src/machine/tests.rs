//! Tests of machines driven by hand, against a sequential run that shares no code with the
//! scheduler.

use std::collections::BTreeSet;
use std::sync::Arc;

use levity_core::{Input, Limit, Machine as _, Outcome, Status};
use proptest::prelude::*;
use serde_json::Value;

use self::driver::{Driver, feed, next, start, trace_of};
use self::generated_plan::{GeneratedPlan, PlanShape, generate_plan};
use self::reference::Sequential;
use self::seeded_outcomes::{SeededOutcomes, SeededRng};
use super::{Failure, GraphMachine, Rules, Settings};
use crate::constraints::{PlanConstraints, StepRunner, StepRunnerKind};
use crate::machine::PlannerKind;

mod cases;
mod conformance;
mod driver;
mod generated_plan;
mod planner;
mod reference;
mod seeded_outcomes;

#[test]
fn settings_of_earlier_run_keep_plans_in_one_reply() {
    let old = serde_json::json!({
        "parallel": 16,
        "replans": 3,
        "drafts": 3,
        "turns": 15,
        "approve": false,
    });
    let old: Settings = serde_json::from_value(old).unwrap();
    assert_eq!((old.pieces, old.own_tools), (1, false));
}

fn rules(planner: bool) -> Arc<Rules> {
    let kinds = [
        ("f", StepRunnerKind::Function),
        ("t", StepRunnerKind::Tool),
        ("Thinker", StepRunnerKind::Agent),
    ];
    let known = kinds
        .into_iter()
        .fold(PlanConstraints::new(), |known, (name, kind)| {
            known.with(name, StepRunner::new(kind, ""))
        });
    let planner = planner.then_some(PlannerKind::Program);
    Arc::new(Rules {
        known,
        planner,
        profiler: None,
        code: None,
    })
}

fn no_planner(_: &Driver) -> Value {
    unreachable!("there is no planner")
}

/// Drives a run to its end.
fn drive_to_end(
    driver: &mut Driver,
    rng: &mut SeededRng,
    planner: &mut dyn FnMut(&Driver) -> Value,
) {
    let policy = rng.roll();
    while driver.machine.ending().is_none() {
        assert!(
            !driver.open.is_empty(),
            "it neither ends nor requests anything; {:?}",
            driver.status
        );
        let at = next(rng, policy, driver.open.len());
        driver.finish(at, planner);
    }
}

/// Checks that the run has the same result as a sequential run.
fn check_against(driver: &Driver, generated: &GeneratedPlan) {
    let reference = Sequential::new(generated, driver.outcomes).run();
    let reports = driver.reports();
    for (id, result) in &reference.results {
        assert_eq!(
            reports[id],
            result.status,
            "`{id}` of {}",
            text_of(generated)
        );
    }
    let mut values = reference.values();
    values.remove("original_query");
    assert_eq!(driver.machine.values(), values, "{}", text_of(generated));
    let missing = reference.missing(&driver.handled);
    match (&driver.machine.ending().unwrap().status, &*missing) {
        (Status::Complete, []) => {}
        (Status::Failed(Failure::GoalNotReached(reason)), [_, ..]) => {
            let mut rest = reason.as_str();
            for (id, failed) in missing.iter().take(20) {
                let words = if *failed { "failed: " } else { "was skipped" };
                let words = format!("step `{id}` {words}");
                let at = rest
                    .find(&words)
                    .unwrap_or_else(|| panic!("no `{words}` in `{reason}`"));
                rest = &rest[at + words.len()..];
            }
            assert_eq!(
                reason.matches("step `").count(),
                missing.len().min(20),
                "{reason}"
            );
        }
        (status, missing) => panic!(
            "{status:?}, and missing is {missing:?} of {}",
            text_of(generated)
        ),
    }
}

/// Checks that the same inputs repeat the trace, for the machine and for one restored from its
/// saved state.
fn check_repeats(
    driver: &Driver,
    generated: &GeneratedPlan,
    rules: &Arc<Rules>,
    settings: Settings,
) {
    let again = GraphMachine::new(rules.clone(), start(generated, settings));
    let saved = serde_json::from_str(&again.save().to_string()).unwrap();
    assert!(
        trace_of(again, &driver.inputs) == driver.trace,
        "the same inputs go another way"
    );
    let restored = GraphMachine::restore(rules.clone(), &saved).unwrap();
    assert!(
        trace_of(restored, &driver.inputs) == driver.trace,
        "restored, it goes another way"
    );
}

/// Checks that a machine that is restored before every input has the same trace.
fn check_restored(
    driver: &Driver,
    generated: &GeneratedPlan,
    rules: &Arc<Rules>,
    settings: Settings,
) {
    let mut whole = GraphMachine::new(rules.clone(), start(generated, settings));
    let mut often = GraphMachine::new(rules.clone(), start(generated, settings));
    for (input, expected) in driver.inputs.iter().zip(&driver.trace) {
        let saved = often.save().to_string();
        often =
            GraphMachine::restore(rules.clone(), &serde_json::from_str(&saved).unwrap()).unwrap();
        let input = std::slice::from_ref(input);
        feed(&mut whole, input);
        assert_eq!(
            feed(&mut often, input).last(),
            Some(expected),
            "restored from {saved}"
        );
        assert_eq!(
            often.save().to_string(),
            whole.save().to_string(),
            "restored from {saved}"
        );
    }
}

/// Checks that a generated plan is valid.
fn check_plan(generated: &GeneratedPlan, rules: &Rules) {
    if let Err(faults) = crate::Graph::check(generated.plan.clone(), &rules.known) {
        panic!("{faults} in {}", text_of(generated));
    }
}

fn text_of(generated: &GeneratedPlan) -> String {
    let steps: Vec<String> = generated
        .plan
        .steps
        .iter()
        .map(|step| serde_json::to_string(step).unwrap())
        .collect();
    format!("{}\n{:?}", steps.join("\n"), generated.plan.variables)
}

fn settings(parallel: usize) -> Settings {
    Settings {
        parallel,
        ..Settings::default()
    }
}

fn check_full_run(seed: u64, steps: usize, parallel: usize, fails: u64, repeats: u64) {
    let mut rng = SeededRng(seed);
    let generated = generate_plan(
        &mut rng,
        PlanShape {
            steps,
            early: parallel == 1,
        },
    );
    let (rules, settings) = (rules(false), settings(parallel));
    check_plan(&generated, &rules);
    let mut texts = BTreeSet::new();
    for attempt in 0..repeats {
        let mut driver = Driver::new(&rules, &generated, settings, SeededOutcomes { seed, fails });
        driver.begin();
        drive_to_end(&mut driver, &mut rng, &mut no_planner);
        check_against(&driver, &generated);
        texts.insert(driver.machine.ending().unwrap().text.clone());
        if steps < 50 {
            check_repeats(&driver, &generated, &rules, settings);
        }
        if steps < 20 && attempt == 0 {
            check_restored(&driver, &generated, &rules, settings);
        }
    }
    assert_eq!(texts.len(), 1, "the answer depends on timing");
}

/// Checks a run in which a planner changes the plan, with or without approval of each change.
fn check_changed_run(seed: u64, steps: usize, parallel: usize, fails: u64, approve: bool) {
    let mut rng = SeededRng(seed);
    let generated = generate_plan(
        &mut rng,
        PlanShape {
            steps,
            early: false,
        },
    );
    let (rules, settings) = (
        rules(true),
        Settings {
            approve,
            ..settings(parallel)
        },
    );
    let mut driver = Driver::new(&rules, &generated, settings, SeededOutcomes { seed, fails });
    let mut ideas = SeededRng(seed ^ 1);
    driver.begin();
    drive_to_end(&mut driver, &mut rng, &mut |driver| {
        planner::change(driver, &driver.replanned_steps, &mut ideas)
    });
    check_against(&driver, &driver.plan);
    check_repeats(&driver, &generated, &rules, settings);
    check_restored(&driver, &generated, &rules, settings);
}

/// Checks the behaviour and the results of an interrupted run.
fn check_interrupted_run(seed: u64, steps: usize, parallel: usize, fails: u64, last: &Input) {
    let mut rng = SeededRng(seed);
    let generated = generate_plan(
        &mut rng,
        PlanShape {
            steps,
            early: false,
        },
    );
    let (rules, settings) = (rules(false), settings(parallel));
    let mut driver = Driver::new(&rules, &generated, settings, SeededOutcomes { seed, fails });
    driver.begin();
    for _ in 0..rng.below(steps * 2) {
        if !driver.open.is_empty() {
            let at = rng.below(driver.open.len());
            driver.finish(at, &mut no_planner);
        }
    }
    let (had_ended, wraps) = (
        driver.machine.ending().is_some(),
        matches!(last, Input::FinishSoon(_)),
    );
    let open = driver.open.clone();
    driver.apply(last.clone());
    assert!(
        driver.machine.ending().is_some() || wraps,
        "it does not end at once"
    );
    drive_to_end(&mut driver, &mut rng, &mut no_planner);
    check_repeats(&driver, &generated, &rules, settings);
    let ending = driver.machine.ending().unwrap().clone();
    for (effect, _) in open {
        // Late outcomes are ignored.
        driver.apply(Input::Finished {
            effect,
            outcome: Outcome::Unknown,
        });
    }
    assert_eq!(driver.machine.ending(), Some(&ending));
    if had_ended {
        return check_against(&driver, &generated);
    }
    match (&ending.status, last) {
        (Status::Cancelled { .. }, Input::Cancel { .. })
        | (Status::Partial(_), Input::Stop(_) | Input::FinishSoon(_)) => {}
        (Status::Complete, Input::FinishSoon(_)) => {
            assert!(driver.reports().values().all(|status| status.is_settled()));
        }
        (status, last) => panic!("{last:?} ends it as {status:?}"),
    }
    let reference = Sequential::new(&generated, driver.outcomes).run();
    // Near a limit there are no retries, so more steps fail than in the reference.
    for (id, status) in driver
        .reports()
        .into_iter()
        .filter(|(_, status)| status.is_settled() && !wraps)
    {
        assert_eq!(status, reference.results[&id].status, "`{id}`");
    }
}

fn ends() -> impl Strategy<Value = Input> {
    prop_oneof![
        Just(Input::Cancel {
            reason: "enough".to_owned()
        }),
        Just(Input::Stop(Limit::Tokens)),
        Just(Input::FinishSoon(Limit::Money)),
    ]
}

const SEED: std::ops::RangeInclusive<u64> = 0..=u64::MAX;

proptest! {
    #![proptest_config(
        ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() }
    )]

    #[test]
    fn run_in_any_order_matches_sequential_run(
        seed in SEED.no_shrink(), steps in 1..40_usize, parallel in 1..8_usize, fails in 0..50_u64,
    ) {
        check_full_run(seed, steps, parallel, fails, 3);
    }

    #[test]
    fn run_with_plan_changes_matches_run_of_last_plan(
        seed in SEED.no_shrink(), steps in 1..30_usize, parallel in 1..8_usize, fails in 5..50_u64,
        approve in any::<bool>(),
    ) {
        check_changed_run(seed, steps, parallel, fails, approve);
    }

    #[test]
    fn interrupted_run_ends_and_starts_nothing_more(
        seed in SEED.no_shrink(), steps in 1..30_usize, parallel in 1..8_usize, fails in 0..50_u64,
        last in ends(),
    ) {
        check_interrupted_run(seed, steps, parallel, fails, &last);
    }
}

proptest! {
    #![proptest_config(
        ProptestConfig { cases: 2, failure_persistence: None, ..ProptestConfig::default() }
    )]

    #[test]
    fn large_run_in_any_order_matches_sequential_run(
        seed in SEED.no_shrink(), steps in 1_000..2_000_usize, parallel in 1..32_usize,
        fails in 0..20_u64,
    ) {
        check_full_run(seed, steps, parallel, fails, 2);
    }
}
