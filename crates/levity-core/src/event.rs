use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Ask, CallId, Decision, Delta, EffectId, Ending, FileChange, Finish, Intervention, Limit,
    MachineKind, MemoryError, Message, ModelError, RunId, Timestamp, ToolCall, ToolResult, Usage,
};

/// A notification about the progress of a run.
///
/// All events except transient ones follow from the journal, so a replay emits them again byte for
/// byte.
///
/// ```
/// use levity_core::{Event, EventKind, RunId, Timestamp};
///
/// let goal = EventKind::Goal { text: "tidy up".to_owned() };
/// let event = Event::new(RunId::new("r1"), 0, Timestamp::from_millis(5), goal);
/// let line = serde_json::to_string(&event)?;
/// assert_eq!(line, r#"{"run":"r1","seq":0,"at":5,"kind":{"goal":{"text":"tidy up"}}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// The run in which the event occurred: the one that was started, or a descendant.
    pub run: RunId,
    /// The number of the record that the event follows from.
    pub seq: u64,
    /// The time of the event.
    pub at: Timestamp,
    /// The content of the event.
    pub kind: EventKind,
}

impl Event {
    /// Creates an event from its parts.
    pub fn new(run: RunId, seq: u64, at: Timestamp, kind: EventKind) -> Self {
        Self { run, seq, at, kind }
    }
}

/// The kind and content of an event.
///
/// More kinds may follow, so a `match` needs a last arm. Code that only prints text needs one kind:
///
/// ```
/// use levity_core::{Delta, EffectId, EventKind};
///
/// fn shown(event: &EventKind) -> Option<&str> {
///     match event {
///         EventKind::Delta { delta: Delta::Text(text), .. } => Some(text),
///         _ => None,
///     }
/// }
///
/// let delta = Delta::Text("Good".to_owned());
/// let piece = EventKind::Delta { effect: EffectId::new(1), delta };
/// assert_eq!(shown(&piece), Some("Good"));
/// assert!(piece.is_transient() && shown(&EventKind::Paused).is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A run has begun.
    RunStarted {
        /// The kind of machine that drives it.
        machine: MachineKind,
    },
    /// The goal of the run.
    Goal {
        /// The text of the goal.
        text: String,
    },
    /// The agent loop entered a phase.
    Phase(Phase),
    /// A turn of the loop began.
    TurnStarted {
        /// The number of the turn, from 1.
        turn: u64,
        /// The maximum number of turns.
        of: u64,
    },
    /// The run has a plan.
    Plan {
        /// The steps of the plan.
        steps: Vec<String>,
    },
    /// The run added a note for the model.
    Note {
        /// The text of the note.
        text: String,
    },
    /// A model call began.
    ModelStarted {
        /// The number of the effect.
        effect: EffectId,
        /// The slot of the model.
        slot: Arc<str>,
    },
    /// A model has replied.
    ModelFinished {
        /// The number of the effect.
        effect: EffectId,
        /// The message of the model.
        message: Arc<Message>,
        /// The reason why the model stopped.
        finish: Finish,
        /// The tokens and money used.
        usage: Usage,
    },
    /// A model gave no reply.
    ModelFailed {
        /// The number of the effect.
        effect: EffectId,
        /// The reason for the failure.
        error: ModelError,
    },
    /// A tool call began.
    ToolStarted {
        /// The number of the effect.
        effect: EffectId,
        /// The call of the tool.
        call: ToolCall,
    },
    /// A tool returned a result or failed.
    ToolFinished {
        /// The number of the effect.
        effect: EffectId,
        /// The result of the call.
        result: ToolResult,
    },
    /// A tool call changed a file. Follows from the same record as the result of the call, and
    /// comes before it.
    FileChanged {
        /// The number of the effect.
        effect: EffectId,
        /// The id of the call.
        call: CallId,
        /// The file and the kind of change.
        change: FileChange,
    },
    /// A person is asked for a decision.
    Asked(Ask),
    /// A person made a decision.
    Decided {
        /// The effect of the question.
        effect: EffectId,
        /// The decision of the person.
        decision: Decision,
    },
    /// The run began to wait for a time.
    WaitStarted {
        /// The number of the effect.
        effect: EffectId,
        /// The time at which the wait ends.
        until: Timestamp,
    },
    /// The wait for a time ended.
    Woken {
        /// The number of the effect.
        effect: EffectId,
    },
    /// A child run began.
    ChildStarted {
        /// The number of the effect.
        effect: EffectId,
        /// The id of the child run.
        child: RunId,
        /// The name of the agent.
        agent: Arc<str>,
    },
    /// A child run ended.
    ChildFinished {
        /// The number of the effect.
        effect: EffectId,
        /// The ending of the child run.
        ending: Box<Ending>,
    },
    /// The conversation became too long for the model and was shortened.
    Compacted(CompactionReport),
    /// Messages were saved in a conversation.
    Saved {
        /// The number of the effect.
        effect: EffectId,
    },
    /// Messages could not be saved.
    SaveFailed {
        /// The number of the effect.
        effect: EffectId,
        /// The reason for the failure.
        error: MemoryError,
    },
    /// A limit prevented an effect.
    Refused {
        /// The number of the effect.
        effect: EffectId,
        /// The limit that was reached.
        limit: Limit,
    },
    /// The policy denied an effect.
    Denied {
        /// The number of the effect.
        effect: EffectId,
        /// The reason for the denial.
        reason: String,
    },
    /// A guard has intervened.
    Guarded {
        /// The effect whose outcome was checked; `None` for messages from people and the input of a
        /// child run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<EffectId>,
        /// The guard, the stage and the intervention.
        intervention: Intervention,
    },
    /// The process ended while an effect was in progress, so its outcome is unknown.
    OutcomeUnknown {
        /// The number of the effect.
        effect: EffectId,
    },
    /// The host sent a message to the run.
    #[serde(rename = "said")]
    MessageReceived {
        /// The message from the host.
        message: Arc<Message>,
    },
    /// The host paused the run.
    Paused,
    /// The host resumed the run.
    Resumed,
    /// A limit is almost reached: the run finishes with its current results.
    LimitNear(Limit),
    /// Less than the configured share of a limit remains.
    LimitLow(Limit),
    /// A limit was exceeded.
    LimitPassed(Limit),
    /// The run has ended.
    RunEnded(Box<Ending>),
    /// An event that is specific to this kind of machine.
    Custom {
        /// The name of the event.
        name: String,
        /// The data of the event.
        data: Value,
    },
    /// Transient: a piece of a reply.
    Delta {
        /// The effect of the model call.
        effect: EffectId,
        /// The piece of the reply.
        delta: Delta,
    },
    /// Transient: the progress of a tool.
    Progress {
        /// The number of the effect.
        effect: EffectId,
        /// The id of the call.
        call: CallId,
        /// A description of the progress.
        text: String,
    },
    /// Transient: this subscriber was too slow and missed events.
    Lagged {
        /// The number of missed events.
        missed: u64,
    },
}

impl EventKind {
    /// Returns the name of the kind as in its JSON, such as `model_started` or `run_ended`.
    ///
    /// ```
    /// # use levity_core::EventKind;
    /// assert_eq!(EventKind::Goal { text: "tidy up".into() }.name(), "goal");
    /// ```
    pub fn name(&self) -> &'static str {
        match self {
            Self::RunStarted { .. } => "run_started",
            Self::Goal { .. } => "goal",
            Self::Phase(_) => "phase",
            Self::TurnStarted { .. } => "turn_started",
            Self::Plan { .. } => "plan",
            Self::Note { .. } => "note",
            Self::ModelStarted { .. } => "model_started",
            Self::ModelFinished { .. } => "model_finished",
            Self::ModelFailed { .. } => "model_failed",
            Self::ToolStarted { .. } => "tool_started",
            Self::ToolFinished { .. } => "tool_finished",
            Self::Asked(_) => "asked",
            Self::Decided { .. } => "decided",
            Self::WaitStarted { .. } => "wait_started",
            Self::Woken { .. } => "woken",
            Self::ChildStarted { .. } => "child_started",
            Self::ChildFinished { .. } => "child_finished",
            Self::Compacted(_) => "compacted",
            Self::Saved { .. } => "saved",
            Self::SaveFailed { .. } => "save_failed",
            Self::Refused { .. } => "refused",
            Self::Denied { .. } => "denied",
            Self::Guarded { .. } => "guarded",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::MessageReceived { .. } => "said",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::LimitNear(_) => "limit_near",
            Self::LimitLow(_) => "limit_low",
            Self::LimitPassed(_) => "limit_passed",
            Self::RunEnded(_) => "run_ended",
            Self::Custom { .. } => "custom",
            Self::Delta { .. } => "delta",
            Self::Progress { .. } => "progress",
            Self::FileChanged { .. } => "file_changed",
            Self::Lagged { .. } => "lagged",
        }
    }

    /// Returns `true` if only current subscribers receive the event and a replay does not repeat
    /// it.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Delta { .. } | Self::Progress { .. } | Self::Lagged { .. }
        )
    }
}

/// The details of shortening a conversation. The removed messages are still in the run's history.
///
/// ```
/// # use levity_core::CompactionReport;
/// let json = r#"{"folded": 12, "before": 9000, "after": 2500, "summary": "They met."}"#;
/// let report: CompactionReport = serde_json::from_str(json)?;
/// assert_eq!((report.folded, report.shortened), (12, 0));
/// assert!(report.fell_back.is_none(), "a model wrote the summary");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CompactionReport {
    /// The number of messages that the summary replaces.
    pub folded: usize,
    /// The number of tool results that were shortened.
    pub shortened: usize,
    /// The estimated tokens of the request before shortening.
    pub before: u64,
    /// The estimated tokens of the request after shortening.
    pub after: u64,
    /// The summary that replaces the removed messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Arc<str>>,
    /// The reason why no model wrote the summary, if so. The summary is then a list of the
    /// messages, and a model is asked again later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<String>,
}

/// The phase of an agent's loop.
///
/// ```
/// # use levity_core::Phase;
/// assert_eq!((Phase::default(), &*Phase::Act.to_string()), (Phase::Goal, "act"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// The loop receives its goal.
    #[default]
    Goal,
    /// The loop makes a plan.
    Plan,
    /// The loop calls the model and the tools that the model requests.
    Act,
    /// The loop adds the results of the tools.
    Observe,
    /// The loop reviews what it has achieved.
    Reflect,
    /// The loop has ended.
    End,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Goal => "goal",
            Self::Plan => "plan",
            Self::Act => "act",
            Self::Observe => "observe",
            Self::Reflect => "reflect",
            Self::End => "end",
        })
    }
}
