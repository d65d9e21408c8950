//! How providers are reached: one client for all of a process, time limits, secrets that stay secret.

mod endpoint;
mod failure;
mod lines;
mod provider;
mod remote;
mod secret;

pub use endpoint::{Endpoint, TimeLimits};
pub use secret::Secret;

pub(crate) use failure::{Failure, plain};
pub(crate) use lines::{Framing, Lines};
pub(crate) use provider::provider;
pub(crate) use remote::{Asked, Decode, Remote, Sink, Wire};
