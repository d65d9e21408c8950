//! A blocking API for programs that are not async.
//!
//! ```no_run
//! use levity_mcp::{Config, WaitFor, blocking};
//! use serde_json::json;
//!
//! # fn example() -> levity_mcp::Result<()> {
//! let config = Config::load("mcp.json", |name| std::env::var(name).ok());
//! let servers =
//!     blocking::Servers::start(levity_mcp::Servers::builder().servers(config.into_servers()))?;
//! servers.wait(WaitFor::All)?;
//! for tool in servers.tools() {
//!     println!("{}: {}", tool.name, tool.description);
//! }
//! let output = servers.call("files", "read_file", json!({"path": "notes.txt"}))?;
//! println!("{}", output.as_text());
//! servers.stop()
//! # }
//! ```

use std::fmt;
use std::future::Future;
use std::thread::JoinHandle;

use levity_core::{ToolOutput, ToolSource as _, ToolSpec};
use serde_json::Value;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Result, ServerStatus, ServersBuilder, WaitFor};

/// A set of servers that run on a dedicated thread.
///
/// The thread supervises the servers between calls: it restarts a server that exits and detects one
/// that hangs. Dropping the value kills all servers at once, with every process they started.
///
/// Threads may share it by reference; their calls run concurrently.
///
/// ```
/// use levity_mcp::{ErrorKind, ServerConfig, WaitFor, blocking};
/// use serde_json::json;
///
/// # fn main() -> levity_mcp::Result<()> {
/// let gone = ServerConfig::stdio("gone", "no-such-program");
/// let servers = blocking::Servers::start(levity_mcp::Servers::builder().server(gone))?;
/// assert!(!servers.wait(WaitFor::All)?[0].state.is_ready());
/// let error = servers.call("gone", "read", json!({})).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// servers.stop()
/// # }
/// ```
pub struct Servers {
    servers: crate::Servers,
    handle: Handle,
    /// The thread ends when this is dropped.
    stop_signal: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Servers {
    /// Starts the servers and returns immediately.
    ///
    /// # Errors
    /// Returns the errors of [`ServersBuilder::start`], and an error if called from async code,
    /// where it would block other tasks.
    ///
    /// ```
    /// use levity_mcp::{ErrorKind, Servers, blocking};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let refused = blocking::Servers::start(Servers::builder()).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Config);
    /// assert!(refused.message().contains("inside an async runtime"));
    /// # }
    /// ```
    pub fn start(builder: ServersBuilder) -> Result<Self> {
        ensure_outside_runtime()?;
        let failed = |error: std::io::Error| {
            Error::new(
                ErrorKind::Start,
                "*",
                format!("cannot create a thread for the servers: {error}"),
            )
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop_signal, stopped) = oneshot::channel::<()>();
        let run = move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        };
        let servers = {
            let _within = handle.enter();
            builder.start()?
        };
        let thread = std::thread::Builder::new()
            .name("levity-mcp".to_owned())
            .spawn(run)
            .map_err(failed)?;
        Ok(Self {
            servers,
            handle,
            stop_signal: Some(stop_signal),
            thread: Some(thread),
        })
    }

    /// Waits until the servers are ready or have failed to start once, and returns their status.
    ///
    /// # Errors
    /// Returns an error if called from async code.
    pub fn wait(&self, wait: WaitFor) -> Result<Vec<ServerStatus>> {
        self.block(self.servers.wait(wait))
    }

    /// Returns the status of all servers, in the order of their configuration.
    pub fn status(&self) -> Vec<ServerStatus> {
        self.servers.status()
    }

    /// Returns all tools that are currently available, as a model sees them.
    pub fn tools(&self) -> Vec<ToolSpec> {
        self.servers
            .tools()
            .iter()
            .map(|tool| tool.spec().clone())
            .collect()
    }

    /// Calls a tool of a server, either by the name that the server gave it or by the name that
    /// models see.
    ///
    /// # Errors
    /// Returns the errors of [`Server::call`](crate::Server::call), and an error of the kind
    /// [`Config`](ErrorKind::Config) if the server does not exist or if called from async code.
    ///
    /// ```
    /// use levity_mcp::{Servers, WaitFor, blocking};
    /// use serde_json::json;
    ///
    /// # fn clock() -> levity_mcp::ServerConfig {
    /// #     use serde_json::{Value, json};
    /// #     use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    /// #     let serve = |pipe: tokio::io::DuplexStream| async move {
    /// #         let (mut pipe, mut line) = (BufReader::new(pipe), String::new());
    /// #         while pipe.read_line(&mut line).await.is_ok_and(|read| read > 0) {
    /// #             let ask: Value = serde_json::from_str(&line).unwrap_or_default();
    /// #             let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {
    /// #                 "protocolVersion": "2025-11-25",
    /// #                 "serverInfo": {"name": "clock", "version": "1"},
    /// #                 "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    /// #                 "tools": [{"name": "now"}],
    /// #                 "content": [{"type": "text", "text": "noon"}],
    /// #             }});
    /// #             let _ = pipe.write_all(format!("{answer}\n").as_bytes()).await;
    /// #             line.clear();
    /// #         }
    /// #     };
    /// #     levity_mcp::ServerConfig::in_process("clock", move || {
    /// #         let (client, server) = tokio::io::duplex(1 << 16);
    /// #         tokio::spawn(serve(server));
    /// #         client
    /// #     })
    /// # }
    /// # fn main() -> levity_mcp::Result<()> {
    /// let servers = blocking::Servers::start(Servers::builder().server(clock()))?;
    /// servers.wait(WaitFor::All)?;
    /// assert_eq!(servers.tools()[0].name, "mcp_clock_now");
    /// assert_eq!(servers.call("clock", "now", json!({}))?.as_text(), "noon");
    /// servers.stop()
    /// # }
    /// ```
    pub fn call(&self, server: &str, tool: &str, args: Value) -> Result<ToolOutput> {
        let known = self.servers.get(server);
        let unknown = || Error::new(ErrorKind::Config, server, "there is no such server");
        self.block(known.ok_or_else(unknown)?.call(tool, args))?
    }

    /// Returns the async servers, for example for an agent that uses them as a source of tools.
    pub fn servers(&self) -> &crate::Servers {
        &self.servers
    }

    /// Shuts down all servers gracefully, within a few seconds.
    ///
    /// # Errors
    /// Returns an error if called from async code. The servers are then killed at once, as on drop.
    pub fn stop(self) -> Result<()> {
        self.block(self.servers.stop())
    }

    /// The work runs on the calling thread, and the tasks of the servers on their own, so a slow
    /// caller delays no supervisor.
    fn block<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        ensure_outside_runtime()?;
        Ok(self.handle.block_on(work))
    }
}

/// Returns an error on a thread that drives async code, where waiting would block every other task.
fn ensure_outside_runtime() -> Result<()> {
    match Handle::try_current() {
        Ok(_) => {
            let message =
                "a blocking call was made inside an async runtime; use `levity_mcp::Servers` there";
            Err(Error::new(ErrorKind::Config, "*", message))
        }
        Err(_) => Ok(()),
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.servers.kill();
        drop(self.stop_signal.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servers").field(&self.servers.all()).finish()
    }
}
