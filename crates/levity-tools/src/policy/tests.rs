use levity_core::{Hints, ToolSpec};
use serde_json::{Value, json};

use super::*;

fn spec(name: &str, hints: Hints) -> ToolSpec {
    ToolSpec::new(name, "").with_hints(hints)
}

#[track_caller]
fn check(policy: &Policy, name: &str, args: &Value, expected: &str) {
    let verdict = match policy.judge(&spec(name, Hints::new()), args) {
        Permit::Allow => "allow".to_owned(),
        Permit::Ask { reason } | Permit::Deny { reason } => reason,
    };
    assert_eq!(verdict, expected, "{name} {args}");
}

#[test]
fn default_policy_asks_only_for_destructive_tools() {
    let verdict = |policy: Policy, hints| policy.judge(&spec("x", hints), &json!({}));
    assert_eq!(verdict(Policy::new(), Hints::new()), Permit::Allow);
    assert_eq!(
        verdict(Policy::new(), Hints::new().destructive()),
        Permit::ask("it may destroy something")
    );
    assert_eq!(
        verdict(Policy::allow_all(), Hints::new().destructive()),
        Permit::Allow
    );
    assert!(matches!(
        verdict(Policy::ask_all(), Hints::new().read_only()),
        Permit::Ask { .. }
    ));
}

#[test]
fn first_matching_rule_decides() {
    let policy = Policy::new()
        .rule(Rule::tool("write_log").allow())
        .rule(Rule::tool("write_*").ask("writes"))
        .rule(Rule::tool("*").deny("unknown"));
    check(&policy, "write_log", &json!({}), "allow");
    check(&policy, "write_file", &json!({}), "writes");
    check(&policy, "read", &json!({}), "unknown");
}

#[test]
fn rule_can_allow_destructive_tool() {
    let policy = Policy::new().rule(Rule::tool("rm").allow());
    assert_eq!(
        policy.judge(&spec("rm", Hints::new().destructive()), &json!({})),
        Permit::Allow
    );
}

#[test]
fn hints_select_tools() {
    let matches = |hint, hints| {
        let policy = Policy::allow_all().rule(Rule::hint(hint).deny("no"));
        policy.judge(&spec("x", hints), &json!({})) == Permit::deny("no")
    };
    assert!(matches(HintMatch::ReadOnly, Hints::new().read_only()));
    assert!(!matches(HintMatch::ReadOnly, Hints::new()));
    assert!(matches(HintMatch::Idempotent, Hints::new().idempotent()));
    assert!(matches(HintMatch::AtMostOnce, Hints::new()));
    assert!(matches(HintMatch::Compensable, Hints::new().compensable()));
    assert!(!matches(HintMatch::AtMostOnce, Hints::new().compensable()));
    assert!(!matches(HintMatch::AtMostOnce, Hints::new().idempotent()));
    assert!(matches(
        HintMatch::Destructive,
        Hints::new().read_only().destructive()
    ));
}

#[test]
fn all_argument_conditions_must_match() {
    let one = |at: &str, is| Policy::new().rule(Rule::any().arg(at, is).deny("hit"));
    let args = json!({"path": "/etc/hosts", "n": 5, "a/b": null, "list": [{"x": true}]});
    let hit = |policy: &Policy, expected| check(policy, "x", &args, expected);
    hit(&one("/path", ArgMatch::glob("/etc/*")), "hit");
    hit(&one("path", ArgMatch::glob("/etc/*")), "hit");
    hit(&one("/path", ArgMatch::glob("/tmp/*")), "allow");
    hit(&one("/n", ArgMatch::glob("*")), "allow");
    hit(&one("/n", ArgMatch::equals(5)), "hit");
    hit(&one("/n", ArgMatch::one_of([4, 5])), "hit");
    hit(&one("/n", ArgMatch::one_of([4])), "allow");
    hit(&one("/a~1b", ArgMatch::present()), "hit");
    hit(&one("/list/0/x", ArgMatch::equals(true)), "hit");
    hit(&one("/gone", ArgMatch::present()), "allow");
    let both = Rule::any()
        .arg("n", ArgMatch::equals(5))
        .arg("path", ArgMatch::equals("other"));
    hit(&Policy::new().rule(both.deny("hit")), "allow");
}

#[test]
fn function_restricts_a_rule() {
    let policy = Policy::new().rule(Rule::tool("x").when(|_, args| args["n"] == 1).deny("one"));
    check(&policy, "x", &json!({"n": 1}), "one");
    check(&policy, "x", &json!({"n": 2}), "allow");
    check(&policy, "y", &json!({"n": 1}), "allow");
}

#[test]
fn policy_round_trips_through_file_without_functions() {
    let policy = Policy::ask_all()
        .rule(Rule::hint(HintMatch::ReadOnly).allow())
        .rule(
            Rule::tool("t")
                .hint(HintMatch::Destructive)
                .arg("a", ArgMatch::present())
                .deny("no"),
        );
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
    assert_eq!(serde_json::from_str::<Policy>("{}").unwrap(), Policy::new());

    let with_function = Policy::new().rule(Rule::any().when(|_, _| false).allow());
    assert!(serde_json::to_string(&with_function).is_err());
}

#[test]
fn policy_file_with_unknown_field_is_rejected() {
    for text in [
        r#"{"rule": []}"#,
        r#"{"rules": [{"tols": "x", "verdict": "allow"}]}"#,
        r#"{"rules": [{"tool": "x"}]}"#,
        r#"{"rules": [{"tool": "x", "args": [{"at": "/p", "is": {"globs": ""}}],
            "verdict": "allow"}]}"#,
    ] {
        assert!(serde_json::from_str::<Policy>(text).is_err(), "{text}");
    }
}
