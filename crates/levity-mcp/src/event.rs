use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::Error;
use crate::redact::Redactor;

/// Something that happened to a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerEvent {
    /// The server.
    pub server: Arc<str>,
    /// What happened.
    pub kind: ServerEventKind,
}

/// What happened to a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerEventKind {
    /// It is being started.
    Starting,
    /// It answers, and offers this many tools.
    Ready {
        /// How many.
        tools: usize,
    },
    /// It is away, and is started again after this time; never, when there is none.
    Away {
        /// Why.
        error: Error,
        /// How long until it is started again.
        retry: Option<Duration>,
    },
    /// Its tools are other ones now.
    ToolsChanged {
        /// How many there are.
        tools: usize,
    },
    /// Its resources, or one of them, have changed.
    ResourcesChanged {
        /// The one, when it is one.
        uri: Option<String>,
    },
    /// Its prompts have changed.
    PromptsChanged,
    /// It logged something by the protocol.
    Log {
        /// How grave it is, in the protocol's words: `debug`, `info`, `warning`, `error` and so on.
        level: String,
        /// What it said.
        text: String,
    },
    /// It wrote a line to stderr.
    Stderr(String),
    /// It was stopped.
    Stopped,
}

/// Where events of servers go; nobody has to listen.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    server: Arc<str>,
    to: broadcast::Sender<ServerEvent>,
    secrets: Redactor,
}

impl Events {
    /// Sends what happens to a server to `to`, without what `secrets` masks.
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

    /// Masks the server's secrets.
    pub(crate) fn secrets(&self) -> &Redactor {
        &self.secrets
    }

    /// Whether anybody listens.
    pub(crate) fn is_heard(&self) -> bool {
        self.to.receiver_count() > 0
    }

    pub(crate) fn send(&self, kind: ServerEventKind) {
        let kind = self.clean(kind);
        #[cfg(feature = "tracing")]
        log(&self.server, &kind);
        let _ = self.to.send(ServerEvent {
            server: self.server.clone(),
            kind,
        });
    }

    /// What happened, without secrets in the server's own words.
    fn clean(&self, kind: ServerEventKind) -> ServerEventKind {
        let text = |text: String| match self.secrets.text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(clean) => clean,
        };
        match kind {
            ServerEventKind::Away { error, retry } => ServerEventKind::Away {
                error: error.without(&self.secrets),
                retry,
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

/// Says it to whoever reads the log, too. What a server says of itself is below what is known of
/// it.
#[cfg(feature = "tracing")]
fn log(server: &str, kind: &ServerEventKind) {
    use tracing::{debug, info, warn};
    match kind {
        ServerEventKind::Starting => debug!(target: "levity::mcp", server, "MCP server starts"),
        ServerEventKind::Ready { tools } => {
            info!(target: "levity::mcp", server, tools, "MCP server ready");
        }
        ServerEventKind::Away { error, retry } => {
            let again = retry.map(tracing::field::debug);
            warn!(target: "levity::mcp", server, %error, again, "MCP server away");
        }
        ServerEventKind::ToolsChanged { tools } => {
            info!(target: "levity::mcp", server, tools, "MCP server has other tools");
        }
        ServerEventKind::Log { level, text } => {
            debug!(target: "levity::mcp", server, %level, %text, "MCP server logged");
        }
        ServerEventKind::Stderr(line) => {
            debug!(target: "levity::mcp", server, %line, "MCP server wrote");
        }
        ServerEventKind::Stopped => info!(target: "levity::mcp", server, "MCP server stopped"),
        ServerEventKind::ResourcesChanged { .. } | ServerEventKind::PromptsChanged => {}
    }
}
