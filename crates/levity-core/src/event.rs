use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Ask, CallId, Decision, Delta, EffectId, Ending, FileChange, Finish, Intervention, Limit,
    MachineKind, MemoryError, Message, ModelError, RunId, Timestamp, ToolCall, ToolResult, Usage,
};

/// Something to know about a run.
///
/// All but the fleeting ones follow from the journal, so a replay tells them again, the same to the
/// byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// The run it happened in: the one that was started, or a child of it.
    pub run: RunId,
    /// The number of the record it follows from.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
}

impl Event {
    /// An event.
    pub fn new(run: RunId, seq: u64, at: Timestamp, kind: EventKind) -> Self {
        Self { run, seq, at, kind }
    }
}

/// What there is to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A run began.
    RunStarted {
        /// What drives it.
        machine: MachineKind,
    },
    /// What the run is to do.
    Goal {
        /// In words.
        text: String,
    },
    /// The loop entered a phase.
    Phase(Phase),
    /// A turn began.
    TurnStarted {
        /// Its number, from 1.
        turn: u64,
        /// How many there may be.
        of: u64,
    },
    /// There is a plan.
    Plan {
        /// Its steps.
        steps: Vec<String>,
    },
    /// The model is told something on the side.
    Note {
        /// What.
        text: String,
    },
    /// A model is called.
    ModelStarted {
        /// The effect.
        effect: EffectId,
        /// Which of the agent's models.
        slot: Arc<str>,
    },
    /// A model replied.
    ModelFinished {
        /// The effect.
        effect: EffectId,
        /// What it said.
        message: Arc<Message>,
        /// Why it stopped.
        finish: Finish,
        /// What it used.
        usage: Usage,
    },
    /// A model gave no reply.
    ModelFailed {
        /// The effect.
        effect: EffectId,
        /// Why.
        error: ModelError,
    },
    /// A tool is called.
    ToolStarted {
        /// The effect.
        effect: EffectId,
        /// The call.
        call: ToolCall,
    },
    /// A tool answered, or failed.
    ToolFinished {
        /// The effect.
        effect: EffectId,
        /// What it answered.
        result: ToolResult,
    },
    /// A person is asked.
    Asked(Ask),
    /// The person decided.
    Decided {
        /// The question.
        effect: EffectId,
        /// The answer.
        decision: Decision,
    },
    /// The run lets time pass.
    WaitStarted {
        /// The effect.
        effect: EffectId,
        /// Until when.
        until: Timestamp,
    },
    /// The time has passed.
    Woken {
        /// The effect.
        effect: EffectId,
    },
    /// A child run began.
    ChildStarted {
        /// The effect.
        effect: EffectId,
        /// The child.
        child: RunId,
        /// The agent.
        agent: Arc<str>,
    },
    /// A child run ended.
    ChildFinished {
        /// The effect.
        effect: EffectId,
        /// How.
        ending: Box<Ending>,
    },
    /// The conversation became too long for the model, and was made shorter.
    Compacted(Compacted),
    /// What was said is saved in a conversation.
    Saved {
        /// The effect.
        effect: EffectId,
    },
    /// What was said could not be saved.
    SaveFailed {
        /// The effect.
        effect: EffectId,
        /// Why.
        error: MemoryError,
    },
    /// An effect was not performed, since a limit forbids it.
    Refused {
        /// Which.
        effect: EffectId,
        /// The limit.
        limit: Limit,
    },
    /// Policy forbids an effect.
    Denied {
        /// Which.
        effect: EffectId,
        /// Why.
        reason: String,
    },
    /// A guard stepped in.
    Guarded {
        /// The effect whose outcome it is about; what people say and the input of a child run are
        /// none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<EffectId>,
        /// Which, where, and how.
        intervention: Intervention,
    },
    /// The process ended while an effect was performed; nobody knows what came of it.
    OutcomeUnknown {
        /// Which.
        effect: EffectId,
    },
    /// The host spoke.
    Said {
        /// What.
        message: Arc<Message>,
    },
    /// The host paused the run.
    Paused,
    /// The host let the run go on.
    Resumed,
    /// A limit is near: the run finishes with what there is.
    LimitNear(Limit),
    /// Little is left of what a limit allows: less than the share that was set.
    LimitLow(Limit),
    /// A limit was passed.
    LimitPassed(Limit),
    /// The run ended.
    RunEnded(Box<Ending>),
    /// Something only this kind of machine has.
    Custom {
        /// Its name.
        name: String,
        /// More about it.
        data: Value,
    },
    /// Fleeting: a piece of a reply.
    Delta {
        /// The call of the model.
        effect: EffectId,
        /// The piece.
        delta: Delta,
    },
    /// Fleeting: how far a tool is.
    Progress {
        /// The effect.
        effect: EffectId,
        /// The call.
        call: CallId,
        /// In words.
        text: String,
    },
    /// Fleeting: a tool changed a file.
    FileChanged {
        /// The effect.
        effect: EffectId,
        /// The call.
        call: CallId,
        /// Which file, and how.
        change: FileChange,
    },
    /// Fleeting: this listener was too slow, and missed something.
    Lagged {
        /// How many events.
        missed: u64,
    },
}

impl EventKind {
    /// What it is called, as in its JSON: `model_started`, `run_ended`.
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
            Self::Said { .. } => "said",
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

    /// Whether it is only for those who watch now, and no replay tells it again.
    pub fn is_fleeting(&self) -> bool {
        matches!(
            self,
            Self::Delta { .. }
                | Self::Progress { .. }
                | Self::FileChanged { .. }
                | Self::Lagged { .. }
        )
    }
}

/// How a conversation was made shorter. What has left what the model is shown is still in the run's
/// history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Compacted {
    /// How many messages have left, and are in the summary now.
    pub folded: usize,
    /// How many results of tools were shortened.
    pub shortened: usize,
    /// About how many tokens were to be sent before.
    pub before: u64,
    /// About how many tokens are sent now.
    pub after: u64,
    /// What stands for the messages that have left from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Arc<str>>,
    /// Why no model made the summary, when none did: it is a list of what was said, and a model is
    /// asked again later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<String>,
}

/// Where an agent's loop stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// It takes in what it is to do.
    #[default]
    Goal,
    /// It makes a plan.
    Plan,
    /// It calls the model, and the tools the model asks for.
    Act,
    /// It takes in what the tools answered.
    Observe,
    /// It looks at what was reached.
    Reflect,
    /// It has ended.
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
