//! Tools that fetch pages and search the web.

mod cache;
mod charset;
mod client;
mod extract;
mod failure;
mod fetch;
mod frame;
mod html;
mod kind;
mod page;
mod search;

pub use fetch::{WebFetch, WebFetchBuilder};
pub use search::{Brave, SearXng, SearchHit, SearchProvider, WebSearch};
