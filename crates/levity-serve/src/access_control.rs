//! Admits or rejects each request, before any handler sees it.
//!
//! The checks run in a fixed order: `Host`, `Origin`, token, connection slot, audience. A request
//! that fails one check does not reach the next, so a foreign web page cannot learn if a token is
//! valid. [`AccessLayer`] wraps a whole router; a route that is added later is therefore protected
//! as well. Rejections carry a code for programs and a message that names the next step.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use levity_core::World as _;
use levity_runtime::SystemWorld;
use serde_json::json;

use crate::access::{Caller, TokenScope, Tokens};
use crate::access_log::{AccessLog, AccessRecord};
use crate::error::{Error, Result};
use crate::listen::{ConnectionInfo, Failures, ListenNotice, NoSlot, Penalty};
use crate::proof::{self, Challenger, Exchange};
use crate::token::Token;

/// Decides which clients a server admits, by token, `Host` and `Origin`.
///
/// A DNS rebinding attack leads a browser to a name that the attacker resolves to this machine.
/// Such a request carries the attacker's `Host` and `Origin`, and is rejected for either.
///
/// By default, only names of the loopback are valid hosts: `localhost`, `127.0.0.0/8` and `[::1]`.
/// Allow other names with [`hosts`](Self::hosts) and other pages with [`origins`](Self::origins). A
/// request without `Origin`, as programs send it, passes that check.
///
/// ```
/// use levity_serve::{AccessControl, Token};
///
/// let access = AccessControl::new(Token::generate()?)
///     .hosts(["agents.example"])
///     .origins(["https://app.example"]);
/// let shown = format!("{access:?}");
/// assert!(shown.contains("agents.example") && shown.contains("Token(..)"));
/// # Ok::<(), levity_serve::Error>(())
/// ```
#[derive(Clone)]
pub struct AccessControl {
    token: Option<Token>,
    /// Named tokens, in addition to `token`.
    tokens: Tokens,
    /// `true` if no token is required anywhere.
    is_open: bool,
    hosts: Arc<[String]>,
    origins: Arc<[String]>,
    /// The paths that require no token.
    open_paths: Vec<&'static str>,
    /// Checks clients that prove possession of the token instead of sending it.
    proofs: Option<Arc<Challenger>>,
}

impl AccessControl {
    /// Admits clients that present this token.
    ///
    /// A client sends `Authorization: Bearer TOKEN`. It becomes the [owner](crate::Caller::owner)
    /// of the server, with every scope.
    pub fn new(token: Token) -> Self {
        Self {
            token: Some(token),
            is_open: false,
            ..Self::open()
        }
    }

    /// Admits clients that present one of these tokens, within the token's scopes.
    ///
    /// An empty set admits nobody; it does not open the server.
    ///
    /// ```
    /// use levity_serve::{AccessControl, Listener, TokenScope, Tokens};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_serve::Result<()> {
    /// let mut tokens = Tokens::new();
    /// tokens.add("ci", [TokenScope::Run])?;
    /// let listener = Listener::bind("127.0.0.1:0", AccessControl::named(tokens)).await?;
    /// assert!(listener.address().ip().is_loopback());
    /// # Ok(())
    /// # }
    /// ```
    pub fn named(tokens: Tokens) -> Self {
        Self {
            is_open: false,
            tokens,
            ..Self::open()
        }
    }

    /// Also admits clients that present one of these tokens.
    ///
    /// Use it beside [`new`](Self::new): the single token stays with the owner, and users get named
    /// tokens. A second call replaces the set of the first.
    #[must_use]
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        (self.tokens, self.is_open) = (tokens, false);
        self
    }

    /// Admits every client of this machine without a token. Use it for tests and for servers that
    /// do nothing sensitive. A [`Listener`](crate::Listener) that other machines can reach rejects
    /// it.
    ///
    /// Requests are still rejected for a foreign `Host` or `Origin`, so a web page cannot use the
    /// server.
    ///
    /// ```
    /// use levity_serve::{AccessControl, Listener};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// assert!(Listener::bind("127.0.0.1:0", AccessControl::open()).await.is_ok());
    /// let error = Listener::bind("0.0.0.0:0", AccessControl::open()).await.unwrap_err();
    /// assert!(error.to_string().contains("set a token"));
    /// # }
    /// ```
    pub fn open() -> Self {
        Self {
            token: None,
            tokens: Tokens::new(),
            is_open: true,
            hosts: Arc::new([]),
            origins: Arc::new([]),
            open_paths: Vec::new(),
            proofs: None,
        }
    }

    /// Sets the host names that clients may use for this server, besides those of the loopback,
    /// with or without a port.
    ///
    /// A name without a port allows every port; `agents.example:8443` allows only that one. Names
    /// are compared without regard to case. A second call replaces the names of the first.
    #[must_use]
    pub fn hosts<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.hosts = names
            .into_iter()
            .map(|name| name.into().to_ascii_lowercase())
            .collect();
        self
    }

    /// Sets the origins whose pages may call this server, such as `https://app.example`, besides
    /// those of the loopback.
    ///
    /// An origin consists of scheme, host and port, without a path, and must match exactly apart
    /// from case. A second call replaces the origins of the first.
    #[must_use]
    pub fn origins<S: Into<String>>(mut self, origins: impl IntoIterator<Item = S>) -> Self {
        self.origins = origins
            .into_iter()
            .map(|origin| origin.into().to_ascii_lowercase())
            .collect();
        self
    }

    /// Returns `true` if clients must present a token.
    pub(crate) fn has_token(&self) -> bool {
        !self.is_open
    }

    /// Requires no token at this path, which must not reveal anything secret.
    pub(crate) fn open_at(mut self, path: &'static str) -> Self {
        self.open_paths.push(path);
        self
    }

    /// Lets clients prove possession of the token instead of sending it; see
    /// [`proof`](crate::proof).
    pub(crate) fn with_proofs(mut self) -> Result<Self> {
        let unable = || {
            Error::setting(
                "access control",
                "needs a random key, but the system provides no randomness",
            )
        };
        self.proofs = Some(Arc::new(Challenger::new().ok_or_else(unable)?));
        Ok(self)
    }

    /// Returns the response to a challenge from a client that reached this server at `local`.
    ///
    /// Returns `None` if this server accepts no proofs, so that the path is treated like any other.
    fn answer_challenge(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        local: SocketAddr,
    ) -> Option<Response> {
        let (challenger, token) = (self.proofs.as_ref()?, self.token.as_ref()?);
        if !self.is_host_known(uri, headers) {
            return Some(Refusal::Host.answer());
        }
        let query = uri.query().unwrap_or_default();
        let client = query
            .strip_prefix("client=")
            .filter(|client| proof::is_nonce(client));
        let Some(client) = client else {
            return Some(refuse(
                StatusCode::BAD_REQUEST,
                "bad_challenge",
                "send `client`, a nonce of 16 to 64 letters or digits",
            ));
        };
        let (to, server) = (
            self.reached_at(headers, local),
            challenger.nonce(SystemWorld.now().as_millis())?,
        );
        let proof = Exchange {
            to,
            client,
            server: &server,
        }
        .server_proof(token);
        let mut answer = Json(json!({"server": server, "proof": proof})).into_response();
        guard(answer.headers_mut());
        Some(answer)
    }

    /// Returns `true` if a client that reached this server at `local` proves possession of the
    /// token; `None` if the request contains no proof.
    fn verify_proof(&self, headers: &HeaderMap, local: Option<SocketAddr>) -> Option<bool> {
        let challenger = self.proofs.as_ref()?;
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let (Some(shown), None) = (shown.next(), shown.next()) else {
            return None;
        };
        let shown = shown
            .to_str()
            .ok()
            .filter(|shown| shown.starts_with(proof::SCHEME))?;
        let (Some(token), Some(local)) = (&self.token, local) else {
            return Some(false);
        };
        let to = self.reached_at(headers, local);
        Some(challenger.accepts(token, shown, to, SystemWorld.now().as_millis()))
    }

    /// Returns the address at which a client reached this server: its own, or an allowed one, such
    /// as the far end of a tunnel.
    fn reached_at(&self, headers: &HeaderMap, local: SocketAddr) -> SocketAddr {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let allowed = host.filter(|host| {
            self.hosts
                .iter()
                .any(|known| known.eq_ignore_ascii_case(host))
        });
        allowed.and_then(|host| host.parse().ok()).unwrap_or(local)
    }

    /// Returns the caller of a request, if it is admitted.
    fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        local: Option<SocketAddr>,
    ) -> Result<Caller, Refusal> {
        if !self.is_host_known(uri, headers) {
            return Err(Refusal::Host);
        }
        if !self.is_origin_known(headers) {
            return Err(Refusal::Origin);
        }
        if self.is_open {
            return Ok(Caller::owner());
        }
        // These paths check no token, not even a valid one. Otherwise the fate of the connection
        // would reveal whether a guessed token is right.
        if self.open_paths.contains(&uri.path()) {
            return Ok(Caller::anonymous());
        }
        match self.verify_proof(headers, local) {
            Some(true) => return Ok(Caller::owner()),
            Some(false) => return Err(Refusal::WrongToken),
            None => {}
        }
        let shown = bearer(headers).ok_or(Refusal::NoToken)?;
        self.find(shown).ok_or(Refusal::WrongToken)
    }

    /// Returns the caller that owns the presented token.
    ///
    /// Both lookups always run, so that the time does not show which kind of token matched.
    fn find(&self, shown: &str) -> Option<Caller> {
        let owner = self
            .token
            .as_ref()
            .filter(|token| token.matches(shown))
            .map(|_| Caller::owner());
        let named = self.tokens.find(shown);
        owner.or(named)
    }

    /// Returns `true` if a request addresses this server. A host in the request line takes
    /// precedence over `Host`, but a proxy may use either, so both must be known.
    fn is_host_known(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (
            hosts.next().and_then(|host| host.to_str().ok()),
            hosts.next(),
        ) else {
            return false;
        };
        self.is_known(host)
            && uri
                .authority()
                .is_none_or(|named| self.is_known(named.as_str()))
    }

    /// Returns `true` if a host name belongs to this server. A host with user information before it
    /// does not: no legitimate client sends one.
    fn is_known(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        is_loopback(name)
            || self
                .hosts
                .iter()
                .any(|known| *known == host || known == name)
    }

    /// Returns `true` if a request comes from no page, from a page of the loopback, or from an
    /// allowed origin. Two `Origin` headers are rejected, because a proxy and this server might
    /// read different ones.
    fn is_origin_known(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return true;
        };
        let Ok(origin) = origin.to_str().map(str::to_ascii_lowercase) else {
            return false;
        };
        let loopback = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"))
            .is_some_and(|host| is_loopback(without_port(host)));
        origins.next().is_none() && (loopback || self.origins.contains(&origin))
    }
}

/// Returns the token of a single `Authorization: Bearer` header. Several such headers count as
/// none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    let (Some(shown), None) = (shown.next(), shown.next()) else {
        return None;
    };
    let (scheme, token) = shown.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the host of an authority: `[::1]` for `[::1]:80`.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') =>
        {
            host
        }
        _ => authority,
    }
}

/// Returns `true` for `localhost`, for any address in `127.0.0.0/8` and for `[::1]`. IPv6 addresses
/// need their brackets, as in a `Host` header.
fn is_loopback(host: &str) -> bool {
    match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) => address
            .parse()
            .is_ok_and(|address: Ipv6Addr| address.is_loopback()),
        None => {
            host == "localhost"
                || host
                    .parse()
                    .is_ok_and(|address: Ipv4Addr| address.is_loopback())
        }
    }
}

/// The reasons for which a request is rejected. Only wrong tokens are counted against an address; a
/// missing token is not a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Host,
    Origin,
    NoToken,
    WrongToken,
    Throttled,
    Full,
    NotOwner,
}

impl Refusal {
    /// Returns the response, with `Retry-After` where waiting helps. A rejected guess closes its
    /// connection, so that each guess costs a new one.
    fn answer(self) -> Response {
        let (status, code, message) = match self {
            Self::Host => (
                StatusCode::FORBIDDEN,
                "host_refused",
                "this server does not accept that `Host`; use a loopback name, or allow the name",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "origin_refused",
                "pages from that `Origin` may not call this server; allow it, or open the page \
                    from this machine",
            ),
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "token_missing",
                "this server requires a token; send `Authorization: Bearer TOKEN`",
            ),
            Self::WrongToken => (
                StatusCode::UNAUTHORIZED,
                "token_wrong",
                "the token is invalid; use the one from the server's token file, which was also \
                    printed when it was created",
            ),
            Self::Throttled => (
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_wrong_tokens",
                "too many invalid tokens from this address; a valid one is still accepted",
            ),
            Self::Full => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too_many_connections",
                "the maximum number of connections is open; close some, or try again later",
            ),
            Self::NotOwner => (
                StatusCode::FORBIDDEN,
                "scope_missing",
                "this server accepts only its owner; use a token with the scope `admin`",
            ),
        };
        let mut answer = refuse(status, code, message);
        let headers = answer.headers_mut();
        match self {
            Self::NoToken | Self::WrongToken => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::Throttled => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("60"));
            }
            Self::Full => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        // Each guess costs a connection, and a rejected connection must not hold a slot.
        if matches!(self, Self::WrongToken | Self::Throttled | Self::Full) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

/// Returns an error response with a code and a message.
///
/// The body is `{"error": {"code": .., "message": ..}}`: programs branch on the code, and people
/// read the message.
pub(crate) fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    let mut answer = (
        status,
        Json(json!({"error": {"code": code, "message": message}})),
    )
        .into_response();
    guard(answer.headers_mut());
    answer
}

/// Sets headers that prevent caching and MIME sniffing.
pub(crate) fn guard(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// The callers that a router is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Only the owner of the server, because the router does not check scopes.
    Owner,
    /// All callers, because the router checks what each of them may do.
    Callers,
}

/// The access checks of one listener, with its record of failures.
///
/// One layer belongs to one listener. It stays in memory across connections, because failures are
/// counted by address and not by connection.
pub(crate) struct AccessLayer {
    access: AccessControl,
    audience: Audience,
    failures: Arc<Failures>,
    log: Option<AccessLog>,
}

impl AccessLayer {
    pub(crate) fn new(
        access: AccessControl,
        audience: Audience,
        failures: Failures,
        log: Option<AccessLog>,
    ) -> Self {
        Self {
            access,
            audience,
            failures: Arc::new(failures),
            log,
        }
    }

    /// Puts the access checks in front of a whole router.
    pub(crate) fn before(self, router: Router) -> Router {
        router.layer(axum::middleware::from_fn_with_state(
            Arc::new(self),
            check_access,
        ))
    }

    /// Returns the caller of a request, if it is admitted and its connection gets a slot.
    ///
    /// Wrong tokens are counted and, if there are many, answered late. A caller gets its slot
    /// before the audience check: a valid named token that is not admitted still leaves the pool of
    /// unauthenticated connections.
    async fn admit(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        connection: Option<&ConnectionInfo>,
    ) -> Result<Caller, Refusal> {
        let local = connection.and_then(|connection| connection.local);
        let caller = match (self.access.check(uri, headers, local), connection) {
            (Err(Refusal::WrongToken), Some(connection)) => {
                return match self.failures.wrong(connection.slot.address()).await {
                    Penalty::None => Err(Refusal::WrongToken),
                    Penalty::Throttled => Err(Refusal::Throttled),
                };
            }
            (checked, _) => checked?,
        };
        if let Some(connection) = connection.filter(|_| caller.has_scope(TokenScope::Read)) {
            // The users of a tenant share its slots.
            let tenant = caller.namespace().or(caller.name());
            connection
                .slot
                .admit(tenant)
                .map_err(|_: NoSlot| Refusal::Full)?;
        }
        let open = self.access.open_paths.contains(&uri.path());
        match self.audience == Audience::Owner && !open && !caller.has_scope(TokenScope::Admin) {
            true => Err(Refusal::NotOwner),
            false => Ok(caller),
        }
    }
}

impl AccessLayer {
    /// Counts a wrong login code like a wrong token, which delays the response if there are many.
    async fn count_wrong_code(&self, answer: Response, connection: &ConnectionInfo) -> Response {
        match self.failures.wrong(connection.slot.address()).await {
            Penalty::None => answer,
            Penalty::Throttled => Refusal::Throttled.answer(),
        }
    }
}

/// The middleware itself: logs the request, answers challenges, and passes admitted requests on
/// with their [`Caller`] as an extension.
async fn check_access(
    State(layer): State<Arc<AccessLayer>>,
    mut request: Request,
    next: Next,
) -> Response {
    // A handler may hold the request for longer than its connection lasts. It must not hold the
    // connection's slot as well.
    let connection = request.extensions_mut().remove::<ConnectionInfo>();
    // The handler sets the time in which the client must read the response.
    if let Some(connection) = &connection {
        request.extensions_mut().insert(connection.answers.clone());
    }
    let address = connection.as_ref().map(|connection| connection.address);
    let mut record = layer
        .log
        .is_some()
        .then(|| PendingRecord::of(layer.clone(), &request, address));
    let local = connection.as_ref().and_then(|connection| connection.local);
    if request.uri().path() == proof::PATH
        && let Some(local) = local
        && let Some(answer) = layer
            .access
            .answer_challenge(request.uri(), request.headers(), local)
    {
        record
            .iter_mut()
            .for_each(|record| record.status = answer.status().as_u16());
        return answer;
    }
    let answer = match layer
        .admit(request.uri(), request.headers(), connection.as_ref())
        .await
    {
        Ok(caller) => {
            record
                .iter_mut()
                .for_each(|record| record.caller = Some(caller.clone()));
            request.extensions_mut().insert(caller);
            let is_login = request.uri().path() == crate::http::LOGIN_PATH;
            let answer = next.run(request).await;
            match connection.as_ref() {
                Some(connection) if is_login && answer.status() == StatusCode::UNAUTHORIZED => {
                    layer.count_wrong_code(answer, connection).await
                }
                _ => answer,
            }
        }
        Err(refusal) => refusal.answer(),
    };
    record
        .iter_mut()
        .for_each(|record| record.status = answer.status().as_u16());
    answer
}

/// The logged status of a request whose client disconnected before the response.
const CLIENT_DISCONNECTED: u16 = 499;

/// The log record of a request in progress. Dropping it writes the record, however the request
/// ends.
///
/// The path is cut to 256 characters and the method to 16, because both come from clients that may
/// not have a token.
struct PendingRecord {
    layer: Arc<AccessLayer>,
    at: levity_core::Timestamp,
    address: Option<IpAddr>,
    method: String,
    path: String,
    caller: Option<Caller>,
    status: u16,
}

impl PendingRecord {
    fn of(layer: Arc<AccessLayer>, request: &Request, address: Option<IpAddr>) -> Self {
        const LONGEST: usize = 256;
        Self {
            layer,
            at: SystemWorld.now(),
            caller: None,
            status: CLIENT_DISCONNECTED,
            address,
            method: request.method().as_str().chars().take(16).collect(),
            path: request.uri().path().chars().take(LONGEST).collect(),
        }
    }
}

impl Drop for PendingRecord {
    fn drop(&mut self) {
        let Some(log) = &self.layer.log else {
            return;
        };
        let caller = self.caller.as_ref();
        let problem = log.write(&AccessRecord {
            at: self.at,
            address: self.address,
            token: caller.and_then(Caller::name).map(str::to_owned),
            authenticated: caller.is_some_and(|caller| caller.has_scope(TokenScope::Read)),
            method: std::mem::take(&mut self.method),
            path: std::mem::take(&mut self.path),
            status: self.status,
            duration: SystemWorld.now().since(self.at),
        });
        if let Some(problem) = problem {
            let notice = ListenNotice::AccessLog { problem };
            self.layer.failures.report(&notice);
        }
    }
}

impl fmt::Debug for AccessControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessControl")
            .field("token", &self.token)
            .field("tokens", &self.tokens)
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "the cases read better")]
    fn check(access: &AccessControl, headers: &[(&str, &str)], expected: Result<Caller, Refusal>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        assert_eq!(
            access.check(&Uri::from_static("/"), &map, None),
            expected,
            "{headers:?}"
        );
    }

    #[test]
    fn check_admits_only_known_hosts_and_origins() {
        let access = AccessControl::open();
        for host in [
            "localhost",
            "localhost:80",
            "127.0.0.1:8888",
            "127.9.9.9",
            "[::1]",
            "[::1]:8888",
            "LOCALHOST:1",
        ] {
            check(&access, &[("host", host)], Ok(Caller::owner()));
            check(
                &access,
                &[("host", host), ("origin", &format!("http://{host}"))],
                Ok(Caller::owner()),
            );
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "localhost.evil.example:80",
            "[::2]:1",
            "",
            ":80",
            "::1:",
            "localhost:80:80",
        ] {
            check(&access, &[("host", host)], Err(Refusal::Host));
            let origin = format!("http://{host}");
            check(
                &access,
                &[("host", "localhost"), ("origin", &origin)],
                Err(Refusal::Origin),
            );
        }
        check(&access, &[], Err(Refusal::Host));
        check(
            &access,
            &[("host", "localhost"), ("host", "evil.example")],
            Err(Refusal::Host),
        );
        check(
            &access,
            &[("host", "localhost"), ("origin", "null")],
            Err(Refusal::Origin),
        );
        let wide = AccessControl::open()
            .hosts(["App.example"])
            .origins(["https://app.example"]);
        check(
            &wide,
            &[
                ("host", "app.example:444"),
                ("origin", "https://app.example"),
            ],
            Ok(Caller::owner()),
        );
        check(
            &wide,
            &[("host", "app.example"), ("origin", "http://app.example")],
            Err(Refusal::Origin),
        );
    }

    #[test]
    fn request_without_valid_token_is_rejected() {
        let access = AccessControl::new(Token::new(TOKEN).unwrap());
        let host = ("host", "localhost");
        check(&access, &[host], Err(Refusal::NoToken));
        check(
            &access,
            &[host, ("authorization", "Basic 0123456789abcdef")],
            Err(Refusal::NoToken),
        );
        check(
            &access,
            &[host, ("authorization", "Bearer 0123456789abcdeX")],
            Err(Refusal::WrongToken),
        );
        check(
            &access,
            &[host, ("authorization", "Bearer ")],
            Err(Refusal::WrongToken),
        );
        let right = ("authorization", &*format!("bearer {TOKEN}"));
        check(&access, &[host, right], Ok(Caller::owner()));
        check(
            &access,
            &[host, right, ("authorization", "Bearer other")],
            Err(Refusal::NoToken),
        );
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("localhost"));
        let access = access.open_at("/health");
        assert_eq!(
            access.check(&Uri::from_static("/health"), &headers, None),
            Ok(Caller::anonymous())
        );
        assert_eq!(
            access.check(&Uri::from_static("/health/"), &headers, None),
            Err(Refusal::NoToken)
        );
        for shown in [TOKEN, "0123456789abcdeX"] {
            headers.insert(AUTHORIZATION, format!("Bearer {shown}").parse().unwrap());
            assert_eq!(
                access.check(&Uri::from_static("/health"), &headers, None),
                Ok(Caller::anonymous())
            );
        }
        assert!(!format!("{access:?}").contains(TOKEN));
    }

    #[test]
    fn check_requires_known_host_in_request_line_and_header() {
        let access = AccessControl::open().hosts(["app.example"]);
        for (uri, host, known) in [
            ("http://localhost/x", "localhost", true),
            ("http://127.0.0.1:80/x", "localhost", true),
            ("http://app.example/x", "localhost", true),
            ("http://[::1]:80/x", "app.example:1", true),
            ("http://evil.example/x", "localhost", false),
            ("https://evil.example:443/x", "app.example", false),
            ("http://localhost/x", "evil.example", false),
            ("http://localhost@evil.example/x", "localhost", false),
            ("http://user@localhost/x", "localhost", false),
            ("http://localhost.evil.example/x", "localhost", false),
            ("evil.example:80", "localhost", false),
            ("localhost:80", "localhost", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            let checked = access.check(&uri.parse().unwrap(), &headers, None);
            assert_eq!(
                checked == Ok(Caller::owner()),
                known,
                "{uri} {host}: {checked:?}"
            );
        }
    }

    #[test]
    fn named_tokens_are_admitted_beside_the_owner() {
        let mut tokens = Tokens::new();
        let ci = tokens.add("ci", [TokenScope::Run]).unwrap();
        let host = ("host", "localhost");
        let shown = ("authorization", &*format!("Bearer {}", ci.reveal()));
        let caller = tokens.find(ci.reveal()).unwrap();
        for access in [
            AccessControl::named(tokens.clone()),
            AccessControl::new(Token::new(TOKEN).unwrap()).tokens(tokens.clone()),
        ] {
            assert!(access.has_token());
            check(&access, &[host, shown], Ok(caller.clone()));
            check(&access, &[host], Err(Refusal::NoToken));
            check(
                &access,
                &[host, ("authorization", "Bearer 0123456789abcdeX")],
                Err(Refusal::WrongToken),
            );
        }
        let access = AccessControl::new(Token::new(TOKEN).unwrap()).tokens(tokens);
        check(
            &access,
            &[host, ("authorization", &format!("Bearer {TOKEN}"))],
            Ok(Caller::owner()),
        );
        check(
            &AccessControl::named(Tokens::new()),
            &[host, shown],
            Err(Refusal::WrongToken),
        );
    }
}
