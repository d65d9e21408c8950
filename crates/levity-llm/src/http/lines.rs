//! Streams of events and lines, however the network cuts them.

use levity_core::{ModelError, ModelErrorKind};

/// The longest line, and the longest event: 32 MiB.
const LONGEST: usize = 32 << 20;

/// How a reply is cut into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value on a line.
    #[allow(dead_code, reason = "only some providers speak like this")]
    JsonLines,
}

/// Takes bytes as they come, and gives out events.
#[derive(Debug)]
pub(crate) struct Lines {
    framing: Framing,
    /// A line that has not come to its end.
    open: Vec<u8>,
    /// The event's name and data so far.
    name: String,
    data: Vec<u8>,
    has_data: bool,
    begun: bool,
    /// The last byte was a carriage return, so that a line feed that comes next ends no other line.
    returned: bool,
}

/// What takes events: a name, where there is one, and the data.
pub(crate) trait Events {
    fn event(&mut self, name: &str, data: &[u8]) -> Result<(), ModelError>;
}

impl<F: FnMut(&str, &[u8]) -> Result<(), ModelError>> Events for F {
    fn event(&mut self, name: &str, data: &[u8]) -> Result<(), ModelError> {
        self(name, data)
    }
}

impl Lines {
    pub(crate) fn new(framing: Framing) -> Self {
        let (name, data) = (String::new(), Vec::new());
        Self {
            framing,
            open: Vec::new(),
            name,
            data,
            has_data: false,
            begun: false,
            returned: false,
        }
    }

    /// Takes the next bytes.
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

    /// Takes what stands without an end when the bytes do.
    pub(crate) fn finish(&mut self, events: &mut impl Events) -> Result<(), ModelError> {
        let last = std::mem::take(&mut self.open);
        match self.framing {
            Framing::JsonLines => self.json(&last, events),
            Framing::Sse => {
                let mut held = None;
                self.field(self.line(&last), &mut held, events)?;
                self.keep_data(held)?;
                self.dispatch(None, events)
            }
        }
    }

    fn push_lines(&mut self, mut bytes: &[u8], events: &mut impl Events) -> Result<(), ModelError> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if self.open.is_empty() {
                self.json(line, events)?;
            } else {
                let whole = self.close(line)?;
                self.json(&whole, events)?;
                self.reuse(whole);
            }
        }
        self.keep(bytes)
    }

    fn json(&mut self, line: &[u8], events: &mut impl Events) -> Result<(), ModelError> {
        within(line.len())?;
        let line = self.line(line).trim_ascii();
        self.begun |= !line.is_empty();
        if line.is_empty() {
            Ok(())
        } else {
            events.event("", line)
        }
    }

    /// Lines end with a line feed, a carriage return, or both. Data that is all there is not
    /// copied.
    fn push_sse<'a>(
        &mut self,
        mut bytes: &'a [u8],
        events: &mut impl Events,
    ) -> Result<(), ModelError> {
        let mut held: Option<&'a [u8]> = None;
        if bytes.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.returned) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(end);
            let (mark, rest) = rest.split_at(1);
            bytes = rest;
            if mark == b"\r" {
                self.returned = rest.is_empty();
                bytes = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            if self.open.is_empty() {
                self.field(self.line(line), &mut held, events)?;
            } else {
                self.keep_data(held.take())?;
                let whole = self.close(line)?;
                let mut inside = None;
                self.field(self.line(&whole), &mut inside, events)?;
                self.keep_data(inside)?;
                self.reuse(whole);
            }
            self.begun = true;
        }
        self.keep_data(held)?;
        self.keep(bytes)
    }

    /// A line, without the mark that may stand at the very beginning.
    fn line<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        if self.begun {
            line
        } else {
            line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        within(self.open.len() + bytes.len())?;
        self.open.extend_from_slice(bytes);
        Ok(())
    }

    /// The open line with its end, to be given back by `reuse`.
    fn close(&mut self, end: &[u8]) -> Result<Vec<u8>, ModelError> {
        self.keep(end)?;
        Ok(std::mem::take(&mut self.open))
    }

    fn reuse(&mut self, mut line: Vec<u8>) {
        line.clear();
        self.open = line;
    }

    /// Takes a line of an event. The first line of data is held, in the hope that it is the only
    /// one.
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
                self.keep_data(held.take())?;
                self.keep_data(Some(value))?;
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&String::from_utf8_lossy(value));
            }
            // A comment, an id, how long to wait before coming back.
            _ => {}
        }
        Ok(())
    }

    /// Puts a line of data behind those before it.
    fn keep_data(&mut self, value: Option<&[u8]>) -> Result<(), ModelError> {
        let Some(value) = value else { return Ok(()) };
        within(self.data.len() + value.len())?;
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        Ok(())
    }

    /// The event has come to its end.
    fn dispatch(
        &mut self,
        held: Option<&[u8]>,
        events: &mut impl Events,
    ) -> Result<(), ModelError> {
        let has_data = std::mem::take(&mut self.has_data);
        let sent = match held {
            Some(data) => within(data.len()).and_then(|()| events.event(&self.name, data)),
            None if has_data => events.event(&self.name, &self.data),
            None => Ok(()),
        };
        self.data.clear();
        self.name.clear();
        sent
    }
}

fn within(length: usize) -> Result<(), ModelError> {
    if length <= LONGEST {
        return Ok(());
    }
    let message = format!("the reply has a line of more than {LONGEST} bytes");
    Err(ModelError::new(ModelErrorKind::Malformed, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of these bytes, cut into pieces of this length.
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
    fn events_come_whole_however_they_are_cut() {
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
    fn lines_of_json_come_whole() {
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
    fn a_line_or_an_event_without_end_is_refused() {
        let data = format!("data: {}\n", "x".repeat(1_000));
        for (framing, piece) in [
            (Framing::Sse, "x"),
            (Framing::JsonLines, "x"),
            (Framing::Sse, &*data),
        ] {
            let mut lines = Lines::new(framing);
            let piece = piece.repeat((1 << 20) / piece.len());
            let mut take = |_: &str, _: &[u8]| Ok(());
            let refused = (0..80).find_map(|_| lines.push(piece.as_bytes(), &mut take).err());
            assert_eq!(
                refused.map(|error| error.kind()),
                Some(ModelErrorKind::Malformed),
                "{framing:?}"
            );
            let whole = format!("data: {}\n\n", "x".repeat(LONGEST + 1));
            assert!(
                Lines::new(framing)
                    .push(whole.as_bytes(), &mut take)
                    .is_err()
            );
        }
    }
}
