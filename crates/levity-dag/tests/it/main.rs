//! Graphs as a stranger would use them.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod agents;
mod catalogue;
mod files;
mod flow;
mod replan;
mod rounds;
mod support;

mod plans;
