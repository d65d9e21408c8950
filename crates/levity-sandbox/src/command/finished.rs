use std::fmt;
use std::time::Duration;

use super::captured::CapturedOutput;

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandOutput {
    /// How it ended.
    pub exit: Exit,
    /// What it wrote.
    pub stdout: CapturedOutput,
    /// What it wrote of errors.
    pub stderr: CapturedOutput,
    /// How long it took.
    pub time: Duration,
}

impl CommandOutput {
    /// Whether it ended by itself, and with 0.
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// By a limit of the sandbox.
    Limit(CommandLimit),
    /// By the sandbox, which could not count its processes: one cannot be looked at, since the
    /// system's `/proc` hides it, or `/proc` could not be read.
    Uncounted,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Limit(limit) => write!(f, "ended because it took too much {limit}"),
            Self::Uncounted => f.write_str(
                "ended because its processes could not be counted: `/proc` hides one (`hidepid`), \
                    or could not be read",
            ),
        }
    }
}

/// What a command took too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommandLimit {
    /// Time on the clock.
    Time,
    /// CPU time.
    CpuTime,
    /// Memory.
    Memory,
    /// Processes.
    Processes,
    /// Space for a file.
    FileSize,
}

impl fmt::Display for CommandLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::CpuTime => "CPU time",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::FileSize => "space for a file",
        })
    }
}
