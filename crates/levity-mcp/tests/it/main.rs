//! Servers of every kind, and what becomes of them.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and a server of a test speaks by printing"
)]

mod asked;
#[cfg(feature = "oauth")]
mod auth;
mod blocking;
#[cfg(target_os = "linux")]
mod chaos;
mod fixture;
#[cfg(feature = "http")]
mod http;
mod peers;
#[cfg(feature = "oauth")]
mod secrets;
mod servers;
