//! MCP servers as tools for agents: many servers, every transport, and a time limit on every wait.
//!
//! ```
//! use std::sync::Arc;
//!
//! use levity_core::ToolSource as _;
//! use levity_mcp::{Config, Servers, WaitFor};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> levity_mcp::Result<()> {
//! let config = Config::parse(
//!     r#"{"mcpServers": {"gone": {"command": "no-such-program"}, "bad": {"args": ["--help"]}}}"#,
//!     |name| std::env::var(name).ok(),
//! );
//! assert_eq!(config.problems().len(), 1, "`bad` has no command; `gone` is valid");
//!
//! // The servers start in the background. An agent uses `servers` as a source of tools and does
//! // not have to wait.
//! let servers = Servers::builder().servers(config.into_servers()).start()?;
//! let status = servers.wait(WaitFor::All).await;
//! assert!(!status[0].state.is_ready(), "the program does not exist; levity retries the start");
//! assert!(servers.tools().is_empty());
//! servers.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! - Servers start concurrently, and levity restarts those that exit or hang. Their tools work
//!   again without a restart of the agent.
//! - Every wait has a limit. Every error names the server and the cause; if a process ended, it
//!   also has the exit code and the end of the process's stderr.
//! - No server process outlives the host, even if the host crashes.
//! - levity does not lose, mix up or trust data from a server. It passes results on unchanged,
//!   within size limits.
//! - The names of tools depend only on the configuration, and every provider accepts them.
//!
//! # Features
//! - `http`: servers reached by streamable HTTP, and by the older HTTP with server-sent events.
//! - `oauth`: servers that require an OAuth login.
//! - `tracing`: log lines for server events.
//!
//! This crate deliberately has no server side, which is in another crate. No signature here
//! contains a type of the MCP protocol library.
//!
//! # Where to go next
//! - [`Servers`] starts servers and is the source of their tools; [`Server`] is one of them, with
//!   its resources and prompts.
//! - [`ServerConfig`] has the settings of a server, and [`Config`] reads them from a file.
//! - [`Sampler`] and [`Elicitor`] answer the requests of servers to a model or to a person.
//! - [`blocking`] offers the same to programs that are not async.
//! - `docs/mcp.md` describes the file format, the transports and logins in full.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod blocking;

#[cfg(feature = "oauth")]
mod auth;
mod client;
mod config;
mod context;
mod convert;
mod error;
mod event;
mod helpers;
mod host;
mod items;
mod link;
mod naming;
mod redact;
mod server;
mod servers;
mod text;
mod tool;

#[cfg(feature = "oauth")]
pub use auth::{
    Browser, EnterpriseLogin, FileTokenStore, IdentityTokenSource, LoopbackBrowser,
    MemoryTokenStore, OAuth, TokenFile, TokenLock, TokenStore,
};
pub use config::{Config, ConfigProblem, InheritedEnvironment, ServerConfig, Trust};
pub use context::ResourceContext;
pub use error::{Error, ErrorKind, Result, ServerExit};
pub use event::{ServerEvent, ServerEventKind};
pub use host::{
    AcceptDefaults, Decline, ElicitForm, ElicitReply, ElicitRequest, ElicitUrl, Elicitor,
    ModelSampler, Refusal, RefusalKind, SampleReply, SampleRequest, Sampler,
};
pub use items::{Prompt, PromptArgument, PromptReply, Resource, ResourceContent, ResourceTemplate};
pub use server::{Server, ServerState, ServerStatus};
pub use servers::{ServerEvents, ServerSelection, Servers, ServersBuilder, WaitFor};
