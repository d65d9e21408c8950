//! The way from a login page back to levity.
//!
//! The trait has two methods, because the redirect URL is part of the login page's URL and must be
//! known before a person sees the page.

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
/// - The returned URL is complete and unchanged; levity checks its `state`, its issuer and its
///   code.
///
/// ```
/// use async_trait::async_trait;
/// use levity_mcp::Browser;
/// use std::io;
///
/// /// Asks the person to paste the address that the browser ends up at.
/// struct Paste<F>(F);
///
/// #[async_trait]
/// impl<F: Fn(&str) -> io::Result<String> + Send + Sync> Browser for Paste<F> {
///     fn redirect_url(&self) -> String {
///         "http://127.0.0.1:1/callback".to_owned()
///     }
///
///     async fn visit(&self, url: &str) -> io::Result<String> {
///         (self.0)(url)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> io::Result<()> {
/// let paste = Paste(|_: &str| Ok("http://127.0.0.1:1/callback?code=1&state=a".to_owned()));
/// let redirect = paste.visit("https://login.example/?state=a").await?;
/// assert!(redirect.starts_with(&paste.redirect_url()));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Browser: Send + Sync {
    /// Returns the URL that the authorization server redirects the person's browser to.
    fn redirect_url(&self) -> String;

    /// Lets the person log in at `url`, and returns the complete URL of the redirect, with its
    /// query.
    ///
    /// # Errors
    /// Returns an error if the page cannot be shown or the wait fails. A person who refuses is no
    /// error: the redirect then has the parameter `error`.
    async fn visit(&self, url: &str) -> io::Result<String>;
}

impl fmt::Debug for dyn Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Browser")
    }
}
