//! The bus as JSON Lines, for logs and for other tools.
//!
//! Reading treats the file as untrusted: lines have a maximum length, ids must increase, and errors
//! do not quote content.

use std::io::{self, BufRead, Read};

use super::Bus;
use super::message::BusMessage;

/// The maximum length of a line. A message of maximum size is shorter, even if every character is
/// escaped.
const MAX_LINE: usize = 1024 * 1024;
/// The highest id that every JSON reader represents exactly.
pub(super) const MAX_ID: u64 = (1 << 53) - 1;

/// The reason why reading a log failed. It does not contain message content.
///
/// ```
/// use levity_swarm::{Bus, ReadError};
///
/// let error = Bus::read_json_lines(&b"\n{\"id\": 1}\n"[..]).unwrap_err();
/// assert!(matches!(error, ReadError::NoMessage { .. }));
/// assert_eq!(error.line(), 2);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The reader returned an error.
    #[error("cannot read line {line} of the bus log")]
    Io {
        /// The number of the line, from 1.
        line: u64,
        /// The cause of the failure.
        source: io::Error,
    },
    /// A line is longer than 1 MiB.
    #[error("line {line} of the bus log is longer than the limit of {MAX_LINE} bytes")]
    TooLong {
        /// The number of the line, from 1.
        line: u64,
    },
    /// A line is not a message.
    #[error("line {line} of the bus log is not a message (column {column})")]
    NoMessage {
        /// The number of the line, from 1.
        line: u64,
        /// The column of the error, from 1; 0 if it is at the end of the line.
        column: usize,
    },
    /// An id is not higher than the previous one, or is not a valid id.
    #[error("line {line} of the bus log has the id `{id}`, which does not follow `{last}`")]
    Order {
        /// The number of the line, from 1.
        line: u64,
        /// The id that is out of order or invalid.
        id: u64,
        /// The previous id; 0 for the first message.
        last: u64,
    },
}

impl ReadError {
    /// Returns the number of the line, from 1.
    pub fn line(&self) -> u64 {
        match self {
            Self::Io { line, .. }
            | Self::TooLong { line }
            | Self::NoMessage { line, .. }
            | Self::Order { line, .. } => *line,
        }
    }
}

impl Bus {
    /// Writes the stored messages as JSON Lines, oldest first.
    ///
    /// ```
    /// # use levity_core::{RunId, Timestamp};
    /// # use levity_swarm::{Bus, NewMessage, MessageKind};
    /// let mut bus = Bus::new();
    /// let draft = NewMessage::new("coder", "*", MessageKind::Note, "Done.");
    /// bus.post(draft, Timestamp::from_millis(5), &RunId::new("r1"));
    /// let mut lines = Vec::new();
    /// bus.write_json_lines(&mut lines)?;
    /// let line = concat!(
    ///     r#"{"id":1,"from":"coder","to":"*","type":"note","content":"Done.","#,
    ///     r#""timestamp":5,"run":"r1"}"#,
    /// );
    /// assert_eq!(lines, format!("{line}\n").as_bytes());
    /// assert!(Bus::read_json_lines(&*lines)?.messages().eq(bus.messages()));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the writer fails.
    pub fn write_json_lines(&self, out: &mut impl io::Write) -> io::Result<()> {
        let mut line = Vec::new();
        for message in self.messages() {
            line.clear();
            serde_json::to_writer(&mut line, message)?;
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Ok(())
    }

    /// Reads the output of [`write_json_lines`](Self::write_json_lines), within the default limits:
    /// of a longer log, the newest messages remain. Empty lines are skipped, and ids may have gaps.
    ///
    /// ```
    /// use levity_swarm::Bus;
    ///
    /// let lines = concat!(
    ///     r#"{"id":7,"from":"coder","to":"*","type":"note","#,
    ///     r#""content":"Done.","timestamp":5,"run":"r1"}"#,
    /// );
    /// let bus = Bus::read_json_lines(lines.as_bytes())?;
    /// assert_eq!((bus.len(), bus.last_id()), (1, 7));
    /// # Ok::<(), levity_swarm::ReadError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the reader fails, or if a line is too long, is not a message, or has an
    /// id that is not higher than the last.
    pub fn read_json_lines(mut lines: impl BufRead) -> Result<Self, ReadError> {
        let (mut bus, mut text, mut line) = (Self::new(), Vec::new(), 0);
        loop {
            line += 1;
            if !read_line(&mut lines, &mut text, line)? {
                return Ok(bus);
            }
            if !text.trim_ascii().is_empty() {
                bus.push_line(&text, line)?;
            }
        }
    }

    fn push_line(&mut self, text: &[u8], line: u64) -> Result<(), ReadError> {
        // The error message of serde quotes the text, so only the position is used.
        let read = serde_json::from_slice(text);
        let message: BusMessage = read.map_err(|error| ReadError::NoMessage {
            line,
            column: error.column(),
        })?;
        let (id, last) = (message.id, self.last_id());
        if id <= last || id > MAX_ID {
            return Err(ReadError::Order { line, id, last });
        }
        self.push(message);
        Ok(())
    }
}

/// Reads one line; returns `false` at the end.
fn read_line(lines: &mut impl BufRead, text: &mut Vec<u8>, line: u64) -> Result<bool, ReadError> {
    text.clear();
    let limit = MAX_LINE as u64 + 1;
    let read = lines.by_ref().take(limit).read_until(b'\n', text);
    read.map_err(|source| ReadError::Io { line, source })?;
    if text.len() > MAX_LINE {
        return Err(ReadError::TooLong { line });
    }
    Ok(!text.is_empty())
}

impl From<ReadError> for levity_core::Error {
    fn from(error: ReadError) -> Self {
        Self::other(error)
    }
}
