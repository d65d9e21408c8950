//! Tools that an agent needs on its first day.

#[cfg(feature = "commands")]
mod command;
#[cfg(feature = "files")]
mod files;
mod now;
#[cfg(feature = "web")]
mod web;

pub use now::Now;
#[cfg(feature = "files")]
pub use files::{EditFile, FileTools, ListFiles, ReadFile, SearchFiles, WriteFile};
#[cfg(feature = "web")]
pub use web::{Brave, SearXng, SearchHit, SearchProvider, WebFetch, WebFetchBuilder, WebSearch};
