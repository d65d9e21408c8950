//! `GET /v1/asks`: the pending questions of all runs of a caller.
//!
//! Questions of runs in memory come from their views, so they cost no request to the run. Those of
//! other runs are read from the journal, for at most 20 runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use levity_core::{RunId, RunQuery, RunState, RunSummary, Timestamp};
use serde_json::{Value, json};

use super::Api;
use super::asks::ask_json;
use super::input::root;
use super::problem::{HandlerResult, ok};
use crate::access::Caller;
use crate::runs::{LiveRun, MAX_GOAL, OpenAsk};

/// The maximum number of questions in a response.
const MAX_ASKS: usize = 100;
/// The maximum number of runs of the journal whose questions are read.
const MAX_STORED: usize = 20;

/// A pending question as JSON, with the time at which it was asked.
#[derive(Clone)]
pub(super) struct InboxEntry {
    at: Timestamp,
    pub(super) root: RunId,
    json: Value,
}

/// Returns the pending questions, the newest first.
pub(super) async fn asks(State(api): State<Arc<Api>>, caller: Caller) -> HandlerResult {
    let stored = stored_asks(&api, &caller, &[]).await?;
    Ok(ok(&inbox_json(live_asks(&api, &caller), &stored)))
}

/// Returns the questions of runs in memory and in the journal as JSON: the newest 100, and the
/// number of all.
pub(super) fn inbox_json(mut asks: Vec<InboxEntry>, stored: &[InboxEntry]) -> Value {
    asks.extend(stored.iter().cloned());
    asks.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    let count = asks.len();
    let asks: Vec<Value> = asks
        .into_iter()
        .take(MAX_ASKS)
        .map(|entry| entry.json)
        .collect();
    json!({"asks": asks, "count": count})
}

/// Returns the pending questions of the caller's runs in memory.
pub(super) fn live_asks(api: &Api, caller: &Caller) -> Vec<InboxEntry> {
    let runs = api.runs.in_memory();
    let own = runs.iter().filter(|run| caller.owns(run.id().as_str()));
    own.flat_map(|run| asks_of(run)).collect()
}

fn asks_of(run: &LiveRun) -> Vec<InboxEntry> {
    let asks = run.known_asks();
    if asks.is_empty() {
        return Vec::new();
    }
    let goal = run.brief(MAX_GOAL).goal;
    let entry = |ask: levity_observe::ViewAsk| {
        let at = ask.at;
        let mut json = json!(ask);
        json["root"] = json!(run.id());
        json["goal"] = goal.as_str().into();
        InboxEntry {
            at,
            root: run.id().clone(),
            json,
        }
    };
    asks.into_iter().map(entry).collect()
}

/// Returns the pending questions of runs that only the journal has. Runs that have not changed
/// since `known` was read are not read again.
pub(super) async fn stored_asks(
    api: &Api,
    caller: &Caller,
    known: &[InboxEntry],
) -> HandlerResult<Vec<InboxEntry>> {
    if !api.runs.runtime().journal().keeps() {
        return Ok(Vec::new());
    }
    let (runs, owner) = (api.runs.clone(), caller.clone());
    let is_wanted = move |run: &RunSummary| {
        // Runs that wait for a point in time have no question.
        run.waiting.iter().any(|waiting| waiting.until.is_none())
            && owner.owns(run.run.as_str())
            && runs.known_here(&root(&run.run)).is_none()
    };
    // A question of a child run is in the records of the child run.
    let mut query = RunQuery::new().newest_first();
    query.state = Some(RunState::Waiting);
    let waiting = api
        .runs
        .newest(caller, query, MAX_STORED, is_wanted)
        .await?;
    let (mut entries, mut seen) = (Vec::new(), BTreeSet::new());
    for run in waiting {
        let (id, at) = (root(&run.run), run.updated);
        if !seen.insert(id.clone()) {
            continue;
        }
        let same = |entry: &&InboxEntry| entry.root == id && entry.at == at;
        match known.iter().any(|entry| same(&entry)) {
            true => entries.extend(known.iter().filter(same).cloned()),
            false => entries.extend(read_asks(api, caller, &id, at).await),
        }
    }
    Ok(entries)
}

/// Reads the questions of a run. A run that cannot be read has none that could be answered.
async fn read_asks(api: &Api, caller: &Caller, id: &RunId, at: Timestamp) -> Vec<InboxEntry> {
    let asks = api.runs.open_asks_for(caller, id).await;
    let status = api.runs.status_for(caller, id).await.unwrap_or_default();
    let goal = status.brief(MAX_GOAL).goal;
    let asks = asks.unwrap_or_default();
    asks.iter()
        .map(|ask| stored_entry(id, at, &goal, ask))
        .collect()
}

fn stored_entry(root: &RunId, at: Timestamp, goal: &str, ask: &OpenAsk) -> InboxEntry {
    let mut json = ask_json(ask);
    json["at"] = json!(at);
    json["root"] = json!(root);
    json["goal"] = goal.into();
    InboxEntry {
        at,
        root: root.clone(),
        json,
    }
}
