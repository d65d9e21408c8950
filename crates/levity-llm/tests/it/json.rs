//! What models write, and what it means.

use levity_llm::json::{self, JsonErrorKind, Mend};
use serde_json::{Value, json};

/// One malformed document: its kind, the text and what it means.
struct Case {
    kind: &'static str,
    text: &'static str,
    value: Value,
}

/// Each case is `=== kind`, the text, `---`, and the value as JSON.
fn corpus() -> Vec<Case> {
    let file = include_str!("../data/malformed.txt").strip_prefix("=== ").unwrap();
    let case = |case: &'static str| {
        let (kind, rest) = case.split_once('\n').unwrap();
        let (text, value) = rest.split_once("\n---\n").unwrap();
        Case { kind, text, value: serde_json::from_str(value).unwrap() }
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
            Ok(found) => wrong.push(format!("{kind}:\n{text}\n  found    {found}\n  expected {value}")),
            Err(error) => wrong.push(format!("{kind}:\n{text}\n  {error}\n  expected {value}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), corpus.len(), wrong.join("\n"));
}

#[test]
fn valid_json_in_a_fence_is_not_changed() {
    for Case { value, .. } in corpus() {
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let repaired = json::repair(&format!("Here:\n```json\n{pretty}\n```\nDone.")).unwrap();
        assert_eq!(repaired.value, value);
        let mends: Vec<_> = repaired.mends.iter().collect();
        assert_eq!(mends, [Mend::Surroundings], "{pretty}");
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
        assert!(repaired.mends.contains(Mend::Truncated), "{}", &whole[..end]);
        // Nothing that was there is lost when more of it comes.
        let known = repaired.value.to_string().matches(|c: char| c.is_alphanumeric()).count();
        assert!(known + 8 >= seen, "{}", &whole[..end]);
        seen = known;
    }
    assert!(json::repair(whole).unwrap().mends.is_empty());
    assert_eq!(all["a"]["b"][3]["c"], "three");
}

#[track_caller]
fn mended(text: &str, expected: &[Mend]) {
    let repaired = json::repair(text).unwrap();
    let mut mends: Vec<_> = repaired.mends.iter().collect();
    mends.retain(|mend| *mend != Mend::Surroundings);
    assert_eq!(mends, expected, "{text}");
}

#[test]
fn what_was_mended_is_said() {
    mended(r#"{"a": 1}"#, &[]);
    mended(r#"text {"a": 1}"#, &[]);
    mended(r#""{\"a\": 1}""#, &[Mend::Unwrapped]);
    mended(r#"{"a": 1"#, &[Mend::Truncated]);
    mended(r#"{"a": 1,}"#, &[Mend::ExtraComma]);
    mended(r#"{"a": 1 "b": 2}"#, &[Mend::MissingComma]);
    mended(r#"{"a" 1}"#, &[Mend::Colon]);
    mended(r#"{"a": [1}"#, &[Mend::Bracket]);
    mended(r#"{"a": 1 /* one */}"#, &[Mend::Comment]);
    mended(r#"{'a': 1}"#, &[Mend::Quotes]);
    mended(r#"{"a": "b "c" d"}"#, &[Mend::InnerQuote]);
    mended("{\"a\": \"b\nc\"}", &[Mend::Control]);
    mended(r#"{"a": "\d"}"#, &[Mend::Escape]);
    mended(r#"{"a": "b" + "c"}"#, &[Mend::Joined]);
    mended(r#"{a: 1}"#, &[Mend::BareKey]);
    mended(r#"{"a": b}"#, &[Mend::BareValue]);
    mended(r#"{"a": True}"#, &[Mend::Literal]);
    mended(r#"{"a": +1}"#, &[Mend::Number]);
    mended(r#"{"a": (1, 2)}"#, &[Mend::Call]);
    mended(r#"{"a": }"#, &[Mend::MissingValue]);
    mended(r#"[1, ...]"#, &[Mend::ExtraComma, Mend::Dropped]);
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
    assert_eq!(json::parse_as::<String>(r#""{\"n\": 7}""#).unwrap(), r#"{"n": 7}"#);

    let error = json::parse_as::<Answer>("so: {'n': 'secret'}").unwrap_err();
    assert_eq!((error.kind(), error.at()), (&JsonErrorKind::Shape, Some(4)));
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(error.to_string(), "the JSON has another shape than was asked for, at byte 4");
    assert!(!format!("{error:?}").contains("secret"));
    assert_eq!(error.into_text(), "so: {'n': 'secret'}");
}

#[test]
fn keys_choose_among_objects() {
    let text = r#"{"example": "this one is longer by far"} {"a": 1, "b": null}"#;
    assert_eq!(json::parse_with_keys(text, &["a", "b"]).unwrap(), json!({"a": 1, "b": null}));
    let error = json::parse_with_keys("[{'a': 1}]", &["a"]).unwrap_err();
    assert_eq!(*error.kind(), JsonErrorKind::Missing(vec!["a".into()]));
    let error = json::parse_with_keys("{'a': 1}", &["a", "b", "c"]).unwrap_err();
    assert_eq!(error.to_string(), "the JSON lacks `b`, `c`, at byte 0");
    assert_eq!(json::parse_with_keys("nothing", &[]).unwrap_err().kind(), &JsonErrorKind::Nothing);
}

#[test]
fn a_long_key_is_not_cut_inside_a_character() {
    for lead in 240..280 {
        let text = format!("{{\"a\" {}\u{2026}\u{2014}\u{20ac}: 1, x\": 2", "b".repeat(lead));
        let _ = json::parse(&text);
        let _ = json::parse(&text.replace('"', "'"));
        let _ = json::parse(&format!("{{\"a\" b{}: 1", "\u{2026}".repeat(lead)));
    }
}
