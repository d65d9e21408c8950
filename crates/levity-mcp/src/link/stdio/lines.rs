//! Cutting a stream of bytes into lines of bounded length.

use crate::link::decode::EDGE;

/// How much is read at once.
const CHUNK: usize = 64 << 10;
/// How much memory is kept for the next line after a long one.
const KEEP: usize = 1 << 20;

/// The bytes that were read and not yet taken, line by line.
pub(super) struct Lines {
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
pub(super) enum Line<'a> {
    /// A line within the limit.
    Whole(&'a [u8]),
    /// The edges of a line over the limit.
    TooLarge { head: Vec<u8>, tail: Vec<u8>, size: u64, limit: usize },
}

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, searched: 0, limit, skipping: None, finished: false }
    }

    /// Where more bytes go.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
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

    /// Ends a last line that has no end of its own; says whether there is one.
    pub(super) fn finish(&mut self) -> bool {
        let rest = self.bytes.len() > self.start || self.skipping.is_some();
        if !rest || self.finished {
            return false;
        }
        self.finished = true;
        self.bytes.push(b'\n');
        true
    }

    /// The next line, if a whole one is there.
    pub(super) fn next(&mut self) -> Option<Line<'_>> {
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

    fn skip(&mut self, part: std::ops::Range<usize>) {
        self.skipping.get_or_insert_default().push(&self.bytes[part]);
    }

    fn skipped(&mut self, rest: &std::ops::Range<usize>) -> Line<'static> {
        self.skip(rest.clone());
        let Skipped { head, mut tail, size } = self.skipping.take().unwrap_or_default();
        tail.drain(..tail.len().saturating_sub(EDGE));
        Line::TooLarge { head, tail, size, limit: self.limit }
    }
}

impl Skipped {
    fn push(&mut self, part: &[u8]) {
        self.size += part.len() as u64;
        let room = EDGE.saturating_sub(self.head.len());
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        self.tail.extend_from_slice(&part[part.len().saturating_sub(EDGE)..]);
        if self.tail.len() > 2 * EDGE {
            self.tail.drain(..self.tail.len() - EDGE);
        }
    }
}
