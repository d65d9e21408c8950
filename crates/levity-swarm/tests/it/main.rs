//! Tests of the whole crate through the public API.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod blackboard;
mod bus;
mod coordinator;
mod crowd;
mod debate;
mod edges;
mod guards;
mod handoff;
mod hostile;
mod lineage;
mod media;
mod order;
mod resume;
mod rounds;
mod router;
mod saved;
mod steer;
mod upgrade;
