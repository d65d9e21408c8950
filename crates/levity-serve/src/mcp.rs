//! An MCP server: tools, resources and prompts that other programs' agents use.
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
//! // A program serves its standard input and output by `server.stdio()`. Any pair of streams will do:
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
//! - Every version of the protocol that there is, 2024-11-05 to 2026-07-28, over stdio and
//!   streamable HTTP.
//! - Any [`Tool`](levity_core::Tool) is served: its arguments are checked, its time is limited, its
//!   panics are caught.
//! - A [`Handler`] also talks to who calls it: it [asks](Client::elicit) the person there,
//!   [samples](Client::sample) their model, tells how far it is. How that goes over the wire in
//!   which version is no concern of its.
//! - A handler's call can go on as a task, which its client polls; see [`TaskSupport`].
//! - What a client sends is never trusted: every queue, table and message has a [limit](Limits),
//!   and the answer to what is wrong says what is wrong.
//!
//! What is deliberately absent: types of the protocol's library, which appear in no signature here;
//! listening on a port and tokens, which are this crate's for all its services.

mod answer;
mod ask;
mod builder;
mod changes;
mod client;
mod desk;
mod drive;
mod fault;
mod http;
mod limits;
mod lines;
mod link;
mod lists;
mod model;
mod offer;
mod parked;
mod portable;
mod provide;
mod reply;
mod requests;
mod seal;
mod server;
mod session;
mod sessions;
mod strand;
mod tasks;
mod wire;

pub use ask::{AskError, AskErrorKind, Root};
pub use builder::McpServerBuilder;
pub use changes::Changes;
pub use client::{Client, ClientAbilities, ClientInfo, ClientLogLevel};
pub use fault::RequestError;
pub use limits::McpLimits;
pub use model::ClientModel;
pub use offer::{Handler, HandlerCall};
pub use provide::{
    Completer, Completing, Completion, Page, PromptAsk, Prompts, ResourceAsk, Resources,
};
pub use reply::{Block, HandlerReply, PromptReply};
pub use server::McpServer;
pub use tasks::TaskSupport;

#[doc(no_inline)]
pub use crate::Error;
pub use levity_mcp::{
    ElicitForm, ElicitReply, ElicitUrl, Prompt, PromptArgument, Resource, ResourceContent,
    ResourceTemplate, SampleAsk, SampleReply,
};
