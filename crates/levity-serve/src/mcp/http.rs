//! The server over streamable HTTP, to be put behind a listener.

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

/// Since this version there are no sessions.
const MODERN: &str = "2026-07-28";

type Service = StreamableHttpService<Session, Sessions>;

/// Closes what is left open when nobody can come any more: the library's sessions keep themselves
/// alive.
struct Door {
    sessions: Arc<Sessions>,
    bodies: BodyReader,
    _sweeper: JoinSet<()>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.sessions.close_all();
    }
}

impl McpServer {
    /// What answers at `/mcp`, to be put behind a [`Listener`](crate::Listener): its gate looks at
    /// `Host`, `Origin` and the token.
    pub(crate) fn http(&self) -> axum::Router {
        let inner = self.0.clone();
        let limits = &inner.limits;
        let share = TokenShare::percent(limits.token_share);
        let places = Quota::new(limits.sessions, share);
        let bodies = BodyReader::new(limits.body, limits.body_time, share);
        let sessions = Arc::new(Sessions::new(inner.world.clone(), places, limits.idle));
        let mut sweeper = JoinSet::new();
        sweeper.spawn(Sessions::sweep_all(Arc::downgrade(&sessions)));
        let door = Arc::new(Door {
            sessions: sessions.clone(),
            bodies,
            _sweeper: sweeper,
        });
        let config = StreamableHttpServerConfig::default()
            .with_max_request_body_bytes(limits.body)
            // Sessions tell their clients themselves how to come back.
            .with_sse_retry(None)
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let factory = move || Ok(Session::remote(inner.clone()));
        let service: Service = StreamableHttpService::new(factory, sessions, config);
        let answer = move |request: Request<Body>| answer(service.clone(), door.clone(), request);
        axum::Router::new()
            .route("/mcp", any(answer))
            .fallback(async || {
                refuse(
                    StatusCode::NOT_FOUND,
                    "no_route",
                    "there is nothing here; the MCP server is at `/mcp`",
                )
            })
    }
}

async fn answer(
    service: Service,
    door: Arc<Door>,
    request: Request<Body>,
) -> Result<Response, Infallible> {
    let caller = request
        .extensions()
        .get::<Caller>()
        .cloned()
        .unwrap_or_else(Caller::anonymous);
    let (opens, is_json) = (opens_session(&request), is_json(request.headers()));
    // A session is its caller's; for others there is none.
    if let Some(id) = session_id(request.headers())
        && !door.sessions.is_of(id, &caller)
    {
        return Ok((
            StatusCode::NOT_FOUND,
            refusal(-32001, "there is no such session"),
        )
            .into_response());
    }
    if opens && !door.sessions.has_room(&caller) {
        let retry = [(header::RETRY_AFTER, "30")];
        let text = "too many sessions are open; close one, or try again later";
        return Ok((
            StatusCode::SERVICE_UNAVAILABLE,
            retry,
            refusal(-32000, text),
        )
            .into_response());
    }
    if comes_for_nothing(&door.sessions, &request) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let request = match whole(request, &door.bodies, &caller).await {
        Ok(request) => request,
        Err(response) => return Ok(response),
    };
    let response = CALLER.scope(caller, service.handle(request)).await;
    // The library says so of a body that it cannot read; the type is not what is wrong with it.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json {
        return Ok((
            StatusCode::BAD_REQUEST,
            refusal(-32700, "the body is no message of the protocol"),
        )
            .into_response());
    }
    Ok(in_form(response.into_response()).await)
}

/// The request with all of its body, as far as that is no larger than it may be and comes in time:
/// the library would wait for ever.
async fn whole(
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

/// An error of the library's that is plain text, as a message of the protocol.
async fn in_form(response: Response) -> Response {
    const LONGEST: usize = 4 << 10;
    let status = response.status();
    let is_plain = !is_json(response.headers());
    if !(status.is_client_error() || status.is_server_error()) || !is_plain {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, LONGEST).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let text = match text.trim() {
        "" => status
            .canonical_reason()
            .unwrap_or("refused")
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

fn refusal(code: i32, message: &str) -> axum::Json<serde_json::Value> {
    axum::Json(json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}}))
}

/// Whether a request asks for a session of its own, as far as can be seen without reading it.
fn opens_session(request: &Request<Body>) -> bool {
    let headers = request.headers();
    let version = headers
        .get("mcp-protocol-version")
        .and_then(|version| version.to_str().ok());
    request.method() == Method::POST
        && !headers.contains_key("mcp-session-id")
        && version.is_none_or(|version| version < MODERN)
}

/// Whether a request goes on with a stream that has ended. The library would answer with a stream
/// without events, whereupon clients come back every few seconds for as long as they live; when
/// there is no stream at all, they let it be.
fn comes_for_nothing(sessions: &Sessions, request: &Request<Body>) -> bool {
    let header = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let (Some(session), Some(event)) = (header("mcp-session-id"), header("last-event-id")) else {
        return false;
    };
    request.method() == Method::GET && sessions.has_no_more(session, event)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}
