//! Logs as their readers find them: real files, real processes, a real receiver.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod canary;
mod files;
mod flood;
#[cfg(feature = "otlp")]
mod otlp;
mod spans;
mod support;
mod sweep;
