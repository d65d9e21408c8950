//! Tools that an agent needs on its first day: files, commands, the web, the time.
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
//! Each tool is a [`Tool`](levity_core::Tool) like any other. The registry, the dispatcher and the
//! policy that call it are in `levity-tools`, and the limits on files, commands and addresses in
//! `levity-sandbox`. This crate promises:
//!
//! - Every tool has a limit on what it reads, writes, waits for and returns, and says in its result
//!   what was left out.
//! - A tool touches nothing outside the workspace, the sandbox or the guard that it was given.
//!
//! # Features
//! - `files`: `FileTools`, which read, write, edit, list and search the files of a workspace.
//! - `commands`: `RunCommand`, and `ExecutableLoader` for executables with a manifest in a folder
//!   of tools.
//! - `web`: `WebFetch` and `WebSearch`.
//! - `profile`: the module `profile`, which finds out what files are.
//!
//! What is deliberately absent: registry, dispatcher and policy; a clock, since [`Now`] tells the
//! time that the runtime gives it.

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
