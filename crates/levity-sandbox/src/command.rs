//! Commands that run under limits, with files and network blocked by the kernel.
//!
//! `builder` and `run` are the public side, the same on all systems. `linux` and `portable`
//! implement `System`, which prepares a sandbox and runs one command to its end. A caller awaits
//! `run`, which works on a blocking thread.
//!
//! The report is the contract between both sides: a protection counts only if a trial run could not
//! break it. A command runs under exactly the reported protections, or not at all.

mod builder;
mod captured;
mod environment;
mod error;
mod finished;
mod limits;
mod private;
#[cfg(unix)]
mod remove;
mod report;
mod run;

#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use portable as system;

pub use builder::{Network, Sandbox, SandboxBuilder};
pub use captured::{CapturedOutput, Stream};
pub use error::{CommandError, SandboxError};
pub use finished::{CommandLimit, CommandOutput, Exit};
pub use report::{Level, Mechanism, Protection, SandboxReport};
pub use run::Command;
