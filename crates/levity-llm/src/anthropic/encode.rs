//! Messages, as lists of blocks.

use std::borrow::Cow;

use levity_core::{
    Content, Message, Part, ProviderState, Role, Text, Thinking, ToolCall, ToolResult,
};
use serde_json::{Map, Value, json};

use super::{NAME, media};
use crate::body::{Body, write};
use crate::origin::{Bound, Origin};
use crate::{names, unseen};

/// Why a message cannot be given to the API: one clause with the way out.
#[derive(Debug)]
pub(super) struct Refused(pub(super) String);

/// Who is told.
#[derive(Clone, Copy)]
pub(super) struct To<'a> {
    pub(super) origin: &'a Origin,
    /// Whether it is a Claude, by its name.
    pub(super) claude: bool,
}

impl To<'_> {
    /// Data of this provider's that may go back: blocks of its tools, containers, citations.
    pub(super) fn own<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Value> {
        self.origin.data(NAME, opaque, Bound::Account)
    }

    /// Data of a thought. Signatures of a Claude hold wherever one is served: by Anthropic, Bedrock
    /// and Vertex AI, for any account. Those of other models that speak the protocol are their
    /// server's business.
    fn own_thought<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Value> {
        self.origin.data(
            NAME,
            opaque,
            if self.claude {
                Bound::Family
            } else {
                Bound::Server
            },
        )
    }

    /// A block of the provider's own.
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

/// The blocks of a message with commas between them; none when nothing of it can be sent.
pub(super) fn blocks(message: &Message, to: To<'_>) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    let keep = match message.role {
        Role::Assistant => sayable(&message.parts, to),
        _ => message.parts.len(),
    };
    for part in message.parts.iter().take(keep) {
        let block = block(part, message.role, to)?;
        if !block.is_empty() && !bytes.is_empty() {
            bytes.push(b',');
        }
        bytes.extend_from_slice(&block);
    }
    Ok(bytes)
}

/// How many parts of a reply can go back. The API refuses one that ends with a thought, which
/// happens when it was cut off while the model thought.
pub(super) fn sayable(parts: &[Part], to: To<'_>) -> usize {
    let is_thought = |part: &Part| match part {
        Part::Thinking(_) => true,
        Part::Text(text) => text.text.trim().is_empty(),
        Part::Opaque(opaque) => match to.own_block(opaque).and_then(|block| block.get("type")) {
            Some(kind) => kind == "redacted_thinking",
            None => true,
        },
        _ => false,
    };
    parts
        .iter()
        .rposition(|part| !is_thought(part))
        .map_or(0, |last| last + 1)
}

fn block(part: &Part, role: Role, to: To<'_>) -> Result<Vec<u8>, Refused> {
    Ok(match part {
        Part::Text(part) => text(part, to),
        Part::Thinking(part) => thinking(part, to),
        // Another model showed it, and a refusal would end the conversation.
        Part::Media(part) if role == Role::Assistant => text(&Text::new(unseen::words(part)), to),
        Part::Media(part) => media::block(part, to)?,
        Part::ToolCall(part) => call(part, to),
        Part::ToolResult(part) => result(part, to),
        Part::Opaque(part) => opaque(part, to),
        _ => Vec::new(),
    })
}

/// A text. The API refuses one without a visible character.
fn text(part: &Text, to: To<'_>) -> Vec<u8> {
    if part.text.trim().is_empty() {
        return Vec::new();
    }
    let mut body = Body::new();
    body.field("type", "text");
    body.field("text", &part.text);
    for (name, value) in to
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

/// Citations as they may go back: a file that there is none of must not be named.
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

/// A thought, if it is signed.
fn thinking(part: &Thinking, to: To<'_>) -> Vec<u8> {
    let signature = to
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

fn call(call: &ToolCall, to: To<'_>) -> Vec<u8> {
    let mut body = Body::new();
    body.field("type", "tool_use");
    body.field("id", &id(call.id.as_str()));
    body.field("name", &names::tool(&call.name, ""));
    body.field("input", &input(call));
    body.optional(
        "caller",
        to.own(call.opaque.as_ref())
            .and_then(|data| data.get("caller")),
    );
    body.finish()
}

/// The arguments. The API takes an object only; its documentation shows this way to give back
/// anything else.
fn input(call: &ToolCall) -> Cow<'_, Value> {
    match (&call.raw, &call.args) {
        (Some(raw), _) => Cow::Owned(json!({ "INVALID_JSON": raw })),
        (None, Value::Object(_)) => Cow::Borrowed(&call.args),
        (None, Value::Null) => Cow::Owned(Value::Object(Map::new())),
        (None, other) => Cow::Owned(json!({ "INVALID_JSON": other.to_string() })),
    }
}

/// The id of a call: letters, digits, `_` and `-`. Others, which another provider gave out, are put
/// by their codes, and long ones are cut.
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

fn result(result: &ToolResult, to: To<'_>) -> Vec<u8> {
    let mut body = Body::new();
    body.field("type", "tool_result");
    body.field("tool_use_id", &id(result.call.as_str()));
    let fields = to.own(result.opaque.as_ref()).and_then(Value::as_object);
    if fields.is_none_or(|fields| !fields.contains_key("content")) {
        let content = content(result, to);
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

/// What a tool answered: a text, or a list of texts and media, or nothing.
fn content(result: &ToolResult, to: To<'_>) -> Vec<u8> {
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
        blocks.push(self::text(&Text::new(text), to));
    }
    for content in &result.content {
        match content {
            Content::Text(part) => blocks.push(self::text(&Text::new(part.as_str()), to)),
            Content::Media(part) => {
                let words = |_| self::text(&Text::new(unseen::words(part)), to);
                blocks.push(media::block(part, to).unwrap_or_else(words));
            }
            _ => {}
        }
    }
    crate::body::list(&mut bytes, |list| {
        blocks.iter().for_each(|block| list.add(block));
    });
    bytes
}

/// A block of the provider's own, as it came. What has no type is no block.
fn opaque(opaque: &ProviderState, to: To<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(block) = to
        .own_block(opaque)
        .filter(|block| block.get("type").is_some())
    {
        write(&mut bytes, block);
    }
    bytes
}
