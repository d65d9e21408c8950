//! The sender of requests to one server, with its headers and its login, and to no other origin.
//!
//! One `send` may lead to several requests:
//! - at most 3 more after login challenges;
//! - at most 2 more after a new nonce for a proof of possession;
//! - at most 2 more after `Retry-After` of up to 10 s;
//! - one more if the server closed a pooled connection, but never for a call of a tool.
//!
//! Redirects are followed only within the origin and only if they keep the method and the body,
//! because another origin would receive the login.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use levity_core::{Timestamp, World};
use levity_http::NoCertificates;
use reqwest::{Client, Response, redirect};
use url::Url;

use super::Limits;
use super::reuse::{ConnectionMode, ReuseTracker};
use crate::link::authorize::{Authorize, Challenge, Credentials};
use crate::link::unanswered::Unanswered;
use crate::{Error, ErrorKind, Result, config};

/// The maximum number of login challenges to one request.
const MAX_CHALLENGES: u32 = 3;
/// The maximum number of repetitions of one request because the server sent another nonce for its
/// proof of possession.
const MAX_NONCES: u32 = 2;
/// The maximum number of repetitions of one request because the server asked for a delay.
const MAX_WAITS: u32 = 2;
/// The maximum delay of that kind.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The maximum number of redirects that one request follows.
const MAX_REDIRECTS: usize = 5;

/// The headers that the transport itself sets.
const RESERVED: [&str; 12] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "transfer-encoding",
];

/// The sender of requests to one server.
pub(crate) struct Caller {
    pub(crate) server: Arc<str>,
    pub(crate) url: Url,
    pub(crate) limits: Limits,
    pub(crate) world: Arc<dyn World>,
    /// The server's requests that are not answered yet, on all streams of the connection.
    pub(crate) unanswered: Unanswered,
    headers: HeaderMap,
    authorize: Option<Arc<dyn Authorize>>,
    pooled: Client,
    unpooled: OnceLock<Client>,
    pub(super) reuse: Mutex<ReuseTracker>,
}

/// An outgoing HTTP request.
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<&'a [u8]>,
    /// `true` if it may be sent again when a connection ended before the response started.
    pub(crate) repeatable: bool,
    pub(super) mode: ConnectionMode,
}

impl<'a> HttpRequest<'a> {
    pub(crate) fn get(url: &'a Url) -> Self {
        let headers =
            HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/event-stream"))]);
        Self {
            method: Method::GET,
            url,
            headers,
            body: None,
            repeatable: true,
            mode: ConnectionMode::Reused,
        }
    }

    pub(crate) fn post(url: &'a Url, body: &'a [u8]) -> Self {
        let accepted = HeaderValue::from_static("application/json, text/event-stream");
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(ACCEPT, accepted), (CONTENT_TYPE, json)]);
        Self {
            method: Method::POST,
            url,
            headers,
            body: Some(body),
            repeatable: false,
            mode: ConnectionMode::Reused,
        }
    }

    pub(crate) fn delete(url: &'a Url) -> Self {
        let (headers, body) = (HeaderMap::new(), None);
        Self {
            method: Method::DELETE,
            url,
            headers,
            body,
            repeatable: true,
            mode: ConnectionMode::Reused,
        }
    }
}

impl Caller {
    pub(crate) fn new(
        server: Arc<str>,
        config: &config::Http,
        limits: Limits,
        authorize: Option<Arc<dyn Authorize>>,
        world: Arc<dyn World>,
    ) -> Result<Self> {
        let url = parse_url(&server, &config.url)?;
        let headers = headers(&server, config)?;
        let pooled = client(&server, limits.connect, ConnectionMode::Reused)?;
        let (unpooled, reuse) = (OnceLock::new(), Mutex::default());
        Ok(Self {
            server,
            url,
            limits,
            world,
            unanswered: Unanswered::default(),
            headers,
            authorize,
            pooled,
            unpooled,
            reuse,
        })
    }

    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, self.server.clone(), message)
    }

    pub(super) fn reuse(&self) -> std::sync::MutexGuard<'_, ReuseTracker> {
        self.reuse.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and handles login challenges. Returns the response, unless it is a challenge
    /// or a redirect.
    pub(crate) async fn send(&self, http_request: &HttpRequest<'_>) -> Result<Response> {
        let (mut challenges, mut nonces, mut delays, mut may_repeat) =
            (0, 0, 0, http_request.repeatable);
        loop {
            let login = match &self.authorize {
                Some(authorize) => {
                    authorize
                        .credentials(http_request.method.as_str(), http_request.url)
                        .await?
                }
                None => None,
            };
            let response = match self.send_once(http_request, login.as_ref()).await? {
                Ok(response) => response,
                // The server closed a pooled connection at the moment of its use.
                Err(error) if may_repeat && error.is_request() && !error.is_connect() => {
                    may_repeat = false;
                    continue;
                }
                Err(error) => return Err(self.transport_error(&error)),
            };
            let has_proof = login.as_ref().is_some_and(|login| login.proof.is_some());
            let has_new_nonce = self.store_nonce(&response);
            match response.status() {
                StatusCode::UNAUTHORIZED if has_proof && has_new_nonce && nonces < MAX_NONCES => {
                    nonces += 1;
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    challenges += 1;
                    let sent = login.as_ref().map(|login| &*login.authorization);
                    self.handle_challenge(&response, sent, challenges).await?;
                }
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    match retry_after(&response) {
                        Some(time) if delays < MAX_WAITS && time <= MAX_WAIT => {
                            delays += 1;
                            self.world.sleep(time).await;
                        }
                        _ => return Ok(response),
                    }
                }
                status if status.is_redirection() => return Err(self.redirect_error(&response)),
                _ => return Ok(response),
            }
        }
    }

    /// Sends a request with the settings' headers, the login and its own headers. The outer error
    /// is levity's; the inner one decides about a repetition.
    async fn send_once(
        &self,
        http_request: &HttpRequest<'_>,
        login: Option<&Credentials>,
    ) -> Result<Result<Response, reqwest::Error>> {
        let mut headers = self.headers.clone();
        if let Some(login) = login {
            let invalid = |_| self.error(ErrorKind::Auth, "its login is not a valid header value");
            let mut value = HeaderValue::try_from(&login.authorization).map_err(invalid)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
            if let Some(proof) = &login.proof {
                headers.insert("dpop", HeaderValue::try_from(proof).map_err(invalid)?);
            }
        }
        headers.extend(http_request.headers.clone());
        let request = self
            .client(http_request.mode)?
            .request(http_request.method.clone(), http_request.url.clone())
            .headers(headers);
        let request = match http_request.body {
            Some(body) => request.body(body.to_vec()),
            None => request,
        };
        Ok(request.send().await)
    }

    /// Stores the nonce of a response. Returns `true` if the server only requires the request again
    /// with it.
    fn store_nonce(&self, response: &Response) -> bool {
        let (Some(authorize), Some(nonce)) =
            (&self.authorize, response.headers().get("dpop-nonce"))
        else {
            return false;
        };
        let Ok(nonce) = nonce.to_str() else {
            return false;
        };
        authorize.store_nonce(nonce);
        let mut challenges = response.headers().get_all(WWW_AUTHENTICATE).iter();
        challenges.any(|text| {
            text.to_str()
                .is_ok_and(|text| text.contains("use_dpop_nonce"))
        })
    }

    /// Returns the client for this kind of connection; that without a pool is created on first use.
    fn client(&self, mode: ConnectionMode) -> Result<&Client> {
        if mode == ConnectionMode::Reused {
            return Ok(&self.pooled);
        }
        if let Some(client) = self.unpooled.get() {
            return Ok(client);
        }
        let client = client(&self.server, self.limits.connect, ConnectionMode::New)?;
        Ok(self.unpooled.get_or_init(|| client))
    }

    /// Obtains another login, or returns the reason why the request cannot be made.
    async fn handle_challenge(
        &self,
        response: &Response,
        sent: Option<&str>,
        attempt: u32,
    ) -> Result<()> {
        let status = response.status().as_u16();
        if let Some(authorize) = self
            .authorize
            .as_ref()
            .filter(|_| attempt <= MAX_CHALLENGES)
        {
            let challenges = response.headers().get_all(WWW_AUTHENTICATE);
            let challenges: Vec<_> = challenges
                .iter()
                .filter_map(|value| value.to_str().ok())
                .collect();
            let text = &challenges.join(", ");
            if authorize
                .handle_challenge(&Challenge {
                    sent,
                    status,
                    text,
                    attempt,
                })
                .await?
            {
                return Ok(());
            }
        }
        let has_login = self.authorize.is_some() || self.headers.contains_key(AUTHORIZATION);
        let message = match (status, has_login) {
            (401, false) => {
                "it requires a login (HTTP 401); set its header `Authorization`, or log in with \
                    OAuth"
            }
            (401, true) => "it rejects the login (HTTP 401); renew the token, or log in again",
            (_, false) => "it forbids this (HTTP 403); it may require a login, or reject this host",
            (_, true) => "it forbids this (HTTP 403); the login lacks a required permission",
        };
        Err(self.error(ErrorKind::Auth, message))
    }

    /// Creates the error of a redirect that is not followed. It names only the origin of the
    /// target.
    fn redirect_error(&self, response: &Response) -> Error {
        let status = response.status().as_u16();
        let target = response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok());
        let target = target.and_then(|target| response.url().join(target).ok());
        // The part after the host may contain a secret.
        let message = match target.map(|target| target.origin().ascii_serialization()) {
            Some(origin) => format!(
                "it redirects to `{origin}` (HTTP {status}); if you trust that host, set its URL \
                    there"
            ),
            None => format!("it redirects without a valid target (HTTP {status}); check its URL"),
        };
        self.error(ErrorKind::Protocol, message)
    }

    /// Runs `work` until the deadline.
    pub(crate) async fn in_time<T>(
        &self,
        deadline: Option<Timestamp>,
        work: impl Future<Output = T>,
    ) -> Result<T> {
        let Some(deadline) = deadline else {
            return Ok(work.await);
        };
        let remaining = deadline.since(self.world.now());
        if remaining.is_zero() {
            return Err(self.timeout_error());
        }
        // The clock is polled first: work that never runs out of bytes would use up tokio's budget.
        match select(self.world.sleep(remaining), pin!(work)).await {
            Either::Left(_) => Err(self.timeout_error()),
            Either::Right((done, _)) => Ok(done),
        }
    }

    /// Returns the deadline of the response to a request that is sent now.
    pub(crate) fn response_deadline(&self) -> Timestamp {
        self.world.now().after(self.limits.answer)
    }

    fn timeout_error(&self) -> Error {
        let limit = self.limits.answer;
        self.error(
            ErrorKind::Timeout,
            format!(
                "its response was not complete within {limit:?}; raise `call_timeout` to wait \
                    longer"
            ),
        )
    }

    /// Converts an error of the HTTP client. `Start` means that nothing was sent; after `Closed`
    /// the server may have received the request.
    pub(crate) fn transport_error(&self, error: &reqwest::Error) -> Error {
        // The error itself contains the URL, which may contain a key.
        let mut next = std::error::Error::source(error);
        let mut cause = "the request could not be sent".to_owned();
        while let Some(known) = next {
            (cause, next) = (known.to_string(), known.source());
        }
        match error.is_connect() || error.is_builder() {
            true if error.is_timeout() => {
                let limit = self.limits.connect;
                self.error(
                    ErrorKind::Start,
                    format!(
                        "cannot be reached: no connection within {limit:?}; is the server \
                        running?"
                    ),
                )
            }
            true if NoCertificates::caused(error) => self.error(
                ErrorKind::Start,
                format!("cannot be reached: {NoCertificates}"),
            ),
            true => self.error(
                ErrorKind::Start,
                format!("cannot be reached: {cause}; is the server running?"),
            ),
            false => self.error(
                ErrorKind::Closed,
                format!("the connection ended before the response arrived: {cause}"),
            ),
        }
    }

    /// Creates the error for a response with an error status.
    pub(crate) fn status_error(&self, response: &Response) -> Error {
        let status = response.status().as_u16();
        match (status, retry_after(response)) {
            (429 | 503, Some(time)) => self.error(
                ErrorKind::Unavailable,
                format!("it responded with HTTP {status} and asks for a delay of {time:?}"),
            ),
            (429 | 502..=504, _) => self.error(
                ErrorKind::Unavailable,
                format!("it responded with HTTP {status}; try again later"),
            ),
            (404 | 405, _) => self.error(
                ErrorKind::Protocol,
                format!("it responded with HTTP {status}; check its URL"),
            ),
            _ => self.error(
                ErrorKind::Protocol,
                format!("it responded with HTTP {status}"),
            ),
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// Returns the delay that the server asks for, if it is in seconds.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// Parses the configured URL.
fn parse_url(server: &Arc<str>, url: &str) -> Result<Url> {
    let invalid = |problem: &str| {
        Error::new(
            ErrorKind::Config,
            server.clone(),
            format!("its `url` {problem}"),
        )
    };
    let url = Url::parse(url).map_err(|error| invalid(&format!("is invalid: {error}")))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err(invalid("must begin with `http://` or `https://`")),
    }
}

/// Converts the configured headers; those that the transport sets itself are rejected.
fn headers(server: &Arc<str>, config: &config::Http) -> Result<HeaderMap> {
    let invalid = |name: &str, problem: &str| {
        Error::new(
            ErrorKind::Config,
            server.clone(),
            format!("its header `{}` {problem}", name.escape_debug()),
        )
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &config.headers {
        let key = HeaderName::try_from(name).map_err(|_| invalid(name, "has an invalid name"))?;
        if RESERVED.contains(&key.as_str()) || key.as_str().starts_with("mcp-param-") {
            return Err(invalid(name, "is set by levity itself; remove it"));
        }
        let invalid_value =
            |_| invalid(name, "has an invalid value, for example with a line break");
        let mut value = HeaderValue::try_from(value).map_err(invalid_value)?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

fn client(server: &Arc<str>, connect: Duration, mode: ConnectionMode) -> Result<Client> {
    let client = levity_http::client(|builder| {
        let builder = builder
            .connect_timeout(connect)
            .redirect(redirect::Policy::custom(follow))
            .referer(false)
            .tcp_nodelay(true);
        match mode {
            ConnectionMode::Reused => builder,
            ConnectionMode::New => builder.pool_max_idle_per_host(0),
        }
    });
    let invalid = |error| {
        Error::new(
            ErrorKind::Start,
            server.clone(),
            format!("cannot create an HTTP client: {error}"),
        )
    };
    client.map_err(invalid)
}

/// Follows redirects within one origin that keep the method and the body. Another origin would
/// receive the login, and a request without its body has another meaning.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps_method = matches!(
        attempt.status(),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    );
    let same_origin = attempt
        .previous()
        .first()
        .is_some_and(|first| first.origin() == attempt.url().origin());
    match keeps_method && same_origin && attempt.previous().len() <= MAX_REDIRECTS {
        true => attempt.follow(),
        false => attempt.stop(),
    }
}
