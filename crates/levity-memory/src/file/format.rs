//! One conversation as one JSON document: `{"summary": "..", "history": [..]}`, preceded by
//! metadata.
//!
//! ```text
//! {"levity_memory":1,"id":"monday","changed":…,"first":0,"end":2,
//! "summary":"",
//! "history":[
//! {"role":"user","content":"Good morning"},
//! {"role":"assistant","content":"…","parts":[…]}
//! ]}
//! ```
//!
//! The first line has everything that a list shows. A message of plain text is written as its
//! content alone; any other message has its parts and, for readers, a preview of its text.

use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, MemoryError, MemoryErrorKind, Message,
    Part, Role, Summary, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::json;
use crate::stored::StoredConversation;

/// The format version of written files. Files without a version are also read.
const FORMAT: u32 = 1;

/// The number of characters of a message's text that are written beside its parts, for people and
/// programs that ignore parts.
const MAX_SHOWN_CHARS: usize = 1_000;

/// The maximum position. A file with higher positions would leave no room to count.
const MAX_POSITION: u64 = 1 << 53;

/// The metadata in the first line, so that a listing need not read further.
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

/// Unknown keys are an error: a save would otherwise drop what another program added.
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
struct WrittenEntry<'a> {
    role: Role,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<&'a [Part]>,
}

/// A parsed conversation, and its id if the file contains it.
pub(super) struct ParsedConversation {
    pub(super) id: Option<ConversationId>,
    pub(super) stored: StoredConversation,
}

/// Serializes the whole document, with one line per message.
pub(super) fn write(
    id: &ConversationId,
    stored: &StoredConversation,
) -> Result<Vec<u8>, MemoryError> {
    let head = Head {
        levity_memory: FORMAT,
        id: id.clone(),
        changed: stored.changed,
        first: stored.first,
        end: stored.end(),
        upto: stored.summary.as_ref().map(|summary| summary.upto),
    };
    let summary = stored.summary.as_ref().map_or("", |summary| &*summary.text);
    let mut bytes = to_json(&head)?;
    bytes.pop();
    bytes.extend_from_slice(b",\n\"summary\":");
    bytes.extend(to_json(&summary)?);
    bytes.extend_from_slice(b",\n\"history\":[");
    for (number, message) in stored.messages.iter().enumerate() {
        bytes.extend_from_slice(if number == 0 { b"\n" } else { b",\n" });
        entry(message, &mut bytes)?;
    }
    bytes.extend_from_slice(b"\n]}\n");
    Ok(bytes)
}

fn entry(message: &Message, bytes: &mut Vec<u8>) -> Result<(), MemoryError> {
    let plain_text = match &*message.parts {
        [Part::Text(text)] if text.opaque.is_none() && message.role != Role::Tool => {
            Some(&text.text)
        }
        _ => None,
    };
    let preview = plain_text.is_none().then(|| preview(message));
    let content = plain_text.map_or_else(|| preview.as_deref().unwrap_or_default(), String::as_str);
    let parts = plain_text.is_none().then_some(&*message.parts);
    bytes.extend(to_json(&WrittenEntry {
        role: message.role,
        content,
        parts,
    })?);
    Ok(())
}

/// Returns the text of a message, cut off at the limit.
fn preview(message: &Message) -> String {
    let results = message.results().map(|result| result.text());
    let all = std::iter::once(message.text())
        .chain(results)
        .filter(|text| !text.is_empty());
    let text = all.collect::<Vec<_>>().join("\n");
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, MemoryError> {
    serde_json::to_vec(value).map_err(|error| {
        MemoryError::new(
            MemoryErrorKind::Refused,
            "cannot serialize a message as JSON",
        )
        .with_source(error)
    })
}

/// Checks that new messages can be read back.
pub(super) fn check(id: &ConversationId, change: &ConversationChange) -> Result<(), MemoryError> {
    (change.at..)
        .zip(&change.messages)
        .try_for_each(|(at, message)| json::check(id, at, message))
}

/// Parses a document. `modified` is the file's time of change, for documents without one.
pub(super) fn read(
    id: &ConversationId,
    bytes: &[u8],
    modified: Timestamp,
) -> Result<ParsedConversation, MemoryError> {
    let found = serde_json::from_slice::<Document>(bytes);
    let version = match &found {
        Ok(document) => document.levity_memory,
        Err(_) => serde_json::from_slice::<Version>(bytes)
            .ok()
            .map(|version| version.levity_memory),
    };
    if let Some(newer) = version.filter(|version| *version > FORMAT) {
        let message = format!(
            "stored conversation `{id}` has format {newer}, but this version of levity reads \
                formats up to {FORMAT}; update levity"
        );
        return Err(MemoryError::new(MemoryErrorKind::Version, message));
    }
    // The text of the JSON error may quote the content, so only the position is reported.
    let place =
        |error: serde_json::Error| format!("at line {}, column {}", error.line(), error.column());
    let document = found.map_err(|error| MemoryError::damaged(id, &place(error)))?;
    document
        .into_conversation(modified)
        .map_err(|what| MemoryError::damaged(id, &what))
}

impl Document {
    /// The positions must add up, so that an edited file with a missing message is reported instead
    /// of shifting all later positions.
    fn into_conversation(self, modified: Timestamp) -> Result<ParsedConversation, String> {
        let (mut messages, mut at) = (std::collections::VecDeque::new(), self.first);
        for entry in self.history {
            messages.push_back(
                entry
                    .into_message()
                    .ok_or_else(|| format!("message {at} has neither `content` nor `parts`"))?
                    .into(),
            );
            at = at.saturating_add(1);
        }
        if at > MAX_POSITION {
            return Err("its message positions are too high".to_owned());
        }
        if let Some(end) = self.end.filter(|end| *end != at) {
            return Err(format!("it ends at message {at} instead of {end}"));
        }
        let summary = match (self.summary, self.upto) {
            (Some(text), Some(upto)) if upto <= at => Some(Summary::new(text, upto)),
            (_, Some(_)) => {
                return Err("its summary has no text, or its `upto` is past the last \
                message"
                    .to_owned());
            }
            (Some(text), None) if !text.is_empty() => Some(Summary::new(text, self.first)),
            _ => None,
        };
        let changed = self.changed.unwrap_or(modified);
        Ok(ParsedConversation {
            id: self.id,
            stored: StoredConversation {
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
            // The call of this result is missing, so the text is marked as a tool's result.
            (Role::Tool, None, Some(content)) => {
                Message::user(format!("Result of a tool: {content}"))
            }
            (role, None, Some(content)) => Message::new(role, [Part::text(content)]),
            (_, None, None) => return None,
        })
    }
}

/// Parses the metadata in the first line of a document, if this version wrote it.
pub(super) fn head(line: &[u8]) -> Option<ConversationInfo> {
    let mut json = line.strip_suffix(b",\n")?.to_vec();
    json.push(b'}');
    let head: Head = serde_json::from_slice(&json).ok()?;
    let valid = head.levity_memory == FORMAT && head.first <= head.end;
    valid.then(|| ConversationInfo::new(head.id, head.changed, head.first, head.end))
}
