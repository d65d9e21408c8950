use std::fmt;

/// A folder that a client works in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Root {
    /// The URI of the folder.
    pub uri: String,
    /// The name of the folder, if it has one.
    pub name: Option<String>,
}

/// An error of a question to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskError {
    kind: AskErrorKind,
    message: String,
    missing: Option<&'static str>,
}

/// The category of an [`AskError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AskErrorKind {
    /// The client does not support the request.
    Unsupported,
    /// The client refused the request.
    Refused,
    /// The request is invalid, for example a form with fields that forms do not support.
    Invalid,
    /// The response is invalid.
    BadAnswer,
    /// The client did not answer in time.
    Timeout,
    /// The client has disconnected.
    Disconnected,
}

impl AskError {
    pub(super) fn new(kind: AskErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            missing: None,
        }
    }

    pub(super) fn unsupported(capability: &'static str, what: &str) -> Self {
        let message = format!("the client {what}; use a client with the capability `{capability}`");
        // The message names the missing part of a capability; the protocol error names the whole
        // capability.
        let missing = capability.split('.').next();
        Self {
            kind: AskErrorKind::Unsupported,
            message,
            missing,
        }
    }

    pub(super) fn gone() -> Self {
        Self::new(AskErrorKind::Disconnected, "the client has disconnected")
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(AskErrorKind::BadAnswer, message)
    }

    /// Returns the category of the error.
    pub fn kind(&self) -> AskErrorKind {
        self.kind
    }

    /// Returns `true` if asking again may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, AskErrorKind::BadAnswer | AskErrorKind::Timeout)
    }

    /// Returns the capability that the client lacks.
    pub(super) fn missing(&self) -> Option<&'static str> {
        self.missing
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AskError {}
