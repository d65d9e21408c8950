//! What models write, and what it means.

use levity_llm::json::{self, JsonErrorKind, Repair};
use serde_json::{Value, json};

/// One malformed document: its kind, the text and what it means.
struct Case {
    kind: &'static str,
    text: &'static str,
    value: Value,
}

/// Each case is `=== kind`, the text, `---`, and the value as JSON.
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
fn malformed_documents_mean_what_they_should() {
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
fn valid_json_in_a_fence_is_not_changed() {
    for Case { value, .. } in corpus() {
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let repaired = json::repair(&format!("Here:\n```json\n{pretty}\n```\nDone.")).unwrap();
        assert_eq!(repaired.value, value);
        let mends: Vec<_> = repaired.mends.iter().collect();
        assert_eq!(mends, [Repair::Surroundings], "{pretty}");
    }
}

#[test]
fn every_beginning_of_a_document_is_read_or_refused() {
    for Case { text, value, .. } in corpus() {
        let valid = serde_json::to_string(&value).unwrap();
        for text in [text, valid.as_str()] {
            for (end, _) in text.char_indices() {
                let begun = &text[..end];
                let nothing = |error: json::JsonError| *error.kind() == JsonErrorKind::Nothing;
                assert!(json::parse(begun).map_err(nothing) != Err(false), "{begun}");
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
fn a_value_cut_off_holds_what_was_there() {
    let whole = r#"{"a": {"b": [1, "two", null, {"c": "three"}]}, "d": true}"#;
    let all = json::parse(whole).unwrap();
    let mut seen = 0;
    for (end, _) in whole.char_indices().skip(1) {
        let repaired = json::repair(&whole[..end]).unwrap();
        assert!(
            repaired.mends.contains(Repair::Truncated),
            "{}",
            &whole[..end]
        );
        // Nothing that was there is lost when more of it comes.
        let known = repaired
            .value
            .to_string()
            .matches(|c: char| c.is_alphanumeric())
            .count();
        assert!(known + 8 >= seen, "{}", &whole[..end]);
        seen = known;
    }
    assert!(json::repair(whole).unwrap().mends.is_empty());
    assert_eq!(all["a"]["b"][3]["c"], "three");
}

#[track_caller]
fn mended(text: &str, expected: &[Repair]) {
    let repaired = json::repair(text).unwrap();
    let mut mends: Vec<_> = repaired.mends.iter().collect();
    mends.retain(|mend| *mend != Repair::Surroundings);
    assert_eq!(mends, expected, "{text}");
}

#[test]
fn what_was_mended_is_said() {
    mended(r#"{"a": 1}"#, &[]);
    mended(r#"text {"a": 1}"#, &[]);
    mended(r#""{\"a\": 1}""#, &[Repair::Unwrapped]);
    mended(r#"{"a": 1"#, &[Repair::Truncated]);
    mended(r#"{"a": 1,}"#, &[Repair::ExtraComma]);
    mended(r#"{"a": 1 "b": 2}"#, &[Repair::MissingComma]);
    mended(r#"{"a" 1}"#, &[Repair::Colon]);
    mended(r#"{"a": [1}"#, &[Repair::Bracket]);
    mended(r#"{"a": 1 /* one */}"#, &[Repair::Comment]);
    mended(r#"{'a': 1}"#, &[Repair::Quotes]);
    mended(r#"{"a": "b "c" d"}"#, &[Repair::InnerQuote]);
    mended("{\"a\": \"b\nc\"}", &[Repair::Control]);
    mended(r#"{"a": "\d"}"#, &[Repair::Escape]);
    mended(r#"{"a": "b" + "c"}"#, &[Repair::Joined]);
    mended(r#"{a: 1}"#, &[Repair::BareKey]);
    mended(r#"{"a": b}"#, &[Repair::BareValue]);
    mended(r#"{"a": True}"#, &[Repair::Literal]);
    mended(r#"{"a": +1}"#, &[Repair::Number]);
    mended(r#"{"a": (1, 2)}"#, &[Repair::Call]);
    mended(r#"{"a": }"#, &[Repair::MissingValue]);
    mended(r#"[1, ...]"#, &[Repair::ExtraComma, Repair::Dropped]);
}

#[test]
fn the_span_says_where_the_value_stood() {
    let text = "Sure: {a: 1}, bye";
    let repaired = json::repair(text).unwrap();
    assert_eq!(&text[repaired.span], "{a: 1}");
}

#[track_caller]
fn nothing(text: &str) {
    let error = json::parse(text).unwrap_err();
    assert_eq!(*error.kind(), JsonErrorKind::Nothing, "{text}");
    assert_eq!(error.text(), text);
}

#[test]
fn prose_is_no_json() {
    nothing("");
    nothing(" \n\t ");
    nothing("I cannot help with that.");
    nothing("- [ ] one\n- [x] two");
    nothing("see [the docs](https://example.com)");
    nothing("Hello {name}, how are you?");
    nothing("```rust\nfn main() {}\n```");
    nothing("no");
    nothing("t");
    nothing("\"To be\" is a quote");
    nothing("The answer is 42");
}

#[test]
fn a_type_takes_the_first_value_that_fits() {
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
    assert_eq!((error.kind(), error.at()), (&JsonErrorKind::Shape, Some(4)));
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(
        error.to_string(),
        "the JSON has another shape than was asked for, at byte 4"
    );
    assert!(!format!("{error:?}").contains("secret"));
    assert_eq!(error.into_text(), "so: {'n': 'secret'}");
}

#[test]
fn keys_choose_among_objects() {
    let text = r#"{"example": "this one is longer by far"} {"a": 1, "b": null}"#;
    assert_eq!(
        json::parse_with_keys(text, &["a", "b"]).unwrap(),
        json!({"a": 1, "b": null})
    );
    let error = json::parse_with_keys("[{'a': 1}]", &["a"]).unwrap_err();
    assert_eq!(*error.kind(), JsonErrorKind::Missing(vec!["a".into()]));
    let error = json::parse_with_keys("{'a': 1}", &["a", "b", "c"]).unwrap_err();
    assert_eq!(error.to_string(), "the JSON lacks `b`, `c`, at byte 0");
    assert_eq!(
        json::parse_with_keys("nothing", &[]).unwrap_err().kind(),
        &JsonErrorKind::Nothing
    );
}

#[test]
fn a_long_key_is_not_cut_inside_a_character() {
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

/// A list in which the comma behind a string is missing, and what it means.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the cases read better")]
fn check_list(text: &str, expected: Value) {
    let repaired = json::repair(text).unwrap();
    assert_eq!(repaired.value, expected, "{text}");
    assert!(repaired.mends.contains(Repair::MissingComma), "{text}");
}

#[test]
fn missing_comma_between_a_string_and_a_value_on_the_next_line_ends_the_string() {
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
fn missing_comma_between_a_string_and_a_value_on_the_same_line_ends_the_string() {
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
fn missing_comma_in_an_object_ends_the_string_before_the_next_member() {
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
fn quotes_inside_a_string_of_a_list_stay_when_a_sentence_follows() {
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
fn comment_behind_the_last_element_of_a_list_leaves_the_string_before_it_whole() {
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
