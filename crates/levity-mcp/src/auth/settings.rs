use std::fmt;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::browser::Browser;
use super::secret::Secret;
use super::store::{MemoryTokens, TokenStore};

/// How to log in to a server that asks for OAuth.
///
/// Without a client id, one is got from the server's authorization server. Without a [`Browser`],
/// only grants that need nobody work: [`client_credentials`](Self::client_credentials),
/// [`enterprise`](Self::enterprise) and [`workload_identity`](Self::workload_identity).
///
/// ```
/// use levity_mcp::{FileTokens, Loopback, OAuth, ServerConfig};
///
/// # fn main() -> std::io::Result<()> {
/// let browser = Loopback::bind(|url| println!("log in at {url}"))?;
/// let oauth = OAuth::new().client_name("my agent").browser(browser).store(FileTokens::new("tokens.json"));
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
    pub(crate) enterprise: Option<Enterprise>,
    pub(crate) workload: Option<Arc<dyn Identity>>,
    pub(crate) browser: Option<Arc<dyn Browser>>,
    pub(crate) store: Arc<dyn TokenStore>,
    pub(crate) login_limit: Duration,
}

impl OAuth {
    /// Registers itself where it has to, and keeps tokens in memory.
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
            store: Arc::new(MemoryTokens::new()),
            login_limit: Duration::from_secs(300),
        }
    }

    /// The name that a person reads on the login page; `levity` by default.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Asks for these scopes instead of those that the server names; more are added when the server
    /// asks for more.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// The id of a client that was registered beforehand.
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = Some(id.into());
        self
    }

    /// The secret of that client.
    ///
    /// It is sent to one authorization server only: the one that [`issuer`](Self::issuer) names, or
    /// else the first that the server led to, which is kept in the [`TokenStore`]. A server that
    /// leads to another one later is refused.
    pub fn client_secret(mut self, secret: impl Into<String>) -> Self {
        self.client_secret = Some(Secret::new(secret));
        self
    }

    /// The private key of that client, instead of a secret: PEM with PKCS#8, of the curve P-256
    /// (signs with ES256) or of RSA (signs with RS256).
    pub fn client_key(mut self, pem: impl Into<String>) -> Self {
        self.client_key = Some(Secret::new(pem));
        self
    }

    /// The authorization server to log in at, by its issuer: the address at which the client was
    /// registered. A server that leads to another one is refused, so that it gets neither the
    /// secret of the client nor a person's login.
    pub fn issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    /// Where a metadata document of this client can be read. Where the authorization server takes
    /// such an address as a client id, it is used instead of a registration.
    pub fn client_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.metadata_url = Some(url.into());
        self
    }

    /// Logs in as the client itself, with its secret or its key, and asks nobody. It is done
    /// without this setting too, where the authorization server offers client credentials and no
    /// login by a person.
    pub fn client_credentials(mut self) -> Self {
        self.machine = true;
        self
    }

    /// Logs in by what a company's identity provider says of the person, and asks nobody.
    pub fn enterprise(mut self, enterprise: Enterprise) -> Self {
        self.enterprise = Some(enterprise);
        self
    }

    /// Logs in by a JWT that the platform issues to this workload (RFC 7523), and asks nobody: the
    /// service account token of a Kubernetes pod, the OIDC token of a CI job. [`TokenFile`] reads
    /// it from a file.
    ///
    /// The JWT is sent only to an authorization server that its `aud` claim names, so a hostile
    /// server cannot collect it.
    pub fn workload_identity(mut self, identity: impl Identity + 'static) -> Self {
        self.workload = Some(Arc::new(identity));
        self
    }

    /// Sets what shows the login page to a person.
    pub fn browser(mut self, browser: impl Browser + 'static) -> Self {
        self.browser = Some(Arc::new(browser));
        self
    }

    /// Sets where tokens are kept; in memory by default.
    pub fn store(mut self, store: impl TokenStore + 'static) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// How long a person may take to log in; 300 s by default.
    pub fn login_limit(mut self, limit: Duration) -> Self {
        self.login_limit = limit;
        self
    }
}

impl OAuth {
    /// The settings that must not be shown.
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

/// Access that a company manages: its identity provider vouches for the person, and the server's
/// authorization server takes its word (cross-app access).
///
/// The client's id and secret, or key, at the server's authorization server are set on [`OAuth`].
#[derive(Clone)]
pub struct Enterprise {
    pub(crate) token_endpoint: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<Secret>,
    pub(crate) identity: Arc<dyn Identity>,
}

impl Enterprise {
    /// The identity provider's token endpoint, the client's id there, and what gives the person's
    /// ID token.
    pub fn new(
        token_endpoint: impl Into<String>,
        client_id: impl Into<String>,
        identity: impl Identity + 'static,
    ) -> Self {
        Self {
            token_endpoint: token_endpoint.into(),
            client_id: client_id.into(),
            client_secret: None,
            identity: Arc::new(identity),
        }
    }

    /// The client's secret at the identity provider.
    #[must_use]
    pub fn client_secret(mut self, secret: impl Into<String>) -> Self {
        self.client_secret = Some(Secret::new(secret));
        self
    }
}

impl fmt::Debug for Enterprise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Enterprise");
        debug
            .field("token_endpoint", &self.token_endpoint)
            .field("client_id", &self.client_id);
        debug.finish_non_exhaustive()
    }
}

/// A source of signed identity tokens: of a person, issued by the company's identity provider, or
/// of a workload, issued by its platform.
///
/// A `String` is a token that stays the same.
#[async_trait]
pub trait Identity: Send + Sync {
    /// Returns an identity token (a JWT) that is valid now.
    async fn id_token(&self) -> io::Result<String>;
}

#[async_trait]
impl Identity for String {
    async fn id_token(&self) -> io::Result<String> {
        Ok(self.clone())
    }
}

/// The longest token file that is read.
const LONGEST_TOKEN: u64 = 64 << 10;

/// An identity token in a file that the platform replaces before it expires, such as a Kubernetes
/// service account token.
///
/// The file is read anew for each login.
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
    /// Reads the token from the file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

#[async_trait]
impl Identity for TokenFile {
    async fn id_token(&self) -> io::Result<String> {
        // A small file that the platform keeps in memory.
        let mut text = String::new();
        std::fs::File::open(&self.path)?
            .take(LONGEST_TOKEN)
            .read_to_string(&mut text)?;
        Ok(text.trim().to_owned())
    }
}
