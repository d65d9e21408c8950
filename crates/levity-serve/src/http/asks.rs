//! Questions that wait for a decision.

use std::sync::Arc;

use axum::extract::{Request, State};
use levity_core::{Ask, Decision, EffectId, RunId, RunRequest, Wanted};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Api;
use super::answer::{Answered, Problem, ok};
use super::input::{body, root};
use super::target::{AskPath, RunPath, own_run};
use super::tell::{heard, here, write};
use crate::access::{Caller, TokenScope};

pub(super) async fn asks(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
) -> Answered {
    let asks = within(&api, &caller, &id).await?;
    Ok(ok(
        &json!({"asks": asks.iter().map(ask_json).collect::<Value>()}),
    ))
}

/// The questions of a run and those below it.
async fn within(api: &Api, caller: &Caller, id: &RunId) -> Answered<Vec<Ask>> {
    let Ok(asks) = timeout(api.settings.patience, api.runs.asks_for(caller, &root(id))).await
    else {
        let message = format!("`{id}` is busy, and does not say what it waits for; ask again");
        return Err(Problem::unavailable("busy", message));
    };
    let mut asks = asks?;
    asks.retain(|ask| ask.run.is_within(id));
    Ok(asks)
}

/// A question, with the id that it is decided by.
pub(super) fn ask_json(ask: &Ask) -> Value {
    let mut json = json!(ask);
    json["id"] = format!("{}:{}", ask.run, ask.effect).into();
    json["wanted"] = json!(ask.wanted);
    json
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Allow,
    Deny,
    Edit,
    Answer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    decision: Kind,
    reason: Option<String>,
    args: Option<Value>,
    text: Option<String>,
}

pub(super) async fn decide(
    State(api): State<Arc<Api>>,
    caller: Caller,
    AskPath(id, ask): AskPath,
    request: Request,
) -> Answered {
    if !caller.may(TokenScope::Run) && !caller.may(TokenScope::Approve) {
        return Err(Problem::forbidden(caller.missing(TokenScope::Approve)));
    }
    let (run, effect) = ask_id(&caller, &id, &ask)?;
    let decision = decision(body(&api, request).await?)?;
    let asks = within(&api, &caller, &id).await?;
    let Some(ask) = asks
        .into_iter()
        .find(|ask| ask.run == run && ask.effect == effect)
    else {
        let message = format!("run `{run}` does not wait for a decision on effect {effect}");
        return Err(Problem::conflict("not_asked", message));
    };
    // An answer is part of what is said to a run; whatever else is asked for is a permission.
    let scope = if ask.wanted == Wanted::Answer {
        TokenScope::Run
    } else {
        TokenScope::Approve
    };
    if !caller.may(scope) {
        return Err(Problem::forbidden(caller.missing(scope)));
    }
    if ask.wanted == Wanted::Answer && matches!(decision, Decision::Allow | Decision::Edit { .. }) {
        let message = "this question wants words: decide by `answer` with `text`, or `deny`";
        return Err(Problem::invalid("wants_answer", message));
    }
    if let Decision::Answer { text, .. } = &decision {
        api.runs.check_prompt(text)?;
    }
    match here(&api, &run) {
        Some(here) => {
            heard(&api, &run, here, |control| async move {
                control.decide(&ask, decision).await
            })
            .await
        }
        None => write(&api, &caller, &run, RunRequest::Decide { effect, decision }).await,
    }
}

/// The run and the effect that the id of a question means: `RUN:EFFECT`, or the effect alone where
/// the run itself asks.
fn ask_id(caller: &Caller, run: &RunId, ask: &str) -> Answered<(RunId, EffectId)> {
    let (run, effect) = match ask.rsplit_once(':') {
        Some((asker, effect)) => (own_run(caller, asker)?, effect),
        None => (run.clone(), ask),
    };
    match effect.parse() {
        Ok(number) => Ok((run, EffectId::new(number))),
        Err(_) => Err(Problem::bad(
            "bad_id",
            "the id of a question is `RUN:EFFECT`, as `asks` tells it",
        )),
    }
}

/// What was decided, if it is said as it must be.
fn decision(decided: Decided) -> Answered<Decision> {
    let wrong = |message: &str| Err(Problem::invalid("invalid", message));
    match decided {
        Decided {
            decision: Kind::Allow,
            reason: None,
            args: None,
            text: None,
        } => Ok(Decision::Allow),
        Decided {
            decision: Kind::Deny,
            reason,
            args: None,
            text: None,
        } => Ok(Decision::deny(
            reason.unwrap_or_else(|| "the user says no".to_owned()),
        )),
        Decided {
            decision: Kind::Edit,
            reason: None,
            args: Some(args @ Value::Object(_)),
            text: None,
        } => Ok(Decision::edit(args)),
        Decided {
            decision: Kind::Answer,
            reason: None,
            args: None,
            text: Some(text),
        } => Ok(Decision::answer(text)),
        Decided {
            decision: Kind::Allow,
            ..
        } => wrong("`allow` takes nothing beside it"),
        Decided {
            decision: Kind::Deny,
            ..
        } => wrong("`deny` takes a `reason`, and nothing else"),
        Decided {
            decision: Kind::Edit,
            ..
        } => wrong("`edit` takes `args`, an object, and nothing else"),
        Decided {
            decision: Kind::Answer,
            ..
        } => wrong("`answer` takes `text`, and nothing else"),
    }
}
