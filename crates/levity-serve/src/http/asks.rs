//! Questions that wait for a decision.
//!
//! The id of a question is `RUN:EFFECT`, because a question of a child run is decided through its
//! root run. The scope depends on the question: answering in words is part of a conversation and
//! needs `run`; everything else is an approval and needs `approve`.

use std::sync::Arc;

use axum::extract::{Request, State};
use levity_core::{Ask, AskKind, Decision, EffectId, RunId, RunRequest};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Api;
use super::commands::{live_target, send_by_journal, send_live};
use super::extract::{AskPath, RunPath, own_run};
use super::input::{body, root};
use super::problem::{HandlerResult, Problem, ok};
use crate::access::{Caller, TokenScope};

/// `GET /v1/runs/ID/asks`: the pending questions of a run and its child runs.
pub(super) async fn asks(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
) -> HandlerResult {
    let asks = pending_asks(&api, &caller, &id).await?;
    Ok(ok(
        &json!({"asks": asks.iter().map(ask_json).collect::<Value>()}),
    ))
}

/// Returns the pending questions of a run and its child runs.
async fn pending_asks(api: &Api, caller: &Caller, id: &RunId) -> HandlerResult<Vec<Ask>> {
    let Ok(asks) = timeout(api.settings.patience, api.runs.asks_for(caller, &root(id))).await
    else {
        let message = format!("run `{id}` is busy and does not report its questions; try again");
        return Err(Problem::unavailable("busy", message));
    };
    let mut asks = asks?;
    asks.retain(|ask| ask.run.is_within(id));
    Ok(asks)
}

/// Returns a question as JSON, with the id that decides it.
pub(super) fn ask_json(ask: &Ask) -> Value {
    let mut json = json!(ask);
    json["id"] = format!("{}:{}", ask.run, ask.effect).into();
    json["wanted"] = json!(ask.wanted);
    json
}

/// The kinds of decisions, as clients write them: `allow`, `deny`, `edit`, `answer`.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum DecisionKind {
    Allow,
    Deny,
    Edit,
    Answer,
}

/// The body of a decision, such as `{"decision": "deny", "reason": "too expensive"}`. Each kind
/// allows only its own fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionBody {
    decision: DecisionKind,
    reason: Option<String>,
    args: Option<Value>,
    text: Option<String>,
}

/// `POST /v1/runs/ID/asks/ASK`: decides a question. The question is looked up first, so a decision
/// that comes too late is a conflict and not lost silently.
pub(super) async fn decide(
    State(api): State<Arc<Api>>,
    caller: Caller,
    AskPath(id, ask): AskPath,
    request: Request,
) -> HandlerResult {
    if !caller.has_scope(TokenScope::Run) && !caller.has_scope(TokenScope::Approve) {
        return Err(Problem::forbidden(caller.missing(TokenScope::Approve)));
    }
    let (run, effect) = ask_id(&caller, &id, &ask)?;
    let decision = decision(body(&api, request).await?)?;
    let asks = pending_asks(&api, &caller, &id).await?;
    let Some(ask) = asks
        .into_iter()
        .find(|ask| ask.run == run && ask.effect == effect)
    else {
        let message = format!("run `{run}` is not waiting for a decision on effect {effect}");
        return Err(Problem::conflict("not_asked", message));
    };
    // An answer is a message to the run; any other decision is an approval.
    let scope = if ask.wanted == AskKind::Answer {
        TokenScope::Run
    } else {
        TokenScope::Approve
    };
    if !caller.has_scope(scope) {
        return Err(Problem::forbidden(caller.missing(scope)));
    }
    if ask.wanted == AskKind::Answer && matches!(decision, Decision::Allow | Decision::Edit { .. })
    {
        let message = "this question requires a text; decide with `answer` and `text`, or with \
            `deny`";
        return Err(Problem::invalid("wants_answer", message));
    }
    api.runs.check_decision(&decision)?;
    if let Decision::Answer { text, .. } = &decision {
        api.runs.check_prompt(text)?;
    }
    match live_target(&api, &run) {
        Some(here) => {
            send_live(&api, &run, here, |control| async move {
                control.decide(&ask, decision).await
            })
            .await
        }
        None => {
            let root = root(&run);
            api.runs
                .check_edit_for(&caller, &root, &ask, &decision)
                .await?;
            let request = RunRequest::Decide { effect, decision };
            send_by_journal(&api, &caller, &run, request).await
        }
    }
}

/// Returns the run and the effect of a question id: `RUN:EFFECT`, or `EFFECT` alone if the run
/// itself asks.
fn ask_id(caller: &Caller, run: &RunId, ask: &str) -> HandlerResult<(RunId, EffectId)> {
    let (run, effect) = match ask.rsplit_once(':') {
        Some((asker, effect)) => (own_run(caller, asker)?, effect),
        None => (run.clone(), ask),
    };
    match effect.parse() {
        Ok(number) => Ok((run, EffectId::new(number))),
        Err(_) => Err(Problem::bad(
            "bad_id",
            "the id of a question must be `RUN:EFFECT`, as `asks` returns it",
        )),
    }
}

/// Validates and returns the decision of a request body.
///
/// Superfluous fields are errors: a client that sends `args` with `allow` expects them to be used.
fn decision(body: DecisionBody) -> HandlerResult<Decision> {
    let wrong = |message: &str| Err(Problem::invalid("invalid", message));
    match body {
        DecisionBody {
            decision: DecisionKind::Allow,
            reason: None,
            args: None,
            text: None,
        } => Ok(Decision::Allow),
        DecisionBody {
            decision: DecisionKind::Deny,
            reason,
            args: None,
            text: None,
        } => Ok(Decision::deny(
            reason.unwrap_or_else(|| "the user denied the call".to_owned()),
        )),
        DecisionBody {
            decision: DecisionKind::Edit,
            reason: None,
            args: Some(args @ Value::Object(_)),
            text: None,
        } => Ok(Decision::edit(args)),
        DecisionBody {
            decision: DecisionKind::Answer,
            reason: None,
            args: None,
            text: Some(text),
        } => Ok(Decision::answer(text)),
        DecisionBody {
            decision: DecisionKind::Allow,
            ..
        } => wrong("`allow` takes no other fields"),
        DecisionBody {
            decision: DecisionKind::Deny,
            ..
        } => wrong("`deny` takes only a `reason`"),
        DecisionBody {
            decision: DecisionKind::Edit,
            ..
        } => wrong("`edit` takes only `args`, an object"),
        DecisionBody {
            decision: DecisionKind::Answer,
            ..
        } => wrong("`answer` takes only `text`"),
    }
}
