use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ConversationId, Effect, EffectId, EventKind, Finish, Intervention, Limit, MemoryError, Message,
    ModelError, Outcome, RunId, Save, Timestamp, ToolError, Usage,
};

/// Decides what a run does next, and does nothing itself.
///
/// A machine is fed what happened and names the effects it wants; a runtime performs them. An
/// agent, a swarm and a graph are machines.
///
/// # Contract
/// - The same inputs in the same order give the same effects, events and ending: no clock but
///   [`MachineOutput::at`], no randomness, no environment, no order that a hash decides.
/// - `apply` neither blocks nor panics, whatever it is fed, in whatever order; what makes no sense
///   is left aside.
/// - Every effect gets a number of its own, counted upwards, and one [`Input::Finished`] at most.
/// - After an ending it wants nothing more, and after [`Input::Cancel`] or [`Input::Stop`] it ends
///   at once.
/// - What `save` returns at any time, between two inputs, is enough to build the machine again, in
///   the state that it had: the inputs that follow give the same effects, events and ending, and
///   the same saved state.
///
/// `levity_test::conformance::machine` and `machine_restored` check an implementation.
pub trait Machine: Send {
    /// What it is, and which version of its state it writes.
    fn kind(&self) -> MachineKind;

    /// Its state as data, complete at any time between two inputs.
    fn save(&self) -> Value;

    /// Takes in what happened.
    fn apply(&mut self, input: Input, step: &mut MachineOutput);

    /// How it ended, once it did.
    fn ending(&self) -> Option<&Ending>;

    /// Returns the result so far as an ending, for a run that cannot be driven to its end.
    fn so_far(&self, status: Status) -> Ending {
        Ending::new(status)
    }
}

impl<M: Machine + ?Sized> Machine for Box<M> {
    fn kind(&self) -> MachineKind {
        (**self).kind()
    }

    fn save(&self) -> Value {
        (**self).save()
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        (**self).apply(input, step);
    }

    fn ending(&self) -> Option<&Ending> {
        (**self).ending()
    }

    fn so_far(&self, status: Status) -> Ending {
        (**self).so_far(status)
    }
}

/// What a machine is, and the version of its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MachineKind {
    /// Its name, such as `agent`.
    pub name: Arc<str>,
    /// The version of the state it saves.
    pub version: u32,
}

impl MachineKind {
    /// A kind of machine.
    pub fn new(name: impl Into<Arc<str>>, version: u32) -> Self {
        Self {
            name: name.into(),
            version,
        }
    }
}

impl fmt::Display for MachineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.version)
    }
}

/// What a machine is fed.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every input is an outcome, and a box would be made for each"
)]
#[non_exhaustive]
pub enum Input {
    /// The run begins.
    Begin {
        /// The run.
        run: RunId,
        /// A limit that is near from the start: finish with what there is.
        wrap: Option<Limit>,
    },
    /// An effect was performed.
    Finished {
        /// Which.
        effect: EffectId,
        /// What came of it.
        outcome: Outcome,
    },
    /// The host speaks.
    Say(Arc<Message>),
    /// A limit is near: finish with what there is.
    Wrap(Limit),
    /// Little is left of what a limit allows; comes once, before the beginning if it is so from the
    /// start.
    Low(Limit),
    /// A limit is passed: end now.
    Stop(Limit),
    /// The host wants no more: end now.
    Cancel {
        /// Why.
        reason: String,
    },
}

/// What a machine wants done, and what it tells those who watch.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct MachineOutput {
    /// Effects to perform, in the order of their numbers.
    pub effects: Vec<(EffectId, Effect)>,
    /// What to tell.
    pub events: Vec<EventKind>,
    quiet: bool,
    at: Timestamp,
}

impl MachineOutput {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps what is told only while somebody is there to listen.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Whether somebody is there to listen; if not, there is no need to make events at all.
    pub fn is_watched(&self) -> bool {
        !self.quiet
    }

    /// When what is taken in was written to the journal: the only clock that a machine may go by,
    /// since it is the same whenever the run is resumed or replayed. Zero unless whoever drives the
    /// machine has set it.
    ///
    /// ```
    /// # use levity_core::{MachineOutput, Timestamp};
    /// let mut step = MachineOutput::new();
    /// assert_eq!(step.at(), Timestamp::default());
    /// step.set_at(Timestamp::from_millis(1_000));
    /// assert_eq!(step.at(), Timestamp::from_millis(1_000));
    /// ```
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Sets the time of the record that is taken in next.
    pub fn set_at(&mut self, at: Timestamp) {
        self.at = at;
    }

    /// Wants an effect.
    pub fn want(&mut self, id: EffectId, effect: Effect) {
        self.effects.push((id, effect));
    }

    /// Tells something.
    pub fn tell(&mut self, event: EventKind) {
        if !self.quiet {
            self.events.push(event);
        }
    }
}

/// How a run ended, with all it has to show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// How.
    pub status: Status,
    /// The answer; when the run was stopped, the last words there are.
    pub text: String,
    /// The answer as a value, when one was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Why the model stopped at its last words: an answer may be cut short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    /// What it used, children included. The machine adds it up from the outcomes that it gets.
    pub usage: Usage,
    /// What it did, children included. The machine counts it, too.
    pub stats: Stats,
    /// What the model told whoever runs it, by tools that are signals, in that order; also when the
    /// run ended without an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Signal>,
    /// What was said in the run, when that was asked for: its goal first, and calls of tools with
    /// their results. What the model was told on the side is left out. It can be added to a history
    /// with [`History::append`](crate::History::append).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Arc<Message>>,
    /// The guards of the run above that stepped in on what this one returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Intervention>,
    /// The work that is left for the conversation that the run is part of. No journal has it.
    #[serde(skip)]
    pub talk: Option<Box<TalkEnd>>,
}

/// The work that a run leaves for the conversation that it is part of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TalkEnd {
    /// The conversation.
    pub id: ConversationId,
    /// Messages that may not be saved yet, in their order: a run that is ended at once has no time
    /// to save.
    pub unsaved: Vec<Save>,
    /// A few words that say what the conversation is about.
    pub about: String,
}

impl TalkEnd {
    /// A conversation with nothing left to save.
    pub fn new(id: ConversationId, about: impl Into<String>) -> Self {
        Self {
            id,
            unsaved: Vec::new(),
            about: about.into(),
        }
    }
}

impl Ending {
    /// An ending with nothing to show.
    pub fn new(status: Status) -> Self {
        Self {
            status,
            text: String::new(),
            value: None,
            finish: None,
            usage: Usage::default(),
            stats: Stats::default(),
            signals: Vec::new(),
            said: Vec::new(),
            guarded: Vec::new(),
            talk: None,
        }
    }
}

/// Something a model told whoever runs it, by a tool that is taken in by the loop itself.
///
/// ```
/// # use levity_core::Signal;
/// # use serde_json::json;
/// let signal = Signal::new("transfer_to", json!({"agent": "billing"}));
/// assert_eq!(signal.args["agent"], "billing");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Signal {
    /// The tool.
    pub name: Arc<str>,
    /// What it was called with, as its schema wants it.
    pub args: Value,
}

impl Signal {
    /// A signal.
    pub fn new(name: impl Into<Arc<str>>, args: Value) -> Self {
        Self {
            name: name.into(),
            args,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// The answer is there.
    Complete,
    /// A limit was near, and the answer was made from what there was.
    BestEffort(Limit),
    /// A limit was passed before there was an answer.
    Partial(Limit),
    /// The host wanted no more.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// It could not go on.
    Failed(Failure),
}

impl Status {
    /// Whether there is an answer.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Complete | Self::BestEffort(_))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::BestEffort(limit) => write!(f, "best effort: the limit on {limit} was near"),
            Self::Partial(limit) => write!(f, "stopped: the limit on {limit} was reached"),
            Self::Cancelled { reason } => write!(f, "cancelled: {reason}"),
            Self::Failed(failure) => write!(f, "failed: {failure}"),
        }
    }
}

/// Why a run could not go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Failure {
    /// The model could not be called.
    #[error("{}", .0.report())]
    Model(#[source] ModelError),
    /// The model answered, and nothing could be done with it.
    #[error("the model's reply is of no use: {0}")]
    Behaviour(String),
    /// The model was asked for an answer of a certain shape and did not give one.
    #[error("the answer does not have the wanted shape: {0}")]
    Output(String),
    /// A program failed; its caller is told of it as of a tool that failed.
    #[error("the program failed: {}", crate::text::chain(.0))]
    Program(#[source] ToolError),
    /// What was said could not be saved in its conversation. The answer, if there is one, is there.
    #[error("the conversation could not be saved: {}", crate::text::chain(.0))]
    Memory(#[source] MemoryError),
    /// Some of the steps that were to be done are not.
    #[error("the goal was not reached: {0}")]
    Unreached(String),
    /// A guard blocked what was said, by a person or by the model.
    #[error("{0}")]
    Blocked(Intervention),
    /// The parts do not fit together.
    #[error("the run cannot go on: {0}")]
    Internal(String),
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Stats {
    /// Turns of the loop.
    pub turns: u64,
    /// Calls of a model.
    pub model_calls: u64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Calls of tools that failed.
    pub failed_calls: u64,
    /// Replies in which the model showed its reasoning.
    pub reasoning_steps: u64,
}

impl AddAssign for Stats {
    fn add_assign(&mut self, more: Self) {
        self.turns = self.turns.saturating_add(more.turns);
        self.model_calls = self.model_calls.saturating_add(more.model_calls);
        self.tool_calls = self.tool_calls.saturating_add(more.tool_calls);
        self.failed_calls = self.failed_calls.saturating_add(more.failed_calls);
        self.reasoning_steps = self.reasoning_steps.saturating_add(more.reasoning_steps);
    }
}
