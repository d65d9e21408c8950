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
    /// Whether the last line ended in a carriage return.
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
        Self { framing, open: Vec::new(), name, data, has_data: false, begun: false, returned: false }
    }

    /// Takes the next bytes. Events may also have lines that end in a carriage return alone.
    pub(crate) fn push(&mut self, mut bytes: &[u8], events: &mut impl Events) -> Result<(), ModelError> {
        while let Some(end) = self.line_end(bytes) {
            let (line, rest) = bytes.split_at(end);
            let returned = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            // The line feed behind a carriage return ends nothing.
            if std::mem::replace(&mut self.returned, returned)
                && !returned
                && line.is_empty()
                && self.open.is_empty()
            {
                continue;
            }
            if self.open.is_empty() {
                self.line(line, events)?;
            } else {
                self.keep(line)?;
                let mut whole = std::mem::take(&mut self.open);
                self.line(&whole, events)?;
                whole.clear();
                self.open = whole;
            }
        }
        self.returned &= bytes.is_empty();
        self.keep(bytes)
    }

    fn line_end(&self, bytes: &[u8]) -> Option<usize> {
        match self.framing {
            Framing::Sse => memchr::memchr2(b'\n', b'\r', bytes),
            Framing::JsonLines => memchr::memchr(b'\n', bytes),
        }
    }

    /// Takes what stands without an end when the bytes do.
    pub(crate) fn finish(&mut self, events: &mut impl Events) -> Result<(), ModelError> {
        let last = std::mem::take(&mut self.open);
        if !last.is_empty() {
            self.line(&last, events)?;
        }
        self.dispatch(events)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        within(self.open.len() + bytes.len())?;
        self.open.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self, line: &[u8], events: &mut impl Events) -> Result<(), ModelError> {
        let mut line = line.strip_suffix(b"\r").unwrap_or(line);
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        match self.framing {
            Framing::JsonLines if line.trim_ascii().is_empty() => Ok(()),
            Framing::JsonLines => events.event("", line),
            Framing::Sse => self.field(line, events),
        }
    }

    fn field(&mut self, line: &[u8], events: &mut impl Events) -> Result<(), ModelError> {
        if line.is_empty() {
            return self.dispatch(events);
        }
        let colon = memchr::memchr(b':', line);
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                within(self.data.len() + value.len())?;
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            // A comment, an id, how long to wait before coming back.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut impl Events) -> Result<(), ModelError> {
        if std::mem::replace(&mut self.has_data, false) {
            let data = std::mem::take(&mut self.data);
            let sent = events.event(&self.name, &data);
            self.data = data;
            sent?;
        }
        self.data.clear();
        self.name.clear();
        Ok(())
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
        for piece in bytes.chunks(piece) {
            lines.push(piece, &mut take).unwrap_or_else(|error| panic!("{error}"));
        }
        lines.finish(&mut take).unwrap_or_else(|error| panic!("{error}"));
        found
    }

    #[track_caller]
    fn check(framing: Framing, text: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(n, d)| ((*n).to_owned(), (*d).to_owned())).collect();
        for piece in [1, 2, 3, 7, 4096] {
            assert_eq!(events(framing, text.as_bytes(), piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let sse = |text, expected| check(Framing::Sse, text, expected);
        sse("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        sse("event: ping\r\ndata: {}\r\n\r\n", &[("ping", "{}")]);
        sse("event: ping\rdata: {}\r\rdata: a\rdata: b\r\r", &[("ping", "{}"), ("", "a\nb")]);
        sse("data: a\r\n\rdata: b\n\r\ndata: c\r\n\r\n", &[("", "a"), ("", "b"), ("", "c")]);
        sse(": comment\n\ndata:ä\ndata: ü\n\n", &[("", "ä\nü")]);
        sse("id: 7\nretry: 10\n\n", &[]);
        sse("\u{feff}data: last, without an end", &[("", "last, without an end")]);
        sse("event: a\n\ndata: b\n\n", &[("", "b")]);
        sse("data\n\n", &[("", "")]);
        sse("data: a\nevent: named\n\n", &[("named", "a")]);
    }

    #[test]
    fn lines_of_json_come_whole() {
        check(Framing::JsonLines, "{\"a\":1}\n\r\n  \n{\"ä\":2}", &[("", "{\"a\":1}"), ("", "{\"ä\":2}")]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::new(Framing::Sse);
        let piece = vec![b'x'; 1 << 20];
        let mut take = |_: &str, _: &[u8]| Ok(());
        let refused = (0..40).find_map(|_| lines.push(&piece, &mut take).err());
        assert_eq!(refused.map(|error| error.kind()), Some(ModelErrorKind::Malformed));
    }
}
