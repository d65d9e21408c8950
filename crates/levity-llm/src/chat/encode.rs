//! Encodes requests: messages and tools.
//!
//! Servers of this protocol differ most in what they reject. The encoder therefore sends the
//! simplest form that expresses a message: content as a string wherever it is only text, no empty
//! fields, and media of tool results in a user message behind them.
//!
//! A question, a call and its result are three messages:
//!
//! ```json
//! {"role": "user", "content": "What time is it?"},
//! {"role": "assistant", "content": null, "tool_calls": [
//!     {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
//! {"role": "tool", "content": "12:30", "tool_call_id": "c1"}
//! ```

use std::borrow::Cow;

use levity_core::{
    Content, Media, Message, ModelError, Part, ProviderState, Request, Role, Thinking, ToolCall,
    ToolResult, ToolSpec,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::media::{self, write_media_message};
use super::{CUSTOM, Dialect, Field, NAME};
use crate::body::{Body, INITIAL_CAPACITY, List, list, write};
use crate::origin::{Origin, StateScope};
use crate::{names, omitted_media, text_calls};

/// A message that consists of one text: instructions, most user messages, and tool results.
#[derive(Serialize)]
struct TextMessage<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

/// The server that receives the request.
///
/// The dialect decides on the form, the origin on the state that may be sent.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) origin: &'a Origin,
    pub(super) dialect: Dialect,
}

impl Target<'_> {
    /// Returns this protocol's state if it may be sent back. Thoughts are plain text that any
    /// account may receive, but servers reject unknown fields and signatures of another model.
    fn own<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Value> {
        self.origin.data(NAME, opaque, StateScope::Server)
    }
}

/// Writes all messages of a request.
///
/// # Errors
/// Returns `BadRequest` if a message contains content that the server cannot accept.
pub(super) fn messages(
    request: &Request,
    target: Target<'_>,
    list: &mut List<'_>,
) -> Result<(), ModelError> {
    if let Some(system) = &request.system {
        list.item(&TextMessage {
            role: "system",
            content: system,
            tool_call_id: None,
        });
    }
    for (at, message) in request.history.messages().iter().enumerate() {
        let make = || encode(message, target).unwrap_or_default();
        let json = request.history.encoded(
            at,
            target.origin.key(target.dialect.wire(), message, None),
            make,
        );
        // The encoding is empty for a message that is blank or cannot be sent.
        if json.is_empty() {
            encode(message, target)?;
        }
        list.add(&json);
    }
    Ok(())
}

/// Encodes a message as one or more items of the list, separated by commas.
///
/// # Errors
/// Returns `BadRequest` for media of a user that the dialect does not accept.
fn encode(message: &Message, target: Target<'_>) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::with_capacity(INITIAL_CAPACITY);
    match message.role {
        Role::System => {
            write(
                &mut bytes,
                &TextMessage {
                    role: "system",
                    content: &message.text(),
                    tool_call_id: None,
                },
            );
        }
        Role::User => write_user(&mut bytes, message, target)?,
        Role::Assistant => write_assistant(&mut bytes, message, target)?,
        Role::Tool => write_answers(&mut bytes, message, target.dialect)?,
    }
    Ok(bytes)
}

/// Writes a user message: a string for plain text, otherwise a list of parts.
fn write_user(
    bytes: &mut Vec<u8>,
    message: &Message,
    target: Target<'_>,
) -> Result<(), ModelError> {
    // Not all servers support lists, so plain text is sent as a string.
    if !message
        .parts
        .iter()
        .any(|part| matches!(part, Part::Media(_) | Part::Opaque(_)))
    {
        write(
            bytes,
            &TextMessage {
                role: "user",
                content: &message.text(),
                tool_call_id: None,
            },
        );
        return Ok(());
    }
    let mut checked = Ok(());
    let mut body = Body::new();
    body.field("role", "user");
    body.raw("content", |bytes| {
        list(bytes, |list| {
            checked = write_parts(list, &message.parts, target);
        });
    });
    bytes.extend(body.finish());
    checked
}

/// Writes the parts of a user message. Servers reject empty texts, so they are omitted.
fn write_parts(list: &mut List<'_>, parts: &[Part], target: Target<'_>) -> Result<(), ModelError> {
    for part in parts {
        match part {
            Part::Text(text) if !text.text.is_empty() => list.item(&TextPart::new(&text.text)),
            Part::Media(media) => list.item(&media::part(media, target.dialect)?),
            // A part of the protocol's own that core does not model.
            Part::Opaque(opaque) => target
                .own(Some(opaque))
                .into_iter()
                .for_each(|part| list.item(part)),
            _ => {}
        }
    }
    Ok(())
}

/// The text as an item of a list of parts.
#[derive(Serialize)]
struct TextPart<'a> {
    r#type: &'static str,
    text: &'a str,
}

impl<'a> TextPart<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            r#type: "text",
            text,
        }
    }
}

/// Writes a reply of the model. A blank one is omitted, because servers reject it.
///
/// The reply of another model may contain images. The protocol has no place for them in a reply, so
/// they follow in a user message.
fn write_assistant(
    bytes: &mut Vec<u8>,
    message: &Message,
    target: Target<'_>,
) -> Result<(), ModelError> {
    let extra_state = extra_state(message, target);
    let thoughts = if target.dialect.returns_thoughts() {
        own_thoughts(message, target)
    } else {
        Vec::new()
    };
    let (written, calls) = text_calls::split(message);
    let seen = message.parts.iter().filter_map(|part| match part {
        Part::Media(media) => Some(media),
        _ => None,
    });
    // Media from another model that this one cannot accept become text.
    let (seen, unseen): (Vec<_>, Vec<_>) =
        seen.partition(|media| media::part(media, target.dialect).is_ok());
    let text = unseen.into_iter().fold(written, |text, media| {
        omitted_media::with_description(&text, media).into()
    });
    if !text.is_empty() || calls || !extra_state.is_empty() || !thoughts.is_empty() {
        // State that the server sent with its reply is sent back unchanged.
        let mut body = Body::over(&extra_state);
        body.field("role", "assistant");
        write_content(&mut body, &text, &thoughts, calls);
        for field in [Field::ReasoningContent, Field::Reasoning] {
            let text: String = of(&thoughts, field).collect();
            body.optional(field.name(), Some(&text).filter(|text| !text.is_empty()));
        }
        if calls {
            body.raw("tool_calls", |bytes| {
                list(bytes, |list| {
                    message
                        .calls()
                        .for_each(|call| write_call(list, call, target));
                });
            });
        }
        bytes.extend(body.finish());
    }
    write_media_message(bytes, seen.into_iter(), target.dialect)
}

/// Writes the content and the thoughts that belong into it: as parts, or between tags before the
/// text. A reply that only calls tools has `null` as its content.
fn write_content(body: &mut Body, text: &str, thoughts: &[(&Thinking, Field)], calls: bool) {
    if of(thoughts, Field::Parts).next().is_some() {
        return body.raw("content", |bytes| {
            list(bytes, |list| {
                for thought in of(thoughts, Field::Parts) {
                    list.item(&json!({"type": "thinking", "thinking": [TextPart::new(thought)]}));
                }
                if !text.is_empty() {
                    list.item(&TextPart::new(text));
                }
            });
        });
    }
    let tagged: String = of(thoughts, Field::Tags)
        .map(|thought| format!("<think>{thought}</think>\n\n"))
        .collect();
    if tagged.is_empty() {
        body.field(
            "content",
            &Some(text).filter(|text| !(text.is_empty() && calls)),
        );
    } else {
        body.field("content", &(tagged + text));
    }
}

/// Returns the thoughts from servers of this protocol, and their fields.
fn own_thoughts<'a>(message: &'a Message, target: Target<'_>) -> Vec<(&'a Thinking, Field)> {
    let thoughts = message.parts.iter().filter_map(|part| match part {
        Part::Thinking(thinking) => Some(thinking),
        _ => None,
    });
    let field = |thinking: &Thinking| {
        Field::named(
            target
                .own(thinking.opaque.as_ref())?
                .get("field")?
                .as_str()?,
        )
    };
    thoughts
        .filter_map(|thinking| Some((thinking, field(thinking)?)))
        .collect()
}

/// Iterates over the thoughts of one field.
fn of<'a>(thoughts: &'a [(&Thinking, Field)], field: Field) -> impl Iterator<Item = &'a str> {
    thoughts
        .iter()
        .filter(move |(_, known)| *known == field)
        .map(|(thinking, _)| &*thinking.text)
}

/// Returns fields that a server requires back with the reply that they belong to.
///
/// Examples are `reasoning_details` of OpenRouter and `extra_content` of Google.
fn extra_state(message: &Message, target: Target<'_>) -> Map<String, Value> {
    let own = message.parts.iter().filter_map(|part| match part {
        Part::Opaque(opaque) => target.own(Some(opaque))?.as_object(),
        _ => None,
    });
    own.flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Arguments as a string, which is their type in this protocol.
struct Arguments<'a>(&'a ToolCall);

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.raw {
            Some(raw) => serializer.serialize_str(raw),
            None => serializer.collect_str(&self.0.args),
        }
    }
}

/// The name of a called tool and its arguments.
#[derive(Serialize)]
struct FunctionCall<'a> {
    name: Cow<'a, str>,
    arguments: Arguments<'a>,
}

/// Writes a call. OpenAI rejects a conversation with an invalid tool name in a call, although
/// models make such calls.
///
/// A call of a custom tool keeps its own form as long as its input is text.
fn write_call(list: &mut List<'_>, call: &ToolCall, target: Target<'_>) {
    let own = target.own(call.opaque.as_ref()).and_then(Value::as_object);
    let mut body = own.map_or_else(Body::new, Body::over);
    let name = names::tool(&call.name, "");
    body.field("id", &call.id);
    // The input of a custom tool is free text, not JSON.
    match (own.and_then(|own| own.get("type")), &call.args) {
        (Some(kind), Value::String(input)) if kind == CUSTOM => {
            body.field(CUSTOM, &json!({"name": name, "input": input}));
        }
        _ => {
            body.field("type", "function");
            body.field(
                "function",
                &FunctionCall {
                    name,
                    arguments: Arguments(call),
                },
            );
        }
    }
    list.add(&body.finish());
}

/// Writes tool results, one message each. Their media go into a user message, because results
/// contain only text. Unsupported media become text in the result.
fn write_answers(
    bytes: &mut Vec<u8>,
    message: &Message,
    dialect: Dialect,
) -> Result<(), ModelError> {
    let is_shown = |media: &Media| {
        dialect != Dialect::OpenAi
            || (omitted_media::openai_accepts(media) && media::part(media, dialect).is_ok())
    };
    let shown_of = |result| result_media(result).filter(|media| is_shown(media));
    for result in message.results() {
        if !bytes.is_empty() {
            bytes.push(b',');
        }
        let mut text = match result.text() {
            text if text.is_empty() && shown_of(result).next().is_some() => {
                Cow::Borrowed("It is shown in the next message.")
            }
            text => text,
        };
        for media in result_media(result).filter(|media| !is_shown(media)) {
            text = omitted_media::with_description(&text, media).into();
        }
        write(
            bytes,
            &TextMessage {
                role: "tool",
                content: &text,
                tool_call_id: Some(result.call.as_str()),
            },
        );
    }
    write_media_message(bytes, message.results().flat_map(shown_of), dialect)
}

/// Iterates over the media of a tool result.
fn result_media(result: &ToolResult) -> impl Iterator<Item = &Media> {
    result.content.iter().filter_map(|content| match content {
        Content::Media(media) => Some(media),
        _ => None,
    })
}

/// Returns a tool, and sets its strict flag only for servers that may support it.
pub(super) fn tool(spec: &ToolSpec, schema: &Value, strict: bool) -> Value {
    let mut function =
        json!({"name": spec.name, "description": spec.description, "parameters": schema});
    if let (true, Value::Object(function)) = (strict, &mut function) {
        function.insert("strict".to_owned(), Value::Bool(true));
    }
    json!({"type": "function", "function": function})
}
