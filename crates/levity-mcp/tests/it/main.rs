//! Integration tests with servers of every kind and their life cycles.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and a test server communicates by printing"
)]

#[cfg(feature = "oauth")]
mod auth;
mod blocking;
#[cfg(target_os = "linux")]
mod chaos;
mod fixture;
#[cfg(feature = "http")]
mod http;
mod real_servers;
#[cfg(feature = "oauth")]
mod secrets;
mod server_requests;
mod servers;
