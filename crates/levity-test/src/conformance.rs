//! Conformance suites, one per trait, that check an implementation against its contract.
//!
//! A suite is an `async fn` that runs on any executor. Call it from a test: it panics at the first
//! broken promise, with a message that begins with the trait and names the promise:
//!
//! ```
//! use levity_test::{ScriptedModel, conformance};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance::model(|| ScriptedModel::new().reply("Good morning!")).await;
//! # }
//! ```
//!
//! Most suites take a function that creates the tested value, since one check must not affect the
//! next. Promises that cannot be observed from outside are not checked; each suite lists them.

mod approver;
mod check;
mod context_source;
mod embedder;
mod executor;
mod generate;
mod journal;
mod machine;
mod memory_store;
mod model;
mod reranker;
#[cfg(feature = "runtime")]
mod runnable;
mod runs;
mod samples;
mod tool;
mod tool_source;
mod vector_store;
mod world;

pub(crate) use check::panic_message;

pub use approver::approver;
pub use context_source::{context_source, context_source_for};
pub use embedder::embedder;
pub use executor::executor;
pub use journal::journal;
pub use machine::{machine, machine_damaged, machine_restored, machine_restored_along};
pub use memory_store::memory_store;
pub use model::model;
pub use reranker::reranker;
#[cfg(feature = "runtime")]
pub use runnable::{recorded, runnable};
pub use tool::tool;
pub use tool_source::tool_source;
pub use vector_store::vector_store;
pub use world::world;
