//! What chance would seldom come by.

use levity_core::{Input, Limit, Machine as _};

use super::driver::Driver;
use super::world::{Answer, Fate, Setting, swarm};
use crate::{Delegation, FailureAction, ReportStatus, SwarmNotice};

/// A driver with a plan of the host's, in which each attempt has this fate.
fn planned(setting: &Setting, plan: Vec<Delegation>, fate: Fate) -> Driver {
    let mut driver = Driver::new(setting, &[], &[fate]);
    driver.machine = swarm(setting).planned_machine("Build a house.", plan);
    driver.begin();
    driver
}

#[test]
fn what_was_to_be_tried_again_is_told_to_be_left() {
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
    let mut driver = planned(&setting, plan, Fate::Done);
    assert_eq!(driver.under_way(), ["a", "d"]);
    driver.finish(0, 1);
    assert_eq!(driver.under_way(), ["b", "d"]);
    driver.finish_with(0, Fate::Failed);
    assert_eq!(
        driver.under_way(),
        ["b", "c"],
        "who comes first in the plan begins first"
    );
    driver.apply(Input::Wrap(Limit::Tokens), 3);
    driver.finish(0, 4);
    driver.finish(0, 5);
    driver.check_end();
    driver.check_settled();
    let report = &driver.machine.desk().reports[3];
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
        (then, error.contains("the limit on tokens was near")),
        (&FailureAction::Leave, true),
        "{error}"
    );
}

#[test]
fn what_failed_is_named_whatever_the_others_are_called() {
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
    let mut driver = planned(&setting, plan, Fate::Done);
    driver.finish_with(0, Fate::Failed);
    driver.finish(0, 2);
    driver.check_end();
    let text = &driver.machine.ending().unwrap().text;
    assert!(text.contains("Not done:\n- mason (`1`)"), "{text}");
}

#[test]
fn a_later_plan_may_depend_on_a_number_of_an_earlier_one() {
    let setting = Setting {
        workers: [(0, None, 0); 4],
        ..Setting::default()
    };
    let first = r#"[{"id": "1", "worker": "mason", "task": "Go."}, {"id": "2", "worker": "joiner", "task": "Go."}]"#;
    let later = r#"[{"id": "3", "worker": "roofer", "task": "Go.", "depends_on": ["1"]}]"#;
    let mut driver = Driver::new(
        &setting,
        &[Answer::Text(first), Answer::Text(later)],
        &[Fate::Done],
    );
    driver.begin();
    driver.finish(0, 1);
    driver.finish(0, 2);
    driver.finish_with(0, Fate::Failed);
    driver.finish(0, 3);
    assert_eq!(driver.under_way(), ["3"], "{:?}", driver.notices.last());
}
