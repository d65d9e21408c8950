use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{ToolError, ToolErrorKind};

use crate::redact::Redactor;

/// The result of what is asked of a server.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something asked of a server did not happen.
///
/// It names the server, the cause and, where a process ended, how it ended and what it last wrote
/// to stderr.
///
/// ```
/// # use levity_mcp::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::Timeout, "files", "no answer within 60s");
/// assert_eq!(error.to_string(), "MCP server `files`: no answer within 60s");
/// assert!(error.is_retryable());
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    server: Arc<str>,
    message: String,
    death: Option<ServerExit>,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The settings are wrong.
    Config,
    /// The server could not be started or reached.
    Start,
    /// The server wants a login that is missing or no longer good.
    Auth,
    /// The server is being started or restarted, or was given up.
    Away,
    /// The connection ended before the answer came.
    Closed,
    /// No answer came in time.
    Timeout,
    /// An answer was larger than allowed.
    TooLarge,
    /// The server answered with something that the protocol does not have.
    Protocol,
    /// The server answered with an error of this JSON-RPC code.
    Refused(i32),
    /// The server does not offer this.
    Unsupported,
    /// Nobody wants the answer any more.
    Cancelled,
}

impl Error {
    /// An error of a server; `message` is one lowercase clause without the server's name.
    pub fn new(kind: ErrorKind, server: impl Into<Arc<str>>, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            server: server.into(),
            message: message.into(),
            death: None,
        }))
    }

    /// Adds how the server's process ended.
    #[must_use]
    pub fn with_death(mut self, death: ServerExit) -> Self {
        Arc::make_mut(&mut self.0).death = Some(death);
        self
    }

    /// The error without what must not be shown.
    pub(crate) fn without(mut self, secrets: &Redactor) -> Self {
        let clean = |text: &str| match secrets.text(text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(clean),
        };
        let (message, death) = (clean(&self.0.message), self.0.death.as_ref());
        let stderr = death.and_then(|death| clean(&death.stderr));
        if message.is_some() || stderr.is_some() {
            let inner = Arc::make_mut(&mut self.0);
            inner.message = message.unwrap_or_else(|| std::mem::take(&mut inner.message));
            if let (Some(death), Some(stderr)) = (&mut inner.death, stderr) {
                death.stderr = stderr;
            }
        }
        self
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The server.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// The cause, without the server's name and its last words.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// How the server's process ended, if it has one and it did.
    pub fn death(&self) -> Option<&ServerExit> {
        self.0.death.as_ref()
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Away, Closed, Start, Timeout};
        matches!(self.0.kind, Away | Closed | Start | Timeout)
    }

    /// Whether the server may not be there any more.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Timeout | ErrorKind::Start | ErrorKind::Closed
        )
    }

    pub(crate) fn timeout(server: &Arc<str>, what: &str, limit: Duration) -> Self {
        Self::new(
            ErrorKind::Timeout,
            server.clone(),
            format!("no answer to {what} within {limit:?}"),
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MCP server `{}`: {}", self.0.server, self.0.message)?;
        match &self.0.death {
            Some(death) => write!(f, "; {death}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            kind,
            server,
            message,
            death,
        } = &*self.0;
        let mut debug = f.debug_struct("Error");
        debug
            .field("kind", kind)
            .field("server", server)
            .field("message", message);
        debug.field("death", death).finish()
    }
}

impl std::error::Error for Error {}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Timeout => ToolErrorKind::Timeout,
            ErrorKind::Cancelled => ToolErrorKind::Cancelled,
            _ => ToolErrorKind::Failed,
        };
        ToolError::new(kind, error.to_string()).with_retryable(error.is_retryable())
    }
}

/// How a server's process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerExit {
    /// The code it returned.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The end of what it wrote to stderr, at most 2 KiB.
    pub stderr: String,
}

impl fmt::Display for ServerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "its process ended with code {code}")?,
            (None, Some(signal)) => write!(f, "its process was ended by signal {signal}")?,
            (None, None) => f.write_str("its process still runs")?,
        }
        match self.stderr.trim() {
            "" => f.write_str(" and wrote nothing to stderr"),
            words => write!(f, "; the end of its stderr: {words}"),
        }
    }
}

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
