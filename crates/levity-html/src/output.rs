//! Output of Markdown: white space, line prefixes and marks around words.
//!
//! White space is decided late: breaks and spaces are remembered, and written with the next word.
//! So the output has no empty lines at its end, no empty marks, and no spaces before a line break.
//! The limit is checked on every write, and nothing is written after it was reached.

use std::borrow::Cow;

/// The maximum depth of rendered quotes and lists.
const MAX_PREFIXES: usize = 12;

/// A mark around words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Strong,
    Emphasis,
    Struck,
    Code,
    /// A link with its address.
    Link(String),
}

impl Mark {
    /// The text in front of the marked words.
    fn opening(&self) -> &str {
        match self {
            Self::Strong => "**",
            Self::Emphasis => "*",
            Self::Struck => "~~",
            Self::Code => "`",
            Self::Link(_) => "[",
        }
    }

    /// The text behind the marked words; for a link it contains the address.
    fn closing(&self) -> Cow<'_, str> {
        match self {
            Self::Link(url) => Cow::Owned(format!("]({url})")),
            other => Cow::Borrowed(other.opening()),
        }
    }
}

/// The state of a mark. A mark is written with the first word after it, so no mark is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Written,
    /// A link that a line break has ended; it is not resumed.
    Ended,
}

/// The prefix of a line.
#[derive(Clone, Debug)]
struct Prefix {
    /// The prefix of the first line of a list item, until it is written.
    first: Option<String>,
    rest: String,
}

/// A growing text with a size limit.
#[derive(Debug)]
pub(super) struct MarkdownOutput {
    text: String,
    max: usize,
    is_full: bool,
    prefixes: Vec<Prefix>,
    /// The number of prefixes beyond the maximum depth.
    beyond: usize,
    /// The number of prefixes that the last line shares with the next.
    shared: usize,
    marks: Vec<(Mark, State)>,
    /// The line breaks and the space that precede the next word.
    breaks: usize,
    space: bool,
    /// Set if all text goes on one line, as in a heading or a cell.
    one_line: bool,
}

impl MarkdownOutput {
    /// `max` is the limit in bytes.
    pub(super) fn new(max: usize) -> Self {
        Self {
            text: String::new(),
            max,
            is_full: false,
            prefixes: Vec::new(),
            beyond: 0,
            shared: 0,
            marks: Vec::new(),
            breaks: 0,
            space: false,
            one_line: false,
        }
    }

    /// Creates an output for a single line.
    pub(super) fn line(max: usize) -> Self {
        Self {
            one_line: true,
            ..Self::new(max)
        }
    }

    /// Returns `true` if something did not fit, so that the caller can stop.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the number of bytes that may still be written.
    pub(super) fn room(&self) -> usize {
        self.max.saturating_sub(self.text.len())
    }

    /// Closes open marks, and returns the text with a flag that is set if it was cut.
    pub(super) fn finish(mut self) -> (String, bool) {
        self.close_marks(0);
        (self.text, self.is_full)
    }

    /// Returns the previous value, which the caller restores.
    pub(super) fn set_one_line(&mut self, one_line: bool) -> bool {
        std::mem::replace(&mut self.one_line, one_line)
    }

    pub(super) fn is_one_line(&self) -> bool {
        self.one_line
    }

    /// Writes text in which white space has no meaning.
    pub(super) fn flow(&mut self, text: &str) {
        let mut words = text.split(is_space);
        if let Some(first) = words.next() {
            self.word(first);
        }
        for word in words {
            self.space = true;
            self.word(word);
        }
    }

    /// Starts a block; two breaks make an empty line.
    pub(super) fn block(&mut self, breaks: usize) {
        if self.one_line {
            self.space = true;
            return;
        }
        self.close_marks(0);
        // The first block of an item follows directly after its marker.
        let is_first = self
            .prefixes
            .last()
            .is_some_and(|prefix| prefix.first.is_some());
        self.breaks = self
            .breaks
            .max(if is_first { breaks.min(1) } else { breaks });
        self.space = false;
    }

    /// Breaks a line within a paragraph; a second break ends the paragraph.
    pub(super) fn line_break(&mut self) {
        let breaks = (self.breaks + 1).min(2);
        self.block(breaks);
    }

    /// The mark is written with the next word, or never if none follows.
    pub(super) fn open(&mut self, mark: Mark) {
        self.marks.push((mark, State::Pending));
    }

    pub(super) fn has(&self, mark: &Mark) -> bool {
        self.marks.iter().any(|(open, _)| open == mark)
    }

    pub(super) fn in_code(&self) -> bool {
        self.has(&Mark::Code)
    }

    pub(super) fn in_link(&self) -> bool {
        self.marks
            .iter()
            .any(|(open, _)| matches!(open, Mark::Link(_)))
    }

    /// Closes the mark that was opened last.
    pub(super) fn close(&mut self) {
        if let Some((mark, State::Written)) = self.marks.pop() {
            self.push(&mark.closing());
        }
    }

    /// Starts a group of lines with a prefix; the first line may have a different one.
    pub(super) fn push_prefix(&mut self, first: Option<&str>, rest: &str) {
        if self.one_line || self.prefixes.len() >= MAX_PREFIXES {
            self.beyond += 1;
            return;
        }
        self.prefixes.push(Prefix {
            first: first.map(str::to_owned),
            rest: rest.to_owned(),
        });
    }

    /// Ends the innermost group of lines.
    pub(super) fn pop_prefix(&mut self) {
        match self.beyond {
            0 => {
                self.prefixes.pop();
                self.shared = self.shared.min(self.prefixes.len());
            }
            _ => self.beyond -= 1,
        }
    }

    /// Writes lines unchanged between two fences.
    pub(super) fn fenced(&mut self, language: &str, code: &str) {
        let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest.clamp(2, 63) + 1);
        self.block(2);
        self.raw_line(&format!("{fence}{language}"));
        code.lines().for_each(|line| self.raw_line(line));
        self.raw_line(&fence);
        self.block(2);
    }

    /// Writes a whole line unchanged.
    pub(super) fn raw_line(&mut self, line: &str) {
        if self.is_full {
            return;
        }
        self.break_lines();
        self.push(line);
        self.breaks = 1;
    }

    /// Writes what is pending, and then the word: breaks, a space, and marks that were opened.
    fn word(&mut self, word: &str) {
        if word.is_empty() || self.is_full {
            return;
        }
        self.break_lines();
        if std::mem::take(&mut self.space)
            && !self.text.is_empty()
            && !self.text.ends_with([' ', '\n'])
        {
            self.push(" ");
        }
        for at in 0..self.marks.len() {
            if self.marks[at].1 == State::Pending {
                self.marks[at].1 = State::Written;
                let opening = self.marks[at].0.opening().to_owned();
                self.push(&opening);
            }
        }
        self.push(word);
    }

    /// Writes the pending line breaks and the prefix of the line.
    fn break_lines(&mut self) {
        let breaks = std::mem::take(&mut self.breaks);
        let begins = self.text.is_empty();
        if breaks == 0 && !begins {
            return;
        }
        if !begins {
            if breaks > 1 {
                self.push("\n");
                let empty: String = self.prefixes[..self.shared]
                    .iter()
                    .map(|prefix| &*prefix.rest)
                    .collect();
                self.push(empty.trim_end());
            }
            self.push("\n");
        }
        let mut line = String::new();
        for prefix in &mut self.prefixes {
            match prefix.first.take() {
                Some(first) => line.push_str(&first),
                None => line.push_str(&prefix.rest),
            }
        }
        self.shared = self.prefixes.len();
        self.push(&line);
    }

    /// Closes the written marks from `at` on.
    fn close_marks(&mut self, at: usize) {
        for mark in (at..self.marks.len()).rev() {
            if self.marks[mark].1 == State::Written {
                let closing = self.marks[mark].0.closing().into_owned();
                self.push(&closing);
                let is_link = matches!(self.marks[mark].0, Mark::Link(_));
                self.marks[mark].1 = if is_link {
                    State::Ended
                } else {
                    State::Pending
                };
            }
        }
    }

    /// Text that does not fit is dropped as a whole, so a mark or an address is never cut in the
    /// middle.
    fn push(&mut self, text: &str) {
        if self.is_full || text.len() > self.room() {
            self.is_full = true;
            return;
        }
        self.text.push_str(text);
    }
}

/// Returns `true` for white space that collapses, including the no-break space.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{a0}' || c == '\u{202f}'
}
