//! Settings of a guard.
//!
//! Setters cannot fail, so the first invalid pattern is recorded and reported by `build`.

use std::sync::Arc;
use std::time::Duration;

use super::error::NetError;
use super::guard::{NetGuard, Rules};
use super::host::Pattern;
use super::resolve::{AddressResolver, SystemResolver};

/// A builder for a [`NetGuard`].
///
/// ```
/// use std::time::Duration;
/// use levity_sandbox::{AddressError, NetGuard};
///
/// let guard = NetGuard::builder()
///     .allow_host("*.example.org")
///     .deny_host("private.example.org")
///     .time_limit(Duration::from_secs(10))
///     .max_redirects(2)
///     .build()?;
/// assert!(guard.check_url("https://docs.example.org/").is_ok());
/// let denied = guard.check_url("https://private.example.org/").unwrap_err();
/// assert_eq!(denied, AddressError::Denied("private.example.org".into()));
/// assert!(guard.check_url("https://example.com/").is_err());
/// # Ok::<(), levity_sandbox::NetError>(())
/// ```
#[must_use]
#[derive(Debug)]
pub struct NetGuardBuilder {
    pub(super) rules: Rules,
    problem: Option<(&'static str, String)>,
}

impl Default for NetGuardBuilder {
    fn default() -> Self {
        let rules = Rules {
            http: false,
            ports: Vec::new(),
            allowed: Vec::new(),
            denied: Vec::new(),
            addresses: Vec::new(),
            time_limit: Duration::from_secs(30),
            max_redirects: 5,
            user_agent: concat!("levity/", env!("CARGO_PKG_VERSION")).to_owned(),
            resolver: Arc::new(SystemResolver),
        };
        Self {
            rules,
            problem: None,
        }
    }
}

impl NetGuardBuilder {
    /// Allows plain `http`, and port 80.
    ///
    /// ```
    /// # use levity_sandbox::NetGuard;
    /// let guard = NetGuard::builder().allow_http().build()?;
    /// assert_eq!(guard.check_url("http://example.org/")?.port(), 80);
    /// # Ok::<(), levity_sandbox::NetError>(())
    /// ```
    pub fn allow_http(mut self) -> Self {
        self.rules.http = true;
        self
    }

    /// Allows an additional port.
    ///
    /// The port is allowed for every host; combine it with [`allow_host`](Self::allow_host).
    ///
    /// ```
    /// # use levity_sandbox::{AddressError, NetGuard};
    /// let guard = NetGuard::builder().allow_port(8443).build()?;
    /// assert!(guard.check_url("https://example.org:8443/").is_ok());
    /// assert_eq!(guard.check_url("https://example.org:22/"), Err(AddressError::Port(22)));
    /// # Ok::<(), levity_sandbox::NetError>(())
    /// ```
    pub fn allow_port(mut self, port: u16) -> Self {
        self.rules.ports.push(port);
        self
    }

    /// Allows this host and denies every host that is not allowed in this way: `example.org`, or
    /// `*.example.org` for all names below it.
    ///
    /// A local name can be reached if you name it, or its suffix, here. `*` matches every host that
    /// would be allowed anyway. The addresses of a name are checked in every case: see
    /// [`allow_address`](Self::allow_address).
    ///
    /// ```
    /// # use levity_sandbox::NetGuard;
    /// let guard = NetGuard::builder().allow_host("*.example.org").build()?;
    /// assert!(guard.check_url("https://www.example.org/").is_ok());
    /// // The pattern does not match the name itself.
    /// assert!(guard.check_url("https://example.org/").is_err());
    /// assert!(NetGuard::builder().allow_host("https://example.org").build().is_err());
    /// # Ok::<(), levity_sandbox::NetError>(())
    /// ```
    pub fn allow_host(mut self, pattern: impl AsRef<str>) -> Self {
        match Pattern::parse(pattern.as_ref()) {
            Some(pattern) => self.rules.allowed.push(pattern),
            None => self.problem("allow_host", pattern.as_ref(), "a host, or `*.` and a name"),
        }
        self
    }

    /// Denies this host, even if another rule allows it: `example.org`, or `*.example.org` for all
    /// names below it.
    pub fn deny_host(mut self, pattern: impl AsRef<str>) -> Self {
        match Pattern::parse(pattern.as_ref()) {
            Some(pattern) => self.rules.denied.push(pattern),
            None => self.problem("deny_host", pattern.as_ref(), "a host, or `*.` and a name"),
        }
        self
    }

    /// Allows addresses that are not public, as an address or a range: `10.1.0.0/16`, `fd00::/8`.
    ///
    /// Everything in the range is then within a model's reach, so keep the range small.
    ///
    /// ```
    /// # use levity_sandbox::NetGuard;
    /// let guard = NetGuard::builder().allow_address("10.1.0.0/16").build()?;
    /// assert!(guard.check_url("https://10.1.2.3/").is_ok());
    /// assert!(guard.check_url("https://10.2.0.1/").is_err());
    /// # Ok::<(), levity_sandbox::NetError>(())
    /// ```
    pub fn allow_address(mut self, range: impl AsRef<str>) -> Self {
        match range.as_ref().parse() {
            Ok(range) => self.rules.addresses.push(range),
            Err(()) => {
                self.problem(
                    "allow_address",
                    range.as_ref(),
                    "an address or a range such as `10.1.0.0/16`",
                );
            }
        }
        self
    }

    /// Sets the time limit of a request, with its redirects and its body; 30 seconds by default.
    pub fn time_limit(mut self, time: Duration) -> Self {
        self.rules.time_limit = time;
        self
    }

    /// Sets the maximum number of redirects; 5 by default, 20 at most.
    pub fn max_redirects(mut self, redirects: usize) -> Self {
        self.rules.max_redirects = redirects.min(20);
        self
    }

    /// Sets the user agent of the client; `levity/` and its version by default.
    pub fn user_agent(mut self, name: impl Into<String>) -> Self {
        self.rules.user_agent = name.into();
        self
    }

    /// Sets the resolver that finds the addresses of a name; the operating system by default.
    pub fn resolver(mut self, resolver: impl AddressResolver + 'static) -> Self {
        self.rules.resolver = Arc::new(resolver);
        self
    }

    /// Builds the guard from these settings.
    ///
    /// The error names the setting and its value, such as `allow_host` and `*.*.org`.
    ///
    /// # Errors
    /// Returns an error if a pattern or a range cannot be parsed.
    pub fn build(self) -> Result<NetGuard, NetError> {
        match self.problem {
            Some((setting, problem)) => Err(NetError::Setting { setting, problem }),
            None => Ok(NetGuard::from_rules(self.rules)),
        }
    }

    fn problem(&mut self, setting: &'static str, given: &str, wanted: &str) {
        let given: String = given.chars().take(80).collect();
        self.problem
            .get_or_insert((setting, format!("`{given}` is not {wanted}")));
    }
}
