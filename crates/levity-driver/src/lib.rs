//! The pure half of levity's runtime: takes what happened in a run and says what to do next.
//!
//! A [`RunDriver`] has the rules of a run: the order of calls, admission, approvals, limits, reserved budgets, and what to do about
//! effects that a dead process has begun. It has no task, clock, executor or journal, so any engine can host it: tokio, a durable
//! workflow engine, or a test that chooses every interleaving.
//!
//! - Records in, [`Action`]s out; the same records give the same state, events and actions.
//! - Nothing blocks. A [`Meter`] locks for the time of an addition.
//! - [`replay`] folds records without a host.
//!
//! Use `levity_runtime::Runtime` to run agents; use this crate to write another runtime.

mod budget;
mod driver;
mod fingerprint;
mod fork;
mod meter;
mod replay;
mod snapshot;
mod state;

pub use budget::tally;
pub use driver::{Action, DriverHost, DriverSettings, EffectResult, EffectStart, MAX_SAID, RunDriver};
pub use fork::{Fork, cut};
pub use meter::Meter;
pub use replay::{Replay, changes, check_setup, opened, replay, restore_from, setup_of};
pub use snapshot::RunSnapshot;
