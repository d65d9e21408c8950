//! Documents, and the passages of them that a search finds.

use std::fmt;
use std::str::FromStr;

use levity_core::Timestamp;
use serde::{Serialize, Serializer};

use crate::TextKind;

/// A text with its name, to be added to an index.
///
/// ```
/// use levity_docs::{Document, TextKind};
///
/// let guide = Document::new("guide.md", "# Tides\n\nHigh water is at six.");
/// assert_eq!(guide.kind, TextKind::Markdown);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Document {
    /// The name, such as a path: it identifies the document in the index.
    pub name: String,
    /// The whole text of the document.
    pub text: String,
    /// The kind of the text; by default, by the ending of the name.
    pub kind: TextKind,
    /// The positions in the text where pages start, in increasing order; empty without pages.
    pub pages: Vec<usize>,
    /// The time of the last change of the source, if known.
    pub changed: Option<Timestamp>,
    /// The file of a folder that contains the document, so that an update of the folder removes the
    /// document when the file is gone. An archive contains several documents.
    pub file: Option<String>,
}

impl Document {
    /// Creates a document. The ending of its name decides on the kind of the text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            kind: TextKind::of_file(&name),
            name,
            text: text.into(),
            pages: Vec::new(),
            changed: None,
            file: None,
        }
    }

    /// Creates a document from the texts of its pages.
    ///
    /// ```
    /// use levity_docs::Document;
    ///
    /// let scan = Document::from_pages("tides.pdf", ["High water.", "Low water."]);
    /// assert_eq!(scan.pages, [0, 12]);
    /// ```
    pub fn from_pages<T: AsRef<str>>(
        name: impl Into<String>,
        pages: impl IntoIterator<Item = T>,
    ) -> Self {
        let mut document = Self::new(name, "");
        for page in pages {
            document.pages.push(document.text.len());
            document.text.push_str(page.as_ref());
            document.text.push('\n');
        }
        document
    }

    /// Sets the kind of the text.
    #[must_use]
    pub fn kind(mut self, kind: TextKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the time of the last change of the source.
    #[must_use]
    pub fn changed(mut self, changed: Timestamp) -> Self {
        self.changed = Some(changed);
        self
    }
}

/// The id of a passage in an index, such as `p17`. An id is never used again, even after its
/// passage was removed.
///
/// ```
/// use levity_docs::PassageId;
///
/// let id: PassageId = "p17".parse()?;
/// assert_eq!(id.to_string(), "p17");
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PassageId(pub(crate) i64);

impl fmt::Display for PassageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl Serialize for PassageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for PassageId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.trim().trim_start_matches('p').parse().map(Self)
    }
}

/// A part of a document, with its place. The text is unchanged, so a quote of it can be checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Passage {
    /// The id, for `fetch`.
    pub id: PassageId,
    /// The name of the document.
    pub document: String,
    /// The kind of the document's text.
    pub kind: TextKind,
    /// The hash of the whole document (SHA-256 in hexadecimal digits).
    pub hash: String,
    /// The position among the passages of the document, from 0.
    pub number: u32,
    /// The headings above the passage, the definition it begins with, or the names of columns.
    pub context: String,
    /// The text of the passage.
    pub text: String,
    /// The page, in documents that have pages.
    pub page: Option<u32>,
    /// The first and the last line of the document's text, counted from 1. In a sheet, they are
    /// rows. In other files that are no plain text, they are lines of the text that levity reads.
    pub lines: (u32, u32),
    /// How well the passage matches the query, from 0 to 1, within one result.
    pub score: f32,
}

impl Passage {
    /// Returns the place for people, such as `guide.md, lines 10 to 24` or `guide.pdf, page 3`.
    pub fn place(&self) -> String {
        if let Some(page) = self.page {
            return format!("{}, page {page}", self.document);
        }
        let (first, last) = self.lines;
        let lines = match first == last {
            true => format!("line {first}"),
            false => format!("lines {first} to {last}"),
        };
        format!("{}, {lines}", self.document)
    }

    /// Returns `true` if the passage contains these words in this order. White space may differ.
    pub fn contains_quote(&self, quote: &str) -> bool {
        let words = |text: &str| {
            let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            words.join(" ")
        };
        let quote = words(quote);
        !quote.is_empty() && words(&self.text).contains(&quote)
    }
}

/// A document in an index.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DocumentInfo {
    /// The name of the document.
    pub name: String,
    /// The kind of its text.
    pub kind: TextKind,
    /// The hash of the text (SHA-256 in hexadecimal digits).
    pub hash: String,
    /// The size of the text.
    pub bytes: u64,
    /// The time of the last change of the source.
    pub changed: Timestamp,
    /// The file that contains the document, if an update of a folder added it.
    pub file: Option<String>,
    /// The time at which the index got this text.
    pub indexed: Timestamp,
    /// The number of passages.
    pub passages: u64,
}

/// The result of the check of a quote.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum QuoteCheck {
    /// The passage contains the quote.
    Found(Box<Passage>),
    /// The passage exists and does not contain the quote.
    NotInPassage(Box<Passage>),
    /// The index has no such passage; its document may have changed.
    NoPassage,
}
