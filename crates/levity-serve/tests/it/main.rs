//! Whole stories of this crate.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking, and says what it leaves out"
)]

#[allow(clippy::disallowed_methods, reason = "its clients are programs of their own")]
#[cfg(unix)]
mod bridge;
mod http;
mod mcp;
mod offer;
mod runs;
