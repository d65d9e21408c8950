//! Logs from their readers' point of view: real files, real processes and a real collector.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod canary;
mod cleanup;
mod files;
mod flood;
#[cfg(feature = "otlp")]
mod otlp;
mod spans;
mod support;
