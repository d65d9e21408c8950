//! Generated inputs for machines, and damage to their saved states.
//!
//! The generator is a small random walk over valid and invalid inputs. It is seeded, so a failure
//! repeats with the same seed, and it looks at the effects that the machine requested, so most
//! outcomes fit one of them. Stops and cancels come only after input 20; earlier ones would hide
//! the later phases of a machine.

use std::sync::Arc;

use levity_core::{
    Decision, Effect, EffectId, Ending, Finish, Input, Limit, Message, ModelError, ModelErrorKind,
    Outcome, Part, Response, Role, RunId, Status, ToolCall, ToolError, ToolErrorKind, ToolOutput,
    ToolResult, Usage,
};
use serde_json::{Value, json};

use super::samples::{ODD_TEXT, media_result};
use crate::manual::splitmix;

/// Generates inputs for a machine; the same seed generates the same inputs.
pub(super) struct InputGenerator(u64);

impl InputGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns `true` once in `of` times.
    fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn below(&mut self, end: u64) -> u64 {
        splitmix(&mut self.0) % end.max(1)
    }

    /// Returns one of the values, or `None` if there are none.
    fn pick<T>(&mut self, from: impl IntoIterator<Item = T>) -> Option<T> {
        let mut all: Vec<T> = from.into_iter().collect();
        let index = usize::try_from(self.below(all.len() as u64)).ok()?;
        (index < all.len()).then(|| all.swap_remove(index))
    }

    /// Returns an index below `of`.
    pub(super) fn place(&mut self, of: usize) -> usize {
        usize::try_from(self.below(of as u64)).unwrap_or_default()
    }

    /// Changes a state in one or two places.
    pub(super) fn damage(&mut self, state: &mut Value) {
        for _ in 0..=self.below(2) {
            let mut found = Vec::new();
            places(state, &[], &mut found);
            let (from, to) = (self.pick(&found), self.pick(&found));
            let other = from.and_then(|from| self.odd(state, from));
            if let Some(to) = to {
                change(state, to, other);
            }
        }
    }

    /// Returns a value that does not belong where it is put, or `None` to remove the existing one.
    fn odd(&mut self, state: &Value, from: &[String]) -> Option<Value> {
        let numbers = [0, 1, 7, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        match self.below(9) {
            0 | 1 => None,
            2..5 => self.pick(numbers).map(Value::from),
            // A value from elsewhere in the state.
            5 => from
                .iter()
                .try_fold(state, |value, key| {
                    value
                        .get(key)
                        .or_else(|| value.get(key.parse::<usize>().ok()?))
                })
                .cloned(),
            6 => Some(json!(ODD_TEXT)),
            7 => Some(json!([])),
            _ => Some(self.value()),
        }
    }

    /// Returns the `n`th input of a run in which these effects were requested.
    pub(super) fn input(&mut self, n: usize, wanted: &[(EffectId, Effect)]) -> Input {
        let run = RunId::new("r1");
        match self.below(40) {
            // Most runs begin with their start.
            _ if n == 0 && !self.once_in(8) => {
                let wrap = if self.once_in(8) {
                    Some(self.limit())
                } else {
                    None
                };
                Input::Begin { run, wrap }
            }
            0 => Input::Begin { run, wrap: None },
            1 | 2 => Input::Say(Arc::new(self.message())),
            3 => Input::FinishSoon(self.limit()),
            4 if n > 20 => Input::Stop(self.limit()),
            5 if n > 20 => Input::Cancel {
                reason: ODD_TEXT.into(),
            },
            7 => Input::Low(self.limit()),
            6 => Input::Finished {
                effect: EffectId::new(self.below(1 << 40)),
                outcome: Outcome::Unknown,
            },
            _ => self.finished(wanted),
        }
    }

    /// Returns the end of an effect: mostly one of the last, sometimes one that finished before.
    fn finished(&mut self, wanted: &[(EffectId, Effect)]) -> Input {
        let from = if self.once_in(6) {
            0
        } else {
            wanted.len().saturating_sub(4)
        };
        match self.pick(&wanted[from..]) {
            None => Input::FinishSoon(self.limit()),
            Some((id, effect)) => Input::Finished {
                effect: *id,
                outcome: self.outcome(effect),
            },
        }
    }

    /// Returns an outcome for an effect; about one in three is of another kind than the effect.
    fn outcome(&mut self, effect: &Effect) -> Outcome {
        match (self.below(20), effect) {
            (0, _) => Outcome::Unknown,
            (1, _) => Outcome::Refused(self.limit()),
            (2, _) => Outcome::Decision(Decision::Allow),
            (3, _) => Outcome::Child(Box::new(self.ending())),
            (4, _) => Outcome::Model(self.reply()),
            (5, _) => Outcome::Tool(self.result(&ToolCall::new("nobody", "nothing", json!({})))),
            (6 | 7, Effect::Tool(_)) => Outcome::NeedsApproval {
                reason: ODD_TEXT.into(),
            },
            (_, Effect::Tool(run)) => Outcome::Tool(self.result(&run.call)),
            (_, Effect::Ask(_)) => Outcome::Decision(self.decision()),
            (_, Effect::Child(_)) => Outcome::Child(Box::new(self.ending())),
            _ => Outcome::Model(self.reply()),
        }
    }

    fn reply(&mut self) -> Result<Response, ModelError> {
        if self.once_in(6) {
            return Err(self.model_error());
        }
        let parts: Vec<Part> = (0..self.below(4)).map(|_| self.part()).collect();
        let finishes = [
            Finish::Stop,
            Finish::ToolCalls,
            Finish::Length,
            Finish::ContentFilter,
        ];
        let finish = self.pick(finishes).unwrap_or_default();
        let usage = Usage::new(self.below(100), if self.once_in(9) { u64::MAX } else { 3 });
        Ok(Response::new(Message::new(Role::Assistant, parts))
            .with_finish(finish)
            .with_usage(usage))
    }

    fn part(&mut self) -> Part {
        match self.below(6) {
            0 => Part::text(ODD_TEXT),
            1 => Part::thinking("hm"),
            2 => Part::text(""),
            3 => Part::ToolCall(ToolCall::from_text("", "add", "{broken")),
            // There are few ids, so that some occur twice.
            n => Part::ToolCall(ToolCall::new(
                format!("c{}", self.below(3)),
                "add",
                json!({"a": n}),
            )),
        }
    }

    fn result(&mut self, call: &ToolCall) -> ToolResult {
        let kinds = [
            ToolErrorKind::Failed,
            ToolErrorKind::NotFound,
            ToolErrorKind::Denied,
            ToolErrorKind::Cancelled,
        ];
        match self.below(5) {
            0 => media_result(call),
            1 => ToolResult::new(call, Ok(ToolOutput::value(self.value()))),
            2 => {
                let kind = self.pick(kinds).unwrap_or(ToolErrorKind::Unknown);
                ToolResult::new(call, Err(ToolError::new(kind, "it did not work")))
            }
            _ => ToolResult::new(call, Ok(ToolOutput::text("7"))),
        }
    }

    fn model_error(&mut self) -> ModelError {
        let kinds = [
            ModelErrorKind::Overloaded,
            ModelErrorKind::Auth,
            ModelErrorKind::ContextTooLong,
            ModelErrorKind::ContentFiltered,
            ModelErrorKind::Malformed,
        ];
        ModelError::new(
            self.pick(kinds).unwrap_or(ModelErrorKind::Server),
            "made up",
        )
    }

    fn message(&mut self) -> Message {
        match self.below(4) {
            // Neither is valid on its own.
            0 => Message::new(Role::Tool, []),
            1 => Message::new(Role::Assistant, [self.part()]),
            _ => Message::user("One more thing."),
        }
    }

    fn ending(&mut self) -> Ending {
        let statuses = [
            Status::Complete,
            Status::Partial(Limit::Depth),
            Status::BestEffort(Limit::Turns),
        ];
        let mut ending = Ending::new(self.pick(statuses).unwrap_or(Status::Complete));
        ending.text = "done".into();
        ending.value = self.once_in(2).then(|| self.value());
        ending
    }

    fn decision(&mut self) -> Decision {
        let decisions = [
            Decision::Allow,
            Decision::deny("no"),
            Decision::edit(self.value()),
            Decision::answer("yes"),
        ];
        self.pick(decisions).unwrap_or(Decision::Allow)
    }

    fn limit(&mut self) -> Limit {
        self.pick([
            Limit::Turns,
            Limit::ModelCalls,
            Limit::Tokens,
            Limit::Money,
            Limit::WallTime,
        ])
        .unwrap_or(Limit::Depth)
    }

    fn value(&mut self) -> Value {
        let values = [
            json!(null),
            json!({"sum": 7}),
            json!([1, [2, [3]]]),
            json!("{\"a\": 1}"),
            json!(1.5),
        ];
        self.pick(values).unwrap_or_default()
    }
}

/// Collects the places of all values in a value, as JSON pointers without escapes.
fn places(value: &Value, above: &[String], found: &mut Vec<Vec<String>>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(at, item)| (at.to_string(), item))
            .collect(),
        Value::Object(map) => map.iter().map(|(key, item)| (key.clone(), item)).collect(),
        _ => return,
    };
    for (key, item) in below {
        let place = [above, &[key]].concat();
        found.push(place.clone());
        places(item, &place, found);
    }
}

/// Replaces the value in a place, or removes it.
fn change(value: &mut Value, place: &[String], other: Option<Value>) {
    let Some((key, rest)) = place.split_first() else {
        return;
    };
    let at = key.parse().unwrap_or(usize::MAX);
    match (value, other) {
        (Value::Object(map), None) if rest.is_empty() => drop(map.shift_remove(key)),
        (Value::Array(items), None) if rest.is_empty() => drop(items.remove(at)),
        (Value::Array(items), other) => {
            items
                .get_mut(at)
                .into_iter()
                .for_each(|item| put(item, rest, other.clone()));
        }
        (value, other) => value
            .get_mut(key)
            .into_iter()
            .for_each(|item| put(item, rest, other.clone())),
    }
}

fn put(item: &mut Value, rest: &[String], other: Option<Value>) {
    match (rest, other) {
        ([], Some(other)) => *item = other,
        (rest, other) => change(item, rest, other),
    }
}
