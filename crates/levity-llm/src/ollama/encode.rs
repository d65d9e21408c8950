//! Requests: messages and tools.

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
use crate::{rescue, unseen};

#[derive(Serialize)]
struct Sent<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    thinking: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<Image<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<SentCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

impl<'a> Sent<'a> {
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

#[derive(Serialize)]
struct SentCall<'a> {
    id: &'a str,
    function: SentFunction<'a>,
}

#[derive(Serialize)]
struct SentFunction<'a> {
    name: &'a str,
    arguments: Arguments<'a>,
}

/// Only an object is taken; what the model wrote instead of one stands in one.
#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Object(&'a Value),
    Value { arguments: &'a Value },
    Text { arguments: &'a str },
}

/// The bytes of an image, written as base64.
struct Image<'a>(&'a [u8]);

impl Serialize for Image<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

/// # Errors
/// `BadRequest` when a message holds what Ollama cannot be given.
pub(super) fn messages(request: &Request, list: &mut List<'_>) -> Result<(), ModelError> {
    if let Some(system) = &request.system {
        list.item(&Sent::new("system", system));
    }
    for (at, message) in request.history.messages().iter().enumerate() {
        let json = request
            .history
            .encoded(at, NAME, || encode(message).unwrap_or_default());
        // Nothing was made of a message that cannot be sent, or of one that says nothing.
        if json.is_empty() {
            encode(message)?;
        }
        list.add(&json);
    }
    Ok(())
}

/// A message as one item of the list or, where tools answer, several.
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
    let (mut text, has_calls) = rescue::split(message);
    let thinking = own_thinking(message);
    let mut images = Vec::new();
    for part in &message.parts {
        let Part::Media(media) = part else { continue };
        match image(media) {
            Ok(image) => images.push(image),
            // Another model showed it, and a refusal would end the conversation.
            Err(_) if message.role == Role::Assistant => text = unseen::told(&text, media).into(),
            Err(error) => return Err(error),
        }
    }
    let mut sent = Sent::new(role, &text);
    sent.thinking = &thinking;
    sent.images = images;
    sent.tool_calls = message.calls().filter(|_| has_calls).map(call).collect();
    write(&mut bytes, &sent);
    Ok(bytes)
}

/// What a model thought, unless it was a model of somebody else's.
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

fn image(media: &Media) -> Result<Image<'_>, ModelError> {
    let refused = |message: String| Err(ModelError::new(ModelErrorKind::BadRequest, message));
    match (&media.source, media.mime.starts_with("image/")) {
        (MediaSource::Bytes(bytes), true) => Ok(Image(bytes.as_slice())),
        (_, true) => refused("Ollama takes no image by its address; send its bytes".to_owned()),
        _ => {
            let kind = media.mime.split('/').next().unwrap_or_default();
            let kind = if kind == "audio" || kind == "video" {
                kind
            } else {
                "document"
            };
            refused(format!(
                "Ollama takes no part of type `{kind}`, only text and images; send it as one of \
                    them"
            ))
        }
    }
}

fn call(call: &ToolCall) -> SentCall<'_> {
    let arguments = match (&call.raw, &call.args) {
        (Some(raw), _) => Arguments::Text { arguments: raw },
        (None, args @ Value::Object(_)) => Arguments::Object(args),
        (None, args) => Arguments::Value { arguments: args },
    };
    SentCall {
        id: call.id.as_str(),
        function: SentFunction {
            name: &call.name,
            arguments,
        },
    }
}

/// What a tool answered. For what is not taken, words stand in it.
fn write_answer(bytes: &mut Vec<u8>, result: &ToolResult) {
    let mut text = result.text();
    let mut images = Vec::new();
    for content in &result.content {
        let Content::Media(media) = content else {
            continue;
        };
        match image(media) {
            Ok(image) => images.push(image),
            Err(_) => text = unseen::told(&text, media).into(),
        }
    }
    let mut sent = Sent::new("tool", &text);
    sent.images = images;
    sent.tool_name = Some(&result.name);
    sent.tool_call_id = Some(result.call.as_str());
    write(bytes, &sent);
}

pub(super) fn tools(request: &Request, list: &mut List<'_>) {
    for tool in request.tools.iter() {
        let (description, parameters) = schema::narrow(&tool.description, &tool.input);
        list.item(&json!({
            "type": "function",
            "function": {"name": tool.name, "description": description, "parameters": parameters},
        }));
    }
}
