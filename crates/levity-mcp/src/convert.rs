//! What servers say, in levity's words: tools, results, prompts, resources.
//!
//! Nothing here trusts a server: schemas and results of any shape and size give a value or an error
//! that names what is wrong, and what cannot be shown to a model is told in words, never dropped
//! without a trace.

mod content;
mod output;
mod prompt;
mod raw;
mod schema;
mod spec;
mod text;

pub(crate) use output::output;
pub(crate) use prompt::{message, resource};
pub(crate) use raw::tool;
pub(crate) use spec::{Tasks, spec};

#[cfg(test)]
mod peers;
