//! Who asks, for Vertex AI: access tokens that run out.

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

/// How long before its end a token is no longer used.
const MARGIN: Duration = Duration::from_secs(60);

/// An access token of Google Cloud, and how long it lives.
///
/// ```
/// # use std::time::Duration;
/// # use levity_llm::AccessToken;
/// let token = AccessToken::new("ya29.abc").with_lifetime(Duration::from_secs(3600));
/// assert!(!format!("{token:?}").contains("ya29"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AccessToken {
    /// The token.
    pub token: Secret,
    /// How long it can be used from now on; unset, until it is refused.
    pub lifetime: Option<Duration>,
}

impl AccessToken {
    /// A token that can be used until it is refused.
    pub fn new(token: impl Into<Secret>) -> Self {
        Self {
            token: token.into(),
            lifetime: None,
        }
    }

    /// Sets how long it can be used from now on.
    #[must_use]
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }
}

/// Where access tokens come from. Clones share one token.
///
/// A token is kept until a minute before its end. Then a new one is asked for, once, however many
/// calls wait for it. A token that the server refuses (401) is not sent again.
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

struct Inner {
    source: Source,
    /// Held while a token is asked for, so that nobody else asks.
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    token: Secret,
    until: Option<Instant>,
}

type Asked = Pin<Box<dyn Future<Output = Result<AccessToken, ModelError>> + Send>>;

enum Source {
    /// There was one, and there is no other.
    Fixed,
    Ask(Box<dyn Fn() -> Asked + Send + Sync>),
    Credentials(Credentials),
}

impl AccessTokens {
    /// One token and no other.
    pub fn fixed(token: impl Into<Secret>) -> Self {
        let kept = Kept {
            token: token.into(),
            until: None,
        };
        Self(Arc::new(Inner {
            source: Source::Fixed,
            kept: Mutex::new(Some(kept)),
        }))
    }

    /// Asks `ask` whenever a token is needed and the last one is at its end.
    pub fn from_fn<F, R>(ask: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<AccessToken, ModelError>> + Send + 'static,
    {
        Self::of(Source::Ask(Box::new(move || Box::pin(ask()))))
    }

    /// Credentials in a file: those of `gcloud auth application-default login`, or the key of a
    /// service account. The file is read again whenever a token is needed.
    ///
    /// # Errors
    /// [`Auth`](ModelErrorKind::Auth) when the file cannot be read, or holds something else.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Ok(Self::of(Source::Credentials(Credentials::read(
            path.as_ref(),
        )?)))
    }

    /// The application-default credentials: the file that `GOOGLE_APPLICATION_CREDENTIALS` names,
    /// or else the one that `gcloud auth application-default login` writes.
    ///
    /// # Errors
    /// [`Auth`](ModelErrorKind::Auth) when there is no such file, or it cannot be used.
    pub fn from_env() -> Result<Self, ModelError> {
        let place = credentials::place(|name| std::env::var_os(name), cfg!(windows));
        Self::from_file(place.ok_or_else(|| {
            let message =
                "no home directory is known: name a file in `GOOGLE_APPLICATION_CREDENTIALS`";
            ModelError::new(ModelErrorKind::Auth, message)
        })?)
    }

    /// Asks this server for tokens, in place of the one that the credentials name: a proxy, or a
    /// test's own.
    #[must_use]
    pub fn with_token_url(self, url: impl AsRef<str>) -> Self {
        match &self.0.source {
            Source::Credentials(known) => {
                Self::of(Source::Credentials(known.clone().with_url(url.as_ref())))
            }
            _ => self,
        }
    }

    /// A token that can be used now.
    ///
    /// # Errors
    /// What the callback or Google said, or [`Auth`](ModelErrorKind::Auth) when a fixed token was
    /// refused before.
    pub async fn token(&self) -> Result<Secret, ModelError> {
        let mut kept = self.0.kept.lock().await;
        if let Some(known) = kept
            .as_ref()
            .filter(|known| known.until.is_none_or(|until| now() < until))
        {
            return Ok(known.token.clone());
        }
        *kept = None;
        let fresh = self.0.source.ask().await?;
        // What lives longer than the clock can tell is used until it is refused.
        let until = fresh
            .lifetime
            .and_then(|life| now().checked_add(life.saturating_sub(MARGIN.min(life / 2))));
        *kept = Some(Kept {
            token: fresh.token.clone(),
            until,
        });
        Ok(fresh.token)
    }

    /// Forgets a token that was refused, unless there is another one already.
    pub(crate) async fn refused(&self, token: &str) {
        let mut kept = self.0.kept.lock().await;
        if kept
            .as_ref()
            .is_some_and(|known| known.token.expose() == token)
        {
            *kept = None;
        }
    }

    /// The project that is billed, where the credentials name one.
    pub(crate) fn quota_project(&self) -> Option<&str> {
        match &self.0.source {
            Source::Credentials(credentials) => credentials.quota_project(),
            _ => None,
        }
    }

    fn of(source: Source) -> Self {
        Self(Arc::new(Inner {
            source,
            kept: Mutex::new(None),
        }))
    }
}

impl Source {
    async fn ask(&self) -> Result<AccessToken, ModelError> {
        match self {
            Self::Fixed => {
                let message = "the server has refused the access token; give another one, or let \
                               `AccessTokens::from_fn` ask for it";
                Err(ModelError::new(ModelErrorKind::Auth, message))
            }
            Self::Ask(ask) => ask().await,
            Self::Credentials(credentials) => credentials.ask().await,
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
            Source::Ask(_) => "asked for",
            Source::Credentials(_) => "by credentials",
        };
        write!(f, "AccessTokens({source})")
    }
}

#[expect(clippy::disallowed_methods, reason = "a token lives by the real clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests;
