//! Files, commands and addresses that a model may touch, and no others.
//!
//! ```
//! use levity_sandbox::{CommandPolicy, CommandLine, PathError, Permit, Workspace};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let workspace = Workspace::open(folder)?;
//! workspace.write("notes.txt", b"one\ntwo\n")?;
//! assert_eq!(workspace.read("notes.txt", 1024)?, b"one\ntwo\n");
//! assert!(matches!(workspace.read("../secret", 1024), Err(PathError::Outside { .. })));
//! assert!(matches!(workspace.read(".env", 1024), Err(PathError::Denied { .. })));
//!
//! let policy = CommandPolicy::new();
//! assert_eq!(policy.judge(CommandLine::Shell("grep -n two notes.txt | head")), Permit::Allow);
//! assert_ne!(policy.judge(CommandLine::Shell("grep two notes.txt > found")), Permit::Allow);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Workspace`] is a folder whose files may be touched: no path, link, device or race leads out
//!   of it, and secrets in it are kept apart.
//! - `Sandbox` runs commands under limits; the kernel keeps them from other files, the network and
//!   other processes, as far as `Sandbox::report` says. All of a command's processes end with it.
//! - [`CommandPolicy`] says which commands run, which a person is asked about, and which do not
//!   run.
//! - `NetGuard` is an HTTP client that reaches only addresses that were looked at, redirects
//!   included.
//!
//! What is not here: tools for models, which are in `levity-builtin-tools`; anything of agents and
//! runs. Everything that cannot be held on a system is reported or refused, never assumed.
//!
//! # Features
//! - `commands`: commands under limits, kept from files and network by the kernel.
//! - `net`: HTTP to addresses that were looked at.

#[cfg(feature = "commands")]
mod command;
#[cfg(feature = "net")]
mod net;
mod policy;
mod workspace;

#[cfg(feature = "commands")]
pub use command::{
    CapturedOutput, Command, CommandError, CommandLimit, CommandOutput, Exit, Level, Mechanism,
    Network, Protection, Sandbox, SandboxBuilder, SandboxError, SandboxReport, Stream,
};
pub use levity_core::Permit;
#[cfg(feature = "net")]
pub use net::{
    AddressError, AddressResolver, Body, CheckedUrl, GuardedClient, GuardedGet, NetError, NetGuard,
    NetGuardBuilder, Reply, Resolving, SystemResolver,
};
pub use policy::{CommandLine, CommandPolicy, ReadScope};
pub use workspace::{
    Change, ChangeKind, Dir, Excerpt, FolderEntry, Kind, Listing, Metadata, OpenFile, PathError,
    Workspace, WorkspaceBuilder, WriteOptions, WrittenFile,
};
