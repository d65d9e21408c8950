//! The lowest layer of the parser: a position, and the rules for text between tokens.
//!
//! All lookahead works on bytes. That is safe because every character with a meaning is ASCII or is
//! recognised by its UTF-8 bytes, and slices are cut only at character boundaries. `end` shrinks
//! when a fence closes the text, so no other code has to know about fences. `mends` collects the
//! repairs of everything that was read from this position on.

use super::repairs::{Repair, Repairs};

/// A position in the text, with the observations made up to it.
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// The end of reading: the end of the text, or a fence between two tokens.
    pub(super) end: usize,
    pub(super) mends: Repairs,
    /// The number of open lists, objects and calls, which shows whether a bracket can close
    /// anything.
    pub(super) open: Open,
    /// True if words with spaces were taken for strings, which indicates prose.
    pub(super) loose: bool,
    /// True if the text ended inside a string.
    pub(super) unterminated: bool,
}

/// Objects include Python sets, and calls include tuples, because each is closed by the same
/// bracket.
#[derive(Clone, Copy, Default)]
pub(super) struct Open {
    pub(super) lists: usize,
    pub(super) objects: usize,
    pub(super) calls: usize,
}

/// The pair of quotes around a string.
///
/// Typographic quotes come from models that imitate print, back quotes from Markdown, and angle
/// quotes from French and Russian text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    Double,
    Single,
    Back,
    CurlyDouble,
    CurlySingle,
    Angle,
    /// A double quote after a backslash, in JSON that was escaped twice.
    Escaped,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, at: usize, end: usize) -> Self {
        let (mends, open) = (Repairs::default(), Open::default());
        Self {
            text,
            at,
            end,
            mends,
            open,
            loose: false,
            unterminated: false,
        }
    }

    /// Returns the byte at `at`, or `None` at and after the end of reading.
    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        if at < self.end {
            self.text.as_bytes().get(at).copied()
        } else {
            None
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.byte(self.at)
    }

    /// Returns `true` if `what` is at `at`.
    pub(super) fn is(&self, at: usize, what: &str) -> bool {
        self.text
            .as_bytes()
            .get(at..self.end)
            .is_some_and(|rest| rest.starts_with(what.as_bytes()))
    }

    /// Skips one character, if there is one.
    pub(super) fn bump(&mut self) {
        self.at += usize::from(self.at < self.end);
        while self.at < self.end && !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
    }

    /// Skips the text between two tokens. A fence there is the end of the text.
    ///
    /// An escaped line break outside of a string (`\n` as two characters) counts as white space: it
    /// occurs in JSON that was escaped twice.
    pub(super) fn skip(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t'..=b'\r' => self.at += 1,
                b'\\' if matches!(self.byte(self.at + 1), Some(b'n' | b't' | b'r')) => self.at += 2,
                b'`' if self.is(self.at, "```") => self.end = self.at,
                b'/' | b'#' | b'<' if self.comment(self.at) => self.skip_comment(),
                0x80.. if self.skip_unicode_space() => {}
                _ => return,
            }
        }
    }

    /// Returns `true` if a comment starts at `at`.
    ///
    /// Recognised are `#` and `//` up to the end of the line, `/* .. */` and `<!-- .. -->`.
    pub(super) fn comment(&self, at: usize) -> bool {
        match self.byte(at) {
            Some(b'#') => true,
            Some(b'/') => matches!(self.byte(at + 1), Some(b'/' | b'*')),
            Some(b'<') => self.is(at, "<!--"),
            _ => false,
        }
    }

    /// A block comment without an end reaches to the end of the text.
    fn skip_comment(&mut self) {
        let rest = &self.text[self.at..self.end];
        let closer = match rest.as_bytes() {
            [b'/', b'*', ..] => "*/",
            [b'<', ..] => "-->",
            _ => "\n",
        };
        // The opener of a block is skipped first, so that `/*/` does not close itself.
        let from = if closer == "\n" { 0 } else { 2 };
        let length = rest[from..]
            .find(closer)
            .map(|found| from + found + closer.len());
        self.at += length.unwrap_or(rest.len());
        self.mends.add(Repair::Comment);
    }

    /// Skips one character such as a non-breaking space, a byte order mark or a zero-width space,
    /// and returns `true` if there was one.
    fn skip_unicode_space(&mut self) -> bool {
        let next = self.text[self.at..self.end].chars().next();
        let space =
            next.filter(|c| c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}'..='\u{200d}'));
        self.at += space.map_or(0, char::len_utf8);
        space.is_some()
    }

    /// Returns the first position from `at` on that is not a space, tab or line break.
    ///
    /// Unlike [`skip`](Self::skip), it moves nothing and passes no comments. Lookahead uses it, so
    /// its cost is that of the white space only.
    pub(super) fn past_space(&self, mut at: usize) -> usize {
        loop {
            match self.byte(at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => at += 1,
                Some(b'\\') if matches!(self.byte(at + 1), Some(b'n' | b't' | b'r')) => at += 2,
                _ => return at,
            }
        }
    }

    /// Returns the quote that opens a string at `at`, and its length.
    ///
    /// The bytes `E2 80 98` to `E2 80 9F` are the typographic quotes U+2018 to U+201F, and `C2 AB`
    /// is `«`.
    pub(super) fn quote(&self, at: usize) -> Option<(Quote, usize)> {
        let found = match self.byte(at)? {
            b'"' => (Quote::Double, 1),
            b'\'' => (Quote::Single, 1),
            b'`' if !self.is(at, "```") => (Quote::Back, 1),
            b'\\' if self.byte(at + 1) == Some(b'"') => (Quote::Escaped, 2),
            0xE2 if self.byte(at + 1) == Some(0x80) => match self.byte(at + 2)? {
                0x98..=0x9B => (Quote::CurlySingle, 3),
                0x9C..=0x9F => (Quote::CurlyDouble, 3),
                _ => return None,
            },
            0xC2 if self.byte(at + 1) == Some(0xAB) => (Quote::Angle, 2),
            _ => return None,
        };
        Some(found)
    }

    /// Returns the length of the quote at `at` if it may close a string of this kind.
    ///
    /// Any quote that opens a string can close one of the same kind. So a search for the end of a
    /// string never passes the start of the next, and many unterminated strings cost no more than
    /// one.
    pub(super) fn closer(&self, quote: Quote, at: usize) -> Option<usize> {
        let byte = self.byte(at)?;
        match (quote, byte) {
            (Quote::Double | Quote::CurlyDouble, b'"') => Some(1),
            (Quote::Single | Quote::CurlySingle, b'\'') => Some(1),
            (Quote::Back, b'`') => Some(1),
            (Quote::Angle, 0xC2) => matches!(self.byte(at + 1), Some(0xAB | 0xBB)).then_some(2),
            (Quote::Escaped | Quote::CurlyDouble | Quote::CurlySingle, b'\\' | 0xE2) => self
                .quote(at)
                .filter(|found| found.0 == quote)
                .map(|found| found.1),
            _ => None,
        }
    }
}
