//! One binary for all tests of the crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod folder;
