//! Memory stores on real files and with real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "a child process reports its progress")]

mod children;
mod concurrency;
mod conversations;
mod files;
mod key_value;
mod kill;
#[cfg(feature = "sqlite")]
mod recall;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stores;
mod world;
