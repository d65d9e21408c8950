//! One binary for the tests of the built-in tools.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod folder;
#[cfg(all(feature = "commands", unix))]
mod manifest;
