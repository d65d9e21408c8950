use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use http::header::{AUTHORIZATION, CACHE_CONTROL, HOST, ORIGIN, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use crate::token::Token;

/// Who is let in: those who show the token, who mean this server, and whose page comes from where it may.
///
/// A browser that was led to a name which an attacker resolves to this machine says so in its `Host` and `Origin`; neither is let in.
#[derive(Clone)]
pub struct Gate {
    token: Option<Token>,
    hosts: Arc<[String]>,
    origins: Arc<[String]>,
    /// Where no token is asked for.
    open_at: Option<&'static str>,
}

impl Gate {
    /// Lets in whoever shows this token.
    pub fn new(token: Token) -> Self {
        Self { token: Some(token), hosts: Arc::new([]), origins: Arc::new([]), open_at: None }
    }

    /// Lets in everybody on this machine, for tests and for servers that do nothing of weight. It is refused where a server
    /// can be reached from other machines.
    pub fn open() -> Self {
        Self { token: None, hosts: Arc::new([]), origins: Arc::new([]), open_at: None }
    }

    /// Names that clients may call this server by, besides those of the loopback, with or without a port.
    #[must_use]
    pub fn hosts<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.hosts = names.into_iter().map(|name| name.into().to_ascii_lowercase()).collect();
        self
    }

    /// Where pages may come from that call this server, such as `https://app.example`, besides those of the loopback.
    #[must_use]
    pub fn origins<S: Into<String>>(mut self, origins: impl IntoIterator<Item = S>) -> Self {
        self.origins = origins.into_iter().map(|origin| origin.into().to_ascii_lowercase()).collect();
        self
    }

    /// Whether a token must be shown.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Asks for no token at this path, which tells nothing that is secret.
    pub(crate) fn open_at(mut self, path: &'static str) -> Self {
        self.open_at = Some(path);
        self
    }

    /// Puts the gate before all of a router.
    pub(crate) fn before(self, router: Router) -> Router {
        router.layer(axum::middleware::from_fn_with_state(Arc::new(self), pass))
    }

    fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        if !self.knows_host(headers) {
            return Err(Refusal::Host);
        }
        if !self.knows_origin(headers) {
            return Err(Refusal::Origin);
        }
        let Some(token) = self.token.as_ref().filter(|_| self.open_at != Some(path)) else { return Ok(()) };
        match bearer(headers) {
            None => Err(Refusal::NoToken),
            Some(shown) if token.matches(shown) => Ok(()),
            Some(_) => Err(Refusal::WrongToken),
        }
    }

    fn knows_host(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else {
            return false;
        };
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        is_loopback(name) || self.hosts.iter().any(|known| *known == host || known == name)
    }

    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else { return true };
        let Ok(origin) = origin.to_str().map(str::to_ascii_lowercase) else { return false };
        let loopback = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"))
            .is_some_and(|host| is_loopback(without_port(host)));
        origins.next().is_none() && (loopback || self.origins.contains(&origin))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    let (Some(shown), None) = (shown.next(), shown.next()) else { return None };
    let (scheme, token) = shown.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The host of an authority: `[::1]:80` is `[::1]`.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => authority,
    }
}

fn is_loopback(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()),
        None => host == "localhost" || host.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Host,
    Origin,
    NoToken,
    WrongToken,
}

impl Refusal {
    fn answer(self) -> Response {
        let (status, code, message) = match self {
            Self::Host => (
                StatusCode::FORBIDDEN,
                "host_refused",
                "this server is not known by that `Host`; call it by a loopback name, or allow the name",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "origin_refused",
                "pages of that `Origin` may not call this server; allow it, or open the page from this machine",
            ),
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "token_missing",
                "show the server's token: `Authorization: Bearer TOKEN`",
            ),
            Self::WrongToken => (
                StatusCode::UNAUTHORIZED,
                "token_wrong",
                "that is not the token of this server; it was printed when it was made, and is in its token file",
            ),
        };
        let mut answer = refuse(status, code, message);
        if status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

/// An answer that says what is wrong in words and by a code.
pub(crate) fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    let mut answer = (status, Json(json!({"error": {"code": code, "message": message}}))).into_response();
    guard(answer.headers_mut());
    answer
}

/// Sees to it that nobody in between keeps an answer, and no browser takes it for something else.
pub(crate) fn guard(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    match gate.check(request.uri().path(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.answer(),
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("token", &self.token)
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
    fn check(gate: &Gate, headers: &[(&str, &str)], expected: Result<(), Refusal>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        assert_eq!(gate.check("/", &map), expected, "{headers:?}");
    }

    #[test]
    fn hosts_and_origins_are_those_of_this_machine() {
        let gate = Gate::open();
        for host in
            ["localhost", "localhost:80", "127.0.0.1:8888", "127.9.9.9", "[::1]", "[::1]:8888", "LOCALHOST:1"]
        {
            check(&gate, &[("host", host)], Ok(()));
            check(&gate, &[("host", host), ("origin", &format!("http://{host}"))], Ok(()));
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
            check(&gate, &[("host", "localhost"), ("origin", &origin)], Err(Refusal::Origin));
        }
        check(&gate, &[], Err(Refusal::Host));
        check(&gate, &[("host", "localhost"), ("host", "evil.example")], Err(Refusal::Host));
        check(&gate, &[("host", "localhost"), ("origin", "null")], Err(Refusal::Origin));
        let wide = Gate::open().hosts(["App.example"]).origins(["https://app.example"]);
        check(&wide, &[("host", "app.example:444"), ("origin", "https://app.example")], Ok(()));
        check(&wide, &[("host", "app.example"), ("origin", "http://app.example")], Err(Refusal::Origin));
    }

    #[test]
    fn the_token_must_be_shown() {
        let gate = Gate::new(Token::new(TOKEN).unwrap());
        let host = ("host", "localhost");
        check(&gate, &[host], Err(Refusal::NoToken));
        check(&gate, &[host, ("authorization", "Basic 0123456789abcdef")], Err(Refusal::NoToken));
        check(&gate, &[host, ("authorization", "Bearer 0123456789abcdeX")], Err(Refusal::WrongToken));
        check(&gate, &[host, ("authorization", "Bearer ")], Err(Refusal::WrongToken));
        let right = ("authorization", &*format!("bearer {TOKEN}"));
        check(&gate, &[host, right], Ok(()));
        check(&gate, &[host, right, ("authorization", "Bearer other")], Err(Refusal::NoToken));
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("localhost"));
        let gate = gate.open_at("/health");
        assert_eq!(gate.check("/health", &headers), Ok(()));
        assert_eq!(gate.check("/health/", &headers), Err(Refusal::NoToken));
        assert!(!format!("{gate:?}").contains(TOKEN));
    }
}
