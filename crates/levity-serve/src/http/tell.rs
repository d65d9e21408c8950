//! Telling runs what to do, whoever drives them.

use std::future::Future;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use http::StatusCode;
use levity_core::{Command, Message, Post, RunId};
use levity_runtime::{Control, ControlError, Told};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::answer::{Answered, Problem, told};
use super::input::{body, body_or_default, is_driven, records, root, run_id};
use super::{Api, HttpApi};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Why {
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    text: String,
}

pub(super) async fn pause(State(api): State<Arc<Api>>, Path(id): Path<String>, request: Request) -> Answered {
    let id = run_id(&id)?;
    let Nothing {} = body_or_default(&api, request).await?;
    match control(&api, &id) {
        Some(control) => heard(&id, control.pause()).await,
        None => write(&api, &id, Post::Command(Command::Pause)).await,
    }
}

pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let id = run_id(&id)?;
    let why: Why = body_or_default(&api, request).await?;
    let reason = why.reason.unwrap_or_else(|| "cancelled by HTTP".to_owned());
    match control(&api, &id) {
        Some(control) => heard(&id, control.cancel(reason)).await,
        None => write(&api, &id, Post::Command(Command::Cancel { reason })).await,
    }
}

pub(super) async fn say(State(api): State<Arc<Api>>, Path(id): Path<String>, request: Request) -> Answered {
    let id = run_id(&id)?;
    let Words { text } = body(&api, request).await?;
    if text.trim().is_empty() {
        return Err(Problem::invalid("invalid", "`text` is what to say; it must not be empty"));
    }
    match control(&api, &id) {
        Some(control) => heard(&id, control.say(Message::user(text))).await,
        None => {
            let message = Arc::new(Message::user(text));
            write(&api, &id, Post::Command(Command::Say { message })).await
        }
    }
}

/// Goes on after a pause; and with a run that nobody drives.
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let id = run_id(&id)?;
    let Nothing {} = body_or_default(&api, request).await?;
    if let Some(control) = control(&api, &id) {
        return heard(&id, control.resume()).await;
    }
    if id.parent().is_some() {
        return Err(Problem::conflict("child", format!("`{id}` goes on with `{}`; resume that", root(&id))));
    }
    records(&api, &id).await?;
    if is_driven(&api, &id).await? {
        return write(&api, &id, Post::Command(Command::Resume)).await;
    }
    let run = api.runs.resume(&id).await?;
    match run.control() {
        Ok(control) if run.standing().paused => heard(&id, control.resume()).await,
        _ => Ok(said(&id, "resumed")),
    }
}

/// What tells a run that this process drives.
pub(super) fn control(api: &Api, id: &RunId) -> Option<Control> {
    let run = api.runs.get(&root(id))?;
    let control = run.control().ok()?;
    Some(control.child(id))
}

/// Waits until a run has heard what it was told. One that has not begun yet hears it when it does.
pub(super) async fn heard(id: &RunId, told: impl Future<Output = Result<(), ControlError>>) -> Answered {
    match timeout(HttpApi::PATIENCE, told).await {
        Ok(done) => done.map(|()| said(id, "heard")).map_err(Problem::from),
        Err(_) => Ok(said(id, "waiting")),
    }
}

/// Writes into the journal of a run that nobody drives, or leaves word for the process that does.
pub(super) async fn write(api: &Api, id: &RunId, post: Post) -> Answered {
    records(api, id).await?;
    match api.runs.runtime().tell(id, post).await? {
        Told::Posted => Ok(said(id, "posted")),
        _ => Ok(said(id, "written")),
    }
}

fn said(id: &RunId, what: &str) -> axum::response::Response {
    let status = if what == "heard" { StatusCode::OK } else { StatusCode::ACCEPTED };
    told(status, &json!({"id": id, "told": what}))
}
