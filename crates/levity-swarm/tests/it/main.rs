//! The crate as a whole, by subject.

mod bus;
mod lineage;
mod router;
