//! Servers for programs that are not async.
//!
//! ```no_run
//! use levity_mcp::{Config, WaitFor, blocking};
//! use serde_json::json;
//!
//! # fn example() -> levity_mcp::Result<()> {
//! let config = Config::load("mcp.json", |name| std::env::var(name).ok());
//! let servers = blocking::Servers::start(levity_mcp::Servers::builder().servers(config.into_servers()))?;
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

/// Servers that a thread of their own keeps running.
///
/// Between calls they go on: one that dies is started again, one that hangs is noticed. Dropped,
/// all of them end at once, with every process they started.
pub struct Servers {
    servers: crate::Servers,
    handle: Handle,
    /// Ends the thread when it is dropped.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Servers {
    /// Starts the servers and returns at once.
    ///
    /// # Errors
    /// As [`ServersBuilder::start`]; and when called from async code, where it would hold up
    /// others.
    pub fn start(builder: ServersBuilder) -> Result<Self> {
        outside()?;
        let failed = |error: std::io::Error| {
            Error::new(
                ErrorKind::Start,
                "*",
                format!("no thread could be made for the servers: {error}"),
            )
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            let _ = runtime.block_on(ended);
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
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Waits until these servers are ready or have failed to start once, and says how they are.
    ///
    /// # Errors
    /// When called from async code.
    pub fn wait(&self, wait: WaitFor) -> Result<Vec<ServerStatus>> {
        self.block(self.servers.wait(wait))
    }

    /// How all servers are, in the order of their settings.
    pub fn status(&self) -> Vec<ServerStatus> {
        self.servers.status()
    }

    /// All tools there are now, as a model sees them.
    pub fn tools(&self) -> Vec<ToolSpec> {
        self.servers
            .tools()
            .iter()
            .map(|tool| tool.spec().clone())
            .collect()
    }

    /// Calls a tool of a server, by the name that the server gave it or by the one that models
    /// know.
    ///
    /// # Errors
    /// As [`Server::call`](crate::Server::call); when there is no such server; and when called from
    /// async code.
    pub fn call(&self, server: &str, tool: &str, args: Value) -> Result<ToolOutput> {
        let known = self.servers.get(server);
        let unknown = || Error::new(ErrorKind::Config, server, "there is no such server");
        self.block(known.ok_or_else(unknown)?.call(tool, args))?
    }

    /// The servers themselves: for an agent that takes them as a source of tools, say.
    pub fn servers(&self) -> &crate::Servers {
        &self.servers
    }

    /// Ends all servers in order, within some seconds.
    ///
    /// # Errors
    /// When called from async code; they end at once then, as when they are dropped.
    pub fn stop(self) -> Result<()> {
        self.block(self.servers.stop())
    }

    fn block<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        outside()?;
        Ok(self.handle.block_on(work))
    }
}

/// Whether this thread is not one that drives async code: waiting there would hold up everything
/// else on it.
fn outside() -> Result<()> {
    match Handle::try_current() {
        Ok(_) => {
            let words =
                "a blocking call was made inside an async runtime; use `levity_mcp::Servers` there";
            Err(Error::new(ErrorKind::Config, "*", words))
        }
        Err(_) => Ok(()),
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.servers.kill();
        drop(self.end.take());
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
