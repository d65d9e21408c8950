//! Logins for servers that require one.
//!
//! A server that requires a login responds with 401 and names its authorization server. levity
//! finds the rest through metadata (RFC 9728 and RFC 8414, with older methods as a fallback). The
//! client is a configured client id, a metadata document, or a registration. Then a person logs in
//! with a browser, or a grant without interaction is used. If the authorization server supports it,
//! tokens are bound to a key (DPoP, RFC 9449). Tokens are stored in a [`TokenStore`], renewed
//! before they expire, by one request at a time, and sent to no other server.
//!
//! The modules, from the outside in:
//! - `login` decides when to log in or renew;
//! - `discover` finds the authorization server;
//! - `flow` and `grant` obtain tokens, with and without a person;
//! - `token` and `http` send requests to the token endpoint;
//! - `record` and `store` keep the result.
//!
//! A server is not trusted with a login. It may name only endpoints with https, none on this
//! machine unless it runs here itself, and no other authorization server than the one that a client
//! secret was first used with.

mod browser;
mod clock;
mod discover;
mod dpop;
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

pub use browser::{Browser, LoopbackBrowser};
pub use settings::{EnterpriseLogin, IdentityTokenSource, OAuth, TokenFile};
pub use store::{FileTokenStore, MemoryTokenStore, TokenLock, TokenStore};

use std::sync::Arc;

use levity_core::World;

use crate::ServerConfig;
use crate::config::Transport;
use crate::link::authorize::Authorize;
use crate::redact::Redactor;

/// Returns the login of a server, if it may need one, and the clock for its timeouts.
pub(crate) fn login_for(
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
    let clock = Arc::new(clock::PausableClock::new(world.clone()));
    match login::Login::new(
        config.name.clone(),
        &http.url,
        oauth,
        world,
        clock.clone(),
        secrets.clone(),
    ) {
        Some(login) => (Some(Arc::new(login)), clock),
        // The error for an invalid URL is reported when the server is started.
        None => (None, clock),
    }
}
