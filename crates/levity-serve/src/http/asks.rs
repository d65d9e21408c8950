//! Questions that wait for a decision.
//!
//! The id of a question is `RUN:EFFECT:FINGERPRINT`. It names the run, because a question of a
//! child run is decided through its root run. The fingerprint binds the decision to the call that
//! the client has read: a later run with the same id asks with the same number.
//!
//! The scope depends on the question: answering in words is part of a conversation and needs `run`;
//! everything else is an approval and needs `approve`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Request, State};
use levity_core::{AskKind, Decision, EffectId, RunId, RunRequest};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Api;
use super::commands::{LiveTarget, live_target, send_by_journal, send_live};
use super::extract::{AskPath, RunPath, own_run};
use super::input::{body, root};
use super::problem::{HandlerResult, Problem, ok};
use crate::access::{Caller, TokenScope};
use crate::runs::OpenAsk;

/// `GET /v1/runs/ID/asks`: the pending questions of a run and its child runs.
pub(super) async fn asks(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
) -> HandlerResult {
    let asks = pending_asks(&api, &caller, &id, None).await?;
    Ok(ok(
        &json!({"asks": asks.iter().map(ask_json).collect::<Value>()}),
    ))
}

/// Returns the pending questions of a run and its child runs. With a target, the questions are
/// those of the run that receives the decision, even if another run takes its id meanwhile.
async fn pending_asks(
    api: &Api,
    caller: &Caller,
    id: &RunId,
    target: Option<&LiveTarget>,
) -> HandlerResult<Vec<OpenAsk>> {
    let root = root(id);
    let asks = async {
        match target {
            Some(target) => Ok(target.open_asks().await),
            None => api.runs.open_asks_for(caller, &root).await,
        }
    };
    let Ok(asks) = timeout(api.settings.patience, asks).await else {
        let message = format!("run `{id}` is busy and does not report its questions; try again");
        return Err(Problem::unavailable("busy", message));
    };
    let mut asks = asks?;
    asks.retain(|open| open.ask.run.is_within(id));
    Ok(asks)
}

/// Returns a question as JSON, with the id that decides it.
pub(super) fn ask_json(open: &OpenAsk) -> Value {
    let ask = &open.ask;
    let mut json = json!(ask);
    json["id"] = open.id.as_str().into();
    json["wanted"] = json!(ask.wanted);
    if has_large_integer(&ask.call.args) {
        json["args_text"] = format!("{:#}", ask.call.args).into();
    }
    json
}

/// Returns `true` if a value contains an integer that programs with numbers of 64-bit floating
/// point, such as web pages, round. Such arguments are sent as text as well.
fn has_large_integer(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let size = number.as_i64().map(i64::unsigned_abs);
            size.or(number.as_u64()).is_some_and(|size| size > MAX_SAFE)
        }
        Value::Array(values) => values.iter().any(has_large_integer),
        Value::Object(fields) => fields.values().any(has_large_integer),
        _ => false,
    }
}

/// The largest integer up to which every integer is a 64-bit floating-point number.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// The runs of the journal that decisions are being written to. Such a run must not be removed, or
/// a decision could reach a later run with the same id.
#[derive(Default)]
pub(super) struct DecisionsInProgress(Mutex<Vec<RunId>>);

impl DecisionsInProgress {
    /// Marks a root run until the result is dropped.
    fn begin(&self, root: RunId) -> DecisionInProgress<'_> {
        self.runs().push(root.clone());
        DecisionInProgress { all: self, root }
    }

    /// Returns `true` if a decision is being written to the journal of this root run.
    pub(super) fn contains(&self, root: &RunId) -> bool {
        self.runs().contains(root)
    }

    fn runs(&self) -> MutexGuard<'_, Vec<RunId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A decision that is being written to the journal of a root run.
struct DecisionInProgress<'a> {
    all: &'a DecisionsInProgress,
    root: RunId,
}

impl Drop for DecisionInProgress<'_> {
    fn drop(&mut self) {
        let mut runs = self.all.runs();
        if let Some(at) = runs.iter().position(|run| *run == self.root) {
            runs.swap_remove(at);
        }
    }
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
    let (run, effect, wanted) = ask_id(&caller, &ask)?;
    let decision = decision(body(&api, request).await?)?;
    let target = live_target(&api, &run);
    let _in_progress = match target {
        Some(_) => None,
        None => Some(api.decisions.begin(root(&run))),
    };
    let asks = pending_asks(&api, &caller, &id, target.as_ref()).await?;
    let Some(OpenAsk { ask, .. }) = asks.into_iter().find(|open| open.id == wanted) else {
        let message = format!(
            "run `{run}` is not waiting for a decision on this question of effect {effect}; \
                read its questions again"
        );
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
    match target {
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

/// Returns the run and the effect of a question id, and the id in the namespace of the caller.
fn ask_id(caller: &Caller, ask: &str) -> HandlerResult<(RunId, EffectId, String)> {
    let parts = ask.rsplit_once(':').and_then(|(question, fingerprint)| {
        let (run, effect) = question.rsplit_once(':')?;
        Some((run, EffectId::new(effect.parse().ok()?), fingerprint))
    });
    let Some((run, effect, fingerprint)) = parts else {
        return Err(Problem::bad(
            "bad_id",
            "the id of a question must be `RUN:EFFECT:FINGERPRINT`, as `asks` returns it",
        ));
    };
    let run = own_run(caller, run)?;
    let id = format!("{run}:{effect}:{fingerprint}");
    Ok((run, effect, id))
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
