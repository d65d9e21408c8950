//! How tasks are, for clients that ask.

use std::sync::Arc;

use levity_core::{RunId, Status};
use serde::Deserialize;
use serde_json::{Value, json};

use super::book::{Note, Stage};
use super::error::{Error, ErrorKind, Result};
use super::host::Inner;
use super::methods::Done;
use super::tasks::runs;
use crate::access::Caller;
use crate::runs::{RunOutcome, Runs};

/// How many tasks are listed.
const LISTED: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    task: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subscribe {
    task: String,
    after: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    task: String,
}

fn noted(host: &Inner, task: &str) -> Result<Note> {
    host.book.get(task).ok_or_else(|| {
        let task: String = task.chars().take(100).collect();
        Error::new(
            ErrorKind::NotFound,
            format!("there is no task `{task}`; `agent/list` lists them"),
        )
    })
}

/// How a task is.
pub(super) async fn status(host: &Arc<Inner>, which: Which) -> Result<Value> {
    let runs = runs(host)?;
    let note = noted(host, &which.task)?;
    let id = RunId::new(note.task.as_str());
    let mut told = brief(runs, &note);
    let live = runs.get(&id);
    if let Some(RunOutcome::Stopped(cause)) = live.as_ref().and_then(|run| run.ended()) {
        told["state"] = "stopped".into();
        told["error"] = cause.to_string().into();
        return Ok(told);
    }
    match runs.ending(&id).await? {
        Some(ending) => {
            told["state"] = state(&ending.status).into();
            told["status"] = ending.status.to_string().into();
            told["answer"] = ending.text.clone().into();
            told["stats"] = json!(ending.stats);
            told["usage"] = json!(ending.usage);
        }
        None => {
            let asks = match &live {
                Some(run) => run.asks().await,
                None => Vec::new(),
            };
            if !asks.is_empty() {
                told["state"] = "waiting".into();
                told["asks"] = json!(asks);
            }
        }
    }
    Ok(told)
}

fn state(status: &Status) -> &'static str {
    match status {
        status if status.is_answer() => "done",
        Status::Cancelled { .. } => "cancelled",
        _ => "failed",
    }
}

/// What is known of a task without its journal.
fn brief(runs: &Runs, note: &Note) -> Value {
    let live = runs
        .get(&RunId::new(note.task.as_str()))
        .is_some_and(|run| run.ended().is_none());
    let (state, signal) = match &note.stage {
        Stage::Signalled { path, good: true } => ("done", path.clone()),
        Stage::Signalled { path, good: false } => ("failed", path.clone()),
        _ if live => ("running", None),
        _ => ("stopped", None),
    };
    json!({"task": note.task, "made": note.made.to_string(), "state": state, "signal": signal, "done": note.done})
}

/// The newest tasks.
pub(super) fn list(host: &Arc<Inner>) -> Result<Value> {
    let runs = runs(host)?;
    let tasks: Vec<_> = host
        .book
        .newest(LISTED)
        .iter()
        .map(|note| brief(runs, note))
        .collect();
    Ok(json!({"tasks": tasks}))
}

/// Has the client read a task's events, from the beginning or behind the one of this id.
pub(super) async fn subscribe(host: &Arc<Inner>, wanted: Subscribe) -> Result<Done> {
    let runs = runs(host)?;
    let note = noted(host, &wanted.task)?;
    let id = RunId::new(note.task.as_str());
    let (reader, _) = runs
        .events_for(&Caller::owner(), &id, wanted.after.as_deref())
        .await?;
    Ok(Done {
        value: json!({"task": note.task}),
        follow: Some((note.task, reader)),
    })
}

/// Takes a task back.
pub(super) async fn cancel(host: &Arc<Inner>, wanted: Cancel) -> Result<Value> {
    let runs = runs(host)?;
    let note = noted(host, &wanted.task)?;
    let id = RunId::new(note.task.as_str());
    let run = runs.get(&id).ok_or_else(|| crate::Error::NotUnderWay(id))?;
    let reason = wanted
        .reason
        .unwrap_or_else(|| "a client of the bridge took it back".to_owned());
    let control = run.control()?;
    control.cancel(reason).await.map_err(crate::Error::from)?;
    Ok(json!({"task": note.task}))
}
