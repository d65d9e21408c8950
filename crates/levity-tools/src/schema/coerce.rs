//! Corrects arguments of the wrong type, if the intended value is obvious.
//!
//! Small models write `"5"` for 5, one value for a list of one, or put the arguments under an extra
//! key. Such a value is changed only if nothing is lost, and a note informs the model.

use serde_json::{Map, Value};

use super::{MAX_DEPTH, nodes};
use crate::text::Truncated;

/// Keys under which models put the arguments that belong at the top.
const WRAPPERS: [&str; 5] = ["arguments", "parameters", "args", "input", "properties"];

/// The maximum number of changes in a note.
const MAX_NOTED: usize = 8;

/// Arguments that match the schema, and the changes that were made.
#[derive(Debug, PartialEq)]
pub(super) struct CoercedArguments {
    pub(super) args: Value,
    pub(super) changes: Vec<String>,
}

impl CoercedArguments {
    /// Returns the note for the model.
    pub(super) fn note(&self) -> String {
        let noted: Vec<&str> = self
            .changes
            .iter()
            .take(MAX_NOTED)
            .map(String::as_str)
            .collect();
        format!("(The arguments were corrected: {}.)", noted.join("; "))
    }
}

/// Returns the arguments with each value in its expected type; `None` if there is nothing to
/// change.
pub(super) fn coerce(schema: &Value, args: &Value) -> Option<CoercedArguments> {
    nodes(args, MAX_DEPTH)?;
    let mut changes = Vec::new();
    let args = unwrapped(schema, args, &mut changes).unwrap_or_else(|| args.clone());
    let args = fit(schema, args, "", &mut changes);
    (!changes.is_empty()).then_some(CoercedArguments { args, changes })
}

/// Unwraps `{"arguments": {..}}`, if the tool has no property of that name.
fn unwrapped(schema: &Value, args: &Value, changes: &mut Vec<String>) -> Option<Value> {
    let (key, inner) = args
        .as_object()
        .filter(|map| map.len() == 1)?
        .iter()
        .next()?;
    let is_own = schema
        .pointer("/properties")
        .is_some_and(|all| all.get(key).is_some());
    if is_own || !WRAPPERS.contains(&key.as_str()) || !inner.is_object() {
        return None;
    }
    changes.push(format!("they stood under `{key}`"));
    Some(inner.clone())
}

fn fit(schema: &Value, value: Value, place: &str, changes: &mut Vec<String>) -> Value {
    let value = match changed(schema, &value) {
        Some(right) => {
            let whole = if place.is_empty() { "/" } else { place };
            changes.push(format!(
                "at `{}`, {} became {}",
                Truncated(whole, 64),
                Truncated(&value, 64),
                Truncated(&right, 64)
            ));
            right
        }
        None => value,
    };
    match value {
        Value::Object(map) => Value::Object(fit_properties(schema, map, place, changes)),
        Value::Array(items) => {
            let Some(inner) = schema.get("items") else {
                return Value::Array(items);
            };
            let each = items.into_iter().enumerate();
            Value::Array(
                each.map(|(at, item)| fit(inner, item, &format!("{place}/{at}"), changes))
                    .collect(),
            )
        }
        other => other,
    }
}

fn fit_properties(
    schema: &Value,
    map: Map<String, Value>,
    place: &str,
    changes: &mut Vec<String>,
) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let fit_one = |(key, value): (String, Value)| {
        let value = match properties.and_then(|properties| properties.get(&key)) {
            Some(inner) => fit(inner, value, &format!("{place}/{key}"), changes),
            None => value,
        };
        (key, value)
    };
    map.into_iter().map(fit_one).collect()
}

/// Returns the intended value, if this one has another type than the schema expects.
fn changed(schema: &Value, value: &Value) -> Option<Value> {
    if let (Some(Value::Array(allowed)), Value::String(text)) = (schema.get("enum"), value) {
        return one_of(allowed, text);
    }
    let wanted = schema.get("type")?.as_str()?;
    match (wanted, value) {
        ("integer" | "number", Value::String(text)) => number(text, wanted == "integer"),
        ("boolean", Value::String(text)) => match &*text.trim().to_ascii_lowercase() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        ("string", Value::Number(_) | Value::Bool(_)) => Some(Value::String(value.to_string())),
        ("array", Value::String(text)) => match serde_json::from_str(text) {
            Ok(list @ Value::Array(_)) => Some(list),
            _ => Some(Value::Array(vec![value.clone()])),
        },
        ("array", Value::Number(_) | Value::Bool(_) | Value::Object(_)) => {
            Some(Value::Array(vec![value.clone()]))
        }
        ("object", Value::String(text)) => serde_json::from_str(text).ok().filter(Value::is_object),
        _ => None,
    }
}

/// Returns the only allowed text that differs in case or outer blanks alone.
fn one_of(allowed: &[Value], text: &str) -> Option<Value> {
    let same = |value: &&Value| {
        value
            .as_str()
            .is_some_and(|value| value.eq_ignore_ascii_case(text.trim()))
    };
    let mut found = allowed.iter().filter(same);
    match (found.next(), found.next()) {
        (Some(value), None) if value != text => Some(value.clone()),
        _ => None,
    }
}

/// Returns a number that is written exactly so: `5`, `-2`, `3.25`; not `007`, `1e999` or `five`.
fn number(text: &str, is_integer: bool) -> Option<Value> {
    let value: Value = serde_json::from_str(text.trim()).ok()?;
    let number = value.as_number()?;
    let is_exact = number.to_string() == text.trim();
    (is_exact && (!is_integer || number.is_i64() || number.is_u64())).then_some(value)
}

/// Returns `true` if arguments are the schema itself, or a part of it, in place of values.
pub(super) fn is_schema(schema: &Value, args: &Value) -> bool {
    let Some(args) = args.as_object() else {
        return false;
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let own = |key: &str| properties.is_some_and(|properties| properties.contains_key(key));
    let as_whole = args.get("properties").is_some_and(Value::is_object) && !own("properties");
    let describes = |value: &Value| {
        value
            .as_object()
            .is_some_and(|map| map.contains_key("type") || map.contains_key("description"))
    };
    let in_parts = !args.is_empty() && args.iter().all(|(key, value)| own(key) && describes(value));
    as_whole || in_parts
}

/// Returns example arguments that match the schema.
pub(super) fn example(schema: &Value) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |key: &str| required.is_none_or(|all| all.iter().any(|name| name == key));
    let shown = properties
        .into_iter()
        .flatten()
        .filter(|(key, _)| is_required(key));
    Value::Object(
        shown
            .map(|(key, inner)| (key.clone(), sample(inner, 4)))
            .collect(),
    )
}

fn sample(schema: &Value, depth: usize) -> Value {
    let first = |key: &str| schema.get(key).and_then(|list| list.get(0)).cloned();
    let given = schema
        .get("const")
        .or_else(|| schema.get("default"))
        .filter(|value| !value.is_null())
        .cloned();
    if let Some(value) = given
        .or_else(|| first("examples"))
        .or_else(|| first("enum"))
    {
        return value;
    }
    let wanted = schema
        .get("type")
        .and_then(|wanted| wanted.as_str().or_else(|| wanted.get(0)?.as_str()));
    match (wanted, depth) {
        (Some("integer"), _) => {
            Value::from(schema.get("minimum").and_then(Value::as_i64).unwrap_or(1))
        }
        (Some("number"), _) => schema
            .get("minimum")
            .cloned()
            .unwrap_or_else(|| Value::from(1.5)),
        (Some("boolean"), _) => Value::Bool(true),
        (Some("array"), 1..) => Value::Array(
            schema
                .get("items")
                .map(|items| sample(items, depth - 1))
                .into_iter()
                .collect(),
        ),
        (Some("object"), 1..) => example(schema),
        _ => Value::String("text".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape() -> Value {
        json!({
            "type": "object",
            "properties": {
                "days": {"type": "integer"}, "ratio": {"type": "number"},
                "deep": {"type": "boolean"},
                "id": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "at": {"type": "object", "properties": {"x": {"type": "integer"}}},
            },
            "required": ["days"],
        })
    }

    #[test]
    fn unambiguous_value_is_coerced_to_expected_type() {
        for (given, expected) in [
            (json!({"days": "5"}), json!({"days": 5})),
            (json!({"days": "-5"}), json!({"days": -5})),
            (json!({"ratio": "2.5"}), json!({"ratio": 2.5})),
            (json!({"deep": "True"}), json!({"deep": true})),
            (json!({"id": 12}), json!({"id": "12"})),
            (json!({"tags": "a"}), json!({"tags": ["a"]})),
            (
                json!({"tags": "[\"a\", \"b\"]"}),
                json!({"tags": ["a", "b"]}),
            ),
            (json!({"tags": [1, true]}), json!({"tags": ["1", "true"]})),
            (json!({"unit": "Celsius"}), json!({"unit": "celsius"})),
            (json!({"at": {"x": "3"}}), json!({"at": {"x": 3}})),
            (json!({"at": "{\"x\": \"3\"}"}), json!({"at": {"x": 3}})),
            (json!({"arguments": {"days": "5"}}), json!({"days": 5})),
            (json!({"properties": {"days": 5}}), json!({"days": 5})),
        ] {
            assert_eq!(
                coerce(&shape(), &given).map(|coerced| coerced.args),
                Some(expected),
                "{given}"
            );
        }
    }

    #[test]
    fn ambiguous_value_is_unchanged() {
        for given in [
            json!({"days": "five"}),
            json!({"days": "5.5"}),
            json!({"days": "007"}),
            json!({"days": "1e3"}),
            json!({"days": 5.5}),
            json!({"days": null}),
            json!({"deep": "yes"}),
            json!({"deep": 1}),
            json!({"unit": "kelvin"}),
            json!({"id": null}),
            json!({"id": ["a"]}),
            json!({"at": "x"}),
            json!([]),
        ] {
            assert_eq!(coerce(&shape(), &given), None, "{given}");
        }
    }

    #[test]
    fn schema_in_place_of_values_is_recognised() {
        assert!(is_schema(&shape(), &shape()));
        assert!(is_schema(&shape(), &json!({"days": {"type": "integer"}})));
        assert!(!is_schema(&shape(), &json!({"days": 5})));
        assert!(!is_schema(&shape(), &json!({})));
        assert_eq!(example(&shape()), json!({"days": 1}));
    }
}
