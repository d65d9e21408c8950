//! Errors of checks and requests.
//!
//! Messages are read by a model and may be sent to a server by it. So they name the rule and the
//! host as it was written, and never a resolved address.

use std::time::Duration;

/// The reason why an address is refused. It names the rule and the next step, and reveals nothing
/// about the target.
///
/// ```
/// use levity_sandbox::{AddressError, NetGuard};
///
/// let guard = NetGuard::default();
/// let refused = |url| guard.check_url(url).unwrap_err();
/// assert_eq!(refused("ftp://example.org/"), AddressError::Scheme("ftp".into()));
/// assert_eq!(refused("https://me:pw@example.org/"), AddressError::Credentials);
/// assert_eq!(refused("https://printer.local/"), AddressError::LocalName("printer.local".into()));
/// assert_eq!(
///     refused("https://127.0.0.1/").to_string(),
///     "the host `127.0.0.1` has a loopback address, which cannot be reached; use a public host"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text cannot be parsed as a URL.
    #[error("this is not a URL; write it in full, as in `https://example.org/page`")]
    NotAUrl,
    /// The scheme is neither `https` nor an allowed `http`.
    #[error("`{0}:` is not supported; use a URL that begins with `https://`")]
    Scheme(String),
    /// Plain `http` is not allowed.
    #[error("plain `http` is not allowed; try the same with `https://`")]
    Http,
    /// The URL contains a user or a password.
    #[error("a URL with a user or password in it is not allowed; leave out what is before the `@`")]
    Credentials,
    /// The port is not allowed.
    #[error("port {0} is not allowed; leave the port out, or use another server")]
    Port(u16),
    /// The text is not a valid host name.
    #[error("the host of this URL is invalid; write it as in `example.org`")]
    InvalidHost,
    /// The host is denied, or is not on the list of allowed hosts.
    #[error("the host `{0}` is not allowed here; use another source")]
    Denied(String),
    /// The name belongs to a local network, or to a cloud's internal services.
    #[error("`{0}` is a name of a local network, which cannot be reached; use a public host")]
    LocalName(String),
    /// The host is, or resolves to, an address that is not public.
    #[error("the host `{host}` has {range}, which cannot be reached; use a public host")]
    Address {
        /// The host as in the URL.
        host: String,
        /// The kind of address.
        range: &'static str,
    },
    /// The name does not resolve to an address.
    #[error("the name `{0}` does not resolve to an address; check its spelling")]
    Unresolved(String),
    /// A redirect led to an address that is refused.
    #[error("the server redirects to an address that is refused")]
    Redirect(#[source] Box<AddressError>),
}

/// The reason why a request failed.
///
/// ```
/// use std::time::Duration;
/// use levity_sandbox::{NetError, NetGuard};
///
/// assert!(NetError::Timeout(Duration::from_secs(30)).is_retryable());
/// let error = NetGuard::builder().allow_address("10.0.0.0/99").build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the setting `allow_address` is invalid: `10.0.0.0/99` is not an address or a range such \
///      as `10.1.0.0/16`"
/// );
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address, or the target of a redirect, is refused.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The servers redirected more often than the limit allows.
    #[error("there were more than {0} redirects; try the address that they lead to")]
    TooManyRedirects(usize),
    /// A redirect led back to an earlier URL.
    #[error("the server redirects in a circle; use another source")]
    RedirectLoop,
    /// The request did not complete within the time limit.
    #[error("the request timed out after {0:?}; try again later, or use another source")]
    Timeout(Duration),
    /// The connection could not be established.
    #[error("the server could not be reached; try again later, or use another source")]
    Connect,
    /// This system has no certificates of authorities, so no `https` server can be trusted.
    #[error("{}", levity_http::NoCertificates)]
    NoCertificates,
    /// The connection broke, or the server did not send HTTP.
    #[error(
        "the connection broke or the server did not send HTTP; try again later, or use another \
        source"
    )]
    Transfer,
    /// A header has an invalid name or value.
    #[error("the header `{0}` cannot be sent; its name or value contains invalid characters")]
    Header(String),
    /// A setting is invalid.
    #[error("the setting `{setting}` is invalid: {problem}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The problem with its value.
        problem: String,
    },
}

impl NetError {
    /// Returns `true` if the same request may succeed later.
    ///
    /// Refused addresses, redirects and settings fail again in the same way. This crate never
    /// retries by itself.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Connect | Self::Transfer)
    }
}

impl From<AddressError> for levity_core::Error {
    fn from(error: AddressError) -> Self {
        Self::other(error)
    }
}

impl From<NetError> for levity_core::Error {
    fn from(error: NetError) -> Self {
        Self::other(error)
    }
}
