//! Encodes requests: messages and tools.
//!
//! Ollama renders messages with the template of the model, which accepts text, images, calls and
//! results. Everything else must become one of these. An image of a user that cannot be sent is an
//! error; in a reply or a tool result, text describes it.
//!
//! A call and its result are two messages, matched by name and id:
//!
//! ```json
//! {"role": "assistant", "content": "", "tool_calls": [
//!     {"id": "c1", "function": {"name": "now", "arguments": {}}}]},
//! {"role": "tool", "content": "12:30", "tool_name": "now", "tool_call_id": "c1"}
//! ```

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use levity_core::{
    Content, Media, MediaSource, Message, ModelError, ModelErrorKind, Part, Request, Role,
    ToolCall, ToolResult,
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{NAME, schema};
use crate::body::{List, write};
use crate::{omitted_media, text_calls};

/// A message in Ollama's form. Empty fields are omitted.
#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    thinking: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<Image<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

impl<'a> WireMessage<'a> {
    /// Creates a message with text only.
    fn new(role: &'static str, content: &'a str) -> Self {
        let (images, tool_calls) = (Vec::new(), Vec::new());
        Self {
            role,
            content,
            thinking: "",
            images,
            tool_calls,
            tool_name: None,
            tool_call_id: None,
        }
    }
}

/// A call, with the id that its result repeats.
#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    arguments: Arguments<'a>,
}

/// The arguments of a call. Ollama accepts only an object, so other text is wrapped in one.
#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Object(&'a Value),
    Value { arguments: &'a Value },
    Text { arguments: &'a str },
}

/// The bytes of an image, serialized as base64.
struct Image<'a>(&'a [u8]);

impl Serialize for Image<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

/// Writes all messages of a request.
///
/// # Errors
/// Returns `BadRequest` if a message contains content that Ollama cannot accept.
///
/// An empty encoding in the cache means blank or rejected; the second attempt yields the error.
pub(super) fn messages(request: &Request, list: &mut List<'_>) -> Result<(), ModelError> {
    if let Some(system) = &request.system {
        list.item(&WireMessage::new("system", system));
    }
    for (at, message) in request.history.messages().iter().enumerate() {
        let json = request
            .history
            .encoded(at, NAME, || encode(message).unwrap_or_default());
        // The encoding is empty for a message that is blank or cannot be sent.
        if json.is_empty() {
            encode(message)?;
        }
        list.add(&json);
    }
    Ok(())
}

/// Encodes a message as one item of the list, or as several for tool results.
fn encode(message: &Message) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::new();
    if message.role == Role::Tool {
        for result in message.results() {
            if !bytes.is_empty() {
                bytes.push(b',');
            }
            write_answer(&mut bytes, result);
        }
        return Ok(bytes);
    }
    let role = match message.role {
        Role::System => "system",
        Role::Assistant => "assistant",
        _ => "user",
    };
    let (mut text, has_calls) = text_calls::split(message);
    let thinking = own_thinking(message);
    let mut images = Vec::new();
    for part in &message.parts {
        let Part::Media(media) = part else { continue };
        match image(media) {
            Ok(image) => images.push(image),
            // Another model created the media, and an error would end the conversation.
            Err(_) if message.role == Role::Assistant => {
                text = omitted_media::with_description(&text, media).into();
            }
            Err(error) => return Err(error),
        }
    }
    let mut sent = WireMessage::new(role, &text);
    sent.thinking = &thinking;
    sent.images = images;
    sent.tool_calls = message.calls().filter(|_| has_calls).map(call).collect();
    write(&mut bytes, &sent);
    Ok(bytes)
}

/// Returns the thoughts of the model, unless another provider's model had them.
///
/// Thoughts without state count as the model's own, because Ollama attaches none.
fn own_thinking(message: &Message) -> String {
    let own = message.parts.iter().filter_map(|part| match part {
        Part::Thinking(thinking) => Some(thinking),
        _ => None,
    });
    own.filter(|thinking| {
        thinking
            .opaque
            .as_ref()
            .is_none_or(|opaque| &*opaque.provider == NAME)
    })
    .map(|thinking| &*thinking.text)
    .collect()
}

/// Returns the bytes of an image.
///
/// # Errors
/// Returns `BadRequest` for an image by URL and for other media, with the way out.
fn image(media: &Media) -> Result<Image<'_>, ModelError> {
    let unsupported = |message: String| Err(ModelError::new(ModelErrorKind::BadRequest, message));
    match (&media.source, media.mime.starts_with("image/")) {
        (MediaSource::Bytes(bytes), true) => Ok(Image(bytes.as_slice())),
        (_, true) => unsupported("Ollama does not accept images by URL; send the bytes".to_owned()),
        _ => {
            let kind = media.mime.split('/').next().unwrap_or_default();
            let kind = if kind == "audio" || kind == "video" {
                kind
            } else {
                "document"
            };
            unsupported(format!(
                "Ollama does not accept `{kind}`, only text and images; send it as one of \
                    them"
            ))
        }
    }
}

/// Encodes a call; arguments that are not an object are wrapped in `{"arguments": ..}`.
fn call(call: &ToolCall) -> WireCall<'_> {
    let arguments = match (&call.raw, &call.args) {
        (Some(raw), _) => Arguments::Text { arguments: raw },
        (None, args @ Value::Object(_)) => Arguments::Object(args),
        (None, args) => Arguments::Value { arguments: args },
    };
    WireCall {
        id: call.id.as_str(),
        function: WireFunction {
            name: &call.name,
            arguments,
        },
    }
}

/// Encodes the result of a tool. Text replaces unsupported media.
fn write_answer(bytes: &mut Vec<u8>, result: &ToolResult) {
    let mut text = result.text();
    let mut images = Vec::new();
    for content in &result.content {
        let Content::Media(media) = content else {
            continue;
        };
        match image(media) {
            Ok(image) => images.push(image),
            Err(_) => text = omitted_media::with_description(&text, media).into(),
        }
    }
    let mut sent = WireMessage::new("tool", &text);
    sent.images = images;
    sent.tool_name = Some(&result.name);
    sent.tool_call_id = Some(result.call.as_str());
    write(bytes, &sent);
}

/// Writes the tools, with schemas in the subset that Ollama passes on.
pub(super) fn tools(request: &Request, list: &mut List<'_>) {
    for tool in request.tools.iter() {
        let (description, parameters) = schema::convert(&tool.description, &tool.input);
        list.item(&json!({
            "type": "function",
            "function": {"name": tool.name, "description": description, "parameters": parameters},
        }));
    }
}
