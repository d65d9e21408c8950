//! An MCP server: tools, resources and prompts for the agents of other programs.
//!
//! ```
//! use levity_core::ToolOutput;
//! use levity_serve::mcp::McpServer;
//! use levity_test::RecordingTool;
//! use tokio::io::AsyncReadExt as _;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hello = RecordingTool::new("hello", |_| Ok(ToolOutput::text("Good morning")));
//! let server = McpServer::builder("greeter", "1.0").tool(hello).build()?;
//!
//! // A program serves its standard input and output with `server.stdio()`.
//! // Any pair of streams works:
//! let asked = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello"}}"#;
//! let (mut there, here) = tokio::io::duplex(4096);
//! server.serve(asked.as_bytes(), here).await?;
//! let mut answered = String::new();
//! there.read_to_string(&mut answered).await?;
//! assert!(answered.contains("Good morning"));
//! # Ok(())
//! # }
//! ```
//!
//! - It supports every version of the protocol, 2024-11-05 to 2026-07-28, over stdio and streamable
//!   HTTP.
//! - It serves any [`Tool`](levity_core::Tool): it validates the arguments, limits the time and
//!   catches panics.
//! - A [`Handler`] can also talk to its caller: [ask](Client::elicit) the user,
//!   [sample](Client::sample) the client's model, report progress. The server translates this to
//!   the client's version of the protocol.
//! - A handler's call can continue as a task, which its client polls; see [`TaskSupport`].
//! - The server never trusts client input: every queue, table and message has a [limit](McpLimits),
//!   and each error names the problem.
//!
//! Two things are deliberately absent: types of the protocol's library, which appear in no
//! signature here, and listening and tokens, which this crate handles for all its services.
//!
//! # Choose the parts
//!
//! | part | trait or type | clients see |
//! |---|---|---|
//! | a plain tool | [`Tool`](levity_core::Tool) | `tools/list`, `tools/call` |
//! | a tool that asks its user or samples | [`Handler`] | the same |
//! | documents by URI | [`Resources`] | `resources/list`, `resources/read` |
//! | templates for users | [`Prompts`] | `prompts/list`, `prompts/get` |
//! | suggestions while typing | [`Completer`] | `completion/complete` |
//!
//! Serve the result with [`McpServer::stdio`], [`McpServer::serve`] or [`McpServer::listen`]. To
//! serve a whole agent, use [`AgentServer`](crate::AgentServer), which is built from these parts.
//!
//! # Scopes over HTTP
//!
//! A token with the scope `read` lists everything and calls read-only tools; other tools need
//! `run`, and approvals need `approve`. A client on stdio started the program, so it is the owner.

mod ask;
mod ask_wire;
mod builder;
mod changes;
mod client;
mod client_channel;
mod error;
mod event_stream;
mod handler;
mod http;
mod limits;
mod lines;
mod link;
mod lists;
mod model;
mod paused_calls;
mod portable;
mod providers;
mod reply;
mod requests;
mod seal;
mod server;
mod session;
mod sessions;
mod tasks;
mod wire;
mod work;

pub use ask::{AskError, AskErrorKind, Root};
pub use builder::McpServerBuilder;
pub use changes::Changes;
pub use client::{Client, ClientAbilities, ClientInfo, ClientLogLevel};
pub use error::RequestError;
pub use handler::{Handler, HandlerCall};
pub use limits::McpLimits;
pub use model::ClientModel;
pub use providers::{
    Completer, Completion, CompletionRequest, Page, PromptRequest, Prompts, ResourceRequest,
    Resources,
};
pub use reply::{Block, HandlerReply, PromptReply};
pub use server::McpServer;
pub use tasks::TaskSupport;

#[doc(no_inline)]
pub use crate::Error;
pub use levity_mcp::{
    ElicitForm, ElicitReply, ElicitUrl, Prompt, PromptArgument, Resource, ResourceContent,
    ResourceTemplate, SampleReply, SampleRequest,
};
