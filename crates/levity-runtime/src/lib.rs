//! Drives the machines of levity.
//!
//! A [`Machine`](levity_core::Machine) decides; the [`Runtime`] performs its effects through an
//! [`Executor`](levity_core::Executor).
//!
//! - The start of an effect is journaled before it starts, and its outcome before anyone sees it.
//! - Time and ids come from a [`World`](levity_core::World), limits from
//!   [`Limits`](levity_core::Limits).
//! - A run is one task; dropping its handle, or its future, stops it and everything it owns.
//! - A [`FileJournal`] stores runs on disk, so that a run resumes where its process was killed.
//! - [`export`] and [`import`] move runs between journals, and [`remove_ended_before`] drops old
//!   ones.
//! - `SqliteJournal` stores thousands of runs in one file that other processes can read.
//! - [`replay`] folds a journal without performing anything and returns the same events.
//!
//! ```
//! use levity_runtime::{MemoryJournal, Runtime, SystemWorld};
//!
//! let runtime = Runtime::new().with_journal(MemoryJournal::new()).with_world(SystemWorld);
//! assert!(runtime.journal().keeps());
//! ```
//!
//! Effects that a machine requests together are performed concurrently, except tools that run
//! alone. Such a tool waits for the calls requested before it, and later calls wait for it, even
//! while a person decides on its approval.
//!
//! # Features
//! - `sqlite`: `SqliteJournal`.
//! - `tracing`: a span for each run, model call and tool call, by OpenTelemetry's names.
//!
//! # A run, step by step
//! 1. [`Run`] (or [`MachineRun`] for a bare machine) opens the run in the journal and takes its
//!    lease.
//! 2. The machine requests effects. The runtime asks the executor to prepare each one: its class,
//!    its permit, its cost.
//! 3. The runtime appends the start of the effect to the journal, performs it and appends the
//!    outcome.
//! 4. The outcome goes to the machine, and its events to [`Events`], watchers and observers.
//! 5. The last record is the status of the run. A run that ends early stays in the journal and can
//!    be resumed.
//!
//! # Where to go next
//! - [`Runnable`] turns your own machine into something that [`Run`] can start, resume and fork.
//! - [`Control`] and [`RunHandle`] pause, cancel and answer a run of this process;
//!   [`Runtime::send_request`] reaches one of another process.
//! - [`RunReport`] and [`RunComparison`] summarize stored runs.
//! - `docs/journal.md` describes the format of the journals.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod archive;
mod asked_calls;
mod checksum;
mod control;
mod costs;
mod deliver;
mod drive;
mod events;
mod files;
mod fork_preview;
mod handle;
mod inspect;
mod journal;
mod observe;
mod report;
mod run;
mod runnable;
mod runtime;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stored_run;
#[cfg(feature = "tracing")]
mod trace;
#[cfg(not(feature = "tracing"))]
#[path = "trace_disabled.rs"]
mod trace;

pub use archive::{export, import, remove_ended_before};
pub use control::Control;
pub use costs::{CostGroup, CostReport};
pub use deliver::Delivery;
pub use events::{Events, Watcher};
pub use files::FileJournal;
pub use fork_preview::{ForkPreview, preview_fork};
pub use handle::{ReplyText, RunHandle};
pub use inspect::{check_edit, pending_asks, replay_run, replay_with_children};
pub use journal::{MemoryJournal, NoJournal};
pub use levity_core::Durability;
pub use levity_driver::{Replay, changes, check_setup, replay};
pub use levity_system::SystemWorld;
pub use observe::{Observe, Observer};
pub use report::{ReportStep, RunComparison, RunReport};
pub use run::Run;
pub use runnable::{
    Conversational, End, LeaseFuture, LeasedMachine, MachineStart, Runnable, Typed, TypedOutput,
};
pub use runtime::{EndedMachine, MachineRun, MachineRunHandle, Runtime, StoppedMachine};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteJournal;

/// Internal items for levity's other crates; do not use them directly.
#[doc(hidden)]
pub mod __private {
    pub use crate::asked_calls::RequestedCalls;
}
