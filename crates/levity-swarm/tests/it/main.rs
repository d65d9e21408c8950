//! The crate as a whole, by subject.

mod bus;
mod hostile;
mod lineage;
mod router;
