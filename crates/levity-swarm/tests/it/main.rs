//! The crate as a whole, by subject.

mod handoff;
mod router;
