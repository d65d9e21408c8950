use std::io;
use std::path::PathBuf;

use super::report::{Level, SandboxReport};

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// This system cannot hold commands as firmly as was demanded.
    #[error(
        "this system reaches the level `{}` and `{wanted}` was demanded: {missing}; take less with \
            `.at_least(..)`",
        .report.level
    )]
    Weak {
        /// What was demanded.
        wanted: Level,
        /// What is missing, in words.
        missing: String,
        /// What there is.
        report: Box<SandboxReport>,
    },
    /// A place that commands may use is not there.
    #[error("`{}` cannot be opened up to commands", .0.display())]
    Place(PathBuf, #[source] io::Error),
    /// A setting cannot be.
    #[error("{0}")]
    Setting(&'static str),
    /// Something that is needed to find out what this system can do failed.
    #[error("cannot find out what this system can do: {0}")]
    Probe(&'static str, #[source] io::Error),
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no command.
    #[error("the command is empty")]
    Empty,
    /// A string has a zero in it, which no program can be given.
    #[error("{0} has a zero byte in it")]
    Zero(&'static str),
    /// There is no such program.
    #[error("there is no program `{0}`")]
    NotFound(String),
    /// The program is there, and cannot be executed: it is no program, or out of reach of commands.
    #[error("`{0}` cannot be executed: it is no program, or out of reach of commands")]
    NotExecutable(String),
    /// Arguments and environment are longer than the system takes.
    #[error(
        "the command is too long for this system; put the long part into a file or give it as input"
    )]
    TooLong,
    /// The directory is not one of the workspace.
    #[error("`{0}` is no directory of the workspace")]
    Directory(String),
    /// The sandbox cannot run this command read-only, so it did not run.
    #[error(
        "the command cannot run read-only: {0}; let a rule of the policy allow it, to run it with \
            all rights"
    )]
    ReadOnly(&'static str),
    /// A mount shows the workspace, or a part of it, by another path, on which its denied files
    /// cannot be hidden.
    #[error(
        "the mount `{}` shows the workspace a second time, and what it shows cannot be looked at \
            or hidden from commands; \
         unmount it, or open the workspace where it is not seen twice",
        .0.display()
    )]
    SecondMount(PathBuf),
    /// Not all of the tree could be killed.
    #[error("{0} processes of the command could not be killed")]
    Survivors(u32),
    /// What watches the command was killed.
    #[error("the command was lost: what watches it was killed")]
    Lost,
    /// The future was polled outside a tokio runtime.
    #[error("commands need a tokio runtime")]
    NoRuntime,
    /// The sandbox that was reported could not be set up this time, so nothing ran.
    #[error("the sandbox could not be set up: {step}")]
    Setup {
        /// What failed.
        step: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl From<SandboxError> for levity_core::Error {
    fn from(error: SandboxError) -> Self {
        Self::other(error)
    }
}

impl From<CommandError> for levity_core::Error {
    fn from(error: CommandError) -> Self {
        Self::other(error)
    }
}
