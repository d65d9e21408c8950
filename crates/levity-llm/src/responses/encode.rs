//! Encodes requests as the protocol's list of items.
//!
//! Each message becomes zero or more items. Items from this API are sent back as they came, with
//! their ids; content of other models is sent in the plain form that the API accepts from anyone.
//!
//! A thought, the call that followed from it and the result are three items:
//!
//! ```json
//! {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA.."},
//! {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}", "id": "fc_1"},
//! {"type": "function_call_output", "call_id": "c1", "output": "12:30"}
//! ```
//!
//! A thought without encrypted content is an id that only a storing server knows. Without storage
//! it is omitted, and the items that belong to it lose their ids, because the API rejects an item
//! whose reasoning is missing.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{
    CallId, Content, Media, MediaSource, Message, Part, ProviderState, Request, Role, Text,
    ToolCall, ToolResult,
};
use serde_json::{Map, Value, json};

use super::{IMAGE, LATER_THOUGHTS, NAME};
use crate::body::{List, write};
use crate::origin::{Origin, StateScope};
use crate::{names, omitted_media};

/// Writes all items of a conversation. The form depends on storage, so it is part of the cache key.
pub(super) fn input(request: &Request, stored: bool, origin: &Origin, list: &mut List<'_>) {
    let wire = if stored {
        "openai_responses, stored"
    } else {
        NAME
    };
    let target = Target { origin, stored };
    let messages = request.history.messages();
    for (at, message) in messages.iter().enumerate() {
        let before = at
            .checked_sub(1)
            .and_then(|before| messages.get(before))
            .map(|before| &**before);
        let json = request
            .history
            .encoded(at, origin.key(wire, message, before), || {
                encode(message, before, target)
            });
        list.add(&json);
    }
}

/// The server that receives the request.
///
/// Without storage, ids of items mean nothing to the server.
#[derive(Clone, Copy)]
struct Target<'a> {
    origin: &'a Origin,
    /// True if the server stores replies.
    stored: bool,
}

impl Target<'_> {
    /// Returns this protocol's state if it may be sent back. Any other organisation's server
    /// rejects encrypted reasoning (`invalid_encrypted_content`), and ids are known only to the
    /// server that issued them.
    fn own<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Value> {
        self.origin.data(NAME, opaque, StateScope::Account)
    }
}

/// Returns the type of the first media that the protocol does not support. In tool results, text
/// replaces such media.
pub(super) fn unsupported_media(request: &Request) -> Option<&str> {
    // Media from another model become text.
    let messages = request
        .history
        .messages()
        .iter()
        .filter(|message| message.role != Role::Assistant);
    let mut parts = messages.flat_map(|message| &message.parts);
    parts.find_map(|part| match part {
        Part::Media(media) if is_unsupported(media) => Some(&*media.mime),
        _ => None,
    })
}

/// Returns `true` for audio and video, which this protocol does not accept.
fn is_unsupported(media: &Media) -> bool {
    ["audio/", "video/"]
        .iter()
        .any(|kind| media.mime.starts_with(kind))
}

/// Encodes a message as items. Tool results depend on their calls, which are in the message before.
fn encode(message: &Message, before: Option<&Message>, target: Target<'_>) -> Vec<u8> {
    let mut items = Items::default();
    match message.role {
        Role::System => write_message("system", message, target, &mut items),
        Role::User => write_message("user", message, target, &mut items),
        Role::Assistant => assistant(message, target, &mut items),
        Role::Tool => message
            .results()
            .for_each(|result| items.add(&answer(result, before, target))),
    }
    items.0
}

/// Items separated by commas.
#[derive(Default)]
struct Items(Vec<u8>);

impl Items {
    /// Appends an item, with a comma before all but the first.
    fn add(&mut self, item: &Value) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        write(&mut self.0, item);
    }
}

/// Writes a message to the model, unless it is empty: an empty list is rejected.
fn write_message(role: &str, message: &Message, target: Target<'_>, items: &mut Items) {
    if let [Part::Text(text)] = &*message.parts {
        return items.add(&json!({"role": role, "content": text.text}));
    }
    let content = content(&message.parts, target);
    if !content.is_empty() {
        items.add(&json!({"role": role, "content": content}));
    }
}

/// Encodes the parts of a message to the model; thoughts and calls cannot occur there.
fn content(parts: &[Part], target: Target<'_>) -> Vec<Value> {
    let piece = |part: &Part| match part {
        Part::Text(text) => Some(json!({"type": "input_text", "text": text.text})),
        Part::Media(media) => Some(media_part(media)),
        Part::Opaque(opaque) => target.own(Some(opaque)).cloned(),
        _ => None,
    };
    parts.iter().filter_map(piece).collect()
}

/// Encodes media. The URL `file-..` is taken as the id of an uploaded file.
fn media_part(media: &Media) -> Value {
    let is_image = media.mime.starts_with("image/");
    let kind = if is_image {
        "input_image"
    } else {
        "input_file"
    };
    match &media.source {
        // Uploaded files have an id.
        MediaSource::Url(id) if id.starts_with("file-") => json!({"type": kind, "file_id": id}),
        MediaSource::Url(url) if is_image => json!({"type": kind, "image_url": url}),
        MediaSource::Url(url) if url.starts_with("data:") => file(media, url),
        MediaSource::Url(url) => json!({"type": kind, "file_url": url}),
        MediaSource::Bytes(bytes) => {
            let data = format!(
                "data:{};base64,{}",
                media.mime,
                STANDARD.encode(bytes.as_slice())
            );
            if is_image {
                json!({"type": kind, "image_url": data})
            } else {
                file(media, &data)
            }
        }
        _ => json!({"type": "input_text", "text": ""}),
    }
}

/// Returns a file with its data.
fn file(media: &Media, data: &str) -> Value {
    let name = media
        .name
        .as_deref()
        .map_or_else(|| file_name(&media.mime), Cow::Borrowed);
    json!({"type": "input_file", "filename": name, "file_data": data})
}

/// Returns a name for a file without one, such as `file.pdf` for `application/pdf`.
fn file_name(mime: &str) -> Cow<'static, str> {
    match mime.rsplit('/').next() {
        Some(kind) if kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            format!("file.{kind}").into()
        }
        _ => "file".into(),
    }
}

/// Encodes a reply of a model as items, in the order of its parts.
fn assistant(message: &Message, target: Target<'_>, items: &mut Items) {
    // Without storage, a thought that is only an id is invalid, and its related items are sent
    // without ids.
    let without_ids = !target.stored
        && message
            .parts
            .iter()
            .any(|part| is_bare_thought(part, target));
    let mut message_writer = AssistantMessage::default();
    let mut later = message
        .parts
        .iter()
        .filter_map(|part| later_thoughts(part, target))
        .flatten();
    for part in &message.parts {
        match part {
            Part::Text(text) => {
                message_writer.text(text, target.own(text.opaque.as_ref()), without_ids, items);
            }
            Part::Thinking(thinking) => {
                let Some(item) = target.own(thinking.opaque.as_ref()) else {
                    continue;
                };
                let item = later
                    .next()
                    .filter(|later| later.is_object())
                    .unwrap_or(item);
                if target.stored || !is_bare(item) {
                    message_writer.item(item, items);
                }
            }
            Part::Opaque(_) if later_thoughts(part, target).is_some() => {}
            Part::ToolCall(call) => {
                message_writer.item(&call_item(call, without_ids, target), items);
            }
            Part::Opaque(opaque) => {
                if let Some(item) = target.own(Some(opaque)) {
                    message_writer.item(item, items);
                }
            }
            Part::Media(media) if is_unsupported(media) => {
                message_writer.text(
                    &Text::new(omitted_media::description(media)),
                    None,
                    without_ids,
                    items,
                );
            }
            // The model's messages contain no media in this protocol, so a user message does.
            Part::Media(media) => match image_item(media, target) {
                Some(item) => message_writer.item(&item, items),
                None => message_writer.item(
                    &json!({"role": "user", "content": [media_part(media)]}),
                    items,
                ),
            },
            _ => {}
        }
    }
    message_writer.flush(items);
}

/// Returns the item from which an image of the model was created.
fn image_item(media: &Media, target: Target<'_>) -> Option<Value> {
    let item = target
        .own(media.opaque.as_ref())
        .filter(|item| item.get("type").is_some_and(|kind| kind == IMAGE))?;
    let MediaSource::Bytes(bytes) = &media.source else {
        return None;
    };
    let mut item = item.clone();
    item["result"] = STANDARD.encode(bytes.as_slice()).into();
    Some(item)
}

/// Returns the thoughts of a message as the end of the reply repeated them.
fn later_thoughts<'a>(part: &'a Part, target: Target<'_>) -> Option<&'a Vec<Value>> {
    let Part::Opaque(opaque) = part else {
        return None;
    };
    target.own(Some(opaque))?.get(LATER_THOUGHTS)?.as_array()
}

/// Returns `true` if a part is a thought that only the server's storage can complete.
fn is_bare_thought(part: &Part, target: Target<'_>) -> bool {
    let Part::Thinking(thinking) = part else {
        return false;
    };
    target.own(thinking.opaque.as_ref()).is_some_and(is_bare)
}

/// Returns `true` if a thought is only an id, and perhaps a summary.
fn is_bare(item: &Value) -> bool {
    let has = |name: &str| match item.get(name) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        _ => false,
    };
    !has("encrypted_content") && !has("content")
}

/// The model's messages in the provider's format, one at a time.
///
/// Texts that belong to one message of the provider are collected, and written when another item
/// starts.
#[derive(Default)]
struct AssistantMessage {
    /// The message's own fields and its content.
    item: Map<String, Value>,
    content: Vec<Value>,
}

impl AssistantMessage {
    /// Adds text. A text of another message ends the current one.
    fn text(&mut self, text: &Text, data: Option<&Value>, without_ids: bool, items: &mut Items) {
        if data.is_none() && text.text.is_empty() {
            return;
        }
        let fields = |name: &str| {
            data.and_then(|data| data.get(name)?.as_object())
                .cloned()
                .unwrap_or_default()
        };
        let mut item = fields("item");
        if without_ids {
            item.shift_remove("id");
        }
        if item != self.item {
            self.flush(items);
            self.item = item;
        }
        self.content.push(content_part(&text.text, fields("part")));
    }

    /// Ends the current message and adds an item behind it.
    fn item(&mut self, item: &Value, items: &mut Items) {
        self.flush(items);
        items.add(item);
    }

    /// Writes the current message, if it has content.
    fn flush(&mut self, items: &mut Items) {
        let item = std::mem::take(&mut self.item);
        if self.content.is_empty() {
            return;
        }
        let mut message = Map::new();
        message.insert("type".to_owned(), "message".into());
        message.insert("role".to_owned(), "assistant".into());
        if item.contains_key("id") {
            message.insert("status".to_owned(), "completed".into());
        }
        message.extend(item);
        message.insert(
            "content".to_owned(),
            std::mem::take(&mut self.content).into(),
        );
        items.add(&Value::Object(message));
    }
}

/// Returns a content part of a message, with its original fields.
fn content_part(text: &str, fields: Map<String, Value>) -> Value {
    let is_refusal = fields.get("type").is_some_and(|kind| kind == "refusal");
    let mut piece = if is_refusal {
        json!({"type": "refusal", "refusal": text})
    } else {
        json!({"type": "output_text", "text": text, "annotations": []})
    };
    if let Value::Object(piece) = &mut piece {
        piece.extend(fields);
    }
    piece
}

/// Returns `true` if a call is of a custom tool, whose input is free text.
fn is_custom(call: &ToolCall, target: Target<'_>) -> bool {
    let data = target.own(call.opaque.as_ref());
    data.and_then(|data| data.get("type"))
        .is_some_and(|kind| kind == "custom_tool_call")
}

/// Encodes a call. Fields of the original item win over those that levity derives.
fn call_item(call: &ToolCall, without_ids: bool, target: Target<'_>) -> Value {
    let data = target.own(call.opaque.as_ref());
    let mut item = Map::new();
    item.insert("type".to_owned(), "function_call".into());
    item.insert(
        "call_id".to_owned(),
        call_id(&call.id, data.is_some()).into(),
    );
    item.insert("name".to_owned(), names::tool(&call.name, "").into());
    let text = || call.raw.clone().unwrap_or_else(|| call.args.to_string());
    if is_custom(call, target) {
        item.insert(
            "input".to_owned(),
            call.args.as_str().map_or_else(text, str::to_owned).into(),
        );
    } else {
        item.insert("arguments".to_owned(), text().into());
    }
    item.extend(
        data.and_then(Value::as_object)
            .cloned()
            .into_iter()
            .flatten(),
    );
    if without_ids {
        item.shift_remove("id");
    }
    Value::Object(item)
}

/// Encodes a tool result, in the form that fits its call.
fn answer(result: &ToolResult, before: Option<&Message>, target: Target<'_>) -> Value {
    let call = before.and_then(|before| before.calls().find(|call| call.id == result.call));
    let custom = call.is_some_and(|call| is_custom(call, target));
    let kind = if custom {
        "custom_tool_call_output"
    } else {
        "function_call_output"
    };
    let id = call_id(
        &result.call,
        call.is_some_and(|call| target.own(call.opaque.as_ref()).is_some()),
    );
    let is_text = |content: &Content| matches!(content, Content::Text(_));
    if result.content.iter().all(is_text) {
        return json!({"type": kind, "call_id": id, "output": result.text()});
    }
    let piece = |content: &Content| match content {
        Content::Media(media) if omitted_media::openai_accepts(media) => media_part(media),
        Content::Media(media) => {
            json!({"type": "input_text", "text": omitted_media::description(media)})
        }
        Content::Text(text) => json!({"type": "input_text", "text": text}),
        _ => json!({"type": "input_text", "text": ""}),
    };
    let mut output: Vec<Value> = result.content.iter().map(piece).collect();
    // Media accompany the value and do not replace it.
    if let Some(value) = result
        .value
        .as_ref()
        .filter(|_| !result.content.iter().any(is_text))
    {
        output.insert(0, json!({"type": "input_text", "text": value.to_string()}));
    }
    json!({"type": kind, "call_id": id, "output": output})
}

/// Returns a call's id. An id from another provider may be too long here.
fn call_id(id: &CallId, is_own: bool) -> Cow<'_, str> {
    let id = Cow::Borrowed(id.as_str());
    if is_own { id } else { names::id(id) }
}
