use std::fmt;
use std::io;

use async_trait::async_trait;

mod loopback;

pub use loopback::LoopbackBrowser;

/// A way to show a login page to a person and to receive the result.
///
/// # Contract
/// - The redirect URL stays the same between a call of `redirect_url` and the following `visit`.
/// - Dropping the future of `visit` ends the wait.
#[async_trait]
pub trait Browser: Send + Sync {
    /// Returns the URL that the authorization server redirects the person's browser to.
    fn redirect_url(&self) -> String;

    /// Lets the person log in at `url`, and returns the complete URL of the redirect, with its
    /// query.
    async fn visit(&self, url: &str) -> io::Result<String>;
}

impl fmt::Debug for dyn Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Browser")
    }
}
