//! Random values, malformed without loss of information, are parsed unchanged.

use levity_llm::json;
use proptest::prelude::*;
use serde_json::{Map, Value};

/// Generates words and punctuation that do not resemble the surrounding JSON.
fn text() -> impl Strategy<Value = String> {
    "[a-zA-Zé世 .,:;!?(){}\\[\\]/#\n\t\\\\'-]{0,24}"
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[a-z_]{1,8}", inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A way of writing a value incorrectly.
#[derive(Clone, Copy, Debug)]
struct Damage {
    bare_keys: bool,
    single_quotes: bool,
    trailing_commas: bool,
    comments: bool,
    python: bool,
    raw_newlines: bool,
}

fn damage() -> impl Strategy<Value = Damage> {
    any::<[bool; 6]>().prop_map(
        |[
            bare_keys,
            single_quotes,
            trailing_commas,
            comments,
            python,
            raw_newlines,
        ]| Damage {
            bare_keys,
            single_quotes,
            trailing_commas,
            comments,
            python,
            raw_newlines,
        },
    )
}

impl Damage {
    fn write(self, value: &Value, out: &mut String) {
        if self.comments {
            out.push_str(" /* \"a\": [1 */ ");
        }
        match value {
            Value::Null if self.python => out.push_str("None"),
            Value::Bool(true) if self.python => out.push_str("True"),
            Value::Bool(false) if self.python => out.push_str("False"),
            Value::String(text) => self.string(text, out),
            Value::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    self.write(item, out);
                    self.comma(at + 1 == items.len(), out);
                }
                out.push(']');
            }
            Value::Object(map) => {
                out.push('{');
                for (at, (key, value)) in map.iter().enumerate() {
                    if self.bare_keys {
                        out.push_str(key);
                    } else {
                        self.string(key, out);
                    }
                    out.push(':');
                    self.write(value, out);
                    self.comma(at + 1 == map.len(), out);
                }
                out.push('}');
            }
            other => out.push_str(&other.to_string()),
        }
    }

    fn string(self, text: &str, out: &mut String) {
        let mut json = serde_json::to_string(text).unwrap();
        if self.single_quotes {
            let inside = json[1..json.len() - 1].replace('\'', "\\'");
            json = format!("'{inside}'");
        }
        if self.raw_newlines && !text.contains('\\') {
            json = json.replace("\\n", "\n").replace("\\t", "\t");
        }
        out.push_str(&json);
    }

    fn comma(self, last: bool, out: &mut String) {
        if !last || self.trailing_commas {
            out.push(',');
        }
        if self.comments {
            out.push_str(" // done, \"b\": 2\n");
        }
    }
}

/// Returns a value with its numbers after one round trip through JSON.
fn normalized(value: &Value) -> Value {
    serde_json::from_str(&value.to_string()).unwrap()
}

proptest! {
    #[test]
    fn damaged_value_is_parsed_unchanged(
        value in prop::collection::vec(value(), 1..5),
        damage in damage(),
    ) {
        let value = normalized(&Value::from(value));
        let mut text = String::new();
        damage.write(&value, &mut text);
        prop_assert_eq!(&json::parse(&text).unwrap(), &value, "{}", text);
        let fenced = format!("Here it is:\n```json\n{text}\n```\nDone.");
        prop_assert_eq!(&json::parse(&fenced).unwrap(), &value, "{}", fenced);
    }

    #[test]
    fn valid_value_is_never_changed(value in prop::collection::vec(value(), 1..5)) {
        let value = normalized(&Value::from(value));
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let found = json::repair(&format!("```json\n{text}\n```")).unwrap();
            prop_assert_eq!(&found.value, &value, "{}", text);
            prop_assert_eq!(found.repairs.iter().count(), 1);
        }
    }

    #[test]
    fn prefix_retains_complete_items(
        items in prop::collection::vec(value(), 2..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let items: Vec<_> = items.iter().map(normalized).collect();
        let text = Value::from(items.clone()).to_string();
        let ends: Vec<_> = text.char_indices().map(|(at, _)| at).skip(1).collect();
        let begun = &text[..ends[cut.index(ends.len())]];
        let found = json::parse(begun).unwrap();
        let found = found.as_array().unwrap();
        prop_assert!(found.len() <= items.len());
        for (found, item) in found.iter().rev().skip(1).rev().zip(&items) {
            prop_assert_eq!(found, item, "{}", begun);
        }
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in ".{0,200}") {
        let _ = json::parse(&text);
    }

    #[test]
    fn random_tokens_do_not_panic(
        pieces in prop::collection::vec(prop::sample::select(TOKENS), 0..60),
    ) {
        let text = pieces.concat();
        if let Ok(repaired) = json::repair(&text) {
            prop_assert!(text.get(repaired.span).is_some());
        }
        let _ = json::parse_with_keys(&text, &["a"]);
    }
}

const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    ";",
    "=",
    "\"",
    "'",
    "`",
    "```",
    "```json\n",
    "“",
    "”",
    "‘",
    "’",
    "«",
    "»",
    "\\",
    "\\\"",
    "\\u",
    "\\ud83d",
    "\\x4",
    "//",
    "/*",
    "*/",
    "#",
    "\n",
    " ",
    "a",
    "key",
    "true",
    "None",
    "nul",
    "1",
    "-",
    "0x",
    "1.5",
    "e",
    "...",
    "…",
    "é",
    "世",
    "\u{feff}",
    "\u{a0}",
    "\u{b}",
    "</think>",
    "f(",
    "+",
    "\"a\"",
    "\"a\":",
    "<!--",
    "-->",
];
