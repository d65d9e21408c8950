//! Runs by HTTP, through real connections.

mod client;
mod life;
mod support;
