//! Limits of commands, with their defaults.
//!
//! The values are copied into each command, which may lower its time limit and no other.

use std::time::Duration;

/// The resource limits of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) cpu_time: Duration,
    pub(super) memory: u64,
    pub(super) processes: u32,
    pub(super) file_size: u64,
    pub(super) output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(120),
            cpu_time: Duration::from_secs(600),
            memory: 4 << 30,
            processes: 256,
            file_size: 1 << 30,
            output: 64 << 10,
        }
    }
}
