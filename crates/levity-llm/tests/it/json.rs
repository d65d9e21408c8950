//! Lenient parsing of JSON that models write.

use levity_llm::json::{self, JsonErrorKind, Repair};
use serde_json::{Value, json};

/// One malformed document: its kind, its text and its value.
struct Case {
    kind: &'static str,
    text: &'static str,
    value: Value,
}

/// Parses the cases: `=== kind`, the text, `---`, and the value as JSON.
fn corpus() -> Vec<Case> {
    let file = include_str!("../data/malformed.txt")
        .strip_prefix("=== ")
        .unwrap();
    let case = |case: &'static str| {
        let (kind, rest) = case.split_once('\n').unwrap();
        let (text, value) = rest.split_once("\n---\n").unwrap();
        Case {
            kind,
            text,
            value: serde_json::from_str(value).unwrap(),
        }
    };
    file.split("\n=== ").map(case).collect()
}

#[test]
fn malformed_documents_parse_to_expected_values() {
    let corpus = corpus();
    assert!(corpus.len() >= 220, "{}", corpus.len());
    let mut wrong = Vec::new();
    for Case { kind, text, value } in &corpus {
        match json::parse(text) {
            Ok(found) if found == *value => {}
            Ok(found) => wrong.push(format!(
                "{kind}:\n{text}\n  found    {found}\n  expected {value}"
            )),
            Err(error) => wrong.push(format!("{kind}:\n{text}\n  {error}\n  expected {value}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} are wrong:\n{}",
        wrong.len(),
        corpus.len(),
        wrong.join("\n")
    );
}

#[test]
fn valid_json_in_fence_is_unchanged() {
    for Case { value, .. } in corpus() {
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let repaired = json::repair(&format!("Here:\n```json\n{pretty}\n```\nDone.")).unwrap();
        assert_eq!(repaired.value, value);
        let mends: Vec<_> = repaired.repairs.iter().collect();
        assert_eq!(mends, [Repair::Surroundings], "{pretty}");
    }
}

#[test]
fn every_prefix_of_document_is_parsed_or_rejected() {
    for Case { text, value, .. } in corpus() {
        let valid = serde_json::to_string(&value).unwrap();
        for text in [text, valid.as_str()] {
            for (end, _) in text.char_indices() {
                let begun = &text[..end];
                let check_no_json = |error: json::JsonError| *error.kind() == JsonErrorKind::NoJson;
                assert!(
                    json::parse(begun).map_err(check_no_json) != Err(false),
                    "{begun}"
                );
            }
        }
        if value.is_object() || value.is_array() {
            for (end, _) in valid.char_indices().skip(1) {
                assert_eq!(
                    json::parse(&valid[..end]).unwrap().is_array(),
                    value.is_array(),
                    "{}",
                    &valid[..end]
                );
            }
        }
    }
}

#[test]
fn truncated_value_contains_all_complete_data() {
    let whole = r#"{"a": {"b": [1, "two", null, {"c": "three"}]}, "d": true}"#;
    let all = json::parse(whole).unwrap();
    let mut seen = 0;
    for (end, _) in whole.char_indices().skip(1) {
        let repaired = json::repair(&whole[..end]).unwrap();
        assert!(
            repaired.repairs.contains(Repair::Truncated),
            "{}",
            &whole[..end]
        );
        // No parsed data disappears when more of the text arrives.
        let known = repaired
            .value
            .to_string()
            .matches(|c: char| c.is_alphanumeric())
            .count();
        assert!(known + 8 >= seen, "{}", &whole[..end]);
        seen = known;
    }
    assert!(json::repair(whole).unwrap().repairs.is_empty());
    assert_eq!(all["a"]["b"][3]["c"], "three");
}

#[track_caller]
fn check_repairs(text: &str, expected: &[Repair]) {
    let repaired = json::repair(text).unwrap();
    let mut mends: Vec<_> = repaired.repairs.iter().collect();
    mends.retain(|mend| *mend != Repair::Surroundings);
    assert_eq!(mends, expected, "{text}");
}

#[test]
fn parse_reports_repairs() {
    check_repairs(r#"{"a": 1}"#, &[]);
    check_repairs(r#"text {"a": 1}"#, &[]);
    check_repairs(r#""{\"a\": 1}""#, &[Repair::Unwrapped]);
    check_repairs(r#"{"a": 1"#, &[Repair::Truncated]);
    check_repairs(r#"{"a": 1,}"#, &[Repair::ExtraComma]);
    check_repairs(r#"{"a": 1 "b": 2}"#, &[Repair::MissingComma]);
    check_repairs(r#"{"a" 1}"#, &[Repair::Colon]);
    check_repairs(r#"{"a": [1}"#, &[Repair::Bracket]);
    check_repairs(r#"{"a": 1 /* one */}"#, &[Repair::Comment]);
    check_repairs(r#"{'a': 1}"#, &[Repair::Quotes]);
    check_repairs(r#"{"a": "b "c" d"}"#, &[Repair::InnerQuote]);
    check_repairs("{\"a\": \"b\nc\"}", &[Repair::Control]);
    check_repairs(r#"{"a": "\d"}"#, &[Repair::Escape]);
    check_repairs(r#"{"a": "b" + "c"}"#, &[Repair::Joined]);
    check_repairs(r#"{a: 1}"#, &[Repair::BareKey]);
    check_repairs(r#"{"a": b}"#, &[Repair::BareValue]);
    check_repairs(r#"{"a": True}"#, &[Repair::Literal]);
    check_repairs(r#"{"a": +1}"#, &[Repair::Number]);
    check_repairs(r#"{"a": (1, 2)}"#, &[Repair::Call]);
    check_repairs(r#"{"a": }"#, &[Repair::MissingValue]);
    check_repairs(r#"[1, ...]"#, &[Repair::ExtraComma, Repair::Dropped]);
}

#[test]
fn span_locates_value_in_text() {
    let text = "Sure: {a: 1}, bye";
    let repaired = json::repair(text).unwrap();
    assert_eq!(&text[repaired.span], "{a: 1}");
}

#[track_caller]
fn check_no_json(text: &str) {
    let error = json::parse(text).unwrap_err();
    assert_eq!(*error.kind(), JsonErrorKind::NoJson, "{text}");
    assert_eq!(error.text(), text);
}

#[test]
fn prose_is_rejected() {
    check_no_json("");
    check_no_json(" \n\t ");
    check_no_json("I cannot help with that.");
    check_no_json("- [ ] one\n- [x] two");
    check_no_json("see [the docs](https://example.com)");
    check_no_json("Hello {name}, how are you?");
    check_no_json("```rust\nfn main() {}\n```");
    check_no_json("no");
    check_no_json("t");
    check_no_json("\"To be\" is a quote");
    check_no_json("The answer is 42");
}

#[test]
fn typed_parse_returns_first_matching_value() {
    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Answer {
        n: u8,
    }
    let text = r#"Not {"long": "but of another shape"}, but {n: 7}."#;
    assert_eq!(json::parse_as::<Answer>(text).unwrap(), Answer { n: 7 });
    assert_eq!(
        json::parse_as::<String>(r#""{\"n\": 7}""#).unwrap(),
        r#"{"n": 7}"#
    );

    let error = json::parse_as::<Answer>("so: {'n': 'secret'}").unwrap_err();
    assert_eq!(
        (error.kind(), error.position()),
        (&JsonErrorKind::WrongShape, Some(4))
    );
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(
        error.to_string(),
        "the JSON does not have the requested shape, at byte 4"
    );
    assert!(!format!("{error:?}").contains("secret"));
    assert_eq!(error.into_text(), "so: {'n': 'secret'}");
}

#[test]
fn required_keys_select_object() {
    let text = r#"{"example": "this one is longer by far"} {"a": 1, "b": null}"#;
    assert_eq!(
        json::parse_with_keys(text, &["a", "b"]).unwrap(),
        json!({"a": 1, "b": null})
    );
    let error = json::parse_with_keys("[{'a': 1}]", &["a"]).unwrap_err();
    assert_eq!(*error.kind(), JsonErrorKind::MissingKeys(vec!["a".into()]));
    let error = json::parse_with_keys("{'a': 1}", &["a", "b", "c"]).unwrap_err();
    assert_eq!(error.to_string(), "the JSON lacks `b`, `c`, at byte 0");
    assert_eq!(
        json::parse_with_keys("nothing", &[]).unwrap_err().kind(),
        &JsonErrorKind::NoJson
    );
}

#[test]
fn long_key_is_cut_at_char_boundary() {
    for lead in 240..280 {
        let text = format!(
            "{{\"a\" {}\u{2026}\u{2014}\u{20ac}: 1, x\": 2",
            "b".repeat(lead)
        );
        let _ = json::parse(&text);
        let _ = json::parse(&text.replace('"', "'"));
        let _ = json::parse(&format!("{{\"a\" b{}: 1", "\u{2026}".repeat(lead)));
    }
}

/// A list with a missing comma after a string, and its value.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the cases read better")]
fn check_list(text: &str, expected: Value) {
    let repaired = json::repair(text).unwrap();
    assert_eq!(repaired.value, expected, "{text}");
    assert!(repaired.repairs.contains(Repair::MissingComma), "{text}");
}

#[test]
fn missing_comma_before_value_on_next_line_ends_string() {
    let values = [
        ("true", json!(true)),
        ("false", json!(false)),
        ("null", json!(null)),
        ("True", json!(true)),
        ("None", json!(null)),
        ("0", json!(0)),
        ("-7", json!(-7)),
        ("98.125", json!(98.125)),
        ("1e3", json!(1000.0)),
        ("+5", json!(5)),
        (".5", json!(0.5)),
        ("0x1F", json!(31)),
        ("[]", json!([])),
        ("[1, \"x\"]", json!([1, "x"])),
        ("{}", json!({})),
        ("{\"k\": \"v\"}", json!({"k": "v"})),
    ];
    let gaps = ["\n", "\n  ", "\r\n\t", " \n\n ", "  // a note\n  "];
    for (written, value) in &values {
        for gap in gaps {
            check_list(
                &format!("[\"a b\"{gap}{written}, \"c\"]"),
                json!(["a b", value, "c"]),
            );
            check_list(
                &format!("['a b'{gap}{written}, 'c']"),
                json!(["a b", value, "c"]),
            );
            check_list(&format!("[\"a b\"{gap}{written}\n]"), json!(["a b", value]));
            check_list(
                &format!("[\"a b\"{gap}{written}{gap}\"c\"]"),
                json!(["a b", value, "c"]),
            );
            check_list(
                &format!("[\"a b\"{gap}{written}{gap}{written}]"),
                json!(["a b", value, value]),
            );
            check_list(
                &format!("[\"a b\",{gap}{written}{gap}\"c d\"]"),
                json!(["a b", value, "c d"]),
            );
            check_list(
                &format!("[\"it's, so\"{gap}{written}, 2]"),
                json!(["it's, so", value, 2]),
            );
            let inside = format!("{{\"rows\": [\"a b\"{gap}{written}], \"ok\": true}}");
            check_list(&inside, json!({"rows": ["a b", value], "ok": true}));
            let deep = format!(
                "{{\"rows\": [[\"x\", \"a b\"{gap}{written}], {{\"n\": [\"y\"{gap}{written}]}}]}}"
            );
            check_list(
                &deep,
                json!({"rows": [["x", "a b", value], {"n": ["y", value]}]}),
            );
        }
    }
}

#[test]
fn missing_comma_before_value_on_same_line_ends_string() {
    check_list(r#"["a" 5, 6]"#, json!(["a", 5, 6]));
    check_list(r#"["a" true]"#, json!(["a", true]));
    check_list(r#"["a" null, "b"]"#, json!(["a", null, "b"]));
    check_list(
        r#"["a" {"b": 1} "c" [2]]"#,
        json!(["a", {"b": 1}, "c", [2]]),
    );
    check_list(
        r#"{"a": ["b" false], "c": 1}"#,
        json!({"a": ["b", false], "c": 1}),
    );
}

#[test]
fn missing_comma_before_next_member_ends_string() {
    for value in ["true", "null", "-3", "[1]", "{\"k\": 2}", "\"w\""] {
        let expected: Value = serde_json::from_str(value).unwrap();
        for gap in ["\n", "\n  ", "\r\n", " // a note\n "] {
            for key in ["\"b\"", "'b'", "b"] {
                let text = format!("{{\"a\": \"x y\"{gap}{key}: {value}, \"c\": 1}}");
                check_list(&text, json!({"a": "x y", "b": expected, "c": 1}));
                let text = format!("[{{\"a\": \"x y\"{gap}{key}: {value}{gap}\"c\": \"z\"}}]");
                check_list(&text, json!([{"a": "x y", "b": expected, "c": "z"}]));
            }
        }
    }
    let unclosed = json::parse("[{\"a\": \"x\"\n{\"a\": \"y\"}]").unwrap();
    assert_eq!(unclosed, json!([{"a": "x"}, {"a": "y"}]));
}

#[test]
fn quotes_in_list_string_stay_before_sentence() {
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "the cases read better")]
    fn check(text: &str, expected: Value) {
        assert_eq!(json::parse(text).unwrap(), expected, "{text}");
    }
    check(
        r#"["he said "yes" true story", 1]"#,
        json!([r#"he said "yes" true story"#, 1]),
    );
    check(r#"["a "b" 5 times", 1]"#, json!([r#"a "b" 5 times"#, 1]));
    check(
        "[\"he said \"yes\"\ntrue story\", 1]",
        json!(["he said \"yes\"\ntrue story", 1]),
    );
    check(
        "[\"a \"b\"\n12 people came\", 1]",
        json!(["a \"b\"\n12 people came", 1]),
    );
    check(
        "[\"a \"b\"\nnull and void\", 1]",
        json!(["a \"b\"\nnull and void", 1]),
    );
    check(
        "[\"a \"b\"\nfalse, she said\", 1]",
        json!(["a \"b\"\nfalse, she said", 1]),
    );
    check(
        "{\"a\": \"he said \"yes\"\ntrue story\"}",
        json!({"a": "he said \"yes\"\ntrue story"}),
    );
    check(
        "{\"a\": \"run \"x\"\n{ y }\"}",
        json!({"a": "run \"x\"\n{ y }"}),
    );
}

#[test]
fn comment_after_last_list_element_leaves_string_whole() {
    for (value, expected) in [
        ("false", json!(false)),
        ("null", json!(null)),
        ("7", json!(7)),
    ] {
        for comment in ["// a note\n", "/* a note */\n", "# a note\n"] {
            let text = format!("{{\"a\": [\"x y\",\n  {value}  {comment}],\n\"b\": \"z\"}}");
            assert_eq!(
                json::parse(&text).unwrap(),
                json!({"a": ["x y", expected], "b": "z"}),
                "{text}"
            );
        }
    }
}
