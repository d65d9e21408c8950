//! A workspace and an agent for the agents of other programs.
//!
//! A [`BridgeHost`] holds a workspace and a *commander*, any levity agent. Other programs connect
//! over a WebSocket on this machine, read and write files, and dispatch whole tasks to the
//! commander. The commander answers through the files that it changes; a signal file appears when a
//! task has ended. [`BridgeTools`] offers the same as tools for an agent on the other side, and
//! `docs/bridge.md` explains how MCP clients use them.
//!
//! The protocol is JSON-RPC 2.0, one message per text frame:
//!
//! | method | effect |
//! |---|---|
//! | `fs/read`, `fs/write`, `fs/list` | files of the workspace |
//! | `fs/wait` | waits until a file exists |
//! | `agent/dispatch` | starts a task and returns its id |
//! | `agent/status`, `agent/list`, `agent/cancel` | status of tasks |
//! | `agent/subscribe` | streams a task's events to the client, as `agent/event` |
//! | `host/info`, `ping` | information about the host |
//!
//! Every error has an [`ErrorKind`] in its `data.kind`, and a message that says what to do.
//!
//! # When to use it
//!
//! Use the bridge if a program has its own agent, such as an editor's assistant, and hands whole
//! tasks to yours. Both work on the same folder. Use the [HTTP API](crate::http) for web pages and
//! for clients that need no files.
//!
//! # Trust
//!
//! The host proves that it has the token before a client sends anything, and the token itself never
//! travels; see `docs/bridge.md`. A client with the token reads and writes every file that the
//! workspace allows, so a token is as powerful as the folder. Paths, prompts and parameters are
//! untrusted: the host checks each against the workspace and its [limits](HostLimits).
//!
//! # After a crash
//!
//! A dispatched task is in the journal of the commander before the client gets its id. A restarted
//! host resumes it and writes its signal file exactly once, if the journal and the [task
//! records](BridgeHostBuilder::tasks) are stored on disk.

mod address;
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
mod task_store;
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
