use std::sync::Arc;

use levity_core::{EffectId, EventKind, Stats, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::diff::Diff;
use crate::plan::Plan;
use crate::step::StepId;

/// What a run of a plan tells those who watch, beside what every run tells.
///
/// Notices stand in the event stream as [`EventKind::Custom`] of the name [`NAME`](Self::NAME);
/// [`PlanNotice::of`] takes them out. They follow from the journal, so a replay tells them again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanNotice {
    /// Somebody looks at the files that were given; the effect is the run that does.
    Profiling {
        /// The effect.
        effect: EffectId,
    },
    /// The planner is asked for a plan, or for a change of it.
    Planning {
        /// The effect.
        effect: EffectId,
        /// How many times it was asked for this before, and gave nothing that could be used.
        again: u32,
        /// Which replan it is, from 1; 0 for the plan itself.
        replan: u32,
    },
    /// What the planner gave cannot be run.
    Rejected {
        /// What is wrong with it.
        faults: Vec<String>,
    },
    /// What the planner wrote was cut off by the limit on the length of a reply, and the rest is
    /// asked for.
    PlanCut {
        /// How many steps and other parts arrived whole.
        kept: usize,
    },
    /// There is a plan, and it was checked.
    Planned {
        /// The plan.
        plan: Arc<Plan>,
        /// The edges, those that follow from variables included.
        edges: Vec<(StepId, StepId)>,
    },
    /// Another way is looked for.
    Replanning {
        /// Which replan, from 1.
        replan: u32,
        /// The steps that failed or were rejected.
        steps: Vec<StepId>,
        /// Why, in words.
        why: String,
    },
    /// The plan was changed.
    Replanned {
        /// Which replan, from 1.
        replan: u32,
        /// What was changed.
        diff: Arc<Diff>,
        /// The plan as it is now.
        plan: Arc<Plan>,
        /// Its edges.
        edges: Vec<(StepId, StepId)>,
    },
    /// No other way was found.
    GaveUp {
        /// Why.
        why: String,
    },
    /// An attempt at a step began.
    StepStarted {
        /// The step.
        step: StepId,
        /// The effect that does it. A child run of this number is the agent's.
        effect: EffectId,
        /// Which attempt, from 1.
        attempt: u32,
        /// Which round of it, from 1: an agent may call itself, or be told what is missing.
        round: u32,
        /// Which element of a list it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<u32>,
    },
    /// A step is run once for each element of a list.
    FannedOut {
        /// The step.
        step: StepId,
        /// How many elements there are.
        items: u32,
    },
    /// A person is asked something on behalf of a step, by the run of the plan itself. What an
    /// agent asks is told by the agent's run.
    StepAsked {
        /// The step.
        step: StepId,
        /// The question.
        effect: EffectId,
    },
    /// One element of a list is done, or failed.
    ItemFinished {
        /// The step.
        step: StepId,
        /// Which element.
        item: u32,
        /// Why it failed, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// An attempt failed, and another follows after a pause.
    StepRetried {
        /// The step.
        step: StepId,
        /// Which attempt failed, from 1.
        attempt: u32,
        /// Why.
        error: String,
    },
    /// A step is done.
    StepCompleted {
        /// The step.
        step: StepId,
        /// What it wrote.
        writes: Vec<WrittenVariable>,
        /// All that it gave.
        output: Value,
        /// What it took.
        spent: StepSpent,
    },
    /// A step has failed for good.
    StepFailed {
        /// The step.
        step: StepId,
        /// Why.
        error: String,
        /// What it took.
        spent: StepSpent,
    },
    /// A step is not run.
    StepSkipped {
        /// The step.
        step: StepId,
        /// Why.
        why: String,
    },
    /// Somebody has looked at the work of others.
    Verdict {
        /// The step that did.
        step: StepId,
        /// Whether it may stand.
        passed: bool,
        /// What is wrong with it.
        issues: Vec<String>,
    },
}

/// A variable that a step wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WrittenVariable {
    /// The variable.
    pub name: Arc<str>,
    /// How its value was found in what the step gave.
    pub by: Strategy,
    /// The value.
    pub value: Value,
}

impl WrittenVariable {
    /// A variable with the value that a step wrote.
    pub fn new(name: impl Into<Arc<str>>, by: Strategy, value: Value) -> Self {
        Self {
            name: name.into(),
            by,
            value,
        }
    }
}

/// How a variable's value is found in what a step gave; the first that finds one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Strategy {
    /// In the result of code that the step ran.
    CodeResult,
    /// In the output, under its name.
    Output,
    /// In the output's `output`, under its name.
    Nested,
    /// The output's `final_answer`, or all that was said.
    FinalAnswer,
}

/// What a step took, all its attempts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StepSpent {
    /// Attempts.
    pub attempts: u32,
    /// Tokens and money.
    pub usage: Usage,
    /// Turns and calls.
    pub stats: Stats,
}

/// Where a step stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepStatus {
    /// Something before it is not settled.
    #[default]
    Pending,
    /// It has begun.
    Running,
    /// It waits: for a person, or for the next attempt.
    Waiting,
    /// It is done.
    Completed,
    /// It has failed.
    Failed,
    /// It was not run.
    Skipped,
}

impl StepStatus {
    /// Whether nothing more comes of it.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped)
    }

    /// The status as text, as it stands in session files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl PlanNotice {
    /// The name of the events.
    pub const NAME: &'static str = "graph";

    /// The notice in an event, if there is one.
    pub fn of(event: &EventKind) -> Option<Self> {
        match event {
            EventKind::Custom { name, data } if name == Self::NAME => Self::deserialize(data).ok(),
            _ => None,
        }
    }

    pub(crate) fn into_event(self) -> EventKind {
        let data = serde_json::to_value(self).unwrap_or_default();
        EventKind::Custom {
            name: Self::NAME.to_owned(),
            data,
        }
    }
}
