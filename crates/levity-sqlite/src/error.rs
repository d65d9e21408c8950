//! The errors of shared files.

use std::error;
use std::fmt;

/// The kind of a file error.
///
/// [`Busy`](Self::Busy) passes on its own; the others need a person or another program.
///
/// ```
/// use levity_sqlite::{ErrorKind, SharedFile};
/// # use levity_sqlite::Format;
/// # static NOTES: Format = Format {
/// #     what: "notes",
/// #     application: 0x6e6f_7465,
/// #     version: 1,
/// #     tables: "CREATE TABLE notes (text TEXT NOT NULL);",
/// #     earlier: &[],
/// #     columns: &["SELECT text FROM notes"],
/// #     log_pages: 1_000,
/// #     overwrites: true,
/// # };
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("notes.db");
/// std::fs::write(&path, "This is not a database, but a letter of some length.")?;
/// let error = SharedFile::open_or_create(&path, &NOTES).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Damaged);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The path cannot be a file of levity.
    Refused,
    /// The file cannot be read; it is left unchanged.
    Damaged,
    /// A newer version wrote the file; it is left unchanged.
    Version,
    /// Another program has locked the file.
    Busy,
    /// The data is removed from the file, but another program still reads the state before, so a
    /// copy remains in the log.
    LogInUse,
    /// The data to write is too long.
    TooBig,
    /// Reading or writing failed.
    Io,
}

/// The reason why a file could not be used.
///
/// The message names the file and leaves out its content. SQLite's own error is the source.
///
/// ```
/// use std::error::Error as _;
///
/// use levity_sqlite::SharedFile;
/// # use levity_sqlite::Format;
/// # static NOTES: Format = Format {
/// #     what: "notes",
/// #     application: 0x6e6f_7465,
/// #     version: 1,
/// #     tables: "CREATE TABLE notes (text TEXT NOT NULL);",
/// #     earlier: &[],
/// #     columns: &["SELECT text FROM notes"],
/// #     log_pages: 1_000,
/// #     overwrites: true,
/// # };
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("notes.db");
/// let missing = folder.path().join("missing/notes.db");
/// let error = SharedFile::open_or_create(&missing, &NOTES).unwrap_err();
/// assert!(error.to_string().contains("notes.db"));
/// assert!(error.source().is_some());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: String) -> Self {
        Self {
            kind,
            message,
            source: None,
        }
    }

    pub(crate) fn with_source(
        mut self,
        source: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the cause, for an error of another type with the same message.
    pub fn into_source(self) -> Option<Box<dyn error::Error + Send + Sync>> {
        self.source
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
