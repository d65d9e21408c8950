//! Long-term recall: facts, tools, context, deletion, processes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a child says how far it is"
)]

use std::sync::Arc;

use levity_memory::{Recall, RecallResult, Scope};
use levity_test::ManualWorld;

mod context;
mod crash;
mod delete;
mod facts;
mod file;
mod meaning;
mod tools;

fn in_memory() -> Recall {
    Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(ManualWorld::new()))
}

fn open(path: &std::path::Path) -> Recall {
    Recall::open(path)
        .unwrap()
        .with_world(Arc::new(ManualWorld::new()))
}

fn user() -> Scope {
    Scope::user("u-17")
}

fn texts(found: &RecallResult) -> Vec<&str> {
    found.facts.iter().map(|fact| fact.text.as_str()).collect()
}
