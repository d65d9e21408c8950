use levity_eval::{
    Case, Check, Expectation, ExpectationCheck, ExpectedCall, Transcript, TrialCall,
};
use serde_json::{Value, json};

#[track_caller]
fn check(expect: Expectation, transcript: &Transcript, reason: Option<&str>) {
    let score = ExpectationCheck.check(&Case::new("1", "?", expect), transcript);
    match reason {
        None => assert!(
            score.passed && score.value == 1.0 && score.reason.is_empty(),
            "{score:?}"
        ),
        Some(reason) => assert!(!score.passed && score.reason.contains(reason), "{score:?}"),
    }
}

#[test]
fn text_expectations_compare_exactly_partially_or_as_json() {
    let answer = |text: &str| Transcript::new().with_text(text);
    check(Expectation::exact("Paris"), &answer(" Paris\n"), None);
    check(
        Expectation::exact("Paris"),
        &answer("Paris."),
        Some("not `Paris`"),
    );
    check(
        Expectation::contains("Paris"),
        &answer("It is Paris."),
        None,
    );
    check(
        Expectation::contains("Paris"),
        &answer("paris"),
        Some("does not contain"),
    );
    let value = || Expectation::json(json!({"a": 5, "b": [1.5, null]}));
    check(value(), &answer(" {\"b\": [1.5, null], \"a\": 5.0} "), None);
    check(value(), &answer("{\"a\": 5}"), Some("another"));
    check(
        value(),
        &answer("{\"a\": 5, \"b\": [1.5, null], \"c\": 1}"),
        Some("another"),
    );
    check(value(), &answer("five"), Some("not JSON"));
}

#[test]
fn answer_with_error_fails_any_expectation() {
    check(
        Expectation::NoCalls,
        &Transcript::failed("connection refused"),
        Some("connection refused"),
    );
}

#[test]
fn unexpected_calls_fail() {
    check(
        Expectation::NoCalls,
        &Transcript::new().with_text("I cannot."),
        None,
    );
    check(
        Expectation::NoCalls,
        &Transcript::new().with_call("add", json!({})),
        Some("`add` was called"),
    );
}

/// Each trial of a case stores a reason, so a long expectation must not be part of all of them.
#[test]
fn too_many_calls_are_not_compared() {
    let score = |count: usize| {
        let name = |at: usize| format!("f{at}");
        let expected = (0..count).map(|at| ExpectedCall::new(name(at)));
        let expected: Vec<_> = expected.collect();
        let mut transcript = Transcript::new();
        for at in (0..count).rev() {
            transcript = transcript.with_call(name(at), json!({}));
        }
        let case = Case::new("1", "?", Expectation::calls(expected));
        ExpectationCheck.check(&case, &transcript)
    };
    assert!(score(200).passed);
    assert!(
        score(1_001).reason.contains("the limit is 1000"),
        "{:?}",
        score(1_001)
    );
}

#[test]
fn reasons_of_failures_are_short_for_long_texts() {
    let long = || "ä".repeat(1 << 19);
    let call = |name: &str, args: Value| Transcript::new().with_call(name, args);
    let calls = |expected: ExpectedCall| Expectation::calls([expected]);
    let text = Transcript::new().with_text("x");
    for (expect, transcript) in [
        (Expectation::exact(long()), text.clone()),
        (Expectation::contains(long()), text.clone()),
        (Expectation::NoCalls, call(&long(), json!({}))),
        (Expectation::NoCalls, Transcript::failed(long())),
        (calls(ExpectedCall::new(long())), call("f", json!({}))),
        (calls(ExpectedCall::new("f")), call(&long(), json!({}))),
        (
            calls(ExpectedCall::new("f")),
            call("f", json!({(long()): 1})),
        ),
        (
            calls(ExpectedCall::new("f").with_argument(long(), [1])),
            call("f", json!({})),
        ),
        (
            calls(ExpectedCall::new("f").with_argument("a", [long()])),
            call("f", json!({"a": long() + "x"})),
        ),
    ] {
        let score = ExpectationCheck.check(&Case::new("1", "?", expect), &transcript);
        let length = score.reason.len();
        assert!(!score.passed && (1..=2_100).contains(&length), "{length}");
        assert!(score.reason.contains('…'), "{}", score.reason);
    }
    // Both sides remain visible.
    let expected = ExpectedCall::new("f").with_argument("a", [long()]);
    let reason = expected.mismatch(&TrialCall::new("f", json!({"a": long() + "x"})));
    let reason = reason.unwrap();
    assert!(reason.starts_with("`a` is \"ä"), "{reason}");
    assert!(reason.contains("not one of [\"ä"), "{reason}");
}

#[test]
fn arguments_match_any_alternative() {
    let expected = ExpectedCall::new("book")
        .with_argument("city", [json!("San Francisco"), json!("SF, CA")])
        .with_argument("seats", [json!(2)])
        .with_argument("price", [json!(10.0), json!("")])
        .with_argument("days", [json!(["May 1", "May 2"])])
        .with_argument(
            "who",
            [json!({"name": ["Ann"], "age": [30, ""]}), json!("")],
        );
    let fits = |change: &[(&str, Value)]| {
        let mut args = json!({"city": "san-francisco", "seats": 2, "days": ["may 1", "MAY 2"]});
        for (name, value) in change {
            args[*name] = value.clone();
        }
        expected.mismatch(&TrialCall::new("book", args))
    };
    for fine in [
        vec![],
        vec![("city", json!("SF CA"))],
        vec![("seats", json!(2.0))],
        vec![("price", json!(10))],
        vec![("who", json!({"name": "ann"}))],
        vec![("who", json!({"name": "Ann", "age": 30}))],
    ] {
        assert_eq!(fits(&fine), None, "{fine:?}");
    }
    for (wrong, reason) in [
        (("city", json!("Oakland")), "`city` is \"Oakland\""),
        (("city", json!(5)), "`city` is 5"),
        (("seats", json!("2")), "`seats` is \"2\""),
        (("price", json!(11)), "`price` is 11"),
        (("days", json!(["May 2", "May 1"])), "`days`"),
        (("days", json!("May 1")), "`days`"),
        (("who", json!({"age": 30})), "`who`"),
        (("who", json!({"name": "Ann", "tall": true})), "`who`"),
        (("hotel", json!(true)), "`hotel` is not expected"),
    ] {
        assert!(fits(&[wrong]).unwrap().contains(reason), "{reason}");
    }
    assert!(
        expected
            .mismatch(&TrialCall::new("buy", json!({})))
            .unwrap()
            .contains("instead of `book`")
    );
    assert!(
        expected
            .mismatch(&TrialCall::new("book", json!({"city": "SF CA"})))
            .unwrap()
            .contains("is missing")
    );
    assert!(
        expected
            .mismatch(&TrialCall::new("book", json!("SF")))
            .unwrap()
            .contains("not an object")
    );
}

#[test]
fn calls_match_in_any_order_unless_ordered() {
    let call = |n: i64| ExpectedCall::new("f").with_argument("n", [n]);
    let made = Transcript::new()
        .with_call("f", json!({"n": 2}))
        .with_call("f", json!({"n": 1}));
    check(Expectation::calls([call(1), call(2)]), &made, None);
    check(
        Expectation::calls([call(1), call(1)]),
        &made,
        Some("`n` is 2"),
    );
    check(
        Expectation::calls([call(1)]),
        &made,
        Some("2 calls instead of 1"),
    );
    check(
        Expectation::calls([call(1)]),
        &Transcript::new().with_text("1"),
        Some("0 calls instead of 1"),
    );
    let ordered: Expectation = serde_json::from_value(json!({
        "kind": "calls", "ordered": true,
        "calls": [{"name": "f", "arguments": {"n": [1]}}, {"name": "f", "arguments": {"n": [2]}}],
    }))
    .unwrap();
    check(ordered, &made, Some("`n` is 2"));
}
