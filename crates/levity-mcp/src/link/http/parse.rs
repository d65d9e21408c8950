//! A parser of server-sent events from chunks of bytes, within a size limit.
//!
//! It follows the HTML standard: lines end with CR, LF or both, comments are skipped, and several
//! `data` lines form one text. Data stays bytes, because a chunk may end inside a character. The
//! size limit counts all lines of an event, and an event that exceeds it is an error at once,
//! before its end arrives.

use std::collections::VecDeque;

/// An event of a server-sent stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: Option<String>,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<u64>,
}

impl Event {
    /// Returns the message in the event, if it contains one.
    pub(crate) fn message(&self) -> Option<&[u8]> {
        let data = self
            .data
            .as_deref()
            .filter(|data| !data.trim_ascii().is_empty())?;
        matches!(self.name.as_deref(), None | Some("" | "message")).then_some(data)
    }
}

/// The error for an event over the size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

#[derive(Debug)]
pub(crate) struct Parser {
    max: usize,
    line: Vec<u8>,
    event: Event,
    /// The current size of the event.
    size: usize,
    after_cr: bool,
    ready: VecDeque<Event>,
}

impl Parser {
    /// Creates a parser; `max` is the maximum size of an event in bytes.
    pub(crate) fn new(max: usize) -> Self {
        let (line, event, ready) = (Vec::new(), Event::default(), VecDeque::new());
        Self {
            max,
            line,
            event,
            size: 0,
            after_cr: false,
            ready,
        }
    }

    /// Returns the next complete event.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Parses a chunk of bytes.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        if std::mem::take(&mut self.after_cr) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\r', b'\n', bytes) {
            self.extend(&bytes[..end])?;
            let mut rest = &bytes[end + 1..];
            if bytes[end] == b'\r' {
                self.after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            self.end_line();
            bytes = rest;
        }
        self.extend(bytes)
    }

    /// Adds a part of a line, within the limit of the event.
    fn extend(&mut self, part: &[u8]) -> Result<(), TooLarge> {
        // A comment is not stored, however long it is.
        if self.line.first().or(part.first()) == Some(&b':') {
            self.line = vec![b':'];
            return Ok(());
        }
        if self
            .size
            .saturating_add(self.line.len())
            .saturating_add(part.len())
            > self.max
        {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Ends a line; an empty one ends the event.
    fn end_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        if line.is_empty() {
            self.size = 0;
            let event = std::mem::take(&mut self.event);
            if event != Event::default() {
                self.ready.push_back(event);
            }
        } else {
            self.size += line.len();
            self.field(&line);
        }
        line.clear();
        self.line = line;
    }

    /// Sets one field of the event; unknown fields are ignored.
    fn field(&mut self, line: &[u8]) {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let colon = memchr::memchr(b':', line);
        let (name, value) = colon.map_or((line, &[][..]), |at| (&line[..at], &line[at + 1..]));
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => match &mut self.event.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                data => *data = Some(value.to_vec()),
            },
            b"event" => self.event.name = Some(text()),
            b"id" if !value.contains(&0) => self.event.id = Some(text()),
            b"retry" => self.event.retry = text().parse().ok(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(max: usize, pieces: &[&[u8]]) -> Result<Vec<Event>, TooLarge> {
        let mut parser = Parser::new(max);
        for piece in pieces {
            parser.push(piece)?;
        }
        Ok(std::iter::from_fn(|| parser.pop()).collect())
    }

    fn data(text: &str) -> Event {
        Event {
            data: Some(text.as_bytes().to_vec()),
            ..Event::default()
        }
    }

    #[test]
    fn parser_reads_fields_comments_and_line_ends() {
        let text =
            b"\xef\xbb\xbf: hello\nid: 7\nretry: 30\ndata:\n\nevent: x\r\ndata: a\rdata:b\r\n\
              \r\n\n\ndata: torn";
        let first = Event {
            id: Some("7".into()),
            retry: Some(30),
            ..data("")
        };
        let second = Event {
            name: Some("x".into()),
            ..data("a\nb")
        };
        assert_eq!(all(100, &[text]).unwrap(), [first, second]);
    }

    #[test]
    fn parser_result_is_independent_of_chunks() {
        let text = b"id: 1\r\ndata: {\"a\":1}\r\n\r\n: ping\r\n\r\ndata: x\r\rdata: y\n\n";
        let whole = all(100, &[text]).unwrap();
        assert_eq!(whole.len(), 3);
        for at in 0..text.len() {
            assert_eq!(
                all(100, &[&text[..at], &text[at..]]).unwrap(),
                whole,
                "cut at {at}"
            );
        }
        let bytes: Vec<_> = text.chunks(1).collect();
        assert_eq!(all(100, &bytes).unwrap(), whole);
    }

    #[test]
    fn parser_rejects_event_over_limit() {
        assert_eq!(all(10, &[b"data: 12345"]), Err(TooLarge));
        assert_eq!(all(10, &[b"data: 1\ndata: 2\n"]), Err(TooLarge));
        assert_eq!(
            all(10, &[b"data: 12\n\n", b"data: 34\n\n"]).unwrap().len(),
            2
        );
        assert_eq!(
            all(10, &[&[b':'; 50], &[b'x'; 100], b"\ndata: 1\n\n"]).unwrap(),
            [data("1")]
        );
    }
}
