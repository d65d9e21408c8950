//! Conversion of server requests from and to the protocol's JSON, within limits.
//!
//! All limits are checked before anything is converted or shown: 1 MiB, 256 messages, 64 tools and
//! 16 stop sequences for sampling; 64 KiB, 64 fields and URLs of 8 KiB for elicitation. A request
//! over a limit is refused as a whole, because a truncated one would have another meaning. Refusals
//! name the field and never quote its value.

use std::sync::Arc;

use levity_core::{
    Bytes, Content, Finish, Media, Message, Part, Role, ToolCall, ToolChoice, ToolError,
    ToolOutput, ToolResult, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{
    ElicitForm, ElicitReply, ElicitRequest, ElicitUrl, Elicitor, Refusal, SampleReply,
    SampleRequest, Sampler,
};

/// The maximum size of a sampling request, in bytes of JSON.
const MAX_SAMPLE_BYTES: usize = 1 << 20;
const MAX_MESSAGES: usize = 256;
const MAX_TOOLS: usize = 64;
const MAX_STOPS: usize = 16;
const MAX_FORM_BYTES: usize = 64 << 10;
const MAX_FIELDS: usize = 64;
const MAX_URL_LEN: usize = 8 << 10;

/// Handles `sampling/createMessage`: takes its parameters and returns its result.
///
/// A sampler that does not support tools never sees a request with tools.
pub(crate) async fn sample(
    sampler: &dyn Sampler,
    server: &str,
    params: &Value,
) -> Result<Value, Refusal> {
    let ask = sample_ask(params)?;
    if !ask.tools.is_empty() && !sampler.supports_tools() {
        return Err(Refusal::denied("requests with tools are not allowed"));
    }
    Ok(sample_result(&sampler.sample(server, ask).await?))
}

/// Handles `elicitation/create`: takes its parameters and returns its result.
///
/// Accepted content is completed and validated against the form here, so no implementation of
/// [`Elicitor`] can send a server fields that the form does not have.
pub(crate) async fn elicit(
    elicitor: &dyn Elicitor,
    server: &str,
    params: &Value,
) -> Result<Value, Refusal> {
    let ask = elicit_ask(params)?;
    let form = match &ask {
        ElicitRequest::Form(form) => Some(form.clone()),
        ElicitRequest::Url(_) if elicitor.supports_urls() => None,
        // The announced capabilities exclude URLs.
        ElicitRequest::Url(_) => return Ok(json!({"action": "decline"})),
    };
    Ok(match (elicitor.elicit(server, ask).await, form) {
        (ElicitReply::Accept(content), Some(form)) => {
            let content = form.complete(content).map_err(|problems| {
                Refusal::failed(format!(
                    "the answer does not match the form: {}",
                    problems.join(", ")
                ))
            })?;
            json!({"action": "accept", "content": content})
        }
        (ElicitReply::Accept(_), None) => json!({"action": "accept"}),
        (ElicitReply::Decline, _) => json!({"action": "decline"}),
        (ElicitReply::Cancel, _) => json!({"action": "cancel"}),
    })
}

/// Parses a sampling request. `modelPreferences` becomes `hints`; `includeContext` and `metadata`
/// are ignored, because a server must not see the agent's conversation.
pub(super) fn sample_ask(params: &Value) -> Result<SampleRequest, Refusal> {
    if params.to_string().len() > MAX_SAMPLE_BYTES {
        return Err(Refusal::bad(format!(
            "the request is larger than {MAX_SAMPLE_BYTES} bytes"
        )));
    }
    let messages = list(params, "messages", MAX_MESSAGES)?;
    if messages.is_empty() {
        return Err(Refusal::bad("there are no `messages`"));
    }
    let mut converted = Vec::new();
    for message in messages {
        convert_message(message, &mut converted)?;
    }
    let tools = list(params, "tools", MAX_TOOLS)?;
    let stops = list(params, "stopSequences", MAX_STOPS)?;
    let hints = params
        .pointer("/modelPreferences/hints")
        .and_then(Value::as_array);
    let hints = hints
        .into_iter()
        .flatten()
        .filter_map(|hint| text(hint, "name"));
    Ok(SampleRequest {
        messages: converted.into_iter().map(Arc::new).collect(),
        system: text(params, "systemPrompt").map(Into::into),
        max_tokens: params
            .get("maxTokens")
            .and_then(Value::as_u64)
            .ok_or_else(|| missing("maxTokens"))?,
        temperature: params.get("temperature").and_then(Value::as_f64),
        stop: stops
            .iter()
            .filter_map(Value::as_str)
            .map(Into::into)
            .collect(),
        tools: tools.iter().map(tool).collect::<Result<_, _>>()?,
        tool_choice: match params.pointer("/toolChoice/mode").and_then(Value::as_str) {
            Some("required") => ToolChoice::Required,
            Some("none") => ToolChoice::None,
            _ => ToolChoice::Auto,
        },
        hints: hints.take(MAX_STOPS).map(Into::into).collect(),
    })
}

/// Converts a message, which may become two, because tool results are separate messages in levity.
fn convert_message(message: &Value, converted: &mut Vec<Message>) -> Result<(), Refusal> {
    let role = match text(message, "role") {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        _ => return Err(missing("role")),
    };
    let content = message.get("content").ok_or_else(|| missing("content"))?;
    let blocks = content
        .as_array()
        .map_or(std::slice::from_ref(content), Vec::as_slice);
    let (mut results, mut others) = (Vec::new(), Vec::new());
    for block in blocks {
        match part(block, converted.last())? {
            result @ Part::ToolResult(_) if role == Role::User => results.push(result),
            Part::ToolResult(_) => {
                return Err(Refusal::bad("only the user role may contain tool results"));
            }
            Part::ToolCall(_) if role == Role::User => {
                return Err(Refusal::bad(
                    "only the assistant role may contain tool calls",
                ));
            }
            other => others.push(other),
        }
    }
    if !results.is_empty() {
        converted.push(Message::new(Role::Tool, results));
    }
    if !others.is_empty() {
        converted.push(Message::new(role, others));
    }
    Ok(())
}

/// Converts one block of content. `last` is the previous message, whose calls a tool result must
/// answer.
fn part(block: &Value, last: Option<&Message>) -> Result<Part, Refusal> {
    match text(block, "type") {
        Some("text") => Ok(Part::text(
            text(block, "text").ok_or_else(|| missing("text"))?,
        )),
        Some("image" | "audio") => media(block).map(Part::Media),
        Some("tool_use") => {
            let (id, name) = (text(block, "id"), text(block, "name"));
            let (id, name) = id.zip(name).ok_or_else(|| missing("id"))?;
            let input = block
                .get("input")
                .cloned()
                .unwrap_or_else(|| Value::Object(Map::new()));
            Ok(Part::ToolCall(ToolCall::new(id, name, input)))
        }
        Some("tool_result") => result(block, last).map(Part::ToolResult),
        _ => Err(Refusal::bad("a message has content of an unknown type")),
    }
}

/// Decodes an image or an audio file from base64.
fn media(block: &Value) -> Result<Media, Refusal> {
    let mime = text(block, "mimeType").ok_or_else(|| missing("mimeType"))?;
    let data = block.get("data").cloned().ok_or_else(|| missing("data"))?;
    let bytes: Bytes =
        serde_json::from_value(data).map_err(|_| Refusal::bad("`data` is not valid base64"))?;
    Ok(Media::bytes(mime, bytes))
}

/// Converts the result of a server's tool for a call in the previous message.
fn result(block: &Value, last: Option<&Message>) -> Result<ToolResult, Refusal> {
    let id = text(block, "toolUseId").ok_or_else(|| missing("toolUseId"))?;
    let call = last.and_then(|message| message.calls().find(|call| call.id.as_str() == id));
    let call = call.ok_or_else(|| Refusal::bad("tool calls and tool results do not match"))?;
    let blocks = block
        .get("content")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut output = ToolOutput::default();
    for block in blocks {
        output.content.push(match text(block, "type") {
            Some("image" | "audio") => Content::Media(media(block)?),
            _ => Content::Text(text(block, "text").map_or_else(|| block.to_string(), Into::into)),
        });
    }
    output.value = block
        .get("structuredContent")
        .filter(|value| !value.is_null())
        .cloned();
    let failed = block
        .get("isError")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    Ok(ToolResult::new(
        call,
        if failed {
            Err(ToolError::failed(output.as_text()))
        } else {
            Ok(output)
        },
    ))
}

/// Converts a tool of the server. Names that some provider rejects are refused, and not renamed,
/// because the server matches calls by name.
fn tool(tool: &Value) -> Result<Arc<ToolSpec>, Refusal> {
    let name = text(tool, "name").ok_or_else(|| missing("name"))?;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_allowed) {
        return Err(Refusal::bad("a tool has a name that models do not accept"));
    }
    let spec = ToolSpec::new(name, text(tool, "description").unwrap_or_default());
    let schema = tool
        .get("inputSchema")
        .filter(|schema| schema.is_object())
        .cloned();
    Ok(Arc::new(match schema {
        Some(schema) => spec.with_input(schema),
        None => spec,
    }))
}

/// Formats a reply. Only text and tool calls leave; the reason for the end becomes `endTurn`,
/// `maxTokens`, `toolUse` or `other`.
pub(super) fn sample_result(reply: &SampleReply) -> Value {
    let block = |part: &Part| match part {
        Part::Text(text) => Some(json!({"type": "text", "text": text.text})),
        Part::ToolCall(call) => {
            let input = if call.args.is_object() {
                call.args.clone()
            } else {
                json!({})
            };
            Some(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}))
        }
        _ => None,
    };
    let mut blocks: Vec<Value> = reply.parts.iter().filter_map(block).collect();
    // Servers of older versions support a single block only.
    let content = if blocks.len() == 1 {
        blocks.swap_remove(0)
    } else {
        Value::Array(blocks)
    };
    let stopped = match &reply.finish {
        Finish::Stop => "endTurn",
        Finish::Length => "maxTokens",
        Finish::ToolCalls => "toolUse",
        _ => "other",
    };
    json!({"role": "assistant", "content": content, "model": reply.model, "stopReason": stopped})
}

/// Parses an elicitation request: a form, or a URL with the scheme `https` or `http`. Other schemes
/// could start programs on the person's machine.
pub(super) fn elicit_ask(params: &Value) -> Result<ElicitRequest, Refusal> {
    if params.to_string().len() > MAX_FORM_BYTES {
        return Err(Refusal::bad(format!(
            "the request is larger than {MAX_FORM_BYTES} bytes"
        )));
    }
    let message = text(params, "message").unwrap_or_default();
    match text(params, "mode") {
        None | Some("form") => {
            let schema = params
                .get("requestedSchema")
                .ok_or_else(|| missing("requestedSchema"))?;
            let fields = schema
                .get("properties")
                .and_then(Value::as_object)
                .map_or(0, Map::len);
            if fields > MAX_FIELDS {
                return Err(Refusal::bad(format!(
                    "the form has more than {MAX_FIELDS} fields"
                )));
            }
            Ok(ElicitRequest::Form(ElicitForm::new(
                message,
                schema.clone(),
            )))
        }
        Some("url") => {
            let url = text(params, "url").ok_or_else(|| missing("url"))?;
            let web = ["https://", "http://"]
                .iter()
                .any(|scheme| url.starts_with(scheme));
            if !web
                || url.len() > MAX_URL_LEN
                || url.contains(|c: char| c.is_control() || c.is_whitespace())
            {
                return Err(Refusal::bad("`url` is not a valid `https` or `http` URL"));
            }
            let id = text(params, "elicitationId").unwrap_or_default();
            Ok(ElicitRequest::Url(ElicitUrl::new(message, url, id)))
        }
        Some(_) => Err(Refusal::bad("`mode` is unknown; use `form` or `url`")),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn missing(key: &str) -> Refusal {
    Refusal::bad(format!("`{key}` is missing or has the wrong type"))
}

/// Returns a list of at most `max` entries; a missing list is empty.
fn list<'a>(params: &'a Value, key: &str, max: usize) -> Result<&'a [Value], Refusal> {
    let Some(value) = params.get(key).filter(|value| !value.is_null()) else {
        return Ok(&[]);
    };
    let list = value.as_array().ok_or_else(|| missing(key))?;
    if list.len() > max {
        return Err(Refusal::bad(format!("`{key}` has more than {max} entries")));
    }
    Ok(list)
}
