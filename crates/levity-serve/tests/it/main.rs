//! Whole stories of this crate.

mod runs;
