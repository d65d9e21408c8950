//! Runs by HTTP, through real connections.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod client;
mod crowd;
mod heads;
mod hostile;
mod kept;
mod life;
mod limits;
#[cfg(feature = "dag")]
mod many;
pub(crate) mod shares;
mod stream;
mod support;
mod tenants;
mod tls;
mod told;
mod tools;
