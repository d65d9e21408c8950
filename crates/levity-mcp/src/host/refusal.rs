use std::fmt;

/// Why a server does not get what it asked for. The server is told, so it says nothing that the
/// server should not know.
///
/// ```
/// # use levity_mcp::{Refusal, RefusalKind};
/// let refusal = Refusal::denied("no model is lent to servers here");
/// assert_eq!(refusal.kind(), RefusalKind::Denied);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    kind: RefusalKind,
    message: String,
}

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// Policy, or a person, does not want it.
    Denied,
    /// It is more than the server may use.
    Limit,
    /// The request makes no sense, or is too large.
    Bad,
    /// It was tried, and failed.
    Failed,
}

impl Refusal {
    /// A refusal of this kind; `message` is one lowercase clause.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Policy, or a person, does not want it.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Denied, message)
    }

    /// It was tried, and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Failed, message)
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Bad, message)
    }

    pub(super) fn limit(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Limit, message)
    }

    /// What kind of refusal it is.
    pub fn kind(&self) -> RefusalKind {
        self.kind
    }

    /// The JSON-RPC code for it.
    pub(crate) fn code(&self) -> i32 {
        match self.kind {
            RefusalKind::Denied | RefusalKind::Limit => -1,
            RefusalKind::Bad => -32602,
            RefusalKind::Failed => -32603,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
