//! MCP servers as tools: many servers, every transport, nothing that hangs.
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
//! assert_eq!(config.problems().len(), 1, "`bad` has no command; the other is good");
//!
//! // They start in the background. An agent takes `servers` for a source of tools, and need not wait.
//! let servers = Servers::builder().servers(config.into_servers()).start()?;
//! let status = servers.wait(WaitFor::All).await;
//! assert!(!status[0].state.is_ready(), "there is no such program, and it is tried again");
//! assert!(servers.tools().is_empty());
//! servers.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! - Servers start side by side and are started again when they end or hang; their tools work again
//!   with no restart of the agent.
//! - Every wait has a limit, and every error names the server, the cause and, where a process
//!   ended, its exit code and the end of its stderr.
//! - No process is left behind, however the host ends.
//! - Nothing that a server sends is lost, crossed or trusted: results are handed on as they were
//!   written, within bounds.
//! - Names of tools depend on the settings alone, and every provider takes them.
//!
//! # Features
//! - `http`: servers reached by streamable HTTP, and by the older HTTP with server-sent events.
//! - `oauth`: servers that ask for a login.
//!
//! What is deliberately absent: serving, which is another crate's; types of the protocol's library,
//! which appear in no signature here.

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
    Browser, Enterprise, FileTokens, Identity, Loopback, MemoryTokens, OAuth, TokenFile, TokenLock,
    TokenStore,
};
pub use config::{Config, ConfigProblem, InheritedEnvironment, ServerConfig, Trust};
pub use context::ResourceContext;
pub use error::{Error, ErrorKind, Result, ServerExit};
pub use event::{ServerEvent, ServerEventKind};
pub use host::{
    AcceptDefaults, Decline, ElicitAsk, ElicitForm, ElicitReply, ElicitUrl, Elicitor, ModelSampler,
    Refusal, RefusalKind, SampleAsk, SampleReply, Sampler,
};
pub use items::{Prompt, PromptArgument, PromptReply, Resource, ResourceContent, ResourceTemplate};
pub use server::{Server, ServerState, ServerStatus};
pub use servers::{ServerEvents, ServerSelection, Servers, ServersBuilder, WaitFor};
