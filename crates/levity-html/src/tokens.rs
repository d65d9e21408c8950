//! Splitting of a page into tags and text, as browsers do it.
//!
//! Nothing is copied, every byte is read a fixed number of times, and only the first attributes of
//! a tag are stored.

/// The maximum number of attributes that are stored per tag.
const MAX_ATTRS: usize = 64;

/// A token of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A start tag, whose attributes are in [`Tokens::attrs`].
    Start(&'a str),
    /// A closing tag with this name.
    End(&'a str),
    /// Text in this range of the page.
    Text(usize, usize),
}

/// The rules for the content of an element without tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raw {
    /// The content ends at the closing tag.
    Text,
    /// The content ends at the closing tag, unless a comment in the script hides it.
    Script,
    /// The content is the rest of the page.
    Rest,
}

/// A tokenizer for a page.
pub(super) struct Tokens<'a> {
    page: &'a str,
    at: usize,
    attrs: Vec<(&'a str, &'a str)>,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(page: &'a str) -> Self {
        Self {
            page,
            at: 0,
            attrs: Vec::new(),
        }
    }

    /// Returns the names and values of the last tag's attributes; values are not decoded.
    pub(super) fn attrs(&self) -> &[(&'a str, &'a str)] {
        &self.attrs
    }

    /// Comments, declarations and processing instructions are skipped. A `<` that begins no tag is
    /// text, as in browsers.
    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        while self.at < self.page.len() {
            let start = self.at;
            if self.byte(0) != Some(b'<') {
                self.at = self.find(start, '<');
                return Some(Token::Text(start, self.at));
            }
            match (self.byte(1), self.byte(2)) {
                (Some(b'!'), _) => self.declaration(),
                (Some(b'/'), Some(b'>')) => self.at += 3,
                (Some(b'/'), Some(c)) if c.is_ascii_alphabetic() => {
                    return self.tag(2).map(Token::End);
                }
                (Some(b'?'), _) | (Some(b'/'), Some(_)) => self.skip_past('>'),
                (Some(c), _) if c.is_ascii_alphabetic() => return self.tag(1).map(Token::Start),
                _ => {
                    self.at += 1;
                    return Some(Token::Text(start, self.at));
                }
            }
        }
        None
    }

    /// Reads the content of an element that was just opened, and returns its range.
    pub(super) fn raw(&mut self, name: &str, kind: Raw) -> (usize, usize) {
        let start = self.at;
        self.at = match kind {
            Raw::Rest => self.page.len(),
            Raw::Text => self.closing(start, name),
            Raw::Script => self.script(start),
        };
        (start, self.at)
    }

    /// Returns the byte at a distance from the current position.
    fn byte(&self, ahead: usize) -> Option<u8> {
        self.page.as_bytes().get(self.at + ahead).copied()
    }

    /// Returns the position of `c`, or the end of the page.
    fn find(&self, from: usize, c: char) -> usize {
        self.page[from..]
            .find(c)
            .map_or(self.page.len(), |found| from + found)
    }

    /// Moves behind the next `c`, or to the end of the page.
    fn skip_past(&mut self, c: char) {
        self.at = (self.find(self.at, c) + 1).min(self.page.len());
    }

    /// Skips a comment, or another construct that begins with `<!`.
    fn declaration(&mut self) {
        let rest = &self.page[self.at..];
        let Some(comment) = rest.strip_prefix("<!--") else {
            return self.skip_past('>');
        };
        let start = self.at + 4;
        if comment.starts_with('>') {
            self.at = start + 1;
        } else if comment.starts_with("->") {
            self.at = start + 2;
        } else {
            self.at = start + end_of_comment(comment);
        }
    }

    /// Reads a tag whose name begins `ahead` bytes from here; `None` if the end of the page cuts it
    /// off.
    fn tag(&mut self, ahead: usize) -> Option<&'a str> {
        let (page, start) = (self.page, self.at + ahead);
        self.at = start;
        self.attrs.clear();
        self.skip(|byte| !is_space(byte) && byte != b'/' && byte != b'>');
        let name = &page[start..self.at];
        loop {
            self.skip(|byte| is_space(byte) || byte == b'/');
            match self.byte(0) {
                None => return None,
                Some(b'>') => break,
                Some(_) => self.attribute(),
            }
        }
        self.at += 1;
        Some(name)
    }

    /// Reads one attribute. Those beyond the first 64 are read and dropped.
    fn attribute(&mut self) {
        let (page, start) = (self.page, self.at);
        // A leading equals sign belongs to the name.
        self.at += usize::from(self.byte(0) == Some(b'='));
        self.skip(|byte| !is_space(byte) && !matches!(byte, b'/' | b'>' | b'='));
        let name = &page[start..self.at];
        self.skip(is_space);
        let mut value = "";
        if self.byte(0) == Some(b'=') {
            self.at += 1;
            self.skip(is_space);
            value = self.value();
        }
        if self.attrs.len() < MAX_ATTRS {
            self.attrs.push((name, value));
        }
    }

    /// Reads a value with or without quotes. A quote that is not closed takes the rest of the page,
    /// as in browsers.
    fn value(&mut self) -> &'a str {
        let page = self.page;
        if let Some(quote @ (b'"' | b'\'')) = self.byte(0) {
            let start = self.at + 1;
            let end = self.find(start, char::from(quote));
            self.at = (end + 1).min(page.len());
            return &page[start..end];
        }
        let start = self.at;
        self.skip(|byte| !is_space(byte) && byte != b'>');
        &page[start..self.at]
    }

    /// Moves over bytes while the condition holds. Callers test for ASCII only, so the position
    /// stays at a character.
    fn skip(&mut self, while_it: impl Fn(u8) -> bool) {
        let bytes = &self.page.as_bytes()[self.at..];
        self.at += bytes
            .iter()
            .position(|byte| !while_it(*byte))
            .unwrap_or(bytes.len());
    }

    /// Returns the position of the closing tag of `name`, or the end of the page.
    fn closing(&self, from: usize, name: &str) -> usize {
        let mut at = self.find(from, '<');
        while at < self.page.len() && !self.closes(at, name) {
            at = self.find(at + 1, '<');
        }
        at
    }

    /// Returns `true` if the closing tag of `name` begins at this position.
    fn closes(&self, at: usize, name: &str) -> bool {
        self.page[at..].starts_with("</") && self.names(at + 2, name)
    }

    /// Returns `true` if a tag's name is at this position and ends there.
    fn names(&self, at: usize, name: &str) -> bool {
        let bytes = &self.page.as_bytes()[at..];
        let here = bytes
            .get(..name.len())
            .is_some_and(|here| here.eq_ignore_ascii_case(name.as_bytes()));
        here && bytes
            .get(name.len())
            .is_some_and(|byte| is_space(*byte) || matches!(byte, b'/' | b'>'))
    }

    /// Returns the end of a script. In a comment, a script may contain nested scripts.
    fn script(&self, from: usize) -> usize {
        let (mut commented, mut inner) = (false, false);
        let bytes = self.page.as_bytes();
        let mut at = from;
        while let Some(found) = bytes[at..]
            .iter()
            .position(|byte| matches!(byte, b'<' | b'-'))
        {
            at += found;
            let rest = &self.page[at..];
            if rest.starts_with("-->") {
                (commented, inner) = (false, false);
            } else if !commented && rest.starts_with("<!--") {
                commented = true;
                // The two dashes of a comment's start may also be those of its end.
                at += 1;
            } else if self.closes(at, "script") {
                if !inner {
                    return at;
                }
                inner = false;
            } else if commented && rest.starts_with('<') && self.names(at + 1, "script") {
                inner = true;
            }
            at += 1;
        }
        self.page.len()
    }
}

/// Returns the length of a comment, including its end.
fn end_of_comment(comment: &str) -> usize {
    let mut at = 0;
    while let Some(found) = comment[at..].find("--") {
        at += found;
        let rest = &comment[at + 2..];
        if rest.starts_with('>') {
            return at + 3;
        }
        if rest.starts_with("!>") {
            return at + 4;
        }
        at += 1;
    }
    comment.len()
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')
}

#[cfg(test)]
mod tests;
