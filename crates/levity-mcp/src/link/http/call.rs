//! Sends requests to one server: with its headers and its login, to no other place.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use levity_core::{Timestamp, World};
use reqwest::{Client, Response, redirect};
use url::Url;

use super::Limits;
use super::pace::{Pace, Way};
use crate::link::authorize::{Authorize, Challenge, Credentials};
use crate::{Error, ErrorKind, Result, config};

/// How often one request may be answered with a wish for another login.
const CHALLENGES: u32 = 3;
/// How often one request is sent again because the server gave another nonce for its proof of
/// possession.
const NONCES: u32 = 2;
/// How often one request is sent again because the server asked for some time.
const WAITS: u32 = 2;
/// The longest time of that kind that is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Redirects that one request follows.
const REDIRECTS: usize = 5;

/// Headers that the transport sets by itself.
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

/// What sends requests to one server.
pub(crate) struct Caller {
    pub(crate) server: Arc<str>,
    pub(crate) url: Url,
    pub(crate) limits: Limits,
    pub(crate) world: Arc<dyn World>,
    headers: HeaderMap,
    authorize: Option<Arc<dyn Authorize>>,
    kept: Client,
    new: OnceLock<Client>,
    pub(super) pace: Mutex<Pace>,
}

/// One request.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<&'a [u8]>,
    /// Whether it may be sent again when a connection ended before a word of the answer came.
    pub(crate) repeatable: bool,
    pub(super) way: Way,
}

impl<'a> Ask<'a> {
    pub(crate) fn get(url: &'a Url) -> Self {
        let headers =
            HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/event-stream"))]);
        Self {
            method: Method::GET,
            url,
            headers,
            body: None,
            repeatable: true,
            way: Way::Kept,
        }
    }

    pub(crate) fn post(url: &'a Url, body: &'a [u8]) -> Self {
        let both = HeaderValue::from_static("application/json, text/event-stream");
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(ACCEPT, both), (CONTENT_TYPE, json)]);
        Self {
            method: Method::POST,
            url,
            headers,
            body: Some(body),
            repeatable: false,
            way: Way::Kept,
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
            way: Way::Kept,
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
        let url = address(&server, &config.url)?;
        let headers = headers(&server, config)?;
        let kept = client(&server, limits.connect, Way::Kept)?;
        let (new, pace) = (OnceLock::new(), Mutex::default());
        Ok(Self {
            server,
            url,
            limits,
            world,
            headers,
            authorize,
            kept,
            new,
            pace,
        })
    }

    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, self.server.clone(), message)
    }

    pub(super) fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, with other logins when they are asked for, and returns what comes back
    /// unless it asks for a login or points elsewhere.
    pub(crate) async fn send(&self, ask: &Ask<'_>) -> Result<Response> {
        let (mut challenges, mut nonces, mut waits, mut again) = (0, 0, 0, ask.repeatable);
        loop {
            let login = match &self.authorize {
                Some(authorize) => authorize.credentials(ask.method.as_str(), ask.url).await?,
                None => None,
            };
            let response = match self.once(ask, login.as_ref()).await? {
                Ok(response) => response,
                // The server closed a kept connection at the moment we used it.
                Err(error) if again && error.is_request() && !error.is_connect() => {
                    again = false;
                    continue;
                }
                Err(error) => return Err(self.failed(&error)),
            };
            let proven = login.as_ref().is_some_and(|login| login.proof.is_some());
            let renonced = self.keep_nonce(&response);
            match response.status() {
                StatusCode::UNAUTHORIZED if proven && renonced && nonces < NONCES => nonces += 1,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    challenges += 1;
                    let sent = login.as_ref().map(|login| &*login.authorization);
                    self.challenged(&response, sent, challenges).await?;
                }
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    match retry_after(&response) {
                        Some(time) if waits < WAITS && time <= LONGEST_WAIT => {
                            waits += 1;
                            self.world.sleep(time).await;
                        }
                        _ => return Ok(response),
                    }
                }
                status if status.is_redirection() => return Err(self.redirected(&response)),
                _ => return Ok(response),
            }
        }
    }

    async fn once(
        &self,
        ask: &Ask<'_>,
        login: Option<&Credentials>,
    ) -> Result<Result<Response, reqwest::Error>> {
        let mut headers = self.headers.clone();
        if let Some(login) = login {
            let wrong = |_| self.error(ErrorKind::Auth, "its login cannot be sent as a header");
            let mut value = HeaderValue::try_from(&login.authorization).map_err(wrong)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
            if let Some(proof) = &login.proof {
                headers.insert("dpop", HeaderValue::try_from(proof).map_err(wrong)?);
            }
        }
        headers.extend(ask.headers.clone());
        let request = self
            .client(ask.way)?
            .request(ask.method.clone(), ask.url.clone())
            .headers(headers);
        let request = match ask.body {
            Some(body) => request.body(body.to_vec()),
            None => request,
        };
        Ok(request.send().await)
    }

    /// Keeps the nonce of an answer, and says whether the server only wants the request again with
    /// it.
    fn keep_nonce(&self, response: &Response) -> bool {
        let (Some(authorize), Some(nonce)) =
            (&self.authorize, response.headers().get("dpop-nonce"))
        else {
            return false;
        };
        let Ok(nonce) = nonce.to_str() else {
            return false;
        };
        authorize.keep_nonce(nonce);
        let mut challenges = response.headers().get_all(WWW_AUTHENTICATE).iter();
        challenges.any(|text| {
            text.to_str()
                .is_ok_and(|text| text.contains("use_dpop_nonce"))
        })
    }

    fn client(&self, way: Way) -> Result<&Client> {
        if way == Way::Kept {
            return Ok(&self.kept);
        }
        if let Some(client) = self.new.get() {
            return Ok(client);
        }
        let client = client(&self.server, self.limits.connect, Way::New)?;
        Ok(self.new.get_or_init(|| client))
    }

    /// Gets another login, or says why the request cannot be made.
    async fn challenged(
        &self,
        response: &Response,
        sent: Option<&str>,
        attempt: u32,
    ) -> Result<()> {
        let status = response.status().as_u16();
        if let Some(authorize) = self.authorize.as_ref().filter(|_| attempt <= CHALLENGES) {
            let challenges = response.headers().get_all(WWW_AUTHENTICATE);
            let challenges: Vec<_> = challenges
                .iter()
                .filter_map(|value| value.to_str().ok())
                .collect();
            let text = &challenges.join(", ");
            if authorize
                .challenged(&Challenge {
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
                "it wants a login (HTTP 401); set its header `Authorization`, or log in with OAuth"
            }
            (401, true) => "it refuses the login (HTTP 401); renew the token, or log in again",
            (_, false) => "it forbids this (HTTP 403); it may want a login, or not serve this host",
            (_, true) => "it forbids this (HTTP 403); the login lacks a permission that this needs",
        };
        Err(self.error(ErrorKind::Auth, message))
    }

    fn redirected(&self, response: &Response) -> Error {
        let status = response.status().as_u16();
        let target = response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok());
        let target = target.and_then(|target| response.url().join(target).ok());
        // What comes after the host may hold a secret.
        let message = match target.map(|target| target.origin().ascii_serialization()) {
            Some(origin) => format!(
                "it redirects to `{origin}` (HTTP {status}); set the URL it means, if you trust \
                    that place"
            ),
            None => format!("it redirects to nowhere (HTTP {status}); check its URL"),
        };
        self.error(ErrorKind::Protocol, message)
    }

    /// Does `work`, which has time until `end`.
    pub(crate) async fn in_time<T>(
        &self,
        end: Option<Timestamp>,
        work: impl Future<Output = T>,
    ) -> Result<T> {
        let Some(end) = end else {
            return Ok(work.await);
        };
        let left = end.since(self.world.now());
        if left.is_zero() {
            return Err(self.late());
        }
        // The clock is asked first: work that never runs out of bytes leaves it no turn in tokio's
        // budget.
        match select(self.world.sleep(left), pin!(work)).await {
            Either::Left(_) => Err(self.late()),
            Either::Right((done, _)) => Ok(done),
        }
    }

    /// The end of the time for an answer to a request that is sent now.
    pub(crate) fn end_of_answer(&self) -> Timestamp {
        self.world.now().after(self.limits.answer)
    }

    fn late(&self) -> Error {
        let limit = self.limits.answer;
        self.error(
            ErrorKind::Timeout,
            format!("its answer did not end within {limit:?}; raise `call_limit` to wait longer"),
        )
    }

    pub(crate) fn failed(&self, error: &reqwest::Error) -> Error {
        // The error itself names the address, which may hold a key.
        let mut next = std::error::Error::source(error);
        let mut cause = "it could not be sent".to_owned();
        while let Some(known) = next {
            (cause, next) = (known.to_string(), known.source());
        }
        match error.is_connect() || error.is_builder() {
            true if error.is_timeout() => {
                let limit = self.limits.connect;
                self.error(
                    ErrorKind::Start,
                    format!("cannot be reached: no connection within {limit:?}"),
                )
            }
            true => self.error(ErrorKind::Start, format!("cannot be reached: {cause}")),
            false => self.error(
                ErrorKind::Closed,
                format!("the connection ended before the answer came: {cause}"),
            ),
        }
    }

    /// The error for an answer whose status says that it is none.
    pub(crate) fn refused(&self, response: &Response) -> Error {
        let status = response.status().as_u16();
        match (status, retry_after(response)) {
            (429 | 503, Some(time)) => self.error(
                ErrorKind::Away,
                format!("it answered HTTP {status} and asks to wait {time:?}"),
            ),
            (429 | 502..=504, _) => self.error(
                ErrorKind::Away,
                format!("it answered HTTP {status}; try again later"),
            ),
            (404 | 405, _) => self.error(
                ErrorKind::Protocol,
                format!("it answered HTTP {status}; check its URL"),
            ),
            _ => self.error(ErrorKind::Protocol, format!("it answered HTTP {status}")),
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

/// How long the server asks to wait, where it says it in seconds.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

fn address(server: &Arc<str>, url: &str) -> Result<Url> {
    let wrong = |why: &str| {
        Error::new(
            ErrorKind::Config,
            server.clone(),
            format!("its `url` {why}"),
        )
    };
    let url = Url::parse(url).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err(wrong("must begin with `http://` or `https://`")),
    }
}

fn headers(server: &Arc<str>, config: &config::Http) -> Result<HeaderMap> {
    let wrong = |name: &str, why: &str| {
        Error::new(
            ErrorKind::Config,
            server.clone(),
            format!("its header `{}` {why}", name.escape_debug()),
        )
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &config.headers {
        let key = HeaderName::try_from(name)
            .map_err(|_| wrong(name, "has a name that HTTP does not allow"))?;
        if RESERVED.contains(&key.as_str()) || key.as_str().starts_with("mcp-param-") {
            return Err(wrong(name, "is set by levity itself; remove it"));
        }
        let unfit = |_| {
            wrong(
                name,
                "has a value that HTTP does not allow, such as a line break",
            )
        };
        let mut value = HeaderValue::try_from(value).map_err(unfit)?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

fn client(server: &Arc<str>, connect: Duration, way: Way) -> Result<Client> {
    // Another part of the program may have chosen one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .connect_timeout(connect)
        .redirect(redirect::Policy::custom(follow))
        .referer(false)
        .tcp_nodelay(true)
        .user_agent(concat!("levity/", env!("CARGO_PKG_VERSION")));
    let builder = match way {
        Way::Kept => builder,
        Way::New => builder.pool_max_idle_per_host(0),
    };
    let wrong = |error| {
        Error::new(
            ErrorKind::Start,
            server.clone(),
            format!("no HTTP client can be made: {error}"),
        )
    };
    builder.build().map_err(wrong)
}

/// Follows redirects within one origin that keep the method and the body: elsewhere the login would
/// be given away, and without its body a request is another one.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps = matches!(
        attempt.status(),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    );
    let home = attempt
        .previous()
        .first()
        .is_some_and(|first| first.origin() == attempt.url().origin());
    match keeps && home && attempt.previous().len() <= REDIRECTS {
        true => attempt.follow(),
        false => attempt.stop(),
    }
}
