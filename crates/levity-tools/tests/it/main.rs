//! One binary for the tests of the built-in tools.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(all(target_os = "linux", feature = "commands"))]
mod command;
