//! Whole stories of this crate.

mod bridge;
mod http;
mod mcp;
mod offer;
mod runs;
