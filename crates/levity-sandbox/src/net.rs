//! HTTP requests to checked addresses only.

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
