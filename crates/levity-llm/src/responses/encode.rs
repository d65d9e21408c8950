//! Requests, as the protocol has them: a list of items.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{
    CallId, Content, Media, MediaSource, Message, Part, ProviderState, Request, Role, Text,
    ToolCall, ToolResult,
};
use serde_json::{Map, Value, json};

use super::{IMAGE, LATER, NAME};
use crate::body::{List, write};
use crate::origin::{Bound, Origin};
use crate::{names, unseen};

pub(super) fn input(request: &Request, stored: bool, origin: &Origin, list: &mut List<'_>) {
    let wire = if stored {
        "openai_responses, stored"
    } else {
        NAME
    };
    let to = To { origin, stored };
    let messages = request.history.messages();
    for (at, message) in messages.iter().enumerate() {
        let before = at
            .checked_sub(1)
            .and_then(|before| messages.get(before))
            .map(|before| &**before);
        let json = request
            .history
            .encoded(at, origin.key(wire, message, before), || {
                encode(message, before, to)
            });
        list.add(&json);
    }
}

/// Who is told.
#[derive(Clone, Copy)]
struct To<'a> {
    origin: &'a Origin,
    /// Whether the server keeps replies.
    stored: bool,
}

impl To<'_> {
    /// The data in this, if it is of this protocol and may go back. Sealed reasoning is refused by
    /// any other organisation (`invalid_encrypted_content`), and ids are known only where they were
    /// given out.
    fn own<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Value> {
        self.origin.data(NAME, opaque, Bound::Account)
    }
}

/// The type of the first media that the protocol has no place for. In answers of tools, words stand
/// for them.
pub(super) fn foreign_media(request: &Request) -> Option<&str> {
    // What another model showed is put into words.
    let told = request
        .history
        .messages()
        .iter()
        .filter(|message| message.role != Role::Assistant);
    let mut parts = told.flat_map(|message| &message.parts);
    parts.find_map(|part| match part {
        Part::Media(media) if is_foreign(media) => Some(&*media.mime),
        _ => None,
    })
}

fn is_foreign(media: &Media) -> bool {
    ["audio/", "video/"]
        .iter()
        .any(|kind| media.mime.starts_with(kind))
}

/// A message as items. Answers of tools depend on the calls, which are in the message before.
fn encode(message: &Message, before: Option<&Message>, to: To<'_>) -> Vec<u8> {
    let mut items = Items::default();
    match message.role {
        Role::System => told("system", message, to, &mut items),
        Role::User => told("user", message, to, &mut items),
        Role::Assistant => assistant(message, to, &mut items),
        Role::Tool => message
            .results()
            .for_each(|result| items.add(&answer(result, before, to))),
    }
    items.0
}

/// Items with commas between them.
#[derive(Default)]
struct Items(Vec<u8>);

impl Items {
    fn add(&mut self, item: &Value) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        write(&mut self.0, item);
    }
}

/// What the model is told, unless nothing of it can be: an empty list is refused.
fn told(role: &str, message: &Message, to: To<'_>, items: &mut Items) {
    if let [Part::Text(text)] = &*message.parts {
        return items.add(&json!({"role": role, "content": text.text}));
    }
    let content = content(&message.parts, to);
    if !content.is_empty() {
        items.add(&json!({"role": role, "content": content}));
    }
}

fn content(parts: &[Part], to: To<'_>) -> Vec<Value> {
    let piece = |part: &Part| match part {
        Part::Text(text) => Some(json!({"type": "input_text", "text": text.text})),
        Part::Media(media) => Some(shown(media)),
        Part::Opaque(opaque) => to.own(Some(opaque)).cloned(),
        _ => None,
    };
    parts.iter().filter_map(piece).collect()
}

fn shown(media: &Media) -> Value {
    let is_image = media.mime.starts_with("image/");
    let kind = if is_image {
        "input_image"
    } else {
        "input_file"
    };
    match &media.source {
        // What was uploaded before has an id.
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

/// A file that is here.
fn file(media: &Media, data: &str) -> Value {
    let name = media
        .name
        .as_deref()
        .map_or_else(|| file_name(&media.mime), Cow::Borrowed);
    json!({"type": "input_file", "filename": name, "file_data": data})
}

fn file_name(mime: &str) -> Cow<'static, str> {
    match mime.rsplit('/').next() {
        Some(kind) if kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            format!("file.{kind}").into()
        }
        _ => "file".into(),
    }
}

fn assistant(message: &Message, to: To<'_>, items: &mut Items) {
    // Where nothing is stored, a thought that is only an id leads nowhere, and what belongs to it
    // goes without ids.
    let forgotten = !to.stored && message.parts.iter().any(|part| is_bare_thought(part, to));
    let mut said = Said::default();
    let mut later = message
        .parts
        .iter()
        .filter_map(|part| later_thoughts(part, to))
        .flatten();
    for part in &message.parts {
        match part {
            Part::Text(text) => said.text(text, to.own(text.opaque.as_ref()), forgotten, items),
            Part::Thinking(thinking) => {
                let Some(item) = to.own(thinking.opaque.as_ref()) else {
                    continue;
                };
                let item = later
                    .next()
                    .filter(|later| later.is_object())
                    .unwrap_or(item);
                if to.stored || !is_bare(item) {
                    said.item(item, items);
                }
            }
            Part::Opaque(_) if later_thoughts(part, to).is_some() => {}
            Part::ToolCall(call) => said.item(&asked(call, forgotten, to), items),
            Part::Opaque(opaque) => {
                if let Some(item) = to.own(Some(opaque)) {
                    said.item(item, items);
                }
            }
            Part::Media(media) if is_foreign(media) => {
                said.text(&Text::new(unseen::words(media)), None, forgotten, items);
            }
            // A model shows nothing in this protocol, so the user does.
            Part::Media(media) => match drawn(media, to) {
                Some(item) => said.item(&item, items),
                None => said.item(&json!({"role": "user", "content": [shown(media)]}), items),
            },
            _ => {}
        }
    }
    said.flush(items);
}

/// The item that a picture of the model's came as.
fn drawn(media: &Media, to: To<'_>) -> Option<Value> {
    let item = to
        .own(media.opaque.as_ref())
        .filter(|item| item.get("type").is_some_and(|kind| kind == IMAGE))?;
    let MediaSource::Bytes(bytes) = &media.source else {
        return None;
    };
    let mut item = item.clone();
    item["result"] = STANDARD.encode(bytes.as_slice()).into();
    Some(item)
}

/// The thoughts of a message as the end of the reply had them.
fn later_thoughts<'a>(part: &'a Part, to: To<'_>) -> Option<&'a Vec<Value>> {
    let Part::Opaque(opaque) = part else {
        return None;
    };
    to.own(Some(opaque))?.get(LATER)?.as_array()
}

fn is_bare_thought(part: &Part, to: To<'_>) -> bool {
    let Part::Thinking(thinking) = part else {
        return false;
    };
    to.own(thinking.opaque.as_ref()).is_some_and(is_bare)
}

/// Whether a thought is only an id, and perhaps a summary.
fn is_bare(item: &Value) -> bool {
    let has = |name: &str| match item.get(name) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        _ => false,
    };
    !has("encrypted_content") && !has("content")
}

/// What the model says, one message of the provider's at a time.
#[derive(Default)]
struct Said {
    /// The fields of the message's own, and what is in it.
    item: Map<String, Value>,
    content: Vec<Value>,
}

impl Said {
    fn text(&mut self, text: &Text, data: Option<&Value>, forgotten: bool, items: &mut Items) {
        if data.is_none() && text.text.is_empty() {
            return;
        }
        let fields = |name: &str| {
            data.and_then(|data| data.get(name)?.as_object())
                .cloned()
                .unwrap_or_default()
        };
        let mut item = fields("item");
        if forgotten {
            item.shift_remove("id");
        }
        if item != self.item {
            self.flush(items);
            self.item = item;
        }
        self.content.push(spoken(&text.text, fields("part")));
    }

    fn item(&mut self, item: &Value, items: &mut Items) {
        self.flush(items);
        items.add(item);
    }

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

/// A piece of a message, with the fields of its own that it came with.
fn spoken(text: &str, fields: Map<String, Value>) -> Value {
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

fn is_custom(call: &ToolCall, to: To<'_>) -> bool {
    let data = to.own(call.opaque.as_ref());
    data.and_then(|data| data.get("type"))
        .is_some_and(|kind| kind == "custom_tool_call")
}

fn asked(call: &ToolCall, forgotten: bool, to: To<'_>) -> Value {
    let data = to.own(call.opaque.as_ref());
    let mut item = Map::new();
    item.insert("type".to_owned(), "function_call".into());
    item.insert(
        "call_id".to_owned(),
        call_id(&call.id, data.is_some()).into(),
    );
    item.insert("name".to_owned(), names::tool(&call.name, "").into());
    let text = || call.raw.clone().unwrap_or_else(|| call.args.to_string());
    if is_custom(call, to) {
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
    if forgotten {
        item.shift_remove("id");
    }
    Value::Object(item)
}

fn answer(result: &ToolResult, before: Option<&Message>, to: To<'_>) -> Value {
    let call = before.and_then(|before| before.calls().find(|call| call.id == result.call));
    let custom = call.is_some_and(|call| is_custom(call, to));
    let kind = if custom {
        "custom_tool_call_output"
    } else {
        "function_call_output"
    };
    let id = call_id(
        &result.call,
        call.is_some_and(|call| to.own(call.opaque.as_ref()).is_some()),
    );
    let is_text = |content: &Content| matches!(content, Content::Text(_));
    if result.content.iter().all(is_text) {
        return json!({"type": kind, "call_id": id, "output": result.text()});
    }
    let piece = |content: &Content| match content {
        Content::Media(media) if unseen::openai_takes(media) => shown(media),
        Content::Media(media) => json!({"type": "input_text", "text": unseen::words(media)}),
        Content::Text(text) => json!({"type": "input_text", "text": text}),
        _ => json!({"type": "input_text", "text": ""}),
    };
    let mut output: Vec<Value> = result.content.iter().map(piece).collect();
    // What is shown stands beside the value, and not in its place.
    if let Some(value) = result
        .value
        .as_ref()
        .filter(|_| !result.content.iter().any(is_text))
    {
        output.insert(0, json!({"type": "input_text", "text": value.to_string()}));
    }
    json!({"type": kind, "call_id": id, "output": output})
}

/// A call's id. One of another provider's may be longer than is taken here.
fn call_id(id: &CallId, is_own: bool) -> Cow<'_, str> {
    let id = Cow::Borrowed(id.as_str());
    if is_own { id } else { names::id(id) }
}
