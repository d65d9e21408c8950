//! Encodes the conversation as alternating turns, each message once.
//!
//! The API requires that `user` and `assistant` alternate. Consecutive messages of one role
//! therefore share one list of blocks. Messages that cannot be sent are omitted, and the history
//! itself is never changed.
//!
//! The module also repairs what a later request would be rejected for: calls of provider tools
//! without a result, white space at the end of a reply to be continued, and notes in a place that
//! the API does not allow.

use std::collections::HashSet;
use std::sync::Arc;

use levity_core::{Message, ModelError, ModelErrorKind, Part, Request, Role};
use serde_json::Value;

use super::NAME;
use super::cache_marks::{Marks, is_marked};
use super::encode::{Target, Unsupported, blocks, sendable_parts};
use super::generation::Generation;

/// The prefix of the reason that a message cannot be sent. Blocks start with a brace.
///
/// The cache stores bytes, so the first byte distinguishes a reason from blocks.
const UNSUPPORTED_PREFIX: u8 = b'!';

/// An encoded message that is not empty.
///
/// `json` contains the blocks without brackets and is shared with the cache of the history.
pub(super) struct Line<'a> {
    role: &'static str,
    message: &'a Message,
    json: Arc<[u8]>,
}

/// Writes the list of messages.
///
/// Marks go to the end of a line, behind its last block.
///
/// # Errors
/// Returns `BadRequest` if a message that must be encoded again contains unsupported media.
pub(super) fn write(
    bytes: &mut Vec<u8>,
    lines: Vec<Line<'_>>,
    generation: Generation,
    marks: Marks,
    target: Target<'_>,
) -> Result<(), ModelError> {
    let mut lines = lines;
    if generation.accepts_notes() {
        assign_note_roles(&mut lines);
    }
    remove_paused_calls(&mut lines, target)?;
    trim_last(&mut lines, target)?;
    let marked = if marks.are_set() {
        mark_positions(&lines)
    } else {
        [None; 2]
    };
    bytes.push(b'[');
    let mut before = "";
    for (at, line) in lines.iter().enumerate() {
        // Consecutive messages of one role form one turn.
        if line.role == before {
            bytes.push(b',');
        } else {
            if at > 0 {
                bytes.extend_from_slice(b"]},");
            }
            bytes.extend_from_slice(format!(r#"{{"role":"{}","content":["#, line.role).as_bytes());
        }
        bytes.extend_from_slice(&line.json);
        if marked.contains(&Some(at)) {
            marks.put(bytes);
        }
        before = line.role;
    }
    bytes.extend_from_slice(if lines.is_empty() { b"]" } else { b"]}]" });
    Ok(())
}

/// Returns the messages that are not empty.
///
/// # Errors
/// Returns `BadRequest` for the first message with media that the API does not accept.
pub(super) fn lines<'a>(
    request: &'a Request,
    target: Target<'_>,
) -> Result<Vec<Line<'a>>, ModelError> {
    let mut lines = Vec::with_capacity(request.history.len());
    for (at, message) in request.history.messages().iter().enumerate() {
        // The reason is cached like blocks; otherwise a second request would silently lack the
        // message.
        let make = || {
            blocks(message, target).unwrap_or_else(|Unsupported(reason)| {
                [&[UNSUPPORTED_PREFIX], reason.as_bytes()].concat()
            })
        };
        let json = request
            .history
            .encoded(at, target.origin.key(NAME, message, None), make);
        match json.split_first() {
            None => continue,
            Some((&UNSUPPORTED_PREFIX, reason)) => {
                return Err(unsupported_error(&String::from_utf8_lossy(reason)));
            }
            Some(_) => {}
        }
        let role = if message.role == Role::Assistant {
            "assistant"
        } else {
            "user"
        };
        lines.push(Line {
            role,
            message,
            json,
        });
    }
    Ok(lines)
}

/// Returns `true` if the model may think in this turn. That holds if its last turn is complete and
/// the user has replied. During tool results and continuations, that turn must start with a thought
/// that is sent back.
///
/// Only the first block of the turn is parsed, however long the turn is.
pub(super) fn may_start_with_thought(lines: &[Line<'_>]) -> bool {
    let is_model = |line: &Line<'_>| line.role == "assistant";
    let Some(last) = lines.iter().rposition(is_model) else {
        return true;
    };
    let (turn, after) = lines.split_at(last + 1);
    if !after.is_empty() && !after.iter().any(|line| line.message.role == Role::Tool) {
        return true;
    }
    let first = turn
        .iter()
        .rposition(|line| !is_model(line))
        .map_or(0, |before| before + 1);
    let json = turn.get(first).map(|line| &*line.json).unwrap_or_default();
    let block = serde_json::Deserializer::from_slice(json)
        .into_iter::<Value>()
        .next();
    let kind = block
        .and_then(Result::ok)
        .and_then(|block| Some(block.get("type")?.as_str()?.to_owned()));
    matches!(kind.as_deref(), Some("thinking" | "redacted_thinking"))
}

/// Removes calls of provider tools without a result: the turn was paused, and the conversation
/// continued without its end. The API rejects a call without its result.
///
/// Calls in the last turn stay, because the model may still complete them. A message with calls of
/// local tools stays as well, because their results complete the provider's call later.
fn remove_paused_calls(lines: &mut Vec<Line<'_>>, target: Target<'_>) -> Result<(), ModelError> {
    let called: Vec<&str> = lines
        .iter()
        .flat_map(|line| provider_tool_ids(line, target, "id"))
        .collect();
    if called.is_empty() {
        return Ok(());
    }
    let answered: HashSet<&str> = lines
        .iter()
        .flat_map(|line| provider_tool_ids(line, target, "tool_use_id"))
        .collect();
    let lost: HashSet<String> = called
        .into_iter()
        .filter(|id| !answered.contains(id))
        .map(str::to_owned)
        .collect();
    // The last turn may still continue.
    let last = lines
        .iter()
        .rposition(|line| line.role != "assistant")
        .unwrap_or(0);
    for line in lines.iter_mut().take(last) {
        // If the model calls a local tool from within a provider tool, the result arrives later.
        let is_lost = |id: &str| lost.contains(id);
        if line.message.calls().next().is_some()
            || !provider_tool_ids(line, target, "id").any(is_lost)
        {
            continue;
        }
        let mut message = line.message.clone();
        message
            .parts
            .retain(|part| !provider_tool_id(part, target, "id").is_some_and(is_lost));
        line.json = blocks(&message, target)
            .map_err(|Unsupported(reason)| unsupported_error(&reason))?
            .into();
    }
    lines.retain(|line| !line.json.is_empty());
    Ok(())
}

/// Returns the id of a provider tool's call or result in a part; see [`provider_tool_ids`].
fn provider_tool_ids<'a>(
    line: &Line<'a>,
    target: Target<'_>,
    name: &'static str,
) -> impl Iterator<Item = &'a str> {
    line.message
        .parts
        .iter()
        .filter_map(move |part| provider_tool_id(part, target, name))
}

fn provider_tool_id<'a>(part: &'a Part, target: Target<'_>, name: &str) -> Option<&'a str> {
    let Part::Opaque(opaque) = part else {
        return None;
    };
    let block = target.own(Some(opaque))?;
    let kind = block.get("type")?.as_str()?;
    let is_call = matches!(kind, "server_tool_use" | "mcp_tool_use");
    let fits = if name == "id" {
        is_call
    } else {
        kind.ends_with("_tool_result")
    };
    block.get(name).filter(|_| fits)?.as_str()
}

/// Returns `true` if the user has set a mark in one of these.
pub(super) fn are_marked(lines: &[Line<'_>]) -> bool {
    lines.iter().any(|line| is_marked(&line.json))
}

/// Converts the reason for an unsupported message to an error, which is not retryable.
fn unsupported_error(reason: &str) -> ModelError {
    ModelError::new(ModelErrorKind::BadRequest, reason)
}

/// Gives notes a separate role if the API accepts them: after the user, and before the model or the
/// end.
///
/// Notes at other places keep the role `user`. They stay visible to the model there, only with less
/// authority.
fn assign_note_roles(lines: &mut [Line<'_>]) {
    let is_note = |line: &Line<'_>| line.message.role == Role::System;
    let mut runs: Vec<_> = lines
        .chunk_by_mut(|one, next| is_note(one) == is_note(next))
        .collect();
    let ends = |run: &&mut [Line<'_>]| {
        (
            run.first().map(|line| line.role),
            run.last().map(|line| line.role),
        )
    };
    let ends: Vec<_> = runs.iter().map(ends).collect();
    for (at, run) in runs
        .iter_mut()
        .enumerate()
        .skip(1)
        .filter(|(_, run)| run.first().is_some_and(is_note))
    {
        let behind_user = ends
            .get(at - 1)
            .is_some_and(|(_, last)| *last == Some("user"));
        let before_model = ends
            .get(at + 1)
            .is_none_or(|(first, _)| *first == Some("assistant"));
        if behind_user && before_model {
            run.iter_mut().for_each(|note| note.role = "system");
        }
    }
}

/// Removes white space from the end of a reply that the model is to continue: the API rejects it.
///
/// The message is encoded again without the cache, because the history keeps the white space.
fn trim_last(lines: &mut [Line<'_>], target: Target<'_>) -> Result<(), ModelError> {
    let Some(last) = lines.last_mut().filter(|line| line.role == "assistant") else {
        return Ok(());
    };
    let mut message = last.message.clone();
    message
        .parts
        .truncate(sendable_parts(&message.parts, target));
    let Some(Part::Text(text)) = message.parts.last_mut() else {
        return Ok(());
    };
    let end = text.text.trim_end().len();
    if end == text.text.len() {
        return Ok(());
    }
    text.text.truncate(end);
    last.json = blocks(&message, target)
        .map_err(|Unsupported(reason)| unsupported_error(&reason))?
        .into();
    Ok(())
}

/// Returns the positions of marks. One is the last message that is not the model's. The other is
/// the last message of the previous request, so that the cache finds it regardless of later
/// messages.
///
/// The API looks back a limited number of blocks for a stored prefix. The second mark ensures that
/// it finds the previous request even if many results were added since.
fn mark_positions(lines: &[Line<'_>]) -> [Option<usize>; 2] {
    let last_before = |end: usize, model: bool| {
        let lines = lines.get(..end).unwrap_or_default();
        lines
            .iter()
            .rposition(|line| (line.role == "assistant") == model)
    };
    let last = last_before(lines.len(), false);
    let before = last
        .and_then(|last| last_before(last, true))
        .and_then(|reply| last_before(reply, false));
    [last, before]
}
