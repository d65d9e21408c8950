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
//! - `files`: `FileTools`, which read, write, edit, list and search the files of a workspace, and
//!   `WriteArtifact`, which writes into one folder of it.
//! - `commands`: `RunCommand`, and `ExecutableLoader` for executables with a manifest in a tools
//!   folder.
//! - `web`: `WebFetch` and `WebSearch`.
//! - `profile`: the module `profile`, which detects the kind, size and structure of files.
//!
//! This crate deliberately has no registry, dispatcher or policy, and no clock: [`Now`] reports the
//! time that the runtime passes to it.
//!
//! # A tool in use
//! Every tool can be called without an agent, which is how you test one:
//!
//! ```
//! # #[cfg(feature = "files")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! use levity_builtin_tools::WriteFile;
//! use levity_core::{Tool, ToolCx};
//! use levity_sandbox::Workspace;
//! use serde_json::json;
//!
//! let tool = WriteFile::new(Workspace::open(folder.path())?);
//! let args = json!({"path": "notes/today.md", "content": "buy milk\n"});
//! let output = tool.call(args, &ToolCx::detached()).await?;
//! assert_eq!(output.as_text(), "created `notes/today.md`: 1 line, 9 bytes");
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "files"))]
//! # fn main() {}
//! ```
//!
//! # Tools and limits
//! | tool | name | hints | limit of a result |
//! |---|---|---|---|
//! | [`Now`] | `now` | read-only | one time |
//! | `ReadFile` | `read_file` | read-only, blocking | 100 KB, then a note to continue |
//! | `ListFiles` | `list_files` | read-only, blocking | 500 entries, 48 KiB |
//! | `SearchFiles` | `search_files` | read-only, blocking | 100 matches, 48 KiB |
//! | `WriteFile` | `write_file` | idempotent, blocking | a summary |
//! | `WriteArtifact` | `write_artifact` | idempotent, blocking | a summary |
//! | `EditFile` | `edit_file` | blocking | a summary |
//! | `RunCommand` | `run_command` | timeout | 64 KiB per stream, by the sandbox |
//! | `WebFetch` | `web_fetch` | read-only | 50 KiB, then an offset to continue |
//! | `WebSearch` | `web_search` | read-only | 8 results |
//!
//! # Untrusted text
//! File contents, output of commands, web pages and search results may contain instructions for the
//! model. Web tools enclose such text in a frame with a warning. For all tools, let a policy
//! require approval of commands and writes.
//!
//! # Where to go next
//! - Give tools to an agent: the registry and the dispatcher of `levity-tools`.
//! - Restrict files, commands or addresses: `Workspace`, `CommandPolicy`, `Sandbox` and `NetGuard`
//!   of `levity-sandbox`.
//! - Write your own tool: [`Tool`](levity_core::Tool), or the macro `#[tool]`.

#![cfg_attr(docsrs, feature(doc_cfg))]

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
pub use files::{EditFile, FileTools, ListFiles, ReadFile, SearchFiles, WriteArtifact, WriteFile};
pub use now::Now;
#[cfg(feature = "web")]
pub use web::{Brave, SearXng, SearchHit, SearchProvider, WebFetch, WebFetchBuilder, WebSearch};
