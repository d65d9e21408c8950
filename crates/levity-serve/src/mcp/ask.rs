//! Errors of questions to clients, and the root folders that a client reports.

use std::fmt;

/// A folder that a client works in.
///
/// Roots are information and not a permission: check paths on your own. See
/// [`Client::roots`](super::Client::roots).
///
/// ```
/// use levity_serve::mcp::{AskError, Client};
/// async fn folders(client: &Client) -> Result<Vec<String>, AskError> {
///     Ok(client.roots().await?.into_iter().map(|root| root.uri).collect())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Root {
    /// The URI of the folder.
    pub uri: String,
    /// The name of the folder, if it has one.
    pub name: Option<String>,
}

/// An error of a question to a client.
///
/// ```
/// use levity_serve::mcp::{AskErrorKind, ElicitForm, HandlerCall, HandlerReply, RequestError};
/// async fn confirm(call: HandlerCall, form: ElicitForm) -> Result<HandlerReply, RequestError> {
///     match call.client.elicit(form).await {
///         Ok(_) => Ok(HandlerReply::text("asked")),
///         // A client without a user: use the default instead of failing.
///         Err(error) if error.kind() == AskErrorKind::Unsupported => {
///             Ok(HandlerReply::text("used the default"))
///         }
///         Err(error) => Err(error.into()),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskError {
    kind: AskErrorKind,
    message: String,
    missing: Option<&'static str>,
}

/// The category of an [`AskError`].
///
/// Only `BadAnswer` and `Timeout` are retryable; the others fail in the same way again.
///
/// ```
/// use levity_serve::mcp::{AskError, AskErrorKind};
/// fn hint(error: &AskError) -> &'static str {
///     match error.kind() {
///         AskErrorKind::Unsupported => "use another client",
///         AskErrorKind::Timeout => "answer within ten minutes",
///         _ if error.is_retryable() => "try again",
///         _ => "continue without an answer",
///     }
/// }
/// ```
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

    /// `capability` may name a part, such as `sampling.tools`; `what` continues the sentence "the
    /// client ..".
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
