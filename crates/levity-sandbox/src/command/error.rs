//! Errors of sandboxes and commands.
//!
//! [`SandboxError`] means that no command can run, and [`CommandError`] that one did not run, or
//! has no trustworthy result. A command that ran and failed is a result: see `Exit`.

use std::io;
use std::path::PathBuf;

use super::report::{Level, SandboxReport};

/// The reason why a sandbox cannot be created.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use levity_sandbox::{Sandbox, SandboxError, Workspace};
///
/// let built = Sandbox::builder(Workspace::open(folder.path())?).max_processes(0).build();
/// let error = built.unwrap_err();
/// assert!(matches!(error, SandboxError::Setting(_)));
/// assert_eq!(
///     error.to_string(),
///     "a limit of 0 prevents every command; omit it for the default"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// This system cannot reach the required level of isolation.
    #[error(
        "this system reaches the level `{}`, but `{wanted}` is required: {missing}; lower it with \
         `.require_level(..)`",
        .report.level
    )]
    InsufficientLevel {
        /// The lowest level that is accepted.
        wanted: Level,
        /// A description of the missing protections.
        missing: String,
        /// The protections of this system.
        report: Box<SandboxReport>,
    },
    /// A place that commands may use does not exist.
    #[error("cannot allow commands to use the place `{}`", .0.display())]
    Place(PathBuf, #[source] io::Error),
    /// A setting is invalid.
    #[error("{0}")]
    Setting(&'static str),
    /// A test of this system's capabilities failed.
    #[error("cannot test what this system can enforce: {0}")]
    Probe(&'static str, #[source] io::Error),
}

/// The reason why a command has no result.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// use levity_sandbox::{CommandError, Level, Sandbox, Workspace};
///
/// let sandbox =
///     Sandbox::builder(Workspace::open(folder.path())?).require_level(Level::Open).build()?;
/// let error = sandbox.command(["no-such-program"]).run().await.unwrap_err();
/// assert!(matches!(error, CommandError::NotFound(name) if name == "no-such-program"));
/// let error = sandbox.command(["true"]).dir("../other").run().await.unwrap_err();
/// assert!(matches!(error, CommandError::Directory(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The command line is empty.
    #[error("the command is empty")]
    Empty,
    /// A string contains a NUL byte, which cannot be passed to a program.
    #[error("{0} contains a NUL byte; remove it")]
    NulByte(&'static str),
    /// The program does not exist.
    #[error("the program `{0}` does not exist; check its name and `PATH`")]
    NotFound(String),
    /// The program exists but cannot be executed: it is not a program, or out of reach of commands.
    #[error("`{0}` cannot be executed: it is not a program, or out of reach of commands")]
    NotExecutable(String),
    /// Arguments and environment are longer than the system allows.
    #[error(
        "the command is too long for this system; put the long part into a file or pass it as input"
    )]
    TooLong,
    /// The directory is not a folder of the workspace.
    #[error("`{0}` is not a directory of the workspace")]
    Directory(String),
    /// The sandbox cannot run this command read-only, so it did not run.
    #[error(
        "the command cannot run read-only: {0}; allow it with a policy rule to run it with all \
         rights"
    )]
    ReadOnly(&'static str),
    /// A mount shows the workspace, or a part of it, under another path, where its denied files
    /// cannot be hidden.
    #[error(
        "the mount `{}` shows the workspace a second time, and its contents cannot be \
         inspected or hidden from commands; unmount it, or open the workspace where it appears \
         once",
        .0.display()
    )]
    SecondMount(PathBuf),
    /// Another program removed or replaced something that commands must not create, so the sandbox
    /// ended the command: it may have created a file there.
    #[error(
        "the command was ended because another program removed or replaced `{}`, which commands \
         must not create; check this path, and run the command again",
        .0.to_string_lossy().escape_debug()
    )]
    Exposed(PathBuf),
    /// Paths became denied while the command ran, so the sandbox ended it: a running command can
    /// still access them. See [`WorkspaceBuilder::deny_from`](crate::WorkspaceBuilder::deny_from).
    #[error(
        "the command was ended because files of its workspace were denied to commands while it \
         ran; run the command again"
    )]
    Changed,
    /// Some processes of the command could not be killed.
    #[error("{0} processes of the command could not be killed")]
    Survivors(u32),
    /// The process that watches the command was killed.
    #[error("the command was lost: its watcher was killed")]
    WatcherKilled,
    /// The future was polled outside a tokio runtime.
    #[error("commands need a tokio runtime; poll the future inside one")]
    NoRuntime,
    /// The reported protections could not be set up this time, so nothing ran.
    #[error("the sandbox could not be set up: {step}")]
    Setup {
        /// The step that failed.
        step: &'static str,
        /// The error of the operating system.
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
