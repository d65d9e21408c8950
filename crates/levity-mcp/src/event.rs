//! Events of servers, and the channel that publishes them.
//!
//! Every text that a server wrote passes `Events::send`, which masks the server's secrets before
//! any receiver or log line gets the event. Sending never waits and never fails: without a receiver
//! the event is only logged, and a slow receiver misses the oldest ones.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::Error;
use crate::redact::Redactor;

/// An event of a server.
///
/// [`Servers::events`](crate::Servers::events) returns the receiver. Texts in events are the
/// server's and untrusted; levity has masked the secrets of its settings in them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerEvent {
    /// The name of the server.
    pub server: Arc<str>,
    /// The kind of the event.
    pub kind: ServerEventKind,
}

/// The kind of a server event.
///
/// ```
/// use levity_mcp::{ErrorKind, ServerConfig, ServerEventKind, Servers};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_mcp::Result<()> {
/// let gone = ServerConfig::stdio("gone", "no-such-program").retries(0);
/// let servers = Servers::builder().server(gone).start()?;
/// let mut events = servers.events();
/// while let Some(event) = events.next().await {
///     if let ServerEventKind::Unavailable { error, retry_after } = event.kind {
///         assert_eq!((error.kind(), retry_after), (ErrorKind::Start, None));
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerEventKind {
    /// The server is starting.
    Starting,
    /// The server is ready and offers this many tools.
    Ready {
        /// The number of tools.
        tools: usize,
    },
    /// The server is unavailable. levity restarts it after `retry_after`, or with the next request
    /// if that is `None`.
    Unavailable {
        /// The reason why the server is unavailable.
        error: Error,
        /// The time until the next start.
        retry_after: Option<Duration>,
    },
    /// The server's list of tools has changed.
    ToolsChanged {
        /// The number of tools in the new list.
        tools: usize,
    },
    /// The server's list of resources, or one resource, has changed.
    ResourcesChanged {
        /// The resource that changed; `None` if the list changed.
        uri: Option<String>,
    },
    /// The server's list of prompts has changed.
    PromptsChanged,
    /// The server sent a log message through the protocol.
    Log {
        /// The severity as the protocol names it: `debug`, `info`, `warning`, `error` and so on.
        level: String,
        /// The text of the log message.
        text: String,
    },
    /// The server wrote a line to stderr.
    Stderr(String),
    /// The server was stopped.
    Stopped,
}

/// The channel for a server's events; a receiver is optional.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    server: Arc<str>,
    to: broadcast::Sender<ServerEvent>,
    secrets: Redactor,
}

impl Events {
    /// Sends the events of a server to `to`, with the secrets of `secrets` masked.
    pub(crate) fn new(
        server: Arc<str>,
        to: broadcast::Sender<ServerEvent>,
        secrets: Redactor,
    ) -> Self {
        Self {
            server,
            to,
            secrets,
        }
    }

    /// Returns the redactor of the server's secrets.
    pub(crate) fn secrets(&self) -> &Redactor {
        &self.secrets
    }

    /// Returns `true` if the channel has a receiver.
    pub(crate) fn has_receivers(&self) -> bool {
        self.to.receiver_count() > 0
    }

    /// Masks secrets in the event, logs it with the feature `tracing`, and publishes it.
    pub(crate) fn send(&self, kind: ServerEventKind) {
        let kind = self.redact(kind);
        #[cfg(feature = "tracing")]
        log(&self.server, &kind);
        let _ = self.to.send(ServerEvent {
            server: self.server.clone(),
            kind,
        });
    }

    /// Masks secrets in the texts of an event.
    fn redact(&self, kind: ServerEventKind) -> ServerEventKind {
        let text = |text: String| match self.secrets.text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(redact) => redact,
        };
        match kind {
            ServerEventKind::Unavailable {
                error,
                retry_after: retry,
            } => ServerEventKind::Unavailable {
                error: error.redacted(&self.secrets),
                retry_after: retry,
            },
            ServerEventKind::ResourcesChanged { uri } => {
                ServerEventKind::ResourcesChanged { uri: uri.map(text) }
            }
            ServerEventKind::Log { level, text: line } => ServerEventKind::Log {
                level,
                text: text(line),
            },
            ServerEventKind::Stderr(line) => ServerEventKind::Stderr(text(line)),
            kind => kind,
        }
    }
}

/// Logs the event. Texts from the server get a lower level than facts that levity established.
#[cfg(feature = "tracing")]
fn log(server: &str, kind: &ServerEventKind) {
    use tracing::{debug, info, warn};
    match kind {
        ServerEventKind::Starting => debug!(target: "levity::mcp", server, "MCP server starting"),
        ServerEventKind::Ready { tools } => {
            info!(target: "levity::mcp", server, tools, "MCP server ready");
        }
        ServerEventKind::Unavailable {
            error,
            retry_after: retry,
        } => {
            let again = retry.map(tracing::field::debug);
            warn!(target: "levity::mcp", server, %error, again, "MCP server unavailable");
        }
        ServerEventKind::ToolsChanged { tools } => {
            info!(target: "levity::mcp", server, tools, "MCP server changed its tools");
        }
        ServerEventKind::Log { level, text } => {
            debug!(target: "levity::mcp", server, %level, %text, "MCP server logged");
        }
        ServerEventKind::Stderr(line) => {
            debug!(target: "levity::mcp", server, %line, "MCP server wrote to stderr");
        }
        ServerEventKind::Stopped => info!(target: "levity::mcp", server, "MCP server stopped"),
        ServerEventKind::ResourcesChanged { .. } | ServerEventKind::PromptsChanged => {}
    }
}
