//! The structure of Gemini's replies.
//!
//! The fields are those that levity uses. Everything else in a part is collected in [`Piece::rest`]
//! and goes back to Gemini unchanged, because signatures and results of its own tools live there. A
//! reply that does not fit these types is parsed again after [`remove_invalid_fields`].
//!
//! Field names are those of the JSON form of Google's protocol buffers, in camel case. Numbers of
//! 64 bits may arrive as text in that form, so counts accept both after the lenient pass.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

/// A reply, or a chunk of one.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Chunk {
    pub(super) candidates: Option<Vec<Candidate>>,
    pub(super) usage_metadata: Option<Counts>,
    pub(super) prompt_feedback: Option<Feedback>,
    pub(super) error: Option<Value>,
    pub(super) model_version: Value,
}

/// One alternative reply, of which levity uses the first.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Candidate {
    pub(super) content: Option<Content>,
    pub(super) finish_reason: Option<String>,
    pub(super) finish_message: Option<String>,
    pub(super) index: Option<u64>,
    /// The searches behind the reply, which have a fee.
    pub(super) grounding_metadata: Value,
}

/// The parts of a reply.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content {
    pub(super) parts: Option<Vec<Piece>>,
}

/// The reason for which Google blocked the prompt.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Feedback {
    pub(super) block_reason: Option<String>,
    pub(super) block_reason_message: Option<String>,
}

/// Token counts. Thoughts and the input of Google's tools are not included in the other counts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Counts {
    pub(super) prompt_token_count: Option<u64>,
    pub(super) candidates_token_count: Option<u64>,
    pub(super) thoughts_token_count: Option<u64>,
    pub(super) cached_content_token_count: Option<u64>,
    pub(super) tool_use_prompt_token_count: Option<u64>,
    pub(super) total_token_count: Option<u64>,
    /// The service tier, as AI Studio and Vertex AI report it.
    pub(super) service_tier: Value,
    pub(super) traffic_type: Value,
}

/// A part of the content.
///
/// A part has one of text, call and data, with `thought` as a mark of the text.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) text: Option<String>,
    pub(super) thought: bool,
    pub(super) call: Option<Call>,
    pub(super) data: Option<Blob>,
    /// All other fields: a signature, and fields that only Gemini understands.
    pub(super) rest: Map<String, Value>,
}

/// A call, complete with `args` or in fragments with `partialArgs`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Call {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) args: Option<Value>,
    pub(super) partial_args: Option<Vec<Partial>>,
    /// True if more fragments of this call follow.
    pub(super) will_continue: Option<bool>,
}

/// A value within the arguments, or a fragment of a text there.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Partial {
    pub(super) json_path: String,
    pub(super) string_value: Option<String>,
    pub(super) number_value: Option<Value>,
    pub(super) bool_value: Option<bool>,
    pub(super) will_continue: Option<bool>,
}

/// Media bytes as base64 text.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Blob {
    pub(super) mime_type: Option<String>,
    pub(super) data: String,
}

/// A custom implementation, because `flatten` would copy every text twice.
impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Piece;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Piece, A::Error> {
                let mut piece = Piece::default();
                while let Some(name) = map.next_key::<String>()? {
                    match &*name {
                        "text" => piece.text = map.next_value()?,
                        "thought" => {
                            piece.thought = map.next_value::<Option<bool>>()?.unwrap_or_default();
                        }
                        "functionCall" => piece.call = map.next_value()?,
                        "inlineData" => piece.data = map.next_value()?,
                        _ => piece.keep(name, map.next_value()?),
                    }
                }
                Ok(piece)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl Piece {
    /// Stores a field that levity does not use, unless it is `null`.
    fn keep(&mut self, name: String, value: Value) {
        if !value.is_null() {
            self.rest.insert(name, value);
        }
    }
}

/// Removes fields of an unexpected type from a reply, so that the rest can be parsed.
///
/// Counts that are sent as text are converted to numbers. A single candidate or part without a list
/// becomes a list of one.
pub(super) fn remove_invalid_fields(reply: &mut Value) {
    let Value::Object(reply) = reply else { return };
    ensure_list(reply, "candidates");
    for candidate in each(reply, "candidates") {
        retain_fields(
            candidate,
            &["finishReason", "finishMessage"],
            Value::is_string,
        );
        retain_fields(candidate, &["index"], Value::is_u64);
        retain_fields(candidate, &["content"], Value::is_object);
        let Some(Value::Object(content)) = candidate.get_mut("content") else {
            continue;
        };
        ensure_list(content, "parts");
        each(content, "parts").for_each(remove_invalid_part_fields);
    }
    retain_fields(
        reply,
        &["usageMetadata", "promptFeedback"],
        Value::is_object,
    );
    if let Some(Value::Object(counts)) = reply.get_mut("usageMetadata") {
        for (_, count) in counts
            .iter_mut()
            .filter(|(name, _)| name.ends_with("Count"))
        {
            let number = count
                .as_u64()
                .or_else(|| count.as_str()?.trim().parse().ok());
            *count = number.map_or(Value::Null, Value::from);
        }
    }
    if let Some(Value::Object(feedback)) = reply.get_mut("promptFeedback") {
        retain_fields(
            feedback,
            &["blockReason", "blockReasonMessage"],
            Value::is_string,
        );
    }
}

/// Removes fields of an unexpected type from a part, its call and its data.
fn remove_invalid_part_fields(part: &mut Map<String, Value>) {
    retain_fields(part, &["text"], Value::is_string);
    retain_fields(part, &["thought"], Value::is_boolean);
    retain_fields(part, &["functionCall", "inlineData"], Value::is_object);
    if let Some(Value::Object(call)) = part.get_mut("functionCall") {
        retain_fields(call, &["id", "name"], Value::is_string);
        retain_fields(call, &["willContinue"], Value::is_boolean);
        ensure_list(call, "partialArgs");
        for partial in each(call, "partialArgs") {
            retain_fields(partial, &["jsonPath", "stringValue"], Value::is_string);
            retain_fields(partial, &["boolValue", "willContinue"], Value::is_boolean);
        }
    }
    if let Some(Value::Object(blob)) = part.get_mut("inlineData") {
        retain_fields(blob, &["mimeType", "data"], Value::is_string);
    }
}

/// Removes fields that do not satisfy the predicate.
fn retain_fields(map: &mut Map<String, Value>, names: &[&str], is: impl Fn(&Value) -> bool) {
    for name in names {
        if map.get(*name).is_some_and(|value| !is(value)) {
            map.shift_remove(*name);
        }
    }
}

/// Converts a field to a list of objects: a single object becomes a list of one.
fn ensure_list(map: &mut Map<String, Value>, name: &str) {
    match map.get_mut(name) {
        Some(Value::Array(items)) => items.retain(Value::is_object),
        Some(one @ Value::Object(_)) => *one = Value::Array(vec![one.take()]),
        Some(other) => *other = Value::Null,
        None => {}
    }
}

/// Iterates over the objects in a list, if the field is one.
fn each<'a>(
    map: &'a mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let items = map.get_mut(name).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}
