//! JSON-RPC 2.0 for levity's own protocols: the MCP client, the MCP server and the bridge.
//!
//! ```
//! use levity_rpc::{CallError, RpcMessage, Peer};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (peer, mut outbox) = Peer::new("$/cancelRequest");
//! let params = json!({"a": 1});
//! let call = peer.call("add", &params);
//! let connection = async {
//! // A connection sends the messages of the outbox, and passes on what it receives.
//!     let sent = outbox.next().await.unwrap_or_default();
//!     assert!(matches!(RpcMessage::parse(&sent), Ok(RpcMessage::Request { .. })));
//!     peer.receive(r#"{"jsonrpc": "2.0", "id": 1, "result": 2}"#);
//! };
//! let (answer, ()) = tokio::join!(call, connection);
//! assert_eq!(answer, Ok(json!(2)));
//!
//! peer.close();
//! assert_eq!(peer.call("add", &params).await, Err(CallError::Unsent));
//! # }
//! ```
//!
//! | part | purpose | used by |
//! |---|---|---|
//! | [`RpcMessage`] | reads and writes messages | bridge |
//! | [`LineBuffer`], [`LineWriter`] | one whole message per line | MCP client, MCP server |
//! | [`find_id`] | the id of a message that cannot be read as a whole | MCP client, MCP server |
//! | [`PendingCalls`] | calls that wait for an answer | MCP client, [`Peer`] |
//! | [`Peer`], [`InflightRequests`] | calls to and from the peer, with cancellation | bridge |
//! | [`mcp`] | the items of rmcp that levity uses | MCP client, MCP server |
//!
//! Lines are read and written within a limit.
//!
//! # Features
//! - `http-client`: rmcp's worker for streamable HTTP.
//! - `oauth`: rmcp's discovery for logins.
//! - `server`: rmcp's server side.
//!
//! This crate deliberately has no sockets, processes or HTTP, which belong to the crates that use
//! it. It has no clocks, because a caller stops waiting by dropping the call.
//!
//! # Where to go next
//! - Start with [`Peer`] to call another process of levity, and with [`LineWriter`] and
//!   [`LineBuffer`] to speak a protocol with one message per line.
//! - The crate `levity-mcp` is the MCP client, and `docs/bridge.md` describes the bridge.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod edge;
mod inflight;
mod line;
pub mod mcp;
mod message;
mod peer;
mod pending;
mod pipe;
mod writer;

pub use edge::{EDGE, find_id};
pub use inflight::{InflightRequest, InflightRequests};
pub use line::{Line, LineBuffer};
pub use message::{MalformedMessage, RpcMessage};
pub use peer::{CallError, Peer, PeerOutbox};
pub use pending::{PendingCall, PendingCalls};
pub use writer::{LineWriter, WriterEnd};
