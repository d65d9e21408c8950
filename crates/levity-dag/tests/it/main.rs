//! Graphs as a stranger would use them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod files;
