//! Encodes messages as lists of blocks.
//!
//! Each function returns the JSON of one block, or no bytes for a part that cannot be sent. The API
//! rejects a whole conversation for a single invalid block, so this module omits what another
//! provider or a truncated reply left behind: thoughts without a signature, blank texts, foreign
//! state. Media that a user sends and the API does not accept are an error instead, because silence
//! would hide a mistake.
//!
//! A reply with a signed thought and a call is encoded as:
//!
//! ```json
//! {"type": "thinking", "thinking": "..", "signature": "EqQB.."},
//! {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}
//! ```

use std::borrow::Cow;

use levity_core::{
    Content, Message, Part, ProviderState, Role, Text, Thinking, ToolCall, ToolResult,
};
use serde_json::{Map, Value, json};

use super::{NAME, media};
use crate::body::{Body, write};
use crate::origin::{Origin, StateScope};
use crate::{names, omitted_media};

/// The reason that the API cannot accept a message, with the next step, as one clause.
///
/// The text is complete as an error message, and [`messages`](super::messages) caches it in place
/// of the blocks.
#[derive(Debug)]
pub(super) struct Unsupported(pub(super) String);

/// The server that receives the request.
///
/// State goes back only to a server that accepts it. A conversation may contain state of several
/// servers after a fallback or a change of model.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) origin: &'a Origin,
    /// True if the model's name is that of a Claude.
    pub(super) claude: bool,
}

impl Target<'_> {
    /// Returns this provider's state that may be sent back: blocks of its tools, containers,
    /// citations.
    pub(super) fn own<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Value> {
        self.origin.data(NAME, opaque, StateScope::Account)
    }

    /// Returns the state of a thought. Signatures of a Claude are valid on every service:
    /// Anthropic, Bedrock and Vertex AI, for any account. Signatures of other models are valid on
    /// their own server.
    fn own_thought<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Value> {
        self.origin.data(
            NAME,
            opaque,
            if self.claude {
                StateScope::Family
            } else {
                StateScope::Server
            },
        )
    }

    /// Returns a provider-specific block.
    ///
    /// Redacted thoughts follow the rule of thoughts, and all other blocks that of the account.
    fn own_block<'a>(&self, opaque: &'a ProviderState) -> Option<&'a Value> {
        let is_thought = opaque
            .data
            .get("type")
            .is_some_and(|kind| kind == "redacted_thinking");
        if is_thought {
            self.own_thought(Some(opaque))
        } else {
            self.own(Some(opaque))
        }
    }
}

/// Returns the blocks of a message separated by commas; empty if no part of it can be sent.
///
/// The result has no brackets, because consecutive messages of one role share a list.
///
/// # Errors
/// Returns [`Unsupported`] with the reason for the first part that the API does not accept.
pub(super) fn blocks(message: &Message, target: Target<'_>) -> Result<Vec<u8>, Unsupported> {
    let mut bytes = Vec::new();
    let keep = match message.role {
        Role::Assistant => sendable_parts(&message.parts, target),
        _ => message.parts.len(),
    };
    for part in message.parts.iter().take(keep) {
        let block = block(part, message.role, target)?;
        if !block.is_empty() && !bytes.is_empty() {
            bytes.push(b',');
        }
        bytes.extend_from_slice(&block);
    }
    Ok(bytes)
}

/// Returns the number of parts of a reply that can be sent back. The API rejects a reply that ends
/// with a thought, which happens if it was truncated while the model thought.
pub(super) fn sendable_parts(parts: &[Part], target: Target<'_>) -> usize {
    let is_thought = |part: &Part| match part {
        Part::Thinking(_) => true,
        Part::Text(text) => text.text.trim().is_empty(),
        Part::Opaque(opaque) => {
            match target.own_block(opaque).and_then(|block| block.get("type")) {
                Some(kind) => kind == "redacted_thinking",
                None => true,
            }
        }
        _ => false,
    };
    parts
        .iter()
        .rposition(|part| !is_thought(part))
        .map_or(0, |last| last + 1)
}

/// Encodes a part as a block. Media in a reply of a model become a description in words.
fn block(part: &Part, role: Role, target: Target<'_>) -> Result<Vec<u8>, Unsupported> {
    Ok(match part {
        Part::Text(part) => text(part, target),
        Part::Thinking(part) => thinking(part, target),
        // Another model created the media, and an error would end the conversation.
        Part::Media(part) if role == Role::Assistant => {
            text(&Text::new(omitted_media::description(part)), target)
        }
        Part::Media(part) => media::block(part, target)?,
        Part::ToolCall(part) => call(part, target),
        Part::ToolResult(part) => result(part, target),
        Part::Opaque(part) => opaque(part, target),
        _ => Vec::new(),
    })
}

/// Encodes a text. The API rejects a text without a visible character.
///
/// The state of a text contains its citations and fields such as `cache_control`.
fn text(part: &Text, target: Target<'_>) -> Vec<u8> {
    if part.text.trim().is_empty() {
        return Vec::new();
    }
    let mut body = Body::new();
    body.field("type", "text");
    body.field("text", &part.text);
    for (name, value) in target
        .own(part.opaque.as_ref())
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        match name.as_str() {
            "type" | "text" => {}
            "citations" => body.field(name, &citations(value)),
            _ => body.field(name, value),
        }
    }
    body.finish()
}

/// Returns citations in the form that may be sent back: they must not name a missing file.
fn citations(citations: &Value) -> Cow<'_, Value> {
    let is_empty = |citation: &Value| citation.get("file_id").is_some_and(Value::is_null);
    let Some(list) = citations
        .as_array()
        .filter(|list| list.iter().any(is_empty))
    else {
        return Cow::Borrowed(citations);
    };
    let mut list = list.clone();
    for citation in list.iter_mut().filter(|citation| is_empty(citation)) {
        citation
            .as_object_mut()
            .map(|citation| citation.shift_remove("file_id"));
    }
    Cow::Owned(Value::Array(list))
}

/// Encodes a thought, if it is signed.
///
/// The text goes back unchanged even if it is empty, because the signature covers it.
fn thinking(part: &Thinking, target: Target<'_>) -> Vec<u8> {
    let signature = target
        .own_thought(part.opaque.as_ref())
        .and_then(|data| data.get("signature"))
        .and_then(Value::as_str);
    let Some(signature) = signature.filter(|signature| !signature.is_empty()) else {
        return Vec::new();
    };
    let mut body = Body::new();
    body.field("type", "thinking");
    body.field("thinking", &part.text);
    body.field("signature", signature);
    body.finish()
}

/// Encodes a call as `tool_use`, with a valid id, a valid name and an object as its input.
fn call(call: &ToolCall, target: Target<'_>) -> Vec<u8> {
    let mut body = Body::new();
    body.field("type", "tool_use");
    body.field("id", &id(call.id.as_str()));
    body.field("name", &names::tool(&call.name, ""));
    body.field("input", &input(call));
    body.optional(
        "caller",
        target
            .own(call.opaque.as_ref())
            .and_then(|data| data.get("caller")),
    );
    body.finish()
}

/// Returns the arguments. The API accepts only an object; its documentation recommends this form
/// for anything else.
///
/// The forms are `{"INVALID_JSON": "{\"a\": 1"}` for text that is not JSON and `{}` for `null`.
fn input(call: &ToolCall) -> Cow<'_, Value> {
    match (&call.raw, &call.args) {
        (Some(raw), _) => Cow::Owned(json!({ "INVALID_JSON": raw })),
        (None, Value::Object(_)) => Cow::Borrowed(&call.args),
        (None, Value::Null) => Cow::Owned(Value::Object(Map::new())),
        (None, other) => Cow::Owned(json!({ "INVALID_JSON": other.to_string() })),
    }
}

/// Returns a valid call id: letters, digits, `_` and `-`. Other characters, from another provider,
/// are replaced with their codes, and long ids are truncated.
///
/// The id `call:1` becomes `call_3a_1`. The result of a call gets the same id, so both still match.
fn id(id: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if id.chars().all(fits) {
        return names::id(Cow::Borrowed(id));
    }
    let put = |c: char| {
        if fits(c) {
            c.to_string()
        } else {
            format!("_{:x}_", u32::from(c))
        }
    };
    names::id(Cow::Owned(id.chars().map(put).collect()))
}

/// Encodes a tool result. Its state may contain `content`, which then replaces levity's own, and
/// `cache_control`.
fn result(result: &ToolResult, target: Target<'_>) -> Vec<u8> {
    let mut body = Body::new();
    body.field("type", "tool_result");
    body.field("tool_use_id", &id(result.call.as_str()));
    let fields = target
        .own(result.opaque.as_ref())
        .and_then(Value::as_object);
    if fields.is_none_or(|fields| !fields.contains_key("content")) {
        let content = content(result, target);
        if !content.is_empty() {
            body.raw("content", |bytes| bytes.extend_from_slice(&content));
        }
    }
    if result.is_error() {
        body.field("is_error", &true);
    }
    let known = ["type", "tool_use_id", "is_error"];
    for (name, value) in fields
        .into_iter()
        .flatten()
        .filter(|(name, _)| !known.contains(&name.as_str()))
    {
        body.field(name, value);
    }
    body.finish()
}

/// Encodes the result of a tool: a text, a list of texts and media, or nothing.
///
/// A result that contains media but no text starts with the text of its value, if it has one.
fn content(result: &ToolResult, target: Target<'_>) -> Vec<u8> {
    let is_text = |content: &Content| matches!(content, Content::Text(_));
    let mut bytes = Vec::new();
    let text = result.text();
    if result.content.iter().all(is_text) {
        if !text.trim().is_empty() {
            write(&mut bytes, &text);
        }
        return bytes;
    }
    let mut blocks = Vec::new();
    if !result.content.iter().any(is_text) {
        blocks.push(self::text(&Text::new(text), target));
    }
    for content in &result.content {
        match content {
            Content::Text(part) => blocks.push(self::text(&Text::new(part.as_str()), target)),
            Content::Media(part) => {
                let words = |_| self::text(&Text::new(omitted_media::description(part)), target);
                blocks.push(media::block(part, target).unwrap_or_else(words));
            }
            _ => {}
        }
    }
    crate::body::list(&mut bytes, |list| {
        blocks.iter().for_each(|block| list.add(block));
    });
    bytes
}

/// Encodes a provider-specific block unchanged. An object without a type is not a block.
fn opaque(opaque: &ProviderState, target: Target<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(block) = target
        .own_block(opaque)
        .filter(|block| block.get("type").is_some())
    {
        write(&mut bytes, block);
    }
    bytes
}
