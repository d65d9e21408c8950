//! Views and session files through the public API.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "skipped tests are reported")]

mod networkx;
mod session;
mod stream;
mod support;
mod view;
