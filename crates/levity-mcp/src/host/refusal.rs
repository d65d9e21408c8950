//! The reason why the host rejects a server's request.
//!
//! The kind decides the JSON-RPC code that the server gets: -1 for a denied request and for a
//! limit, as the protocol shows it for rejections by a person, -32602 for an invalid request and
//! -32603 for a failure.

use std::fmt;

/// The reason why the host rejects a server's request. It is sent to the server, so it must not
/// contain anything that the server should not know.
///
/// ```
/// # use levity_mcp::{Refusal, RefusalKind};
/// let refusal = Refusal::denied("sampling is not enabled on this host");
/// assert_eq!(refusal.kind(), RefusalKind::Denied);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    kind: RefusalKind,
    message: String,
}

/// The kind of a refusal.
///
/// ```
/// use levity_mcp::{Refusal, RefusalKind};
///
/// let refusal = Refusal::new(RefusalKind::Limit, "the budget of this server is used up");
/// assert_eq!(refusal.to_string(), "the budget of this server is used up");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// A policy or a person denied the request.
    Denied,
    /// The request exceeds the limits of the server.
    Limit,
    /// The request is invalid or too large.
    Invalid,
    /// The request was accepted and then failed.
    Failed,
}

impl Refusal {
    /// Creates a refusal of this kind; `message` is one lowercase clause.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Creates a refusal because a policy or a person denied the request.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Denied, message)
    }

    /// Creates a refusal because the request failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Failed, message)
    }

    /// Creates a refusal because the request is invalid or too large.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Invalid, message)
    }

    /// Creates a refusal because the server has used up its share.
    pub(super) fn limit(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Limit, message)
    }

    /// Returns the kind of the refusal.
    pub fn kind(&self) -> RefusalKind {
        self.kind
    }

    /// Returns the JSON-RPC error code.
    pub(crate) fn code(&self) -> i32 {
        match self.kind {
            RefusalKind::Denied | RefusalKind::Limit => -1,
            RefusalKind::Invalid => -32602,
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
