//! Access tokens for Vertex AI, which expire.
//!
//! Invariants: one fetch at a time for all clones, no use of a token in its last minute, and no
//! second use of a token that the server rejected.

use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{ModelError, ModelErrorKind};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::Secret;

mod credentials;

use credentials::Credentials;

/// The time before its expiry at which a token is no longer used.
const MARGIN: Duration = Duration::from_secs(60);

/// An access token of Google Cloud, and its lifetime.
///
/// ```
/// # use std::time::Duration;
/// # use levity_llm::AccessToken;
/// let token = AccessToken::new("ya29.abc").with_lifetime(Duration::from_secs(3600));
/// assert!(!format!("{token:?}").contains("ya29"));
/// ```
///
/// The lifetime counts from the moment at which levity receives the token. A token with a lifetime
/// below two minutes is used for half of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AccessToken {
    /// The text of the token.
    pub token: Secret,
    /// The remaining lifetime; if unset, the token is used until the server rejects it.
    pub lifetime: Option<Duration>,
}

impl AccessToken {
    /// Creates a token that is used until the server rejects it.
    ///
    /// ```
    /// # use levity_llm::AccessToken;
    /// assert_eq!(AccessToken::new("ya29.abc").lifetime, None);
    /// ```
    pub fn new(token: impl Into<Secret>) -> Self {
        Self {
            token: token.into(),
            lifetime: None,
        }
    }

    /// Sets the remaining lifetime of the token.
    #[must_use]
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }
}

/// A source of access tokens. Clones share one token.
///
/// A token is cached until one minute before its expiry. Then a single request fetches a new one,
/// regardless of how many calls wait for it. A token that the server rejects (401) is not sent
/// again.
///
/// ```
/// # use std::time::Duration;
/// use levity_llm::{AccessToken, AccessTokens, GeminiModel};
///
/// let tokens = AccessTokens::from_fn(|| async {
///     let token = "ya29.abc"; // from wherever you keep it
///     Ok(AccessToken::new(token).with_lifetime(Duration::from_secs(3600)))
/// });
/// let model = GeminiModel::vertex("my-project", "europe-west1", tokens, "gemini-2.5-flash");
/// ```
#[derive(Clone)]
pub struct AccessTokens(Arc<Inner>);

/// The source and the cached token, shared by all clones.
struct Inner {
    source: Source,
    /// Locked while a token is fetched, so that only one call fetches it.
    cached: Mutex<Option<CachedToken>>,
}

/// A token and the time from which it is no longer used.
struct CachedToken {
    token: Secret,
    until: Option<Instant>,
}

/// The future that a callback returns.
type TokenFuture = Pin<Box<dyn Future<Output = Result<AccessToken, ModelError>> + Send>>;

/// The origin of new tokens.
enum Source {
    /// A single token that cannot be renewed.
    Fixed,
    Callback(Box<dyn Fn() -> TokenFuture + Send + Sync>),
    Credentials(Credentials),
}

impl AccessTokens {
    /// Creates a source with a single token.
    ///
    /// A rejected token is not sent again: the next call fails as [`Auth`](ModelErrorKind::Auth),
    /// without a request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// # use levity_llm::AccessTokens;
    /// let tokens = AccessTokens::fixed("ya29.abc");
    /// assert_eq!(tokens.token().await?.expose(), "ya29.abc");
    /// # Ok(())
    /// # }
    /// ```
    pub fn fixed(token: impl Into<Secret>) -> Self {
        let cached = CachedToken {
            token: token.into(),
            until: None,
        };
        Self(Arc::new(Inner {
            source: Source::Fixed,
            cached: Mutex::new(Some(cached)),
        }))
    }

    /// Creates a source that calls `ask` whenever the last token has expired.
    ///
    /// Your function may be called from any task, but never twice at the same time. An error is not
    /// cached: the next call asks again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use levity_llm::{AccessToken, AccessTokens};
    ///
    /// let fetched = Arc::new(AtomicU32::new(0));
    /// let counter = fetched.clone();
    /// let tokens = AccessTokens::from_fn(move || {
    ///     counter.fetch_add(1, Ordering::Relaxed);
    ///     async { Ok(AccessToken::new("ya29.abc")) }
    /// });
    /// assert_eq!(tokens.token().await?.expose(), "ya29.abc");
    /// tokens.clone().token().await?;
    /// assert_eq!(fetched.load(Ordering::Relaxed), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_fn<F, R>(ask: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<AccessToken, ModelError>> + Send + 'static,
    {
        Self::of(Source::Callback(Box::new(move || Box::pin(ask()))))
    }

    /// Creates a source from a credentials file: that of `gcloud auth application-default login`,
    /// or the key of a service account. The file is read again whenever a token is needed.
    ///
    /// # Errors
    /// Returns [`Auth`](ModelErrorKind::Auth) if the file cannot be read or is not a credentials
    /// file.
    ///
    /// The file contains a secret that does not expire. Its content appears neither in errors nor
    /// in `Debug`. The file must be a regular file and is read up to 1 MiB.
    ///
    /// ```
    /// use levity_core::ModelErrorKind;
    /// use levity_llm::AccessTokens;
    ///
    /// let error = AccessTokens::from_file("/nowhere/credentials.json").unwrap_err();
    /// assert_eq!(error.kind(), ModelErrorKind::Auth);
    /// assert!(error.message().contains("gcloud auth application-default login"));
    /// ```
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Ok(Self::of(Source::Credentials(Credentials::read(
            path.as_ref(),
        )?)))
    }

    /// Creates a source from the application-default credentials: the file that
    /// `GOOGLE_APPLICATION_CREDENTIALS` names, or otherwise the one that
    /// `gcloud auth application-default login` writes.
    ///
    /// # Errors
    /// Returns [`Auth`](ModelErrorKind::Auth) if the file does not exist or cannot be used.
    ///
    /// ```no_run
    /// # fn open() -> Result<(), levity_core::ModelError> {
    /// use levity_llm::{AccessTokens, GeminiModel};
    ///
    /// let tokens = AccessTokens::from_env()?;
    /// let model = GeminiModel::vertex("my-project", "global", tokens, "gemini-2.5-flash");
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<Self, ModelError> {
        let path = credentials::default_path(|name| std::env::var_os(name), cfg!(windows));
        Self::from_file(path.ok_or_else(|| {
            let message =
                "the home directory is unknown; name a file in `GOOGLE_APPLICATION_CREDENTIALS`";
            ModelError::new(ModelErrorKind::Auth, message)
        })?)
    }

    /// Requests tokens from this server instead of the one in the credentials: a proxy, or a test
    /// server.
    ///
    /// Sources that have no token server (a fixed token, a function) stay unchanged.
    #[must_use]
    pub fn with_token_url(self, url: impl AsRef<str>) -> Self {
        match &self.0.source {
            Source::Credentials(known) => {
                Self::of(Source::Credentials(known.clone().with_url(url.as_ref())))
            }
            _ => self,
        }
    }

    /// Returns a valid token.
    ///
    /// # Errors
    /// Returns the error of the callback or of Google, or [`Auth`](ModelErrorKind::Auth) if a fixed
    /// token was rejected.
    ///
    /// Concurrent calls wait for one fetch. An error of the source is returned unchanged and not
    /// cached.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use levity_core::{ModelError, ModelErrorKind};
    /// use levity_llm::AccessTokens;
    ///
    /// let tokens = AccessTokens::from_fn(|| async {
    ///     Err(ModelError::new(ModelErrorKind::Auth, "the vault is sealed"))
    /// });
    /// assert_eq!(tokens.token().await.unwrap_err().message(), "the vault is sealed");
    /// # }
    /// ```
    pub async fn token(&self) -> Result<Secret, ModelError> {
        let mut cached = self.0.cached.lock().await;
        if let Some(known) = cached
            .as_ref()
            .filter(|known| known.until.is_none_or(|until| now() < until))
        {
            return Ok(known.token.clone());
        }
        *cached = None;
        let fresh = self.0.source.ask().await?;
        // A lifetime beyond the range of the clock means that the token is used until it is
        // rejected.
        let until = fresh
            .lifetime
            .and_then(|life| now().checked_add(life.saturating_sub(MARGIN.min(life / 2))));
        *cached = Some(CachedToken {
            token: fresh.token.clone(),
            until,
        });
        Ok(fresh.token)
    }

    /// Discards a rejected token, unless a newer one is cached already.
    pub(crate) async fn reject(&self, token: &str) {
        let mut cached = self.0.cached.lock().await;
        if cached
            .as_ref()
            .is_some_and(|known| known.token.expose() == token)
        {
            *cached = None;
        }
    }

    /// Returns the project that is billed, if the credentials name one.
    pub(crate) fn quota_project(&self) -> Option<&str> {
        match &self.0.source {
            Source::Credentials(credentials) => credentials.quota_project(),
            _ => None,
        }
    }

    /// Creates a source without a cached token.
    fn of(source: Source) -> Self {
        Self(Arc::new(Inner {
            source,
            cached: Mutex::new(None),
        }))
    }
}

impl Source {
    /// Fetches a new token.
    async fn ask(&self) -> Result<AccessToken, ModelError> {
        match self {
            Self::Fixed => {
                let message = "the server rejected the access token; provide another one, or use \
                               `AccessTokens::from_fn`";
                Err(ModelError::new(ModelErrorKind::Auth, message))
            }
            Self::Callback(ask) => ask().await,
            Self::Credentials(credentials) => credentials.fetch().await,
        }
    }
}

impl From<Secret> for AccessTokens {
    fn from(token: Secret) -> Self {
        Self::fixed(token)
    }
}

impl From<&str> for AccessTokens {
    fn from(token: &str) -> Self {
        Self::fixed(token)
    }
}

impl From<String> for AccessTokens {
    fn from(token: String) -> Self {
        Self::fixed(token)
    }
}

impl fmt::Debug for AccessTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.0.source {
            Source::Fixed => "fixed",
            Source::Callback(_) => "asked for",
            Source::Credentials(_) => "by credentials",
        };
        write!(f, "AccessTokens({source})")
    }
}

/// Returns the current time of tokio's clock, which tests can pause.
#[expect(
    clippy::disallowed_methods,
    reason = "the expiry of a token depends on the real clock"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests;
