//! Strings: finds their end and undoes their mistakes.
//!
//! A quote is either the end or a part of the string; [`Cursor::ends`] decides. If a pair of quotes
//! turns out to be the next key, the end was missing, and the string is cut before that key.
//! [`PartialString`] remembers the doubtful quotes, so that no text is read twice.
//!
//! Ordinary bytes are skipped with a table and copied in one piece, because most text needs no
//! repair.

mod escape;

use super::cursor::{Cursor, Quote};
use super::lookahead::Role;
use super::repairs::Repair;

/// The maximum distance to the end of a key, after the first quote that does not look like its end.
const MAX_KEY_BYTES: usize = 256;

/// Bytes with a possible meaning in a string: quotes, the first bytes of quotes, backslashes and
/// control characters.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < special.len() {
        special[byte] = matches!(
            byte as u8,
            0..0x20 | b'"' | b'\'' | b'`' | b'\\' | 0xC2 | 0xE2
        );
        byte += 1;
    }
    special
};

/// The state of a partially read string.
struct PartialString {
    quote: Quote,
    /// The start of the string's text.
    start: usize,
    out: String,
    /// The start of the text that is not in `out` yet.
    from: usize,
    /// The last quote that was taken as part of the string, and the length of the string there.
    inner: Option<(usize, usize)>,
    /// The first such quote, with the same data.
    first: Option<(usize, usize)>,
}

impl Cursor<'_> {
    /// Parses a string and those joined to it. Returns `None` for a key that is too incomplete.
    ///
    /// Keys are never joined to the next string, since that string is their value.
    pub(super) fn string(&mut self, role: Role) -> Option<String> {
        let mut whole = self.one_string(role)?;
        while role != Role::Key
            && let Some(next) = self.joined(role)
        {
            self.at = next;
            self.mends.add(Repair::Joined);
            whole.push_str(&self.one_string(role)?);
        }
        Some(whole)
    }

    /// Control characters are kept as they are and only noted as a repair. A key that runs too far
    /// after a doubtful quote ends at that quote.
    fn one_string(&mut self, role: Role) -> Option<String> {
        let (quote, length) = self.quote(self.at)?;
        if quote != Quote::Double {
            self.mends.add(Repair::Quotes);
        }
        self.at += length;
        let (start, out) = (self.at, String::new());
        let mut partial = PartialString {
            quote,
            start,
            out,
            from: start,
            inner: None,
            first: None,
        };
        loop {
            self.skip_ordinary();
            let Some(byte) = self.peek() else {
                return self.end_of_text(partial, role);
            };
            if let Some(length) = self.closer(quote, self.at) {
                if let Some(done) = self.at_quote(&mut partial, role, length) {
                    return Some(done);
                }
            } else if byte == b'\\' {
                self.flush(&mut partial);
                self.escape(&mut partial);
            } else {
                if byte < 0x20 {
                    self.mends.add(Repair::Control);
                }
                self.at += 1;
                // A byte that starts a multi-byte quote may also start another character.
                while !self.text.is_char_boundary(self.at) {
                    self.at += 1;
                }
            }
            if role == Role::Key
                && partial
                    .first
                    .is_some_and(|(first, _)| self.at > first + MAX_KEY_BYTES)
            {
                return Some(self.cut_key(partial));
            }
        }
    }

    /// Skips bytes without a special meaning in any string.
    fn skip_ordinary(&mut self) {
        let rest = self
            .text
            .as_bytes()
            .get(self.at..self.end)
            .unwrap_or_default();
        self.at += rest
            .iter()
            .position(|byte| SPECIAL[usize::from(*byte)])
            .unwrap_or(rest.len());
    }

    /// Copies the text that was read but not copied yet.
    fn flush(&self, partial: &mut PartialString) {
        partial.out.push_str(&self.text[partial.from..self.at]);
        partial.from = self.at;
    }

    /// Treats a quote as the end of the string, which it returns, or as a part of it.
    fn at_quote(
        &mut self,
        partial: &mut PartialString,
        role: Role,
        length: usize,
    ) -> Option<String> {
        let after = self.at + length;
        if self.ends(role, after) {
            self.flush(partial);
            self.at = after;
            return Some(self.undouble(std::mem::take(&mut partial.out), partial));
        }
        if role == Role::Member
            && self.byte(self.past_space(after)) == Some(b':')
            && self.before_key(partial)
        {
            return Some(self.end_before_key(partial));
        }
        let here = (self.at, partial.out.len() + self.at - partial.from);
        partial.inner = Some(here);
        partial.first = partial.first.or(Some(here));
        if role == Role::Key
            && let Some(colon) = self.colon(partial)
        {
            return Some(self.end_at_colon(partial, colon));
        }
        self.mends.add(Repair::InnerQuote);
        self.at = after;
        None
    }

    /// Removes doubled quotes as in `""twice""`.
    ///
    /// Both outer quotes must be doubled; `""a" b"` keeps its quotes.
    fn undouble(&self, out: String, partial: &PartialString) -> String {
        let mark = match partial.quote {
            Quote::Double => '"',
            Quote::Single => '\'',
            _ => return out,
        };
        let doubled = partial.first.is_some_and(|first| first.0 == partial.start)
            && partial
                .inner
                .is_some_and(|inner| inner.0 > partial.start && inner.1 + 1 == out.len());
        match out
            .strip_prefix(mark)
            .and_then(|out| out.strip_suffix(mark))
        {
            Some(inside) if doubled => inside.to_owned(),
            _ => out,
        }
    }

    /// Returns `true` if the last inner quote starts the next member, so the end of this string is
    /// missing.
    fn before_key(&self, partial: &PartialString) -> bool {
        let Some((inner, _)) = partial.inner else {
            return false;
        };
        let before = &self.text[partial.start..inner];
        let trimmed = before.trim_end();
        trimmed.ends_with(',') || before[trimmed.len()..].contains('\n')
    }

    /// Cuts the string at the last inner quote, and removes the comma and typographic quotes before
    /// it.
    fn end_before_key(&mut self, partial: &mut PartialString) -> String {
        self.flush(partial);
        let (inner, length) = partial.inner.unwrap_or((self.at, partial.out.len()));
        partial.out.truncate(length);
        self.at = inner;
        self.mends.add(Repair::Quotes);
        let text = partial.out.trim_end();
        text.strip_suffix(',')
            .unwrap_or(text)
            .trim_end_matches(['”', '’', ' '])
            .to_owned()
    }

    /// Returns the position of the colon in an assumed key.
    fn colon(&self, partial: &PartialString) -> Option<usize> {
        // Only the part before the first quote is searched, so that it is searched once.
        let first = partial
            .first
            .filter(|first| Some(*first) == partial.inner)?;
        self.text[partial.start..first.0]
            .find(':')
            .map(|found| partial.start + found)
    }

    /// Ends a key without a closing quote at its colon.
    fn end_at_colon(&mut self, partial: &PartialString, colon: usize) -> String {
        self.at = colon;
        self.mends.add(Repair::Quotes);
        self.text[partial.start..colon].trim().to_owned()
    }

    /// Ends a key that is too long at the first quote in it.
    fn cut_key(&mut self, mut partial: PartialString) -> String {
        self.flush(&mut partial);
        let (first, length) = partial.first.unwrap_or((self.at, partial.out.len()));
        self.at = first + self.closer(partial.quote, first).unwrap_or(1);
        partial.out.truncate(length);
        partial.out
    }

    /// Handles the end of the text inside the string.
    ///
    /// A key without an end yields `None`, which drops it, unless a colon shows its end.
    fn end_of_text(&mut self, mut partial: PartialString, role: Role) -> Option<String> {
        if role == Role::Key {
            if partial.first.is_some() {
                return Some(self.cut_key(partial));
            }
            let colon = self.text[partial.start..self.end].find(':');
            return colon.map(|found| self.end_at_colon(&partial, partial.start + found));
        }
        let closers = self.closers(&partial);
        self.at -= closers.unwrap_or(0);
        self.flush(&mut partial);
        if closers.is_some() {
            self.mends.add(Repair::Quotes);
            partial.out.truncate(partial.out.trim_end().len());
        } else {
            self.unterminated = true;
            self.mends.add(Repair::Truncated);
        }
        Some(partial.out)
    }

    /// Returns the length of the suffix of an unclosed string that closes everything open. A brace
    /// or bracket that the string itself opened belongs to the string.
    ///
    /// `{"a": "text}` lacks the closing quote. The brackets at its end match the open ones exactly,
    /// so they close the value and are not part of the text.
    fn closers(&self, partial: &PartialString) -> Option<usize> {
        let rest = &self.text[partial.from..self.end];
        let tail =
            rest.trim_end_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '}' | ']'));
        let count = |closer| rest[tail.len()..].matches(closer).count();
        let open = self.open.objects + self.open.lists > 0;
        let fits = open && count('}') == self.open.objects && count(']') == self.open.lists;
        let tally = |brackets: [char; 2]| {
            partial.out.matches(brackets).count() + tail.matches(brackets).count()
        };
        let own = tally(['{', '[']) > tally(['}', ']']);
        (fits && !own).then_some(rest.len() - tail.len())
    }
}
