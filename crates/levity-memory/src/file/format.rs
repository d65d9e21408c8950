//! One conversation as one JSON document: `{"summary": "..", "history": [..]}`, with what else has
//! to be known before.

use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, MemoryError, MemoryErrorKind, Message,
    Part, Role, Summary, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::json;
use crate::kept::Kept;

/// The version that is written. Files without one are read, too.
const FORMAT: u32 = 1;

/// So much of a message's text is written beside its parts, for people and programs that do not
/// know of parts.
const SHOWN: usize = 1_000;

/// No conversation comes this far; a file that says so would leave no room to count on.
const HIGHEST: u64 = 1 << 53;

/// What the first line says, so that a list need not read on.
#[derive(Serialize, Deserialize)]
struct Head {
    levity_memory: u32,
    id: ConversationId,
    changed: Timestamp,
    first: u64,
    end: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upto: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    levity_memory: Option<u32>,
    id: Option<ConversationId>,
    changed: Option<Timestamp>,
    #[serde(default)]
    first: u64,
    end: Option<u64>,
    upto: Option<u64>,
    summary: Option<String>,
    history: Vec<Entry>,
}

#[derive(Deserialize)]
struct Version {
    levity_memory: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    role: Role,
    content: Option<String>,
    parts: Option<Vec<Part>>,
}

#[derive(Serialize)]
struct Written<'a> {
    role: Role,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<&'a [Part]>,
}

/// A conversation that was read, and whose it is, if it says so.
pub(super) struct Read {
    pub(super) id: Option<ConversationId>,
    pub(super) kept: Kept,
}

/// The whole document. Every message has a line of its own.
pub(super) fn write(id: &ConversationId, kept: &Kept) -> Result<Vec<u8>, MemoryError> {
    let head = Head {
        levity_memory: FORMAT,
        id: id.clone(),
        changed: kept.changed,
        first: kept.first,
        end: kept.end(),
        upto: kept.summary.as_ref().map(|summary| summary.upto),
    };
    let summary = kept.summary.as_ref().map_or("", |summary| &*summary.text);
    let mut bytes = to_json(&head)?;
    bytes.pop();
    bytes.extend_from_slice(b",\n\"summary\":");
    bytes.extend(to_json(&summary)?);
    bytes.extend_from_slice(b",\n\"history\":[");
    for (number, message) in kept.messages.iter().enumerate() {
        bytes.extend_from_slice(if number == 0 { b"\n" } else { b",\n" });
        entry(message, &mut bytes)?;
    }
    bytes.extend_from_slice(b"\n]}\n");
    Ok(bytes)
}

fn entry(message: &Message, bytes: &mut Vec<u8>) -> Result<(), MemoryError> {
    let plain = match &*message.parts {
        [Part::Text(text)] if text.opaque.is_none() && message.role != Role::Tool => {
            Some(&text.text)
        }
        _ => None,
    };
    let shown = plain.is_none().then(|| shown(message));
    let content = plain.map_or_else(|| shown.as_deref().unwrap_or_default(), String::as_str);
    let parts = plain.is_none().then_some(&*message.parts);
    bytes.extend(to_json(&Written {
        role: message.role,
        content,
        parts,
    })?);
    Ok(())
}

/// What a message says, cut off where it is long.
fn shown(message: &Message) -> String {
    let results = message.results().map(|result| result.text());
    let all = std::iter::once(message.text())
        .chain(results)
        .filter(|text| !text.is_empty());
    let text = all.collect::<Vec<_>>().join("\n");
    text.chars().take(SHOWN).collect()
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, MemoryError> {
    serde_json::to_vec(value).map_err(|error| {
        MemoryError::new(
            MemoryErrorKind::Refused,
            "a message cannot be written as JSON",
        )
        .with_source(error)
    })
}

/// Checks that new messages can be read again.
pub(super) fn check(id: &ConversationId, change: &ConversationChange) -> Result<(), MemoryError> {
    (change.at..)
        .zip(&change.messages)
        .try_for_each(|(at, message)| json::check(id, at, message))
}

/// Reads a document. `modified` is when the file was changed, for those that do not say so
/// themselves.
pub(super) fn read(
    id: &ConversationId,
    bytes: &[u8],
    modified: Timestamp,
) -> Result<Read, MemoryError> {
    let found = serde_json::from_slice::<Document>(bytes);
    let version = match &found {
        Ok(document) => document.levity_memory,
        Err(_) => serde_json::from_slice::<Version>(bytes)
            .ok()
            .map(|version| version.levity_memory),
    };
    if let Some(newer) = version.filter(|version| *version > FORMAT) {
        let message = format!(
            "the stored conversation `{id}` has format {newer}, and this version reads up to \
                {FORMAT}; use a newer one"
        );
        return Err(MemoryError::new(MemoryErrorKind::Version, message));
    }
    // What the error says may quote what was read.
    let place =
        |error: serde_json::Error| format!("at line {}, column {}", error.line(), error.column());
    let document = found.map_err(|error| MemoryError::damaged(id, &place(error)))?;
    document
        .into_read(modified)
        .map_err(|what| MemoryError::damaged(id, &what))
}

impl Document {
    fn into_read(self, modified: Timestamp) -> Result<Read, String> {
        let (mut messages, mut at) = (std::collections::VecDeque::new(), self.first);
        for entry in self.history {
            messages.push_back(
                entry
                    .into_message()
                    .ok_or_else(|| format!("message {at} says nothing"))?
                    .into(),
            );
            at = at.saturating_add(1);
        }
        if at > HIGHEST {
            return Err("its positions are too high".to_owned());
        }
        if let Some(end) = self.end.filter(|end| *end != at) {
            return Err(format!("it ends at message {at}, and should at {end}"));
        }
        let summary = match (self.summary, self.upto) {
            (Some(text), Some(upto)) if upto <= at => Some(Summary::new(text, upto)),
            (_, Some(_)) => return Err("its summary is not as it should be".to_owned()),
            (Some(text), None) if !text.is_empty() => Some(Summary::new(text, self.first)),
            _ => None,
        };
        let changed = self.changed.unwrap_or(modified);
        Ok(Read {
            id: self.id,
            kept: Kept {
                summary,
                messages,
                first: self.first,
                changed,
            },
        })
    }
}

impl Entry {
    fn into_message(self) -> Option<Message> {
        Some(match (self.role, self.parts, self.content) {
            (role, Some(parts), _) => Message::new(role, parts),
            // An answer to a call that was never written down. Nobody but the tool said it, so it
            // is marked.
            (Role::Tool, None, Some(content)) => {
                Message::user(format!("Result of a tool: {content}"))
            }
            (role, None, Some(content)) => Message::new(role, [Part::text(content)]),
            (_, None, None) => return None,
        })
    }
}

/// What the first line of a document says, if it was written by this version.
pub(super) fn head(line: &[u8]) -> Option<ConversationInfo> {
    let mut json = line.strip_suffix(b",\n")?.to_vec();
    json.push(b'}');
    let head: Head = serde_json::from_slice(&json).ok()?;
    let ours = head.levity_memory == FORMAT && head.first <= head.end;
    ours.then(|| ConversationInfo::new(head.id, head.changed, head.first, head.end))
}
