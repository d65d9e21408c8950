//! The settings of a login, and the sources of identity tokens.
//!
//! The setters only store values. Contradictions and missing values are found at the login, when
//! the authorization server's abilities are known, and their errors name the setter that is
//! missing.

use std::fmt;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::browser::Browser;
use super::secret::Secret;
use super::store::{MemoryTokenStore, TokenStore};

/// The login settings of a server that requires OAuth.
///
/// Without a client id, levity obtains one from the authorization server. Without a [`Browser`],
/// only grants without interaction work: [`client_credentials`](Self::client_credentials),
/// [`enterprise`](Self::enterprise) and [`workload_identity`](Self::workload_identity).
///
/// ```
/// use levity_mcp::{FileTokenStore, LoopbackBrowser, OAuth, ServerConfig};
///
/// # fn main() -> std::io::Result<()> {
/// let browser = LoopbackBrowser::bind(|url| println!("log in at {url}"))?;
/// let oauth = OAuth::new()
///     .client_name("my agent")
///     .browser(browser)
///     .store(FileTokenStore::new("tokens.json"));
/// let tracker = ServerConfig::http("tracker", "https://tracker.example/mcp").oauth(oauth);
/// # let _ = tracker;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct OAuth {
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) client_id: Option<String>,
    pub(crate) client_secret: Option<Secret>,
    pub(crate) client_key: Option<Secret>,
    pub(crate) issuer: Option<String>,
    pub(crate) metadata_url: Option<String>,
    pub(crate) machine: bool,
    pub(crate) enterprise: Option<EnterpriseLogin>,
    pub(crate) workload: Option<Arc<dyn IdentityTokenSource>>,
    pub(crate) browser: Option<Arc<dyn Browser>>,
    pub(crate) store: Arc<dyn TokenStore>,
    pub(crate) login_limit: Duration,
}

impl OAuth {
    /// Creates settings with automatic registration and with tokens in memory.
    pub fn new() -> Self {
        Self {
            name: "levity".to_owned(),
            scopes: Vec::new(),
            client_id: None,
            client_secret: None,
            client_key: None,
            issuer: None,
            metadata_url: None,
            machine: false,
            enterprise: None,
            workload: None,
            browser: None,
            store: Arc::new(MemoryTokenStore::new()),
            login_limit: Duration::from_secs(300),
        }
    }

    /// Sets the client's name on the login page; `levity` by default.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the scopes to request, in place of those that the server names. levity adds more when
    /// the server requires more.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Sets the id of a client that is already registered.
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = Some(id.into());
        self
    }

    /// Sets the secret of that client.
    ///
    /// The secret is sent to one authorization server only: the one that [`issuer`](Self::issuer)
    /// names, or otherwise the first that the server named, which is stored in the [`TokenStore`].
    /// levity rejects a server that names another one later.
    ///
    /// ```
    /// use levity_mcp::OAuth;
    ///
    /// let oauth = OAuth::new()
    ///     .client_id("agent-7")
    ///     .client_secret("hush-hush")
    ///     .issuer("https://login.example")
    ///     .client_credentials();
    /// assert!(!format!("{oauth:?}").contains("hush"), "secrets are not shown");
    /// ```
    pub fn client_secret(mut self, secret: impl Into<String>) -> Self {
        self.client_secret = Some(Secret::new(secret));
        self
    }

    /// Sets the private key of that client, in place of a secret: PEM with PKCS#8, of the curve
    /// P-256 (signs with ES256) or of RSA (signs with RS256).
    pub fn client_key(mut self, pem: impl Into<String>) -> Self {
        self.client_key = Some(Secret::new(pem));
        self
    }

    /// Sets the authorization server to log in at, by its issuer: the URL at which the client was
    /// registered. levity rejects a server that names another one, so that it gets neither the
    /// client secret nor a person's login.
    pub fn issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    /// Sets the URL of a metadata document of this client. If the authorization server supports
    /// such a URL as a client id, it replaces a registration.
    pub fn client_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.metadata_url = Some(url.into());
        self
    }

    /// Logs in as the client itself, with its secret or its key, without interaction. levity does
    /// this without the setting too, if the authorization server offers client credentials and no
    /// login by a person.
    pub fn client_credentials(mut self) -> Self {
        self.machine = true;
        self
    }

    /// Logs in with an assertion of a company's identity provider, without interaction.
    pub fn enterprise(mut self, enterprise: EnterpriseLogin) -> Self {
        self.enterprise = Some(enterprise);
        self
    }

    /// Logs in with a JWT that the platform issues to this workload (RFC 7523), without
    /// interaction: the service account token of a Kubernetes pod, or the OIDC token of a CI job.
    /// Use [`TokenFile`] to read it from a file.
    ///
    /// The JWT is sent only to an authorization server in its `aud` claim, so a hostile server
    /// cannot collect it.
    pub fn workload_identity(mut self, identity: impl IdentityTokenSource + 'static) -> Self {
        self.workload = Some(Arc::new(identity));
        self
    }

    /// Sets the way to show the login page to a person.
    pub fn browser(mut self, browser: impl Browser + 'static) -> Self {
        self.browser = Some(Arc::new(browser));
        self
    }

    /// Sets the store of tokens; in memory by default.
    ///
    /// Share one store between servers with an `Arc`; each server has keys of its own.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use levity_mcp::{MemoryTokenStore, OAuth};
    ///
    /// let store = Arc::new(MemoryTokenStore::new());
    /// let (mail, files) = (OAuth::new().store(store.clone()), OAuth::new().store(store));
    /// # let _ = (mail, files);
    /// ```
    pub fn store(mut self, store: impl TokenStore + 'static) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Sets the timeout for a person to log in; 300 s by default.
    pub fn login_timeout(mut self, limit: Duration) -> Self {
        self.login_limit = limit;
        self
    }
}

impl OAuth {
    /// Returns the settings that are secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let enterprise = self
            .enterprise
            .as_ref()
            .and_then(|enterprise| enterprise.client_secret.as_ref());
        let all = [
            self.client_secret.as_ref(),
            self.client_key.as_ref(),
            enterprise,
        ];
        all.into_iter().flatten().map(Secret::expose)
    }
}

impl Default for OAuth {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("OAuth");
        debug
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .field("client_id", &self.client_id);
        debug.field("issuer", &self.issuer);
        debug
            .field("machine", &self.machine)
            .field("enterprise", &self.enterprise);
        debug.field("workload", &self.workload.is_some());
        debug
            .field("browser", &self.browser.is_some())
            .finish_non_exhaustive()
    }
}

/// The settings of access that a company manages: its identity provider vouches for the person, and
/// the server's authorization server accepts that (cross-app access).
///
/// Set the client's id and secret, or key, at the server's authorization server on [`OAuth`].
///
/// ```
/// use levity_mcp::{EnterpriseLogin, OAuth};
///
/// let id_token = "eyJhbGciOi..".to_owned();
/// let company = EnterpriseLogin::new("https://idp.example/token", "agent", id_token);
/// let oauth = OAuth::new().client_id("agent-at-server").enterprise(company);
/// assert!(!format!("{oauth:?}").contains("eyJ"), "tokens are not shown");
/// ```
#[derive(Clone)]
pub struct EnterpriseLogin {
    pub(crate) token_endpoint: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<Secret>,
    pub(crate) identity: Arc<dyn IdentityTokenSource>,
}

impl EnterpriseLogin {
    /// Creates the settings with the identity provider's token endpoint, the client's id there, and
    /// the source of the person's ID token.
    pub fn new(
        token_endpoint: impl Into<String>,
        client_id: impl Into<String>,
        identity: impl IdentityTokenSource + 'static,
    ) -> Self {
        Self {
            token_endpoint: token_endpoint.into(),
            client_id: client_id.into(),
            client_secret: None,
            identity: Arc::new(identity),
        }
    }

    /// Sets the client's secret at the identity provider.
    #[must_use]
    pub fn client_secret(mut self, secret: impl Into<String>) -> Self {
        self.client_secret = Some(Secret::new(secret));
        self
    }
}

impl fmt::Debug for EnterpriseLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("EnterpriseLogin");
        debug
            .field("token_endpoint", &self.token_endpoint)
            .field("client_id", &self.client_id);
        debug.finish_non_exhaustive()
    }
}

/// A source of signed identity tokens: of a person, issued by the company's identity provider, or
/// of a workload, issued by its platform.
///
/// A `String` is a constant token.
///
/// # Contract
/// - The token is valid at the moment of the call. levity asks again for each request that needs
///   it, and does not cache it.
/// - An error counts as temporary: levity retries the login later. It does not repeat the text of
///   the error.
///
/// ```
/// use async_trait::async_trait;
/// use levity_mcp::IdentityTokenSource;
/// use std::io;
///
/// struct Variable(&'static str);
///
/// #[async_trait]
/// impl IdentityTokenSource for Variable {
///     async fn id_token(&self) -> io::Result<String> {
///         std::env::var(self.0).map_err(|_| io::ErrorKind::NotFound.into())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert!(Variable("NO_SUCH_VARIABLE_IS_SET").id_token().await.is_err());
/// # }
/// ```
#[async_trait]
pub trait IdentityTokenSource: Send + Sync {
    /// Returns an identity token (a JWT) that is valid now.
    async fn id_token(&self) -> io::Result<String>;
}

#[async_trait]
impl IdentityTokenSource for String {
    async fn id_token(&self) -> io::Result<String> {
        Ok(self.clone())
    }
}

/// The maximum size of a token file.
const MAX_TOKEN_FILE: u64 = 64 << 10;

/// An identity token in a file that the platform replaces before it expires, such as a Kubernetes
/// service account token.
///
/// The file is read for each login.
///
/// ```
/// use levity_mcp::{OAuth, TokenFile};
///
/// let oauth = OAuth::new().workload_identity(TokenFile::new("/var/run/secrets/tokens/mcp"));
/// # let _ = oauth;
/// ```
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// Creates a source that reads the file at `path`.
    ///
    /// Reading fails for a file over 64 KiB; spaces around the token are removed.
    ///
    /// ```
    /// use levity_mcp::{IdentityTokenSource as _, TokenFile};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("token");
    /// std::fs::write(&path, "eyJhbGciOi..\n")?;
    /// assert_eq!(TokenFile::new(path).id_token().await?, "eyJhbGciOi..");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

#[async_trait]
impl IdentityTokenSource for TokenFile {
    async fn id_token(&self) -> io::Result<String> {
        // The platform keeps this small file in memory, so a blocking read is acceptable.
        let mut text = String::new();
        std::fs::File::open(&self.path)?
            .take(MAX_TOKEN_FILE + 1)
            .read_to_string(&mut text)?;
        if text.len() as u64 > MAX_TOKEN_FILE {
            return Err(io::Error::other(format!(
                "`{}` is larger than {} KiB, so it is not a token",
                self.path.display(),
                MAX_TOKEN_FILE >> 10
            )));
        }
        Ok(text.trim().to_owned())
    }
}
