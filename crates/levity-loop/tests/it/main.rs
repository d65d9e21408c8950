//! The loop on its own: the machine is fed outcomes and its effects are checked.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod blank_goals;
mod blocking_policy;
mod child_tasks;
mod conversations;
mod cut_replies;
mod endings;
mod guards;
mod long_results;
mod paused_turns;
mod random_outcomes;
mod restored;
mod run_values;
mod signals;
mod suites;
