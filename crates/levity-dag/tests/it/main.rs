//! Graphs as a stranger would use them.

mod agents;
mod flow;
mod replan;
mod support;
mod catalogue;
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod files;
