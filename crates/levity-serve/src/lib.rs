//! levity's agents offered to others.
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
//! - [`Runs`] works on goals for others by anything [`Runnable`](levity_runtime::Runnable): an
//!   agent, a swarm, a team. A run goes on when whoever asked for it has left.
//! - A [`Listener`] lets in only those who pass its [`AccessControl`]: on the loopback by default,
//!   with a [`Token`], from pages of this machine.
//! - [`bridge`] is a workspace and an agent that other programs' agents work with.
//! - [`http`] offers runs to web pages and other programs.
//! - Nobody who reads slowly, or not at all, holds up a run.
//!
//! # Features
//! - `swarm`, `dag`: swarms and teams can be served.
//! - `sqlite`: what is remembered can be searched.

mod access;
mod access_log;
mod body;
pub mod bridge;
mod error;
mod feed;
mod gate;
pub mod http;
mod library;
mod listen;
pub mod mcp;
mod offer;
mod proof;
mod quota;
mod runner;
mod runs;
mod shown;
mod token;

pub use access::{Caller, TokenInfo, TokenScope, Tokens};
pub use access_log::{AccessLog, AccessRecord};
pub use error::{Error, ErrorKind, Result};
pub use feed::{Item, Reader};
pub use gate::AccessControl;
#[cfg(feature = "sqlite")]
pub use library::RecallLibrary;
pub use library::{Document, Hit, Library, LibraryError, WorkspaceLibrary};
pub use listen::{ConnectionLimits, ListenNotice, Listener, check_exposure};
pub use offer::{AgentServer, ClientAgent, TextPrompts};
pub use runner::{MessageSink, RunSetup, Runner, Started};
pub use runs::{LiveRun, NewRun, RunOutcome, RunStatus, Runs};
pub use token::Token;
