//! The I/O-free half of levity's runtime: it receives the events of a run and decides what to do
//! next.
//!
//! A [`RunDriver`] implements the rules of a run: the order of calls, admission, approvals, limits,
//! reserved budgets, and the recovery of effects that a dead process began. It has no task, clock,
//! executor or journal, so any engine can host it: tokio, a durable workflow engine, or a test that
//! controls every interleaving.
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use levity_core::{
//! #     Effect, EffectId, Ending, Input, Limits, Machine, MachineKind, MachineOutput, Outcome,
//! #     Prepared, RunId, Status, Timestamp, Wait,
//! # };
//! use levity_driver::{Action, DriverHost, DriverSettings, EffectResult, Meter, RunDriver};
//!
//! # #[derive(Default)]
//! # struct Nap(Option<Ending>);
//! # impl Machine for Nap {
//! #     fn kind(&self) -> MachineKind { MachineKind::new("nap", 1) }
//! #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
//! #     fn apply(&mut self, input: Input, step: &mut MachineOutput) {
//! #         match input {
//! #             Input::Begin { .. } => {
//! #                 let minute = Wait::new(Duration::from_secs(60));
//! #                 step.request(EffectId::new(0), Effect::Wait(minute))
//! #             }
//! #             _ => self.0 = Some(Ending::new(Status::Complete)),
//! #         }
//! #     }
//! #     fn ending(&self) -> Option<&Ending> { self.0.as_ref() }
//! # }
//! struct Host;
//! impl DriverHost for Host {
//!     fn prepare(&mut self, _: EffectId, _: &Effect) -> Option<Prepared> {
//!         Some(Prepared::default())
//!     }
//! }
//!
//! let settings = DriverSettings::new(Arc::new(Meter::new(Limits::new(), None)));
//! let mut driver = RunDriver::new(RunId::new("r"), Nap::default(), settings);
//! let (mut now, mut journal) = (Timestamp::from_millis(0), Vec::new());
//! driver.take_over();
//! driver.open(now, || (Vec::new(), false))?;
//! while driver.ending().is_none() {
//!     let actions = driver.advance(now, 256, &mut Host)?;
//!     journal.extend_from_slice(driver.records()); // written before anything begins
//!     driver.written();
//!     for action in actions {
//!         let Action::Perform(id, Effect::Wait(wait)) = action else { continue };
//!         now = now.after(wait.time);
//!         driver.finished(now, vec![(id, EffectResult::Finished(Outcome::Woken, None))]);
//!     }
//! }
//! driver.close(now)?;
//! journal.extend_from_slice(driver.records());
//! assert_eq!(journal.len(), 4); // opened, started, finished, ended
//! # Ok::<(), levity_core::RuntimeError>(())
//! ```
//!
//! - Records in, [`Action`]s out; the same records give the same state, events and actions.
//! - No method blocks. A [`Meter`] holds its lock only for an addition.
//! - [`replay`] folds records without a host.
//!
//! Use `levity_runtime::Runtime` to run agents; use this crate to write another runtime.
//!
//! # Features
//! The crate has no features and depends on `levity-core` and serde alone.
//!
//! # Where to go next
//! - [`RunDriver`] lists the duties of a host.
//! - [`DriverHost`] is the one trait that a host implements.
//! - [`replay`], [`cut`] and [`tally`] work on stored records without a driver.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod budget;
mod driver;
mod fingerprint;
mod fork;
mod meter;
mod replay;
mod snapshot;
mod state;

pub use budget::tally;
pub use driver::{
    Action, DriverHost, DriverSettings, EffectResult, EffectStart, MAX_PENDING_MESSAGES, RunDriver,
};
pub use fork::{Fork, cut};
pub use meter::Meter;
pub use replay::{Replay, changes, check_setup, opened, replay, restore_from, setup_of};
pub use snapshot::RunSnapshot;
