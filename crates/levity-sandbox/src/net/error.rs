use std::time::Duration;

/// Why an address is refused. It says which rule and what to do, and nothing of what is there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It cannot be read as a URL.
    #[error("this is no URL; write it whole, as in `https://example.org/page`")]
    NotAUrl,
    /// Only `https`, and `http` where it was allowed, are spoken.
    #[error("`{0}:` is not spoken here; use a URL that begins with `https://`")]
    Scheme(String),
    /// Plain `http` was not allowed.
    #[error("plain `http` is not allowed; try the same with `https://`")]
    Http,
    /// There is a user or a password in it.
    #[error("a URL with a user or password in it is not allowed; leave out what is before the `@`")]
    Userinfo,
    /// The port was not allowed.
    #[error("port {0} is not allowed; leave the port out, or use another server")]
    Port(u16),
    /// The name cannot be one of a host.
    #[error("the host of this URL cannot be read; write it as in `example.org`")]
    Host,
    /// The host is on the list of those that are denied, or not on the list of those that are
    /// allowed.
    #[error("the host `{0}` is not allowed here; use another source")]
    Denied(String),
    /// The name is one of a local network, or of a cloud's own services.
    #[error("`{0}` is a name of a local network, which may not be reached; use a public host")]
    LocalName(String),
    /// The host is, or its name leads to, an address that is not public.
    #[error("the host `{host}` has {range}, which may not be reached; use a public host")]
    Address {
        /// The host, as in the URL.
        host: String,
        /// What kind of address it is.
        range: &'static str,
    },
    /// The name leads nowhere.
    #[error("the name `{0}` leads to no address; check how it is written")]
    Unresolved(String),
    /// A redirect led to an address that is refused.
    #[error("the server redirects to where nobody may go")]
    Redirect(#[source] Box<AddressError>),
}

/// Why something could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address, or one that a redirect led to, is refused.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// One server sent us to another, too often.
    #[error("there were more than {0} redirects; try the address that they lead to")]
    TooManyRedirects(usize),
    /// A redirect led back to where we had been.
    #[error("the server redirects in a circle; use another source")]
    Circle,
    /// The whole was not there in time.
    #[error("nothing more came within {0:?}; try again later, or use another source")]
    Timeout(Duration),
    /// There was no connection.
    #[error("the server could not be reached; try again later, or use another source")]
    Connect,
    /// The connection broke, or what came was no HTTP.
    #[error("the server broke off or did not speak HTTP; try again later, or use another source")]
    Transfer,
    /// A header cannot be sent as it is.
    #[error(
        "the header `{0}` cannot be sent; its name or value has characters that no header may have"
    )]
    Header(String),
    /// A setting cannot be used.
    #[error("`{setting}` cannot be used: {problem}")]
    Setting {
        /// Which one.
        setting: &'static str,
        /// What is wrong.
        problem: String,
    },
}

impl NetError {
    /// Whether the same may succeed later.
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
