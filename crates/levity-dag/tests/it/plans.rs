//! Tests of hostile plans and of files without a valid plan.

use std::fmt::Write as _;

use levity_dag::{FaultKind, Graph, LoadError, Plan, PlanConstraints, StepRunner, StepRunnerKind};

fn known() -> PlanConstraints {
    PlanConstraints::new().with(
        "Coder",
        StepRunner::new(StepRunnerKind::Agent, "writes code"),
    )
}

/// Returns the first fault of a plan text, from parsing or from the check.
fn first_fault(text: &str) -> (FaultKind, String) {
    let faults = match Plan::parse(text).and_then(|plan| Graph::check(plan, &known())) {
        Ok(_) => panic!("the plan was accepted"),
        Err(faults) => faults,
    };
    (faults.faults[0].kind, faults.faults[0].message.clone())
}

#[track_caller]
fn assert_rejected(text: &str, kind: FaultKind, names: &str) {
    let (found, message) = first_fault(text);
    assert_eq!(found, kind, "{message}");
    assert!(message.contains(names), "{message}");
    assert!(
        message.len() < 600,
        "a fault message is short: {} bytes",
        message.len()
    );
}

fn steps(body: &str) -> String {
    format!(r#"{{"steps": [{body}]}}"#)
}

#[test]
fn hostile_plans_are_rejected_with_reason() {
    let two = concat!(
        r#"{"id": "a", "agent": "Coder", "after": ["b"]}, "#,
        r#"{"id": "b", "agent": "Coder", "after": ["a"]}"#,
    );
    assert_rejected(&steps(two), FaultKind::Cycle, "`a -> b -> a`");
    assert_rejected(
        &steps(r#"{"id": "a", "agent": "Coder", "after": "a"}"#),
        FaultKind::Cycle,
        "step `a` follows itself",
    );
    let twice = r#"{"id": "a", "agent": "Coder"}, {"id": "a", "agent": "Coder"}"#;
    assert_rejected(
        &steps(twice),
        FaultKind::Id,
        "steps 1 and 2 both have the id `a`",
    );
    assert_rejected(
        &steps(r#"{"id": "a", "agent": "Codder"}"#),
        FaultKind::Agent,
        "did you mean `Coder`?",
    );
    assert_rejected(
        &steps(r#"{"id": "a", "agent": "Coder", "reads": ["x"]}"#),
        FaultKind::Read,
        "reads `x`, which no step writes",
    );
    let long = format!(
        r#"{{"id": "a", "agent": "Coder", "prompt": "{}"}}"#,
        "x".repeat(10 << 20)
    );
    assert_rejected(
        &steps(&long),
        FaultKind::Size,
        "step `a` has 10485766 bytes of text",
    );
    let name = "n".repeat(100_000);
    assert_rejected(
        &steps(&format!(r#"{{"id": "{name}", "agent": "{name}"}}"#)),
        FaultKind::Id,
        "more than 256",
    );
    assert_rejected(
        &steps(&format!(
            r#"{{"id": "a", "agent": "Coder", "{name}": 1, "after": ["{name}"]}}"#
        )),
        FaultKind::Reference,
        "nnn…",
    );
}

#[test]
fn too_many_steps_are_rejected_first() {
    let mut text = String::from(r#"{"steps": ["#);
    for n in 0..100_000 {
        let comma = if n == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}{{"id":"s{n}","agent":"nobody","after":["s{}"]}}"#,
            n + 1
        )
        .unwrap();
    }
    text.push_str("]}");
    assert_rejected(
        &text,
        FaultKind::Size,
        "the plan has 100000 steps, more than the limit of 20000",
    );
}

#[test]
fn plan_text_over_limit_is_rejected() {
    assert_rejected(
        &" ".repeat(Plan::MAX_BYTES + 1),
        FaultKind::Size,
        "more than the limit of 16777216",
    );
}

#[test]
fn plan_is_loaded_from_file_and_errors_name_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    std::fs::write(
        &path,
        "\u{feff}{\"steps\": [{\"id\": \"a\", \"agent\": \"Coder\"}]}",
    )
    .unwrap();
    assert_eq!(Plan::load(&path).unwrap().steps[0].id.as_str(), "a");

    std::fs::write(&path, b"{\"steps\": [\xff]}").unwrap();
    let error = Plan::load(&path).unwrap_err();
    assert!(
        matches!(error, LoadError::NotText { at: 11, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("plan.json` is not valid UTF-8 at byte 11"),
        "{error}"
    );

    std::fs::write(&path, r#"{"steps": [{"id": "a", "reads": 1}]}"#).unwrap();
    let error = Plan::load(&path).unwrap_err().to_string();
    assert!(
        error.contains("plan.json` is invalid: step `a`: `reads` must be a list of names"),
        "{error}"
    );

    std::fs::write(&path, vec![b' '; Plan::MAX_BYTES + 1]).unwrap();
    assert!(matches!(Plan::load(&path), Err(LoadError::TooLarge { .. })));
    let missing = Plan::load(folder.path().join("none.json")).unwrap_err();
    assert!(
        missing.to_string().contains("cannot read the plan `"),
        "{missing}"
    );
    assert!(matches!(
        Plan::load(folder.path()),
        Err(LoadError::Unreadable { .. })
    ));
    #[cfg(unix)]
    assert!(matches!(
        Plan::load("/dev/zero"),
        Err(LoadError::Unreadable { .. })
    ));
}
