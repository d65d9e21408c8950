//! Scripts from JSON: the format that `ScriptedModel::from_json` documents.
//!
//! A step is read in two passes. The fields are parsed first, with unknown ones rejected, and then
//! checked for exactly one kind of content. Errors carry the number of the step and never a value
//! of it: a script file may hold a key in the wrong place.

use levity_core::text::json_problem;
use levity_core::{Finish, ModelError, ModelErrorKind, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::{Step, Turn};

/// The error for a text that is not a script.
///
/// ```
/// use levity_test::{ScriptError, ScriptedModel};
///
/// let error = ScriptedModel::from_json(r#"[{"reply": "7"}, {"reply": "8", "hang": true}]"#);
/// assert!(matches!(error, Err(ScriptError::Unclear { at: 2 })));
///
/// let error = ScriptedModel::from_json("{}").unwrap_err();
/// assert_eq!(error.to_string(), "the script is not a JSON list of steps");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The text is not a JSON list.
    #[error("the script is not a JSON list of steps")]
    NotAList(#[source] serde_json::Error),
    /// A step has fields that are unknown, missing or of the wrong type.
    #[error("step {at} of the script cannot be read")]
    Step {
        /// The number of the step, from 1.
        at: usize,
        /// The error of the JSON parser.
        #[source]
        source: serde_json::Error,
    },
    /// A step has no content, or conflicting content.
    #[error(
        "step {at} of the script needs one of `reply`, `call`, `calls`, `text`, `fail` and `hang`"
    )]
    Unclear {
        /// The number of the step, from 1.
        at: usize,
    },
}

/// A step as written, with every field optional; `is_clear` decides which combinations are valid.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    reply: Option<String>,
    call: Option<Call>,
    calls: Option<Vec<Call>>,
    text: Option<String>,
    thinking: Option<String>,
    fail: Option<Value>,
    hang: Option<bool>,
    usage: Option<Usage>,
    finish: Option<Finish>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    id: Option<String>,
    name: String,
    #[serde(default = "no_args")]
    args: Value,
}

fn no_args() -> Value {
    Value::Object(serde_json::Map::new())
}

pub(super) fn steps(json: &str) -> Result<Vec<Step>, ScriptError> {
    let steps: Vec<Value> =
        serde_json::from_str(json).map_err(|error| ScriptError::NotAList(without_value(&error)))?;
    (1..).zip(steps).map(|(at, step)| read(at, step)).collect()
}

/// Converts the step with this number, from 1. `"hang": false` counts as absent.
fn read(at: usize, step: Value) -> Result<Step, ScriptError> {
    let unreadable = |error| ScriptError::Step {
        at,
        source: without_value(&error),
    };
    let mut written: Written = serde_json::from_value(step).map_err(unreadable)?;
    if !written.is_clear() {
        return Err(ScriptError::Unclear { at });
    }
    if written.hang == Some(true) {
        return Ok(Step::Hang);
    }
    Ok(match written.fail.take() {
        Some(fail) => Step::Fail(ModelError::new(
            kind(fail).map_err(unreadable)?,
            "the script says so",
        )),
        None => Step::Turn(Box::new(written.into_turn())),
    })
}

/// Returns the error without the found value, which may be a key in the wrong place.
fn without_value(error: &serde_json::Error) -> serde_json::Error {
    serde::de::Error::custom(json_problem(error))
}

/// Parses a kind in snake case; the one with a field may omit it.
fn kind(written: Value) -> Result<ModelErrorKind, serde_json::Error> {
    if written == "rate_limited" {
        return Ok(ModelErrorKind::RateLimited { retry_after: None });
    }
    serde_json::from_value(written)
}

impl Written {
    /// Returns `true` if the step has exactly one kind of content and no field that does not belong
    /// to it.
    fn is_clear(&self) -> bool {
        let calls = self.call.is_some() || self.calls.is_some();
        let answers = self.reply.is_some() || self.text.is_some() || calls;
        let adds = self.thinking.is_some() || self.usage.is_some() || self.finish.is_some();
        let ways = [
            self.reply.is_some() || (self.text.is_some() && !calls),
            self.call.is_some(),
            self.calls.is_some(),
            self.fail.is_some(),
            self.hang == Some(true),
        ];
        let twice = self.reply.is_some() && self.text.is_some();
        ways.into_iter().filter(|kind| *kind).count() == 1 && !twice && (answers || !adds)
    }

    fn into_turn(self) -> Turn {
        let mut turn = self.thinking.into_iter().fold(Turn::new(), Turn::thinking);
        turn = self.text.or(self.reply).into_iter().fold(turn, Turn::text);
        let calls = self
            .call
            .into_iter()
            .chain(self.calls.into_iter().flatten());
        turn = calls.fold(turn, |turn, call| match call.id {
            Some(id) => turn.call_with_id(id, call.name, call.args),
            None => turn.call(call.name, call.args),
        });
        turn.usage = self.usage;
        turn.finish = self.finish;
        turn
    }
}

impl From<ScriptError> for levity_core::Error {
    fn from(error: ScriptError) -> Self {
        Self::config(error)
    }
}
