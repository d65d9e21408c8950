//! One binary for all tests of the crate.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr
)]

#[cfg(feature = "net")]
mod certificates;
#[cfg(all(feature = "commands", target_os = "linux"))]
mod commands;
#[cfg(unix)]
mod denied;
#[cfg(unix)]
mod escape;
#[cfg(feature = "net")]
mod fetch;
#[cfg(feature = "net")]
mod loopback;
#[cfg(all(feature = "commands", target_os = "linux"))]
mod planted;
#[cfg(unix)]
mod shell;
#[cfg(feature = "net")]
mod ssrf;
#[cfg(unix)]
mod workspace;
