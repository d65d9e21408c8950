//! The address of a provider, its headers and time limits, and the reply of a request.
//!
//! An address may contain secrets: a password, a key in the query or in the path. They are sent,
//! but never shown. [`Endpoint::address_secrets`] lists all forms in which a server might repeat
//! them, so that errors can be cleaned.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, io};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use levity_core::text::bare_url;
use levity_core::{ModelError, ModelErrorKind};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::Secret;
use super::post::SharedClient;
use super::timer::Timer;

/// The address of a provider and the settings to reach it. Cloning is cheap.
///
/// ```
/// # use levity_llm::Endpoint;
/// let endpoint = Endpoint::new("http://127.0.0.1:8080").with_header("x-team", "blue");
/// assert!(!format!("{endpoint:?}").contains("blue"));
/// ```
///
/// Every model and embedder has one; change it with `with_endpoint`:
///
/// ```
/// # #[cfg(feature = "ollama")] {
/// # use levity_core::Model as _;
/// # use std::time::Duration;
/// use levity_llm::{Endpoint, OllamaModel, TimeLimits};
///
/// let mut limits = TimeLimits::default();
/// limits.first_byte = Duration::from_secs(30);
/// let model = OllamaModel::new("qwen3:4b")
///     .with_endpoint(|_| Endpoint::new("http://192.168.1.20:11434").with_limits(limits));
/// assert_eq!(model.card().id, "qwen3:4b");
/// # }
/// ```
///
/// # Connections
/// Endpoints with the same `connect` limit share one pool of connections within a tokio runtime.
/// Redirects are not followed, because a redirect would send the key to another server. Proxies
/// come from the usual environment variables (`HTTPS_PROXY`, `ALL_PROXY`, ..).
///
/// # Addresses
/// An address may contain an API version, which replaces the one in the provider's path, and a
/// query, which each request repeats. A user and a password in it are sent as basic authentication.
#[derive(Clone)]
pub struct Endpoint {
    base: Arc<str>,
    headers: Arc<Vec<(String, Secret)>>,
    extra: Arc<Map<String, Value>>,
    limits: TimeLimits,
}

/// Query parameters that contain no key and help to understand an error.
const PUBLIC_PARAMETERS: [&str; 4] = ["api-version", "alt", "version", "beta"];

/// Time limits for the parts of a call.
///
/// A call that exceeds a limit fails as [`Timeout`](levity_core::ModelErrorKind::Timeout), which is
/// retryable. Dropping the future of a call ends it at any time.
///
/// ```
/// use std::time::Duration;
/// use levity_llm::{Endpoint, TimeLimits};
///
/// let limits = TimeLimits::default();
/// assert_eq!(limits.connect, Duration::from_secs(10));
/// assert_eq!(limits.total, Duration::from_secs(1_800));
///
/// let mut patient = limits;
/// patient.first_byte = Duration::from_secs(900); // A large local model that loads first.
/// let endpoint = Endpoint::new("http://127.0.0.1:11434").with_limits(patient);
/// assert_eq!(endpoint.base(), "http://127.0.0.1:11434");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeLimits {
    /// The time to establish a connection: 10 seconds.
    pub connect: Duration,
    /// The time until the reply starts: 5 minutes, because models think first.
    pub first_byte: Duration,
    /// The time between two chunks of the reply: 2 minutes.
    pub stall: Duration,
    /// The time for the whole call: 30 minutes.
    pub total: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let (first_byte, stall, total) = (minutes(5), minutes(2), minutes(30));
        Self {
            connect: Duration::from_secs(10),
            first_byte,
            stall,
            total,
        }
    }
}

impl Endpoint {
    /// Creates an endpoint for this address; a slash at its end is removed.
    ///
    /// The address is not checked here: a call to an invalid address fails as
    /// [`BadRequest`](ModelErrorKind::BadRequest) and names the right form.
    ///
    /// ```
    /// # use levity_llm::Endpoint;
    /// assert_eq!(Endpoint::new(" http://127.0.0.1:8080/v1/ ").base(), "http://127.0.0.1:8080/v1");
    /// ```
    pub fn new(base: impl AsRef<str>) -> Self {
        Self {
            base: base.as_ref().trim().trim_end_matches('/').into(),
            headers: Arc::default(),
            extra: Arc::default(),
            limits: TimeLimits::default(),
        }
    }

    /// Changes the address of the server.
    ///
    /// Headers, fields and limits stay as they are.
    ///
    /// ```
    /// # use levity_llm::Endpoint;
    /// let endpoint = Endpoint::new("https://api.openai.com/v1");
    /// let endpoint = endpoint.with_base("http://127.0.0.1:4000");
    /// assert_eq!(endpoint.base(), "http://127.0.0.1:4000");
    /// ```
    #[must_use]
    pub fn with_base(mut self, base: impl AsRef<str>) -> Self {
        self.base = base.as_ref().trim().trim_end_matches('/').into();
        self
    }

    /// Sends this header with every request. Its value is treated as a secret.
    ///
    /// A header of the same name is replaced, regardless of case, also the one in which the
    /// provider sends the key. A call fails as [`BadRequest`](ModelErrorKind::BadRequest) if the
    /// name or the value contains characters that HTTP does not allow. Values of eight or more
    /// characters are removed from errors.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # #[cfg(feature = "compatible")] {
    /// use levity_core::{Message, Model as _, ModelErrorKind, Request};
    /// use levity_llm::ChatModel;
    ///
    /// let model = ChatModel::compatible("http://127.0.0.1:1/v1", "qwen3")
    ///     .with_endpoint(|endpoint| endpoint.with_header("x-team", "a\nb"));
    /// let request = Request::new().with_message(Message::user("Hello"));
    /// let error = model.complete(request).await.unwrap_err();
    /// assert_eq!(error.kind(), ModelErrorKind::BadRequest);
    /// assert!(error.message().contains("`x-team`"));
    /// # }
    /// # }
    /// ```
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        let name = name.into();
        let headers = Arc::make_mut(&mut self.headers);
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        headers.push((name, value.into()));
        self
    }

    /// Adds this field unchanged to the body of every request.
    ///
    /// Fields of a request ([`Options::extra`](levity_core::Options::extra)) win over these, and
    /// these win over the fields that levity writes.
    ///
    /// ```
    /// # use std::io::{Read as _, Write as _};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "compatible")] {
    /// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let base = format!("http://{}", server.local_addr()?);
    /// # let thread = std::thread::spawn(move || {
    /// #     let (mut socket, _) = server.accept().expect("a connection");
    /// #     let mut sent = vec![0; 16_384];
    /// #     let length = socket.read(&mut sent).expect("a request");
    /// #     sent.truncate(length);
    /// #     let reply = r#"{"choices": [{"message": {"content": "Hi"}}]}"#;
    /// #     let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length";
    /// #     write!(socket, "{head}: {}\r\n\r\n{reply}", reply.len()).expect("a reply");
    /// #     let _ = socket.read_to_end(&mut sent);
    /// #     String::from_utf8_lossy(&sent).into_owned()
    /// # });
    /// use levity_core::{Message, Model as _, Request};
    /// use levity_llm::ChatModel;
    ///
    /// let model = ChatModel::compatible(base, "qwen3")
    ///     .with_endpoint(|endpoint| endpoint.with_field("top_k", 40))
    ///     .without_streaming();
    /// model.complete(Request::new().with_message(Message::user("Hello"))).await?;
    /// assert!(thread.join().expect("the server").contains(r#""top_k":40"#));
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        Arc::make_mut(&mut self.extra).insert(name.into(), value.into());
        self
    }

    /// Sets the time limits for the parts of a call.
    ///
    /// They apply to each request on its own; a retry starts them again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use levity_llm::{Endpoint, TimeLimits};
    ///
    /// let mut limits = TimeLimits::default();
    /// limits.stall = Duration::from_secs(20);
    /// let endpoint = Endpoint::new("http://127.0.0.1:8080/v1").with_limits(limits);
    /// assert_eq!(endpoint.base(), "http://127.0.0.1:8080/v1");
    /// ```
    #[must_use]
    pub fn with_limits(mut self, limits: TimeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the address of the server.
    ///
    /// The result may contain a user, a password or a key. `Debug` shows the address without them.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the extra fields for the body of every request.
    pub(crate) fn extra(&self) -> &Map<String, Value> {
        &self.extra
    }

    /// Returns the values of the headers that the user set.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.headers.iter().map(|(_, value)| value)
    }

    /// Returns the server's address without secrets.
    pub(crate) fn shown(&self) -> String {
        bare_url(&self.base)
    }

    /// Returns everything in the address that may be a key: the user, the password, hidden path
    /// segments, and the values of the query and the fragment. It also returns the header that the
    /// HTTP client derives from user and password. A server that repeats a request in an error
    /// would reveal them.
    pub(crate) fn address_secrets(&self) -> Vec<String> {
        let base: &str = &self.base;
        let (before, fragment) = base.split_once('#').unwrap_or((base, ""));
        let (place, query) = before.split_once('?').unwrap_or((before, ""));
        let host = place.split_once("://").map_or("", |(_, rest)| rest);
        let user = host
            .split('/')
            .next()
            .and_then(|host| host.rsplit_once('@'))
            .map_or("", |(user, _)| user);
        // A value that is too short to search for is matched together with its name.
        let pairs = query
            .split('&')
            .filter(|pair| !PUBLIC_PARAMETERS.contains(&pair.split('=').next().unwrap_or("")));
        let values = pairs
            .clone()
            .filter_map(|pair| pair.split_once('='))
            .map(|(_, value)| value);
        let hidden = |step: &&str| {
            !step.contains('@') && bare_url(&format!("h/{step}")) != format!("h/{step}")
        };
        let steps = host.split('/').skip(1).filter(hidden);
        let found = pairs
            .chain(values)
            .chain(user.splitn(2, ':'))
            .chain([user, fragment])
            .chain(steps);
        let both = |part: &str| [part.to_owned(), decoded(part)];
        let found: Vec<String> = found
            .filter(|part| !part.is_empty())
            .flat_map(both)
            .collect();
        found.into_iter().chain(self.user_secrets()).collect()
    }

    /// Returns user and password as the HTTP client parses and sends them, which may be in an
    /// unexpected place of the address.
    fn user_secrets(&self) -> Vec<String> {
        let Ok(url) = reqwest::Url::parse(&self.base) else {
            return Vec::new();
        };
        let (user, password) = (url.username(), url.password().unwrap_or_default());
        if user.is_empty() && password.is_empty() {
            return Vec::new();
        }
        let both = |part: &str| {
            [
                part.to_owned(),
                String::from_utf8_lossy(&unescaped(part)).into_owned(),
            ]
        };
        let sent = [&*unescaped(user), b":", &*unescaped(password)].concat();
        let headers = basic(&sent);
        let parts = [user, password]
            .into_iter()
            .flat_map(both)
            .filter(|part| !part.is_empty());
        parts.chain(headers).collect()
    }

    /// Sends a request and waits for the reply to start.
    ///
    /// `own` are the provider's headers and `path` starts with a slash. The reply may have any
    /// status; the caller checks it.
    ///
    /// # Errors
    /// Returns `Timeout`, `Transport` for a failed connection (marked as unreachable if no
    /// connection was made), and `BadRequest` for an invalid address or header.
    pub(crate) async fn send(
        &self,
        path: &str,
        own: &[(&str, Secret)],
        mut body: Vec<u8>,
    ) -> Result<Reply, ModelError> {
        // The body is retained until the reply starts.
        body.shrink_to_fit();
        let (url, headers) = (self.url(path), self.headers(own)?);
        let client = SharedClient::for_current_runtime(self.limits.connect)?;
        self.wait(pin!(client.post(&url, headers, body.into())))
            .await
    }

    /// Sends a GET request and waits for the reply to start.
    ///
    /// # Errors
    /// Returns the same errors as [`send`](Self::send).
    pub(crate) async fn get(
        &self,
        path: &str,
        own: &[(&str, Secret)],
    ) -> Result<Reply, ModelError> {
        let (url, headers) = (self.url(path), self.headers(own)?);
        let client = SharedClient::for_current_runtime(self.limits.connect)?;
        self.wait(pin!(client.get(&url, headers))).await
    }

    /// Waits for the head of the reply within `first_byte`, and starts the clock of the whole call.
    async fn wait(
        &self,
        sent: Pin<&mut impl Future<Output = Result<reqwest::Response, reqwest::Error>>>,
    ) -> Result<Reply, ModelError> {
        let mut timer = Timer::new(self.limits.total);
        match timer.limit(self.limits.first_byte, sent).await {
            Some(Ok(response)) => Ok(Reply {
                response,
                stall: self.limits.stall,
                timer,
            }),
            Some(Err(error)) => Err(failed(error, self.limits.connect)),
            None if timer.is_over() => Err(timed_out("the call did not finish", self.limits.total)),
            None => Err(timed_out("the reply did not start", self.limits.first_byte)),
        }
    }

    /// Returns the URL of a request. The address may contain an API version, which replaces the
    /// version at the start of the path. It may also contain a query, which is appended to the
    /// path.
    ///
    /// `http://h/v1` and `/v1/messages` yield `http://h/v1/messages`; `http://h?key=1` and `/a?b`
    /// yield `http://h/a?b&key=1`.
    fn url(&self, path: &str) -> String {
        let (base, query) = self.base.split_once('?').unwrap_or((&self.base, ""));
        let base = base.trim_end_matches('/');
        let versioned = base.rsplit('/').next().is_some_and(is_version);
        let path = match path.trim_start_matches('/').split_once('/') {
            Some((first, _)) if versioned && is_version(first) => {
                path.get(first.len() + 1..).unwrap_or(path)
            }
            _ => path,
        };
        match query {
            "" => format!("{base}{path}"),
            query => format!(
                "{base}{path}{}{query}",
                if path.contains('?') { '&' } else { '?' }
            ),
        }
    }

    /// Builds the headers of a request. Values are marked as sensitive, so that the HTTP client
    /// does not log them.
    fn headers(&self, own: &[(&str, Secret)]) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let own = own.iter().map(|(name, value)| (*name, value));
        // The user's headers are last, so they take precedence.
        for (name, value) in own.chain(
            self.headers
                .iter()
                .map(|(name, value)| (name.as_str(), value)),
        ) {
            let invalid = || {
                let message = format!(
                    "the header `{name}` contains characters that HTTP does not \
                    allow"
                );
                ModelError::new(ModelErrorKind::BadRequest, message)
            };
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.insert(
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?,
                value,
            );
        }
        Ok(headers)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("base", &self.shown())
            .finish_non_exhaustive()
    }
}

/// Credentials that the HTTP client sends to proxies. A proxy may repeat them in an error.
pub(super) fn proxy_secrets() -> &'static [String] {
    static SECRETS: OnceLock<Vec<String>> = OnceLock::new();
    SECRETS.get_or_init(|| proxy_secrets_from(|name| std::env::var(name).ok()))
}

/// Returns the credentials in the proxy variables that `var` reads; tests pass their own.
fn proxy_secrets_from(var: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let names = [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ];
    let address = |url: String| {
        if url.contains("://") {
            url
        } else {
            format!("http://{url}")
        }
    };
    let proxies = names.iter().filter_map(|name| var(name)).map(address);
    let secrets = proxies.flat_map(|url| Endpoint::new(url).user_secrets());
    // A shorter user name may be an ordinary word, so it is not treated as a secret.
    secrets.filter(|secret| secret.len() >= 8).collect()
}

/// Returns the encoded form of user and password in both base64 alphabets, without padding.
fn basic(pair: &[u8]) -> [String; 2] {
    [STANDARD_NO_PAD.encode(pair), URL_SAFE_NO_PAD.encode(pair)]
}

/// Returns the forms in which a server may repeat the value of a header. They are the value without
/// its scheme, and the decoded user and password, if any.
pub(super) fn header_secrets(value: &str) -> Vec<String> {
    let Some((scheme, rest)) = value.split_once(' ') else {
        return vec![value.to_owned()];
    };
    let rest = rest.trim();
    let mut found = vec![value.to_owned(), rest.to_owned()];
    if scheme.eq_ignore_ascii_case("basic") {
        let bare = rest.trim_end_matches('=');
        let pair = STANDARD_NO_PAD
            .decode(bare)
            .or_else(|_| URL_SAFE_NO_PAD.decode(bare))
            .unwrap_or_default();
        found.extend(basic(&pair).into_iter().filter(|_| !pair.is_empty()));
        let pair = String::from_utf8_lossy(&pair);
        found.extend(
            pair.split_once(':')
                .map(|(_, password)| password.to_owned()),
        );
        found.push(pair.into_owned());
    }
    found
}

/// Returns a part of an address with its `%` escapes decoded, as a server reads it in a query.
fn decoded(part: &str) -> String {
    String::from_utf8_lossy(&unescaped(&part.replace('+', " "))).into_owned()
}

/// Returns a part of an address with its `%` escapes decoded.
///
/// Invalid escapes, such as `%zz`, stay as they are.
fn unescaped(part: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|two| std::str::from_utf8(two).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// Returns `true` if a path segment is a version, such as `v1` or `v1beta`.
fn is_version(step: &str) -> bool {
    let digits = step.strip_prefix('v').unwrap_or_default();
    digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A reply that has started. Dropping it closes the connection.
///
/// It carries the timer of the call, so that the total limit includes the body.
pub(crate) struct Reply {
    response: reqwest::Response,
    stall: Duration,
    timer: Timer,
}

impl Reply {
    /// Returns the status as a number, such as 200.
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the headers, whose values a server chooses freely.
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the next bytes, or `None` at the end.
    ///
    /// # Errors
    /// Returns `Timeout` if no bytes arrive within `stall` or the call exceeds its total limit, and
    /// `Transport` if the connection breaks.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, ModelError> {
        match self
            .timer
            .limit(self.stall, pin!(self.response.chunk()))
            .await
        {
            Some(Ok(chunk)) => Ok(chunk),
            Some(Err(error)) => Err(connection_lost(&error)),
            None if self.timer.is_over() => Err(ModelError::new(
                ModelErrorKind::Timeout,
                "the call exceeded its total time limit",
            )),
            None => Err(timed_out("no more of the reply arrived", self.stall)),
        }
    }

    /// Reads the rest of the reply if it is short and arrives soon, so that the connection can be
    /// reused. A program with thousands of calls would otherwise need a new connection for each. A
    /// server that never ends its reply must not block the call, so the time is limited.
    ///
    /// At most 16 chunks and 250 milliseconds are spent on it.
    pub(crate) async fn drain(&mut self) {
        let Self {
            response, timer, ..
        } = self;
        let rest = async {
            for _ in 0..16 {
                if !matches!(response.chunk().await, Ok(Some(_))) {
                    return;
                }
            }
        };
        let _ = timer.limit(Duration::from_millis(250), pin!(rest)).await;
    }

    /// Returns the rest of the reply, up to `limit` bytes; anything beyond that is not read.
    ///
    /// # Errors
    /// Returns the errors of [`chunk`](Self::chunk).
    pub(crate) async fn rest(&mut self, limit: usize) -> Result<Vec<u8>, ModelError> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            let room = limit.saturating_sub(all.len());
            all.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
            if chunk.len() > room {
                break;
            }
        }
        Ok(all)
    }
}

/// Returns the error for a request without a reply. The address may contain a key, so it is
/// omitted.
///
/// The kinds are `BadRequest` for an invalid URL, `Timeout`, and `Transport` for everything else.
/// Errors before a connection are marked as unreachable.
pub(super) fn failed(error: reqwest::Error, connect: Duration) -> ModelError {
    let error = error.without_url();
    if error.is_builder() {
        let message = "the server's address is not an `http` or `https` URL; write it as \
            `http://HOST:PORT/v1`";
        return ModelError::new(ModelErrorKind::BadRequest, message).with_source(root(&error));
    }
    if error.is_connect() && error.is_timeout() {
        let message =
            format!("no connection within {connect:?}; check the address and the network");
        return ModelError::new(ModelErrorKind::Timeout, message).with_unreachable();
    }
    if error.is_timeout() {
        return ModelError::new(ModelErrorKind::Timeout, "the server did not answer in time");
    }
    if !error.is_connect() {
        return connection_lost(&error);
    }
    let (what, advice) = connect_failure(&error);
    let message = if advice.is_empty() {
        what.clone()
    } else {
        format!("{what}; {advice}")
    };
    let error = ModelError::new(ModelErrorKind::Transport, message).with_unreachable();
    // The message already contains the cause.
    error.with_source(what)
}

/// Returns the reason that a connection failed, and advice for the user.
///
/// The advice is empty if the reason says enough.
fn connect_failure(error: &reqwest::Error) -> (String, &'static str) {
    if levity_http::NoCertificates::caused(error) {
        return (levity_http::NoCertificates.to_string(), "");
    }
    if let Some(error) = find::<rustls::Error>(error) {
        return match error {
            rustls::Error::InvalidMessage(_) => (
                "the server does not speak TLS on this port".to_owned(),
                "write `http://` to connect without TLS",
            ),
            rustls::Error::InvalidCertificate(_) => (
                format!("the server's certificate was rejected: {error}"),
                "",
            ),
            error => (format!("TLS failed: {error}"), ""),
        };
    }
    if texts(error).iter().any(|text| text == "dns error") {
        return ("the host name is unknown".to_owned(), "check the address");
    }
    match find::<io::Error>(error).map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => {
            ("connection refused".to_owned(), "is the server running?")
        }
        Some(io::ErrorKind::Other | io::ErrorKind::InvalidData) | None => (root(error), ""),
        Some(kind) => (kind.to_string(), ""),
    }
}

/// Returns the error for a connection that closed before the reply was complete.
///
/// A reply that is not HTTP at all usually comes from a TLS port, so the message says how to write
/// the address.
fn connection_lost(error: &reqwest::Error) -> ModelError {
    let parse = find::<hyper::Error>(error).is_some_and(hyper::Error::is_parse);
    let what = match find::<io::Error>(error) {
        _ if parse => {
            "the server does not speak HTTP on this port; write `https://` if it speaks TLS"
                .to_owned()
        }
        // The kind says the same as the error of the system.
        Some(io) if io.raw_os_error().is_some() => {
            let what = format!("the connection broke: {}; try again", io.kind());
            return ModelError::new(ModelErrorKind::Transport, what);
        }
        Some(io) if !matches!(io.kind(), io::ErrorKind::Other) => {
            let (kind, root) = (io.kind(), root(error));
            format!("the connection broke: {kind}: {root}; try again")
        }
        _ => format!("the connection broke: {}; try again", root(error)),
    };
    ModelError::new(ModelErrorKind::Transport, what).with_source(root(error))
}

/// Returns the first error of this type in the chain of causes, including errors inside I/O errors.
///
/// `io::Error` wraps other errors without returning them as its source, so its inner error is
/// followed explicitly.
fn find<T: Error + 'static>(error: &reqwest::Error) -> Option<&T> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Returns the text of the root cause of an error.
fn root(error: &reqwest::Error) -> String {
    texts(error).pop().unwrap_or_default()
}

/// Returns the texts of an error and all its causes.
fn texts(error: &reqwest::Error) -> Vec<String> {
    let (mut texts, mut next) = (Vec::new(), Some(error as &dyn Error));
    while let Some(error) = next {
        texts.push(error.to_string());
        next = error.source();
    }
    texts
}

/// Creates the error for an exceeded limit, and names the limit.
fn timed_out(what: &str, limit: Duration) -> ModelError {
    ModelError::new(ModelErrorKind::Timeout, format!("{what} within {limit:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(base: &str, path: &str, expected: &str) {
        assert_eq!(Endpoint::new(base).url(path), expected);
    }

    #[test]
    fn url_keeps_version_and_query_of_address() {
        check("http://h", "/v1/messages", "http://h/v1/messages");
        check("http://h/v1/", "/v1/messages", "http://h/v1/messages");
        check("http://h/v1", "/responses", "http://h/v1/responses");
        check(
            "http://h/v1beta",
            "/v1beta/models/x:y?alt=sse",
            "http://h/v1beta/models/x:y?alt=sse",
        );
        check(
            "http://h/v1beta1",
            "/v1/projects/p",
            "http://h/v1beta1/projects/p",
        );
        check("http://h/very", "/v1/messages", "http://h/very/v1/messages");
        check(
            "http://h/openai/?api-version=1",
            "/responses",
            "http://h/openai/responses?api-version=1",
        );
        check(
            "http://h?key=1",
            "/v1beta/models/x:y?alt=sse",
            "http://h/v1beta/models/x:y?alt=sse&key=1",
        );
        check("http://h/token", "", "http://h/token");
        assert!(!format!("{:?}", Endpoint::new("http://h?key=abc")).contains("abc"));
    }

    #[test]
    fn header_secrets_include_value_without_scheme_and_decoded_pair() {
        for (value, secrets) in [
            ("abc", &["abc"][..]),
            ("Bearer abc", &["Bearer abc", "abc"]),
            (
                "Basic bWU6cGFzcw==",
                &[
                    "Basic bWU6cGFzcw==",
                    "bWU6cGFzcw==",
                    "bWU6cGFzcw",
                    "pass",
                    "me:pass",
                ],
            ),
            (
                "basic bWU6cGFzcw",
                &["basic bWU6cGFzcw", "bWU6cGFzcw", "pass", "me:pass"],
            ),
            ("Basic %", &["Basic %", "%", ""]),
        ] {
            let mut found = header_secrets(value);
            found.dedup();
            assert_eq!(found, secrets, "{value}");
        }
    }

    #[test]
    fn proxy_secrets_include_password_and_encoded_pair() {
        let of =
            |url: &str| proxy_secrets_from(|name| (name == "https_proxy").then(|| url.to_owned()));
        for url in ["http://me:password@proxy:3128", "me:password@proxy:3128"] {
            let found = of(url);
            assert!(found.iter().any(|secret| secret == "password"), "{found:?}");
            assert!(
                found.iter().any(|secret| secret == "bWU6cGFzc3dvcmQ"),
                "{found:?}"
            );
        }
        assert!(of("http://proxy:3128").is_empty() && of("").is_empty());
    }

    #[test]
    fn address_secrets_cover_user_path_query_and_fragment() {
        for (base, secrets) in [
            ("http://h/v1", &[][..]),
            ("http://h/s/0123456789abcdef0/v1", &["0123456789abcdef0"]),
            ("http://h?key=abc", &["key=abc", "abc"]),
            (
                "http://h?api-version=2026-01-01&sig=a%2Fb",
                &["sig=a%2Fb", "a%2Fb", "sig=a/b", "a/b"],
            ),
            (
                "http://me:pass@h/v1#frag",
                &["me", "pass", "me:pass", "frag", "bWU6cGFzcw"],
            ),
            ("http://token@h/v1", &["token", "dG9rZW46"]),
            (
                "http://me:p%2Bs%3F@h",
                &[
                    "me",
                    "p%2Bs%3F",
                    "p+s?",
                    "me:p%2Bs%3F",
                    "me:p+s?",
                    "bWU6cCtzPw",
                ],
            ),
            (
                "http://me:~~~@h",
                &["me", "~~~", "me:~~~", "bWU6fn5-", "bWU6fn5+"],
            ),
            ("http:///me:pass@h", &["me", "pass", "bWU6cGFzcw"]),
            ("http:\\\\me:pass@h", &["me", "pass", "bWU6cGFzcw"]),
        ] {
            let mut found = Endpoint::new(base).address_secrets();
            found.sort();
            found.dedup();
            let mut expected: Vec<_> = secrets.to_vec();
            expected.sort_unstable();
            assert_eq!(found, expected, "{base}");
            let debug = format!("{:?}", Endpoint::new(base));
            assert!(
                secrets
                    .iter()
                    .all(|secret| *secret == "me" || !debug.contains(secret)),
                "{debug}"
            );
        }
    }
}
