//! Many runs, page by page; and removing one.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, Uri};
use levity_core::{RunId, RunQuery, RunState, RunSummary, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Api;
use super::answer::{Answered, Problem, ok};
use super::input::{self, query, yes};
use super::shown;
use super::target::RunPath;
use crate::access::Caller;

/// How many runs a page has by default, and at most.
const PAGE: (usize, usize) = (50, 500);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    state: Option<RunState>,
    roots: Option<String>,
    since: Option<u64>,
    before: Option<u64>,
    limit: Option<usize>,
    cursor: Option<String>,
}

pub(super) async fn list(State(api): State<Arc<Api>>, caller: Caller, uri: Uri) -> Answered {
    let wanted: Wanted = query(&uri)?;
    let limit = limit(wanted.limit, PAGE)?;
    let cursor = wanted.cursor.as_deref().map(Cursor::read).transpose()?;
    let mut query = RunQuery::new().newest_first();
    query.state = wanted.state;
    query.roots = yes("roots", wanted.roots.as_deref(), true)?;
    query.since = wanted.since.map(Timestamp::from_millis);
    query.before = wanted.before.map(Timestamp::from_millis);
    let mut found = match api.runs.runtime().journal().keeps() {
        true => kept(&api, &caller, query, cursor, limit + 1).await?,
        false => here(&api, &caller, &query, cursor.as_ref()),
    };
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found
        .last()
        .filter(|_| more)
        .map(|last| Cursor(last.opened, last.run.to_string()).write());
    let runs: Vec<Value> = found
        .iter()
        .map(|run| Value::Object(summary_json(&api, run)))
        .collect();
    Ok(ok(&json!({"runs": runs, "next": next})))
}

/// How many things a page is to have.
pub(super) fn limit(wanted: Option<usize>, (default, most): (usize, usize)) -> Answered<usize> {
    match wanted.unwrap_or(default) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        _ => Err(Problem::bad("bad_query", format!("`limit` is 1 to {most}"))),
    }
}

/// Where a page ends: the time and the name of its last entry.
pub(super) struct Cursor(pub(super) Timestamp, pub(super) String);

impl Cursor {
    pub(super) fn write(&self) -> String {
        format!("{}~{}", self.0.as_millis(), self.1)
    }

    pub(super) fn read(text: &str) -> Answered<Self> {
        let read = || {
            let (time, name) = text.split_once('~')?;
            Some(Self(
                Timestamp::from_millis(time.parse().ok()?),
                name.to_owned(),
            ))
        };
        read().ok_or_else(|| {
            Problem::bad(
                "bad_query",
                "`cursor` is what `next` of the page before says",
            )
        })
    }

    /// Whether something of this time and name comes behind it, the newest first.
    pub(super) fn is_before(&self, time: Timestamp, name: &str) -> bool {
        (time, name) < (self.0, &*self.1)
    }
}

/// The first runs of the journal behind a cursor.
async fn kept(
    api: &Api,
    caller: &Caller,
    mut query: RunQuery,
    cursor: Option<Cursor>,
    wanted: usize,
) -> Answered<Vec<RunSummary>> {
    if let Some(Cursor(time, _)) = cursor {
        let end = Timestamp::from_millis(time.as_millis().saturating_add(1));
        query.before = Some(query.before.map_or(end, |before| before.min(end)));
    }
    let whose = caller.clone();
    let is_wanted = move |run: &RunSummary| {
        // Some of those that began in the same moment as the last one were told already.
        let id = run.run.as_str();
        cursor
            .as_ref()
            .is_none_or(|cursor| cursor.is_before(run.opened, id))
            && whose.owns(id)
    };
    Ok(api.runs.newest(caller, query, wanted, is_wanted).await?)
}

/// The runs of this process, where no journal keeps any.
fn here(api: &Api, caller: &Caller, query: &RunQuery, cursor: Option<&Cursor>) -> Vec<RunSummary> {
    let runs = api.runs.here().into_iter().map(|run| run.summary());
    let behind = |run: &RunSummary| {
        cursor.is_none_or(|cursor| cursor.is_before(run.opened, run.run.as_str()))
    };
    query.select(runs.filter(|run| behind(run) && caller.owns(run.run.as_str())))
}

/// What a list shows of a run.
pub(super) fn summary_json(api: &Api, summary: &RunSummary) -> Map<String, Value> {
    let live = api.runs.get(&summary.run);
    let here = live.as_ref().is_some_and(|run| run.ended().is_none());
    if let Some(run) = live.filter(|_| here) {
        return shown::summary_json(&summary.run, &run.standing(), true);
    }
    let mut json = Map::new();
    json.insert("id".into(), json!(summary.run));
    json.insert("state".into(), json!(summary.state()));
    json.insert("here".into(), here.into());
    json.insert("opened".into(), summary.opened.as_millis().into());
    json.insert("updated".into(), summary.updated.as_millis().into());
    json.insert("paused".into(), summary.paused.into());
    json.insert("child".into(), summary.child.into());
    json.insert("status".into(), json!(summary.status));
    json
}

/// Removes a run that has ended, and those below it.
pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
) -> Answered {
    if id.parent().is_some() {
        return Err(Problem::conflict(
            "child",
            "a run is removed with the one that started it",
        ));
    }
    let failed = |error| Problem::from_journal(&error);
    let journal = api.runs.runtime().journal();
    if api.runs.get(&id).is_some_and(|run| run.ended().is_none())
        || !has_ended(&api, &caller, &id).await?
    {
        return Err(Problem::conflict(
            "not_ended",
            format!("run `{id}` has not ended; cancel it first"),
        ));
    }
    journal.remove(&id).await.map_err(failed)?;
    api.runs.forget(&id);
    Ok(gone())
}

pub(super) fn gone() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

async fn has_ended(api: &Api, caller: &Caller, id: &RunId) -> Answered<bool> {
    if !api.runs.runtime().journal().keeps() {
        return Err(Problem::conflict(
            "not_kept",
            "no journal keeps the runs of this server",
        ));
    }
    Ok(input::summary(api, caller, id).await?.status.is_some())
}
