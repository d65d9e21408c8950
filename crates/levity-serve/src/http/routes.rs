//! What can be asked for, and by which method.

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
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::answer::{Problem, ok};
use super::openapi::openapi;
use super::target::caller;
use super::{Api, asks, events, list, sessions, shown, start, tell, tools};
use crate::access::TokenScope;
use crate::gate::guard;
use crate::listen::AnswerTimer;
use crate::quota::QuotaFull;

/// A path, and the methods that it has.
struct Route {
    path: &'static str,
    /// As the description names them, and what each needs.
    methods: &'static [(&'static str, Needs)],
    answer: MethodRouter<Arc<Api>>,
}

/// What a caller needs to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Not even a token.
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

/// Refuses callers whose token does not allow it. Other methods are refused by the router.
async fn allowed(
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
        Some(Needs::Scope(scope)) if !caller.may(scope) => {
            Problem::forbidden(caller.missing(scope)).into_response()
        }
        Some(_) => next.run(request).await,
        None => no_method().into_response(),
    }
}

fn no_method() -> Problem {
    let message = "this is not done by that method; `Allow` names those it is done by";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no_method", message)
}

fn routes() -> Vec<Route> {
    vec![
        route("/v1/health", &[("get", Nothing)], get(health)),
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
            plain(get(shown::show).delete(list::remove)),
        ),
        route(
            "/v1/runs/{run}/events",
            &[("get", READ)],
            get(events::events),
        ),
        route(
            "/v1/runs/{run}/pause",
            &[("post", RUN)],
            plain(post(tell::pause)),
        ),
        route(
            "/v1/runs/{run}/resume",
            &[("post", RUN)],
            plain(post(tell::resume)),
        ),
        route(
            "/v1/runs/{run}/cancel",
            &[("post", RUN)],
            plain(post(tell::cancel)),
        ),
        route(
            "/v1/runs/{run}/say",
            &[("post", RUN)],
            plain(post(tell::say)),
        ),
        route(
            "/v1/runs/{run}/asks",
            &[("get", READ)],
            plain(get(asks::asks)),
        ),
        // Which scope it needs depends on what is asked.
        route(
            "/v1/runs/{run}/asks/{ask}",
            &[("post", READ)],
            plain(post(asks::decide)),
        ),
        route("/v1/sessions", &[("get", READ)], get(sessions::list)),
        route(
            "/v1/sessions/{session}",
            &[("get", READ), ("delete", RUN)],
            get(sessions::show).merge(plain(delete(sessions::forget))),
        ),
        route("/v1/tools", &[("get", READ)], plain(get(tools::list))),
        // Which scope it needs depends on the tool.
        route(
            "/v1/tools/{tool}",
            &[("post", READ)],
            plain(post(tools::call)),
        ),
    ]
}

/// Takes no parameters: whoever gives one means something that is not done here.
fn plain(answer: MethodRouter<Arc<Api>>) -> MethodRouter<Arc<Api>> {
    answer.route_layer(from_fn(
        async |request: Request, next: Next| match request.uri().query() {
            None | Some("") => next.run(request).await,
            Some(_) => Problem::bad("bad_query", "there are no parameters here").into_response(),
        },
    ))
}

pub(super) fn router(api: &Arc<Api>) -> Router {
    let add = |router: Router<Arc<Api>>, route: Route| {
        let methods = route.methods;
        let check = from_fn(move |request: Request, next: Next| allowed(methods, request, next));
        router.route(route.path, route.answer.route_layer(check))
    };
    routes()
        .into_iter()
        .fold(Router::new(), add)
        .fallback(async || {
            Problem::not_found(
                "no_route",
                "there is nothing here; `/v1/openapi.json` tells what there is",
            )
        })
        .method_not_allowed_fallback(async || no_method())
        .layer(from_fn_with_state(api.clone(), counted))
        .layer(from_fn(careful))
        .with_state(api.clone())
}

/// Whether the server is up. Whoever asks is told nothing more, since no token is asked for.
async fn health() -> Response {
    ok(&json!({"status": "ok", "name": "levity", "version": env!("CARGO_PKG_VERSION")}))
}

/// Works on so many requests at once, until their answers are sent. Strangers wait for nothing
/// here, and have no place.
async fn counted(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let caller = caller(request.extensions());
    if !caller.may(TokenScope::Read) {
        return next.run(request).await;
    }
    match api.requests.take(&caller) {
        Ok(place) => {
            let timer = request.extensions().get::<AnswerTimer>().cloned();
            let answer = next.run(request).await;
            held_until_sent(
                answer,
                (
                    place,
                    timer.map(|timer| timer.start(api.settings.answer_time)),
                ),
            )
            .await
        }
        Err(QuotaFull { most }) => {
            let message = format!(
                "{most} requests are being worked on, and no more are taken; try again later"
            );
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "full", message)
                .later(1)
                .into_response()
        }
    }
}

/// How many bytes of a large answer are handed over at once.
const PIECE: usize = 16 << 10;

/// Hands a large answer over piece by piece, as the client takes it, and keeps `held` until then.
/// Streams have no size, and places of their own.
async fn held_until_sent(answer: Response, held: impl Send + 'static) -> Response {
    let large = answer
        .body()
        .size_hint()
        .exact()
        .filter(|size| *size > PIECE as u64);
    let Some(size) = large else { return answer };
    let (mut parts, body) = answer.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return Problem::unavailable("broken", "the answer could not be put together")
            .into_response();
    };
    parts
        .headers
        .insert(CONTENT_LENGTH, HeaderValue::from(size));
    let pieces = stream::unfold((bytes, held), async |(mut bytes, held)| {
        if bytes.is_empty() {
            return None;
        }
        // A part that is shared would keep all of the answer as long as it waits to be sent.
        let piece = Bytes::copy_from_slice(&bytes.split_to(PIECE.min(bytes.len())));
        Some((Ok::<_, Infallible>(piece), (bytes, held)))
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// Sees to it that no answer is kept by somebody in between, or taken for something else.
async fn careful(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    guard(answer.headers_mut());
    answer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_description_has_every_route_and_no_other() {
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
