use std::fmt;
use std::io;

use async_trait::async_trait;

mod loopback;

pub use loopback::Loopback;

/// What shows a login page to a person and brings back the answer.
///
/// # Contract
/// - The redirect URL stays the same between a call of `redirect_url` and the `visit` that follows
///   it.
/// - Dropping the future of `visit` ends the wait.
#[async_trait]
pub trait Browser: Send + Sync {
    /// Where the authorization server sends the person's browser when it is done.
    fn redirect_url(&self) -> String;

    /// Lets the person log in at `url`; returns the whole URL that the browser was sent back to,
    /// with its query.
    async fn visit(&self, url: &str) -> io::Result<String>;
}

impl fmt::Debug for dyn Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Browser")
    }
}
