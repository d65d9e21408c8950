//! Logins for servers that ask for one.
//!
//! A server that wants a login answers 401 and says where to get one. What follows is found by its
//! metadata (RFC 9728 and RFC 8414, with the older ways as a last resort): a client id that was
//! set, a metadata document of ours, or a registration; then a person's browser, or a grant that
//! needs nobody. Where the authorization server offers it, tokens are bound to a key (DPoP, RFC
//! 9449). Tokens are kept in a [`TokenStore`], renewed before they end, by one request at a time,
//! and sent to no other server.

mod browser;
mod discover;
mod dpop;
mod flow;
mod grant;
mod http;
mod jwt;
mod login;
mod patience;
mod record;
mod secret;
mod settings;
mod store;
mod token;

pub use browser::{Browser, Loopback};
pub use settings::{Enterprise, Identity, OAuth, TokenFile};
pub use store::{FileTokens, MemoryTokens, TokenLock, TokenStore};

use std::sync::Arc;

use levity_core::World;

use crate::ServerConfig;
use crate::config::Transport;
use crate::link::authorize::Authorize;
use crate::redact::Redactor;

/// The login of a server, if it may need one, and the clock that its limits go by.
pub(crate) fn of(
    config: &ServerConfig,
    world: Arc<dyn World>,
    secrets: &Redactor,
) -> (Option<Arc<dyn Authorize>>, Arc<dyn World>) {
    let (Transport::Http(http) | Transport::Sse(http)) = &config.transport else {
        return (None, world);
    };
    let Some(oauth) = http.oauth.clone() else {
        return (None, world);
    };
    let patience = Arc::new(patience::Patience::new(world.clone()));
    match login::Login::new(
        config.name.clone(),
        &http.url,
        oauth,
        world,
        patience.clone(),
        secrets.clone(),
    ) {
        Some(login) => (Some(Arc::new(login)), patience),
        // What is wrong with the address is said when the server is started.
        None => (None, patience),
    }
}
