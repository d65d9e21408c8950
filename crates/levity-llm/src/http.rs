//! HTTP access to providers: one client per process, time limits and protected secrets.
//!
//! A provider implements `Wire` (where to send, how to write, how to read), and `Remote` turns that
//! into a [`Model`](levity_core::Model). The path of a call is:
//!
//! 1. `endpoint` builds URL and headers and enforces the time limits; `post` sends the request.
//! 2. `lines` splits the bytes into events; `reader` hands them to the provider's decoder.
//! 3. `remote` collects the deltas, maps names back, attaches the origin of state and cleans
//!    errors.
//! 4. `failure` and `unexpected_reply` turn everything else that a server may send into an error
//!    with a kind, a reason and the next step.
//!
//! Replies are not trusted. Every buffer has a limit, and no text of a server reaches an error or a
//! log before the secrets of the request are removed from it.

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
