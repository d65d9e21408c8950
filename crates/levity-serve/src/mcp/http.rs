//! The server over streamable HTTP, to be put behind a listener.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use http::{HeaderMap, Method, Request, StatusCode, header};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use tokio::task::JoinSet;

use super::McpServer;
use super::session::Session;
use super::sessions::Sessions;

/// Since this version there are no sessions.
const MODERN: &str = "2026-07-28";

type Service = StreamableHttpService<Session, Sessions>;

/// Closes what is left open when nobody can come any more: the library's sessions keep themselves alive.
struct Door {
    sessions: Arc<Sessions>,
    _sweeper: JoinSet<()>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.sessions.close_all();
    }
}

impl McpServer {
    /// What answers at `/mcp`, to be put behind a [`Listener`](crate::Listener): its gate looks at `Host`, `Origin` and the token.
    pub(crate) fn http(&self) -> axum::Router {
        let inner = self.0.clone();
        let limits = &inner.limits;
        let sessions = Arc::new(Sessions::new(inner.world.clone(), limits.sessions, limits.idle));
        let mut sweeper = JoinSet::new();
        sweeper.spawn(Sessions::sweep_all(Arc::downgrade(&sessions)));
        let door = Arc::new(Door { sessions: sessions.clone(), _sweeper: sweeper });
        let config = StreamableHttpServerConfig::default()
            .with_max_request_body_bytes(limits.body)
            // Sessions tell their clients themselves how to come back.
            .with_sse_retry(None)
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let factory = move || Ok(Session::new(inner.clone()));
        let service: Service = StreamableHttpService::new(factory, sessions, config);
        let answer = move |request: Request<Body>| answer(service.clone(), door.clone(), request);
        axum::Router::new().route("/mcp", any(answer))
    }
}

async fn answer(service: Service, door: Arc<Door>, request: Request<Body>) -> Result<Response, Infallible> {
    let (opens, is_json) = (opens_session(&request), is_json(request.headers()));
    if opens && !door.sessions.has_room() {
        let retry = [(header::RETRY_AFTER, "30")];
        let text = "too many sessions are open; close one, or try again later";
        return Ok((StatusCode::SERVICE_UNAVAILABLE, retry, refusal(-32000, text)).into_response());
    }
    if comes_for_nothing(&door.sessions, &request) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let response = service.handle(request).await;
    // The library says so of a body that it cannot read; the type is not what is wrong with it.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json {
        return Ok((StatusCode::BAD_REQUEST, refusal(-32700, "the body is no message of the protocol"))
            .into_response());
    }
    Ok(response.into_response())
}

fn refusal(code: i32, message: &str) -> axum::Json<serde_json::Value> {
    axum::Json(json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}}))
}

/// Whether a request asks for a session of its own, as far as can be seen without reading it.
fn opens_session(request: &Request<Body>) -> bool {
    let headers = request.headers();
    let version = headers.get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    request.method() == Method::POST
        && !headers.contains_key("mcp-session-id")
        && version.is_none_or(|version| version < MODERN)
}

/// Whether a request goes on with a stream that has ended. The library would answer with a stream without events, whereupon clients
/// come back every few seconds for as long as they live; when there is no stream at all, they let it be.
fn comes_for_nothing(sessions: &Sessions, request: &Request<Body>) -> bool {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let (Some(session), Some(event)) = (header("mcp-session-id"), header("last-event-id")) else {
        return false;
    };
    request.method() == Method::GET && sessions.has_no_more(session, event)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}
