//! HTTP requests to checked addresses only.
//!
//! A URL is checked three times: its text by `guard`, its name by `host`, and each resolved address
//! by `address`. The client connects to the addresses that were checked, so a name cannot change
//! its address between the check and the connection (DNS rebinding). Redirects start again at the
//! first check.

mod address;
mod builder;
mod client;
mod error;
mod guard;
mod host;
mod resolve;

pub use builder::NetGuardBuilder;
pub use client::{Body, GuardedClient, GuardedRequest, Reply};
pub use error::{AddressError, NetError};
pub use guard::{CheckedUrl, NetGuard};
pub use resolve::{AddressResolver, ResolveFuture, SystemResolver};
