//! Lookahead: decides whether a quote ends a string or belongs to it.
//!
//! The lookahead past white space is limited, so that the total time is linear in the text.
//!
//! A model forgets to escape quotes inside of strings, so the next quote is not always the end. The
//! decision depends on the text after the quote: `"say "yes" twice"` continues after the inner
//! quotes, because no comma, bracket or key follows them. Each [`Role`] has its own set of
//! continuations that end a string.
//!
//! Keys are searched for at most [`MAX_KEY_BYTES`] ahead. Every candidate quote therefore costs
//! constant time, apart from white space.

use super::cursor::Cursor;

/// The maximum length of a key that is searched for.
const MAX_KEY_BYTES: usize = 128;

/// The role of the value that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The key of an object member.
    Key,
    /// The value of an object member.
    Member,
    /// An element of a list.
    Element,
    /// A value that is the whole text.
    Alone,
}

impl Cursor<'_> {
    /// Returns `true` if a string in this role ends at a quote that `after` directly follows.
    ///
    /// The end of the text, a fence and a comment end a string in any role. A `#` directly after
    /// the quote is no comment: it may be part of the text.
    pub(super) fn ends(&self, role: Role, after: usize) -> bool {
        let next = self.past_space(after);
        let Some(byte) = self.byte(next) else {
            return true;
        };
        if self.is(next, "```") || self.comment(next) && (byte != b'#' || next > after) {
            return true;
        }
        match role {
            Role::Key => self.ends_key(after, next, byte),
            Role::Member => self.ends_member(after, next, byte),
            Role::Element => self.ends_element(after, next, byte),
            Role::Alone => self.plus(next),
        }
    }

    /// A key ends before a colon or its substitutes, before the start of a value whose colon is
    /// missing, or before the end of a set.
    fn ends_key(&self, after: usize, next: usize, byte: u8) -> bool {
        match byte {
            b':' | b'=' | b',' | b'}' | b'{' | b'[' | b'-' | b'0'..=b'9' => true,
            b't' | b'f' | b'n' | b'T' | b'F' | b'N' => self.literal(next),
            _ => next > after && self.quote(next).is_some(),
        }
    }

    /// `after` is the position behind the quote, `next` that of the next text and `byte` its first
    /// byte. A closing bracket counts only if such a bracket is open. A word on a new line ends the
    /// string only if it looks like a key.
    fn ends_member(&self, after: usize, next: usize, byte: u8) -> bool {
        let apart = next > after;
        match byte {
            b'}' => true,
            b']' => self.open.lists > 0,
            b')' => self.open.calls > 0,
            b',' | b';' => self.comma_ends_member(next + 1),
            b'+' => self.plus(next),
            b':' => false,
            _ if self.quote(next).is_some() => {
                self.quoted_key(next) == Some(true) || apart && self.quoted_end(next)
            }
            _ => {
                self.text[after..next].contains('\n')
                    && (self.bare_key(next) || self.object_follows(next))
            }
        }
    }

    /// Another string, list or object after white space ends the element, because a comma is easily
    /// forgotten there. The same text without white space belongs to the string.
    fn ends_element(&self, after: usize, next: usize, byte: u8) -> bool {
        let apart = next > after;
        match byte {
            b']' | b':' => true,
            b'}' => self.open.objects > 0,
            b')' => self.open.calls > 0,
            b',' | b';' => self.comma_ends_element(next + 1),
            b'+' if self.plus(next) => true,
            b'{' | b'[' => apart,
            _ if self.quote(next).is_some() => apart,
            _ => apart && self.atom_follows(after, next),
        }
    }

    /// Returns `true` if a number or literal at `next` is the next element and only the comma is
    /// missing. On the same line as the quote, the text after it must also end an element, because
    /// it may be part of a sentence.
    fn atom_follows(&self, after: usize, next: usize) -> bool {
        let Some(end) = self.atom_end(next, Role::Element) else {
            return false;
        };
        let following = self.past_space(end);
        match self.byte(following) {
            Some(b']') => true,
            Some(b',' | b';') => self.comma_ends_element(following + 1),
            _ => self.text[after..next].contains('\n'),
        }
    }

    /// Returns `true` if a new line at `next` starts another object of a list, so this one was not
    /// closed.
    fn object_follows(&self, next: usize) -> bool {
        self.open.lists > 0
            && self.byte(next) == Some(b'{')
            && self.quoted_key(self.past_space(next + 1)) == Some(true)
    }

    /// Returns `true` if the comma before `at` ends the value of a member: the next text looks like
    /// a key.
    pub(super) fn comma_ends_member(&self, at: usize) -> bool {
        let next = self.past_space(at);
        let Some(byte) = self.byte(next) else {
            return true;
        };
        match byte {
            b'}' | b']' | b',' | b'{' => true,
            b'.' => self.is(next, "..."),
            _ if self.comment(next) || self.is(next, "```") => true,
            _ if self.quote(next).is_some() => self.quoted_key(next).unwrap_or(true),
            _ => self.bare_key(next),
        }
    }

    /// Returns `true` if the comma before `at` ends an element: the next text looks like another
    /// one.
    ///
    /// A single word before the next comma or bracket counts as another element; several words are
    /// prose.
    fn comma_ends_element(&self, at: usize) -> bool {
        let next = self.past_space(at);
        let Some(byte) = self.byte(next) else {
            return true;
        };
        match byte {
            b'}' | b']' | b')' | b',' | b'{' | b'[' | b'-' | b'+' | b'.' | b'0'..=b'9' => true,
            _ if self.comment(next) || self.is(next, "```") => true,
            _ if self.quote(next).is_some() => true,
            _ => self.single_word(next) || self.atom_end(next, Role::Element).is_some(),
        }
    }

    /// Returns `true` if the quoted text at `at` is a key; `None` if its end is too far away.
    fn quoted_key(&self, at: usize) -> Option<bool> {
        let after = self.quoted_text_end(at)?;
        let next = self.past_space(after);
        Some(match self.byte(next)? {
            b':' | b'=' | b'{' | b'[' | b'-' | b'0'..=b'9' => true,
            b't' | b'f' | b'n' | b'T' | b'F' | b'N' => self.literal(next),
            _ => next > after && self.quote(next).is_some(),
        })
    }

    /// Returns `true` if the quoted text at `at` ends nearby and ends the value of a member.
    ///
    /// Decides on a second string behind a string: it belongs to the value if it ends the member.
    fn quoted_end(&self, at: usize) -> bool {
        let Some(after) = self.quoted_text_end(at) else {
            return self.text[at..self.end].len() < MAX_KEY_BYTES;
        };
        let next = self.past_space(after);
        matches!(self.byte(next), None | Some(b'}' | b',' | b'"' | b'\''))
    }

    /// Returns `true` if a colon follows the quoted text at `at`.
    pub(super) fn quoted_colon(&self, at: usize) -> bool {
        self.quoted_text_end(at)
            .is_some_and(|after| self.byte(self.past_space(after)) == Some(b':'))
    }

    /// Returns the position after the quoted text at `at`, if that is short and on one line.
    fn quoted_text_end(&self, at: usize) -> Option<usize> {
        let (quote, length) = self.quote(at)?;
        let mut position = at + length;
        while position < at + MAX_KEY_BYTES {
            if let Some(closer) = self.closer(quote, position) {
                return Some(position + closer);
            }
            match self.byte(position)? {
                b'\\' => position += 2,
                b'\n' => return None,
                _ => position += 1,
            }
        }
        None
    }

    /// Returns `true` if an unquoted key and its colon are at `at`.
    pub(super) fn bare_key(&self, at: usize) -> bool {
        let length = self.word(at);
        let next = self.past_space(at + length);
        length > 0
            && self.byte(next) == Some(b':')
            && !matches!(self.byte(next + 1), Some(b':' | b'/'))
    }

    /// Returns `true` if the single word at `at` is an element of a list.
    fn single_word(&self, at: usize) -> bool {
        let length = self.word(at);
        length > 0
            && matches!(
                self.byte(self.past_space(at + length)),
                None | Some(b',' | b']' | b'(' | b':')
            )
    }

    /// Returns `true` if a literal is at `at` as a separate word.
    pub(super) fn literal(&self, at: usize) -> bool {
        let word = self.text.get(at..at + self.word(at)).unwrap_or_default();
        ["true", "false", "null", "none", "nan"]
            .iter()
            .any(|literal| word.eq_ignore_ascii_case(literal))
    }

    /// Returns the length of the word at `at`, up to a limit.
    ///
    /// Letters, digits, `_`, `$`, `-`, `.` and all non-ASCII characters form a word.
    fn word(&self, at: usize) -> usize {
        let rest = self
            .text
            .as_bytes()
            .get(at..self.end.min(at + MAX_KEY_BYTES))
            .unwrap_or_default();
        let part = |byte: &u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-' | b'.' | 0x80..)
        };
        rest.iter().take_while(|byte| part(byte)).count()
    }

    /// Returns `true` if a plus and another string are at `at`.
    fn plus(&self, at: usize) -> bool {
        self.byte(at) == Some(b'+') && self.quote(self.past_space(at + 1)).is_some()
    }

    /// Returns the position of a string that continues the one that ended here.
    ///
    /// `"a" + "b"` is joined anywhere. `"a" "b"` is joined only as the value of a member, and only
    /// if the second string is not the next key.
    pub(super) fn joined(&self, role: Role) -> Option<usize> {
        let next = self.past_space(self.at);
        if self.plus(next) {
            return Some(self.past_space(next + 1));
        }
        let continues = role == Role::Member && next > self.at && self.quote(next).is_some();
        (continues && self.quoted_key(next) == Some(false)).then_some(next)
    }
}
