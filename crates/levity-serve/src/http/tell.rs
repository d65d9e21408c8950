//! Telling runs what to do, whoever drives them.

use std::future::Future;
use std::sync::Arc;

use axum::extract::{Request, State};
use http::StatusCode;
use levity_core::text::is_blank;
use levity_core::{ControlCommand, ControlError, Message, RunId, RunQuery, RunRequest};
use levity_runtime::{Control, Delivery, Runtime};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::Api;
use super::answer::{Answered, Problem, told};
use super::input::{body, body_or_default, is_driven, not_ended, root};
use super::target::RunPath;
use crate::access::Caller;
use crate::quota::QuotaFull;
use crate::runs::{LiveRun, Way};

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

pub(super) async fn pause(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    request: Request,
) -> Answered {
    let Nothing {} = body_or_default(&api, request).await?;
    match here(&api, &id) {
        Some(here) => {
            heard(
                &api,
                &id,
                here,
                |control| async move { control.pause().await },
            )
            .await
        }
        None => write_all(&api, &caller, &id, ControlCommand::Pause).await,
    }
}

pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    request: Request,
) -> Answered {
    let why: Why = body_or_default(&api, request).await?;
    let reason = why.reason.unwrap_or_else(|| "cancelled by HTTP".to_owned());
    match here(&api, &id) {
        Some(here) => {
            let here = Here {
                way: Way::Cancel,
                ..here
            };
            heard(&api, &id, here, |control| async move {
                control.cancel(reason).await
            })
            .await
        }
        None => {
            write(
                &api,
                &caller,
                &id,
                RunRequest::Command(ControlCommand::Cancel { reason }),
            )
            .await
        }
    }
}

pub(super) async fn say(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    request: Request,
) -> Answered {
    let Words { text } = body(&api, request).await?;
    if is_blank(&text) {
        return Err(Problem::invalid(
            "invalid",
            "`text` is what to say; it must not be empty or invisible",
        ));
    }
    api.runs.check_prompt(&text)?;
    match here(&api, &id) {
        Some(here) => {
            heard(&api, &id, here, |control| async move {
                control.say(Message::user(text)).await
            })
            .await
        }
        None => {
            let message = Arc::new(Message::user(text));
            write(
                &api,
                &caller,
                &id,
                RunRequest::Command(ControlCommand::Say { message }),
            )
            .await
        }
    }
}

/// Goes on after a pause; and with a run that nobody drives.
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    request: Request,
) -> Answered {
    let Nothing {} = body_or_default(&api, request).await?;
    if let Some(here) = here(&api, &id) {
        return heard(
            &api,
            &id,
            here,
            |control| async move { control.resume().await },
        )
        .await;
    }
    if id.parent().is_some() {
        return Err(Problem::conflict(
            "child",
            format!("`{id}` goes on with `{}`; resume that", root(&id)),
        ));
    }
    not_ended(&api, &caller, &id).await?;
    if is_driven(&api, &caller, &id).await? {
        return write_all(&api, &caller, &id, ControlCommand::Resume).await;
    }
    let run = api.runs.resume_for(&caller, &id).await?;
    match here(&api, &id) {
        Some(here) if run.standing().paused => {
            heard(
                &api,
                &id,
                here,
                |control| async move { control.resume().await },
            )
            .await
        }
        _ => Ok(said(&id, "resumed")),
    }
}

/// A run that this process drives, and how it is told something.
pub(super) struct Here {
    run: Arc<LiveRun>,
    control: Control,
    way: Way,
}

pub(super) fn here(api: &Api, id: &RunId) -> Option<Here> {
    let run = api.runs.get(&root(id))?;
    let control = run.control().ok()?.child(id);
    Some(Here {
        run,
        control,
        way: Way::Command,
    })
}

/// Tells a run something, and waits a while until it has heard it. Once it is taken, it is done to
/// the end, whether or not anybody waits: a run that has not begun hears it when it does, and runs
/// below hear it after the one above.
pub(super) async fn heard<F>(
    api: &Api,
    id: &RunId,
    here: Here,
    tell: impl FnOnce(Control) -> F,
) -> Answered
where
    F: Future<Output = Result<(), ControlError>> + Send + 'static,
{
    let Some(told) = api.runs.tell(&here.run, here.way, tell(here.control)) else {
        let message = format!(
            "`{id}` has not heard what it was told before; this was not taken, so tell it again"
        );
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "told_enough", message).later(1));
    };
    match timeout(api.settings.patience, told).await {
        Ok(Ok(done)) => done.map(|()| said(id, "heard")).map_err(Problem::from),
        Ok(Err(_)) => Err(ControlError::NotRunning(id.clone()).into()),
        Err(_) => Ok(said(id, "waiting")),
    }
}

/// Writes into the journal of a run that nobody drives, or leaves word for the process that does.
pub(super) async fn write(api: &Api, caller: &Caller, id: &RunId, post: RunRequest) -> Answered {
    not_ended(api, caller, id).await?;
    let (runtime, run) = (api.runs.runtime().clone(), id.clone());
    let told = api
        .runs
        .with_journal(caller, async move { Ok(runtime.tell(&run, post).await) })
        .await??;
    Ok(said(id, name(told)))
}

/// The same for what runs below must hear, too; all of them hear it, whether or not anybody waits.
async fn write_all(api: &Api, caller: &Caller, id: &RunId, command: ControlCommand) -> Answered {
    not_ended(api, caller, id).await?;
    let (runtime, run) = (api.runs.runtime().clone(), id.clone());
    let place = api.runs.journal_place(caller).await?;
    let tell = async move {
        let _place = place;
        tell_all(&runtime, &run, command).await
    };
    let told = api.runs.see_through(caller, tell).await;
    let told = told.map_err(|QuotaFull { most }| {
        let message =
            format!("{most} commands are being passed on; this was not taken, so tell it again");
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "told_enough", message).later(1)
    })?;
    let told = told.ok_or_else(|| ControlError::NotRunning(id.clone()))??;
    Ok(said(id, name(told)))
}

/// Where nobody drives the runs below, they are not driven either while the one above is paused.
async fn tell_all(
    runtime: &Runtime,
    id: &RunId,
    command: ControlCommand,
) -> Result<Delivery, levity_core::RuntimeError> {
    let told = runtime
        .tell(id, RunRequest::Command(command.clone()))
        .await?;
    if told == Delivery::Posted {
        for below in runtime
            .journal()
            .list(&RunQuery::new().below(id.clone()))
            .await?
        {
            if below.run != *id && below.status.is_none() {
                // One that has ended meanwhile needs no telling.
                let _ = runtime
                    .tell(&below.run, RunRequest::Command(command.clone()))
                    .await;
            }
        }
    }
    Ok(told)
}

fn name(told: Delivery) -> &'static str {
    match told {
        Delivery::Posted => "posted",
        _ => "written",
    }
}

fn said(id: &RunId, what: &str) -> axum::response::Response {
    let status = if what == "heard" {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    told(status, &json!({"id": id, "told": what}))
}
