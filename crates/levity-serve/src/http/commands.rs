//! Sends commands to runs, whichever process drives them.
//!
//! A run may be driven by this process, by another one or by none. The commands look the same to
//! clients; the field `delivery` of the response says how the command travels:
//!
//! | delivery | meaning | status |
//! |---|---|---|
//! | `delivered` | the run in this process has received it | 200 |
//! | `waiting` | it was accepted, and the run receives it later | 202 |
//! | `posted` | the process that drives the run receives it through the journal | 202 |
//! | `written` | the journal has it, and the run applies it when it is resumed | 202 |
//! | `resumed` | the run was resumed in this process | 202 |

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
use super::extract::RunPath;
use super::input::{body, body_or_default, ensure_not_ended, is_driven, root};
use super::problem::{HandlerResult, Problem, json_response};
use crate::access::Caller;
use crate::quota::QuotaFull;
use crate::runs::{CommandKind, LiveRun, OpenAsk};

/// The body of commands without parameters: nothing, or `{}`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelBody {
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SayBody {
    text: String,
}

/// `POST /v1/runs/ID/pause`: pauses a run and its child runs. Calls in progress finish.
pub(super) async fn pause(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    request: Request,
) -> HandlerResult {
    let EmptyBody {} = body_or_default(&api, request).await?;
    match live_target(&api, &id) {
        Some(target) => {
            send_live(
                &api,
                &id,
                target,
                |control| async move { control.pause().await },
            )
            .await
        }
        None => send_to_tree(&api, &caller, &id, ControlCommand::Pause).await,
    }
}

/// `POST /v1/runs/ID/cancel`: cancels a run, with an optional `reason`. It has its own slots, so
/// that a run with many pending commands can still be cancelled.
pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    request: Request,
) -> HandlerResult {
    let body: CancelBody = body_or_default(&api, request).await?;
    let reason = body
        .reason
        .unwrap_or_else(|| "cancelled by HTTP".to_owned());
    api.runs.check_length(&reason)?;
    match live_target(&api, &id) {
        Some(target) => {
            let target = LiveTarget {
                kind: CommandKind::Cancel,
                ..target
            };
            send_live(&api, &id, target, |control| async move {
                control.cancel(reason).await
            })
            .await
        }
        None => {
            send_by_journal(
                &api,
                &caller,
                &id,
                RunRequest::Command(ControlCommand::Cancel { reason }),
            )
            .await
        }
    }
}

/// `POST /v1/runs/ID/message`: adds a message of the user to a run.
pub(super) async fn say(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    request: Request,
) -> HandlerResult {
    let SayBody { text } = body(&api, request).await?;
    if is_blank(&text) {
        return Err(Problem::invalid(
            "invalid",
            "`text` must not be empty or invisible; send the message to the run",
        ));
    }
    api.runs.check_prompt(&text)?;
    match live_target(&api, &id) {
        Some(target) => {
            send_live(&api, &id, target, |control| async move {
                control.send_message(Message::user(text)).await
            })
            .await
        }
        None => {
            let message = Arc::new(Message::user(text));
            send_by_journal(
                &api,
                &caller,
                &id,
                RunRequest::Command(ControlCommand::Say { message }),
            )
            .await
        }
    }
}

/// Resumes a paused run, or a run that no process drives.
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    request: Request,
) -> HandlerResult {
    let EmptyBody {} = body_or_default(&api, request).await?;
    if let Some(target) = live_target(&api, &id) {
        return send_live(&api, &id, target, |control| async move {
            control.resume().await
        })
        .await;
    }
    if id.parent().is_some() {
        return Err(Problem::conflict(
            "child",
            format!("`{id}` is a child run; resume its root run `{}`", root(&id)),
        ));
    }
    ensure_not_ended(&api, &caller, &id).await?;
    if is_driven(&api, &caller, &id).await? {
        return send_to_tree(&api, &caller, &id, ControlCommand::Resume).await;
    }
    let run = api.runs.resume_for(&caller, &id).await?;
    match live_target(&api, &id) {
        Some(target) if run.status().paused => {
            send_live(&api, &id, target, |control| async move {
                control.resume().await
            })
            .await
        }
        _ => Ok(delivery_response(&id, "resumed")),
    }
}

/// A run that this process drives, and the kind of the command for it.
pub(super) struct LiveTarget {
    run: Arc<LiveRun>,
    control: Control,
    kind: CommandKind,
}

impl LiveTarget {
    /// Returns the pending questions of exactly the run that this target sends commands to.
    pub(super) async fn open_asks(&self) -> Vec<OpenAsk> {
        self.run.open_asks().await
    }
}

/// Returns `None` if this process does not drive the root run of `id`. A child run is addressed
/// through the control of its root.
pub(super) fn live_target(api: &Api, id: &RunId) -> Option<LiveTarget> {
    let run = api.runs.get(&root(id))?;
    let control = run.control().ok()?.child(id);
    Some(LiveTarget {
        run,
        control,
        kind: CommandKind::Regular,
    })
}

/// Sends a command to a run in this process, and waits a while for its delivery. An accepted
/// command is delivered even if the client disconnects. A run that has not started receives it when
/// it starts, and child runs receive it after their parent.
pub(super) async fn send_live<F>(
    api: &Api,
    id: &RunId,
    target: LiveTarget,
    command: impl FnOnce(Control) -> F,
) -> HandlerResult
where
    F: Future<Output = Result<(), ControlError>> + Send + 'static,
{
    let Some(delivered) = api
        .runs
        .send_command(&target.run, target.kind, command(target.control))
    else {
        let message = format!(
            "run `{id}` has not received earlier commands yet; this one was not accepted, so send \
                it again"
        );
        return Err(
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_commands", message)
                .retry_after(1),
        );
    };
    match timeout(api.settings.patience, delivered).await {
        Ok(Ok(done)) => done
            .map(|()| delivery_response(id, "delivered"))
            .map_err(Problem::from),
        Ok(Err(_)) => Err(ControlError::NotRunning(id.clone()).into()),
        Err(_) => Ok(delivery_response(id, "waiting")),
    }
}

/// Writes a command into the journal of a run that no process drives, or posts it to the process
/// that does.
pub(super) async fn send_by_journal(
    api: &Api,
    caller: &Caller,
    id: &RunId,
    request: RunRequest,
) -> HandlerResult {
    ensure_not_ended(api, caller, id).await?;
    let (runtime, run) = (api.runs.runtime().clone(), id.clone());
    let delivery = api
        .runs
        .with_journal(caller, async move {
            Ok(runtime.send_request(&run, request).await)
        })
        .await??;
    Ok(delivery_response(id, name(delivery)))
}

/// Same as [`send_by_journal`], for commands that child runs must receive as well. All of them
/// receive it, even if the client disconnects.
async fn send_to_tree(
    api: &Api,
    caller: &Caller,
    id: &RunId,
    command: ControlCommand,
) -> HandlerResult {
    ensure_not_ended(api, caller, id).await?;
    let (runtime, run) = (api.runs.runtime().clone(), id.clone());
    let permit = api.runs.journal_permit(caller).await?;
    let delivered = async move {
        let _permit = permit;
        post_to_tree(&runtime, &run, command).await
    };
    let delivery = api.runs.run_in_background(caller, delivered).await;
    let delivery = delivery.map_err(|QuotaFull { limit }| {
        let message = format!(
            "{limit} commands are being delivered, which is the limit; this one was not \
                accepted, so send it again"
        );
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_commands", message).retry_after(1)
    })?;
    let delivery = delivery.ok_or_else(|| ControlError::NotRunning(id.clone()))??;
    Ok(delivery_response(id, name(delivery)))
}

/// If no process drives the child runs, they are not driven either while their parent is paused, so
/// only posted commands are forwarded.
async fn post_to_tree(
    runtime: &Runtime,
    id: &RunId,
    command: ControlCommand,
) -> Result<Delivery, levity_core::RuntimeError> {
    let delivery = runtime
        .send_request(id, RunRequest::Command(command.clone()))
        .await?;
    if delivery == Delivery::Posted {
        for below in runtime
            .journal()
            .list(&RunQuery::new().below(id.clone()))
            .await?
        {
            if below.run != *id && below.status.is_none() {
                // A child run that has ended in the meantime needs no command.
                let _ = runtime
                    .send_request(&below.run, RunRequest::Command(command.clone()))
                    .await;
            }
        }
    }
    Ok(delivery)
}

fn name(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Posted => "posted",
        _ => "written",
    }
}

/// Only `delivered` is final and gets 200; every other delivery is 202.
fn delivery_response(id: &RunId, delivery: &str) -> axum::response::Response {
    let status = if delivery == "delivered" {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    json_response(status, &json!({"id": id, "delivery": delivery}))
}
