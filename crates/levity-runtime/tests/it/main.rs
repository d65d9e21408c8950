//! The runtime on its own, with machines and executors made for the purpose.

mod driving;
mod events;
mod suites;
