//! The crate as a whole, by subject.

mod bus;
mod crowd;
mod debate;
mod handoff;
mod hostile;
mod lineage;
mod order;
mod ready;
mod resume;
mod rounds;
mod router;
mod steer;
