//! Servers of every kind, and what becomes of them.

#[cfg(feature = "oauth")]
mod auth;
mod blocking;
mod fixture;
#[cfg(feature = "http")]
mod http;
mod peers;
mod servers;
