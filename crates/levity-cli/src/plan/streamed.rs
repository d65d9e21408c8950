//! The text that the agents of running steps are writing.
//!
//! Agents of a team answer with JSON objects, which are hard to read while they arrive. So the
//! values are shown as text: `{"answer": "At six.\nAnd` appears as the lines `answer: At six.` and
//! `And`. A reply that is not JSON appears as it is.
//!
//! Everything is bounded: a line has at most `MAX_LINE` characters, and the text of a run is
//! dropped when its model call ends.

use std::collections::BTreeMap;

use levity::core::{Delta, Event, EventKind, RunId};
use levity::observe::PlanView;

/// The maximum number of characters of a line; a longer one is continued on the next.
const MAX_LINE: usize = 160;

/// The text of all running steps.
#[derive(Default)]
pub(super) struct StreamedText {
    runs: BTreeMap<RunId, StepText>,
}

/// The text of one run, and the name of its step.
struct StepText {
    step: String,
    words: Words,
    line: String,
    /// The last line that is not blank, or the one that is being written.
    last: String,
}

impl StreamedText {
    /// Handles an event that the view has already seen, and returns the lines that it completed.
    pub(super) fn event(&mut self, view: &PlanView, event: &Event) -> Vec<String> {
        match &event.kind {
            EventKind::Delta {
                delta: Delta::Text(text),
                ..
            } => {
                let Some(step) = view.step_of(&event.run) else {
                    return Vec::new();
                };
                let run = self.runs.entry(event.run.clone());
                run.or_insert_with(|| StepText::new(step.as_str()))
                    .push(text)
            }
            EventKind::Delta {
                delta: Delta::Restart { .. },
                ..
            } => {
                self.runs.remove(&event.run);
                Vec::new()
            }
            EventKind::ModelFinished { .. }
            | EventKind::ModelFailed { .. }
            | EventKind::RunEnded(_) => {
                let ended = self.runs.remove(&event.run);
                ended.and_then(StepText::end).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the last line of each running step, such as `oslo │ Oslo has about`.
    pub(super) fn last_lines(&self) -> impl Iterator<Item = String> + '_ {
        let texts = self.runs.values().filter(|text| !text.last.is_empty());
        texts.map(|text| format!("{} │ {}", text.step, text.last))
    }
}

impl StepText {
    /// Creates the text of a step that has written nothing yet.
    ///
    /// The name of the step precedes each line, so it is shortened to 40 bytes.
    fn new(step: &str) -> Self {
        Self {
            step: levity::observe::one_line(step, 40),
            words: Words::default(),
            line: String::new(),
            last: String::new(),
        }
    }

    /// Adds a piece of the reply, and returns the lines that it completed.
    fn push(&mut self, piece: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for letter in piece.chars() {
            let Some(text) = self.words.next(letter) else {
                continue;
            };
            for letter in text.chars() {
                let is_long = self.line.chars().nth(MAX_LINE - 1).is_some();
                if letter == '\n' || is_long {
                    lines.extend(self.finish_line());
                }
                if letter != '\n' {
                    self.line.push(letter);
                }
            }
        }
        if !self.line.trim().is_empty() {
            self.last.clone_from(&self.line);
        }
        lines
    }

    /// Returns the line as it is printed, unless it is blank.
    fn finish_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_end();
        (!line.is_empty()).then(|| format!("{} │ {line}", self.step))
    }

    /// Returns the last line, which has no line break at its end.
    fn end(mut self) -> Option<String> {
        self.finish_line()
    }
}

/// Extracts the words of a reply, letter by letter.
#[derive(Default)]
enum Words {
    /// Nothing but blanks so far.
    #[default]
    Begin,
    /// The reply is not JSON.
    Plain,
    /// The reply begins with a code block, whose first line is skipped.
    Fence,
    Json(JsonWords),
}

/// The position in a JSON text. It need not be valid: this only decides what is shown.
#[derive(Default)]
struct JsonWords {
    /// The open objects (`true`) and lists, up to a depth that no sensible reply reaches.
    open: Vec<bool>,
    is_key: bool,
    in_text: bool,
    escape: Escape,
}

#[derive(Default)]
enum Escape {
    #[default]
    None,
    Begun,
    /// The digits of `\u` so far.
    Digits(u32, u8),
}

/// The number of open objects and lists that are tracked.
const MAX_DEPTH: usize = 64;

impl Words {
    /// Returns the text that a letter adds.
    fn next(&mut self, letter: char) -> Option<String> {
        match self {
            Self::Begin if letter.is_whitespace() => None,
            Self::Begin => {
                *self = match letter {
                    '{' | '[' => Self::Json(JsonWords::default()),
                    '`' => Self::Fence,
                    _ => Self::Plain,
                };
                self.next(letter)
            }
            Self::Plain => Some(letter.to_string()),
            Self::Fence => {
                if letter == '\n' {
                    *self = Self::Begin;
                }
                None
            }
            Self::Json(json) => json.next(letter),
        }
    }
}

impl JsonWords {
    /// Returns the text that a letter of JSON adds to the line.
    ///
    /// Braces and quotes add nothing; a comma ends the line, so each value has a line of its own.
    fn next(&mut self, letter: char) -> Option<String> {
        if self.in_text {
            return self.next_in_text(letter);
        }
        match letter {
            '{' | '[' => {
                if self.open.len() < MAX_DEPTH {
                    self.open.push(letter == '{');
                }
                self.is_key = letter == '{';
                None
            }
            '}' | ']' => {
                self.open.pop();
                None
            }
            ',' => {
                self.is_key = self.open.last().copied().unwrap_or_default();
                Some("\n".to_owned())
            }
            '"' => {
                self.in_text = true;
                None
            }
            ':' => {
                self.is_key = false;
                Some(": ".to_owned())
            }
            letter if letter.is_whitespace() || letter == '`' => None,
            letter => Some(letter.to_string()),
        }
    }

    /// Returns the text that a letter within a JSON string adds, with escapes resolved.
    fn next_in_text(&mut self, letter: char) -> Option<String> {
        match (std::mem::take(&mut self.escape), letter) {
            (Escape::None, '"') => {
                self.in_text = false;
                None
            }
            (Escape::None, '\\') => {
                self.escape = Escape::Begun;
                None
            }
            (Escape::None, letter) => Some(letter.to_string()),
            (Escape::Begun, 'n') => Some("\n".to_owned()),
            (Escape::Begun, 't') => Some(" ".to_owned()),
            (Escape::Begun, 'u') => {
                self.escape = Escape::Digits(0, 0);
                None
            }
            (Escape::Begun, 'r' | 'b' | 'f') => None,
            (Escape::Begun, letter) => Some(letter.to_string()),
            (Escape::Digits(code, count), letter) => {
                let code = code * 16 + letter.to_digit(16).unwrap_or_default();
                if count < 3 {
                    self.escape = Escape::Digits(code, count + 1);
                    return None;
                }
                Some(char::from_u32(code).unwrap_or('\u{fffd}').to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a reply that arrives letter by letter, and at once.
    fn lines(reply: &str) -> Vec<String> {
        let mut slow = StepText::new("s");
        let mut lines: Vec<_> = reply
            .chars()
            .flat_map(|letter| slow.push(&letter.to_string()))
            .collect();
        lines.extend(slow.end());
        let mut fast = StepText::new("s");
        let mut at_once = fast.push(reply);
        at_once.extend(fast.end());
        assert_eq!(lines, at_once);
        lines
    }

    #[test]
    fn json_reply_appears_as_its_values() {
        assert_eq!(
            lines(r#" {"answer": "At six.\nAnd \"low\" at \u00e9.", "metres": 4}"#),
            [
                "s │ answer: At six.",
                "s │ And \"low\" at é.",
                "s │ metres: 4"
            ]
        );
        assert_eq!(lines("```json\n[\"a\", \"b\"]\n```"), ["s │ a", "s │ b"]);
        assert_eq!(
            lines("Plain {text}\n\nhere"),
            ["s │ Plain {text}", "s │ here"]
        );
    }

    #[test]
    fn malformed_and_long_replies_are_bounded() {
        assert_eq!(lines(r#"{"a": "\uZZZZ\"#), ["s │ a: \u{0}"]);
        assert!(lines(&"]}".repeat(1000)).is_empty() || lines("]}").len() == 1);
        let long = lines(&"x".repeat(MAX_LINE * 3));
        assert_eq!(long.len(), 3);
        assert!(lines(&"[".repeat(100_000)).is_empty());
    }
}
