//! Whole stories of this crate.

mod http;
mod offer;
mod runs;
