//! Starts runs, each exactly once.
//!
//! A client that gets no response cannot know if its run has started. It repeats the request with
//! the same id or `Idempotency-Key`; if the run exists with the same goal, the client gets that run
//! with status 200. An existing run with another goal is a conflict. The id of a key is derived
//! from it by SHA-256, so the rule also holds after a restart.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use levity_core::RunId;
use levity_core::text::is_blank;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use tokio::time::timeout;

use super::Api;
use super::extract::own_conversation;
use super::input::{self, body, bool_param, header, new_run_id, query};
use super::problem::{HandlerResult, Problem, json_response};
use super::run_view::{RunView, load_view};
use crate::access::Caller;
use crate::error::Error;
use crate::runs::{LiveRun, NewRun};

/// The body of a start, such as `{"goal": "Sum it up", "conversation": "c1"}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartBody {
    goal: String,
    conversation: Option<String>,
    id: Option<String>,
    model: Option<String>,
}

/// `wait=0` answers with 202 before the run is in its journal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartQuery {
    wait: Option<String>,
}

/// `POST /v1/runs`: starts a run, or finds the one that an earlier request started.
pub(super) async fn start(
    State(api): State<Arc<Api>>,
    caller: Caller,
    request: Request,
) -> HandlerResult {
    let params: StartQuery = query(request.uri())?;
    let wait = bool_param("wait", params.wait.as_deref(), true)?;
    let key = key(request.headers())?;
    let body: StartBody = body(&api, request).await?;
    // A generated id cannot exist yet.
    let given = body.id.is_some() || key.is_some();
    let new_run = new_run(&api, &caller, body, key)?;
    if let Some(id) = new_run.id.as_ref().filter(|_| given)
        && let Some(found) = existing(&api, &caller, id, &new_run.goal).await?
    {
        return Ok(found);
    }
    let (id, goal) = (new_run.id.clone(), new_run.goal.clone());
    let response = match api.runs.start_for(&caller, new_run) {
        Ok(run) => start_response(&api, &run, wait).await,
        Err(error) => Err(error.into()),
    };
    match (response, id) {
        // Another request started the run a moment earlier.
        (Err(problem), Some(id)) if problem.code == "run_exists" => {
            existing(&api, &caller, &id, &goal).await?.ok_or(problem)
        }
        (response, _) => response,
    }
}

/// Validates a request body and creates the run from it.
fn new_run(
    api: &Api,
    caller: &Caller,
    body: StartBody,
    key: Option<RunId>,
) -> HandlerResult<NewRun> {
    let limit = api.settings.goal_limit;
    if is_blank(&body.goal) {
        return Err(Problem::invalid(
            "invalid",
            "`goal` must not be empty or invisible; describe the task",
        ));
    }
    if body.goal.len() > limit {
        let message = format!("`goal` has more than {limit} bytes; put long text into a file");
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "goal_too_long",
            message,
        ));
    }
    let mut new_run = NewRun::new(body.goal);
    new_run.model = body.model.map(Into::into);
    if let Some(conversation) = body.conversation {
        new_run = new_run.conversation(own_conversation(caller, &conversation)?);
    }
    let id = match (body.id, key) {
        (Some(_), Some(_)) => {
            return Err(Problem::bad(
                "two_ids",
                "send `id` or `Idempotency-Key`, not both",
            ));
        }
        (Some(id), None) => new_run_id(&id)?,
        (None, Some(id)) => id,
        (None, None) => RunId::random(&**api.runs.runtime().world()),
    };
    Ok(new_run.id(new_run_id(&caller.own(id.as_str()))?))
}

/// Returns the run id for an idempotency key. It is derived from the key, so that it is the same
/// after a restart.
fn key(headers: &HeaderMap) -> HandlerResult<Option<RunId>> {
    let Some(key) = header(headers, &HeaderName::from_static("idempotency-key"))? else {
        return Ok(None);
    };
    if key.is_empty() || key.len() > 255 {
        return Err(Problem::bad(
            "bad_header",
            "`Idempotency-Key` must have 1 to 255 characters",
        ));
    }
    let sum = digest(&SHA256, key.as_bytes());
    let hex: String = sum
        .as_ref()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(Some(RunId::from(format!("k{hex}"))))
}

/// Returns the response for a run that has just started. If `wait` is set, waits until the run is
/// in the journal.
pub(super) async fn start_response(api: &Api, run: &LiveRun, wait: bool) -> HandlerResult {
    let status = match wait {
        false => StatusCode::ACCEPTED,
        true => match timeout(api.settings.patience, run.opened()).await {
            Ok(Ok(())) => StatusCode::CREATED,
            Ok(Err(error)) => return Err(error.into()),
            // The conversation is busy; the run starts when it is free.
            Err(_) => StatusCode::ACCEPTED,
        },
    };
    Ok(located(status, &RunView::live(api, run).await))
}

/// Returns the response for an existing run with this id and goal, if there is one.
///
/// A run that an earlier process left is resumed, because its client expects it to be in progress.
async fn existing(
    api: &Api,
    caller: &Caller,
    id: &RunId,
    goal: &str,
) -> HandlerResult<Option<Response>> {
    let standing = match api.runs.status_for(caller, id).await {
        Ok(standing) => standing,
        Err(Error::NoRun(_)) => return Ok(None),
        // A run that cannot be read exists as well; a new run needs another id.
        Err(Error::Run { .. }) => return Err(exists(id)),
        Err(error) => return Err(error.into()),
    };
    if standing.goal != goal {
        return Err(exists(id));
    }
    // The process that started the run may have ended before it sent the response.
    if standing.ending.is_none()
        && api.runs.get(id).is_none()
        && !input::is_driven(api, caller, id).await?
    {
        api.runs.resume_for(caller, id).await?;
    }
    Ok(Some(located(
        StatusCode::OK,
        &load_view(api, caller, id).await?,
    )))
}

fn exists(id: &RunId) -> Problem {
    let message = format!("a run `{id}` with another goal already exists; use another id");
    Problem::conflict("run_exists", message)
}

fn located(status: StatusCode, view: &RunView) -> Response {
    let mut answer = json_response(status, &view.json());
    if let Ok(location) = HeaderValue::try_from(format!("/v1/runs/{}", view.id)) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}
