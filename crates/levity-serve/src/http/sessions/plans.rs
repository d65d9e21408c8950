//! Stored sessions of executed plans.
//!
//! Plans are read from the session files that `levity-observe` writes. A damaged file is listed
//! with its `problem`, and cannot be shown.

use levity_core::Timestamp;
use levity_observe::{Session, SessionFilter, SessionFolder, SessionInfo};
use serde_json::{Value, json};

use super::super::Api;
use super::super::input::run_id;
use super::super::problem::{HandlerResult, Problem, ok};
use super::no_plans;

fn sessions(api: &Api) -> HandlerResult<&SessionFolder> {
    api.settings.plans.as_ref().ok_or_else(no_plans)
}

pub(super) async fn list(api: &Api, limit: usize) -> HandlerResult {
    let found = sessions(api)?
        .list(&SessionFilter::new().limit(limit))
        .await;
    let found =
        found.map_err(|error| Problem::unavailable("sessions_failed", error.to_string()))?;
    let plans: Vec<Value> = found.iter().map(info_json).collect();
    Ok(ok(&json!({"sessions": plans, "next": null})))
}

fn info_json(info: &SessionInfo) -> Value {
    json!({
        "kind": "plan",
        "id": info.id,
        "changed": info.created.map(Timestamp::as_millis),
        "goal": info.query,
        "status": info.status,
        "bytes": info.bytes,
        "problem": info.problem,
    })
}

pub(super) async fn show(api: &Api, name: &str) -> HandlerResult {
    let id = run_id(name)?;
    let unknown = |_| Problem::not_found("no_session", "no such plan, or its file cannot be read");
    let session = sessions(api)?.load(id.as_str()).await.map_err(unknown)?;
    Ok(ok(&session_json(&session)))
}

fn session_json(session: &Session) -> Value {
    let steps = session.steps.iter().map(|step| {
        json!({
            "id": step.step.id,
            "agent": step.step.agent,
            "description": step.step.description,
            "status": step.status,
            "output": step.output,
            "error": step.error,
            "started": step.started.map(Timestamp::as_millis),
            "ended": step.ended.map(Timestamp::as_millis),
        })
    });
    json!({
        "kind": "plan",
        "id": session.id,
        "goal": session.query,
        "status": session.status,
        "created": session.created.map(Timestamp::as_millis),
        "steps": steps.collect::<Vec<_>>(),
        "edges": session.edges,
        "replans": session.replans,
        "text": session.ending.as_ref().map(|ending| &ending.text),
    })
}
