//! Schemas of servers: made small for models, and looked at before anybody relies on them.
//!
//! What is left out says nothing of the arguments: which draft a schema is written in, where the
//! drafts mean the same by it; titles that repeat a name; comments; keywords that begin with `x-`.
//! Whatever a schema accepts it accepts afterwards, and nothing else.

use levity_rpc::mcp::JsonObject;
use serde_json::Value;

use dialect::Dialect;

mod dialect;

/// How many bytes of JSON a schema may be.
const LARGEST: usize = 128 << 10;
/// How deep a schema may be nested; dispatchers allow some levels more.
const DEEPEST: usize = 64;

/// What a generator puts behind the name of a function or type to name its arguments.
const ENDINGS: [&str; 7] = [
    "arguments",
    "args",
    "input",
    "params",
    "parameters",
    "request",
    "schema",
];

/// The schema of a tool's arguments, as a model is shown it.
///
/// # Errors
/// What is wrong with it, to be read after `its input schema`.
pub(super) fn input(schema: &JsonObject, tool: &str) -> Result<Value, String> {
    check(schema)?;
    let mut root = schema.clone();
    match root.get("type") {
        // The protocol has arguments be an object, so what is not said is meant.
        None | Some(Value::Null) => drop(root.insert("type".to_owned(), "object".into())),
        Some(Value::Array(types)) if types.iter().any(|name| name == "object") => {
            root.insert("type".to_owned(), "object".into());
        }
        Some(Value::String(name)) if name == "object" => {}
        Some(_) => return Err("is not one of an object".to_owned()),
    }
    for keyword in ["properties", "required", "additionalProperties"] {
        if root.get(keyword).is_some_and(Value::is_null) {
            root.shift_remove(keyword);
        }
    }
    if Dialect::of(schema).is_needless(schema) {
        root.shift_remove("$schema");
    }
    let refers = has_ref(&Value::Object(root.clone()), &|target| {
        target.contains("/x-")
    });
    let tidy = Tidy { extensions: refers };
    if root
        .get("title")
        .and_then(Value::as_str)
        .is_some_and(|title| is_made_up(title, tool))
    {
        root.shift_remove("title");
    }
    Ok(Value::Object(tidy.keywords(&root)))
}

/// The schema of what a tool returns. No model is shown it.
///
/// # Errors
/// What is wrong with it.
pub(super) fn output(schema: &JsonObject) -> Result<Value, String> {
    check(schema)?;
    let mut schema = schema.clone();
    if Dialect::of(&schema) == Dialect::Unknown {
        schema.shift_remove("$schema");
    }
    Ok(Value::Object(schema))
}

fn check(schema: &JsonObject) -> Result<(), String> {
    if !schema.values().all(|value| is_shallow(value, DEEPEST - 1)) {
        return Err(format!("is nested deeper than {DEEPEST} levels"));
    }
    let size = serde_json::to_string(schema).map_or(usize::MAX, |json| json.len());
    if size > LARGEST {
        return Err(format!("has {size} bytes, more than {LARGEST}"));
    }
    Ok(())
}

fn is_shallow(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|value| is_shallow(value, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|value| is_shallow(value, depth - 1)),
        _ => true,
    }
}

/// Whether a reference anywhere in `value` is of a kind.
fn has_ref(value: &Value, is_it: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|value| has_ref(value, is_it)),
        Value::Object(map) => map.iter().any(|(name, value)| {
            (name == "$ref" && value.as_str().is_some_and(is_it)) || has_ref(value, is_it)
        }),
        _ => false,
    }
}

/// Leaves out what says nothing.
struct Tidy {
    /// Whether keywords of nobody's are kept, as something refers to them.
    extensions: bool,
}

impl Tidy {
    fn schema(&self, schema: &Value, name: &str) -> Value {
        let Value::Object(keywords) = schema else {
            return schema.clone();
        };
        let mut tidy = self.keywords(keywords);
        let repeats = |title: &Value| {
            title
                .as_str()
                .is_some_and(|title| letters(title) == letters(name))
        };
        if tidy.get("title").is_some_and(repeats) {
            tidy.shift_remove("title");
        }
        Value::Object(tidy)
    }

    fn keywords(&self, keywords: &JsonObject) -> JsonObject {
        let kept = keywords.iter().filter(|(name, _)| self.is_kept(name));
        kept.map(|(name, value)| (name.clone(), self.keyword(name, value)))
            .collect()
    }

    fn is_kept(&self, keyword: &str) -> bool {
        keyword != "$comment" && (self.extensions || !keyword.starts_with("x-"))
    }

    fn keyword(&self, keyword: &str, value: &Value) -> Value {
        match (holds(keyword), value) {
            (Holds::Named, Value::Object(all)) => all
                .iter()
                .map(|(name, schema)| (name.clone(), self.schema(schema, name)))
                .collect(),
            (Holds::Schemas, Value::Array(all)) => {
                all.iter().map(|schema| self.schema(schema, "")).collect()
            }
            (Holds::Schemas, Value::Object(_)) => self.schema(value, ""),
            _ => value.clone(),
        }
    }
}

/// What a keyword has below it.
enum Holds {
    /// Schemas by name.
    Named,
    /// A schema, or a list of them.
    Schemas,
    /// Anything else.
    Other,
}

fn holds(keyword: &str) -> Holds {
    match keyword {
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
            Holds::Named
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
        | "unevaluatedProperties" => Holds::Schemas,
        _ => Holds::Other,
    }
}

/// Whether a title of the arguments as a whole was made from the name of a function or type.
fn is_made_up(title: &str, tool: &str) -> bool {
    let (title, tool) = (letters(title), letters(tool));
    title == tool || ENDINGS.iter().any(|ending| title.ends_with(ending))
}

fn letters(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests;
