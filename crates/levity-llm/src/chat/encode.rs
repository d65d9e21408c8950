//! Requests, as the protocol has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{
    Content, Media, MediaSource, Message, Part, Request, Role, ToolCall, ToolResult, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::NAME;
use crate::body::{List, write};

pub(super) fn messages(request: &Request, recalls: bool, list: &mut List<'_>) {
    if let Some(system) = &request.system {
        list.item(&json!({"role": "system", "content": &**system}));
    }
    for (at, message) in request.history.messages().iter().enumerate() {
        let wire = if recalls { "openai_chat, with thoughts" } else { NAME };
        let json = request.history.encoded(at, wire, || encode(message, recalls));
        list.add(&json);
    }
}

/// A message as one item of the list or, where tools answer, several.
fn encode(message: &Message, recalls: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add = |value: &Value| {
        if !bytes.is_empty() {
            bytes.push(b',');
        }
        write(&mut bytes, value);
    };
    match message.role {
        Role::System => add(&json!({"role": "system", "content": message.text()})),
        Role::User => add(&json!({"role": "user", "content": content(&message.parts)})),
        Role::Assistant => add(&assistant(message, recalls)),
        Role::Tool => {
            message.results().for_each(|result| add(&answer(result)));
            // The protocol has no place for pictures in an answer, so the user shows them.
            let seen: Vec<Value> = message.results().flat_map(pictures).collect();
            if !seen.is_empty() {
                add(&json!({"role": "user", "content": seen}));
            }
        }
    }
    bytes
}

fn content(parts: &[Part]) -> Value {
    let only_text = parts.iter().all(|part| matches!(part, Part::Text(_)));
    if only_text {
        let text = parts.iter().map(|part| if let Part::Text(text) = part { &*text.text } else { "" });
        return Value::String(text.collect());
    }
    let piece = |part: &Part| match part {
        Part::Text(text) => Some(json!({"type": "text", "text": text.text})),
        Part::Media(media) => Some(picture(media)),
        _ => None,
    };
    Value::Array(parts.iter().filter_map(piece).collect())
}

fn picture(media: &Media) -> Value {
    let url = || match &media.source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Bytes(bytes) => {
            format!("data:{};base64,{}", media.mime, STANDARD.encode(bytes.as_slice()))
        }
        _ => String::new(),
    };
    match (&media.source, media.mime.split_once('/')) {
        (MediaSource::Bytes(bytes), Some(("audio", format))) => {
            let data = STANDARD.encode(bytes.as_slice());
            let format = format.strip_prefix("x-").unwrap_or(format);
            let format = if format == "mpeg" { "mp3" } else { format };
            json!({"type": "input_audio", "input_audio": {"data": data, "format": format}})
        }
        (_, Some(("image", _))) => json!({"type": "image_url", "image_url": {"url": url()}}),
        (MediaSource::Bytes(_), _) => {
            let name = media.name.as_deref().unwrap_or("file");
            json!({"type": "file", "file": {"filename": name, "file_data": url()}})
        }
        _ => json!({"type": "image_url", "image_url": {"url": url()}}),
    }
}

fn assistant(message: &Message, recalls: bool) -> Value {
    let mut object = Map::new();
    object.insert("role".into(), "assistant".into());
    let text = message.text();
    let calls: Vec<Value> = message.calls().map(call).collect();
    let silent = text.is_empty() && !calls.is_empty();
    object.insert("content".into(), if silent { Value::Null } else { text.into_owned().into() });
    let thoughts = message.thinking();
    if recalls && !thoughts.is_empty() {
        object.insert("reasoning_content".into(), thoughts.into_owned().into());
    }
    // What the server gave out with its reply goes back as it came.
    for part in &message.parts {
        let data = match part {
            Part::Thinking(thinking) => thinking.opaque.as_ref(),
            Part::Opaque(opaque) => Some(opaque),
            _ => None,
        };
        if let Some(Value::Object(fields)) = data.filter(|o| &*o.provider == NAME).map(|o| &*o.data) {
            object.extend(fields.clone());
        }
    }
    if !calls.is_empty() {
        object.insert("tool_calls".into(), calls.into());
    }
    Value::Object(object)
}

fn call(call: &ToolCall) -> Value {
    let arguments = call.raw.clone().unwrap_or_else(|| call.args.to_string());
    let mut object = json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    });
    let extra = call.opaque.as_ref().filter(|opaque| &*opaque.provider == NAME).map(|opaque| &*opaque.data);
    if let (Some(Value::Object(extra)), Value::Object(object)) = (extra, &mut object) {
        object.extend(extra.clone());
    }
    object
}

fn answer(result: &ToolResult) -> Value {
    json!({"role": "tool", "tool_call_id": result.call, "content": result.text()})
}

fn pictures(result: &ToolResult) -> impl Iterator<Item = Value> + '_ {
    result.content.iter().filter_map(|content| match content {
        Content::Media(media) => Some(picture(media)),
        _ => None,
    })
}

/// A tool, and whether the model is held to its schema. Servers that know nothing of that are not told.
pub(super) fn tool(spec: &ToolSpec, schema: &Value, strict: bool) -> Value {
    let mut function = json!({"name": spec.name, "description": spec.description, "parameters": schema});
    if let (true, Value::Object(function)) = (strict, &mut function) {
        function.insert("strict".to_owned(), Value::Bool(true));
    }
    json!({"type": "function", "function": function})
}
