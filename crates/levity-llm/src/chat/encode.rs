//! Requests: messages and tools.

use std::borrow::Cow;

use levity_core::{
    Content, Media, Message, ModelError, Part, Request, Role, Thinking, ToolCall, ToolResult, ToolSpec,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::media::{self, shown};
use super::{Dialect, Field, NAME};
use crate::body::{Body, List, ROOM, list, write};
use crate::unseen;

#[derive(Serialize)]
struct Sent<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

/// # Errors
/// `BadRequest` when a message holds what the server cannot be given.
pub(super) fn messages(request: &Request, dialect: Dialect, list: &mut List<'_>) -> Result<(), ModelError> {
    if let Some(system) = &request.system {
        list.item(&Sent { role: "system", content: system, tool_call_id: None });
    }
    for (at, message) in request.history.messages().iter().enumerate() {
        let make = || encode(message, dialect).unwrap_or_default();
        let json = request.history.encoded(at, dialect.wire(), make);
        // Nothing was made of a message that cannot be sent, or of one that says nothing.
        if json.is_empty() {
            encode(message, dialect)?;
        }
        list.add(&json);
    }
    Ok(())
}

/// A message as one item of the list or several, with commas between them.
fn encode(message: &Message, dialect: Dialect) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::with_capacity(ROOM);
    match message.role {
        Role::System => {
            write(&mut bytes, &Sent { role: "system", content: &message.text(), tool_call_id: None });
        }
        Role::User => write_user(&mut bytes, message, dialect)?,
        Role::Assistant => write_assistant(&mut bytes, message, dialect)?,
        Role::Tool => write_answers(&mut bytes, message, dialect)?,
    }
    Ok(bytes)
}

fn write_user(bytes: &mut Vec<u8>, message: &Message, dialect: Dialect) -> Result<(), ModelError> {
    // Not all servers know lists, so text is sent as it is.
    if !message.parts.iter().any(|part| matches!(part, Part::Media(_) | Part::Opaque(_))) {
        write(bytes, &Sent { role: "user", content: &message.text(), tool_call_id: None });
        return Ok(());
    }
    let mut checked = Ok(());
    let mut body = Body::new();
    body.field("role", "user");
    body.raw("content", |bytes| list(bytes, |list| checked = write_parts(list, &message.parts, dialect)));
    bytes.extend(body.finish());
    checked
}

/// Parts of a user's message. Servers refuse empty texts, so they are left out.
fn write_parts(list: &mut List<'_>, parts: &[Part], dialect: Dialect) -> Result<(), ModelError> {
    for part in parts {
        match part {
            Part::Text(text) if !text.text.is_empty() => list.item(&TextPart::new(&text.text)),
            Part::Media(media) => list.item(&media::part(media, dialect)?),
            // A part of the protocol's own that core has no name for.
            Part::Opaque(own) if &*own.provider == NAME => list.item(&*own.data),
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
        Self { r#type: "text", text }
    }
}

/// A reply of the model's. One that says nothing at all is left out, since servers refuse it.
fn write_assistant(bytes: &mut Vec<u8>, message: &Message, dialect: Dialect) -> Result<(), ModelError> {
    let kept = kept(message);
    let thoughts = if dialect.recalls() { own_thoughts(message) } else { Vec::new() };
    let calls = message.calls().next().is_some();
    let text = message.text();
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
                list(bytes, |list| message.calls().for_each(|call| write_call(list, call)));
            });
        }
        bytes.extend(body.finish());
    }
    let seen = message.parts.iter().filter_map(|part| match part {
        Part::Media(media) => Some(media),
        _ => None,
    });
    shown(bytes, seen, dialect)
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
    let tagged: String =
        of(thoughts, Field::Tags).map(|thought| format!("<think>{thought}</think>\n\n")).collect();
    if tagged.is_empty() {
        body.field("content", &Some(text).filter(|text| !(text.is_empty() && calls)));
    } else {
        body.field("content", &(tagged + text));
    }
}

/// Thoughts that servers of this protocol gave out, and where they stood.
fn own_thoughts(message: &Message) -> Vec<(&Thinking, Field)> {
    let thoughts = message.parts.iter().filter_map(|part| match part {
        Part::Thinking(thinking) => Some(thinking),
        _ => None,
    });
    let field = |thinking: &Thinking| {
        let own = thinking.opaque.as_ref().filter(|opaque| &*opaque.provider == NAME)?;
        Field::named(own.data.get("field")?.as_str()?)
    };
    thoughts.filter_map(|thinking| Some((thinking, field(thinking)?))).collect()
}

fn of<'a>(thoughts: &'a [(&Thinking, Field)], field: Field) -> impl Iterator<Item = &'a str> {
    thoughts.iter().filter(move |(_, known)| *known == field).map(|(thinking, _)| &*thinking.text)
}

/// Fields that a server wants back with the reply they came with.
fn kept(message: &Message) -> Map<String, Value> {
    let own = message.parts.iter().filter_map(|part| match part {
        Part::Opaque(own) if &*own.provider == NAME => own.data.as_object(),
        _ => None,
    });
    own.flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
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
    name: &'a str,
    arguments: Arguments<'a>,
}

fn write_call(list: &mut List<'_>, call: &ToolCall) {
    let own = call.opaque.as_ref().filter(|opaque| &*opaque.provider == NAME);
    let mut body = match own.and_then(|own| own.data.as_object()) {
        Some(extra) => Body::over(extra),
        None => Body::new(),
    };
    body.field("id", &call.id);
    body.field("type", "function");
    body.field("function", &SentFunction { name: &call.name, arguments: Arguments(call) });
    list.add(&body.finish());
}

/// What tools answered: a message for each, and what they show in one of the user's, since answers hold only text. For
/// what is not taken, words stand in the answer.
fn write_answers(bytes: &mut Vec<u8>, message: &Message, dialect: Dialect) -> Result<(), ModelError> {
    let is_shown = |media: &Media| {
        dialect != Dialect::OpenAi || (unseen::openai_takes(media) && media::part(media, dialect).is_ok())
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
        write(bytes, &Sent { role: "tool", content: &text, tool_call_id: Some(result.call.as_str()) });
    }
    shown(bytes, message.results().flat_map(shown_of), dialect)
}

fn pictures(result: &ToolResult) -> impl Iterator<Item = &Media> {
    result.content.iter().filter_map(|content| match content {
        Content::Media(media) => Some(media),
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
