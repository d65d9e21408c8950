//! Restricts the files, commands and network addresses that a model can reach.
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
//! - [`Workspace`] restricts file access to one folder. No path, link, device or race leads out of
//!   it, and it denies access to the secrets inside.
//! - `Sandbox` runs commands under limits. The kernel blocks access to other files, the network and
//!   other processes, as far as `Sandbox::report` states. All processes of a command end with it.
//! - [`CommandPolicy`] decides which commands run, which need a person's approval, and which are
//!   denied.
//! - `NetGuard` creates HTTP clients that connect only to checked addresses, redirects included.
//!
//! This crate contains no tools for models (see `levity-builtin-tools`) and nothing about agents or
//! runs. If a system cannot enforce a restriction, the crate reports or refuses it; it never
//! assumes it.
//!
//! # Features
//! - `commands`: runs commands under limits, with files and network blocked by the kernel.
//! - `net`: sends HTTP requests to checked addresses only.

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
    AddressError, AddressResolver, Body, CheckedUrl, GuardedClient, GuardedRequest, NetError,
    NetGuard, NetGuardBuilder, Reply, ResolveFuture, SystemResolver,
};
pub use policy::{CommandLine, CommandPolicy, ReadScope};
pub use workspace::{
    Change, ChangeKind, Dir, EntryKind, Excerpt, FolderEntry, Listing, Metadata, OpenFile,
    PathError, Workspace, WorkspaceBuilder, WriteOptions, WrittenFile,
};
