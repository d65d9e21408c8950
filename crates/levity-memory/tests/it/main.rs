//! Memory over real files and real processes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod children;
mod conversations;
mod crowd;
mod files;
mod killed;
#[cfg(feature = "sqlite")]
mod recall;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stores;
mod world;
