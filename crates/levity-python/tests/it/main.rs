//! One binary for all tests of the crate.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod crash;
mod dropin;
mod everyday;
mod folder;
mod hostile;
mod kill;
mod program;
mod stop;
mod support;
