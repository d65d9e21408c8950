//! levity's agents offered to others.

pub mod mcp;
