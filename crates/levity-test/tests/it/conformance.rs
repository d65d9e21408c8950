//! Each suite passes what is right, and refuses each flaw by the promise that it breaks.

mod approver;
mod context_source;
mod embedder;
mod executor;
mod journal;
mod machine;
mod memory_store;
mod model;
mod tool;
mod tool_source;
mod world;

pub(crate) use journal::Keeping;
