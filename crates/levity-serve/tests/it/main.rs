//! Whole stories of this crate.

#[allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and its clients are programs of their own"
)]
#[cfg(unix)]
mod bridge;
mod http;
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking, and says what it leaves out"
)]
mod mcp;
mod offer;
mod runs;
