use std::ops::Range;

use serde_json::Value;

use super::ahead::Role;
use super::cursor::Cursor;
use super::mend::{Mends, Repair};
use super::parser::{Parser, TooDeep};
use super::scalar::Scalar;

/// How often a text is gone over again from a place that turned out to be prose. The limit keeps
/// the time in proportion to the length.
const RETRIES: usize = 4;

/// A value in a text.
pub(super) struct Found {
    pub(super) value: Value,
    pub(super) mends: Mends,
    pub(super) span: Range<usize>,
}

/// Where a value stands; the later, the better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// What was cut off and reads like prose.
    Doubtful,
    OtherFence,
    Prose,
    PlainFence,
    JsonFence,
}

/// The objects and arrays in `text`, the likeliest first, `keep` of them at most; else a scalar
/// that is all there is.
pub(super) fn find(text: &str, keep: usize) -> Result<Vec<Found>, TooDeep> {
    let whole = trimmed(text, 0..text.len());
    let mut best = Vec::new();
    if let Some(start) = behind_thoughts(text) {
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

/// Where the text begins that is not thoughts.
fn behind_thoughts(text: &str) -> Option<usize> {
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

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = text[range.clone()].trim_end();
    let start = part.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let end = range.start + part.len();
    end - start.len()..end
}

struct Finder<'a> {
    text: &'a str,
    at: usize,
    keep: usize,
    /// The place that the text here is in.
    place: Place,
    retries: usize,
    /// The best ones, the best first.
    best: Vec<(Place, Found)>,
    /// Where the first fence begins.
    fenced: Option<usize>,
}

impl<'a> Finder<'a> {
    fn new(text: &'a str, at: usize, keep: usize) -> Self {
        Self {
            text,
            at,
            keep,
            place: Place::Prose,
            retries: RETRIES,
            best: Vec::new(),
            fenced: None,
        }
    }

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

    /// The beginning of the text or of a fence: here JSON may begin that does not look like it
    /// elsewhere.
    fn opening(&mut self) -> Result<(), TooDeep> {
        let mut cursor = Cursor::new(self.text, self.at, self.text.len());
        let mut start = cursor.past_space(self.at);
        // A comment may go on to the end of the text, so not every fence may look for one.
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

    /// A fence opens or closes.
    fn fence(&mut self) -> Result<(), TooDeep> {
        self.at += self.text[self.at..]
            .bytes()
            .take_while(|byte| *byte == b'`')
            .count();
        if self.place != Place::Prose {
            self.place = Place::Prose;
            return Ok(());
        }
        let rest = &self.text[self.at..];
        let part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'_' | b'#');
        let language = &rest[..rest.bytes().take(16).take_while(part).count()];
        self.place = place_of(language);
        self.at += language.len();
        self.fenced = self.fenced.or(Some(self.at));
        self.opening()
    }

    /// A bracket or brace that may begin a value.
    fn candidate(&mut self) -> Result<(), TooDeep> {
        if self.place >= Place::PlainFence || self.plausible() {
            return self.read(false);
        }
        self.at += 1;
        Ok(())
    }

    /// Whether what is behind a bracket or brace in prose looks like JSON.
    fn plausible(&self) -> bool {
        let cursor = Cursor::new(self.text, self.at, self.text.len());
        let object = cursor.peek() == Some(b'{');
        let next = cursor.past_space(self.at + 1);
        let Some(byte) = cursor.byte(next) else {
            return false;
        };
        match byte {
            // In code that is an empty block.
            b'}' => object && self.place == Place::Prose,
            b'{' => true,
            b'[' | b'-' | b'0'..=b'9' => !object,
            // `[ ]` is a box to be ticked.
            b']' => !object && next == self.at + 1,
            _ if cursor.quote(next).is_some() || cursor.comment(next) => true,
            _ if object => cursor.bare_key(next),
            _ => cursor.literal(next),
        }
    }

    /// Reads the value that begins here, and goes on behind it.
    fn read(&mut self, opening: bool) -> Result<(), TooDeep> {
        let start = self.at;
        let mut parser = Parser::new(Cursor::new(self.text, start, self.text.len()), opening);
        let mut value = parser.value()?;
        if parser.cursor.unterminated && self.place != Place::Prose && self.retry() {
            let end = self.text[start..]
                .find("\n```")
                .map_or(self.text.len(), |found| start + found);
            parser = Parser::new(Cursor::new(self.text, start, end), opening);
            value = parser.value()?;
        }
        let link = value.is_array() && self.text.as_bytes().get(parser.cursor.at) == Some(&b'(');
        if link && self.place == Place::Prose && !opening {
            self.at = parser.cursor.at;
        } else if self.take(&parser.cursor, value, start) == Place::Doubtful && self.retry() {
            self.at = start + 1;
        }
        Ok(())
    }

    fn retry(&mut self) -> bool {
        let left = self.retries > 0;
        self.retries -= usize::from(left);
        left
    }

    /// Puts a value among the best, if it is one of them.
    fn take(&mut self, cursor: &Cursor<'_>, value: Value, start: usize) -> Place {
        let prose =
            cursor.loose && cursor.mends.contains(Repair::Truncated) && self.place == Place::Prose;
        let place = if prose { Place::Doubtful } else { self.place };
        self.at = cursor.at.max(start + 1);
        let span = trimmed(self.text, start..cursor.at.max(start + 1));
        let rank = (place, span.len());
        let behind = self
            .best
            .iter()
            .position(|(place, found)| (*place, found.span.len()) <= rank);
        self.best.insert(
            behind.unwrap_or(self.best.len()),
            (
                place,
                Found {
                    value,
                    mends: cursor.mends,
                    span,
                },
            ),
        );
        self.best.truncate(self.keep);
        place
    }

    /// A string, number or literal that is all there is in this range.
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

/// What kind of place a fence in this language is.
fn place_of(language: &str) -> Place {
    match language.to_ascii_lowercase().as_str() {
        "json" | "json5" | "jsonc" | "jsonl" | "ndjson" => Place::JsonFence,
        "" | "text" | "txt" | "plaintext" | "js" | "javascript" => Place::PlainFence,
        _ => Place::OtherFence,
    }
}
