//! Servers of every kind, and what becomes of them.

mod fixture;
#[cfg(feature = "http")]
mod http;
mod servers;
