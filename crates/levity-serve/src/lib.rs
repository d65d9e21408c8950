//! Serves levity's agents to other programs: MCP server, bridge and HTTP API.
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
//! # Features
//! - `dag`: serves the session files of plans.
//! - `sqlite`: makes remembered facts searchable.

mod access;
mod access_control;
mod access_log;
mod body;
pub mod bridge;
mod displayed_args;
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
pub use error::{Error, ErrorKind, Result};
pub use feed::{EventReader, FeedItem};
#[cfg(feature = "sqlite")]
pub use library::RecallLibrary;
pub use library::{Document, Hit, Library, LibraryError, WorkspaceLibrary};
pub use listen::{ConnectionLimits, ListenNotice, Listener, check_exposure};
pub use offer::{AgentServer, ClientAgent, TextPrompts};
pub use runner::{MessageSink, RunSetup, Runner, StartedRun};
pub use runs::{LiveRun, NewRun, RunOutcome, RunStatus, Runs};
pub use token::Token;
