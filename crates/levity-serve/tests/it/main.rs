//! Whole stories of this crate.

mod mcp;
mod offer;
mod runs;
