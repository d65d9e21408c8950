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
//!
//! # Defaults
//! | part | default |
//! |---|---|
//! | `Workspace` | readable and writable; keys, `.env` files and version control data denied |
//! | `CommandPolicy` | read-only commands allowed, all others need approval |
//! | `Sandbox` | level `Guarded`, no network, 2 minutes, 4 GiB, 256 processes, 64 KiB per stream |
//! | `NetGuard` | `https` on port 443 to public addresses, 30 seconds, 5 redirects |
//!
//! # Trust
//! Paths, command lines, URLs, links, file names, replies of servers and output of commands are
//! untrusted: a model or a stranger wrote them. Every check in this crate fails closed. A text that
//! cannot be parsed needs approval, a folder that cannot be searched is hidden, and a name that
//! cannot be resolved is refused.
//!
//! # Where to go next
//! - Give a model file tools, a command tool or web tools: `levity-builtin-tools`.
//! - Restrict a folder further: [`WorkspaceBuilder::deny`] and [`WorkspaceBuilder::read_only`].
//! - Decide on commands: [`CommandPolicy`], then run them by `Sandbox::command` or
//!   `Sandbox::shell`.
//! - Learn what your system enforces: print `Sandbox::report`.

#![cfg_attr(docsrs, feature(doc_cfg))]

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
    Change, ChangeKind, DeniedPaths, Dir, EntryKind, Excerpt, FolderEntry, Listing, Metadata,
    OpenFile, PathError, Workspace, WorkspaceBuilder, WriteOptions, WrittenFile,
};
