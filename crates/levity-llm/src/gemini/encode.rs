//! Encodes requests for the Gemini API.
//!
//! Gemini has two roles, `user` and `model`, and matches results to calls by name, and by id if it
//! gave the call one. State of a part is merged into its JSON, so a signature ends up where it came
//! from.
//!
//! A signed call and its result are two messages:
//!
//! ```json
//! {"role": "model", "parts": [
//!     {"functionCall": {"name": "now", "args": {}}, "thoughtSignature": "CqQB.."}]},
//! {"role": "user", "parts": [
//!     {"functionResponse": {"name": "now", "response": {"output": "12:30"}}}]}
//! ```

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
use crate::origin::{Origin, StateScope};
use crate::{names, schema};

type Fields = Map<String, Value>;

/// Gemini's placeholder for the signature of a call that it did not make itself: newer models
/// reject a call without one.
const UNSIGNED: &str = "skip_thought_signature_validator";

/// Writes all messages. The cache key of a message depends on the family, because newer ones
/// require signatures.
pub(super) fn contents(request: &Request, family: Family, origin: &Origin, list: &mut List<'_>) {
    let wire = if family.requires_signatures() {
        "gemini, signed"
    } else {
        NAME
    };
    let target = Target {
        origin,
        requires_signatures: family.requires_signatures(),
    };
    let messages = request.history.messages();
    for (at, message) in messages.iter().enumerate() {
        // Results directly follow their calls in any history, so their cached encoding cannot
        // change.
        let calls = at
            .checked_sub(1)
            .and_then(|before| messages.get(before))
            .map(|calls| &**calls);
        let key = origin.key(wire, message, calls);
        let json = request
            .history
            .encoded(at, key, || encode(message, calls, target));
        list.add(&json);
    }
}

/// The server that receives the request.
#[derive(Clone, Copy)]
struct Target<'a> {
    origin: &'a Origin,
    /// True if calls require signatures, and results may contain images.
    requires_signatures: bool,
}

impl Target<'_> {
    /// Returns the fields of a part if they may be sent back: Google does not document who else can
    /// read a signature.
    fn own<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Fields> {
        self.origin
            .data(NAME, opaque, StateScope::Account)?
            .as_object()
    }
}

/// Encodes a message; empty if no part of it can be sent. `calls` is the message before, which has
/// the calls that results belong to.
fn encode(message: &Message, calls: Option<&Message>, target: Target<'_>) -> Vec<u8> {
    let parts = match message.role {
        Role::Assistant => model_parts(message, target),
        Role::Tool => answers(message, calls, target),
        Role::System | Role::User => message
            .parts
            .iter()
            .filter_map(|part| user_part(part, target))
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

/// Encodes a part of a user message.
///
/// State of this protocol is sent as a part of its own, such as a file in Google's storage.
fn user_part(part: &Part, target: Target<'_>) -> Option<Value> {
    match part {
        // Vertex AI rejects an empty text.
        Part::Text(text) => (!text.text.is_empty()).then(|| json!({"text": text.text})),
        Part::Media(media) => Some(media_part(media, target)),
        Part::Opaque(opaque) => target.own(Some(opaque)).map(|fields| fields.clone().into()),
        _ => None,
    }
}

/// Encodes a message of Gemini or of another model.
///
/// Only the first call of a message needs a signature; Gemini signs parallel calls once.
fn model_parts(message: &Message, target: Target<'_>) -> Vec<Value> {
    let mut first = true;
    let part = |part: &Part| {
        let fields = target.own(part.opaque());
        Some(match part {
            Part::Text(text) if text.text.is_empty() && fields.is_none() => return None,
            Part::Text(text) => with(json!({"text": text.text}), fields),
            // Thoughts of other models are omitted.
            Part::Thinking(thinking) => with(
                json!({"text": thinking.text, "thought": true}),
                Some(fields?),
            ),
            Part::Media(media) => media_part(media, target),
            Part::ToolCall(call) => self::call(
                call,
                target.requires_signatures && std::mem::replace(&mut first, false),
                target,
            ),
            Part::Opaque(_) => fields?.clone().into(),
            _ => return None,
        })
    };
    message.parts.iter().filter_map(part).collect()
}

/// Encodes a call. Arguments that are not an object are wrapped: text as `{"text": ..}`, other
/// values as `{"value": ..}`.
fn call(call: &ToolCall, must_sign: bool, target: Target<'_>) -> Value {
    let args = match (&call.raw, &call.args) {
        (Some(raw), _) => json!({"text": raw}),
        (None, Value::Object(args)) => args.clone().into(),
        (None, Value::Null) => json!({}),
        (None, other) => json!({"value": other}),
    };
    let part = json!({"functionCall": {"name": name(&call.name), "args": args}});
    let mut part = with(part, target.own(call.opaque.as_ref()));
    if must_sign && part.get("thoughtSignature").is_none() {
        part["thoughtSignature"] = UNSIGNED.into();
    }
    part
}

/// Encodes the tool results, followed by media that do not fit into a result.
///
/// Gemini 3 accepts images, PDF and text within a result. For older models, and for other media, a
/// sentence that names the tool introduces them behind the results.
fn answers(message: &Message, calls: Option<&Message>, target: Target<'_>) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut seen = Vec::new();
    for result in message.results() {
        let call = calls.and_then(|calls| calls.calls().find(|call| call.id == result.call));
        let id = call.and_then(|call| id(call, target));
        let mut answer = json!({"name": name(&result.name), "response": response(result)});
        if let Some(id) = id {
            answer["id"] = id.clone();
        }
        let media = result.content.iter().filter_map(|content| match content {
            Content::Media(media) => Some(media),
            _ => None,
        });
        let (within, separate): (Vec<&Media>, Vec<&Media>) =
            media.partition(|media| target.requires_signatures && fits(media));
        if !within.is_empty() {
            answer["parts"] = within
                .into_iter()
                .map(|media| media_part(media, target))
                .collect();
        }
        if !separate.is_empty() {
            seen.push(json!({"text": format!("This is what `{}` returned:", result.name)}));
            seen.extend(separate.into_iter().map(|media| media_part(media, target)));
        }
        parts.push(json!({ "functionResponse": answer }));
    }
    parts.extend(seen);
    parts
}

/// Returns a valid form of a called tool's name.
///
/// A name must start with a letter or `_`; `7zip` becomes `_7zip`. Dots and colons are allowed.
pub(super) fn name(name: &str) -> Cow<'_, str> {
    let name = names::tool(name, ".:");
    if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name
    } else {
        // Only the first of 64 characters may be lost, because the name is ASCII.
        format!("_{}", name.get(..name.len().min(63)).unwrap_or_default()).into()
    }
}

/// Returns the id that Gemini gave a call, if any.
fn id<'a>(call: &'a ToolCall, target: Target<'_>) -> Option<&'a Value> {
    target
        .own(call.opaque.as_ref())?
        .get("functionCall")?
        .get("id")
}

/// Returns `true` if a media item can be part of a result.
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

/// Encodes the result of a tool. Gemini accepts an object, in which `output` and `error` have a
/// special meaning.
///
/// A value that is an object is sent as it is, unless it has such a key; then it is wrapped in
/// `output`.
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

/// Encodes media as data, or as a URL for Google to fetch. A `data:` URL is sent as data.
fn media_part(media: &Media, target: Target<'_>) -> Value {
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
    with(part, target.own(media.opaque.as_ref()))
}

/// Returns the type and the base64 data of a `data:` URL.
fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let mime = head.strip_suffix(";base64")?;
    Some((mime.split(';').next().unwrap_or_default(), data))
}

/// Merges the state of a part into its JSON; fields of the state win.
fn with(mut part: Value, fields: Option<&Fields>) -> Value {
    if let (Value::Object(part), Some(fields)) = (&mut part, fields) {
        merge(part, fields.clone());
    }
    part
}

/// Returns the `functionDeclarations`, as an item of `tools`.
///
/// A tool without arguments has no schema, because the API rejects an object without properties.
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
