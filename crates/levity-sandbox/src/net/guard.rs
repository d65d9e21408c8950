//! The rules of a guard, and their application to a URL.
//!
//! The checks run in a fixed order: length and control characters, scheme, credentials, host, port.
//! Afterwards the host in the URL is replaced by its canonical form, so that no later parser reads
//! it differently: `https://0x7f.1/` is checked, and would be sent, as `https://127.0.0.1/`.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use url::{Host, Url};

use super::address::{Cidr, refusal_reason};
use super::builder::NetGuardBuilder;
use super::client::GuardedClient;
use super::error::{AddressError, NetError};
use super::host::{Pattern, is_local, normalize};
use super::resolve::AddressResolver;

/// The maximum length of a URL.
const MAX_URL: usize = 8 * 1024;

/// Rules that decide which addresses can be reached. Cloning is cheap.
///
/// The default allows `https` on port 443, to public addresses, under public names.
///
/// ```
/// use levity_sandbox::{AddressError, NetGuard};
///
/// let guard = NetGuard::default();
/// assert!(guard.check_url("https://example.org/page").is_ok());
/// assert_eq!(guard.check_url("http://example.org/"), Err(AddressError::Http));
/// assert!(guard.check_url("https://0x7f.1/").is_err());
/// ```
#[derive(Clone)]
pub struct NetGuard(Arc<Rules>);

/// An empty list of allowed hosts allows all public ones.
pub(super) struct Rules {
    pub(super) http: bool,
    pub(super) ports: Vec<u16>,
    pub(super) allowed: Vec<Pattern>,
    pub(super) denied: Vec<Pattern>,
    pub(super) addresses: Vec<Cidr>,
    pub(super) time_limit: Duration,
    pub(super) max_redirects: usize,
    pub(super) user_agent: String,
    pub(super) resolver: Arc<dyn AddressResolver>,
}

impl NetGuard {
    /// Returns a builder for a guard with other settings.
    pub fn builder() -> NetGuardBuilder {
        NetGuardBuilder::default()
    }

    pub(super) fn from_rules(rules: Rules) -> Self {
        Self(Arc::new(rules))
    }

    /// Checks a URL against the rules. A name in it is not resolved: its addresses are resolved and
    /// checked when the client connects.
    ///
    /// White space around the URL is ignored. A URL may have at most 8 KiB.
    ///
    /// ```
    /// use levity_sandbox::NetGuard;
    ///
    /// let url = NetGuard::default().check_url(" https://EXAMPLE.org./a?b=1#part ")?;
    /// assert_eq!(url.as_str(), "https://example.org/a?b=1");
    /// # Ok::<(), levity_sandbox::AddressError>(())
    /// ```
    ///
    /// # Errors
    /// Returns the rule that the URL violates.
    pub fn check_url(&self, url: &str) -> Result<CheckedUrl, AddressError> {
        // The parser drops line breaks and tabs, which a legitimate URL does not contain.
        if url.len() > MAX_URL || url.trim().chars().any(char::is_control) {
            return Err(AddressError::NotAUrl);
        }
        self.check(Url::parse(url.trim()).map_err(parse_error)?)
    }

    /// Checks the target of a redirect from `from`: an absolute or a relative URL.
    ///
    /// ```
    /// use levity_sandbox::{AddressError, NetGuard};
    ///
    /// let guard = NetGuard::default();
    /// let from = guard.check_url("https://example.org/a/b")?;
    /// assert_eq!(guard.check_redirect(&from, "../c")?.as_str(), "https://example.org/c");
    /// let refused = guard.check_redirect(&from, "http://example.org/").unwrap_err();
    /// assert_eq!(refused, AddressError::Redirect(Box::new(AddressError::Http)));
    /// # Ok::<(), levity_sandbox::AddressError>(())
    /// ```
    ///
    /// # Errors
    /// Returns the rule that the target violates, as [`AddressError::Redirect`].
    pub fn check_redirect(
        &self,
        from: &CheckedUrl,
        location: &str,
    ) -> Result<CheckedUrl, AddressError> {
        let check = || {
            if location.len() > MAX_URL || location.chars().any(char::is_control) {
                return Err(AddressError::NotAUrl);
            }
            self.check(from.0.join(location).map_err(parse_error)?)
        };
        check().map_err(|error| AddressError::Redirect(Box::new(error)))
    }

    /// Creates a client that connects only to addresses that this guard allows.
    ///
    /// A client opens a new connection for each request and stores nothing, so one client may be
    /// used from several runtimes.
    ///
    /// # Errors
    /// Returns an error if the client cannot be created, for example because the system has no
    /// certificates.
    pub fn client(&self) -> Result<GuardedClient, NetError> {
        GuardedClient::new(self.clone())
    }

    /// Returns the time limit of a request, with its redirects and its body.
    pub fn time_limit(&self) -> Duration {
        self.0.time_limit
    }

    /// Returns the maximum number of redirects.
    pub fn max_redirects(&self) -> usize {
        self.0.max_redirects
    }

    pub(super) fn user_agent(&self) -> &str {
        &self.0.user_agent
    }

    pub(super) fn resolver(&self) -> &dyn AddressResolver {
        &*self.0.resolver
    }

    fn check(&self, mut url: Url) -> Result<CheckedUrl, AddressError> {
        match url.scheme() {
            "https" => {}
            "http" if self.0.http => {}
            "http" => return Err(AddressError::Http),
            other => return Err(AddressError::Scheme(other.chars().take(32).collect())),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressError::Credentials);
        }
        let host = self.check_host(&url)?;
        let port = url.port_or_known_default().unwrap_or(0);
        let usual = port == 443 || (port == 80 && self.0.http);
        if !usual && !self.0.ports.contains(&port) {
            return Err(AddressError::Port(port));
        }
        // From here on, no code can interpret the host differently from the check.
        url.set_host(Some(&host))
            .map_err(|_| AddressError::InvalidHost)?;
        url.set_fragment(None);
        Ok(CheckedUrl(url))
    }

    /// Returns the canonical host. Lists of hosts are checked first, then local names, and an
    /// address at the end: an allowed host with a private address stays refused.
    fn check_host(&self, url: &Url) -> Result<String, AddressError> {
        let host = url.host().ok_or(AddressError::InvalidHost)?;
        let name = normalize(&host).ok_or(AddressError::InvalidHost)?;
        let found = |list: &[Pattern]| list.iter().any(|pattern| pattern.matches(&name));
        let allowed = self.0.allowed.is_empty() || found(&self.0.allowed);
        if !allowed || found(&self.0.denied) {
            return Err(AddressError::Denied(name));
        }
        let by_name = self
            .0
            .allowed
            .iter()
            .any(|one| *one != Pattern::Any && one.matches(&name));
        match host {
            Host::Domain(_) if is_local(&name) && !by_name => {
                return Err(AddressError::LocalName(name));
            }
            Host::Domain(_) => {}
            Host::Ipv4(address) => self.check_address(&name, address.into())?,
            Host::Ipv6(address) => self.check_address(&name, address.into())?,
        }
        Ok(name)
    }

    /// `host` appears in the error. Allowed ranges take precedence over the list of refused ones.
    pub(super) fn check_address(&self, host: &str, address: IpAddr) -> Result<(), AddressError> {
        if self.0.addresses.iter().any(|range| range.contains(address)) {
            return Ok(());
        }
        match refusal_reason(address) {
            Some(range) => Err(AddressError::Address {
                host: host.to_owned(),
                range,
            }),
            None => Ok(()),
        }
    }
}

fn parse_error(error: url::ParseError) -> AddressError {
    match error {
        url::ParseError::RelativeUrlWithoutBase => AddressError::NotAUrl,
        _ => AddressError::InvalidHost,
    }
}

impl Default for NetGuard {
    fn default() -> Self {
        Self::from_rules(NetGuardBuilder::default().rules)
    }
}

impl fmt::Debug for NetGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NetGuard");
        shown.field("http", &self.http).field("ports", &self.ports);
        shown
            .field("allowed", &self.allowed)
            .field("denied", &self.denied);
        shown
            .field("addresses", &self.addresses)
            .field("time_limit", &self.time_limit);
        shown
            .field("max_redirects", &self.max_redirects)
            .finish_non_exhaustive()
    }
}

/// A URL that a [`NetGuard`] has checked, in its canonical form: without a fragment, its host in
/// ASCII.
///
/// ```
/// use levity_sandbox::NetGuard;
///
/// let url = NetGuard::default().check_url("https://bücher.example/new")?;
/// assert_eq!(url.host(), "xn--bcher-kva.example");
/// assert_eq!((url.port(), url.to_string().as_str()), (443, "https://xn--bcher-kva.example/new"));
/// # Ok::<(), levity_sandbox::AddressError>(())
/// ```
///
/// Only a guard creates one, so a function that takes a `CheckedUrl` cannot be called with an
/// unchecked text. The check covers the text; the addresses of the name are checked when the client
/// connects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckedUrl(pub(super) Url);

impl CheckedUrl {
    /// Returns the URL as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the host: a name in ASCII, or an address.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// Returns the port, whether the URL states it or not.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    pub(super) fn same_origin(&self, other: &Self) -> bool {
        self.0.origin() == other.0.origin()
    }
}

impl fmt::Display for CheckedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
