//! `POST /v1/runs/ID/fork`: a new run that begins with the records of an old one.

use std::sync::Arc;

use axum::extract::{Request, State};
use serde::Deserialize;

use super::Api;
use super::extract::RunPath;
use super::input::{body_or_default, new_run_id};
use super::problem::{HandlerResult, Problem};
use super::start::start_response;
use crate::access::Caller;
use crate::runs::NewFork;

/// The body of a fork, such as `{"after": 9, "message": "Be brief."}`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForkBody {
    after: Option<u64>,
    id: Option<String>,
    message: Option<String>,
    model: Option<String>,
}

/// Starts the fork, and waits until it is in the journal.
pub(super) async fn fork(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(from): RunPath,
    request: Request,
) -> HandlerResult {
    let body: ForkBody = body_or_default(&api, request).await?;
    if from.parent().is_some() {
        let message = "a child run cannot be forked; fork its root run";
        return Err(Problem::conflict("child", message));
    }
    let id = match body.id {
        Some(id) => new_run_id(&id)?,
        None => levity_core::RunId::random(&**api.runs.runtime().world()),
    };
    let mut fork = NewFork::new(from).id(new_run_id(&caller.own(id.as_str()))?);
    (fork.after, fork.message) = (body.after, body.message);
    fork.model = body.model.map(Into::into);
    let run = api.runs.fork_for(&caller, fork).await?;
    start_response(&api, &run, true).await
}
