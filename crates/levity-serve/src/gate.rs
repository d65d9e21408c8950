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
use crate::listen::{Failures, NoSlot, Penalty, Visit};
use crate::proof::{self, Challenger, Exchange};
use crate::token::Token;

/// Who is let in: those who show the token, who mean this server, and whose page comes from where
/// it may.
///
/// A browser that was led to a name which an attacker resolves to this machine says so in its
/// `Host` and `Origin`; neither is let in.
#[derive(Clone)]
pub struct AccessControl {
    token: Option<Token>,
    /// Tokens with names, beside it.
    tokens: Tokens,
    /// Whether no token is asked for anywhere.
    is_open: bool,
    hosts: Arc<[String]>,
    origins: Arc<[String]>,
    /// Where no token is asked for.
    open_at: Option<&'static str>,
    /// Checks clients that prove that they have the token instead of sending it.
    proofs: Option<Arc<Challenger>>,
}

impl AccessControl {
    /// Lets in whoever shows this token.
    pub fn new(token: Token) -> Self {
        Self {
            token: Some(token),
            is_open: false,
            ..Self::open()
        }
    }

    /// Lets in whoever shows one of these tokens, for what its scopes allow.
    pub fn named(tokens: Tokens) -> Self {
        Self {
            is_open: false,
            tokens,
            ..Self::open()
        }
    }

    /// Lets in whoever shows one of these tokens, too.
    #[must_use]
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        (self.tokens, self.is_open) = (tokens, false);
        self
    }

    /// Lets in everybody on this machine, for tests and for servers that do nothing of weight. It
    /// is refused where a server can be reached from other machines.
    pub fn open() -> Self {
        Self {
            token: None,
            tokens: Tokens::new(),
            is_open: true,
            hosts: Arc::new([]),
            origins: Arc::new([]),
            open_at: None,
            proofs: None,
        }
    }

    /// Names that clients may call this server by, besides those of the loopback, with or without a
    /// port.
    #[must_use]
    pub fn hosts<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.hosts = names
            .into_iter()
            .map(|name| name.into().to_ascii_lowercase())
            .collect();
        self
    }

    /// Where pages may come from that call this server, such as `https://app.example`, besides
    /// those of the loopback.
    #[must_use]
    pub fn origins<S: Into<String>>(mut self, origins: impl IntoIterator<Item = S>) -> Self {
        self.origins = origins
            .into_iter()
            .map(|origin| origin.into().to_ascii_lowercase())
            .collect();
        self
    }

    /// Whether a token must be shown.
    pub(crate) fn has_token(&self) -> bool {
        !self.is_open
    }

    /// Asks for no token at this path, which tells nothing that is secret.
    pub(crate) fn open_at(mut self, path: &'static str) -> Self {
        self.open_at = Some(path);
        self
    }

    /// Lets clients prove that they have the token instead of sending it; see
    /// [`proof`](crate::proof).
    pub(crate) fn with_proofs(mut self) -> Result<Self> {
        let unable = || {
            Error::setting(
                "gate",
                "needs a key, and the system has no randomness to make one of",
            )
        };
        self.proofs = Some(Arc::new(Challenger::new().ok_or_else(unable)?));
        Ok(self)
    }

    /// The answer to a challenge of a client that reached this server at `local`.
    fn answer_challenge(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        local: SocketAddr,
    ) -> Option<Response> {
        let (challenger, token) = (self.proofs.as_ref()?, self.token.as_ref()?);
        if !self.knows_host(uri, headers) {
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
                "send `client`, a nonce of 16 to 64 letters",
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

    /// Whether a client that reached this server at `local` proves that it has the token; `None`
    /// when it tries nothing of the kind.
    fn proven(&self, headers: &HeaderMap, local: Option<SocketAddr>) -> Option<bool> {
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

    /// The address at which a client reached this server: its own, or one that was allowed, such as
    /// that of a tunnel's other end.
    fn reached_at(&self, headers: &HeaderMap, local: SocketAddr) -> SocketAddr {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let allowed = host.filter(|host| {
            self.hosts
                .iter()
                .any(|known| known.eq_ignore_ascii_case(host))
        });
        allowed.and_then(|host| host.parse().ok()).unwrap_or(local)
    }

    /// Who asks, if they may come in.
    fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        local: Option<SocketAddr>,
    ) -> Result<Caller, Refusal> {
        if !self.knows_host(uri, headers) {
            return Err(Refusal::Host);
        }
        if !self.knows_origin(headers) {
            return Err(Refusal::Origin);
        }
        if self.is_open {
            return Ok(Caller::owner());
        }
        // No token is looked at here, a right one neither: how its connection fares afterwards
        // would tell who guesses that it is.
        if self.open_at == Some(uri.path()) {
            return Ok(Caller::nobody());
        }
        match self.proven(headers, local) {
            Some(true) => return Ok(Caller::owner()),
            Some(false) => return Err(Refusal::WrongToken),
            None => {}
        }
        let shown = bearer(headers).ok_or(Refusal::NoToken)?;
        self.find(shown).ok_or(Refusal::WrongToken)
    }

    /// Whose token this is.
    fn find(&self, shown: &str) -> Option<Caller> {
        let owner = self
            .token
            .as_ref()
            .filter(|token| token.matches(shown))
            .map(|_| Caller::owner());
        let named = self.tokens.find(shown);
        owner.or(named)
    }

    /// Whether a request means this server. A request that names its host in its line is about that
    /// one, whatever `Host` says; a program in between may have gone by either, so both must be
    /// known.
    fn knows_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
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

    /// Whether a host is this server. One with a user before it is not: nobody calls a server so
    /// who means well.
    fn is_known(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        is_loopback(name)
            || self
                .hosts
                .iter()
                .any(|known| *known == host || known == name)
    }

    fn knows_origin(&self, headers: &HeaderMap) -> bool {
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

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    let (Some(shown), None) = (shown.next(), shown.next()) else {
        return None;
    };
    let (scheme, token) = shown.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The host of an authority: `[::1]:80` is `[::1]`.
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
    fn answer(self) -> Response {
        let (status, code, message) = match self {
            Self::Host => (
                StatusCode::FORBIDDEN,
                "host_refused",
                "this server is not known by that `Host`; call it by a loopback name, or allow the \
                    name",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "origin_refused",
                "pages of that `Origin` may not call this server; allow it, or open the page from \
                    this machine",
            ),
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "token_missing",
                "show the server's token: `Authorization: Bearer TOKEN`",
            ),
            Self::WrongToken => (
                StatusCode::UNAUTHORIZED,
                "token_wrong",
                "that is not the token of this server; it was printed when it was made, and is in \
                    its token file",
            ),
            Self::Throttled => (
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_wrong_tokens",
                "many wrong tokens came from this address; a right one is still let in",
            ),
            Self::Full => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too_many_connections",
                "as many connections are open as may be; close some, or come again later",
            ),
            Self::NotOwner => (
                StatusCode::FORBIDDEN,
                "scope_missing",
                "this server is for its owner; show a token with the scope `admin`",
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
        // Each guess costs a connection, and a connection that is refused keeps no place.
        if matches!(self, Self::WrongToken | Self::Throttled | Self::Full) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

/// An answer that says what is wrong in words and by a code.
pub(crate) fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    let mut answer = (
        status,
        Json(json!({"error": {"code": code, "message": message}})),
    )
        .into_response();
    guard(answer.headers_mut());
    answer
}

/// Sees to it that nobody in between keeps an answer, and no browser takes it for something else.
pub(crate) fn guard(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Whom a router is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// The owner of the server: the router knows nothing of scopes.
    Owner,
    /// All callers: the router checks what each may do.
    Callers,
}

/// The gate of one listener, and what it remembers of those who came.
pub(crate) struct Door {
    gate: AccessControl,
    serves: Serves,
    failures: Arc<Failures>,
    log: Option<AccessLog>,
}

impl Door {
    pub(crate) fn new(
        gate: AccessControl,
        serves: Serves,
        failures: Failures,
        log: Option<AccessLog>,
    ) -> Self {
        Self {
            gate,
            serves,
            failures: Arc::new(failures),
            log,
        }
    }

    /// Puts the gate before all of a router.
    pub(crate) fn before(self, router: Router) -> Router {
        router.layer(axum::middleware::from_fn_with_state(Arc::new(self), pass))
    }

    /// Who asks, if there is a place for their connection.
    async fn admit(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        visit: Option<&Visit>,
    ) -> Result<Caller, Refusal> {
        let local = visit.and_then(|visit| visit.local);
        let caller = match (self.gate.check(uri, headers, local), visit) {
            (Err(Refusal::WrongToken), Some(visit)) => {
                return match self.failures.wrong(visit.slot.address()).await {
                    Penalty::None => Err(Refusal::WrongToken),
                    Penalty::Throttled => Err(Refusal::Throttled),
                };
            }
            (checked, _) => checked?,
        };
        if let Some(visit) = visit.filter(|_| caller.may(TokenScope::Read)) {
            // The users of a tenant share its places.
            let whose = caller.namespace().or(caller.name());
            visit.slot.admit(whose).map_err(|_: NoSlot| Refusal::Full)?;
        }
        let open = self.gate.open_at == Some(uri.path());
        match self.serves == Serves::Owner && !open && !caller.may(TokenScope::Admin) {
            true => Err(Refusal::NotOwner),
            false => Ok(caller),
        }
    }
}

async fn pass(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    // Whoever keeps the request for longer than its connection lasts must not keep the place of
    // that.
    let visit = request.extensions_mut().remove::<Visit>();
    // Whoever answers says how long the client may take.
    if let Some(visit) = &visit {
        request.extensions_mut().insert(visit.answers.clone());
    }
    let address = visit.as_ref().map(|visit| visit.address);
    let mut noted = door
        .log
        .clone()
        .map(|log| Noted::of(log, &request, address));
    let local = visit.as_ref().and_then(|visit| visit.local);
    if request.uri().path() == proof::PATH
        && let Some(local) = local
        && let Some(answer) = door
            .gate
            .answer_challenge(request.uri(), request.headers(), local)
    {
        noted
            .iter_mut()
            .for_each(|noted| noted.status = answer.status().as_u16());
        return answer;
    }
    let answer = match door
        .admit(request.uri(), request.headers(), visit.as_ref())
        .await
    {
        Ok(caller) => {
            noted
                .iter_mut()
                .for_each(|noted| noted.caller = Some(caller.clone()));
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => refusal.answer(),
    };
    noted
        .iter_mut()
        .for_each(|noted| noted.status = answer.status().as_u16());
    answer
}

/// What a log says of a request whose client left before the answer.
const LEFT: u16 = 499;

/// What a log says of a request. It is written however the request ends.
struct Noted {
    log: AccessLog,
    at: levity_core::Timestamp,
    address: Option<IpAddr>,
    method: String,
    path: String,
    caller: Option<Caller>,
    status: u16,
}

impl Noted {
    fn of(log: AccessLog, request: &Request, address: Option<IpAddr>) -> Self {
        const LONGEST: usize = 256;
        Self {
            log,
            at: SystemWorld.now(),
            caller: None,
            status: LEFT,
            address,
            method: request.method().as_str().chars().take(16).collect(),
            path: request.uri().path().chars().take(LONGEST).collect(),
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let caller = self.caller.as_ref();
        self.log.write(&AccessRecord {
            at: self.at,
            address: self.address,
            token: caller.and_then(Caller::name).map(str::to_owned),
            authenticated: caller.is_some_and(|caller| caller.may(TokenScope::Read)),
            method: std::mem::take(&mut self.method),
            path: std::mem::take(&mut self.path),
            status: self.status,
            took: SystemWorld.now().since(self.at),
        });
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
    fn check(gate: &AccessControl, headers: &[(&str, &str)], expected: Result<Caller, Refusal>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        assert_eq!(
            gate.check(&Uri::from_static("/"), &map, None),
            expected,
            "{headers:?}"
        );
    }

    #[test]
    fn hosts_and_origins_are_those_of_this_machine() {
        let gate = AccessControl::open();
        for host in [
            "localhost",
            "localhost:80",
            "127.0.0.1:8888",
            "127.9.9.9",
            "[::1]",
            "[::1]:8888",
            "LOCALHOST:1",
        ] {
            check(&gate, &[("host", host)], Ok(Caller::owner()));
            check(
                &gate,
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
            check(&gate, &[("host", host)], Err(Refusal::Host));
            let origin = format!("http://{host}");
            check(
                &gate,
                &[("host", "localhost"), ("origin", &origin)],
                Err(Refusal::Origin),
            );
        }
        check(&gate, &[], Err(Refusal::Host));
        check(
            &gate,
            &[("host", "localhost"), ("host", "evil.example")],
            Err(Refusal::Host),
        );
        check(
            &gate,
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
    fn the_token_must_be_shown() {
        let gate = AccessControl::new(Token::new(TOKEN).unwrap());
        let host = ("host", "localhost");
        check(&gate, &[host], Err(Refusal::NoToken));
        check(
            &gate,
            &[host, ("authorization", "Basic 0123456789abcdef")],
            Err(Refusal::NoToken),
        );
        check(
            &gate,
            &[host, ("authorization", "Bearer 0123456789abcdeX")],
            Err(Refusal::WrongToken),
        );
        check(
            &gate,
            &[host, ("authorization", "Bearer ")],
            Err(Refusal::WrongToken),
        );
        let right = ("authorization", &*format!("bearer {TOKEN}"));
        check(&gate, &[host, right], Ok(Caller::owner()));
        check(
            &gate,
            &[host, right, ("authorization", "Bearer other")],
            Err(Refusal::NoToken),
        );
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("localhost"));
        let gate = gate.open_at("/health");
        assert_eq!(
            gate.check(&Uri::from_static("/health"), &headers, None),
            Ok(Caller::nobody())
        );
        assert_eq!(
            gate.check(&Uri::from_static("/health/"), &headers, None),
            Err(Refusal::NoToken)
        );
        for shown in [TOKEN, "0123456789abcdeX"] {
            headers.insert(AUTHORIZATION, format!("Bearer {shown}").parse().unwrap());
            assert_eq!(
                gate.check(&Uri::from_static("/health"), &headers, None),
                Ok(Caller::nobody())
            );
        }
        assert!(!format!("{gate:?}").contains(TOKEN));
    }

    #[test]
    fn host_in_the_request_line_counts_as_much_as_the_header() {
        let gate = AccessControl::open().hosts(["app.example"]);
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
            let checked = gate.check(&uri.parse().unwrap(), &headers, None);
            assert_eq!(
                checked == Ok(Caller::owner()),
                known,
                "{uri} {host}: {checked:?}"
            );
        }
    }

    #[test]
    fn named_tokens_are_let_in_beside_the_owner() {
        let mut tokens = Tokens::new();
        let ci = tokens.add("ci", [TokenScope::Run]).unwrap();
        let host = ("host", "localhost");
        let shown = ("authorization", &*format!("Bearer {}", ci.reveal()));
        let caller = tokens.find(ci.reveal()).unwrap();
        for gate in [
            AccessControl::named(tokens.clone()),
            AccessControl::new(Token::new(TOKEN).unwrap()).tokens(tokens.clone()),
        ] {
            assert!(gate.has_token());
            check(&gate, &[host, shown], Ok(caller.clone()));
            check(&gate, &[host], Err(Refusal::NoToken));
            check(
                &gate,
                &[host, ("authorization", "Bearer 0123456789abcdeX")],
                Err(Refusal::WrongToken),
            );
        }
        let gate = AccessControl::new(Token::new(TOKEN).unwrap()).tokens(tokens);
        check(
            &gate,
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
