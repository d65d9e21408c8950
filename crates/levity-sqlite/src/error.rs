use std::error;
use std::fmt;

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It cannot be a file of ours.
    Refused,
    /// It cannot be read; it is left as it is.
    Damaged,
    /// It was written by a newer version; it is left as it is.
    Version,
    /// Another program keeps it busy.
    Busy,
    /// What was to be written is too long.
    TooBig,
    /// Reading or writing failed.
    Io,
}

/// Why a file could not be used.
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

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What it came from, to be put under an error of another type that says the same.
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
