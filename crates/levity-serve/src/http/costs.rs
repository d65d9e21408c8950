//! `GET /v1/costs`: the tokens and the cost of stored runs, by day, model or agent.

use std::sync::Arc;

use axum::extract::State;
use http::Uri;
use levity_core::{RunQuery, Timestamp, Usage};
use levity_runtime::{CostGroup, CostReport};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Api;
use super::input::query;
use super::problem::{HandlerResult, Problem, ok};
use super::run_view::usage_json;
use crate::access::Caller;

/// The maximum number of runs that are read, including child runs, the newest first.
const MAX_RUNS: usize = 5_000;

/// The parameters: `by` is `day`, `model` or `agent`; times are milliseconds since 1970.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostsQuery {
    by: Option<String>,
    since: Option<u64>,
    before: Option<u64>,
}

/// Returns the groups in alphabetical order, and the sum.
pub(super) async fn costs(State(api): State<Arc<Api>>, caller: Caller, uri: Uri) -> HandlerResult {
    let params: CostsQuery = query(&uri)?;
    let by = match params.by.as_deref() {
        None | Some("day") => CostGroup::Day,
        Some("model") => CostGroup::Model,
        Some("agent") => CostGroup::Agent,
        Some(_) => {
            let message = "`by` must be `day`, `model` or `agent`";
            return Err(Problem::bad("bad_query", message));
        }
    };
    if !api.runs.runtime().journal().keeps() {
        let message = "this server has no journal, so it does not know the costs of its runs";
        return Err(Problem::conflict("not_kept", message));
    }
    let mut query = RunQuery::new().newest_first().limit(MAX_RUNS + 1);
    query.since = params.since.map(Timestamp::from_millis);
    query.before = params.before.map(Timestamp::from_millis);
    let (runtime, owner) = (api.runs.runtime().clone(), caller.clone());
    let read = api.runs.with_list(&caller, async move {
        let mut runs = runtime.journal().list(&query).await?;
        let truncated = runs.len() > MAX_RUNS;
        runs.truncate(MAX_RUNS);
        let mut report = CostReport::new(by);
        // Parents come before their child runs, whose names only they know.
        for run in runs.iter().rev().filter(|run| owner.owns(run.run.as_str())) {
            report.add(&run.run, &runtime.journal().read(&run.run).await?);
        }
        Ok((report, truncated))
    });
    let (report, truncated) = read.await?;
    let row = |group: Option<&str>, calls: u64, usage: &Usage| -> Value {
        let usage = usage_json(usage);
        json!({"group": group, "model_calls": calls, "usage": usage})
    };
    let groups: Value = report
        .groups()
        .map(|(group, calls, usage)| row(Some(group), calls, usage))
        .collect();
    let (calls, usage) = report.total();
    Ok(ok(
        &json!({"costs": groups, "total": row(None, calls, &usage), "truncated": truncated}),
    ))
}
