//! The conversation, as the API wants it: turns by turns, each message encoded once.

use std::sync::Arc;

use levity_core::{Message, ModelError, ModelErrorKind, Part, Request, Role};

use super::NAME;
use super::encode::{Refused, blocks, sayable};
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
) -> Result<(), ModelError> {
    let mut lines = lines;
    if generation.takes_notes() {
        place_notes(&mut lines);
    }
    trim_last(&mut lines)?;
    let marked = if marks.are_set() { places(&lines) } else { [None; 2] };
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
pub(super) fn lines(request: &Request) -> Result<Vec<Line<'_>>, ModelError> {
    let mut lines = Vec::with_capacity(request.history.len());
    for (at, message) in request.history.messages().iter().enumerate() {
        // The reason is kept like blocks are, or a second request would silently lack the message.
        let make =
            || blocks(message).unwrap_or_else(|Refused(reason)| [&[REFUSED], reason.as_bytes()].concat());
        let json = request.history.encoded(at, NAME, make);
        match json.split_first() {
            None => continue,
            Some((&REFUSED, reason)) => return Err(refused(&String::from_utf8_lossy(reason))),
            Some(_) => {}
        }
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        lines.push(Line { role, message, json });
    }
    Ok(lines)
}

/// Whether somebody has set a mark in one of these.
pub(super) fn are_marked(lines: &[Line<'_>]) -> bool {
    lines.iter().any(|line| is_marked(&line.json))
}

fn refused(reason: &str) -> ModelError {
    ModelError::new(ModelErrorKind::BadRequest, reason)
}

/// Gives notes a role of their own where the API takes them: behind the user, and before the model or the end.
fn place_notes(lines: &mut [Line<'_>]) {
    let is_note = |line: &Line<'_>| line.message.role == Role::System;
    let mut runs: Vec<_> = lines.chunk_by_mut(|one, next| is_note(one) == is_note(next)).collect();
    let ends = |run: &&mut [Line<'_>]| (run.first().map(|line| line.role), run.last().map(|line| line.role));
    let ends: Vec<_> = runs.iter().map(ends).collect();
    for (at, run) in runs.iter_mut().enumerate().skip(1).filter(|(_, run)| run.first().is_some_and(is_note)) {
        let behind_user = ends.get(at - 1).is_some_and(|(_, last)| *last == Some("user"));
        let before_model = ends.get(at + 1).is_none_or(|(first, _)| *first == Some("assistant"));
        if behind_user && before_model {
            run.iter_mut().for_each(|note| note.role = "system");
        }
    }
}

/// Takes white space from the end of a reply that the model is to go on with: the API refuses it.
fn trim_last(lines: &mut Vec<Line<'_>>) -> Result<(), ModelError> {
    let Some(last) = lines.last_mut().filter(|line| line.role == "assistant") else { return Ok(()) };
    let mut message = last.message.clone();
    message.parts.truncate(sayable(&message.parts));
    let Some(Part::Text(text)) = message.parts.last_mut() else {
        return Ok(());
    };
    let end = text.text.trim_end().len();
    if end == text.text.len() {
        return Ok(());
    }
    text.text.truncate(end);
    last.json = blocks(&message).map_err(|Refused(reason)| refused(&reason))?.into();
    Ok(())
}

/// Where marks go: on the last message that is not the model's, and on the one that was the last when the model was
/// asked before, so that the cache finds it however much came since.
fn places(lines: &[Line<'_>]) -> [Option<usize>; 2] {
    let last_before = |end: usize, model: bool| {
        let lines = lines.get(..end).unwrap_or_default();
        lines.iter().rposition(|line| (line.role == "assistant") == model)
    };
    let last = last_before(lines.len(), false);
    let before = last.and_then(|last| last_before(last, true)).and_then(|reply| last_before(reply, false));
    [last, before]
}
