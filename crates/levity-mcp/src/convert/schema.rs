//! Cleanup and validation of servers' schemas.
//!
//! The cleanup removes keywords without a meaning for the arguments: the draft of the schema, if
//! the drafts agree on it; titles that repeat a name; comments; keywords with the prefix `x-`. The
//! result accepts exactly the same values as before.
//!
//! A schema is checked before it is walked: at most 64 levels and 128 KiB, so that a hostile one
//! cannot exhaust the stack or the context of a model. A schema that fails makes its tool unusable,
//! because a tool without its schema would be called wrongly.
//!
//! An example: `{"$schema": "http://json-schema.org/draft-07/schema#", "title": "readArguments",
//! "type": "object", "properties": {"path": {"type": "string", "title": "Path"}}}` becomes
//! `{"type": "object", "properties": {"path": {"type": "string"}}}`.

use levity_rpc::mcp::JsonObject;
use serde_json::Value;

use dialect::Dialect;

mod dialect;

/// The maximum size of a schema, in bytes of JSON.
const MAX_BYTES: usize = 128 << 10;
/// The maximum nesting depth of a schema; dispatchers allow some more levels.
const MAX_DEPTH: usize = 64;

/// The suffixes that generators add to the name of a function or type to name its arguments.
const GENERATED_SUFFIXES: [&str; 7] = [
    "arguments",
    "args",
    "input",
    "params",
    "parameters",
    "request",
    "schema",
];

/// Converts the schema of a tool's arguments to the form that a model sees.
///
/// # Errors
/// Returns the problem as a clause that follows `its input schema`.
pub(super) fn input(schema: &JsonObject, tool: &str) -> Result<Value, String> {
    check(schema)?;
    let mut root = schema.clone();
    match root.get("type") {
        // The protocol requires arguments to be an object, so a missing type means that.
        None | Some(Value::Null) => drop(root.insert("type".to_owned(), "object".into())),
        Some(Value::Array(types)) if types.iter().any(|name| name == "object") => {
            root.insert("type".to_owned(), "object".into());
        }
        Some(Value::String(name)) if name == "object" => {}
        Some(_) => return Err("does not describe an object".to_owned()),
    }
    for keyword in ["properties", "required", "additionalProperties"] {
        if root.get(keyword).is_some_and(Value::is_null) {
            root.shift_remove(keyword);
        }
    }
    if Dialect::of(schema).can_omit(schema) {
        root.shift_remove("$schema");
    }
    let is_referenced = has_ref(&Value::Object(root.clone()), &|target| {
        target.contains("/x-")
    });
    let cleaner = SchemaCleaner {
        extensions: is_referenced,
    };
    if root
        .get("title")
        .and_then(Value::as_str)
        .is_some_and(|title| is_generated_title(title, tool))
    {
        root.shift_remove("title");
    }
    Ok(Value::Object(cleaner.keywords(&root)))
}

/// Converts the schema of a tool's result. No model sees it.
///
/// # Errors
/// Returns the problem with the schema.
pub(super) fn output(schema: &JsonObject) -> Result<Value, String> {
    check(schema)?;
    let mut schema = schema.clone();
    if Dialect::of(&schema) == Dialect::Unknown {
        schema.shift_remove("$schema");
    }
    Ok(Value::Object(schema))
}

/// Returns an error if the schema is too deep or too large.
fn check(schema: &JsonObject) -> Result<(), String> {
    if !schema
        .values()
        .all(|value| is_shallow(value, MAX_DEPTH - 1))
    {
        return Err(format!("is nested deeper than {MAX_DEPTH} levels"));
    }
    let size = serde_json::to_string(schema).map_or(usize::MAX, |json| json.len());
    if size > MAX_BYTES {
        return Err(format!("has {size} bytes, more than {MAX_BYTES}"));
    }
    Ok(())
}

/// Returns `true` if the value has at most `depth` levels of lists and objects. It stops at the
/// limit, so its own recursion is bounded.
fn is_shallow(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|value| is_shallow(value, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|value| is_shallow(value, depth - 1)),
        _ => true,
    }
}

/// Returns `true` if `value` contains a reference that satisfies the predicate.
fn has_ref(value: &Value, predicate: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|value| has_ref(value, predicate)),
        Value::Object(map) => map.iter().any(|(name, value)| {
            (name == "$ref" && value.as_str().is_some_and(predicate)) || has_ref(value, predicate)
        }),
        _ => false,
    }
}

/// Removes keywords without a meaning.
struct SchemaCleaner {
    /// Keeps extension keywords, because a reference uses them.
    extensions: bool,
}

impl SchemaCleaner {
    /// Cleans one schema. `name` is the name of its property, which a generated title repeats; it
    /// is empty for schemas without a name.
    fn schema(&self, schema: &Value, name: &str) -> Value {
        let Value::Object(keywords) = schema else {
            return schema.clone();
        };
        let mut cleaned = self.keywords(keywords);
        let repeats = |title: &Value| {
            title
                .as_str()
                .is_some_and(|title| letters(title) == letters(name))
        };
        if cleaned.get("title").is_some_and(repeats) {
            cleaned.shift_remove("title");
        }
        Value::Object(cleaned)
    }

    /// Cleans the keywords of one object, in their order.
    fn keywords(&self, keywords: &JsonObject) -> JsonObject {
        let kept = keywords.iter().filter(|(name, _)| self.is_kept(name));
        kept.map(|(name, value)| (name.clone(), self.keyword(name, value)))
            .collect()
    }

    /// Returns `true` if the keyword has a meaning for the arguments.
    fn is_kept(&self, keyword: &str) -> bool {
        keyword != "$comment" && (self.extensions || !keyword.starts_with("x-"))
    }

    /// Cleans the schemas inside a keyword. Values that are data, such as `default`, `enum` and
    /// `const`, stay as they are.
    fn keyword(&self, keyword: &str, value: &Value) -> Value {
        match (keyword_content(keyword), value) {
            (KeywordContent::Named, Value::Object(all)) => all
                .iter()
                .map(|(name, schema)| (name.clone(), self.schema(schema, name)))
                .collect(),
            (KeywordContent::Schemas, Value::Array(all)) => {
                all.iter().map(|schema| self.schema(schema, "")).collect()
            }
            (KeywordContent::Schemas, Value::Object(_)) => self.schema(value, ""),
            _ => value.clone(),
        }
    }
}

/// The content of a keyword.
enum KeywordContent {
    /// A map of schemas by name.
    Named,
    /// A schema, or a list of schemas.
    Schemas,
    /// Content of any other type.
    Other,
}

/// Returns the content of a keyword, so that data is never mistaken for a schema: a property may be
/// named `title`.
fn keyword_content(keyword: &str) -> KeywordContent {
    match keyword {
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
            KeywordContent::Named
        }
        "items"
        | "prefixItems"
        | "additionalItems"
        | "additionalProperties"
        | "allOf"
        | "anyOf"
        | "oneOf"
        | "not"
        | "if"
        | "then"
        | "else"
        | "contains"
        | "propertyNames"
        | "unevaluatedItems"
        | "unevaluatedProperties" => KeywordContent::Schemas,
        _ => KeywordContent::Other,
    }
}

/// Returns `true` if the title of the arguments was generated from the name of a function or type.
fn is_generated_title(title: &str, tool: &str) -> bool {
    let (title, tool) = (letters(title), letters(tool));
    title == tool
        || GENERATED_SUFFIXES
            .iter()
            .any(|suffix| title.ends_with(suffix))
}

/// Reduces a name to its lowercase letters and digits: `read_file` and `Read File` are equal.
fn letters(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests;
