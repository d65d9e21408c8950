//! One binary for all tests of the crate.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr
)]

#[cfg(all(feature = "commands", target_os = "linux"))]
mod command;
#[cfg(all(feature = "commands", unix))]
mod executable;
#[cfg(all(unix, feature = "files"))]
mod files;
#[cfg(feature = "profile")]
mod profile;
#[cfg(feature = "web")]
mod web;
