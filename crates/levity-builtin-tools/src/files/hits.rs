//! The matches that a search has found.
//!
//! Threads find matches in any order, and the result must not depend on it. So matches are kept by
//! path, and the largest path is dropped as soon as the others fill the limit. Memory is bounded by
//! the limit and one file per thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};
use levity_core::CancelToken;

use super::cancellable::CancellableMatcher;
use super::display;

/// The longest line that a result shows in full, in bytes.
const MAX_LINE: usize = 300;

/// The first matches of a search by path and line, in whatever order threads find them.
#[derive(Debug)]
pub(super) struct Hits {
    max: Size,
    found: Mutex<Found>,
    /// Set when the limit is reached; from then on, only smaller paths are of interest.
    full: AtomicBool,
}

/// A number of matches and bytes.
///
/// A limit is reached if either of them is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    pub(super) matches: usize,
    pub(super) bytes: usize,
}

#[derive(Debug, Default)]
struct Found {
    files: BTreeMap<String, FileHits>,
    size: Size,
}

/// The matches of one file.
#[derive(Debug, Default)]
pub(super) struct FileHits {
    pub(super) lines: Vec<Line>,
    size: Size,
}

/// A matching line, or a context line near one.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) text: String,
    pub(super) matches: bool,
    /// Set if lines before this one are omitted.
    pub(super) gap: bool,
}

/// Returns the cost of a line beyond its text, in bytes.
pub(super) fn overhead(path: &str) -> usize {
    path.len() + 16
}

impl Size {
    /// Returns `true` if one of the numbers has reached that of `max`.
    fn reaches(self, max: Self) -> bool {
        self.matches >= max.matches || self.bytes >= max.bytes
    }

    fn plus(self, other: Self) -> Self {
        Self {
            matches: self.matches + other.matches,
            bytes: self.bytes + other.bytes,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            matches: self.matches - other.matches,
            bytes: self.bytes - other.bytes,
        }
    }
}

impl Hits {
    /// Creates a collection that holds `max` and at most one file beyond it.
    pub(super) fn new(max: Size) -> Self {
        Self {
            max,
            found: Mutex::default(),
            full: AtomicBool::new(false),
        }
    }

    /// Returns `true` if a match at `path` could still be among the first. For a folder, `path`
    /// ends in `/`.
    pub(super) fn may_include(&self, path: &str) -> bool {
        if !self.full.load(Ordering::Relaxed) {
            return true;
        }
        let found = self.lock();
        found
            .files
            .last_key_value()
            .is_none_or(|(last, _)| path <= last.as_str())
    }

    /// A file without lines is not stored.
    pub(super) fn add(&self, path: String, hits: FileHits) {
        if hits.lines.is_empty() {
            return;
        }
        let mut found = self.lock();
        found.size = found.size.plus(hits.size);
        found.files.insert(path, hits);
        // The last file is dropped as soon as the files before it reach the limit.
        while let Some(last) = found.files.last_entry() {
            let size = last.get().size;
            if !found.size.minus(size).reaches(self.max) {
                break;
            }
            found.files.pop_last();
            found.size = found.size.minus(size);
        }
        if found.size.reaches(self.max) {
            self.full.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the matches sorted by path.
    pub(super) fn into_files(self) -> BTreeMap<String, FileHits> {
        self.found
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .files
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects the matching lines of one file.
pub(super) struct Collector<'a> {
    pub(super) matcher: &'a CancellableMatcher<'a, RegexMatcher>,
    pub(super) max: Size,
    /// The cost of each line beyond its text, in bytes.
    pub(super) overhead: usize,
    pub(super) cancel: &'a CancelToken,
    pub(super) hits: FileHits,
    pub(super) gap: bool,
}

impl Collector<'_> {
    /// Adds a line, and returns `false` if the search of this file should stop.
    fn push(&mut self, number: Option<u64>, text: String, matches: bool) -> bool {
        self.hits.size.matches += usize::from(matches);
        self.hits.size.bytes += text.len() + self.overhead;
        let gap = std::mem::take(&mut self.gap) && !self.hits.lines.is_empty();
        self.hits.lines.push(Line {
            number: number.unwrap_or(0),
            text,
            matches,
            gap,
        });
        !self.hits.size.reaches(self.max) && !self.cancel.is_cancelled()
    }

    /// Returns the line, or the text around the match if the line is long.
    ///
    /// A third of the limit is shown before the match, so that the match is visible with some
    /// context.
    fn excerpt(&self, line: &[u8]) -> String {
        if line.len() <= MAX_LINE {
            return display::line(line, MAX_LINE);
        }
        let at = self
            .matcher
            .find(line)
            .ok()
            .flatten()
            .map_or(0, |found| found.start());
        let mut start = at.saturating_sub(MAX_LINE / 3);
        while start > 0 && line[start] & 0xc0 == 0x80 {
            start -= 1;
        }
        let text = display::line(&line[start..], MAX_LINE);
        if start > 0 {
            format!("…{text}")
        } else {
            text
        }
    }
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        let text = self.excerpt(line.bytes());
        Ok(self.push(line.line_number(), text, true))
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        let text = display::line(line.bytes(), MAX_LINE);
        Ok(self.push(line.line_number(), text, false))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.gap = true;
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        // The file contains a NUL, so it is binary and its matches are discarded.
        if end.binary_byte_offset().is_some() {
            self.hits = FileHits::default();
        }
        Ok(())
    }
}
