//! Built-in tools that most agents need: files, commands, the web and the current time.
//!
//! ```
//! use levity_builtin_tools::Now;
//! use levity_tools::Registry;
//!
//! let registry = Registry::builder().tool(Now::new()).build()?;
//! assert_eq!(registry.specs()[0].name, "now");
//! # Ok::<(), levity_tools::Error>(())
//! ```
//!
//! Each tool implements [`Tool`](levity_core::Tool). `levity-tools` provides the registry, the
//! dispatcher and the policy that call it. `levity-sandbox` provides the limits on files, commands
//! and addresses. This crate guarantees:
//!
//! - Every tool limits the data it reads, writes and returns, and the time it takes. Its result
//!   states what was omitted.
//! - A tool accesses nothing outside the workspace, sandbox or network guard that you give it.
//!
//! # Features
//! - `files`: `FileTools`, which read, write, edit, list and search the files of a workspace.
//! - `commands`: `RunCommand`, and `ExecutableLoader` for executables with a manifest in a tools
//!   folder.
//! - `web`: `WebFetch` and `WebSearch`.
//! - `profile`: the module `profile`, which detects the kind, size and structure of files.
//!
//! This crate deliberately has no registry, dispatcher or policy, and no clock: [`Now`] reports the
//! time that the runtime passes to it.

#[cfg(feature = "commands")]
mod command;
#[cfg(feature = "commands")]
mod executable;
#[cfg(feature = "files")]
mod files;
mod now;
#[cfg(feature = "profile")]
pub mod profile;
#[cfg(any(feature = "files", feature = "web"))]
mod text;
#[cfg(feature = "web")]
mod web;

#[cfg(feature = "commands")]
pub use command::RunCommand;
#[cfg(feature = "commands")]
pub use executable::ExecutableLoader;
#[cfg(feature = "files")]
pub use files::{EditFile, FileTools, ListFiles, ReadFile, SearchFiles, WriteFile};
pub use now::Now;
#[cfg(feature = "web")]
pub use web::{Brave, SearXng, SearchHit, SearchProvider, WebFetch, WebFetchBuilder, WebSearch};
