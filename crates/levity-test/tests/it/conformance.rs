//! Each suite accepts a correct implementation, and rejects each flaw with the broken promise.

mod approver;
mod context_source;
mod embedder;
mod executor;
mod journal;
mod machine;
mod memory_store;
mod model;
mod reranker;
mod tool;
mod tool_source;
mod world;

pub(crate) use journal::FlawedJournal;
