//! The server and its transports.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::{CallId, ToolSpec, World};
use levity_rpc::mcp::{QuitReason, ServerConfig, Tool, serve_directly};
use levity_tools::{ArgumentValidator, Dispatcher};
use tokio::io::{AsyncRead, AsyncWrite};

use super::builder::McpServerBuilder;
use super::lines::Lines;
use super::paused_calls::PausedCalls;
use super::session::Session;
use super::tasks::Tasks;
use super::{Changes, Completer, Handler, McpLimits, Prompts, RequestError, Resources};
use crate::access::Caller;
use crate::error::{Error, Result};
use crate::listen::Listener;
use crate::quota::{Permit, Quota};

/// An MCP server. Cheap to clone; see [the module](super) for an example.
///
/// One server serves any number of clients at the same time, over any transport.
///
/// Limits apply to all clients together; each tenant gets a share of them. A panic of a tool or
/// provider becomes an error of its request and affects no other.
///
/// ```
/// use levity_serve::mcp::McpServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_serve::Result<()> {
/// let server = McpServer::builder("empty", "1.0").build()?;
/// // Two clients at once, each with its own streams; both close at once.
/// let (one, two) = tokio::join!(
///     server.serve(tokio::io::empty(), tokio::io::sink()),
///     server.serve(tokio::io::empty(), tokio::io::sink()),
/// );
/// assert!(one.is_ok() && two.is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct McpServer(pub(super) Arc<Inner>);

/// The state that all sessions share.
pub(super) struct Inner {
    pub(super) info: ServerConfig,
    pub(super) dispatcher: Dispatcher,
    /// `true` if the list of tools may change.
    pub(super) has_sources: bool,
    pub(super) offers: BTreeMap<String, Offer>,
    /// The names of the handlers, in the order in which they were added.
    pub(super) order: Vec<String>,
    pub(super) resources: Vec<Arc<dyn Resources>>,
    pub(super) prompts: Vec<Arc<dyn Prompts>>,
    pub(super) completer: Option<Arc<dyn Completer>>,
    pub(super) changes: Changes,
    pub(super) limits: McpLimits,
    pub(super) world: Arc<dyn World>,
    pub(super) paused_calls: Arc<PausedCalls>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) calls: Arc<Quota>,
    /// Limits the bytes of arguments.
    pub(super) arguments: Arc<Quota>,
    pub(super) listeners: Arc<Quota>,
    /// The list of tools as clients see it, and the specs it was built from.
    pub(super) tool_list: Mutex<Option<ToolList>>,
    /// Distinguishes the calls of this server from those of others.
    pub(super) call_prefix: u64,
    pub(super) count: AtomicU64,
}

/// A tool that talks to its client.
pub(super) struct Offer {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) arguments: ArgumentValidator,
    pub(super) limit: Option<Duration>,
}

pub(super) type ToolList = (Arc<[Arc<ToolSpec>]>, Arc<[Tool]>);

impl McpServer {
    /// Creates a builder for a server with this name and version.
    ///
    /// ```
    /// use levity_serve::mcp::McpServer;
    /// let server = McpServer::builder("empty", "1.0").build()?;
    /// let same = server.clone(); // cheap: one server, many connections
    /// # drop((server, same));
    /// # Ok::<(), levity_serve::Error>(())
    /// ```
    pub fn builder(name: impl Into<String>, version: impl Into<String>) -> McpServerBuilder {
        McpServerBuilder::new(name.into(), version.into())
    }

    /// Returns the handle that notifies clients of changes.
    pub fn changes(&self) -> &Changes {
        &self.0.changes
    }

    /// Serves the client that started this program, over its standard input and output, until the
    /// client closes them.
    ///
    /// Nothing else may write to standard output in the meantime. Requests that arrived before the
    /// end are answered, within five seconds.
    ///
    /// ```no_run
    /// use levity_serve::mcp::McpServer;
    ///
    /// #[tokio::main]
    /// async fn main() -> levity_serve::Result<()> {
    ///     McpServer::builder("my-tools", "1.0").build()?.stdio().await
    /// }
    /// ```
    ///
    /// # Errors
    /// Fails if the connection fails.
    pub async fn stdio(&self) -> Result<()> {
        let (reader, writer) = levity_rpc::mcp::stdio_pipes();
        self.serve(reader, writer).await
    }

    /// Serves the client at the other end, one message per line, until it closes its side. Dropping
    /// the future ends the connection at once.
    ///
    /// ```
    /// use levity_serve::mcp::McpServer;
    ///
    /// # async fn ask(server: &McpServer, asked: &'static str) -> std::io::Result<String> {
    /// #     use tokio::io::AsyncReadExt as _;
    /// #     let (mut there, here) = tokio::io::duplex(1 << 16);
    /// #     server.serve(asked.as_bytes(), here).await.map_err(std::io::Error::other)?;
    /// #     let mut answered = String::new();
    /// #     there.read_to_string(&mut answered).await?;
    /// #     Ok(answered)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = McpServer::builder("empty", "1.0").build()?;
    /// // Invalid lines get an error; the connection continues.
    /// let lines = "no JSON\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    /// let answered = ask(&server, lines).await?;
    /// assert!(answered.contains("this line is not JSON") && answered.contains("\"id\":1"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the connection fails.
    pub async fn serve(
        &self,
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<()> {
        let lines = Lines::new(reader, writer, self.0.limits.line);
        // The library's own handshake would end the connection at the first message that is out of
        // order.
        match serve_directly(Session::new(self.0.clone()), lines, None)
            .waiting()
            .await
        {
            Ok(QuitReason::JoinError(error)) | Err(error) => Err(Error::Io {
                what: "the connection failed".to_owned(),
                source: io::Error::other(error),
            }),
            Ok(_) => Ok(()),
        }
    }

    /// Serves all clients of a listener, at `/mcp`, until the listener must stop.
    ///
    /// # Errors
    /// Fails if the listener fails.
    ///
    /// ```
    /// use levity_core::CancelToken;
    /// use levity_serve::mcp::McpServer;
    /// use levity_serve::{AccessControl, Listener, Token};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_serve::Result<()> {
    /// let server = McpServer::builder("empty", "1.0").build()?;
    /// let token = Token::generate()?;
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::new(token)).await?;
    /// println!("http://{}/mcp", listener.address());
    /// # let stop = CancelToken::new();
    /// # stop.cancel();
    /// # let listener = listener.stop_on(stop);
    /// server.listen(listener).await
    /// # }
    /// ```
    pub async fn listen(&self, listener: Listener) -> Result<()> {
        listener.serve_callers(self.http()).await
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer")
            .field("info", &self.0.info.server_info)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Takes a permit for a request in progress.
    pub(super) fn call_permit(&self, caller: &Caller) -> Result<Permit, RequestError> {
        self.calls
            .take(caller)
            .map_err(|_| RequestError::busy("the server is busy; try again in a moment"))
    }

    /// Takes a permit for the arguments of a call, for as long as it is in progress.
    pub(super) fn reserve_memory(
        &self,
        caller: &Caller,
        bytes: usize,
    ) -> Result<Permit, RequestError> {
        let busy = |_| {
            RequestError::busy(
                "too many calls with large arguments are in progress; try again in \
                a moment",
            )
        };
        self.arguments.take_many(caller, bytes).map_err(busy)
    }

    /// Returns a unique id for a call.
    pub(super) fn call_id(&self) -> CallId {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        CallId::from(format!("mcp-{:x}-{count}", self.call_prefix))
    }
}
