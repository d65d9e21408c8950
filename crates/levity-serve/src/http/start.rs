//! Starting runs, each once.

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
use super::answer::{Answered, Problem, told};
use super::input::{self, body, header, new_run_id, query, yes};
use super::shown::{Shown, shown};
use super::target::own_conversation;
use crate::access::Caller;
use crate::error::Error;
use crate::runs::{LiveRun, NewRun};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    goal: String,
    conversation: Option<String>,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    wait: Option<String>,
}

pub(super) async fn start(
    State(api): State<Arc<Api>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let how: How = query(request.uri())?;
    let wait = yes("wait", how.wait.as_deref(), true)?;
    let key = key(request.headers())?;
    let wanted: Wanted = body(&api, request).await?;
    // An id that was made up here is nobody's yet.
    let given = wanted.id.is_some() || key.is_some();
    let order = order(&api, &caller, wanted, key)?;
    if let Some(id) = order.id.as_ref().filter(|_| given)
        && let Some(found) = existing(&api, &caller, id, &order.goal).await?
    {
        return Ok(found);
    }
    let (id, goal) = (order.id.clone(), order.goal.clone());
    let begun = match api.runs.start_for(&caller, order) {
        Ok(run) => begun(&api, &run, wait).await,
        Err(error) => Err(error.into()),
    };
    match (begun, id) {
        // Somebody else was faster by a moment.
        (Err(problem), Some(id)) if problem.code == "run_exists" => {
            existing(&api, &caller, &id, &goal).await?.ok_or(problem)
        }
        (begun, _) => begun,
    }
}

/// What is to be done, if it makes sense.
fn order(api: &Api, caller: &Caller, wanted: Wanted, key: Option<RunId>) -> Answered<NewRun> {
    let limit = api.settings.goal_limit;
    if is_blank(&wanted.goal) {
        return Err(Problem::invalid(
            "invalid",
            "`goal` says what to do; it must not be empty or invisible",
        ));
    }
    if wanted.goal.len() > limit {
        let message = format!("`goal` has {limit} bytes at most; put what is longer into a file");
        return Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "goal_too_long",
            message,
        ));
    }
    let mut order = NewRun::new(wanted.goal);
    if let Some(conversation) = wanted.conversation {
        order = order.conversation(own_conversation(caller, &conversation)?);
    }
    let id = match (wanted.id, key) {
        (Some(_), Some(_)) => {
            return Err(Problem::bad(
                "two_ids",
                "give `id` or `Idempotency-Key`, not both",
            ));
        }
        (Some(id), None) => new_run_id(&id)?,
        (None, Some(id)) => id,
        (None, None) => RunId::random(&**api.runs.runtime().world()),
    };
    Ok(order.id(new_run_id(&caller.own(id.as_str()))?))
}

/// The id of the run that a key stands for. It follows from the key, so that it is the same after a
/// restart.
fn key(headers: &HeaderMap) -> Answered<Option<RunId>> {
    let Some(key) = header(headers, &HeaderName::from_static("idempotency-key"))? else {
        return Ok(None);
    };
    if key.is_empty() || key.len() > 255 {
        return Err(Problem::bad(
            "bad_header",
            "`Idempotency-Key` has 1 to 255 characters",
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

/// Answers with a run that has begun just now: once it is in the journal, if that is to be waited
/// for.
async fn begun(api: &Api, run: &LiveRun, wait: bool) -> Answered {
    let status = match wait {
        false => StatusCode::ACCEPTED,
        true => match timeout(api.settings.patience, run.opened()).await {
            Ok(Ok(())) => StatusCode::CREATED,
            Ok(Err(error)) => return Err(error.into()),
            // Its conversation is busy; it begins when that is free.
            Err(_) => StatusCode::ACCEPTED,
        },
    };
    Ok(located(status, &Shown::live(api, run).await))
}

/// Answers with the run of this id, if there is one and it is the one that is wanted.
async fn existing(
    api: &Api,
    caller: &Caller,
    id: &RunId,
    goal: &str,
) -> Answered<Option<Response>> {
    let standing = match api.runs.standing_for(caller, id).await {
        Ok(standing) => standing,
        Err(Error::NoRun(_)) => return Ok(None),
        // One that cannot be looked at is there, too; whoever wants it anew must call it something
        // else.
        Err(Error::Run { .. }) => return Err(exists(id)),
        Err(error) => return Err(error.into()),
    };
    if standing.goal != goal {
        return Err(exists(id));
    }
    // The process that had begun it may have ended before its answer was sent.
    if standing.ending.is_none()
        && api.runs.get(id).is_none()
        && !input::is_driven(api, caller, id).await?
    {
        api.runs.resume_for(caller, id).await?;
    }
    Ok(Some(located(
        StatusCode::OK,
        &shown(api, caller, id).await?,
    )))
}

fn exists(id: &RunId) -> Problem {
    let message =
        format!("there is a run `{id}` already, with another goal; give this one another id");
    Problem::conflict("run_exists", message)
}

fn located(status: StatusCode, shown: &Shown) -> Response {
    let mut answer = told(status, &shown.json());
    if let Ok(location) = HeaderValue::try_from(format!("/v1/runs/{}", shown.id)) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}
