//! Argument schemas for providers that require a plain object.
//!
//! JSON Schema allows tools whose arguments are a reference, a union or an empty schema. OpenAI and
//! Anthropic require `{"type": "object", "properties": {..}}`. The conversion keeps every property
//! visible to the model, and repeats the original condition in the description, so that the model
//! can still satisfy it.
//!
//! For example `{"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}` becomes an
//! object with the optional properties `a` and `b`, whose description ends with "The arguments must
//! match {"anyOf": ..}."

use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// Keywords that combine other schemas.
const PARTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Further keywords that are not allowed at the top level.
const LIMITS: [&str; 3] = ["enum", "const", "not"];

/// Returns the schema of a tool's arguments. Providers accept any schema of an object that lists
/// its properties and does not combine other schemas at the top level.
///
/// The result may accept more than the original. The dispatcher validates arguments against the
/// original schema.
pub(crate) fn input(schema: &Value) -> Cow<'_, Value> {
    let is_plain = |map: &Map<String, Value>| {
        map.get("type").is_some_and(|kind| kind == "object")
            && map.contains_key("properties")
            && !PARTS
                .iter()
                .chain(&LIMITS)
                .chain(&["$ref"])
                .any(|name| map.contains_key(*name))
    };
    if schema.as_object().is_some_and(is_plain) {
        return Cow::Borrowed(schema);
    }
    let mut map = schema.as_object().cloned().unwrap_or_default();
    if let Some(target) = map
        .shift_remove("$ref")
        .and_then(|pointer| find(schema, &pointer))
    {
        for (name, value) in target {
            map.entry(name).or_insert(value);
        }
    }
    let parts: Vec<(&str, Value)> = PARTS
        .iter()
        .filter_map(|name| Some((*name, map.shift_remove(*name)?)))
        .collect();
    for (name, list) in &parts {
        merge_properties(&mut map, list, *name == "allOf", schema);
        append_description(
            &mut map,
            &format!("The arguments must match {}.", json!({ *name: list })),
        );
    }
    for name in LIMITS {
        if let Some(limit) = map.shift_remove(name) {
            append_description(
                &mut map,
                &format!("The arguments must match {}.", json!({ name: limit })),
            );
        }
    }
    map.insert("type".to_owned(), "object".into());
    map.entry("properties").or_insert_with(|| json!({}));
    Cow::Owned(Value::Object(map))
}

/// Returns the target of a reference within a schema.
///
/// Only references of the form `#/..` to an object are followed.
pub(crate) fn find(root: &Value, pointer: &Value) -> Option<Map<String, Value>> {
    root.pointer(pointer.as_str()?.strip_prefix('#')?)?
        .as_object()
        .cloned()
}

/// Merges the properties of several schemas. Of `allOf`, a property is required if any schema
/// requires it; of alternatives, only if all of them do.
///
/// Different schemas of one property become an `anyOf` of both.
fn merge_properties(map: &mut Map<String, Value>, list: &Value, all: bool, root: &Value) {
    let parts = list.as_array().into_iter().flatten().map(|part| {
        let target = part.get("$ref").and_then(|pointer| find(root, pointer));
        target.unwrap_or_else(|| part.as_object().cloned().unwrap_or_default())
    });
    let parts: Vec<_> = parts.collect();
    let mut properties = take_object(map, "properties");
    for (name, value) in parts
        .iter()
        .filter_map(|part| part.get("properties")?.as_object())
        .flatten()
    {
        match properties.get_mut(name) {
            Some(known) if known != value => *known = any_of(known, value),
            Some(_) => {}
            None => drop(properties.insert(name.clone(), value.clone())),
        }
    }
    let needs = |part: &Map<String, Value>, name: &Value| {
        part.get("required")
            .and_then(Value::as_array)
            .is_some_and(|names| names.contains(name))
    };
    let mut required = map
        .get("required")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    for name in properties.keys().map(|name| Value::from(name.as_str())) {
        let needed = if all {
            parts.iter().any(|p| needs(p, &name))
        } else {
            parts.iter().all(|p| needs(p, &name))
        };
        if needed && !parts.is_empty() && !required.contains(&name) {
            required.push(name);
        }
    }
    map.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        map.insert("required".to_owned(), required.into());
    }
}

/// Removes a field and returns it as an object; empty if it is missing or of another type.
pub(crate) fn take_object(map: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match map.shift_remove(name) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// Returns a schema that allows either of two schemas.
///
/// An existing `anyOf` is extended instead of nested.
fn any_of(known: &Value, more: &Value) -> Value {
    let mut list = match known.get("anyOf") {
        Some(Value::Array(list)) if known.as_object().is_some_and(|known| known.len() == 1) => {
            list.clone()
        }
        _ => vec![known.clone()],
    };
    if !list.contains(more) {
        list.push(more.clone());
    }
    json!({ "anyOf": list })
}

/// Appends text to the description of a schema.
pub(crate) fn append_description(map: &mut Map<String, Value>, words: &str) {
    let description = match map.get("description").and_then(Value::as_str) {
        Some(before) if !before.is_empty() => format!("{before}\n\n{words}"),
        _ => words.to_owned(),
    };
    map.insert("description".to_owned(), description.into());
}
