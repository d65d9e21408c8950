//! Methods for the status of tasks.
//!
//! The state of a task is one of `running`, `waiting`, `done`, `failed`, `cancelled` and `stopped`.
//! A stopped task has not ended: it resumes when the host is restarted. Lists use only the records;
//! the status of one task also reads its journal.

use std::sync::Arc;

use levity_core::{RunId, Status};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{Error, ErrorKind, Result};
use super::host::Inner;
use super::methods::MethodReply;
use super::task_store::{Stage, TaskRecord};
use super::tasks::{check_length, runs};
use crate::access::Caller;
use crate::runs::{RunOutcome, Runs};

/// The maximum number of listed tasks.
const MAX_LISTED: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelParams {
    task: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubscribeParams {
    task: String,
    after: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusParams {
    task: String,
}

/// Looks a task up by its id, which is untrusted and cut to 100 characters in the error.
fn find_record(host: &Inner, task: &str) -> Result<TaskRecord> {
    host.task_store.get(task).ok_or_else(|| {
        let task: String = task.chars().take(100).collect();
        Error::new(
            ErrorKind::NotFound,
            format!("no task has the id `{task}`; `agent/list` lists all tasks"),
        )
    })
}

/// Returns the status of a task.
pub(super) async fn status(host: &Arc<Inner>, params: StatusParams) -> Result<Value> {
    let runs = runs(host)?;
    let record = find_record(host, &params.task)?;
    let id = RunId::new(record.task.as_str());
    let mut status_json = summary(runs, &record);
    let live = runs.get(&id);
    if let Some(RunOutcome::Stopped(cause)) = live.as_ref().and_then(|run| run.ended()) {
        status_json["state"] = "stopped".into();
        status_json["error"] = cause.to_string().into();
        return Ok(status_json);
    }
    match runs.ending(&id).await? {
        Some(ending) => {
            status_json["state"] = state(&ending.status).into();
            status_json["status"] = ending.status.to_string().into();
            status_json["answer"] = ending.text.clone().into();
            status_json["stats"] = json!(ending.stats);
            status_json["usage"] = json!(ending.usage);
        }
        None => {
            let asks = match &live {
                Some(run) => run.asks().await,
                None => Vec::new(),
            };
            if !asks.is_empty() {
                status_json["state"] = "waiting".into();
                status_json["asks"] = json!(asks);
            }
        }
    }
    Ok(status_json)
}

fn state(status: &Status) -> &'static str {
    match status {
        status if status.is_answer() => "done",
        Status::Cancelled { .. } => "cancelled",
        _ => "failed",
    }
}

/// Returns the information about a task that needs no journal.
fn summary(runs: &Runs, record: &TaskRecord) -> Value {
    let live = runs
        .get(&RunId::new(record.task.as_str()))
        .is_some_and(|run| run.ended().is_none());
    let (state, signal) = match &record.stage {
        Stage::Signalled { path, good: true } => ("done", path.clone()),
        Stage::Signalled { path, good: false } => ("failed", path.clone()),
        _ if live => ("running", None),
        _ => ("stopped", None),
    };
    json!({
        "task": record.task,
        "made": record.made.to_string(),
        "state": state,
        "signal": signal,
        "done": record.done,
    })
}

/// Lists the newest tasks.
pub(super) fn list(host: &Arc<Inner>) -> Result<Value> {
    let runs = runs(host)?;
    let tasks: Vec<_> = host
        .task_store
        .newest(MAX_LISTED)
        .iter()
        .map(|record| summary(runs, record))
        .collect();
    Ok(json!({"tasks": tasks}))
}

/// Lets the client read a task's events, from the beginning or after the event with this id.
pub(super) async fn subscribe(host: &Arc<Inner>, request: SubscribeParams) -> Result<MethodReply> {
    let runs = runs(host)?;
    let record = find_record(host, &request.task)?;
    let id = RunId::new(record.task.as_str());
    let (reader, _) = runs
        .events_for(&Caller::owner(), &id, request.after.as_deref())
        .await?;
    Ok(MethodReply {
        value: json!({"task": record.task}),
        follow: Some((record.task, reader)),
    })
}

/// Cancels a task that is under way.
pub(super) async fn cancel(host: &Arc<Inner>, request: CancelParams) -> Result<Value> {
    let runs = runs(host)?;
    let record = find_record(host, &request.task)?;
    let id = RunId::new(record.task.as_str());
    let run = runs.get(&id).ok_or_else(|| crate::Error::NotRunning(id))?;
    let reason = request
        .reason
        .unwrap_or_else(|| "cancelled by a client of the bridge".to_owned());
    check_length(host, "reason", &reason)?;
    let control = run.control()?;
    control.cancel(reason).await.map_err(crate::Error::from)?;
    Ok(json!({"task": record.task}))
}
