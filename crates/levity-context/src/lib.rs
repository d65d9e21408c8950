//! Context for agents: context files, the workspace, and one value that contains all of it.
//!
//! ```
//! use levity_context::{ContextExt as _, ContextFiles, ContextFn, Sources};
//! use levity_core::{ContextRequest, ContextSource};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! std::fs::write(folder.join("AGENTS.md"), "Run the tests before you say it works.\n")?;
//! let tickets = ContextFn::new("open tickets", |_| async {
//!     Ok::<_, std::io::Error>("#12 too small".into())
//! });
//!
//! // Pass the sources to an agent with `Agent::builder(model).context(sources)`.
//! let sources = Sources::new()
//!     .source(ContextFiles::open(folder)?)
//!     .source_with_priority(-1, tickets.with_budget(500).with_fallback_note());
//! let blocks = sources.blocks(&ContextRequest::new(1_000)).await?;
//! let names: Vec<_> = blocks.iter().map(|block| &*block.name).collect();
//! assert_eq!(names, ["AGENTS.md", "open tickets"]);
//! # Ok(())
//! # }
//! ```
//!
//! - [`ContextFiles`]: `.context/*.md`, and `AGENTS.md` from the root down to the working folder.
//! - [`ContextFn`]: a block whose text comes from a function.
//! - [`Sources`]: several sources as one, each with a priority.
//! - [`ContextExt`]: a source with its own budget or time limit, or with a note instead of an
//!   error.
//! - [`WorkspaceFiles`]: the names of the files of a workspace.
//! - [`ContextProvider`]: the context value, which [`CONTEXT_SCHEMA`] describes and
//!   [`check_context`] checks.
//!
//! All files are read through a [`Workspace`](levity_sandbox::Workspace), so no file outside it is
//! read. Text that exceeds a budget is cut or omitted, and a note for the model states this.
//! Nothing is cached between calls.
//!
//! This crate deliberately does not render blocks for a model, which `levity-loop` does, and has no
//! memory, which is in `levity-memory`.
//!
//! # Limits
//!
//! | limit | default | change it with |
//! |---|---|---|
//! | context files | 100 | [`ContextFiles::max_files`] |
//! | bytes of context files | 1 MiB | [`ContextFiles::max_bytes`] |
//! | files that [`WorkspaceFiles`] lists | 1,000 | [`WorkspaceFiles::max_files`] |
//! | entries that a listing reads | 100,000 | fixed |
//! | depth of folders in a listing | 64 | fixed |
//!
//! # Trust
//!
//! Context files and file names come from the folder, which may come from a third party. A model
//! reads them as instructions, so an agent on a foreign folder needs a policy for its tools. The
//! folder cannot make levity read files outside of it.
//!
//! # Features
//! The crate has no features.
//!
//! # Further reading
//! - `docs/context.md` describes the conventions of context files and the budget.
//! - [`ContextSource`](levity_core::ContextSource) is the trait for a source of your own.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
mod call;
mod error;
mod files;
mod layers;
mod note;
mod schema;
mod sources;
mod value;
mod workspace;

pub use call::ContextFn;
pub use error::{Error, Result};
pub use files::{ContextFile, ContextFiles, FileExcerpt};
pub use layers::{ContextExt, WithBudget, WithFallbackNote, WithTimeout};
pub use schema::{CONTEXT_SCHEMA, check as check_context, parse as parse_context};
pub use sources::Sources;
pub use value::ContextProvider;
pub use workspace::{FileList, WorkspaceFiles};
