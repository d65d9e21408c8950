//! Tools that an agent needs on its first day.

#[cfg(feature = "commands")]
mod command;
#[cfg(feature = "files")]
mod files;
mod now;
#[cfg(feature = "web")]
mod web;

#[cfg(feature = "commands")]
pub use command::RunCommand;
#[cfg(feature = "files")]
pub use files::{EditFile, FileTools, ListFiles, ReadFile, SearchFiles, WriteFile};
pub use now::Now;
#[cfg(feature = "web")]
pub use web::{Brave, SearXng, SearchHit, SearchProvider, WebFetch, WebFetchBuilder, WebSearch};
