//! Tests of the HTTP API through real connections.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod artifacts;
#[cfg(feature = "dag")]
mod child_runs;
mod client;
mod edits;
mod forks;
mod hostile;
mod lifecycle;
mod limits;
mod many_readers;
mod models;
mod page;
mod pending_commands;
mod request_heads;
mod stored;
mod stream;
mod support;
mod tenants;
mod tls;
pub(crate) mod token_shares;
mod tools;
mod views;
