//! Commands that run under limits, with files and network blocked by the kernel.

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
