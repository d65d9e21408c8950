//! Tests of cases that random tests rarely reach.

use levity_core::{Input, Limit, Machine as _};

use super::driver::Driver;
use super::scenario::{Answer, AttemptOutcome, Setting, swarm};
use crate::{Delegation, FailureAction, ReportStatus, SwarmNotice};

/// Returns a driver with a plan of the host, in which each attempt has this outcome.
fn planned(setting: &Setting, plan: Vec<Delegation>, outcome_kind: AttemptOutcome) -> Driver {
    let mut driver = Driver::new(setting, &[], &[outcome_kind]);
    driver.machine = swarm(setting).planned_machine("Build a house.", plan);
    driver.begin();
    driver
}

#[test]
fn pending_retry_is_reported_as_final_near_limit() {
    let setting = Setting {
        synthesis: false,
        parallel: 2,
        workers: [(1, None, 0); 4],
        ..Setting::default()
    };
    let one = |id: &str| Delegation::new(id, "mason", "Go.");
    let plan = vec![
        one("a"),
        one("b").after(["a"]),
        one("c").after(["a"]),
        one("d"),
    ];
    let mut driver = planned(&setting, plan, AttemptOutcome::Done);
    assert_eq!(driver.in_progress(), ["a", "d"]);
    driver.finish(0, 1);
    assert_eq!(driver.in_progress(), ["b", "d"]);
    driver.finish_with(0, AttemptOutcome::Failed);
    assert_eq!(
        driver.in_progress(),
        ["b", "c"],
        "the first in the plan starts first"
    );
    driver.apply(Input::FinishSoon(Limit::Tokens), 3);
    driver.finish(0, 4);
    driver.finish(0, 5);
    driver.check_end();
    driver.check_settled();
    let report = &driver.machine.shared().reports[3];
    assert_eq!(
        (&*report.id, report.status, report.attempts),
        ("d", ReportStatus::Failed, 1)
    );
    let of_d =
        |notice: &&SwarmNotice| matches!(notice, SwarmNotice::Failed { id, .. } if **id == *"d");
    let Some(SwarmNotice::Failed { then, error, .. }) = driver.notices.iter().rfind(of_d) else {
        panic!()
    };
    assert_eq!(
        (
            then,
            error.contains("the limit on tokens was nearly reached")
        ),
        (&FailureAction::GiveUp, true),
        "{error}"
    );
}

#[test]
fn failed_delegation_is_named_regardless_of_other_ids() {
    let setting = Setting {
        synthesis: false,
        workers: [(0, None, 0); 4],
        plans: false,
        ..Setting::default()
    };
    let plan = vec![
        Delegation::new("1", "mason", "Go."),
        Delegation::new("1.1", "joiner", "Go."),
    ];
    let mut driver = planned(&setting, plan, AttemptOutcome::Done);
    driver.finish_with(0, AttemptOutcome::Failed);
    driver.finish(0, 2);
    driver.check_end();
    let text = &driver.machine.ending().unwrap().text;
    assert!(text.contains("Not done:\n- mason (`1`)"), "{text}");
}

#[test]
fn later_plan_may_depend_on_number_of_earlier_plan() {
    let setting = Setting {
        workers: [(0, None, 0); 4],
        ..Setting::default()
    };
    let first = r#"[{"id": "1", "worker": "mason", "task": "Go."},
        {"id": "2", "worker": "joiner", "task": "Go."}]"#;
    let later = r#"[{"id": "3", "worker": "roofer", "task": "Go.", "depends_on": ["1"]}]"#;
    let mut driver = Driver::new(
        &setting,
        &[Answer::Text(first), Answer::Text(later)],
        &[AttemptOutcome::Done],
    );
    driver.begin();
    driver.finish(0, 1);
    driver.finish(0, 2);
    driver.finish_with(0, AttemptOutcome::Failed);
    driver.finish(0, 3);
    assert_eq!(driver.in_progress(), ["3"], "{:?}", driver.notices.last());
}
