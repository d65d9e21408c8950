//! Escape sequences of strings, valid and invalid ones.
//!
//! Models write paths (`C:\dir`), formulas (`\alpha`) and regular expressions without doubling
//! their backslashes. A backslash that starts no known escape is kept, because dropping it loses
//! content.

use super::PartialString;
use crate::json::cursor::{Cursor, Quote};
use crate::json::repairs::Repair;

impl Cursor<'_> {
    /// Parses the text after a backslash.
    ///
    /// A lone backslash at the end of a truncated text is dropped.
    pub(super) fn escape(&mut self, partial: &mut PartialString) {
        // JSON that was escaped twice has two backslashes in place of one.
        let twice = partial.quote == Quote::Escaped && self.byte(self.at + 1) == Some(b'\\');
        let at = self.at + 1 + usize::from(twice);
        let at = at + usize::from(twice && self.byte(at) == Some(b'\\'));
        let Some(byte) = self.byte(at) else {
            self.at = self.end;
            partial.from = self.end;
            return;
        };
        let plain = match byte {
            b'u' => self.unicode(at + 1, &mut partial.out),
            b'x' => self.hex(at + 1, 2, &mut partial.out),
            _ => self
                .short(byte)
                .or_else(|| self.keep_backslash(at, &mut partial.out)),
        };
        if let Some(plain) = plain {
            partial.out.push(plain);
            self.at = at + 1;
        }
        partial.from = self.at;
    }

    /// Returns the character for a single-character escape.
    ///
    /// `\'` and `` \` `` are no JSON, but mean the quote itself.
    fn short(&mut self, byte: u8) -> Option<char> {
        Some(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'\'' | b'`' => {
                self.mends.add(Repair::Escape);
                char::from(byte)
            }
            _ => return None,
        })
    }

    /// Keeps a backslash that escapes nothing, as in a path or a formula.
    fn keep_backslash(&mut self, at: usize, out: &mut String) -> Option<char> {
        self.mends.add(Repair::Escape);
        out.push('\\');
        self.at = at;
        None
    }

    /// Parses `\x41`, which JSON does not define.
    fn hex(&mut self, at: usize, digits: usize, out: &mut String) -> Option<char> {
        match self.digits(at, digits).and_then(char::from_u32) {
            Some(found) => {
                self.mends.add(Repair::Escape);
                out.push(found);
                self.at = at + digits;
                None
            }
            None => self.keep_backslash(at - 1, out),
        }
    }

    /// Parses `\u0041`, including surrogate pairs. Half a pair becomes the replacement character.
    ///
    /// A truncated `\u00` at the end of the text is dropped. `\u` without digits keeps its
    /// backslash.
    fn unicode(&mut self, at: usize, out: &mut String) -> Option<char> {
        let Some(first) = self.digits(at, 4) else {
            let hex = self.text.as_bytes().get(at..self.end).unwrap_or_default();
            if hex.len() < 4 && hex.iter().all(u8::is_ascii_hexdigit) {
                self.at = self.end;
                return None;
            }
            return self.keep_backslash(at - 1, out);
        };
        self.at = at + 4;
        let pair = (0xD800..0xDC00).contains(&first) && self.is(at + 4, "\\u");
        let second = if pair { self.digits(at + 6, 4) } else { None };
        let found = match second.filter(|second| (0xDC00..0xE000).contains(second)) {
            Some(second) => {
                self.at = at + 10;
                char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            }
            None => char::from_u32(first),
        };
        if found.is_none() {
            self.mends.add(Repair::Escape);
        }
        out.push(found.unwrap_or(char::REPLACEMENT_CHARACTER));
        None
    }

    /// Returns the value of exactly `count` hexadecimal digits at `at`, or `None` if fewer are
    /// there.
    fn digits(&self, at: usize, count: usize) -> Option<u32> {
        let digits = self
            .text
            .as_bytes()
            .get(at..at + count)
            .filter(|_| at + count <= self.end)?;
        digits.iter().try_fold(0, |sum, digit| {
            Some(sum * 16 + char::from(*digit).to_digit(16)?)
        })
    }
}
