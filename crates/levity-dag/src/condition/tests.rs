use proptest::prelude::*;
use serde_json::{Value, json};

use super::Condition;

fn variables() -> Value {
    json!({
        "score": 0.9, "n": 3, "big": 9_007_199_254_740_993_u64, "verdict": "pass", "empty": "",
        "none": null,
        "list": [1, "two", [3]], "odd name": 1, "page-text": "tides", "in": 1,
        "review": {
            "ok": true,
            "issues": [],
            "by": [{"name": "qa"}, {"name": "lead"}],
            "in": {"not": 4},
        },
    })
}

#[track_caller]
fn check(text: &str, expected: bool) {
    let (variables, condition) = (variables(), Condition::parse(text).unwrap());
    assert_eq!(
        condition.holds(&|name| variables.get(name)),
        expected,
        "{text}"
    );
}

#[track_caller]
fn assert_rejected(text: &str, expected: &str) {
    assert_eq!(
        Condition::parse(text).unwrap_err().to_string(),
        expected,
        "{text}"
    );
}

#[test]
fn paths_and_truthiness() {
    check("score", true);
    check("empty", false);
    check("none", false);
    check("missing", false);
    check("missing.more[3].still", false);
    check("review.ok", true);
    check("review.issues", false);
    check("review.by[0].name == 'qa'", true);
    check("review.by[-1].name == \"lead\"", true);
    check("review.by[-3].name == \"lead\"", false);
    check("review[\"by\"][1][\"name\"] == 'lead'", true);
    check("review.in.not == 4", true);
    check("`odd name`", true);
    check("`in` == 1", true);
    check("page-text == 'tides'", true);
    check("0", false);
    check("-0.0", false);
    check("[]", false);
    check("[0]", true);
    check("null", false);
}

#[test]
fn comparisons_of_values() {
    check("n == 3.0", true);
    check("n >= 3 and n <= 3", true);
    check("n > 3", false);
    check("n<4", true);
    check("n != 3", false);
    check("score > n", false);
    check("big == 9007199254740992", false);
    check("big > 9007199254740992", true);
    check("n > -1e3", true);
    check("verdict < 'q'", true);
    check("verdict > 1", false);
    check("verdict <= 1", false);
    check("verdict != 1", true);
    check("verdict == missing", false);
    check("missing == null", true);
    check("missing != None", false);
    check("list == [1.0, 'two', [3]]", true);
    check("review.ok == True", true);
    check("verdict == 'p\\u0061ss'", true);
}

#[test]
fn membership_tests() {
    check("'two' in list", true);
    check("2 in list", false);
    check("[3] in list", true);
    check("1.0 in list", true);
    check("list contains 1", true);
    check("verdict in ['pass', 'fine',]", true);
    check("verdict not in ['pass']", false);
    check("'ok' in review", true);
    check("'as' in verdict", true);
    check("verdict contains 'x'", false);
    check("1 in verdict", false);
    check("1 in n", false);
    check("1 not in n", true);
}

#[test]
fn boolean_operators() {
    check("n and not empty", true);
    check("empty or n", true);
    check("empty || n && !none", true);
    check("not (n or empty)", false);
    check("not n == 4", true);
    check("empty and empty or n", true);
    check("empty and (empty or n)", false);
    check("not not n", true);
}

#[test]
fn errors_name_character_position() {
    assert_rejected("", "a value is missing at character 1");
    assert_rejected("a ==", "a value is missing at character 5");
    assert_rejected("a = 1", "`=` is not an operator; use `==` at character 3");
    assert_rejected(
        "1 < a < 3",
        "a comparison has two values; put `and` between comparisons at character 7",
    );
    assert_rejected("a b", "`and` or `or` is missing at character 3");
    assert_rejected("(a", "`)` is missing at character 3");
    assert_rejected(
        "a in [b]",
        "a list cannot contain paths; put `b` in quotes if it is a text at character 7",
    );
    assert_rejected(
        "a == 'x",
        "a text in quotes has no closing quote at character 6",
    );
    assert_rejected("a == 'é\\q'", "this is not a valid escape at character 8");
    assert_rejected("ä == 1e999", "this is not a number at character 6");
    assert_rejected(
        "a[1.5]",
        "an integer or a text in quotes is missing at character 3",
    );
    assert_rejected("a.", "a name is missing at character 3");
    assert_rejected("a not b", "`in` is missing at character 7");
    assert_rejected("a; drop", "`;` is not valid at character 2");
    assert_rejected(
        "`a",
        "a name in backticks has no closing backtick at character 1",
    );
    assert_rejected(
        &"(".repeat(4000),
        "the condition is nested too deeply at character 33",
    );
    assert_rejected(
        &"not ".repeat(1000),
        "the condition is nested too deeply at character 129",
    );
    assert_rejected(
        &format!("a in {}", "[".repeat(1000)),
        "the condition is nested too deeply at character 38",
    );
    assert_rejected(
        &"a".repeat(5000),
        "the condition is longer than 4096 bytes; it ends at character 5001",
    );
}

#[test]
fn variables_lists_each_variable_once() {
    let condition = Condition::parse("a.b == c or c in [1] or not a and 'd' in `e f`").unwrap();
    assert_eq!(
        condition
            .variables()
            .iter()
            .map(AsRef::as_ref)
            .collect::<Vec<&str>>(),
        ["a", "c", "e f"]
    );
}

proptest! {
    #[test]
    fn any_text_parses_or_returns_error(text in ".{0,60}") {
        let variables = variables();
        if let Ok(condition) = Condition::parse(&text) {
            condition.holds(&|name| variables.get(name));
        }
    }

    #[test]
    fn any_tokens_parse_or_return_error(tokens in prop::collection::vec(prop::sample::select(vec![
        "a", "n", ".", "[", "]", "(", ")", "not", "!", "and", "||", "in", "contains", "==", "<=",
        "1", "-2.5", "'x'",
        "list", "review", "null", ",", "\"", "`", "\\", "é",
    ]), 0..12)) {
        let (text, variables) = (tokens.join(" "), variables());
        if let Ok(condition) = Condition::parse(&text) {
            condition.holds(&|name| variables.get(name));
            prop_assert_eq!(&Condition::parse(&condition.to_string()).unwrap(), &condition);
        }
    }
}
