//! A workspace and an agent on one side, other programs' agents on the other.
//!
//! A [`BridgeHost`] holds a workspace and a *commander*, any levity agent. Others come in over a
//! WebSocket on this machine, read and write files, and dispatch whole tasks to the commander. What
//! it has to say is in the files that it changes; that a task has ended is seen by a signal file.
//! [`BridgeTools`] are the same as tools for an agent on the other side, and `docs/bridge.md` says
//! how MCP clients have them.
//!
//! The protocol is JSON-RPC 2.0, one message a text frame:
//!
//! | method | what it does |
//! |---|---|
//! | `fs/read`, `fs/write`, `fs/list` | files of the workspace |
//! | `fs/wait` | waits until a file is there |
//! | `agent/dispatch` | begins a task and returns its id |
//! | `agent/status`, `agent/list`, `agent/cancel` | how tasks are |
//! | `agent/subscribe` | has the client read a task's events, as `agent/event` |
//! | `host/info`, `ping` | who is there |
//!
//! Every refusal has an [`ErrorKind`] in its `data.kind`, and words that say what to do.

mod address;
mod book;
mod challenge;
mod client;
mod error;
mod files;
mod host;
mod limits;
mod link;
mod methods;
mod notice;
mod outbox;
mod session;
mod signal;
mod status;
mod tasks;
mod tools;
mod wait;
mod wire;

pub use client::{BridgeClient, Notifications};
pub use error::{Error, ErrorKind, Result};
pub use host::{BridgeHost, BridgeHostBuilder};
pub use limits::HostLimits;
pub use notice::Notice;
pub use tools::BridgeTools;
