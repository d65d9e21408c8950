use std::fmt;
use std::time::Duration;

use super::captured::CapturedOutput;

/// The result of a command that has ended.
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
}

impl CommandOutput {
    /// Returns `true` if the command exited with code 0.
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

/// The exit status of a command.
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
