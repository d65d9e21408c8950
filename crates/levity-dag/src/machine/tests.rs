//! Machines driven by hand, against a sequential run that shares nothing with the scheduler.

use std::collections::BTreeSet;
use std::sync::Arc;

use levity_core::{Input, Limit, Machine as _, Outcome, Status};
use proptest::prelude::*;
use serde_json::Value;

use self::driver::{Driver, fed, fed_more, next, start};
use self::fate::{Dice, Fate};
use self::made::{Made, Taste, made};
use self::reference::Sequential;
use super::{Failure, GraphMachine, Rules, Settings};
use crate::known::{PlanConstraints, StepRunner, StepRunnerKind};
use crate::machine::PlannedBy;

mod cases;
mod conformance;
mod driver;
mod fate;
mod made;
mod planner;
mod reference;

#[test]
fn settings_of_an_earlier_run_keep_plans_in_one_reply() {
    let old = serde_json::json!({"parallel": 16, "replans": 3, "drafts": 3, "turns": 15, "approve": false});
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
    let planner = planner.then_some(PlannedBy::Program);
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
fn to_the_end(driver: &mut Driver, dice: &mut Dice, planner: &mut dyn FnMut(&Driver) -> Value) {
    let way = dice.roll();
    while driver.machine.ending().is_none() {
        assert!(
            !driver.open.is_empty(),
            "it neither ends nor wants anything; {:?}",
            driver.status
        );
        let at = next(dice, way, driver.open.len());
        driver.finish(at, planner);
    }
}

/// The run came to what one step after the other comes to.
fn check_against(driver: &Driver, made: &Made) {
    let reference = Sequential::new(made, driver.fate).run();
    let reports = driver.reports();
    for (id, told) in &reference.told {
        assert_eq!(reports[id], told.status, "`{id}` of {}", text_of(made));
    }
    let mut values = reference.values();
    values.remove("original_query");
    assert_eq!(driver.machine.values(), values, "{}", text_of(made));
    let missing = reference.missing(&driver.handled);
    match (&driver.machine.ending().unwrap().status, &*missing) {
        (Status::Complete, []) => {}
        (Status::Failed(Failure::Unreached(why)), [_, ..]) => {
            let mut rest = why.as_str();
            for (id, failed) in missing.iter().take(20) {
                let words = if *failed { "failed: " } else { "was skipped" };
                let words = format!("step `{id}` {words}");
                let at = rest
                    .find(&words)
                    .unwrap_or_else(|| panic!("no `{words}` in `{why}`"));
                rest = &rest[at + words.len()..];
            }
            assert_eq!(
                why.matches("step `").count(),
                missing.len().min(20),
                "{why}"
            );
        }
        (status, missing) => panic!(
            "{status:?}, and missing is {missing:?} of {}",
            text_of(made)
        ),
    }
}

/// Fed the same, the machine and one built from what it saved go the same way.
fn check_repeats(driver: &Driver, made: &Made, rules: &Arc<Rules>, settings: Settings) {
    let again = GraphMachine::new(rules.clone(), start(made, settings));
    let saved = serde_json::from_str(&again.save().to_string()).unwrap();
    assert!(
        fed(again, &driver.inputs) == driver.trace,
        "the same inputs go another way"
    );
    let restored = GraphMachine::restore(rules.clone(), &saved).unwrap();
    assert!(
        fed(restored, &driver.inputs) == driver.trace,
        "restored, it goes another way"
    );
}

/// A machine that is built again before every input goes the same way.
fn check_restored(driver: &Driver, made: &Made, rules: &Arc<Rules>, settings: Settings) {
    let mut whole = GraphMachine::new(rules.clone(), start(made, settings));
    let mut often = GraphMachine::new(rules.clone(), start(made, settings));
    for (input, expected) in driver.inputs.iter().zip(&driver.trace) {
        let saved = often.save().to_string();
        often =
            GraphMachine::restore(rules.clone(), &serde_json::from_str(&saved).unwrap()).unwrap();
        let input = std::slice::from_ref(input);
        fed_more(&mut whole, input);
        assert_eq!(
            fed_more(&mut often, input).last(),
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

/// What is made up can be carried out.
fn check_plan(made: &Made, rules: &Rules) {
    if let Err(faults) = crate::Graph::check(made.plan.clone(), &rules.known) {
        panic!("{faults} in {}", text_of(made));
    }
}

fn text_of(made: &Made) -> String {
    let steps: Vec<String> = made
        .plan
        .steps
        .iter()
        .map(|step| serde_json::to_string(step).unwrap())
        .collect();
    format!("{}\n{:?}", steps.join("\n"), made.plan.variables)
}

fn settings(parallel: usize) -> Settings {
    Settings {
        parallel,
        ..Settings::default()
    }
}

fn whole_run(seed: u64, steps: usize, parallel: usize, fails: u64, ways: u64) {
    let mut dice = Dice(seed);
    let made = made(
        &mut dice,
        Taste {
            steps,
            early: parallel == 1,
        },
    );
    let (rules, settings) = (rules(false), settings(parallel));
    check_plan(&made, &rules);
    let mut texts = BTreeSet::new();
    for way in 0..ways {
        let mut driver = Driver::new(&rules, &made, settings, Fate { seed, fails });
        driver.begin();
        to_the_end(&mut driver, &mut dice, &mut no_planner);
        check_against(&driver, &made);
        texts.insert(driver.machine.ending().unwrap().text.clone());
        if steps < 50 {
            check_repeats(&driver, &made, &rules, settings);
        }
        if steps < 20 && way == 0 {
            check_restored(&driver, &made, &rules, settings);
        }
    }
    assert_eq!(texts.len(), 1, "the answer is a matter of time");
}

/// A run in which a planner changes the plan, and perhaps a person is asked about each change.
fn changed_run(seed: u64, steps: usize, parallel: usize, fails: u64, approve: bool) {
    let mut dice = Dice(seed);
    let made = made(
        &mut dice,
        Taste {
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
    let mut driver = Driver::new(&rules, &made, settings, Fate { seed, fails });
    let mut ideas = Dice(seed ^ 1);
    driver.begin();
    to_the_end(&mut driver, &mut dice, &mut |driver| {
        planner::change(driver, &driver.asked_for, &mut ideas)
    });
    check_against(&driver, &driver.plan);
    check_repeats(&driver, &made, &rules, settings);
    check_restored(&driver, &made, &rules, settings);
}

/// What a run that is broken off may do, and what it has to show.
fn broken_off(seed: u64, steps: usize, parallel: usize, fails: u64, last: &Input) {
    let mut dice = Dice(seed);
    let made = made(
        &mut dice,
        Taste {
            steps,
            early: false,
        },
    );
    let (rules, settings) = (rules(false), settings(parallel));
    let mut driver = Driver::new(&rules, &made, settings, Fate { seed, fails });
    driver.begin();
    for _ in 0..dice.below(steps * 2) {
        if !driver.open.is_empty() {
            let at = dice.below(driver.open.len());
            driver.finish(at, &mut no_planner);
        }
    }
    let (had_ended, wraps) = (
        driver.machine.ending().is_some(),
        matches!(last, Input::Wrap(_)),
    );
    let open = driver.open.clone();
    driver.apply(last.clone());
    assert!(
        driver.machine.ending().is_some() || wraps,
        "it does not end at once"
    );
    to_the_end(&mut driver, &mut dice, &mut no_planner);
    check_repeats(&driver, &made, &rules, settings);
    let ending = driver.machine.ending().unwrap().clone();
    for (effect, _) in open {
        // What comes too late is left aside.
        driver.apply(Input::Finished {
            effect,
            outcome: Outcome::Unknown,
        });
    }
    assert_eq!(driver.machine.ending(), Some(&ending));
    if had_ended {
        return check_against(&driver, &made);
    }
    match (&ending.status, last) {
        (Status::Cancelled { .. }, Input::Cancel { .. })
        | (Status::Partial(_), Input::Stop(_) | Input::Wrap(_)) => {}
        (Status::Complete, Input::Wrap(_)) => {
            assert!(driver.reports().values().all(|status| status.is_settled()));
        }
        (status, last) => panic!("{last:?} ends it as {status:?}"),
    }
    let reference = Sequential::new(&made, driver.fate).run();
    // Once the end is near nothing is tried again, so more fails then than would have.
    for (id, status) in driver
        .reports()
        .into_iter()
        .filter(|(_, status)| status.is_settled() && !wraps)
    {
        assert_eq!(status, reference.told[&id].status, "`{id}`");
    }
}

fn ends() -> impl Strategy<Value = Input> {
    prop_oneof![
        Just(Input::Cancel {
            reason: "enough".to_owned()
        }),
        Just(Input::Stop(Limit::Tokens)),
        Just(Input::Wrap(Limit::Money)),
    ]
}

const SEED: std::ops::RangeInclusive<u64> = 0..=u64::MAX;

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_way_through_a_plan_comes_to_what_one_step_after_the_other_does(
        seed in SEED.no_shrink(), steps in 1..40_usize, parallel in 1..8_usize, fails in 0..50_u64,
    ) {
        whole_run(seed, steps, parallel, fails, 3);
    }

    #[test]
    fn a_plan_that_is_changed_comes_to_what_the_last_plan_does(
        seed in SEED.no_shrink(), steps in 1..30_usize, parallel in 1..8_usize, fails in 5..50_u64, approve in any::<bool>(),
    ) {
        changed_run(seed, steps, parallel, fails, approve);
    }

    #[test]
    fn broken_off_it_ends_and_begins_nothing_more(
        seed in SEED.no_shrink(), steps in 1..30_usize, parallel in 1..8_usize, fails in 0..50_u64, last in ends(),
    ) {
        broken_off(seed, steps, parallel, fails, &last);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn so_does_a_large_plan(
        seed in SEED.no_shrink(), steps in 1_000..2_000_usize, parallel in 1..32_usize, fails in 0..20_u64,
    ) {
        whole_run(seed, steps, parallel, fails, 2);
    }
}
