//! The guarantees of each layer, alone and combined.

mod adapt;
mod cache;
mod compose;
mod conformance;
mod files;
mod rate;
mod retry;
mod route;
pub(crate) mod support;
mod text_calls;
mod text_tools;
mod thinking;
