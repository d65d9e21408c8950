//! HTTP access to providers: one client per process, time limits and protected secrets.

mod endpoint;
mod failure;
mod lines;
mod post;
mod provider;
mod reader;
mod remote;
mod secret;
mod timer;
mod unexpected_reply;

pub use endpoint::{Endpoint, TimeLimits};
pub use secret::Secret;

pub(crate) use failure::{Failure, find_failure};
pub(crate) use lines::{Framing, Lines};
pub(crate) use provider::provider;
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) use reader::fold;
pub(crate) use remote::{Decode, Remote, Sink, Wire, WireRequest};
#[cfg(any(
    feature = "openai",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama"
))]
pub(crate) use remote::{ErrorTarget, error_from_reply, scrub_error};
#[cfg(any(
    feature = "openai",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama"
))]
pub(crate) use unexpected_reply::unexpected_body_error;
