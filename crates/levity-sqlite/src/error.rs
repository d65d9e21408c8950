use std::error;
use std::fmt;

/// The kind of a file error.
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
    /// The data to write is too long.
    TooBig,
    /// Reading or writing failed.
    Io,
}

/// The reason why a file could not be used.
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
