//! The loop on its own: the machine is fed outcomes and its effects are looked at.

mod random;
mod suites;
