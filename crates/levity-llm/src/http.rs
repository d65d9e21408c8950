//! How providers are reached: one client for all of a process, time limits, secrets that stay
//! secret.

mod endpoint;
mod failure;
mod foreign;
mod lines;
mod post;
mod provider;
mod reader;
mod remote;
mod secret;
mod timer;

pub use endpoint::{Endpoint, TimeLimits};
pub use secret::Secret;

pub(crate) use failure::{Failure, plain};
#[cfg(any(
    feature = "openai",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama"
))]
pub(crate) use foreign::foreign;
pub(crate) use lines::{Framing, Lines};
pub(crate) use provider::provider;
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) use reader::fold;
pub(crate) use remote::{Asked, Decode, Remote, Sink, Wire};
#[cfg(any(
    feature = "openai",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama"
))]
pub(crate) use remote::{Place, refused, scrubbed};
