//! Tests of graphs through the public API.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "skipped tests print a line")]

mod bounds;
mod crashes;
mod flow;
mod guards;
mod killed;
mod media;
mod plans;
mod random;
mod replan;
mod rounds;
mod saved;
mod support;
