//! Whole stories of this crate.

mod offer;
mod runs;
