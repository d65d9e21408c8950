//! Splits a byte stream into events or lines, regardless of network chunk boundaries.
//!
//! Network chunks may end anywhere, also between a carriage return and its line feed or within a
//! character. Events are handed over as borrowed bytes where possible: a token of a reply then
//! costs no copy in this module.
//!
//! Memory is limited to 32 MiB for a line and for an event, because a server that never ends a line
//! would otherwise fill it.
//!
//! A stream of two events, the first with a name and two lines of data:
//!
//! ```text
//! event: note
//! data: first
//! data: second
//!
//! : a comment
//! data: {"choices": []}
//!
//! ```

use levity_core::{ModelError, ModelErrorKind};

/// The maximum size of a line and of an event: 32 MiB.
const MAX_BYTES: usize = 32 << 20;

/// The framing of events in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The framing of server-sent events.
    Sse,
    /// One JSON value per line.
    #[allow(dead_code, reason = "only some providers use this framing")]
    JsonLines,
}

/// A parser that turns chunks of bytes into events.
///
/// It implements the parts of the server-sent events specification that matter for a reply: data,
/// event names, comments, all three line ends and a byte order mark.
#[derive(Debug)]
pub(crate) struct Lines {
    framing: Framing,
    /// The current line, which is still incomplete.
    open: Vec<u8>,
    /// The name and the data of the current event.
    name: String,
    data: Vec<u8>,
    has_data: bool,
    started: bool,
    /// True if the last byte was a carriage return: a following line feed belongs to the same line
    /// end.
    after_carriage_return: bool,
}

/// A consumer of events: an optional name, and the data.
///
/// # Contract
/// - `event` receives each event once, in the order of the stream, without its framing.
/// - The name is empty for events without one, and for JSON Lines.
/// - An error stops the parser; bytes behind it are not parsed.
pub(crate) trait Events {
    /// Handles one event; its data is borrowed and may be any bytes.
    fn event(&mut self, name: &str, data: &[u8]) -> Result<(), ModelError>;
}

impl<F: FnMut(&str, &[u8]) -> Result<(), ModelError>> Events for F {
    fn event(&mut self, name: &str, data: &[u8]) -> Result<(), ModelError> {
        self(name, data)
    }
}

impl Lines {
    /// Creates a parser at the start of a stream.
    pub(crate) fn new(framing: Framing) -> Self {
        let (name, data) = (String::new(), Vec::new());
        Self {
            framing,
            open: Vec::new(),
            name,
            data,
            has_data: false,
            started: false,
            after_carriage_return: false,
        }
    }

    /// Parses the next chunk of bytes.
    ///
    /// # Errors
    /// Returns `Malformed` for a line or an event of more than 32 MiB, and the errors of `events`.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        events: &mut impl Events,
    ) -> Result<(), ModelError> {
        match self.framing {
            Framing::Sse => self.push_sse(bytes, events),
            Framing::JsonLines => self.push_lines(bytes, events),
        }
    }

    /// Parses the rest at the end of the stream, which may lack a line end.
    ///
    /// An event without the empty line at its end is emitted too, so that a server that omits it
    /// loses no event.
    ///
    /// # Errors
    /// Returns the same errors as [`push`](Self::push).
    pub(crate) fn finish(&mut self, events: &mut impl Events) -> Result<(), ModelError> {
        let last = std::mem::take(&mut self.open);
        match self.framing {
            Framing::JsonLines => self.json(&last, events),
            Framing::Sse => {
                let mut held = None;
                self.field(self.line(&last), &mut held, events)?;
                self.append_data(held)?;
                self.dispatch(None, events)
            }
        }
    }

    /// Parses JSON Lines. A line within one chunk is not copied.
    fn push_lines(&mut self, mut bytes: &[u8], events: &mut impl Events) -> Result<(), ModelError> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if self.open.is_empty() {
                self.json(line, events)?;
            } else {
                let whole = self.complete_line(line)?;
                self.json(&whole, events)?;
                self.reuse_buffer(whole);
            }
        }
        self.append_to_line(bytes)
    }

    /// Emits a line, unless it is blank.
    fn json(&mut self, line: &[u8], events: &mut impl Events) -> Result<(), ModelError> {
        check_size(line.len())?;
        let line = self.line(line).trim_ascii();
        self.started |= !line.is_empty();
        if line.is_empty() {
            Ok(())
        } else {
            events.event("", line)
        }
    }

    /// Parses lines that end with a line feed, a carriage return, or both. Data within a single
    /// chunk is not copied.
    fn push_sse<'a>(
        &mut self,
        mut bytes: &'a [u8],
        events: &mut impl Events,
    ) -> Result<(), ModelError> {
        let mut held: Option<&'a [u8]> = None;
        if bytes.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.after_carriage_return) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(end);
            let (mark, rest) = rest.split_at(1);
            bytes = rest;
            if mark == b"\r" {
                self.after_carriage_return = rest.is_empty();
                bytes = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            if self.open.is_empty() {
                self.field(self.line(line), &mut held, events)?;
            } else {
                self.append_data(held.take())?;
                let whole = self.complete_line(line)?;
                let mut inside = None;
                self.field(self.line(&whole), &mut inside, events)?;
                self.append_data(inside)?;
                self.reuse_buffer(whole);
            }
            self.started = true;
        }
        self.append_data(held)?;
        self.append_to_line(bytes)
    }

    /// Returns a line without the byte order mark that may start the stream.
    fn line<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        if self.started {
            line
        } else {
            line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
        }
    }

    /// Stores the start of a line that a later chunk completes.
    fn append_to_line(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        check_size(self.open.len() + bytes.len())?;
        self.open.extend_from_slice(bytes);
        Ok(())
    }

    /// Completes the open line; pass its buffer to `reuse_buffer` afterwards.
    fn complete_line(&mut self, end: &[u8]) -> Result<Vec<u8>, ModelError> {
        self.append_to_line(end)?;
        Ok(std::mem::take(&mut self.open))
    }

    /// Returns the buffer of a completed line, so that lines across chunks allocate once.
    fn reuse_buffer(&mut self, mut line: Vec<u8>) {
        line.clear();
        self.open = line;
    }

    /// Parses a line of an event. The first line of data is only borrowed, because it is usually
    /// the only one.
    ///
    /// `held` is that first line. It is copied to `data` only if a second line follows or the chunk
    /// ends.
    fn field<'a>(
        &mut self,
        line: &'a [u8],
        held: &mut Option<&'a [u8]>,
        events: &mut impl Events,
    ) -> Result<(), ModelError> {
        if line.is_empty() {
            return self.dispatch(held.take(), events);
        }
        let colon = memchr::memchr(b':', line);
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" if held.is_none() && !self.has_data => *held = Some(value),
            b"data" => {
                self.append_data(held.take())?;
                self.append_data(Some(value))?;
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&String::from_utf8_lossy(value));
            }
            // Comments, ids and reconnection times are ignored.
            _ => {}
        }
        Ok(())
    }

    /// Appends a line of data to the previous ones.
    fn append_data(&mut self, value: Option<&[u8]>) -> Result<(), ModelError> {
        let Some(value) = value else { return Ok(()) };
        check_size(self.data.len() + value.len())?;
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        Ok(())
    }

    /// Emits the event that an empty line ends.
    ///
    /// An event without data is dropped, as the specification demands.
    fn dispatch(
        &mut self,
        held: Option<&[u8]>,
        events: &mut impl Events,
    ) -> Result<(), ModelError> {
        let has_data = std::mem::take(&mut self.has_data);
        let sent = match held {
            Some(data) => check_size(data.len()).and_then(|()| events.event(&self.name, data)),
            None if has_data => events.event(&self.name, &self.data),
            None => Ok(()),
        };
        self.data.clear();
        self.name.clear();
        sent
    }
}

/// Limits the length of a line or an event.
fn check_size(length: usize) -> Result<(), ModelError> {
    if length <= MAX_BYTES {
        return Ok(());
    }
    let message = format!("the reply has a line that is longer than {MAX_BYTES} bytes");
    Err(ModelError::new(ModelErrorKind::Malformed, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events in these bytes, split into chunks of this length.
    fn events(framing: Framing, bytes: &[u8], piece: usize) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut take = |name: &str, data: &[u8]| {
            found.push((name.to_owned(), String::from_utf8_lossy(data).into_owned()));
            Ok(())
        };
        let mut lines = Lines::new(framing);
        for piece in bytes.chunks(piece).flat_map(|piece| [piece, b""]) {
            lines
                .push(piece, &mut take)
                .unwrap_or_else(|error| panic!("{error}"));
        }
        lines
            .finish(&mut take)
            .unwrap_or_else(|error| panic!("{error}"));
        found
    }

    #[track_caller]
    fn check(framing: Framing, text: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(n, d)| ((*n).to_owned(), (*d).to_owned()))
            .collect();
        for piece in [1, 2, 3, 7, 4096] {
            assert_eq!(
                events(framing, text.as_bytes(), piece),
                expected,
                "in pieces of {piece}"
            );
        }
    }

    #[test]
    fn sse_events_are_complete_for_any_chunk_size() {
        let sse = |text, expected| check(Framing::Sse, text, expected);
        sse("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        sse("event: ping\r\ndata: {}\r\n\r\n", &[("ping", "{}")]);
        sse(": comment\n\ndata:ä\ndata: ü\n\n", &[("", "ä\nü")]);
        sse("id: 7\nretry: 10\n\n", &[]);
        sse(
            "\u{feff}data: last, without an end",
            &[("", "last, without an end")],
        );
        sse("event: a\n\ndata: b\n\n", &[("", "b")]);
        sse("data\n\n", &[("", "")]);
        sse("data: a\nevent: named\n\n", &[("named", "a")]);
        sse(
            "data: a\r\rdata: b\r\n\r\ndata: c\n\rdata: d\r\n",
            &[("", "a"), ("", "b"), ("", "c"), ("", "d")],
        );
        sse(
            "data: a\rdata: b\r\ndata: c\n\ndata:\ndata:\n\n",
            &[("", "a\nb\nc"), ("", "\n")],
        );
        sse(
            "event: \nevent: x\n: data: no\ndata:  two\nid\n\n\n\n",
            &[("x", " two")],
        );
        sse("\u{feff}\n\u{feff}data: no\n\ndata: yes", &[("", "yes")]);
    }

    #[test]
    fn json_lines_are_complete_for_any_chunk_size() {
        check(
            Framing::JsonLines,
            "{\"a\":1}\n\r\n  \n{\"ä\":2}",
            &[("", "{\"a\":1}"), ("", "{\"ä\":2}")],
        );
        check(
            Framing::JsonLines,
            "\u{feff}{\r}\r\n{ }\n",
            &[("", "{\r}"), ("", "{ }")],
        );
    }

    #[test]
    fn oversized_line_or_event_returns_error() {
        let data = format!("data: {}\n", "x".repeat(1_000));
        for (framing, piece) in [
            (Framing::Sse, "x"),
            (Framing::JsonLines, "x"),
            (Framing::Sse, &*data),
        ] {
            let mut lines = Lines::new(framing);
            let piece = piece.repeat((1 << 20) / piece.len());
            let mut take = |_: &str, _: &[u8]| Ok(());
            let error = (0..80).find_map(|_| lines.push(piece.as_bytes(), &mut take).err());
            assert_eq!(
                error.map(|error| error.kind()),
                Some(ModelErrorKind::Malformed),
                "{framing:?}"
            );
            let whole = format!("data: {}\n\n", "x".repeat(MAX_BYTES + 1));
            assert!(
                Lines::new(framing)
                    .push(whole.as_bytes(), &mut take)
                    .is_err()
            );
        }
    }
}
