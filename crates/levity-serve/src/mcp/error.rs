use std::fmt;

use levity_core::Cause;

/// Why a server cannot be made, or had to stop.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    cause: Option<Cause>,
}

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was built contradicts itself.
    Build,
    /// The connection failed.
    Transport,
}

impl Error {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None }
    }

    pub(super) fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(Cause::new(source));
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether it may go better next time.
    pub fn is_retryable(&self) -> bool {
        self.kind == ErrorKind::Transport
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(Cause::as_error)
    }
}
