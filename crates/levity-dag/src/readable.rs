//! The answer of a team as text for people.
//!
//! Agents of a team exchange values, so the last step may have written an object or a list. This
//! module formats such a value as Markdown, and collects the sources that the values name. It adds
//! no words but the names of fields, and changes none of the texts.
//!
//! By convention, agents put sources under the keys `source`, `sources` and `url`; the prompts of
//! the ready-made agents say so.

use std::collections::BTreeSet;

use levity_core::text::head;
use serde_json::{Map, Value};

/// The maximum number of listed sources.
const MAX_SOURCES: usize = 100;
/// The maximum length of a source, in bytes.
const MAX_SOURCE: usize = 500;
/// The number of levels that become headings and lists; deeper values are shown as JSON.
const MAX_LEVELS: u8 = 3;

/// Formats a value as Markdown.
pub(crate) fn markdown(value: &Value) -> String {
    block(value, 0).trim_end().to_owned()
}

/// Returns the sources that these values name, each once, in the order of the values.
pub(crate) fn sources<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let mut found = Sources::default();
    values.for_each(|value| found.search(value));
    found.list
}

/// Returns `true` if a field names where something is from, and so is listed apart.
fn names_sources(field: &str) -> bool {
    matches!(field, "source" | "sources" | "url")
}

/// Formats a value as paragraphs, lists and sections.
fn block(value: &Value, level: u8) -> String {
    match value {
        Value::Object(fields) if level < MAX_LEVELS => {
            let mut content = fields.iter().filter(|(name, _)| !names_sources(name));
            match (content.next(), content.next()) {
                (None, _) => String::new(),
                // A name adds nothing if there is only one field.
                (Some((_, only)), None) => block(only, level),
                _ => sections(fields, level),
            }
        }
        Value::Array(items) if level < MAX_LEVELS => items
            .iter()
            .map(|item| format!("- {}\n", line(item)))
            .collect(),
        other => format!("{}\n", inline(other)),
    }
}

/// Formats each field: a short value as an item of a list, a longer one below a heading.
fn sections(fields: &Map<String, Value>, level: u8) -> String {
    let mut text = String::new();
    for (name, value) in fields.iter().filter(|(name, _)| !names_sources(name)) {
        let is_short = match value {
            Value::String(value) => !value.contains('\n') && value.len() <= 200,
            value => !value.is_array() && !value.is_object(),
        };
        if is_short {
            text += &format!("- {}: {}\n", title(name), inline(value));
            continue;
        }
        let marks = "#".repeat(usize::from(level) + 2);
        let space = if text.is_empty() { "" } else { "\n" };
        text += &format!(
            "{space}{marks} {}\n\n{}",
            title(name),
            block(value, level + 1)
        );
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

/// Formats a value as one item of a list, such as `The tide is highest at noon. (tides.pdf)`.
fn line(value: &Value) -> String {
    let Value::Object(fields) = value else {
        return indented(&inline(value));
    };
    let content = fields.iter().filter(|(name, _)| !names_sources(name));
    let content: Vec<_> = match content.clone().count() {
        1 => content.map(|(_, value)| inline(value)).collect(),
        _ => content
            .map(|(name, value)| format!("{}: {}", title(name), inline(value)))
            .collect(),
    };
    let mut found = Sources::default();
    found.search(value);
    let content = indented(&content.join("; "));
    match (content.is_empty(), found.list.is_empty()) {
        (_, true) => content,
        (true, false) => found.list.join(", "),
        (false, false) => format!("{content} ({})", found.list.join(", ")),
    }
}

/// Texts appear as they are, everything else as JSON.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Keeps the further lines of a text within its item.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n  ")
}

/// Turns the name of a field into words: `high_water` becomes `High water`.
fn title(name: &str) -> String {
    let words = name.replace('_', " ");
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => words,
    }
}

/// The sources that were found.
#[derive(Default)]
struct Sources {
    list: Vec<String>,
    known: BTreeSet<String>,
}

impl Sources {
    /// Searches a value and all values in it.
    fn search(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.search(item)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match names_sources(name) {
                        true => self.add(value),
                        false => self.search(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds a source: a text, a list of them, or objects such as `{"title": .., "url": ..}`.
    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) if !text.trim().is_empty() => {
                let source = head(text.trim(), MAX_SOURCE).replace('\n', " ");
                if self.list.len() < MAX_SOURCES && self.known.insert(source.clone()) {
                    self.list.push(source);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => {
                let names = ["url", "source", "title", "name", "path"];
                if let Some(value) = names.iter().find_map(|name| fields.get(*name)) {
                    self.add(value);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn markdown_of_value_has_no_json() {
        for (value, expected) in [
            (json!("At six."), "At six."),
            (json!({"answer": "At six."}), "At six."),
            (json!({"text": "At six.", "sources": ["a.pdf"]}), "At six."),
            (json!(["one", 2]), "- one\n- 2"),
            (
                json!([{"text": "High.", "source": "a.pdf, page 4"}, {"text": "Low.\nVery."}]),
                "- High. (a.pdf, page 4)\n- Low.\n  Very.",
            ),
            (
                json!({"high_water": "At six.", "report": "# Tides\n\nHigh."}),
                "- High water: At six.\n\n## Report\n\n# Tides\n\nHigh.",
            ),
            (
                json!({"cities": [{"name": "Oslo", "people": 720}], "ok": true}),
                "## Cities\n\n- Name: Oslo; People: 720\n- Ok: true",
            ),
            (json!(null), ""),
        ] {
            assert_eq!(markdown(&value), expected, "{value}");
        }
    }

    #[test]
    fn sources_are_found_once_in_any_form() {
        let values = [
            json!({"text": "x", "sources": ["https://a.example", "b.pdf", ""]}),
            json!([{"passage": "y", "source": "b.pdf"}, {"sources": [{"title": "C", "url": "c"}]}]),
            json!("https://in-a-text.example"),
        ];
        assert_eq!(sources(values.iter()), ["https://a.example", "b.pdf", "c"]);
        let many = json!({"sources": (0..1000).map(|n| n.to_string()).collect::<Vec<_>>()});
        assert_eq!(sources([&many].into_iter()).len(), MAX_SOURCES);
    }
}
