//! Looking ahead: does a string end at this quote, or does the quote belong to it?
//!
//! What is looked at beyond blanks is limited, so that a text costs as much as it is long.

use super::cursor::Cursor;

/// How far a key is looked for.
const KEY: usize = 128;

/// What is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The key of a member of an object.
    Key,
    /// The value of a member of an object.
    Member,
    /// An element of a list.
    Element,
    /// A value that is the whole text.
    Alone,
}

impl Cursor<'_> {
    /// Whether a string in this role ends at a quote with `after` right behind it.
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

    fn ends_key(&self, after: usize, next: usize, byte: u8) -> bool {
        match byte {
            b':' | b'=' | b',' | b'}' | b'{' | b'[' | b'-' | b'0'..=b'9' => true,
            b't' | b'f' | b'n' | b'T' | b'F' | b'N' => self.literal(next),
            _ => next > after && self.quote(next).is_some(),
        }
    }

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

    /// Whether a number or literal at `next` is the next element, so that only the comma before it
    /// is missing. On the same line as the quote, what comes behind it must be the end of an
    /// element too: it may be a part of a sentence.
    fn atom_follows(&self, after: usize, next: usize) -> bool {
        let Some(end) = self.atom_end(next, Role::Element) else {
            return false;
        };
        let then = self.past_space(end);
        match self.byte(then) {
            Some(b']') => true,
            Some(b',' | b';') => self.comma_ends_element(then + 1),
            _ => self.text[after..next].contains('\n'),
        }
    }

    /// Whether a new line at `next` begins another object of a list, so that this one was not
    /// closed.
    fn object_follows(&self, next: usize) -> bool {
        self.open.lists > 0
            && self.byte(next) == Some(b'{')
            && self.quoted_key(self.past_space(next + 1)) == Some(true)
    }

    /// Whether the comma before `at` ends the value of a member: what follows reads as the next
    /// key.
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

    /// Whether the comma before `at` ends an element: what follows reads as the next one.
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

    /// Whether the quoted text at `at` is a key. Unknown if its end is not near.
    fn quoted_key(&self, at: usize) -> Option<bool> {
        let after = self.near_end(at)?;
        let next = self.past_space(after);
        Some(match self.byte(next)? {
            b':' | b'=' | b'{' | b'[' | b'-' | b'0'..=b'9' => true,
            b't' | b'f' | b'n' | b'T' | b'F' | b'N' => self.literal(next),
            _ => next > after && self.quote(next).is_some(),
        })
    }

    /// Whether the quoted text at `at` is near its end, and the end of a member's value with it.
    fn quoted_end(&self, at: usize) -> bool {
        let Some(after) = self.near_end(at) else {
            return self.text[at..self.end].len() < KEY;
        };
        let next = self.past_space(after);
        matches!(self.byte(next), None | Some(b'}' | b',' | b'"' | b'\''))
    }

    /// Whether the quoted text at `at` is followed by a colon.
    pub(super) fn quoted_colon(&self, at: usize) -> bool {
        self.near_end(at)
            .is_some_and(|after| self.byte(self.past_space(after)) == Some(b':'))
    }

    /// What is right behind the quoted text at `at`, if that is short and on one line.
    fn near_end(&self, at: usize) -> Option<usize> {
        let (quote, length) = self.quote(at)?;
        let mut place = at + length;
        while place < at + KEY {
            if let Some(closer) = self.closer(quote, place) {
                return Some(place + closer);
            }
            match self.byte(place)? {
                b'\\' => place += 2,
                b'\n' => return None,
                _ => place += 1,
            }
        }
        None
    }

    /// Whether a key without quotes and its colon stand at `at`.
    pub(super) fn bare_key(&self, at: usize) -> bool {
        let length = self.word(at);
        let next = self.past_space(at + length);
        length > 0
            && self.byte(next) == Some(b':')
            && !matches!(self.byte(next + 1), Some(b':' | b'/'))
    }

    /// Whether the one word at `at` is an element of a list.
    fn single_word(&self, at: usize) -> bool {
        let length = self.word(at);
        length > 0
            && matches!(
                self.byte(self.past_space(at + length)),
                None | Some(b',' | b']' | b'(' | b':')
            )
    }

    /// Whether a literal stands at `at`, as a word of its own.
    pub(super) fn literal(&self, at: usize) -> bool {
        let word = self.text.get(at..at + self.word(at)).unwrap_or_default();
        ["true", "false", "null", "none", "nan"]
            .iter()
            .any(|literal| word.eq_ignore_ascii_case(literal))
    }

    /// The length of the word at `at`, up to a limit.
    fn word(&self, at: usize) -> usize {
        let rest = self
            .text
            .as_bytes()
            .get(at..self.end.min(at + KEY))
            .unwrap_or_default();
        let part = |byte: &u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-' | b'.' | 0x80..)
        };
        rest.iter().take_while(|byte| part(byte)).count()
    }

    /// Whether a plus and another string stand at `at`.
    fn plus(&self, at: usize) -> bool {
        self.byte(at) == Some(b'+') && self.quote(self.past_space(at + 1)).is_some()
    }

    /// The place of a string that goes on the one which ended here.
    pub(super) fn joined(&self, role: Role) -> Option<usize> {
        let next = self.past_space(self.at);
        if self.plus(next) {
            return Some(self.past_space(next + 1));
        }
        let goes_on = role == Role::Member && next > self.at && self.quote(next).is_some();
        (goes_on && self.quoted_key(next) == Some(false)).then_some(next)
    }
}
