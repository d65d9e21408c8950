//! All state that changes while the loop runs.
//!
//! The state is saved as one flat object, in which each part reads its own keys. A new part
//! therefore needs no new version, if its default is right for old states.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{
    Digest, EffectId, Ending, Finish, Intervention, Message, OutputSchema, RunId, Signal, Stats,
    Status, ToolCall, ToolResult, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::Budget;
use super::conversation::Conversation;
use super::known_tools::KnownTools;
use super::phase::Phase;
use super::signal::SignalLog;

/// The state of a run. It is saved flat: the journals of all versions begin with the state in
/// [`Phase::Goal`].
#[derive(Serialize)]
pub(super) struct State {
    #[serde(flatten)]
    pub(super) task: Task,
    pub(super) run: Option<RunId>,
    pub(super) phase: Phase,
    #[serde(flatten)]
    pub(super) conversation: Conversation,
    #[serde(flatten)]
    pub(super) tools: KnownTools,
    #[serde(flatten)]
    pub(super) budget: Budget,
    #[serde(flatten)]
    pub(super) corrections: Corrections,
    #[serde(flatten)]
    pub(super) tally: Tally,
    /// The id of the next effect.
    pub(super) next: EffectId,
}

/// The input of the run, and its plan.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) goal: Arc<Message>,
    pub(super) system: Option<Arc<str>>,
    pub(super) output: Option<Arc<OutputSchema>>,
    /// `true` if the answer is also parsed as a type of the host, which cannot be saved.
    pub(super) typed: bool,
    /// The interventions of guards on the goal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) guarded: Vec<Intervention>,
    /// The context beside the goal, for this run only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) beside: Option<Arc<str>>,
    pub(super) plan: Vec<String>,
    /// The number of bytes of an earlier result that are read at a time; the agent's current
    /// setting if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_piece: Option<usize>,
    /// `true` if the ending includes the messages of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) tells_said: bool,
    /// The [`RULES`](super::RULES) that the run began with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) rules: u32,
}

/// The corrections that the model was given.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Corrections {
    pub(super) wrong_answers: u32,
    pub(super) empty_replies: u32,
    /// The limit on the tokens of a reply, once raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_reply: Option<u64>,
    failures: BTreeMap<String, FailedCall>,
}

/// A failure of a call with certain arguments, and its count in a row.
#[derive(Serialize, Deserialize)]
struct FailedCall {
    how: Digest,
    times: u32,
}

/// The counts that the ending reports.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) usage: Usage,
    pub(super) stats: Stats,
    pub(super) finish: Option<Finish>,
    /// The signals that the model sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) noted: Option<Box<SignalLog>>,
}

impl State {
    /// Reads a saved state: each part reads its own keys.
    pub(super) fn read(state: &Value) -> Result<Self, serde_json::Error> {
        Ok(Self {
            task: Task::deserialize(state)?,
            run: Option::deserialize(&state["run"])?,
            phase: Phase::deserialize(&state["phase"])?,
            conversation: Conversation::deserialize(state)?,
            tools: KnownTools::deserialize(state)?,
            budget: Budget::deserialize(state)?,
            corrections: Corrections::deserialize(state)?,
            tally: Tally::deserialize(state)?,
            next: EffectId::deserialize(&state["next"])?,
        })
    }

    /// Returns the first inconsistency of a saved state, if there is one.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let saving = self.conversation.saving();
        let last = self.phase.last_effect().max(saving);
        let has_begun = !matches!(self.phase, Phase::Goal);
        match () {
            () if last.is_some_and(|id| id >= self.next) => {
                Some("an effect is in progress that was not requested")
            }
            () if self.run.is_none() && last.is_some() => {
                Some("effects are in progress before the run started")
            }
            () if self.run.is_some() && !has_begun => Some("the run has an id before it started"),
            () if self.phase.is_beyond(self.conversation.history.len()) => {
                Some("it summarises messages that do not exist")
            }
            () => self.conversation.contradiction(),
        }
    }
}

impl Corrections {
    /// Returns how many times this call has failed like this in a row, if more than once.
    pub(super) fn repeated_failure(&mut self, call: &ToolCall, result: &ToolResult) -> Option<u32> {
        if !result.is_error() && self.failures.is_empty() {
            return None;
        }
        let key = Digest::of(&call.name)
            .with_json(&call.args)
            .with_json(&call.raw)
            .to_string();
        if !result.is_error() {
            self.failures.remove(&key);
            return None;
        }
        let how = Digest::of(&result.text());
        let failed = self
            .failures
            .entry(key)
            .or_insert(FailedCall { how, times: 0 });
        let times = if failed.how == how {
            failed.times.saturating_add(1)
        } else {
            1
        };
        *failed = FailedCall { how, times };
        (times > 1).then_some(times)
    }
}

impl Tally {
    /// Counts tool calls, and those of them that failed.
    pub(super) fn count_calls(&mut self, calls: u64, failed: u64) {
        self.stats.tool_calls = self.stats.tool_calls.saturating_add(calls);
        self.stats.failed_calls = self.stats.failed_calls.saturating_add(failed);
    }

    /// Counts a call of a model, with its usage.
    pub(super) fn count_model_call(&mut self, usage: Option<Usage>) {
        self.stats.model_calls = self.stats.model_calls.saturating_add(1);
        self.usage += usage.unwrap_or_default();
    }

    pub(super) fn ending(&self, status: Status, text: String) -> Ending {
        let mut ending = Ending::new(status);
        ending.text = text;
        (ending.usage, ending.stats) = (self.usage, self.stats);
        ending.signals = self.signals().to_vec();
        ending
    }

    /// Returns the signals that the model sent.
    pub(super) fn signals(&self) -> &[Signal] {
        self.noted.as_ref().map_or(&[], |noted| &noted.signals)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
