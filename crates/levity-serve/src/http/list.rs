//! Lists runs by page, and removes them.
//!
//! Pages are sorted by start time, newest first. A cursor is `MILLIS~ID` of the last entry; it
//! stays valid if runs are added or removed in between, because it names a position and not a
//! count.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, Uri};
use levity_core::{RunId, RunQuery, RunState, RunSummary, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Api;
use super::extract::RunPath;
use super::input::{self, bool_param, query};
use super::problem::{HandlerResult, Problem, ok};
use super::run_view;
use crate::access::Caller;
use crate::runs::MAX_GOAL;

/// The default and maximum number of runs in a page.
const PAGE: (usize, usize) = (50, 500);

/// The parameters of a list. Times are milliseconds since 1970; `roots=0` includes child runs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    state: Option<RunState>,
    roots: Option<String>,
    since: Option<u64>,
    before: Option<u64>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// `GET /v1/runs`: one page of runs. One more entry than requested is read, to know if another page
/// follows.
pub(super) async fn list(State(api): State<Arc<Api>>, caller: Caller, uri: Uri) -> HandlerResult {
    let wanted: ListQuery = query(&uri)?;
    let limit = limit(wanted.limit, PAGE)?;
    let cursor = wanted.cursor.as_deref().map(Cursor::read).transpose()?;
    let mut query = RunQuery::new().newest_first();
    query.state = wanted.state;
    query.roots = bool_param("roots", wanted.roots.as_deref(), true)?;
    query.since = wanted.since.map(Timestamp::from_millis);
    query.before = wanted.before.map(Timestamp::from_millis);
    let mut found = match api.runs.runtime().journal().keeps() {
        true => list_journal(&api, &caller, query, cursor, limit + 1).await?,
        false => list_in_memory(&api, &caller, &query, cursor.as_ref()),
    };
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found
        .last()
        .filter(|_| more)
        .map(|last| Cursor(last.opened, last.run.to_string()).write());
    api.runs.read_briefs(&caller, &found).await;
    let runs: Vec<Value> = found
        .iter()
        .map(|run| Value::Object(summary_json(&api, run)))
        .collect();
    Ok(ok(&json!({"runs": runs, "next": next})))
}

/// Validates the requested page size.
pub(super) fn limit(wanted: Option<usize>, (default, max): (usize, usize)) -> HandlerResult<usize> {
    match wanted.unwrap_or(default) {
        limit if (1..=max).contains(&limit) => Ok(limit),
        _ => Err(Problem::bad(
            "bad_query",
            format!("`limit` must be 1 to {max}"),
        )),
    }
}

/// The end of a page: the time and the name of its last entry.
pub(super) struct Cursor(pub(super) Timestamp, pub(super) String);

impl Cursor {
    /// Returns the cursor as clients send it back, such as `1763456789000~ann-r1`.
    pub(super) fn write(&self) -> String {
        format!("{}~{}", self.0.as_millis(), self.1)
    }

    /// Parses a cursor, which is untrusted. A forged one selects another position in the list, and
    /// nothing of other tenants.
    pub(super) fn read(text: &str) -> HandlerResult<Self> {
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
                "`cursor` must be the `next` value of the previous page",
            )
        })
    }

    /// Returns `true` if an entry of this time and name follows the cursor, newest first.
    pub(super) fn is_before(&self, time: Timestamp, name: &str) -> bool {
        (time, name) < (self.0, &*self.1)
    }
}

/// Returns the first runs of the journal after a cursor.
async fn list_journal(
    api: &Api,
    caller: &Caller,
    mut query: RunQuery,
    cursor: Option<Cursor>,
    wanted: usize,
) -> HandlerResult<Vec<RunSummary>> {
    if let Some(Cursor(time, _)) = cursor {
        let end = Timestamp::from_millis(time.as_millis().saturating_add(1));
        query.before = Some(query.before.map_or(end, |before| before.min(end)));
    }
    let owner = caller.clone();
    let is_wanted = move |run: &RunSummary| {
        // Some runs that started at the same time as the last one were on an earlier page.
        let id = run.run.as_str();
        cursor
            .as_ref()
            .is_none_or(|cursor| cursor.is_before(run.opened, id))
            && owner.owns(id)
    };
    Ok(api.runs.newest(caller, query, wanted, is_wanted).await?)
}

/// Returns the runs of this process, if there is no journal.
fn list_in_memory(
    api: &Api,
    caller: &Caller,
    query: &RunQuery,
    cursor: Option<&Cursor>,
) -> Vec<RunSummary> {
    let runs = api.runs.in_memory().into_iter().map(|run| run.summary());
    let behind = |run: &RunSummary| {
        cursor.is_none_or(|cursor| cursor.is_before(run.opened, run.run.as_str()))
    };
    query.select(runs.filter(|run| behind(run) && caller.owns(run.run.as_str())))
}

/// Returns the list entry of a run as JSON, with at most the first 1,024 bytes of its goal. The
/// entry of a stored run has a goal, and its usage if it has ended, only if they are known without
/// a read of the journal.
pub(super) fn summary_json(api: &Api, summary: &RunSummary) -> Map<String, Value> {
    let live = api.runs.get(&summary.run);
    let here = live.as_ref().is_some_and(|run| run.ended().is_none());
    if let Some(run) = live.filter(|_| here) {
        return run_view::summary_json(&summary.run, &run.brief(MAX_GOAL), true);
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
    if let Some(brief) = api.runs.known_brief(summary) {
        json.insert("goal".into(), brief.goal.as_str().into());
        if let (Some(usage), Some(_)) = (&brief.usage, &summary.status) {
            json.insert("usage".into(), run_view::usage_json(usage));
        }
    }
    json
}

/// Removes a run that has ended, with its child runs.
pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
) -> HandlerResult {
    if id.parent().is_some() {
        return Err(Problem::conflict(
            "child",
            "a child run cannot be removed alone; remove its root run",
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
    if api.decisions.contains(&id) {
        let message = format!("a decision is being written to run `{id}`; try again");
        return Err(Problem::unavailable("busy", message));
    }
    journal.remove(&id).await.map_err(failed)?;
    api.runs.forget(&id);
    Ok(no_content())
}

pub(super) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Fails if the server has no journal, because a run that is only in memory cannot be removed.
async fn has_ended(api: &Api, caller: &Caller, id: &RunId) -> HandlerResult<bool> {
    if !api.runs.runtime().journal().keeps() {
        return Err(Problem::conflict(
            "not_kept",
            "this server has no journal, so its runs cannot be removed",
        ));
    }
    Ok(input::summary(api, caller, id).await?.status.is_some())
}

/// `GET /v1/models`: the models that a client may choose for a run.
pub(super) async fn models(State(api): State<Arc<Api>>) -> HandlerResult {
    let model =
        |model: &crate::OfferedModel| json!({"name": model.name, "default": model.is_default});
    let models: Vec<Value> = api.runs.models().iter().map(model).collect();
    Ok(ok(&json!({"models": models})))
}
