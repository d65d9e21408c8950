//! The crate as a whole, by subject.

mod blackboard;
mod bus;
mod crowd;
mod debate;
mod handoff;
mod hostile;
mod lineage;
mod order;
mod ready;
mod rounds;
mod router;
mod steer;
