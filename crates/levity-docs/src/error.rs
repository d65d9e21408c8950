//! The errors of an index.

use std::error::Error;
use std::fmt;

use levity_core::{SharedError, VectorStoreError};
use levity_sqlite::ErrorKind;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DocumentErrorKind {
    /// The input is invalid; the message says how to change it.
    Refused,
    /// The file of the index cannot be read. It is left unchanged.
    Damaged,
    /// A newer version of levity wrote the file. It is left unchanged.
    Version,
    /// Another program uses the file; try again later.
    Busy,
    /// Reading or writing failed.
    Io,
    /// The vector store failed. The file is correct, and
    /// [`embed_missing`](crate::DocumentIndex::embed_missing) completes the store later.
    VectorStore,
}

/// The reason why an operation on an index failed.
///
/// ```
/// use levity_docs::{Document, DocumentErrorKind, DocumentIndex};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_docs::DocumentError> {
/// let index = DocumentIndex::in_memory()?;
/// let error = index.add(Document::new("", "A text without a name.")).await.unwrap_err();
/// assert_eq!(error.kind(), DocumentErrorKind::Refused);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DocumentError {
    kind: DocumentErrorKind,
    message: String,
    source: Option<SharedError>,
}

impl DocumentError {
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self {
            kind: DocumentErrorKind::Refused,
            message: message.into(),
            source: None,
        }
    }

    /// Converts an error of the file.
    pub(crate) fn of_file(error: levity_sqlite::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Refused | ErrorKind::TooBig => DocumentErrorKind::Refused,
            ErrorKind::Damaged => DocumentErrorKind::Damaged,
            ErrorKind::Version => DocumentErrorKind::Version,
            ErrorKind::Busy | ErrorKind::LogInUse => DocumentErrorKind::Busy,
            _ => DocumentErrorKind::Io,
        };
        Self {
            kind,
            message: error.to_string(),
            source: Some(SharedError::new(error)),
        }
    }

    /// Converts an error of the vector store.
    pub(crate) fn of_store(error: &VectorStoreError) -> Self {
        Self::in_store(format!("the vector store failed: {error}"), error)
    }

    /// Creates the error of vectors that could not be removed.
    pub(crate) fn left_in_store(error: &VectorStoreError) -> Self {
        let message = format!(
            "the documents are removed, but their vectors remain in the vector store: {error}; \
             call `embed_missing` later"
        );
        Self::in_store(message, error)
    }

    fn in_store(message: String, error: &VectorStoreError) -> Self {
        Self {
            kind: DocumentErrorKind::VectorStore,
            message,
            source: Some(SharedError::new(error.clone())),
        }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> DocumentErrorKind {
        self.kind
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for DocumentError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The message repeats the error of the file or the store, so its cause comes next.
        self.source.as_ref()?.source()
    }
}

impl From<DocumentError> for levity_core::Error {
    fn from(error: DocumentError) -> Self {
        Self::other(error)
    }
}
