//! Logins for servers that ask for one.
//!
//! A server that wants a login answers 401 and says where to get one. What follows is found by its metadata (RFC 9728 and RFC 8414, with
//! the older ways as a last resort): a client id that was set, a metadata document of ours, or a registration; then a person's
//! browser, or a grant that needs nobody. Tokens are kept in a [`TokenStore`], renewed before they end, by one request at a time,
//! and sent to no other server.

mod browser;
mod discover;
mod flow;
mod grant;
mod http;
mod jwt;
mod login;
mod record;
mod secret;
mod settings;
mod store;
mod token;

pub use browser::{Browser, Loopback};
pub(crate) use login::Login;
pub use settings::{Enterprise, Identity, OAuth};
pub use store::{FileTokens, MemoryTokens, TokenLock, TokenStore};
