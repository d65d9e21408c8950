//! Replies that a JSON Schema restricts to a tool call or an answer.
//!
//! The schema is an object with the single key `reply`, whose value is `anyOf` all tools and the
//! answer: `{"reply": {"name": "add", "arguments": {..}}}` or `{"reply": {"answer": ".."}}`. Each
//! tool is a constant name with its own argument schema, so a server that enforces the schema
//! cannot produce an unknown tool or wrong types.

use std::sync::Arc;

use levity_core::{OutputSchema, ToolChoice, ToolSpec};
use serde_json::{Map, Value, json};

/// The top-level key: many endpoints require an object there and reject an `anyOf`.
const REPLY: &str = "reply";
const NAME: &str = "name";
const ARGUMENTS: &str = "arguments";
const ANSWER: &str = "answer";

/// Returns the schema of a reply. Unless a tool must be called, one alternative is an answer: a
/// text, or a value of the `output` schema.
///
/// A choice of one tool leaves only that tool, and a required call removes the answer. A choice of
/// an unknown tool is ignored.
pub(super) fn schema(
    tools: &[Arc<ToolSpec>],
    choice: &ToolChoice,
    output: Option<&OutputSchema>,
) -> OutputSchema {
    let mut defs = Map::new();
    let named =
        |tool: &Arc<ToolSpec>| matches!(choice, ToolChoice::Tool(name) if *name == tool.name);
    let only = tools.iter().any(named);
    let mut forms: Vec<Value> = Vec::new();
    for (n, tool) in tools
        .iter()
        .enumerate()
        .filter(|(_, tool)| !only || named(tool))
    {
        let args = embed(&tool.input, &format!("t{n}"), &mut defs);
        forms.push(object(&[
            (NAME, json!({"const": tool.name})),
            (ARGUMENTS, args),
        ]));
    }
    if !only && *choice != ToolChoice::Required {
        let answer = output.map_or_else(
            || json!({"type": "string"}),
            |output| embed(&output.schema, "answer", &mut defs),
        );
        forms.push(object(&[(ANSWER, answer)]));
    }
    let mut schema = object(&[(REPLY, json!({"anyOf": forms}))]);
    if !defs.is_empty() {
        schema["$defs"] = Value::Object(defs);
    }
    OutputSchema::new(REPLY, schema)
}

/// Returns the schema of an object with exactly these fields, all required.
fn object(fields: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> = fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Embeds a schema in another. Its definitions move to `defs` under unique names, and its
/// references are updated. A schema that refers to itself in another way moves there as a whole.
///
/// Tool schemas have their own `$defs`, whose names may collide. A definition `City` of the first
/// tool becomes `t0_City`.
fn embed(schema: &Value, name: &str, defs: &mut Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    let mut whole = false;
    rewrite_refs(&mut schema, name, &mut whole);
    if let Value::Object(map) = &mut schema {
        map.shift_remove("$schema");
        for key in ["$defs", "definitions"] {
            let Some(Value::Object(inner)) = map.shift_remove(key) else {
                continue;
            };
            defs.extend(
                inner
                    .into_iter()
                    .map(|(key, value)| (format!("{name}_{key}"), value)),
            );
        }
    }
    if !whole {
        return schema;
    }
    defs.insert(name.to_owned(), schema);
    json!({"$ref": format!("#/$defs/{name}")})
}

/// Updates all references below a value. `whole` becomes true if one of them refers to the schema
/// itself or to a path in it.
fn rewrite_refs(value: &mut Value, name: &str, whole: &mut bool) {
    match value {
        Value::Array(list) => list
            .iter_mut()
            .for_each(|value| rewrite_refs(value, name, whole)),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(to) if key == "$ref" => *to = relocate_ref(to, name, whole),
                    value => rewrite_refs(value, name, whole),
                }
            }
        }
        _ => {}
    }
}

/// A reference to another document is kept.
fn relocate_ref(to: &str, name: &str, whole: &mut bool) -> String {
    let def = ["#/$defs/", "#/definitions/"]
        .iter()
        .find_map(|before| to.strip_prefix(before));
    match (def, to.strip_prefix('#')) {
        (Some(def), _) => format!("#/$defs/{name}_{def}"),
        (None, Some(path)) => {
            *whole = true;
            format!("#/$defs/{name}{path}")
        }
        (None, None) => to.to_owned(),
    }
}

/// Formats a call according to the schema, for the conversation history.
///
/// Earlier calls appear in the same form as new ones, so that the model continues the pattern.
pub(super) fn format_call(name: &str, args: &str) -> String {
    let args = read_json(args).unwrap_or_else(|| Value::String(args.to_owned()));
    json!({REPLY: {NAME: name, ARGUMENTS: args}}).to_string()
}

/// A parsed reply of that schema.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    Answer(String),
    /// A call whose arguments are JSON text.
    Call {
        name: String,
        args: String,
    },
}

/// Parses a reply of that schema; returns `None` for any other text.
///
/// A value that is not a string, of a request with an output schema, becomes its JSON text.
pub(super) fn read(text: &str) -> Option<Reply> {
    let value = read_json(text)?;
    let reply = value.get(REPLY).unwrap_or(&value);
    // Without enforcement of the schema, the model may use other names.
    if let Some(name) = [NAME, "tool"]
        .iter()
        .find_map(|key| reply.get(key)?.as_str())
    {
        let args = [ARGUMENTS, "args"].iter().find_map(|key| reply.get(key));
        let args = args.map(Value::to_string).unwrap_or_default();
        return Some(Reply::Call {
            name: name.to_owned(),
            args,
        });
    }
    Some(Reply::Answer(match reply.get(ANSWER)? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }))
}

/// Parses JSON that a model wrote. The text must start and end like an object or a list, and may
/// contain errors.
fn read_json(text: &str) -> Option<Value> {
    let text = text.trim();
    let framed = matches!(text.as_bytes(), [b'{', .., b'}'] | [b'[', .., b']']);
    serde_json::from_str(text)
        .ok()
        .or_else(|| framed.then(|| crate::json::parse(text).ok()).flatten())
}
