//! The loop on its own: the machine is fed outcomes and its effects are checked.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod blank;
mod child_tasks;
mod cut;
mod endings;
mod given;
mod guards;
mod judging;
mod long;
mod paused;
mod random;
mod saved;
mod signals;
mod suites;
mod talk;
