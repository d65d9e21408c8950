//! Finds the values in a text and ranks them.
//!
//! A [`Finder`] walks over the text once and tries to read a value at each bracket or brace that
//! resembles JSON. After a value, it continues behind it, so nested values are not candidates of
//! their own. Values are ranked by their position (a JSON fence before prose) and then by length,
//! because the answer of a model is usually its longest value.
//!
//! Every step moves forward, except for [`RETRIES`] restarts from a position that turned out to be
//! prose. The time is therefore linear in the length of the text.

use std::ops::Range;

use serde_json::Value;

use super::cursor::Cursor;
use super::lookahead::Role;
use super::parser::{Parser, TooDeep};
use super::repairs::{Repair, Repairs};
use super::scalar::Scalar;

/// The maximum number of restarts from a position that turned out to be prose. The limit keeps the
/// time linear in the length.
const RETRIES: usize = 4;

/// A value found in a text.
///
/// The span is a byte range of the text without white space around the value.
pub(super) struct Found {
    pub(super) value: Value,
    pub(super) mends: Repairs,
    pub(super) span: Range<usize>,
}

/// The position of a value, from worst to best.
///
/// The derived order is the ranking. Text marked as JSON is certainly meant as the answer; a fence
/// in another language more likely holds an example.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PositionKind {
    /// A truncated value that resembles prose.
    Doubtful,
    OtherFence,
    Prose,
    PlainFence,
    JsonFence,
}

/// Returns at most `keep` objects and arrays in `text`, best first, or otherwise a scalar that is
/// the whole text.
///
/// Text after the thoughts of the model is searched first. The whole text is searched only if that
/// finds nothing.
///
/// # Errors
/// Returns the position at which a value is nested too deeply.
pub(super) fn find(text: &str, keep: usize) -> Result<Vec<Found>, TooDeep> {
    let whole = trimmed(text, 0..text.len());
    let mut best = Vec::new();
    if let Some(start) = after_thoughts(text) {
        best = Finder::new(text, start, keep).run()?;
    }
    if best.is_empty() {
        best = Finder::new(text, whole.start, keep).run()?;
    }
    for found in &mut best {
        if whole != found.span {
            found.mends.add(Repair::Surroundings);
        }
    }
    Ok(best)
}

/// Returns the start of the text after the thoughts.
///
/// It looks for the last closing tag such as `</think>`, from the end. A text that starts like JSON
/// has no thoughts: such a tag is then inside of a string.
fn after_thoughts(text: &str) -> Option<usize> {
    if text.trim_start().starts_with(['{', '[', '`', '"']) {
        return None;
    }
    let names = ["think>", "thinking>", "thought>", "reasoning>"];
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().rposition(|byte| *byte == b'<') {
        if let Some(name) = text[at + 1..].strip_prefix('/')
            && let Some(found) = names.iter().find(|end| name.starts_with(**end))
        {
            return Some(at + 2 + found.len());
        }
        rest = &rest[..at];
    }
    None
}

/// Returns a range without white space at its ends and without a byte order mark at its start.
fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = text[range.clone()].trim_end();
    let start = part.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let end = range.start + part.len();
    end - start.len()..end
}

/// The state of one walk over the text.
struct Finder<'a> {
    text: &'a str,
    at: usize,
    keep: usize,
    /// The kind of the current position.
    position: PositionKind,
    retries: usize,
    /// The best values, best first.
    best: Vec<(PositionKind, Found)>,
    /// The start of the first fence.
    fenced: Option<usize>,
}

impl<'a> Finder<'a> {
    fn new(text: &'a str, at: usize, keep: usize) -> Self {
        Self {
            text,
            at,
            keep,
            position: PositionKind::Prose,
            retries: RETRIES,
            best: Vec::new(),
            fenced: None,
        }
    }

    /// Walks from bracket to bracket, then returns the best values. Without any object or array, a
    /// text or fence that is a single scalar is the value.
    fn run(mut self) -> Result<Vec<Found>, TooDeep> {
        let begin = self.at;
        self.opening()?;
        while let Some(next) = self.text.as_bytes()[self.at..]
            .iter()
            .position(|b| matches!(b, b'{' | b'[' | b'`'))
        {
            self.at += next;
            if self.text.as_bytes()[self.at] != b'`' {
                self.candidate()?;
            } else if self.text[self.at..].starts_with("```") {
                self.fence()?;
            } else {
                self.at += 1;
            }
        }
        if self.best.is_empty() {
            let until_fence =
                |at: usize| at + self.text[at..].find("```").unwrap_or(self.text.len() - at);
            let places = [
                Some(begin..self.text.len()),
                self.fenced.map(|at| at..until_fence(at)),
            ];
            return Ok(places
                .into_iter()
                .flatten()
                .find_map(|range| self.alone(range))
                .into_iter()
                .collect());
        }
        Ok(self.best.into_iter().map(|(_, found)| found).collect())
    }

    /// Reads at the start of the text or of a fence, where JSON may have forms that are not
    /// recognised elsewhere.
    ///
    /// A comment may come first, and an object may lack its opening brace:
    /// `"name": "Ada", "age": 36`.
    fn opening(&mut self) -> Result<(), TooDeep> {
        let mut cursor = Cursor::new(self.text, self.at, self.text.len());
        let mut start = cursor.past_space(self.at);
        // A comment may extend to the end of the text, so not every fence may search for one.
        if cursor.comment(start) && self.retry() {
            cursor.skip();
            start = cursor.at;
        }
        if matches!(cursor.byte(start), Some(b'{' | b'[')) {
            self.at = start;
            return self.read(true);
        }
        if cursor.quoted_colon(start) {
            let mut parser = Parser::new(Cursor::new(self.text, start, self.text.len()), false);
            let value = parser.members()?;
            self.take(&parser.cursor, value, start);
        }
        Ok(())
    }

    /// Handles a fence that opens or closes.
    ///
    /// A fence closes the current one, whatever its language; otherwise it opens one. The name of a
    /// language has at most 16 characters.
    fn fence(&mut self) -> Result<(), TooDeep> {
        self.at += self.text[self.at..]
            .bytes()
            .take_while(|byte| *byte == b'`')
            .count();
        if self.position != PositionKind::Prose {
            self.position = PositionKind::Prose;
            return Ok(());
        }
        let rest = &self.text[self.at..];
        let part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'_' | b'#');
        let language = &rest[..rest.bytes().take(16).take_while(part).count()];
        self.position = fence_position(language);
        self.at += language.len();
        self.fenced = self.fenced.or(Some(self.at));
        self.opening()
    }

    /// Handles a bracket or brace that may start a value.
    fn candidate(&mut self) -> Result<(), TooDeep> {
        if self.position >= PositionKind::PlainFence || self.plausible() {
            return self.read(false);
        }
        self.at += 1;
        Ok(())
    }

    /// Returns `true` if the text after a bracket or brace in prose resembles JSON.
    ///
    /// The check looks at the next token only. It rejects `{x}` of a template and `[ ]` of a task
    /// list. A footnote such as `[1]` passes as an array, and loses to longer values.
    fn plausible(&self) -> bool {
        let cursor = Cursor::new(self.text, self.at, self.text.len());
        let object = cursor.peek() == Some(b'{');
        let next = cursor.past_space(self.at + 1);
        let Some(byte) = cursor.byte(next) else {
            return false;
        };
        match byte {
            // In code, this is an empty block.
            b'}' => object && self.position == PositionKind::Prose,
            b'{' => true,
            b'[' | b'-' | b'0'..=b'9' => !object,
            // `[ ]` is a checkbox.
            b']' => !object && next == self.at + 1,
            _ if cursor.quote(next).is_some() || cursor.comment(next) => true,
            _ if object => cursor.bare_key(next),
            _ => cursor.literal(next),
        }
    }

    /// Reads the value at the current position and continues after it.
    ///
    /// In a fence, an unterminated string may have run past the closing fence. The value is then
    /// read again with the fence as its end. A list that a round bracket follows is a Markdown link
    /// and is skipped.
    fn read(&mut self, opening: bool) -> Result<(), TooDeep> {
        let start = self.at;
        let mut parser = Parser::new(Cursor::new(self.text, start, self.text.len()), opening);
        let mut value = parser.value()?;
        if parser.cursor.unterminated && self.position != PositionKind::Prose && self.retry() {
            let end = self.text[start..]
                .find("\n```")
                .map_or(self.text.len(), |found| start + found);
            parser = Parser::new(Cursor::new(self.text, start, end), opening);
            value = parser.value()?;
        }
        let link = value.is_array() && self.text.as_bytes().get(parser.cursor.at) == Some(&b'(');
        if link && self.position == PositionKind::Prose && !opening {
            self.at = parser.cursor.at;
        } else if self.take(&parser.cursor, value, start) == PositionKind::Doubtful && self.retry()
        {
            self.at = start + 1;
        }
        Ok(())
    }

    /// Uses up one restart, if any is left.
    fn retry(&mut self) -> bool {
        let has_retry = self.retries > 0;
        self.retries -= usize::from(has_retry);
        has_retry
    }

    /// Adds a value to the best ones, if it qualifies.
    ///
    /// Inserts the value before those of equal rank, so that the last of equal values wins. Only
    /// the best `keep` values are retained, which bounds the memory.
    fn take(&mut self, cursor: &Cursor<'_>, value: Value, start: usize) -> PositionKind {
        let prose = cursor.loose
            && cursor.mends.contains(Repair::Truncated)
            && self.position == PositionKind::Prose;
        let position = if prose {
            PositionKind::Doubtful
        } else {
            self.position
        };
        self.at = cursor.at.max(start + 1);
        let span = trimmed(self.text, start..cursor.at.max(start + 1));
        let rank = (position, span.len());
        let behind = self
            .best
            .iter()
            .position(|(position, found)| (*position, found.span.len()) <= rank);
        self.best.insert(
            behind.unwrap_or(self.best.len()),
            (
                position,
                Found {
                    value,
                    mends: cursor.mends,
                    span,
                },
            ),
        );
        self.best.truncate(self.keep);
        position
    }

    /// Returns a string, number or literal that is the only content of this range.
    ///
    /// `"yes"`, `42` and `true` qualify. Any other content in the range disqualifies it, so prose
    /// never becomes a string.
    fn alone(&self, range: Range<usize>) -> Option<Found> {
        let span = trimmed(self.text, range);
        let mut cursor = Cursor::new(self.text, span.start, span.end);
        let value = if cursor.quote(cursor.at).is_some() {
            Value::String(cursor.string(Role::Alone)?)
        } else {
            match cursor.scalar(Role::Alone) {
                Scalar::Value(value) => value,
                _ => return None,
            }
        };
        let whole = cursor.at == span.end && !cursor.unterminated;
        whole.then_some(Found {
            value,
            mends: cursor.mends,
            span,
        })
    }
}

/// Returns the kind of position for a fence in this language.
fn fence_position(language: &str) -> PositionKind {
    match language.to_ascii_lowercase().as_str() {
        "json" | "json5" | "jsonc" | "jsonl" | "ndjson" => PositionKind::JsonFence,
        "" | "text" | "txt" | "plaintext" | "js" | "javascript" => PositionKind::PlainFence,
        _ => PositionKind::OtherFence,
    }
}
