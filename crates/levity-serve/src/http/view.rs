//! `GET /v1/runs/ID/view`: a run as a page shows it, now or after some of its events.

use std::sync::Arc;

use axum::extract::State;
use http::Uri;
use levity_core::RunId;
use levity_observe::RunView;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Api;
use super::extract::RunPath;
use super::input::{query, root};
use super::problem::{HandlerResult, ok};
use super::snapshots::RunPlace;
use crate::access::Caller;

/// The parameter `at`: the number of durable events, all by default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewQuery {
    at: Option<u64>,
}

/// Returns the view, the number of all durable events, and the notable ones among them.
pub(super) async fn view(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    uri: Uri,
) -> HandlerResult {
    let params: ViewQuery = query(&uri)?;
    let stored = api
        .runs
        .view_for(&caller, &id, &root(&id), params.at)
        .await?;
    let marks: Vec<_> = stored
        .whole
        .as_ref()
        .unwrap_or(&stored.view)
        .marks()
        .collect();
    let mut json = view_json(&api, &id, &stored.view);
    json["total"] = stored.total.into();
    json["marks"] = json!(marks);
    Ok(ok(&json))
}

/// Returns a view with the relation of its run to this process: `here` if this process drives it,
/// and the reason in `stopped` if it could not be driven to its end.
fn view_json(api: &Api, id: &RunId, view: &RunView) -> Value {
    let place = RunPlace::of(api.runs.get(&root(id)).as_deref());
    let mut json = json!({"run": id, "view": view, "here": place.here});
    if let Some(stopped) = place.stopped {
        json["stopped"] = stopped.into();
    }
    json
}

/// `GET /v1/runs/ID/artifacts`: the files that a run and its child runs wrote and did not remove
/// again.
pub(super) async fn artifacts(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
) -> HandlerResult {
    let stored = api.runs.view_for(&caller, &id, &root(&id), None).await?;
    let files: Vec<_> = stored.view.artifacts().collect();
    Ok(ok(&json!({"artifacts": files})))
}
