//! The error of requests to servers.
//!
//! The error is one pointer wide, because it is cloned often: for the caller, the event and the
//! phase of the server. It names the server and the cause in one line. `redacted` masks the
//! server's secrets in it, where an error leaves the connection or becomes an event.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{ToolError, ToolErrorKind};

use crate::redact::Redactor;

/// The result of a request to a server.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a request to a server.
///
/// The error names the server and the cause. If the server's process ended, the error also has its
/// exit status and the last text that it wrote to stderr.
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

/// The kind of a server error.
///
/// ```
/// use levity_mcp::{Error, ErrorKind};
///
/// let next_step = |error: &Error| match error.kind() {
///     ErrorKind::Auth => "log in again",
///     ErrorKind::Config | ErrorKind::Unsupported => "fix the settings",
///     _ if error.is_retryable() => "try again later",
///     _ => "report it to the model",
/// };
/// let error = Error::new(ErrorKind::Rejected(-32_602), "files", "`path` is missing");
/// assert_eq!(next_step(&error), "report it to the model");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration is invalid.
    Config,
    /// The server could not be started or reached.
    Start,
    /// The server requires a login that is missing or has expired.
    Auth,
    /// The server is starting or restarting, or levity stopped trying to start it.
    Unavailable,
    /// The connection ended before the response arrived.
    Closed,
    /// No response arrived in time.
    Timeout,
    /// A response was larger than the limit.
    TooLarge,
    /// The server's response violates the protocol.
    Protocol,
    /// The server responded with an error that has this JSON-RPC code.
    Rejected(i32),
    /// The server does not support the request.
    Unsupported,
    /// The caller cancelled the request.
    Cancelled,
}

impl Error {
    /// Creates an error of a server; `message` is one lowercase clause without the server's name.
    pub fn new(kind: ErrorKind, server: impl Into<Arc<str>>, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            server: server.into(),
            message: message.into(),
            death: None,
        }))
    }

    /// Adds the exit status of the server's process.
    #[must_use]
    pub fn with_exit(mut self, death: ServerExit) -> Self {
        Arc::make_mut(&mut self.0).death = Some(death);
        self
    }

    /// Returns the error with its secrets masked.
    pub(crate) fn redacted(mut self, secrets: &Redactor) -> Self {
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

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the name of the server.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Returns the cause, without the server's name and without its stderr.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the exit status of the server's process, if the server has a process that ended.
    ///
    /// The status is there for a running process too, with neither a code nor a signal: its stderr
    /// often explains why it does not respond.
    ///
    /// ```
    /// use levity_mcp::{ServerConfig, ServerState, Servers, WaitFor};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_mcp::Result<()> {
    /// # if cfg!(not(unix)) { return Ok(()); }
    /// let broken = ServerConfig::stdio("broken", "sh").args(["-c", "echo 'no key' >&2; exit 3"]);
    /// let servers = Servers::builder().server(broken).start()?;
    /// let status = servers.wait(WaitFor::All).await.remove(0);
    /// let ServerState::Unavailable { error, .. } = status.state else { panic!("it exits") };
    /// let exit = error.exit().expect("it has a process");
    /// assert_eq!((exit.code, exit.stderr.trim()), (Some(3), "no key"));
    /// servers.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn exit(&self) -> Option<&ServerExit> {
        self.0.death.as_ref()
    }

    /// Returns `true` if the same request may succeed later.
    ///
    /// After [`Timeout`](ErrorKind::Timeout) and [`Closed`](ErrorKind::Closed), the server may have
    /// performed the request. Repeat only requests without effects, or those that the server treats
    /// as idempotent.
    ///
    /// ```
    /// use levity_mcp::{Error, ErrorKind};
    ///
    /// let error = |kind| Error::new(kind, "files", "no connection");
    /// assert!(error(ErrorKind::Unavailable).is_retryable());
    /// assert!(!error(ErrorKind::Auth).is_retryable(), "a person must log in first");
    /// ```
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Closed, Start, Timeout, Unavailable};
        matches!(self.0.kind, Unavailable | Closed | Start | Timeout)
    }

    /// Returns `true` if the error suggests that the server is no longer running.
    pub(crate) fn suggests_dead_server(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Timeout | ErrorKind::Start | ErrorKind::Closed
        )
    }

    /// Creates the error of a request without a response: `what` names it, `limit` is the elapsed
    /// time.
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

/// The exit status of a server's process.
///
/// ```
/// use levity_mcp::{Error, ErrorKind, ServerExit};
///
/// let mut exit = ServerExit::default();
/// (exit.code, exit.stderr) = (Some(3), "no such folder: /srv/docs".to_owned());
/// let error = Error::new(ErrorKind::Closed, "files", "the connection ended").with_exit(exit);
/// assert_eq!(
///     error.to_string(),
///     "MCP server `files`: the connection ended; its process ended with code 3; \
///      the end of its stderr: no such folder: /srv/docs",
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerExit {
    /// The exit code, if the process exited normally.
    pub code: Option<i32>,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// The end of the process's stderr output, at most 2 KiB.
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
            "" => f.write_str(" and wrote nothing to stderr; run its command by hand"),
            words => write!(f, "; the end of its stderr: {words}"),
        }
    }
}

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
