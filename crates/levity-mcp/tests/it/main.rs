//! Servers of every kind, and what becomes of them.

mod blocking;
mod fixture;
#[cfg(feature = "http")]
mod http;
mod servers;
