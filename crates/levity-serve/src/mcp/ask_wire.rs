//! Converts questions for clients to the protocol, and parses the responses.
//!
//! All functions are pure. Requests are written as JSON and then parsed by the protocol's library.
//! Anything that the protocol does not support is thereby found before it is sent. Responses are
//! untrusted and parsed field by field.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levity_core::{
    Content, Finish, Media, MediaSource, Message, Part, Role, ToolCall, ToolChoice, ToolSpec,
};
use levity_mcp::{ElicitForm, ElicitReply, ElicitUrl, SampleReply, SampleRequest};
use levity_rpc::mcp::InputRequest;
use serde_json::{Map, Value, json};

use super::ask::{AskError, AskErrorKind, Root};

pub(super) fn form(form: &ElicitForm) -> Result<InputRequest, AskError> {
    let params = json!({"mode": "form", "message": form.message, "requestedSchema": form.schema});
    request("elicitation/create", &params)
}

pub(super) fn url(url: &ElicitUrl) -> Result<InputRequest, AskError> {
    let params =
        json!({"mode": "url", "message": url.message, "url": url.url, "elicitationId": url.id});
    request("elicitation/create", &params)
}

pub(super) fn roots() -> Result<InputRequest, AskError> {
    request("roots/list", &json!({}))
}

pub(super) fn sample(ask: &SampleRequest) -> Result<InputRequest, AskError> {
    let messages: Vec<Value> = ask
        .messages
        .iter()
        .map(|message| message_json(message))
        .collect();
    let mut params = Map::new();
    params.insert("messages".into(), messages.into());
    params.insert("maxTokens".into(), ask.max_tokens.into());
    params.extend(
        ask.system
            .as_ref()
            .map(|system| ("systemPrompt".to_owned(), json!(system))),
    );
    params.extend(
        ask.temperature
            .map(|warm| ("temperature".to_owned(), json!(warm))),
    );
    if !ask.stop.is_empty() {
        params.insert("stopSequences".into(), json!(ask.stop));
    }
    if !ask.hints.is_empty() {
        let hints: Vec<Value> = ask
            .hints
            .iter()
            .map(|name| json!({ "name": name }))
            .collect();
        params.insert("modelPreferences".into(), json!({ "hints": hints }));
    }
    if !ask.tools.is_empty() {
        params.insert(
            "tools".into(),
            ask.tools.iter().map(|tool| tool_json(tool)).collect(),
        );
        params.insert("toolChoice".into(), choice_json(&ask.tool_choice));
    }
    request("sampling/createMessage", &Value::Object(params))
}

/// Fails with [`AskErrorKind::Invalid`] if the protocol does not support the content, for example a
/// nested form.
fn request(method: &str, params: &Value) -> Result<InputRequest, AskError> {
    serde_json::from_value(json!({"method": method, "params": params})).map_err(|_| {
        let message =
            format!("cannot send `{method}` with this content: the protocol does not support it");
        AskError::new(AskErrorKind::Invalid, message)
    })
}

fn tool_json(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "inputSchema": tool.input})
}

/// The protocol cannot demand one certain tool, so that becomes "any tool".
fn choice_json(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => json!({"mode": "none"}),
        ToolChoice::Required | ToolChoice::Tool(_) => json!({"mode": "required"}),
        _ => json!({"mode": "auto"}),
    }
}

fn message_json(message: &Message) -> Value {
    let role = if message.role == Role::Assistant {
        "assistant"
    } else {
        "user"
    };
    let mut blocks: Vec<Value> = message.parts.iter().filter_map(block_json).collect();
    // Clients of older versions support only one block.
    let content = if blocks.len() == 1 {
        blocks.swap_remove(0)
    } else {
        Value::Array(blocks)
    };
    json!({"role": role, "content": content})
}

/// Parts without an equivalent, such as reasoning, are left out.
fn block_json(part: &Part) -> Option<Value> {
    match part {
        Part::Text(text) => Some(json!({"type": "text", "text": text.text})),
        Part::Media(media) => media_json(media),
        Part::ToolCall(call) => {
            let input = if call.args.is_object() {
                call.args.clone()
            } else {
                json!({})
            };
            Some(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}))
        }
        Part::ToolResult(result) => {
            let piece = |content: &Content| match content {
                Content::Media(media) => media_json(media),
                Content::Text(text) => Some(json!({"type": "text", "text": text})),
                _ => None,
            };
            let mut content: Vec<Value> = result.content.iter().filter_map(piece).collect();
            if content.is_empty() {
                content.push(json!({"type": "text", "text": result.text()}));
            }
            let failed = result.is_error();
            Some(json!({
                "type": "tool_result",
                "toolUseId": result.call,
                "content": content,
                "isError": failed,
            }))
        }
        _ => None,
    }
}

/// Only images and audio with their bytes can be sampled; URLs and documents are left out.
fn media_json(media: &Media) -> Option<Value> {
    let MediaSource::Bytes(bytes) = &media.source else {
        return None;
    };
    let kind = if media.mime.starts_with("audio/") {
        "audio"
    } else {
        "image"
    };
    let data = STANDARD.encode(bytes.as_slice());
    (kind == "audio" || media.mime.starts_with("image/"))
        .then(|| json!({"type": kind, "mimeType": media.mime, "data": data}))
}

/// Parses a user's response to a form. Accepted content matches the form.
pub(super) fn parse_elicit(
    form: Option<&ElicitForm>,
    answer: &Value,
) -> Result<ElicitReply, AskError> {
    match answer.get("action").and_then(Value::as_str) {
        Some("accept") => {
            let content = answer
                .get("content")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            let filled = match form {
                Some(form) => form.complete(content),
                None => Ok(Map::new()),
            };
            let wrong = |flaws: Vec<String>| {
                format!("the response does not match the form: {}", flaws.join(", "))
            };
            filled
                .map(ElicitReply::Accept)
                .map_err(|flaws| AskError::bad(wrong(flaws)))
        }
        Some("decline") => Ok(ElicitReply::Decline),
        Some("cancel") => Ok(ElicitReply::Cancel),
        _ => Err(AskError::bad(
            "the response to a form must be `accept`, `decline` or `cancel`",
        )),
    }
}

pub(super) fn parse_roots(answer: &Value) -> Result<Vec<Root>, AskError> {
    let list = answer.get("roots").and_then(Value::as_array);
    let list = list.ok_or_else(|| AskError::bad("the response has no list of `roots`"))?;
    let text = |root: &Value, key: &str| root.get(key).and_then(Value::as_str).map(str::to_owned);
    let root = |root: &Value| {
        Some(Root {
            uri: text(root, "uri")?,
            name: text(root, "name"),
        })
    };
    list.iter()
        .map(|each| root(each).ok_or_else(|| AskError::bad("a root has no `uri`")))
        .collect()
}

/// Parses the reply of a client's model.
pub(super) fn parse_sample(answer: &Value) -> Result<SampleReply, AskError> {
    let content = answer
        .get("content")
        .ok_or_else(|| AskError::bad("the reply has no `content`"))?;
    let blocks = content
        .as_array()
        .map_or_else(|| std::slice::from_ref(content), Vec::as_slice);
    let model = answer
        .get("model")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut reply = SampleReply::text(model, "");
    reply.parts = blocks.iter().map(parse_part).collect::<Result<_, _>>()?;
    reply.finish = match answer.get("stopReason").and_then(Value::as_str) {
        Some("maxTokens") => Finish::Length,
        Some("toolUse") => Finish::ToolCalls,
        None | Some("endTurn" | "stopSequence") => Finish::Stop,
        Some(other) => Finish::Other(other.chars().take(64).collect()),
    };
    // Some clients send `endTurn` with tool calls.
    if reply
        .parts
        .iter()
        .any(|part| matches!(part, Part::ToolCall(_)))
    {
        reply.finish = Finish::ToolCalls;
    }
    Ok(reply)
}

fn parse_part(block: &Value) -> Result<Part, AskError> {
    let text = |key: &str| block.get(key).and_then(Value::as_str);
    match text("type") {
        Some("text") => text("text")
            .map(Part::text)
            .ok_or_else(|| AskError::bad("a text block has no `text`")),
        Some("image" | "audio") => {
            let bytes = text("data").and_then(|data| STANDARD.decode(data).ok());
            let bytes = bytes
                .ok_or_else(|| AskError::bad("the data of an image or audio is not base64"))?;
            Ok(Part::Media(Media::bytes(
                text("mimeType").unwrap_or_default(),
                bytes,
            )))
        }
        Some("tool_use") => {
            let (id, name) = text("id")
                .zip(text("name"))
                .ok_or_else(|| AskError::bad("a tool call has no `id` or `name`"))?;
            let input = block.get("input").cloned().unwrap_or_else(|| json!({}));
            Ok(Part::ToolCall(ToolCall::new(id, name, input)))
        }
        _ => Err(AskError::bad(
            "the reply has content of an unsupported type",
        )),
    }
}
