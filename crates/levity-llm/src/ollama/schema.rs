//! Argument schemas, as far as Ollama supports them.
//!
//! It supports `type`, `description`, `enum`, `anyOf`, `items`, `properties` and `required`, and
//! drops the rest before the model sees the tool. So references are replaced with their targets,
//! and the description states other constraints.
//!
//! For example the property `{"type": "string", "minLength": 1, "description": "A city"}` becomes:
//!
//! ```json
//! {"type": "string", "description": "A city (minLength: 1)"}
//! ```

use serde_json::{Map, Value, json};

/// The limits on the number and depth of schemas: references can expand without end.
const MAX_SCHEMAS: usize = 2_000;
const MAX_DEPTH: usize = 32;

/// Keywords that do not constrain the value.
const ANNOTATIONS: [&str; 8] = [
    "$schema",
    "$id",
    "$anchor",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "$vocabulary",
];

/// Returns the tool's description and the schema of its arguments.
///
/// Alternatives of the arguments as a whole (`anyOf`) move into the description of the tool,
/// because Ollama expects an object there.
pub(super) fn convert(description: &str, input: &Value) -> (String, Value) {
    let mut converter = Converter {
        root: input,
        remaining: MAX_SCHEMAS,
    };
    let mut schema = converter.schema(input, MAX_DEPTH);
    // The arguments as a whole have no description.
    let about = schema
        .remove("description")
        .map(|about| format!("arguments: {}", text(&about)));
    schema.insert("type".to_owned(), "object".into());
    schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(any) = schema.remove("anyOf") {
        let words = format!("arguments: anyOf: {any}");
        return (
            join([description, about.as_deref().unwrap_or_default(), &words]),
            Value::Object(schema),
        );
    }
    (
        join([description, about.as_deref().unwrap_or_default()]),
        Value::Object(schema),
    )
}

/// The state of one conversion; `remaining` counts down to the limit of schemas.
struct Converter<'a> {
    root: &'a Value,
    remaining: usize,
}

impl<'a> Converter<'a> {
    /// Converts a schema. `true` becomes an empty schema, and a schema beyond the limits the words
    /// "more of the same".
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Map<String, Value> {
        let mut converted = Map::new();
        let Some(fields) = schema.as_object() else {
            if *schema == Value::Bool(false) {
                converted.insert("description".to_owned(), "no value fits".into());
            }
            return converted;
        };
        let remaining = self.remaining.checked_sub(1);
        self.remaining = remaining.unwrap_or_default();
        let (Some(_), Some(depth)) = (remaining, depth.checked_sub(1)) else {
            converted.insert("description".to_owned(), "more of the same".into());
            return converted;
        };
        let mut words = Vec::new();
        for (name, value) in fields {
            self.keyword(name, value, &mut converted, &mut words, depth);
        }
        if !words.is_empty() {
            let texts = converted.get("description").map(text).unwrap_or_default();
            converted.insert(
                "description".to_owned(),
                join([&*texts, &*words.join(", ")]).into(),
            );
        }
        converted
    }

    /// Converts one keyword: to the same keyword, to a simpler one, or to words.
    fn keyword(
        &mut self,
        name: &str,
        value: &'a Value,
        converted: &mut Map<String, Value>,
        words: &mut Vec<String>,
        depth: usize,
    ) {
        let mut set = |name: &str, value: Value| drop(converted.insert(name.to_owned(), value));
        match (name, value) {
            ("type" | "description", Value::String(_))
            | ("type" | "enum" | "required", Value::Array(_)) => {
                set(name, value.clone());
            }
            ("const", value) => set("enum", json!([value])),
            ("anyOf" | "oneOf", Value::Array(kinds)) => {
                let kinds = kinds
                    .iter()
                    .map(|kind| Value::Object(self.schema(kind, depth)));
                set("anyOf", kinds.collect());
            }
            ("items", Value::Object(_) | Value::Bool(_)) => {
                set(name, Value::Object(self.schema(value, depth)));
            }
            ("properties", Value::Object(fields)) => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| (name.clone(), self.schema(value, depth).into()));
                set(name, Value::Object(fields.collect()));
            }
            ("$ref", Value::String(reference)) => match self.find(reference) {
                Some(found) => merge(converted, self.schema(found, depth)),
                None => words.push(format!("{name}: {value}")),
            },
            ("allOf", Value::Array(all)) => all
                .iter()
                .for_each(|one| merge(converted, self.schema(one, depth))),
            ("additionalProperties", Value::Bool(false)) => {
                words.push("no other fields".to_owned());
            }
            (name, _) if ANNOTATIONS.contains(&name) => {}
            (name, value) => words.push(format!("{name}: {value}")),
        }
    }

    /// Returns the target of a reference within the schema, such as `#/$defs/Point`.
    fn find(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }
}

/// Merges the constraints of another schema.
///
/// Properties and required names are united, descriptions joined; for other keywords the existing
/// value wins.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
            (Some(Value::Array(old)), Value::Array(new)) if name == "required" => old.extend(new),
            // A keyword next to a reference is more specific than the target of the reference.
            (Some(Value::String(old)), Value::String(new)) if name == "description" => {
                *old = join([&**old, &*new]);
            }
            (Some(_), _) => {}
            (None, value) => drop(into.insert(name, value)),
        }
    }
}

/// Returns the text of a value; empty if it is not a text.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Joins texts, with all but the first in brackets.
///
/// `["City", "minLength: 1"]` becomes `City (minLength: 1)`.
fn join<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut all = String::new();
    for words in texts.into_iter().filter(|words| !words.is_empty()) {
        if all.is_empty() {
            all.push_str(words);
        } else {
            all.push_str(&format!(" ({words})"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(property: &Value, expected: &Value) {
        let defs = json!({"Leaf": {"type": "string", "description": "A leaf.", "maxLength": 3}});
        let input = json!({"type": "object", "properties": {"p": property}, "$defs": defs});
        let (description, converted) = convert("Grows.", &input);
        assert_eq!(
            (&*description, &converted["properties"]["p"]),
            ("Grows.", expected)
        );
    }

    #[test]
    fn unsupported_keywords_become_description() {
        check(
            &json!({"type": ["string", "null"]}),
            &json!({"type": ["string", "null"]}),
        );
        check(
            &json!({"type": "integer", "description": "How many.", "minimum": 1}),
            &json!({"type": "integer", "description": "How many. (minimum: 1)"}),
        );
        check(
            &json!({"pattern": "^a$"}),
            &json!({"description": "pattern: \"^a$\""}),
        );
        check(&json!({"const": 7}), &json!({"enum": [7]}));
        check(
            &json!({"oneOf": [{"const": "a"}, true]}),
            &json!({"anyOf": [{"enum": ["a"]}, {}]}),
        );
        check(&json!(true), &json!({}));
        check(&json!({"items": {"$ref": "#/$defs/Leaf"}}), &{
            json!({"items": {"type": "string", "description": "A leaf. (maxLength: 3)"}})
        });
        check(
            &json!({"description": "The first.", "$ref": "#/$defs/Leaf"}),
            &json!({"description": "The first. (A leaf. (maxLength: 3))", "type": "string"}),
        );
        check(
            &json!({
                "allOf": [
                    {"properties": {"a": {"type": "null"}}, "required": ["a"]},
                    {"required": ["b"]},
                ],
            }),
            &json!({"properties": {"a": {"type": "null"}}, "required": ["a", "b"]}),
        );
    }

    #[test]
    fn constraints_on_all_arguments_are_in_tool_description() {
        let input = json!({"additionalProperties": false, "$schema": "x", "title": "T"});
        let (description, schema) = convert("Grows.", &input);
        assert_eq!(description, "Grows. (arguments: no other fields)");
        assert_eq!(schema, json!({"type": "object", "properties": {}}));
        let (description, schema) = convert("", &json!({"anyOf": [{"required": ["a"]}]}));
        assert_eq!(description, "arguments: anyOf: [{\"required\":[\"a\"]}]");
        assert_eq!(schema, json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn expansion_of_recursive_references_terminates() {
        let pair =
            json!({"properties": {"a": {"$ref": "#/$defs/Pair"}, "b": {"$ref": "#/$defs/Pair"}}});
        let input = json!({"$ref": "#/$defs/Pair", "$defs": {"Pair": pair}});
        let (_, schema) = convert("", &input);
        assert!(schema.to_string().len() < 400_000);
    }
}
