//! Descriptions of constraints that the dialect lacks.
//!
//! Sentences follow the description of the schema: `The name. Characters at least: 1. Default:
//! Rome.`

use serde_json::{Map, Value};

/// The formats that strict mode enforces.
const FORMATS: [&str; 9] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
];

/// Returns `true` if strict mode enforces a `pattern` or a `format`.
///
/// Groups of the form `(?:..)` are supported.
pub(super) fn is_supported(word: &str, value: &Value) -> bool {
    let Some(text) = value.as_str() else {
        return false;
    };
    if word == "format" {
        return FORMATS.contains(&text);
    }
    // Lookaround groups and back references need more than a grammar.
    let refers_back = text
        .as_bytes()
        .windows(2)
        .any(|two| matches!(two, [b'\\', b'1'..=b'9' | b'k']));
    !refers_back && !text.replace("(?:", "").contains("(?")
}

/// Describes a keyword in words.
pub(super) fn describe_keyword(word: &str, value: &Value) -> String {
    let label = match word {
        "pattern" => "Must match",
        "format" => "Format",
        "minLength" => "Characters at least",
        "maxLength" => "Characters at most",
        "minProperties" => "Properties at least",
        "maxProperties" => "Properties at most",
        "default" => "Default",
        _ => "Examples",
    };
    match value {
        Value::String(text) => format!("{label}: {text}."),
        other => format!("{label}: {other}."),
    }
}

/// Writes the description of `from` to `converted`, together with further notes.
///
/// The title is copied as it is.
pub(super) fn describe(
    from: &Map<String, Value>,
    more: &[String],
    converted: &mut Map<String, Value>,
) {
    let mut text = from
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .trim_end()
        .to_owned();
    let words = [
        "minLength",
        "maxLength",
        "minProperties",
        "maxProperties",
        "default",
        "examples",
        "example",
    ];
    let described = words
        .iter()
        .filter_map(|word| from.get(*word).map(|value| describe_keyword(word, value)));
    let unique =
        (from.get("uniqueItems") == Some(&Value::Bool(true))).then(|| "No item twice.".to_owned());
    for sentence in more.iter().cloned().chain(described).chain(unique) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&sentence);
    }
    if let Some(title) = from.get("title").filter(|title| title.is_string()) {
        converted.insert("title".to_owned(), title.clone());
    }
    if !text.is_empty() {
        converted.insert("description".to_owned(), text.into());
    }
}

/// Returns `true` if no value can match two of these.
///
/// They are disjoint if each has a different constant, as itself or as a required property, or a
/// different type. Other pairs count as overlapping.
pub(super) fn are_disjoint(branches: &[Value]) -> bool {
    let mark = |branch: &Value| -> Option<Value> {
        let tag = |property: &Value| property.get("const").cloned();
        branch.get("const").cloned().or_else(|| {
            branch
                .get("properties")?
                .as_object()?
                .iter()
                .find_map(|(name, property)| {
                    let required = branch
                        .get("required")?
                        .as_array()?
                        .iter()
                        .any(|known| known == name);
                    tag(property).filter(|_| required)
                })
        })
    };
    let kind = |branch: &Value| branch.get("type").filter(|kind| kind.is_string()).cloned();
    differ(branches.iter().map(mark)) || differ(branches.iter().map(kind))
}

/// Returns `true` if every mark is present and no two are equal.
fn differ(marks: impl Iterator<Item = Option<Value>>) -> bool {
    let Some(marks) = marks.collect::<Option<Vec<Value>>>() else {
        return false;
    };
    // An integer is also a number.
    let numbers = marks.contains(&"number".into()) && marks.contains(&"integer".into());
    !numbers
        && marks
            .iter()
            .enumerate()
            .all(|(at, mark)| !marks.iter().take(at).any(|other| other == mark))
}
