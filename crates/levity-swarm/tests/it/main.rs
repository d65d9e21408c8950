//! The crate as a whole, by subject.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bus;
mod lineage;
