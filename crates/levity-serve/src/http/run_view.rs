//! The JSON view of one run.
//!
//! A live run is shown from memory. A run that this process stopped driving is read from the
//! journal again, because another process may have continued it; the reason of the stop is kept in
//! `stopped`.

use std::sync::Arc;

use axum::extract::State;
use levity_core::{Ending, RunId, RunSummary, Timestamp, Usage};
use levity_runtime::RunReport;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::Api;
use super::asks::ask_json;
use super::extract::RunPath;
use super::input::root;
use super::problem::{HandlerResult, Problem, cause_text, ok};
use crate::access::Caller;
use crate::runs::{LiveRun, OpenAsk, RunOutcome, RunStatus};

/// A run with everything that the API reports about it.
pub(super) struct RunView {
    pub(super) id: RunId,
    standing: RunStatus,
    asks: Vec<OpenAsk>,
    /// `true` if this process drives the run.
    here: bool,
    /// The reason for which this process could not drive the run to its end.
    stopped: Option<String>,
    /// `true` if this process resumes the run when a slot is free.
    queued: bool,
}

/// `GET /v1/runs/ID`: one run with its questions, statistics, usage and ending.
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
) -> HandlerResult {
    if id.parent().is_some() {
        return show_child(&api, &caller, &id).await;
    }
    Ok(ok(&load_view(&api, &caller, &id).await?.json()))
}

/// Loads the view of a run.
pub(super) async fn load_view(api: &Api, caller: &Caller, id: &RunId) -> HandlerResult<RunView> {
    if let Some(run) = api.runs.get(id) {
        let live = RunView::live(api, &run).await;
        if live.stopped.is_none() || !api.runs.runtime().journal().keeps() {
            return Ok(live);
        }
        return load_from_journal(api, caller, id, live.stopped).await;
    }
    load_from_journal(api, caller, id, None).await
}

/// Loads the view of a run from the journal.
async fn load_from_journal(
    api: &Api,
    caller: &Caller,
    id: &RunId,
    stopped: Option<String>,
) -> HandlerResult<RunView> {
    let standing = api.runs.status_for(caller, id).await?;
    let over = standing.ending.is_some();
    // Questions of a run that this server may not continue cannot be decided.
    let asks = if over || api.runs.check_resumable(id).is_err() {
        Vec::new()
    } else {
        api.runs.open_asks_for(caller, id).await?
    };
    Ok(RunView {
        id: id.clone(),
        standing,
        asks,
        here: false,
        stopped,
        queued: api.runs.is_queued(id),
    })
}

impl RunView {
    /// Creates the view of a run in this process.
    pub(super) async fn live(api: &Api, run: &LiveRun) -> Self {
        let stopped = match run.ended() {
            Some(RunOutcome::Stopped(cause)) => Some(cause_text(&cause)),
            _ => None,
        };
        let (standing, here) = (run.status(), run.ended().is_none());
        // A run that is too busy to report its questions is returned without them.
        let asks = timeout(api.settings.patience, run.open_asks())
            .await
            .unwrap_or_default();
        Self {
            id: run.id().clone(),
            standing,
            asks,
            here,
            stopped,
            queued: false,
        }
    }

    pub(super) fn json(&self) -> Value {
        let standing = &self.standing;
        let mut json = summary_json(&self.id, standing, self.here);
        json.insert("asks".into(), self.asks.iter().map(ask_json).collect());
        json.insert("stats".into(), json!(standing.stats));
        json.insert("usage".into(), usage_json(&standing.usage));
        json.insert(
            "ending".into(),
            standing.ending.as_deref().map_or(Value::Null, ending_json),
        );
        if let Some(cause) = &self.stopped {
            json.insert("stopped".into(), cause.as_str().into());
        }
        if self.queued {
            json.insert("queued".into(), true.into());
        }
        Value::Object(json)
    }
}

/// Returns the list entry of a run that is in memory, as JSON.
pub(super) fn summary_json(id: &RunId, standing: &RunStatus, here: bool) -> Map<String, Value> {
    let mut json = Map::new();
    json.insert("id".into(), json!(id));
    json.insert("state".into(), json!(standing.state()));
    json.insert("here".into(), here.into());
    json.insert("goal".into(), standing.goal.as_str().into());
    json.insert(
        "opened".into(),
        json!(standing.opened.map(Timestamp::as_millis)),
    );
    json.insert(
        "updated".into(),
        json!(standing.updated.map(Timestamp::as_millis)),
    );
    json.insert("paused".into(), standing.paused.into());
    json.insert("child".into(), false.into());
    json.insert(
        "status".into(),
        json!(standing.ending.as_ref().map(|ending| &ending.status)),
    );
    json
}

/// Returns the ending as JSON. `why` is the status in words, for people.
fn ending_json(ending: &Ending) -> Value {
    json!({
        "status": ending.status,
        "why": ending.status.to_string(),
        "text": ending.text,
        "value": ending.value,
        "finish": ending.finish,
        "signals": ending.signals,
    })
}

/// Returns the usage as JSON, with the total number of tokens and the cost in dollars.
pub(super) fn usage_json(usage: &Usage) -> Value {
    let mut json = json!(usage);
    json["tokens"] = usage.total().into();
    json["dollars"] = usage
        .cost
        .map_or(Value::Null, |cost| (cost.nanos() as f64 / 1e9).into());
    json
}

/// Returns a child run, from its records.
async fn show_child(api: &Api, caller: &Caller, id: &RunId) -> HandlerResult {
    let (runtime, run) = (api.runs.runtime().clone(), id.clone());
    let read = api.runs.with_journal(caller, async move {
        let records = runtime.journal().read(&run).await?;
        Ok(RunSummary::of(&run, &records).map(|summary| (summary, RunReport::of(&run, &records))))
    });
    let Some((summary, report)) = read.await? else {
        let message = format!(
            "the journal has no run `{id}`; its root run is `{}`",
            root(id)
        );
        return Err(Problem::not_found("no_run", message));
    };
    let mut json = super::list::summary_json(api, &summary);
    json.insert("model_calls".into(), report.model_calls.into());
    json.insert("usage".into(), usage_json(&report.usage));
    json.insert("answer".into(), report.answer.into());
    Ok(ok(&Value::Object(json)))
}
