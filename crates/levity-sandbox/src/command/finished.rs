//! Results of commands that ran.
//!
//! The exit status tells a failure of the command from a decision of the sandbox: a caller may
//! retry the first with other arguments, and the second only with other limits.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::captured::CapturedOutput;

/// The result of a command that has ended.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use levity_sandbox::{Exit, Level, Sandbox, Workspace};
///
/// let sandbox =
///     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
/// let finished = sandbox.shell("echo done; echo why >&2; exit 3").run().await?;
/// assert_eq!(finished.exit, Exit::Code(3));
/// assert_eq!((&*finished.stdout.text, &*finished.stderr.text), ("done\n", "why\n"));
/// assert!(!finished.is_success());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandOutput {
    /// The exit status of the command.
    pub exit: Exit,
    /// The standard output of the command.
    pub stdout: CapturedOutput,
    /// The standard error of the command.
    pub stderr: CapturedOutput,
    /// The duration of the run.
    pub time: Duration,
    /// The hidden or protected files that another program replaced while the command ran, at most
    /// 64. The command may have read or changed the new files for a moment, until the sandbox hid
    /// or protected them too.
    pub replaced_files: Vec<PathBuf>,
}

impl CommandOutput {
    /// Returns `true` if the command exited with code 0.
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

/// The exit status of a command.
///
/// ```
/// use levity_sandbox::{CommandLimit, Exit};
///
/// assert_eq!(Exit::Code(1).to_string(), "exit code 1");
/// assert_eq!(Exit::Signal(9).to_string(), "ended by signal 9");
/// assert_eq!(
///     Exit::Limit(CommandLimit::Memory).to_string(),
///     "ended because it exceeded its limit of memory"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exit {
    /// The command exited with this code.
    Code(i32),
    /// A signal ended the command.
    Signal(i32),
    /// A limit of the sandbox ended the command.
    Limit(CommandLimit),
    /// The sandbox ended the command because it could not count its processes: the system's `/proc`
    /// hides one, or `/proc` could not be read.
    Uncounted,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Limit(limit) => write!(f, "ended because it exceeded its limit of {limit}"),
            Self::Uncounted => f.write_str(
                "ended because its processes could not be counted: `/proc` hides one (`hidepid`) \
                    or could not be read",
            ),
        }
    }
}

/// The limit that a command exceeded.
///
/// The limits are set by [`SandboxBuilder`](crate::SandboxBuilder). Each except the time applies to
/// all processes of a command together, or to one file.
///
/// ```
/// use levity_sandbox::CommandLimit;
///
/// assert_eq!(CommandLimit::CpuTime.to_string(), "CPU time");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommandLimit {
    /// Wall clock time of the command.
    Time,
    /// CPU time of all its processes.
    CpuTime,
    /// Memory of all its processes.
    Memory,
    /// The number of processes.
    Processes,
    /// The size of a file.
    FileSize,
}

impl fmt::Display for CommandLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::CpuTime => "CPU time",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::FileSize => "file size",
        })
    }
}
