//! Files, commands and addresses that a model may touch, and no others.
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
    Captured, Command, CommandError, Exit, Finished, Guard, How, Level, Limit, Network, Report, Sandbox,
    SandboxBuilder, SandboxError, Stream,
};
#[cfg(feature = "net")]
pub use net::{
    AddressError, Body, CheckedUrl, GuardedClient, GuardedGet, NetError, NetGuard, NetGuardBuilder, Reply,
    Resolver, Resolving, SystemResolver,
};
pub use policy::{CommandPolicy, Line, Ruling};
pub use workspace::{
    Change, ChangeKind, Dir, Entry, Excerpt, Kind, Listing, Metadata, OpenFile, PathError, Workspace,
    WorkspaceBuilder, WriteOptions, Written,
};
