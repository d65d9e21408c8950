//! Conversion of server data to levity's types: tools, results, prompts and resources.
//!
//! Servers are not trusted here. Schemas and results of any shape and size give a value or an error
//! that names the problem. Content that a model cannot see is described in text and never dropped
//! silently.

mod content;
mod output;
mod prompt;
mod schema;
mod spec;
mod text;
mod tool_entry;

pub(crate) use output::output;
pub(crate) use prompt::{message, resource};

pub(crate) use spec::{Tasks, spec};
pub(crate) use tool_entry::tool;

#[cfg(test)]
mod real_servers;
