//! Drives levity's machines.
//!
//! A [`Machine`](levity_core::Machine) decides; the [`Runtime`] here performs what it wants through
//! an [`Executor`](levity_core::Executor).
//!
//! - What begins is journaled before it begins, and what came of it before anybody sees it.
//! - Time and ids come from a [`World`](levity_core::World), limits from
//!   [`Limits`](levity_core::Limits).
//! - A run is one task; dropping its handle, or its future, stops it and all it owns.
//! - A [`FileJournal`] keeps runs on disk, and a run goes on from where its process was killed.
//! - [`export`] and [`import`] move runs between journals, and [`remove_ended_before`] drops old
//!   ones.
//! - `SqliteJournal` keeps thousands of them in one file that other processes can look into.
//! - [`replay`] folds a journal without performing anything and tells the same events.
//!
//! ```
//! use levity_runtime::{MemoryJournal, Runtime, SystemWorld};
//!
//! let runtime = Runtime::new().with_journal(MemoryJournal::new()).with_world(SystemWorld);
//! assert!(runtime.journal().keeps());
//! ```
//!
//! What a machine wants at once is performed at once, but for tools that run alone: such a tool
//! waits for those asked for before it, and those asked for after it wait for it, also while a
//! person decides whether it may run.
//!
//! # Features
//! - `sqlite`: `SqliteJournal`.
//! - `tracing`: a span for each run, call of a model and call of a tool, by OpenTelemetry's names.

mod archive;
mod asked;
mod checksum;
mod control;
mod drive;
mod events;
mod files;
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
mod stored;
mod tell;
#[cfg(feature = "tracing")]
mod trace;
#[cfg(not(feature = "tracing"))]
#[path = "untraced.rs"]
mod trace;

pub use archive::{export, import, remove_ended_before};
pub use control::Control;
pub use events::{Events, Watcher};
pub use files::FileJournal;
pub use handle::{ReplyText, RunHandle};
pub use inspect::{asks, replay_run};
pub use journal::{MemoryJournal, NoJournal};
pub use levity_core::Durability;
pub use levity_driver::{Replay, changes, check_setup, replay};
pub use levity_system::SystemWorld;
pub use observe::{Observe, Observer};
pub use report::{ReportStep, RunComparison, RunReport};
pub use run::Run;
pub use runnable::{
    Beginning, Conversational, End, LeaseFuture, Made, Runnable, Typed, TypedOutput,
};
pub use runtime::{EndedMachine, MachineRun, MachineRunHandle, Runtime, StoppedMachine};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteJournal;
pub use tell::Delivery;

/// What levity's other crates need; not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use crate::asked::AskedCalls;
}
