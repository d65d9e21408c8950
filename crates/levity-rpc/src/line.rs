//! Cutting a stream of bytes into lines of bounded length.

use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::EDGE;

/// How much is read at once.
const CHUNK: usize = 64 << 10;
/// How much memory is kept for the next line after a long one.
const KEEP: usize = 1 << 20;

/// Bytes that were read and not yet taken, line by line.
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Before this, all is taken.
    start: usize,
    /// Before this, there is no end of line.
    searched: usize,
    limit: usize,
    /// A line over the limit whose end was not seen yet.
    skipping: Option<Skipped>,
    finished: bool,
}

/// What is known of a line that is not kept.
#[derive(Default)]
struct Skipped {
    head: Vec<u8>,
    tail: Vec<u8>,
    size: u64,
}

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line within the limit.
    Whole(&'a [u8]),
    /// A line over the limit, of which only the first and last [`EDGE`] bytes are kept.
    TooLong {
        /// Its first bytes.
        head: Vec<u8>,
        /// Its last bytes.
        tail: Vec<u8>,
        /// How many bytes it has.
        size: u64,
    },
}

impl LineBuffer {
    /// Creates an empty buffer that takes lines of up to `limit` bytes.
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

    /// Returns how long a line may be, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Reads more; false when nothing more comes. A last line may lack its end. Nothing is lost
    /// when this is not polled to its end.
    pub fn poll_fill<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        let read = pin!(from.read_buf(self.room())).poll(cx);
        read.map(|read| matches!(read, Ok(1..)) || self.finish())
    }

    /// Ends a last line that has no end of its own; says whether there is one.
    pub fn finish(&mut self) -> bool {
        let rest = self.bytes.len() > self.start || self.skipping.is_some();
        if !rest || self.finished {
            return false;
        }
        self.finished = true;
        self.bytes.push(b'\n');
        true
    }

    /// Takes the next line, if a whole one is there.
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

    /// Where more bytes go.
    fn room(&mut self) -> &mut Vec<u8> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            (self.searched, self.start) = (self.searched - self.start, 0);
            if self.bytes.capacity() > KEEP && self.bytes.len() < CHUNK {
                self.bytes.shrink_to(2 * CHUNK);
            }
        }
        self.bytes.reserve(CHUNK);
        &mut self.bytes
    }

    fn skip(&mut self, part: std::ops::Range<usize>) {
        self.skipping
            .get_or_insert_default()
            .push(&self.bytes[part]);
    }

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

    /// All lines of a stream: those that are kept, and the sizes of those that are not.
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
    async fn lines_are_cut_at_their_ends_and_long_ones_are_skipped() {
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
            "a last line that is too long is told"
        );
        let long = [vec![b'x'; 1 << 20], b"\nabc\n".to_vec()].concat();
        assert_eq!(lines(&long, 100 << 10).await, [Err(1 << 20), ok("abc")]);
    }

    #[tokio::test]
    async fn edges_of_a_long_line_are_kept_and_no_more() {
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
        assert!(buffer.bytes.capacity() < KEEP);
    }
}
