//! One binary for all tests of the crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(feature = "net")]
mod fetch;
#[cfg(feature = "net")]
mod loopback;
#[cfg(feature = "net")]
mod ssrf;
