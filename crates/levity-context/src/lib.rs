//! What an agent goes by: context files, the workspace, and the one value that holds it all.
//!
//! ```
//! use levity_context::{ContextExt as _, ContextFiles, ContextFn, Sources};
//! use levity_core::{ContextAsk, ContextSource};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! std::fs::write(folder.join("AGENTS.md"), "Run the tests before you say it works.\n")?;
//! let tickets = ContextFn::new("open tickets", |_| async { Ok::<_, std::io::Error>("#12 too small".into()) });
//!
//! // An agent takes it by `Agent::builder(model).context(sources)`.
//! let sources = Sources::new().source(ContextFiles::open(folder)?).source_at(-1, tickets.at_most(500).or_note());
//! let blocks = sources.blocks(&ContextAsk::new(1_000)).await?;
//! assert_eq!(blocks.iter().map(|block| &*block.name).collect::<Vec<_>>(), ["AGENTS.md", "open tickets"]);
//! # Ok(())
//! # }
//! ```
//!
//! - [`ContextFiles`]: `.context/*.md`, and `AGENTS.md` down to the folder that is worked in.
//! - [`ContextFn`]: a block whose text a function gives. [`Sources`]: several sources as one, each
//!   of its own priority.
//!   [`ContextExt`]: a source with a budget or a time limit of its own, or one that cannot fail.
//! - [`WorkspaceFiles`]: the names of the files of a workspace. [`ContextProvider`]: the context
//!   value, which [`CONTEXT_SCHEMA`] describes and [`check_context`] checks.
//!
//! Files are read by a [`Workspace`](levity_sandbox::Workspace) only, so none outside it is. What
//! does not fit a budget is cut or left out, and that is said where the model reads it. Nothing is
//! kept from one time to the next.
//!
//! What is not here: how an agent shows the blocks to its model, which is in `levity-loop`; and
//! what an agent remembers, which is in `levity-memory`.

mod aside;
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
pub use layers::{AtMost, ContextExt, OrNote, Within};
pub use schema::{CONTEXT_SCHEMA, check as check_context, parse as parse_context};
pub use sources::Sources;
pub use value::ContextProvider;
pub use workspace::{FileList, WorkspaceFiles};
