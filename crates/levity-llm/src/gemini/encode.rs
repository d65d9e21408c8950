//! Requests, as Gemini takes them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{
    Content, Media, MediaSource, Message, Part, ProviderState, Request, Role, ToolCall, ToolResult,
    ToolSpec,
};
use serde_json::{Map, Value, json};

use super::NAME;
use super::config::{Family, merge};
use crate::body::{List, write};
use crate::origin::{Bound, Origin};
use crate::{names, schema};

type Fields = Map<String, Value>;

/// Gemini's own word for a call that it did not make itself: newer models refuse one without a
/// signature.
const UNSIGNED: &str = "skip_thought_signature_validator";

pub(super) fn contents(request: &Request, family: Family, origin: &Origin, list: &mut List<'_>) {
    let wire = if family.signs() {
        "gemini, signed"
    } else {
        NAME
    };
    let to = To {
        origin,
        signs: family.signs(),
    };
    let messages = request.history.messages();
    for (at, message) in messages.iter().enumerate() {
        // Answers stand right behind their calls in any history, so what is made of them cannot
        // change.
        let calls = at
            .checked_sub(1)
            .and_then(|before| messages.get(before))
            .map(|calls| &**calls);
        let key = origin.key(wire, message, calls);
        let json = request
            .history
            .encoded(at, key, || encode(message, calls, to));
        list.add(&json);
    }
}

/// Who is told.
#[derive(Clone, Copy)]
struct To<'a> {
    origin: &'a Origin,
    /// Whether calls must come with signatures, and answers may hold pictures.
    signs: bool,
}

impl To<'_> {
    /// The fields that came with a part, if they may go back: Google says nothing of who else can
    /// read a signature.
    fn own<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Fields> {
        self.origin.data(NAME, opaque, Bound::Account)?.as_object()
    }
}

fn encode(message: &Message, calls: Option<&Message>, to: To<'_>) -> Vec<u8> {
    let parts = match message.role {
        Role::Assistant => said(message, to),
        Role::Tool => answers(message, calls, to),
        Role::System | Role::User => message
            .parts
            .iter()
            .filter_map(|part| told(part, to))
            .collect(),
    };
    let role = if message.role == Role::Assistant {
        "model"
    } else {
        "user"
    };
    let mut bytes = Vec::new();
    if !parts.is_empty() {
        write(&mut bytes, &json!({"role": role, "parts": parts}));
    }
    bytes
}

/// A part of what Gemini is told.
fn told(part: &Part, to: To<'_>) -> Option<Value> {
    match part {
        // Vertex AI refuses a text without words.
        Part::Text(text) => (!text.text.is_empty()).then(|| json!({"text": text.text})),
        Part::Media(media) => Some(medium(media, to)),
        Part::Opaque(opaque) => to.own(Some(opaque)).map(|fields| fields.clone().into()),
        _ => None,
    }
}

/// What Gemini said, or another model in its place.
fn said(message: &Message, to: To<'_>) -> Vec<Value> {
    let mut first = true;
    let part = |part: &Part| {
        let fields = to.own(part.opaque());
        Some(match part {
            Part::Text(text) if text.text.is_empty() && fields.is_none() => return None,
            Part::Text(text) => with(json!({"text": text.text}), fields),
            // What others thought is not Gemini's business.
            Part::Thinking(thinking) => with(
                json!({"text": thinking.text, "thought": true}),
                Some(fields?),
            ),
            Part::Media(media) => medium(media, to),
            Part::ToolCall(call) => {
                self::call(call, to.signs && std::mem::replace(&mut first, false), to)
            }
            Part::Opaque(_) => fields?.clone().into(),
            _ => return None,
        })
    };
    message.parts.iter().filter_map(part).collect()
}

fn call(call: &ToolCall, must_sign: bool, to: To<'_>) -> Value {
    let args = match (&call.raw, &call.args) {
        (Some(raw), _) => json!({"text": raw}),
        (None, Value::Object(args)) => args.clone().into(),
        (None, Value::Null) => json!({}),
        (None, other) => json!({"value": other}),
    };
    let part = json!({"functionCall": {"name": name(&call.name), "args": args}});
    let mut part = with(part, to.own(call.opaque.as_ref()));
    if must_sign && part.get("thoughtSignature").is_none() {
        part["thoughtSignature"] = UNSIGNED.into();
    }
    part
}

/// The tools' answers first, and then what they show, where an answer has no place for it.
fn answers(message: &Message, calls: Option<&Message>, to: To<'_>) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut seen = Vec::new();
    for result in message.results() {
        let call = calls.and_then(|calls| calls.calls().find(|call| call.id == result.call));
        let id = call.and_then(|call| id(call, to));
        let mut answer = json!({"name": name(&result.name), "response": response(result)});
        if let Some(id) = id {
            answer["id"] = id.clone();
        }
        let media = result.content.iter().filter_map(|content| match content {
            Content::Media(media) => Some(media),
            _ => None,
        });
        let (within, beside): (Vec<&Media>, Vec<&Media>) =
            media.partition(|media| to.signs && fits(media));
        if !within.is_empty() {
            answer["parts"] = within.into_iter().map(|media| medium(media, to)).collect();
        }
        if !beside.is_empty() {
            seen.push(json!({"text": format!("This is what `{}` returned:", result.name)}));
            seen.extend(beside.into_iter().map(|media| medium(media, to)));
        }
        parts.push(json!({ "functionResponse": answer }));
    }
    parts.extend(seen);
    parts
}

/// The name of a tool that was called, as Gemini takes it.
pub(super) fn name(name: &str) -> Cow<'_, str> {
    let name = names::tool(name, ".:");
    if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name
    } else {
        // Only the first of 64 characters may be lost: the name is of ASCII.
        format!("_{}", name.get(..name.len().min(63)).unwrap_or_default()).into()
    }
}

/// The id that Gemini gave a call, if it did.
fn id<'a>(call: &'a ToolCall, to: To<'_>) -> Option<&'a Value> {
    to.own(call.opaque.as_ref())?.get("functionCall")?.get("id")
}

/// Whether a medium can stand in an answer.
fn fits(media: &Media) -> bool {
    let kinds = [
        "image/png",
        "image/jpeg",
        "image/webp",
        "application/pdf",
        "text/plain",
    ];
    matches!(media.source, MediaSource::Bytes(_)) && kinds.contains(&&*media.mime)
}

/// What a tool answered. Gemini takes an object, in which `output` and `error` have a meaning of
/// their own.
fn response(result: &ToolResult) -> Value {
    let has_text = result
        .content
        .iter()
        .any(|content| matches!(content, Content::Text(_)));
    match &result.value {
        _ if result.is_error() => json!({"error": result.text()}),
        Some(Value::Object(map))
            if !has_text && !map.contains_key("output") && !map.contains_key("error") =>
        {
            map.clone().into()
        }
        Some(value) if !has_text => json!({ "output": value }),
        _ => json!({"output": result.text()}),
    }
}

fn medium(media: &Media, to: To<'_>) -> Value {
    let inline = |mime: &str, data: String| json!({"inlineData": {"mimeType": mime, "data": data}});
    let part = match &media.source {
        MediaSource::Bytes(bytes) => inline(&media.mime, STANDARD.encode(bytes.as_slice())),
        MediaSource::Url(url) => match data_url(url) {
            Some((mime, data)) => inline(
                if mime.is_empty() { &media.mime } else { mime },
                data.to_owned(),
            ),
            None if media.mime.is_empty() => json!({"fileData": {"fileUri": url}}),
            None => json!({"fileData": {"mimeType": media.mime, "fileUri": url}}),
        },
        _ => json!({"text": "(something that cannot be shown)"}),
    };
    with(part, to.own(media.opaque.as_ref()))
}

/// The type and the base64 in an address that holds its own content.
fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let mime = head.strip_suffix(";base64")?;
    Some((mime.split(';').next().unwrap_or_default(), data))
}

fn with(mut part: Value, fields: Option<&Fields>) -> Value {
    if let (Value::Object(part), Some(fields)) = (&mut part, fields) {
        merge(part, fields.clone());
    }
    part
}

/// `functionDeclarations`, as an item of `tools`.
pub(super) fn declarations(tools: &[std::sync::Arc<ToolSpec>]) -> Value {
    let declare = |tool: &std::sync::Arc<ToolSpec>| {
        let mut function = json!({"name": tool.name});
        if !tool.description.is_empty() {
            function["description"] = json!(tool.description);
        }
        if let Some(schema) = schema::gemini::parameters(&tool.input) {
            function["parametersJsonSchema"] = schema;
        }
        function
    };
    json!({"functionDeclarations": tools.iter().map(declare).collect::<Vec<_>>()})
}
