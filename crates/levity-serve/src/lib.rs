//! Serves levity's agents to other programs: MCP server, bridge and HTTP API.
//!
//! Use this crate to run goals for clients that come and go. A run lives in its journal and in
//! [`Runs`], not in a connection, so a client can disconnect and find its run again by its id.
//!
//! ```
//! use levity_loop::Agent;
//! use levity_serve::{NewRun, Runs};
//! use levity_test::ScriptedModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder(ScriptedModel::new().reply("Paris.")).build()?;
//! let runs = Runs::new(agent);
//! let run = runs.start(NewRun::new("What is the capital of France?"))?;
//! assert_eq!(run.outcome().await.ending().unwrap().text, "Paris.");
//! # Ok(())
//! # }
//! ```
//!
//! - [`Runs`] runs goals for clients with anything [`Runnable`](levity_runtime::Runnable): an
//!   agent, a swarm, a team. A run continues after the client that started it disconnects.
//! - A [`Listener`] admits only clients that pass its [`AccessControl`]. By default it listens on
//!   the loopback, requires a [`Token`] and accepts only pages of this machine.
//! - [`bridge`] offers a workspace and an agent to the agents of other programs.
//! - [`http`] offers runs to web pages and other programs.
//! - A client that reads slowly, or not at all, never delays a run.
//!
//! # Choose a service
//!
//! | you want | use | clients speak |
//! |---|---|---|
//! | a program that starts and follows runs | [`http::HttpApi`] | HTTP with an event stream |
//! | your agent as a tool of another assistant | [`AgentServer`] | MCP |
//! | your own tools, resources and prompts for assistants | [`mcp::McpServer`] | MCP |
//! | files and tasks for an agent elsewhere | [`bridge::BridgeHost`] | JSON-RPC, WebSocket |
//!
//! # Tenants
//!
//! A server with [`Tokens`] serves several users. The ids of a named token's runs and conversations
//! begin with its name, and other names cannot reach them:
//!
//! ```
//! use levity_serve::{TokenScope, Tokens};
//!
//! let mut tokens = Tokens::new();
//! let ci = tokens.add("acme.ci", [TokenScope::Run])?;
//! let caller = tokens.find(ci.reveal()).unwrap();
//! assert!(caller.has_scope(TokenScope::Read) && !caller.has_scope(TokenScope::Approve));
//! # Ok::<(), levity_serve::Error>(())
//! ```
//!
//! Each limit on concurrent work is shared: one tenant gets a quarter of it by default; see
//! [`Runs::token_share`]. No tenant can use up the capacity of the others.
//!
//! # Untrusted input
//!
//! Everything that arrives from a client is untrusted: ids, cursors, paths, bodies and answers. The
//! services limit the size, number and duration of each, and their errors name the problem and the
//! next step. Error messages contain no token and no prompt.
//!
//! # Features
//! - `dag`: serves the session files of plans.
//! - `docs`: offers an index of documents as an MCP server, with `DocumentServer`.
//! - `sqlite`: makes remembered facts searchable.
//!
//! # Next steps
//! - Bind a [`Listener`], and read its [`ConnectionLimits`].
//! - Call [`Runs::resume_all`] when your server starts, so that interrupted runs continue.
//! - Implement [`Library`] to make your own documents searchable.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod access_control;
mod access_log;
mod body;
pub mod bridge;
mod displayed_args;
#[cfg(feature = "docs")]
mod documents;
mod error;
mod feed;
pub mod http;
mod library;
mod listen;
pub mod mcp;
mod offer;
mod proof;
mod quota;
mod runner;
mod runs;
mod token;

pub use access::{Caller, TokenInfo, TokenScope, Tokens};
pub use access_control::AccessControl;
pub use access_log::{AccessLog, AccessRecord};
#[cfg(feature = "docs")]
pub use documents::DocumentServer;
pub use error::{Error, ErrorKind, Result};
pub use feed::{EventReader, FeedItem};
#[cfg(feature = "sqlite")]
pub use library::RecallLibrary;
pub use library::{Document, Hit, Library, LibraryError, WorkspaceLibrary};
pub use listen::{ConnectionLimits, ListenNotice, Listener, check_exposure};
pub use offer::{AgentServer, ClientAgent, TextPrompts};
pub use runner::{ForkSetup, MessageSink, OfferedModel, RunSetup, Runner, StartedRun};
pub use runs::{LiveRun, NewFork, NewRun, RunOutcome, RunStatus, Runs};
pub use token::Token;
