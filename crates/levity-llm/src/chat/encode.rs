//! Requests: messages and tools.

use std::borrow::Cow;

use levity_core::{
    Content, Media, Message, ModelError, Part, ProviderState, Request, Role, Thinking, ToolCall,
    ToolResult, ToolSpec,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::media::{self, shown};
use super::{CUSTOM, Dialect, Field, NAME};
use crate::body::{Body, List, ROOM, list, write};
use crate::origin::{Bound, Origin};
use crate::{names, rescue, unseen};

#[derive(Serialize)]
struct Sent<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

/// Who is told.
#[derive(Clone, Copy)]
pub(super) struct To<'a> {
    pub(super) origin: &'a Origin,
    pub(super) dialect: Dialect,
}

impl To<'_> {
    /// State of this protocol's that may go back. Thoughts are plain text, which any account may
    /// have; but servers refuse fields that they do not know, and signatures of another model.
    fn own<'a>(&self, opaque: Option<&'a ProviderState>) -> Option<&'a Value> {
        self.origin.data(NAME, opaque, Bound::Server)
    }
}

/// # Errors
/// `BadRequest` when a message holds what the server cannot be given.
pub(super) fn messages(
    request: &Request,
    to: To<'_>,
    list: &mut List<'_>,
) -> Result<(), ModelError> {
    if let Some(system) = &request.system {
        list.item(&Sent {
            role: "system",
            content: system,
            tool_call_id: None,
        });
    }
    for (at, message) in request.history.messages().iter().enumerate() {
        let make = || encode(message, to).unwrap_or_default();
        let json =
            request
                .history
                .encoded(at, to.origin.key(to.dialect.wire(), message, None), make);
        // Nothing was made of a message that cannot be sent, or of one that says nothing.
        if json.is_empty() {
            encode(message, to)?;
        }
        list.add(&json);
    }
    Ok(())
}

/// A message as one item of the list or several, with commas between them.
fn encode(message: &Message, to: To<'_>) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::with_capacity(ROOM);
    match message.role {
        Role::System => {
            write(
                &mut bytes,
                &Sent {
                    role: "system",
                    content: &message.text(),
                    tool_call_id: None,
                },
            );
        }
        Role::User => write_user(&mut bytes, message, to)?,
        Role::Assistant => write_assistant(&mut bytes, message, to)?,
        Role::Tool => write_answers(&mut bytes, message, to.dialect)?,
    }
    Ok(bytes)
}

fn write_user(bytes: &mut Vec<u8>, message: &Message, to: To<'_>) -> Result<(), ModelError> {
    // Not all servers know lists, so text is sent as it is.
    if !message
        .parts
        .iter()
        .any(|part| matches!(part, Part::Media(_) | Part::Opaque(_)))
    {
        write(
            bytes,
            &Sent {
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
            checked = write_parts(list, &message.parts, to);
        });
    });
    bytes.extend(body.finish());
    checked
}

/// Parts of a user's message. Servers refuse empty texts, so they are left out.
fn write_parts(list: &mut List<'_>, parts: &[Part], to: To<'_>) -> Result<(), ModelError> {
    for part in parts {
        match part {
            Part::Text(text) if !text.text.is_empty() => list.item(&TextPart::new(&text.text)),
            Part::Media(media) => list.item(&media::part(media, to.dialect)?),
            // A part of the protocol's own that core has no name for.
            Part::Opaque(opaque) => to
                .own(Some(opaque))
                .into_iter()
                .for_each(|part| list.item(part)),
            _ => {}
        }
    }
    Ok(())
}

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

/// A reply of the model's. One that says nothing at all is left out, since servers refuse it.
fn write_assistant(bytes: &mut Vec<u8>, message: &Message, to: To<'_>) -> Result<(), ModelError> {
    let kept = kept(message, to);
    let thoughts = if to.dialect.recalls() {
        own_thoughts(message, to)
    } else {
        Vec::new()
    };
    let (written, calls) = rescue::split(message);
    let seen = message.parts.iter().filter_map(|part| match part {
        Part::Media(media) => Some(media),
        _ => None,
    });
    // What another model showed and this one cannot take is put into words.
    let (seen, unseen): (Vec<_>, Vec<_>) =
        seen.partition(|media| media::part(media, to.dialect).is_ok());
    let text = unseen
        .into_iter()
        .fold(written, |text, media| unseen::told(&text, media).into());
    if !text.is_empty() || calls || !kept.is_empty() || !thoughts.is_empty() {
        // What the server gave out with its reply goes back as it came.
        let mut body = Body::over(&kept);
        body.field("role", "assistant");
        write_content(&mut body, &text, &thoughts, calls);
        for field in [Field::ReasoningContent, Field::Reasoning] {
            let text: String = of(&thoughts, field).collect();
            body.optional(field.name(), Some(&text).filter(|text| !text.is_empty()));
        }
        if calls {
            body.raw("tool_calls", |bytes| {
                list(bytes, |list| {
                    message.calls().for_each(|call| write_call(list, call, to));
                });
            });
        }
        bytes.extend(body.finish());
    }
    shown(bytes, seen.into_iter(), to.dialect)
}

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

/// Thoughts that servers of this protocol gave out, and where they stood.
fn own_thoughts<'a>(message: &'a Message, to: To<'_>) -> Vec<(&'a Thinking, Field)> {
    let thoughts = message.parts.iter().filter_map(|part| match part {
        Part::Thinking(thinking) => Some(thinking),
        _ => None,
    });
    let field = |thinking: &Thinking| {
        Field::named(to.own(thinking.opaque.as_ref())?.get("field")?.as_str()?)
    };
    thoughts
        .filter_map(|thinking| Some((thinking, field(thinking)?)))
        .collect()
}

fn of<'a>(thoughts: &'a [(&Thinking, Field)], field: Field) -> impl Iterator<Item = &'a str> {
    thoughts
        .iter()
        .filter(move |(_, known)| *known == field)
        .map(|(thinking, _)| &*thinking.text)
}

/// Fields that a server wants back with the reply they came with.
fn kept(message: &Message, to: To<'_>) -> Map<String, Value> {
    let own = message.parts.iter().filter_map(|part| match part {
        Part::Opaque(opaque) => to.own(Some(opaque))?.as_object(),
        _ => None,
    });
    own.flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Arguments as a text, which is what they are here.
struct Arguments<'a>(&'a ToolCall);

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.raw {
            Some(raw) => serializer.serialize_str(raw),
            None => serializer.collect_str(&self.0.args),
        }
    }
}

#[derive(Serialize)]
struct SentFunction<'a> {
    name: Cow<'a, str>,
    arguments: Arguments<'a>,
}

/// A call. OpenAI refuses a conversation in which one has a name that no tool can have, though
/// models make such calls.
fn write_call(list: &mut List<'_>, call: &ToolCall, to: To<'_>) {
    let own = to.own(call.opaque.as_ref()).and_then(Value::as_object);
    let mut body = own.map_or_else(Body::new, Body::over);
    let name = names::tool(&call.name, "");
    body.field("id", &call.id);
    // The input of a custom tool is a text of its own, and no JSON.
    match (own.and_then(|own| own.get("type")), &call.args) {
        (Some(kind), Value::String(input)) if kind == CUSTOM => {
            body.field(CUSTOM, &json!({"name": name, "input": input}));
        }
        _ => {
            body.field("type", "function");
            body.field(
                "function",
                &SentFunction {
                    name,
                    arguments: Arguments(call),
                },
            );
        }
    }
    list.add(&body.finish());
}

/// What tools answered: a message for each, and what they show in one of the user's, since answers
/// hold only text. For what is not taken, words stand in the answer.
fn write_answers(
    bytes: &mut Vec<u8>,
    message: &Message,
    dialect: Dialect,
) -> Result<(), ModelError> {
    let is_shown = |media: &Media| {
        dialect != Dialect::OpenAi
            || (unseen::openai_takes(media) && media::part(media, dialect).is_ok())
    };
    let shown_of = |result| pictures(result).filter(|media| is_shown(media));
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
        for media in pictures(result).filter(|media| !is_shown(media)) {
            text = unseen::told(&text, media).into();
        }
        write(
            bytes,
            &Sent {
                role: "tool",
                content: &text,
                tool_call_id: Some(result.call.as_str()),
            },
        );
    }
    shown(bytes, message.results().flat_map(shown_of), dialect)
}

fn pictures(result: &ToolResult) -> impl Iterator<Item = &Media> {
    result.content.iter().filter_map(|content| match content {
        Content::Media(media) => Some(media),
        _ => None,
    })
}

/// A tool, and whether the model is held to its schema. Servers that know nothing of that are not
/// told.
pub(super) fn tool(spec: &ToolSpec, schema: &Value, strict: bool) -> Value {
    let mut function =
        json!({"name": spec.name, "description": spec.description, "parameters": schema});
    if let (true, Value::Object(function)) = (strict, &mut function) {
        function.insert("strict".to_owned(), Value::Bool(true));
    }
    json!({"type": "function", "function": function})
}
