//! Splits a stream of bytes into lines of bounded length.
//!
//! The buffer owns the bytes and searches each of them once: `searched` remembers how far it
//! looked. A line over the limit is never stored as a whole. The buffer drops its middle, counts
//! its bytes and retains both ends, so that [`find_id`](crate::find_id) can still find the call
//! that it answers. A buffer that grew beyond 1 MiB shrinks again
//! once its lines are consumed.

use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::EDGE;

/// The number of bytes to read at once.
const CHUNK: usize = 64 << 10;
/// The memory that is retained for the next line after a long one.
const RETAINED: usize = 1 << 20;

/// A buffer of received bytes that are consumed line by line.
///
/// The memory in use depends on the limit, and not on the length of the lines that the peer sends.
///
/// ```
/// use std::future::poll_fn;
///
/// use levity_rpc::{Line, LineBuffer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut stream = &b"{\"id\":1}\ntoo long for it\nlast"[..];
/// let (mut buffer, mut sizes) = (LineBuffer::new(8), Vec::new());
/// loop {
///     while let Some(line) = buffer.next_line() {
///         sizes.push(match line {
///             Line::Whole(line) => line.len() as u64,
///             Line::TooLong { size, .. } => size,
///         });
///     }
///     if !poll_fn(|cx| buffer.poll_fill(&mut stream, cx)).await {
///         break;
///     }
/// }
/// assert_eq!(sizes, [8, 15, 4], "the last line needs no line end");
/// # }
/// ```
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// The end of the bytes that are already consumed.
    start: usize,
    /// The end of the bytes that contain no end of line.
    searched: usize,
    limit: usize,
    /// A line over the limit whose end has not arrived yet.
    skipping: Option<Skipped>,
    finished: bool,
}

/// The known parts of a line that is not stored.
#[derive(Default)]
struct Skipped {
    head: Vec<u8>,
    tail: Vec<u8>,
    size: u64,
}

/// One line, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line within the limit.
    Whole(&'a [u8]),
    /// A line over the limit, of which only the first and last [`EDGE`] bytes are stored.
    TooLong {
        /// The first bytes of the line.
        head: Vec<u8>,
        /// The last bytes of the line.
        tail: Vec<u8>,
        /// The number of bytes in the line.
        size: u64,
    },
}

impl LineBuffer {
    /// Creates an empty buffer that accepts lines of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            searched: 0,
            limit,
            skipping: None,
            finished: false,
        }
    }

    /// Returns the maximum length of a line, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Reads more bytes; returns `false` at the end of the stream. The last line may lack its line
    /// end. Dropping an unfinished poll loses nothing.
    ///
    /// A read error counts as the end of the stream. Call [`next_line`](Self::next_line) until it
    /// returns `None` before the next poll, or the buffer grows with each poll.
    pub fn poll_fill<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        let read = pin!(from.read_buf(self.room())).poll(cx);
        read.map(|read| matches!(read, Ok(1..)) || self.finish())
    }

    /// Ends a last line that has no line end; returns `true` if there is one.
    ///
    /// The second call returns `false`, so a loop over the remaining lines ends.
    /// [`poll_fill`](Self::poll_fill) calls it at the end of the stream.
    ///
    /// ```
    /// use levity_rpc::LineBuffer;
    ///
    /// let mut buffer = LineBuffer::new(1024);
    /// assert!(!buffer.finish(), "an empty buffer has no last line");
    /// assert_eq!(buffer.next_line(), None);
    /// ```
    pub fn finish(&mut self) -> bool {
        let rest = self.bytes.len() > self.start || self.skipping.is_some();
        if !rest || self.finished {
            return false;
        }
        self.finished = true;
        self.bytes.push(b'\n');
        true
    }

    /// Removes and returns the next line, if it is complete.
    ///
    /// A carriage return before the line end stays part of the line; JSON parsers ignore it.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        match memchr::memchr(b'\n', &self.bytes[self.searched..]) {
            Some(at) => {
                let line = self.start..self.searched + at;
                (self.start, self.searched) = (line.end + 1, line.end + 1);
                if self.skipping.is_some() || line.len() > self.limit {
                    return Some(self.skipped(&line));
                }
                Some(Line::Whole(&self.bytes[line]))
            }
            None => {
                self.searched = self.bytes.len();
                if self.skipping.is_some() || self.searched - self.start > self.limit {
                    self.skip(self.start..self.searched);
                    self.start = self.searched;
                }
                None
            }
        }
    }

    /// Returns the buffer for more bytes.
    ///
    /// Consumed bytes are removed here, once per read, and not once per line, which would move the
    /// rest of the buffer for each line.
    fn room(&mut self) -> &mut Vec<u8> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            (self.searched, self.start) = (self.searched - self.start, 0);
            if self.bytes.capacity() > RETAINED && self.bytes.len() < CHUNK {
                self.bytes.shrink_to(2 * CHUNK);
            }
        }
        self.bytes.reserve(CHUNK);
        &mut self.bytes
    }

    /// Adds a part of a line over the limit to what is known of it.
    fn skip(&mut self, part: std::ops::Range<usize>) {
        self.skipping
            .get_or_insert_default()
            .push(&self.bytes[part]);
    }

    /// Returns the line over the limit whose last part is `rest`, and forgets it.
    fn skipped(&mut self, rest: &std::ops::Range<usize>) -> Line<'static> {
        self.skip(rest.clone());
        let Skipped {
            head,
            mut tail,
            size,
        } = self.skipping.take().unwrap_or_default();
        tail.drain(..tail.len().saturating_sub(EDGE));
        Line::TooLong { head, tail, size }
    }
}

impl Skipped {
    /// Counts a part of the line, and retains it as far as it belongs to one of the ends.
    ///
    /// The tail grows to twice [`EDGE`] before it is cut, so that most parts are only appended.
    fn push(&mut self, part: &[u8]) {
        self.size += part.len() as u64;
        let room = EDGE.saturating_sub(self.head.len());
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        self.tail
            .extend_from_slice(&part[part.len().saturating_sub(EDGE)..]);
        if self.tail.len() > 2 * EDGE {
            self.tail.drain(..self.tail.len() - EDGE);
        }
    }
}

impl fmt::Debug for LineBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineBuffer")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Returns all lines of a stream: the stored ones, and the sizes of the others.
    async fn lines(mut bytes: &[u8], limit: usize) -> Vec<Result<String, u64>> {
        let (mut buffer, mut lines) = (LineBuffer::new(limit), Vec::new());
        loop {
            while let Some(line) = buffer.next_line() {
                lines.push(match line {
                    Line::Whole(line) => Ok(String::from_utf8_lossy(line).into_owned()),
                    Line::TooLong { size, .. } => Err(size),
                });
            }
            if !poll_fn(|cx| buffer.poll_fill(&mut bytes, cx)).await {
                return lines;
            }
        }
    }

    #[tokio::test]
    async fn next_line_splits_at_line_ends_and_skips_long_lines() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(lines(b"", 4).await, []);
        assert_eq!(lines(b"a\n\nbc", 4).await, [ok("a"), ok(""), ok("bc")]);
        assert_eq!(
            lines(b"abcd\nabcde\nf\n", 4).await,
            [ok("abcd"), Err(5), ok("f")]
        );
        assert_eq!(
            lines(b"a\nabcdefg", 4).await,
            [ok("a"), Err(7)],
            "a last line that is too long is reported"
        );
        let long = [vec![b'x'; 1 << 20], b"\nabc\n".to_vec()].concat();
        assert_eq!(lines(&long, 100 << 10).await, [Err(1 << 20), ok("abc")]);
    }

    #[tokio::test]
    async fn long_line_retains_only_its_edges() {
        let long = [b"first".to_vec(), vec![b'x'; 1 << 20], b"last\n".to_vec()].concat();
        let (mut buffer, mut from) = (LineBuffer::new(1 << 10), long.as_slice());
        let (head, tail) = loop {
            if let Some(Line::TooLong { head, tail, .. }) = buffer.next_line() {
                break (head, tail);
            }
            assert!(poll_fn(|cx| buffer.poll_fill(&mut from, cx)).await);
        };
        assert!(head.starts_with(b"firstx") && tail.ends_with(b"xlast"));
        assert_eq!((head.len(), tail.len()), (EDGE, EDGE));
        assert!(buffer.bytes.capacity() < RETAINED);
    }
}
