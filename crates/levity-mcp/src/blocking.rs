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
    /// Returns the errors of [`Server::call`](crate::Server::call), and an error if the server does
    /// not exist or if called from async code.
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
