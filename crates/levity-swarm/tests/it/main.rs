//! The crate as a whole, by subject.

mod bus;
mod crowd;
mod handoff;
mod hostile;
mod lineage;
mod order;
mod ready;
mod router;
mod steer;
