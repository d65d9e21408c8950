//! The routes of the HTTP API and their methods.
//!
//! Each route names the scope that each of its methods needs. The table is the only place where
//! routes are declared: the scope check is derived from it, and a test compares it with the OpenAPI
//! description. Two routes need more than a scope: their handlers look at the question or the tool
//! first.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, delete, get, post};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH};
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::extract::caller;
use super::openapi::openapi;
use super::problem::{Problem, ok};
use super::{
    Api, asks, commands, content, costs, events, fork, inbox, list, login, page, run_view,
    sessions, start, stream as page_stream, tools, view,
};
use crate::access::TokenScope;
use crate::access_control::guard;
use crate::listen::AnswerTimer;
use crate::quota::QuotaFull;

/// A path with its methods.
struct Route {
    path: &'static str,
    /// The methods as the description names them, and the requirement of each.
    methods: &'static [(&'static str, Needs)],
    answer: MethodRouter<Arc<Api>>,
}

/// The requirement that a caller must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// No requirement, not even a token.
    Nothing,
    /// A token with this scope, or with one that includes it.
    Scope(TokenScope),
}

use Needs::Nothing;
const READ: Needs = Needs::Scope(TokenScope::Read);
const RUN: Needs = Needs::Scope(TokenScope::Run);

fn route(
    path: &'static str,
    methods: &'static [(&'static str, Needs)],
    answer: MethodRouter<Arc<Api>>,
) -> Route {
    Route {
        path,
        methods,
        answer,
    }
}

/// Rejects callers whose token lacks the scope. The router rejects other methods.
///
/// A `HEAD` request needs the same scope as `GET`.
async fn check_scope(
    methods: &'static [(&'static str, Needs)],
    request: Request,
    next: Next,
) -> Response {
    let method = if request.method() == http::Method::HEAD {
        "GET"
    } else {
        request.method().as_str()
    };
    let needs = methods
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(method))
        .map(|(_, needs)| *needs);
    let caller = caller(request.extensions());
    match needs {
        Some(Needs::Scope(scope)) if !caller.has_scope(scope) => {
            Problem::forbidden(caller.missing(scope)).into_response()
        }
        Some(_) => next.run(request).await,
        None => no_method().into_response(),
    }
}

fn no_method() -> Problem {
    let message = "this path does not support that method; `Allow` lists the supported ones";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no_method", message)
}

/// The table of all routes, with the scope that each method needs.
fn routes() -> Vec<Route> {
    vec![
        route("/", &[("get", Nothing)], get(page::show)),
        route("/page/{file}", &[("get", Nothing)], get(page::show)),
        route("/licenses", &[("get", Nothing)], get(page::show)),
        route("/v1/health", &[("get", Nothing)], get(health)),
        route(
            login::PATH,
            &[("post", Nothing)],
            without_query(post(login::login)),
        ),
        route(
            "/v1/runs/{run}/artifacts",
            &[("get", READ)],
            without_query(get(view::artifacts)),
        ),
        route(
            "/v1/runs/{run}/artifacts/content",
            &[("get", READ)],
            get(content::content),
        ),
        route(
            "/v1/runs/{run}/graph.svg",
            &[("get", READ)],
            without_query(get(content::graph)),
        ),
        route(
            "/v1/models",
            &[("get", READ)],
            without_query(get(list::models)),
        ),
        route("/v1/costs", &[("get", READ)], get(costs::costs)),
        route(
            "/v1/openapi.json",
            &[("get", READ)],
            get(async || ok(&openapi())),
        ),
        route(
            "/v1/runs",
            &[("get", READ), ("post", RUN)],
            get(list::list).post(start::start),
        ),
        route(
            "/v1/runs/{run}",
            &[("get", READ), ("delete", RUN)],
            without_query(get(run_view::show).delete(list::remove)),
        ),
        route(
            "/v1/runs/{run}/events",
            &[("get", READ)],
            get(events::events),
        ),
        route("/v1/runs/{run}/view", &[("get", READ)], get(view::view)),
        route(
            "/v1/runs/{run}/fork",
            &[("post", RUN)],
            without_query(post(fork::fork)),
        ),
        route(
            "/v1/asks",
            &[("get", READ)],
            without_query(get(inbox::asks)),
        ),
        route("/v1/stream", &[("get", READ)], get(page_stream::stream)),
        route(
            "/v1/runs/{run}/pause",
            &[("post", RUN)],
            without_query(post(commands::pause)),
        ),
        route(
            "/v1/runs/{run}/resume",
            &[("post", RUN)],
            without_query(post(commands::resume)),
        ),
        route(
            "/v1/runs/{run}/cancel",
            &[("post", RUN)],
            without_query(post(commands::cancel)),
        ),
        route(
            "/v1/runs/{run}/message",
            &[("post", RUN)],
            without_query(post(commands::say)),
        ),
        route(
            "/v1/runs/{run}/asks",
            &[("get", READ)],
            without_query(get(asks::asks)),
        ),
        // The required scope depends on the question.
        route(
            "/v1/runs/{run}/asks/{ask}",
            &[("post", READ)],
            without_query(post(asks::decide)),
        ),
        route("/v1/sessions", &[("get", READ)], get(sessions::list)),
        route(
            "/v1/sessions/{session}",
            &[("get", READ), ("delete", RUN)],
            get(sessions::show).merge(without_query(delete(sessions::forget))),
        ),
        route(
            "/v1/tools",
            &[("get", READ)],
            without_query(get(tools::list)),
        ),
        // The required scope depends on the tool.
        route(
            "/v1/tools/{tool}",
            &[("post", READ)],
            without_query(post(tools::call)),
        ),
    ]
}

/// Rejects query parameters: a client that sends one expects something that the route does not do.
fn without_query(answer: MethodRouter<Arc<Api>>) -> MethodRouter<Arc<Api>> {
    answer.route_layer(from_fn(
        async |request: Request, next: Next| match request.uri().query() {
            None | Some("") => next.run(request).await,
            Some(_) => Problem::bad(
                "bad_query",
                "this path takes no query \
                parameters",
            )
            .into_response(),
        },
    ))
}

/// Builds the router. Paths that do not exist get the same checks of number and headers as all
/// others.
pub(super) fn router(api: &Arc<Api>) -> Router {
    let add = |router: Router<Arc<Api>>, route: Route| {
        let methods = route.methods;
        let check =
            from_fn(move |request: Request, next: Next| check_scope(methods, request, next));
        router.route(route.path, route.answer.route_layer(check))
    };
    routes()
        .into_iter()
        .fold(Router::new(), add)
        .fallback(async || {
            Problem::not_found(
                "no_route",
                "no such path; `/v1/openapi.json` describes all paths",
            )
        })
        .method_not_allowed_fallback(async || no_method())
        .layer(from_fn_with_state(api.clone(), limit_requests))
        .layer(from_fn(set_guard_headers))
        .with_state(api.clone())
}

/// Reports that the server is running. It reveals nothing more, because it requires no token.
async fn health() -> Response {
    ok(&json!({"status": "ok", "name": "levity", "version": env!("CARGO_PKG_VERSION")}))
}

/// Limits the number of requests in progress, until their responses are sent. Clients without a
/// token get an immediate response and use no permit.
async fn limit_requests(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let caller = caller(request.extensions());
    if !caller.has_scope(TokenScope::Read) {
        return next.run(request).await;
    }
    match api.requests.take(&caller) {
        Ok(permit) => {
            let timer = request.extensions().get::<AnswerTimer>().cloned();
            let answer = next.run(request).await;
            held_until_sent(
                answer,
                (
                    permit,
                    timer.map(|timer| timer.start(api.settings.answer_time)),
                ),
            )
            .await
        }
        Err(QuotaFull { limit }) => {
            let message =
                format!("{limit} requests are in progress, which is the limit; try again later");
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "full", message)
                .retry_after(1)
                .into_response()
        }
    }
}

/// The number of bytes of a large response that are passed on at once.
const PIECE: usize = 16 << 10;

/// Passes a large response on in pieces as the client reads it, and retains `held` until then.
/// Streams have no size, and their own permits. A response of up to 16 KiB releases its permit at
/// once.
async fn held_until_sent(answer: Response, held: impl Send + 'static) -> Response {
    let large = answer
        .body()
        .size_hint()
        .exact()
        .filter(|size| *size > PIECE as u64);
    let Some(size) = large else { return answer };
    let (mut parts, body) = answer.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return Problem::unavailable("broken", "the response could not be assembled; try again")
            .into_response();
    };
    parts
        .headers
        .insert(CONTENT_LENGTH, HeaderValue::from(size));
    let pieces = stream::unfold((bytes, held), async |(mut bytes, held)| {
        if bytes.is_empty() {
            return None;
        }
        // A shared slice would keep the whole response in memory until it is sent.
        let piece = Bytes::copy_from_slice(&bytes.split_to(PIECE.min(bytes.len())));
        Some((Ok::<_, Infallible>(piece), (bytes, held)))
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// Sets headers that prevent caching and MIME sniffing on every response. The files of the page
/// have their own rule for caching.
async fn set_guard_headers(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let caching = answer.headers().get(CACHE_CONTROL).cloned();
    guard(answer.headers_mut());
    if let Some(caching) = caching {
        answer.headers_mut().insert(CACHE_CONTROL, caching);
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn openapi_describes_exactly_the_routes() {
        let description = openapi();
        let mut described = BTreeSet::new();
        for (path, item) in description["paths"].as_object().unwrap() {
            let methods = item
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| *key != "parameters");
            described.extend(methods.map(|method| format!("{method} {path}")));
        }
        let there: BTreeSet<String> = routes()
            .iter()
            .flat_map(|route| {
                route
                    .methods
                    .iter()
                    .map(|(method, _)| format!("{method} {}", route.path))
            })
            .collect();
        assert_eq!(described, there);
    }
}
