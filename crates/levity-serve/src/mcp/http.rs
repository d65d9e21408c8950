//! The server over streamable HTTP, for use behind a listener.
//!
//! The protocol's library parses messages and manages sessions. This module adds what a server on a
//! network needs: sessions belong to their caller, bodies have a size and a time limit, and every
//! error is a JSON-RPC message. A stream that has ended is answered with 204, because clients would
//! reconnect to an empty one forever.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use http::{HeaderMap, Method, Request, StatusCode, header};
use levity_rpc::mcp::http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use tokio::task::JoinSet;

use super::McpServer;
use super::session::Session;
use super::sessions::{CALLER, Sessions};
use crate::access::Caller;
use crate::access_control::{guard, refuse};
use crate::body::{BodyError, BodyReader};
use crate::quota::{Quota, TokenShare};

/// The first version without sessions.
const MODERN: &str = "2026-07-28";

type Service = StreamableHttpService<Session, Sessions>;

/// Closes all sessions on drop, because the library's sessions keep themselves alive.
struct HttpState {
    sessions: Arc<Sessions>,
    bodies: BodyReader,
    _sweeper: JoinSet<()>,
}

impl Drop for HttpState {
    fn drop(&mut self) {
        self.sessions.close_all();
    }
}

impl McpServer {
    /// Returns the router for `/mcp`, for use behind a [`Listener`](crate::Listener), whose access
    /// control checks `Host`, `Origin` and the token.
    pub(crate) fn http(&self) -> axum::Router {
        let inner = self.0.clone();
        let limits = &inner.limits;
        let share = TokenShare::percent(limits.token_share);
        let quota = Quota::new(limits.sessions, share);
        let bodies = BodyReader::new(limits.body, limits.body_time, share);
        let sessions = Arc::new(Sessions::new(inner.world.clone(), quota, limits.idle));
        let mut sweeper = JoinSet::new();
        sweeper.spawn(Sessions::sweep_all(Arc::downgrade(&sessions)));
        let state = Arc::new(HttpState {
            sessions: sessions.clone(),
            bodies,
            _sweeper: sweeper,
        });
        let config = StreamableHttpServerConfig::default()
            .with_max_request_body_bytes(limits.body)
            // Sessions send the retry interval themselves.
            .with_sse_retry(None)
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let factory = move || Ok(Session::remote(inner.clone()));
        let service: Service = StreamableHttpService::new(factory, sessions, config);
        let answer = move |request: Request<Body>| answer(service.clone(), state.clone(), request);
        axum::Router::new()
            .route("/mcp", any(answer))
            .fallback(async || {
                refuse(
                    StatusCode::NOT_FOUND,
                    "no_route",
                    "no such path; the MCP server is at `/mcp`",
                )
            })
    }
}

/// Checks the session of a request and its body, and passes it to the library. The caller travels
/// in a task-local variable, because the library opens sessions without the request.
async fn answer(
    service: Service,
    state: Arc<HttpState>,
    request: Request<Body>,
) -> Result<Response, Infallible> {
    let caller = request
        .extensions()
        .get::<Caller>()
        .cloned()
        .unwrap_or_else(Caller::anonymous);
    let (opens, is_json) = (opens_session(&request), is_json(request.headers()));
    // A session belongs to its caller; for other callers it does not exist.
    if let Some(id) = session_id(request.headers())
        && !state.sessions.is_owned_by(id, &caller)
    {
        return Ok((
            StatusCode::NOT_FOUND,
            refusal(-32001, "no such session; start one with `initialize`"),
        )
            .into_response());
    }
    if opens && !state.sessions.has_room(&caller) {
        let retry = [(header::RETRY_AFTER, "30")];
        let text = "too many sessions are open; close one, or try again later";
        return Ok((
            StatusCode::SERVICE_UNAVAILABLE,
            retry,
            refusal(-32000, text),
        )
            .into_response());
    }
    if is_finished_stream(&state.sessions, &request) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let request = match read_body(request, &state.bodies, &caller).await {
        Ok(request) => request,
        Err(response) => return Ok(response),
    };
    let response = CALLER.scope(caller, service.handle(request)).await;
    // The library returns this status for a body that it cannot parse, although the content type is
    // right.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json {
        return Ok((
            StatusCode::BAD_REQUEST,
            refusal(-32700, "the body is not a message of the protocol"),
        )
            .into_response());
    }
    Ok(as_rpc_error(response.into_response()).await)
}

/// Returns the request with its whole body, within the size limit and the timeout. The library
/// would wait forever.
async fn read_body(
    request: Request<Body>,
    bodies: &BodyReader,
    caller: &Caller,
) -> Result<Request<Body>, Response> {
    let (parts, body) = request.into_parts();
    match bodies.read(caller, &parts.headers, body).await {
        Ok(bytes) => Ok(Request::from_parts(parts, Body::from(bytes))),
        Err(error) => {
            let code = if error == BodyError::Broken {
                -32700
            } else {
                -32600
            };
            let mut response = (
                error.status(),
                refusal(code, &error.message(bodies.limit())),
            )
                .into_response();
            response
                .headers_mut()
                .insert(header::CONNECTION, http::HeaderValue::from_static("close"));
            if error == BodyError::Busy {
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, http::HeaderValue::from_static("1"));
            }
            Err(response)
        }
    }
}

/// Converts a plain-text error of the library to a protocol message.
async fn as_rpc_error(response: Response) -> Response {
    const MAX_ERROR_BYTES: usize = 4 << 10;
    let status = response.status();
    let is_plain = !is_json(response.headers());
    if !(status.is_client_error() || status.is_server_error()) || !is_plain {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let text = match text.trim() {
        "" => status
            .canonical_reason()
            .unwrap_or("rejected")
            .to_lowercase(),
        text => text.to_owned(),
    };
    for name in [
        header::CONTENT_TYPE,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
    ] {
        parts.headers.remove(name);
    }
    let mut answer = (status, refusal(-32600, &text)).into_response();
    for (name, value) in &parts.headers {
        answer.headers_mut().append(name, value.clone());
    }
    guard(answer.headers_mut());
    answer
}

fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers
        .get("mcp-session-id")
        .and_then(|id| id.to_str().ok())
}

/// Returns an error without an id, for requests that could not be parsed yet.
fn refusal(code: i32, message: &str) -> axum::Json<serde_json::Value> {
    axum::Json(json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}}))
}

/// Returns `true` if a request opens a session, as far as its headers show.
fn opens_session(request: &Request<Body>) -> bool {
    let headers = request.headers();
    let version = headers
        .get("mcp-protocol-version")
        .and_then(|version| version.to_str().ok());
    request.method() == Method::POST
        && !headers.contains_key("mcp-session-id")
        && version.is_none_or(|version| version < MODERN)
}

/// Returns `true` if a request resumes a stream that has ended. The library would return a stream
/// without events, and clients would reconnect every few seconds forever. Without a stream, they
/// stop.
fn is_finished_stream(sessions: &Sessions, request: &Request<Body>) -> bool {
    let header = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let (Some(session), Some(event)) = (header("mcp-session-id"), header("last-event-id")) else {
        return false;
    };
    request.method() == Method::GET && sessions.is_stream_finished(session, event)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}
