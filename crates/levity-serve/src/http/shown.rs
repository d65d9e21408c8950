//! One run, as it is shown.

use std::sync::Arc;

use axum::extract::State;
use levity_core::{Ask, Ending, RunId, RunSummary, Timestamp, Usage};
use levity_runtime::RunReport;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::Api;
use super::answer::{Answered, Problem, ok, told_cause};
use super::asks::ask_json;
use super::input::root;
use super::target::RunPath;
use crate::access::Caller;
use crate::runs::{LiveRun, RunOutcome, RunStatus};

/// A run and all that is told about it.
pub(super) struct Shown {
    pub(super) id: RunId,
    standing: RunStatus,
    asks: Vec<Ask>,
    /// Whether this process drives it.
    here: bool,
    /// Why it could not be driven to its end here.
    stopped: Option<String>,
    /// Whether it goes on here when there is a place for it.
    queued: bool,
}

pub(super) async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
) -> Answered {
    if id.parent().is_some() {
        return below(&api, &caller, &id).await;
    }
    Ok(ok(&shown(&api, &caller, &id).await?.json()))
}

/// The run of this id.
pub(super) async fn shown(api: &Api, caller: &Caller, id: &RunId) -> Answered<Shown> {
    if let Some(run) = api.runs.get(id) {
        let live = Shown::live(api, &run).await;
        if live.stopped.is_none() || !api.runs.runtime().journal().keeps() {
            return Ok(live);
        }
        return kept(api, caller, id, live.stopped).await;
    }
    kept(api, caller, id, None).await
}

/// A run of the journal.
async fn kept(api: &Api, caller: &Caller, id: &RunId, stopped: Option<String>) -> Answered<Shown> {
    let standing = api.runs.standing_for(caller, id).await?;
    let over = standing.ending.is_some();
    let asks = if over {
        Vec::new()
    } else {
        api.runs.asks_for(caller, id).await?
    };
    Ok(Shown {
        id: id.clone(),
        standing,
        asks,
        here: false,
        stopped,
        queued: api.runs.is_queued(id),
    })
}

impl Shown {
    pub(super) async fn live(api: &Api, run: &LiveRun) -> Self {
        let stopped = match run.ended() {
            Some(RunOutcome::Stopped(cause)) => Some(told_cause(&cause)),
            _ => None,
        };
        let (standing, here) = (run.standing(), run.ended().is_none());
        // A run that is too busy to say what it asks is shown all the same.
        let asks = timeout(api.settings.patience, run.asks())
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
        if let Some(why) = &self.stopped {
            json.insert("stopped".into(), why.as_str().into());
        }
        if self.queued {
            json.insert("queued".into(), true.into());
        }
        Value::Object(json)
    }
}

/// What a list shows of a run that is known here.
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

/// What was used, with the sum of the tokens, and the money in dollars.
fn usage_json(usage: &Usage) -> Value {
    let mut json = json!(usage);
    json["tokens"] = usage.total().into();
    json["dollars"] = usage
        .cost
        .map_or(Value::Null, |cost| (cost.nanos() as f64 / 1e9).into());
    json
}

/// A run that another one started, as its records tell it.
async fn below(api: &Api, caller: &Caller, id: &RunId) -> Answered {
    let (runtime, run) = (api.runs.runtime().clone(), id.clone());
    let read = api.runs.with_journal(caller, async move {
        let records = runtime.journal().read(&run).await?;
        Ok(RunSummary::of(&run, &records).map(|summary| (summary, RunReport::of(&run, &records))))
    });
    let Some((summary, report)) = read.await? else {
        let message = format!(
            "there is no run `{id}` in the journal; `{}` is the one above",
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
