//! The runtime on its own, with machines and executors made for the purpose.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[cfg(feature = "sqlite")]
mod all_journals;
mod archive;
mod driving;
mod events;
mod files;
mod preparing;
mod snapshots;
#[cfg(feature = "sqlite")]
mod sqlite;
mod suites;
