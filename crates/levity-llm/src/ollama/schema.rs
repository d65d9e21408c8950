//! Schemas of arguments, as far as Ollama reads them.
//!
//! It knows `type`, `description`, `enum`, `anyOf`, `items`, `properties` and `required`, and
//! forgets the rest before the model sees the tool. So references are put in place, and what it
//! does not know goes into the description.

use serde_json::{Map, Value, json};

/// How many schemas one may have in it, and how deep: references can unfold without end.
const MOST: usize = 2_000;
const DEEPEST: usize = 32;

/// Keywords that say nothing of the value.
const SILENT: [&str; 8] = [
    "$schema",
    "$id",
    "$anchor",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "$vocabulary",
];

/// The tool's description and the schema of its arguments.
pub(super) fn narrow(description: &str, input: &Value) -> (String, Value) {
    let mut narrower = Narrower {
        root: input,
        left: MOST,
    };
    let mut schema = narrower.schema(input, DEEPEST);
    // There is no description of the arguments as a whole.
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

struct Narrower<'a> {
    root: &'a Value,
    left: usize,
}

impl<'a> Narrower<'a> {
    fn schema(&mut self, schema: &'a Value, deep: usize) -> Map<String, Value> {
        let mut narrow = Map::new();
        let Some(fields) = schema.as_object() else {
            if *schema == Value::Bool(false) {
                narrow.insert("description".to_owned(), "no value fits".into());
            }
            return narrow;
        };
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        let (Some(_), Some(deep)) = (left, deep.checked_sub(1)) else {
            narrow.insert("description".to_owned(), "more of the same".into());
            return narrow;
        };
        let mut words = Vec::new();
        for (name, value) in fields {
            self.keyword(name, value, &mut narrow, &mut words, deep);
        }
        if !words.is_empty() {
            let said = narrow.get("description").map(text).unwrap_or_default();
            narrow.insert(
                "description".to_owned(),
                join([&*said, &*words.join(", ")]).into(),
            );
        }
        narrow
    }

    fn keyword(
        &mut self,
        name: &str,
        value: &'a Value,
        narrow: &mut Map<String, Value>,
        words: &mut Vec<String>,
        deep: usize,
    ) {
        let mut set = |name: &str, value: Value| drop(narrow.insert(name.to_owned(), value));
        match (name, value) {
            ("type" | "description", Value::String(_))
            | ("type" | "enum" | "required", Value::Array(_)) => {
                set(name, value.clone());
            }
            ("const", value) => set("enum", json!([value])),
            ("anyOf" | "oneOf", Value::Array(kinds)) => {
                let kinds = kinds
                    .iter()
                    .map(|kind| Value::Object(self.schema(kind, deep)));
                set("anyOf", kinds.collect());
            }
            ("items", Value::Object(_) | Value::Bool(_)) => {
                set(name, Value::Object(self.schema(value, deep)));
            }
            ("properties", Value::Object(fields)) => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| (name.clone(), self.schema(value, deep).into()));
                set(name, Value::Object(fields.collect()));
            }
            ("$ref", Value::String(reference)) => match self.find(reference) {
                Some(found) => merge(narrow, self.schema(found, deep)),
                None => words.push(format!("{name}: {value}")),
            },
            ("allOf", Value::Array(all)) => all
                .iter()
                .for_each(|one| merge(narrow, self.schema(one, deep))),
            ("additionalProperties", Value::Bool(false)) => {
                words.push("no other fields".to_owned());
            }
            (name, _) if SILENT.contains(&name) => {}
            (name, value) => words.push(format!("{name}: {value}")),
        }
    }

    fn find(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }
}

/// Adds what another schema asks for as well.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
            (Some(Value::Array(old)), Value::Array(new)) if name == "required" => old.extend(new),
            // What stands beside a reference says more of this place than what it refers to.
            (Some(Value::String(old)), Value::String(new)) if name == "description" => {
                *old = join([&**old, &*new]);
            }
            (Some(_), _) => {}
            (None, value) => drop(into.insert(name, value)),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What is said, and in brackets what else.
fn join<'a>(said: impl IntoIterator<Item = &'a str>) -> String {
    let mut all = String::new();
    for words in said.into_iter().filter(|words| !words.is_empty()) {
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
        let (description, narrow) = narrow("Grows.", &input);
        assert_eq!(
            (&*description, &narrow["properties"]["p"]),
            ("Grows.", expected)
        );
    }

    #[test]
    fn what_is_not_known_is_said_in_words() {
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
            &json!({"allOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}, {"required": ["b"]}]}),
            &json!({"properties": {"a": {"type": "null"}}, "required": ["a", "b"]}),
        );
    }

    #[test]
    fn what_holds_for_all_arguments_is_in_the_description_of_the_tool() {
        let input = json!({"additionalProperties": false, "$schema": "x", "title": "T"});
        let (description, schema) = narrow("Grows.", &input);
        assert_eq!(description, "Grows. (arguments: no other fields)");
        assert_eq!(schema, json!({"type": "object", "properties": {}}));
        let (description, schema) = narrow("", &json!({"anyOf": [{"required": ["a"]}]}));
        assert_eq!(description, "arguments: anyOf: [{\"required\":[\"a\"]}]");
        assert_eq!(schema, json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn references_without_end_come_to_one() {
        let pair =
            json!({"properties": {"a": {"$ref": "#/$defs/Pair"}, "b": {"$ref": "#/$defs/Pair"}}});
        let input = json!({"$ref": "#/$defs/Pair", "$defs": {"Pair": pair}});
        let (_, schema) = narrow("", &input);
        assert!(schema.to_string().len() < 400_000);
    }
}
