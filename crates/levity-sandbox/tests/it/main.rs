//! One binary for all tests of the crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[cfg(all(feature = "commands", target_os = "linux"))]
mod commands;
#[cfg(unix)]
mod escape;
#[cfg(unix)]
mod shell;
#[cfg(unix)]
mod workspace;
