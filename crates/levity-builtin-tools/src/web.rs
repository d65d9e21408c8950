//! Tools that fetch pages and search the web.
//!
//! `fetch` and `search` are the two tools. A fetch goes through these modules:
//!
//! - `client` sends the request under a guard, and `failure` explains what went wrong.
//! - `kind` decides how bytes are read; `levity_html` decodes them and finds the main content.
//! - `page` holds the result, and `cache` keeps it for later parts.
//! - `extract` selects paragraphs, and `frame` marks the text as untrusted.
//!
//! Everything that comes from a server is untrusted: its size, its type, its encoding, its markup
//! and its words.

mod cache;
mod client;
mod extract;
mod failure;
mod fetch;
mod frame;
mod kind;
mod page;
mod search;

pub use fetch::{WebFetch, WebFetchBuilder};
pub use search::{Brave, SearXng, SearchHit, SearchProvider, WebSearch};
