//! Limits of one file, and their remaining part while it is read.

use std::io::Read;

use crate::{FileTexts, FormatError};

/// Limits of the work on one file.
///
/// ```
/// use levity_formats::Limits;
///
/// let limits = Limits::new().max_text(1 << 20);
/// assert_eq!(limits.max_text, 1 << 20);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum size of all texts together, in bytes; 32 MiB by default.
    pub max_text: usize,
    /// The maximum number of bytes that all compressed parts together may unpack to; 256 MiB by
    /// default.
    pub max_unpacked: u64,
    /// The maximum number of files in archives; 10,000 by default.
    pub max_files: usize,
    /// The maximum nesting of archives and attachments; 3 by default.
    pub max_depth: usize,
    /// The maximum number of pages, slides or sheets of a document; 20,000 by default.
    pub max_pages: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_text: 32 << 20,
            max_unpacked: 256 << 20,
            max_files: 10_000,
            max_depth: 3,
            max_pages: 20_000,
        }
    }
}

impl Limits {
    /// Creates the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum size of all texts together, in bytes.
    #[must_use]
    pub fn max_text(mut self, bytes: usize) -> Self {
        self.max_text = bytes;
        self
    }

    /// Sets the maximum number of unpacked bytes.
    #[must_use]
    pub fn max_unpacked(mut self, bytes: u64) -> Self {
        self.max_unpacked = bytes;
        self
    }
}

/// The remaining part of the limits.
pub(crate) struct Budget {
    limits: Limits,
    text_left: usize,
    unpacked_left: u64,
    files_left: usize,
    depth: usize,
    /// The number of texts whose sizes are already subtracted.
    spent_texts: usize,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            text_left: limits.max_text,
            unpacked_left: limits.max_unpacked,
            files_left: limits.max_files,
            depth: 0,
            spent_texts: 0,
            limits: limits.clone(),
        }
    }

    pub(crate) fn text_left(&self) -> usize {
        self.text_left
    }

    /// Checks the size of a text that is being written.
    pub(crate) fn check_text(&self, bytes: usize) -> Result<(), FormatError> {
        if bytes > self.text_left {
            return Err(self.too_much_text());
        }
        Ok(())
    }

    /// Subtracts the texts that were added last.
    pub(crate) fn spend_texts(&mut self, output: &FileTexts) -> Result<(), FormatError> {
        let new = output.texts.get(self.spent_texts..).unwrap_or_default();
        let bytes: usize = new.iter().map(|text| text.text.len()).sum();
        self.spent_texts = output.texts.len();
        let left = self.text_left.checked_sub(bytes);
        self.text_left = left.unwrap_or(0);
        left.map(drop).ok_or_else(|| self.too_much_text())
    }

    /// Returns `true` if no further file can be read.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.unpacked_left == 0 || self.files_left == 0 || self.text_left == 0
    }

    fn too_much_text(&self) -> FormatError {
        FormatError::too_large(format_args!("{} bytes of text", self.limits.max_text))
    }

    /// Checks a number of pages.
    pub(crate) fn check_pages(&self, pages: usize) -> Result<(), FormatError> {
        if pages > self.limits.max_pages {
            return Err(FormatError::too_large(format_args!(
                "{} pages",
                self.limits.max_pages
            )));
        }
        Ok(())
    }

    /// Counts one file of an archive.
    pub(crate) fn count_file(&mut self) -> Result<(), FormatError> {
        let error = || FormatError::too_large(format_args!("{} files", self.limits.max_files));
        self.files_left = self.files_left.checked_sub(1).ok_or_else(error)?;
        Ok(())
    }

    /// Runs `read` one level deeper.
    pub(crate) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        if self.depth == self.limits.max_depth {
            return Err(FormatError::too_large(format_args!(
                "{} levels of archives within archives",
                self.limits.max_depth
            )));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Unpacks a stream completely; `what` names it for an error.
    ///
    /// The unpacked bytes count also if unpacking fails, so that many damaged parts cost no more
    /// than one large one.
    pub(crate) fn unpack(&mut self, packed: impl Read, what: &str) -> Result<Vec<u8>, FormatError> {
        let mut bytes = Vec::new();
        let limit = self.unpacked_left;
        let read = packed.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.unpacked_left = self.unpacked_left.saturating_sub(size);
        if size > limit {
            return Err(FormatError::too_large(format_args!(
                "{} unpacked bytes",
                self.limits.max_unpacked
            )));
        }
        read.map_err(|_| FormatError::damaged(what))?;
        Ok(bytes)
    }
}
