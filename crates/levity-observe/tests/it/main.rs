//! Views and session files as a stranger would use them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "what is skipped is said aloud")]

mod networkx;
mod session;
mod stream;
mod support;
mod view;
