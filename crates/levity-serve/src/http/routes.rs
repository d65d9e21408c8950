//! What can be asked for, and by which method.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, delete, get, post};
use http::StatusCode;
use serde_json::json;

use super::answer::{Problem, ok};
use super::openapi::openapi;
use super::{Api, asks, events, list, sessions, shown, start, tell};
use crate::gate::guard;

/// A path, and the methods that it has.
struct Route {
    path: &'static str,
    /// As the description names them.
    #[cfg_attr(not(test), expect(dead_code, reason = "the description is held against them"))]
    methods: &'static [&'static str],
    answer: MethodRouter<Arc<Api>>,
}

fn route(path: &'static str, methods: &'static [&'static str], answer: MethodRouter<Arc<Api>>) -> Route {
    Route { path, methods, answer }
}

fn routes() -> Vec<Route> {
    vec![
        route("/v1/health", &["get"], get(health)),
        route("/v1/openapi.json", &["get"], get(async || ok(&openapi()))),
        route("/v1/runs", &["get", "post"], get(list::list).post(start::start)),
        route("/v1/runs/{run}", &["get", "delete"], plain(get(shown::show).delete(list::remove))),
        route("/v1/runs/{run}/events", &["get"], get(events::events)),
        route("/v1/runs/{run}/pause", &["post"], plain(post(tell::pause))),
        route("/v1/runs/{run}/resume", &["post"], plain(post(tell::resume))),
        route("/v1/runs/{run}/cancel", &["post"], plain(post(tell::cancel))),
        route("/v1/runs/{run}/say", &["post"], plain(post(tell::say))),
        route("/v1/runs/{run}/asks", &["get"], plain(get(asks::asks))),
        route("/v1/runs/{run}/asks/{ask}", &["post"], plain(post(asks::decide))),
        route("/v1/sessions", &["get"], get(sessions::list)),
        route(
            "/v1/sessions/{session}",
            &["get", "delete"],
            get(sessions::show).merge(plain(delete(sessions::forget))),
        ),
    ]
}

/// Takes no parameters: whoever gives one means something that is not done here.
fn plain(answer: MethodRouter<Arc<Api>>) -> MethodRouter<Arc<Api>> {
    answer.route_layer(from_fn(async |request: Request, next: Next| match request.uri().query() {
        None | Some("") => next.run(request).await,
        Some(_) => Problem::bad("bad_query", "there are no parameters here").into_response(),
    }))
}

pub(super) fn router(api: &Arc<Api>) -> Router {
    let add = |router: Router<Arc<Api>>, route: Route| router.route(route.path, route.answer);
    routes()
        .into_iter()
        .fold(Router::new(), add)
        .fallback(async || {
            Problem::not_found("no_route", "there is nothing here; `/v1/openapi.json` tells what there is")
        })
        .method_not_allowed_fallback(async || {
            let message = "this is not done by that method; `Allow` names those it is done by";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no_method", message)
        })
        .layer(from_fn(careful))
        .with_state(api.clone())
}

/// Whether the server is up. Whoever asks is told nothing more, since no token is asked for.
async fn health() -> Response {
    ok(&json!({"status": "ok", "name": "levity", "version": env!("CARGO_PKG_VERSION")}))
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
            let methods = item.as_object().unwrap().keys().filter(|key| *key != "parameters");
            described.extend(methods.map(|method| format!("{method} {path}")));
        }
        let there: BTreeSet<String> = routes()
            .iter()
            .flat_map(|route| route.methods.iter().map(|method| format!("{method} {}", route.path)))
            .collect();
        assert_eq!(described, there);
    }
}
