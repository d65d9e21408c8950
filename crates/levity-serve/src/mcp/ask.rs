use std::fmt;

/// A folder that a client works in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Root {
    /// Where it is.
    pub uri: String,
    /// What it is called, where it has a name.
    pub name: Option<String>,
}

/// Why a client gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskError {
    kind: AskErrorKind,
    message: String,
    missing: Option<&'static str>,
}

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AskErrorKind {
    /// The client cannot do it.
    Unsupported,
    /// The client does not want to.
    Refused,
    /// What it was asked makes no sense: a form with parts that forms do not have, for instance.
    Invalid,
    /// Its answer makes no sense.
    BadAnswer,
    /// It did not answer in time.
    Timeout,
    /// It is gone.
    Gone,
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
        let message =
            format!("the client {what}; connect with one that has the capability `{capability}`");
        // The part of a capability that is missing is told in words; who reads it by program is
        // told the whole.
        let missing = capability.split('.').next();
        Self {
            kind: AskErrorKind::Unsupported,
            message,
            missing,
        }
    }

    pub(super) fn gone() -> Self {
        Self::new(AskErrorKind::Gone, "the client is gone")
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(AskErrorKind::BadAnswer, message)
    }

    /// What kind of error it is.
    pub fn kind(&self) -> AskErrorKind {
        self.kind
    }

    /// Whether asking again may help.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, AskErrorKind::BadAnswer | AskErrorKind::Timeout)
    }

    /// The capability that the client lacks.
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
