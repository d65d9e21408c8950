//! The conversation, as the API wants it: turns by turns, each message encoded once.

use std::collections::HashSet;
use std::sync::Arc;

use levity_core::{Message, ModelError, ModelErrorKind, Part, Request, Role};
use serde_json::Value;

use super::NAME;
use super::encode::{Refused, To, blocks, sayable};
use super::generation::Generation;
use super::marks::{Marks, is_marked};

/// What stands before the reason where a message cannot be sent. Blocks begin with a brace.
const REFUSED: u8 = b'!';

/// A message that has something to send.
pub(super) struct Line<'a> {
    role: &'static str,
    message: &'a Message,
    json: Arc<[u8]>,
}

/// Writes the list of messages.
pub(super) fn write(
    bytes: &mut Vec<u8>,
    lines: Vec<Line<'_>>,
    generation: Generation,
    marks: Marks,
    to: To<'_>,
) -> Result<(), ModelError> {
    let mut lines = lines;
    if generation.takes_notes() {
        place_notes(&mut lines);
    }
    leave_paused(&mut lines, to)?;
    trim_last(&mut lines, to)?;
    let marked = if marks.are_set() {
        places(&lines)
    } else {
        [None; 2]
    };
    bytes.push(b'[');
    let mut before = "";
    for (at, line) in lines.iter().enumerate() {
        // Messages of one side that follow each other are one turn.
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

/// The messages that have something to send.
pub(super) fn lines<'a>(request: &'a Request, to: To<'_>) -> Result<Vec<Line<'a>>, ModelError> {
    let mut lines = Vec::with_capacity(request.history.len());
    for (at, message) in request.history.messages().iter().enumerate() {
        // The reason is kept like blocks are, or a second request would silently lack the message.
        let make = || {
            blocks(message, to)
                .unwrap_or_else(|Refused(reason)| [&[REFUSED], reason.as_bytes()].concat())
        };
        let json = request
            .history
            .encoded(at, to.origin.key(NAME, message, None), make);
        match json.split_first() {
            None => continue,
            Some((&REFUSED, reason)) => return Err(refused(&String::from_utf8_lossy(reason))),
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

/// Whether a thought would not come out of the blue: the model has the word, or had it when the
/// user spoke, or its last turn, which tools now answer, begins with a thought that goes back.
pub(super) fn goes_on_thinking(lines: &[Line<'_>]) -> bool {
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

/// Leaves out calls of the provider's own tools that nothing came of: the turn was paused, and the
/// conversation went on without its end. The API refuses a call without its result.
fn leave_paused(lines: &mut Vec<Line<'_>>, to: To<'_>) -> Result<(), ModelError> {
    let called: Vec<&str> = lines
        .iter()
        .flat_map(|line| hosted(line, to, "id"))
        .collect();
    if called.is_empty() {
        return Ok(());
    }
    let answered: HashSet<&str> = lines
        .iter()
        .flat_map(|line| hosted(line, to, "tool_use_id"))
        .collect();
    let lost: HashSet<String> = called
        .into_iter()
        .filter(|id| !answered.contains(id))
        .map(str::to_owned)
        .collect();
    // The last turn is gone on with.
    let last = lines
        .iter()
        .rposition(|line| line.role != "assistant")
        .unwrap_or(0);
    for line in lines.iter_mut().take(last) {
        // Where the model calls a tool of ours from within one of its own, the result comes later.
        let is_lost = |id: &str| lost.contains(id);
        if line.message.calls().next().is_some() || !hosted(line, to, "id").any(is_lost) {
            continue;
        }
        let mut message = line.message.clone();
        message
            .parts
            .retain(|part| !hosted_id(part, to, "id").is_some_and(is_lost));
        line.json = blocks(&message, to)
            .map_err(|Refused(reason)| refused(&reason))?
            .into();
    }
    lines.retain(|line| !line.json.is_empty());
    Ok(())
}

/// The ids of the provider's own tools in a message: of calls by `id`, of results by `tool_use_id`.
fn hosted<'a>(line: &Line<'a>, to: To<'_>, name: &'static str) -> impl Iterator<Item = &'a str> {
    line.message
        .parts
        .iter()
        .filter_map(move |part| hosted_id(part, to, name))
}

fn hosted_id<'a>(part: &'a Part, to: To<'_>, name: &str) -> Option<&'a str> {
    let Part::Opaque(opaque) = part else {
        return None;
    };
    let block = to.own(Some(opaque))?;
    let kind = block.get("type")?.as_str()?;
    let is_call = matches!(kind, "server_tool_use" | "mcp_tool_use");
    let fits = if name == "id" {
        is_call
    } else {
        kind.ends_with("_tool_result")
    };
    block.get(name).filter(|_| fits)?.as_str()
}

/// Whether somebody has set a mark in one of these.
pub(super) fn are_marked(lines: &[Line<'_>]) -> bool {
    lines.iter().any(|line| is_marked(&line.json))
}

fn refused(reason: &str) -> ModelError {
    ModelError::new(ModelErrorKind::BadRequest, reason)
}

/// Gives notes a role of their own where the API takes them: behind the user, and before the model
/// or the end.
fn place_notes(lines: &mut [Line<'_>]) {
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

/// Takes white space from the end of a reply that the model is to go on with: the API refuses it.
fn trim_last(lines: &mut [Line<'_>], to: To<'_>) -> Result<(), ModelError> {
    let Some(last) = lines.last_mut().filter(|line| line.role == "assistant") else {
        return Ok(());
    };
    let mut message = last.message.clone();
    message.parts.truncate(sayable(&message.parts, to));
    let Some(Part::Text(text)) = message.parts.last_mut() else {
        return Ok(());
    };
    let end = text.text.trim_end().len();
    if end == text.text.len() {
        return Ok(());
    }
    text.text.truncate(end);
    last.json = blocks(&message, to)
        .map_err(|Refused(reason)| refused(&reason))?
        .into();
    Ok(())
}

/// Where marks go: on the last message that is not the model's, and on the one that was the last
/// when the model was asked before, so that the cache finds it however much came since.
fn places(lines: &[Line<'_>]) -> [Option<usize>; 2] {
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
