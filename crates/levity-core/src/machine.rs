use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ConversationId, Effect, EffectId, EventKind, Finish, Intervention, Limit, MemoryError, Message,
    ModelError, Outcome, RunId, Save, Timestamp, ToolError, Usage,
};

/// Decides what a run does next, without performing I/O.
///
/// A machine receives inputs and requests effects, which a runtime performs. An agent, a swarm and
/// a graph are machines.
///
/// # Contract
/// - The same inputs in the same order give the same effects, events and ending. It uses no clock
///   but [`MachineOutput::at`], no randomness, no environment and no hash order.
/// - `apply` neither blocks nor panics on any input in any order; it ignores invalid inputs.
/// - Every effect gets its own number, counting upwards, and at most one [`Input::Finished`].
/// - After an ending it requests nothing more, and after [`Input::Cancel`] or [`Input::Stop`] it
///   ends immediately.
/// - The value of `save`, at any time between two inputs, is enough to rebuild the machine in the
///   same state. The inputs that follow then give the same effects, events, ending and saved state.
///
/// Use `levity_test::conformance::machine` and `machine_restored` to check an implementation.
///
/// ```
/// use levity_core::{Ending, Input, Machine, MachineKind, MachineOutput, Status};
/// use serde_json::{Value, json};
///
/// /// Ends as soon as it begins.
/// #[derive(Default)]
/// struct Brief(Option<Ending>);
///
/// impl Machine for Brief {
///     fn kind(&self) -> MachineKind {
///         MachineKind::new("brief", 1)
///     }
///
///     fn save(&self) -> Value {
///         json!({ "ended": self.0.is_some() })
///     }
///
///     fn apply(&mut self, input: Input, _: &mut MachineOutput) {
///         let status = match input {
///             Input::Cancel { reason } => Status::Cancelled { reason },
///             _ => Status::Complete,
///         };
///         self.0.get_or_insert(Ending::new(status));
///     }
///
///     fn ending(&self) -> Option<&Ending> {
///         self.0.as_ref()
///     }
/// }
///
/// let mut machine = Brief::default();
/// machine.apply(Input::Begin { run: "r1".into(), wrap: None }, &mut MachineOutput::new());
/// assert_eq!(machine.ending().map(|ending| &ending.status), Some(&Status::Complete));
/// ```
pub trait Machine: Send {
    /// Returns the kind of machine and the version of its state.
    fn kind(&self) -> MachineKind;

    /// Returns its state as data, complete at any time between two inputs.
    fn save(&self) -> Value;

    /// Applies an input and writes effects and events to `step`.
    fn apply(&mut self, input: Input, step: &mut MachineOutput);

    /// Returns the ending, once the machine has ended.
    fn ending(&self) -> Option<&Ending>;

    /// Returns the partial result as an ending, for a run that cannot be driven to its end.
    fn partial_ending(&self, status: Status) -> Ending {
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

    fn partial_ending(&self, status: Status) -> Ending {
        (**self).partial_ending(status)
    }
}

/// The kind of a machine and the version of its state.
///
/// A journal stores it. A run resumes only if the program still builds a machine of this name and
/// accepts this version.
///
/// ```
/// # use levity_core::MachineKind;
/// assert_eq!(MachineKind::new("agent", 2).to_string(), "agent/2");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MachineKind {
    /// The name of the kind, such as `agent`.
    pub name: Arc<str>,
    /// The version of the saved state.
    pub version: u32,
}

impl MachineKind {
    /// Creates a kind of machine.
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

/// An input to a machine.
///
/// ```
/// # use levity_core::{EffectId, Input, Outcome};
/// let woken = Input::Finished { effect: EffectId::new(0), outcome: Outcome::Woken };
/// assert!(matches!(woken, Input::Finished { outcome: Outcome::Woken, .. }));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every input is an outcome, and boxing would allocate for each"
)]
#[non_exhaustive]
pub enum Input {
    /// The run begins now.
    Begin {
        /// The id of the run.
        run: RunId,
        /// A limit that is almost reached from the start: finish with the current results.
        wrap: Option<Limit>,
    },
    /// An effect was performed.
    Finished {
        /// The number of the effect.
        effect: EffectId,
        /// The outcome of the effect.
        outcome: Outcome,
    },
    /// The host sends a message.
    Say(Arc<Message>),
    /// A limit is almost reached: finish with the current results.
    FinishSoon(Limit),
    /// Little of a limit remains. It is sent once, before `Begin` if it holds from the start.
    Low(Limit),
    /// A limit was exceeded: end now.
    Stop(Limit),
    /// The host cancels the run: end now.
    Cancel {
        /// The reason for the cancellation.
        reason: String,
    },
}

/// The effects that a machine requests and the events that it emits.
///
/// ```
/// use std::time::Duration;
///
/// use levity_core::{Effect, EffectId, EventKind, MachineOutput, Wait};
///
/// let mut step = MachineOutput::new();
/// step.request(EffectId::new(0), Effect::Wait(Wait::new(Duration::from_secs(5))));
/// step.set_quiet(true);
/// step.emit(EventKind::Note { text: "nobody listens".to_owned() });
/// assert_eq!((step.effects.len(), step.events.len()), (1, 0));
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct MachineOutput {
    /// The effects to perform, in the order of their numbers.
    pub effects: Vec<(EffectId, Effect)>,
    /// The events to emit.
    pub events: Vec<EventKind>,
    quiet: bool,
    at: Timestamp,
}

impl MachineOutput {
    /// Creates an empty output.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether events are dropped because there are no observers.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Returns `true` if there are observers; if not, you do not need to create events.
    pub fn is_watched(&self) -> bool {
        !self.quiet
    }

    /// Returns the time at which the current input was written to the journal. It is the only clock
    /// that a machine may use, because it is the same whenever the run is resumed or replayed. It
    /// is zero unless the driver of the machine sets it.
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

    /// Sets the time of the next record to apply.
    pub fn set_at(&mut self, at: Timestamp) {
        self.at = at;
    }

    /// Requests an effect with this number.
    pub fn request(&mut self, id: EffectId, effect: Effect) {
        self.effects.push((id, effect));
    }

    /// Emits an event to the observers.
    pub fn emit(&mut self, event: EventKind) {
        if !self.quiet {
            self.events.push(event);
        }
    }
}

/// The ending of a run, with all its results.
///
/// ```
/// # use levity_core::{Ending, Status};
/// let mut ending = Ending::new(Status::Complete);
/// ending.text = "High water is at six.".to_owned();
/// assert!(ending.status.is_answer() && ending.value.is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// The final status of the run.
    pub status: Status,
    /// The answer or, if the run was stopped, the last text of the model.
    pub text: String,
    /// The structured output, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The reason why the model stopped its last reply: an answer may be cut short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    /// The tokens and money used, including descendants. The machine adds it up from outcomes.
    pub usage: Usage,
    /// The counts of turns and calls, which the machine counts. A team or a swarm includes those
    /// of its child runs; an agent counts only its own.
    pub stats: Stats,
    /// The signals of the model in order, sent by calls of signal tools; also if the run ended
    /// without an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Signal>,
    /// The messages of the run, if requested: the goal first, then all others, including tool calls
    /// and their results. Notes for the model are omitted. You can add them to a history with
    /// [`History::append`](crate::History::append).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "said")]
    pub messages: Vec<Arc<Message>>,
    /// The interventions of the parent run's guards in the result of this run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Intervention>,
    /// The remaining work for the conversation that the run is part of. It is not journaled.
    #[serde(skip)]
    #[serde(rename = "talk")]
    pub conversation_end: Option<Box<ConversationEnd>>,
}

/// The work that a run leaves for the conversation that it is part of.
///
/// ```
/// # use levity_core::ConversationEnd;
/// let end = ConversationEnd::new("c1".into(), "the tides of Brest");
/// assert!(end.unsaved.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConversationEnd {
    /// The id of the conversation.
    pub id: ConversationId,
    /// Messages that may not be saved yet, in order: a run that ends abruptly has no time to save.
    pub unsaved: Vec<Save>,
    /// A short description of the conversation's topic.
    pub about: String,
}

impl ConversationEnd {
    /// Creates an end without unsaved messages.
    pub fn new(id: ConversationId, about: impl Into<String>) -> Self {
        Self {
            id,
            unsaved: Vec::new(),
            about: about.into(),
        }
    }
}

impl Ending {
    /// Creates an ending without results.
    pub fn new(status: Status) -> Self {
        Self {
            status,
            text: String::new(),
            value: None,
            finish: None,
            usage: Usage::default(),
            stats: Stats::default(),
            signals: Vec::new(),
            messages: Vec::new(),
            guarded: Vec::new(),
            conversation_end: None,
        }
    }
}

/// A message from the model to the host, sent by calling a tool that the loop itself handles.
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
    /// The name of the tool.
    pub name: Arc<str>,
    /// The arguments of the call, which match the schema of the tool.
    pub args: Value,
}

impl Signal {
    /// Creates a signal from its parts.
    pub fn new(name: impl Into<Arc<str>>, args: Value) -> Self {
        Self {
            name: name.into(),
            args,
        }
    }
}

/// The final status of a run.
///
/// ```
/// # use levity_core::{Limit, Status};
/// assert!(Status::BestEffort(Limit::Money).is_answer());
/// let cancelled = Status::Cancelled { reason: "no longer needed".to_owned() };
/// assert_eq!(cancelled.to_string(), "cancelled: no longer needed");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// The run ended with its answer.
    Complete,
    /// A limit was almost reached, and the answer was made from the current results.
    BestEffort(Limit),
    /// A limit was exceeded before there was an answer.
    Partial(Limit),
    /// The host cancelled the run.
    Cancelled {
        /// The reason for the cancellation.
        reason: String,
    },
    /// The run could not continue.
    Failed(Failure),
}

impl Status {
    /// Returns `true` if there is an answer.
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

/// The reason why a run could not continue.
///
/// ```
/// # use levity_core::{Failure, Status};
/// let failure = Failure::GoalNotReached("step `publish` failed".to_owned());
/// let text = Status::Failed(failure).to_string();
/// assert_eq!(text, "failed: the goal was not reached: step `publish` failed");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Failure {
    /// The model could not be called.
    #[error("{}", .0.report())]
    Model(#[source] ModelError),
    /// The reply of the model could not be used.
    #[error("the model's reply is unusable: {0}")]
    Behaviour(String),
    /// The model did not return an answer that matches the output schema.
    #[error("the answer does not match the output schema: {0}")]
    Output(String),
    /// A program failed; its caller receives that as a failed tool call.
    #[error("the program failed: {}", crate::text::chain(.0))]
    Program(#[source] ToolError),
    /// The messages could not be saved in their conversation. The answer, if any, is still
    /// available.
    #[error("the conversation could not be saved: {}", crate::text::chain(.0))]
    Memory(#[source] MemoryError),
    /// Some of the required steps are not done.
    #[error("the goal was not reached: {0}")]
    #[serde(rename = "unreached")]
    GoalNotReached(String),
    /// A guard blocked a message from a person or from the model.
    #[error("{0}")]
    Blocked(Intervention),
    /// The parts of the run are inconsistent.
    #[error("internal error in the run: {0}")]
    Internal(String),
}

/// The counts of what a run did.
///
/// ```
/// # use levity_core::Stats;
/// let mut all = Stats::default();
/// for _ in 0..2 {
///     let mut one = Stats::default();
///     (one.turns, one.tool_calls) = (1, 3);
///     all += one;
/// }
/// assert_eq!((all.turns, all.tool_calls), (2, 6));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Stats {
    /// The number of turns.
    pub turns: u64,
    /// The number of model calls.
    pub model_calls: u64,
    /// The number of tool calls.
    pub tool_calls: u64,
    /// The number of failed tool calls.
    pub failed_calls: u64,
    /// The number of replies in which the model showed its reasoning.
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
