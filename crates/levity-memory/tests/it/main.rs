//! Memory over real files and real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::print_stdout,
    reason = "a child process says how far it has come"
)]

mod children;
mod conversations;
mod crowd;
mod files;
mod key_value;
mod killed;
#[cfg(feature = "sqlite")]
mod recall;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stores;
mod world;
