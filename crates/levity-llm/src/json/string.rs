mod escape;

use super::ahead::Role;
use super::cursor::{Cursor, Quote};
use super::mend::Repair;

/// How far the end of a key is looked for beyond the first quote that does not look like it.
const KEY: usize = 256;

/// Bytes that may mean something in a string: quotes, the first bytes of quotes, backslashes,
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

/// A string as far as it has been read.
struct Reading {
    quote: Quote,
    /// Where the text of the string begins.
    start: usize,
    out: String,
    /// Where the text begins that is not in `out` yet.
    from: usize,
    /// The last quote that was taken for a part of the string, and how long the string was there.
    inner: Option<(usize, usize)>,
    /// The first one.
    first: Option<(usize, usize)>,
}

impl Cursor<'_> {
    /// Reads a string, with those that are joined to it. None for a key of which too little is
    /// there.
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

    fn one_string(&mut self, role: Role) -> Option<String> {
        let (quote, length) = self.quote(self.at)?;
        if quote != Quote::Double {
            self.mends.add(Repair::Quotes);
        }
        self.at += length;
        let (start, out) = (self.at, String::new());
        let mut reading = Reading {
            quote,
            start,
            out,
            from: start,
            inner: None,
            first: None,
        };
        loop {
            self.plain();
            let Some(byte) = self.peek() else {
                return self.cut_off(reading, role);
            };
            if let Some(length) = self.closer(quote, self.at) {
                if let Some(done) = self.at_quote(&mut reading, role, length) {
                    return Some(done);
                }
            } else if byte == b'\\' {
                self.flush(&mut reading);
                self.escape(&mut reading);
            } else {
                if byte < 0x20 {
                    self.mends.add(Repair::Control);
                }
                self.at += 1;
                // A byte that begins a quote of several bytes may begin another character too.
                while !self.text.is_char_boundary(self.at) {
                    self.at += 1;
                }
            }
            if role == Role::Key
                && reading
                    .first
                    .is_some_and(|(first, _)| self.at > first + KEY)
            {
                return Some(self.cut_key(reading));
            }
        }
    }

    /// Passes over bytes that mean themselves in any string.
    fn plain(&mut self) {
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

    fn flush(&self, reading: &mut Reading) {
        reading.out.push_str(&self.text[reading.from..self.at]);
        reading.from = self.at;
    }

    /// Takes a quote for the end of the string, and returns it, or for a part of it.
    fn at_quote(&mut self, reading: &mut Reading, role: Role, length: usize) -> Option<String> {
        let after = self.at + length;
        if self.ends(role, after) {
            self.flush(reading);
            self.at = after;
            return Some(self.undouble(std::mem::take(&mut reading.out), reading));
        }
        if role == Role::Member
            && self.byte(self.past_space(after)) == Some(b':')
            && self.before_key(reading)
        {
            return Some(self.end_before_key(reading));
        }
        let here = (self.at, reading.out.len() + self.at - reading.from);
        reading.inner = Some(here);
        reading.first = reading.first.or(Some(here));
        if role == Role::Key
            && let Some(colon) = self.colon(reading)
        {
            return Some(self.end_at_colon(reading, colon));
        }
        self.mends.add(Repair::InnerQuote);
        self.at = after;
        None
    }

    /// `""twice""` is meant to be quoted once.
    fn undouble(&self, out: String, reading: &Reading) -> String {
        let mark = match reading.quote {
            Quote::Double => '"',
            Quote::Single => '\'',
            _ => return out,
        };
        let doubled = reading.first.is_some_and(|first| first.0 == reading.start)
            && reading
                .inner
                .is_some_and(|inner| inner.0 > reading.start && inner.1 + 1 == out.len());
        match out
            .strip_prefix(mark)
            .and_then(|out| out.strip_suffix(mark))
        {
            Some(inside) if doubled => inside.to_owned(),
            _ => out,
        }
    }

    /// Whether the last quote inside begins the next member, so that the end of this string is
    /// missing.
    fn before_key(&self, reading: &Reading) -> bool {
        let Some((inner, _)) = reading.inner else {
            return false;
        };
        let before = &self.text[reading.start..inner];
        let trimmed = before.trim_end();
        trimmed.ends_with(',') || before[trimmed.len()..].contains('\n')
    }

    fn end_before_key(&mut self, reading: &mut Reading) -> String {
        self.flush(reading);
        let (inner, length) = reading.inner.unwrap_or((self.at, reading.out.len()));
        reading.out.truncate(length);
        self.at = inner;
        self.mends.add(Repair::Quotes);
        let text = reading.out.trim_end();
        text.strip_suffix(',')
            .unwrap_or(text)
            .trim_end_matches(['”', '’', ' '])
            .to_owned()
    }

    /// The colon in what should be a key.
    fn colon(&self, reading: &Reading) -> Option<usize> {
        // Only the part before the first quote is searched, so that it is searched once.
        let first = reading
            .first
            .filter(|first| Some(*first) == reading.inner)?;
        self.text[reading.start..first.0]
            .find(':')
            .map(|found| reading.start + found)
    }

    /// Ends a key without a closing quote at its colon.
    fn end_at_colon(&mut self, reading: &Reading, colon: usize) -> String {
        self.at = colon;
        self.mends.add(Repair::Quotes);
        self.text[reading.start..colon].trim().to_owned()
    }

    /// Ends a key that has become too long at the first quote in it.
    fn cut_key(&mut self, mut reading: Reading) -> String {
        self.flush(&mut reading);
        let (first, length) = reading.first.unwrap_or((self.at, reading.out.len()));
        self.at = first + self.closer(reading.quote, first).unwrap_or(1);
        reading.out.truncate(length);
        reading.out
    }

    /// The text ended inside the string.
    fn cut_off(&mut self, mut reading: Reading, role: Role) -> Option<String> {
        if role == Role::Key {
            if reading.first.is_some() {
                return Some(self.cut_key(reading));
            }
            let colon = self.text[reading.start..self.end].find(':');
            return colon.map(|found| self.end_at_colon(&reading, reading.start + found));
        }
        let closers = self.closers(&reading);
        self.at -= closers.unwrap_or(0);
        self.flush(&mut reading);
        if closers.is_some() {
            self.mends.add(Repair::Quotes);
            reading.out.truncate(reading.out.trim_end().len());
        } else {
            self.unterminated = true;
            self.mends.add(Repair::Truncated);
        }
        Some(reading.out)
    }

    /// How much of the end of an unclosed string is what closes all that is open. A brace or
    /// bracket that the string itself opened is its own.
    fn closers(&self, reading: &Reading) -> Option<usize> {
        let rest = &self.text[reading.from..self.end];
        let tail =
            rest.trim_end_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '}' | ']'));
        let count = |closer| rest[tail.len()..].matches(closer).count();
        let open = self.open.objects + self.open.lists > 0;
        let fits = open && count('}') == self.open.objects && count(']') == self.open.lists;
        let tally = |brackets: [char; 2]| {
            reading.out.matches(brackets).count() + tail.matches(brackets).count()
        };
        let own = tally(['{', '[']) > tally(['}', ']']);
        (fits && !own).then_some(rest.len() - tail.len())
    }
}
