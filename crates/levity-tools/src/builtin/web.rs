//! Tools that fetch pages and search the web.

mod html;
