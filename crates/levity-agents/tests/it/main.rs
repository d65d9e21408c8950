//! Tests of the ready-made agents through the public API.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod agents;
mod catalogue;
mod ready;
