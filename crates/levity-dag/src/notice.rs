use std::sync::Arc;

use levity_core::{EffectId, EventKind, Stats, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::diff::Diff;
use crate::plan::Plan;
use crate::step::StepId;

/// A progress notice about a plan, emitted in addition to the events that every run emits.
///
/// Notices are [`EventKind::Custom`] events with the name [`NAME`](Self::NAME); use
/// [`PlanNotice::of`] to extract them. They are derived from the journal, so a replay emits them
/// again.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use levity_dag::{Plan, PlanNotice, Step, StepInput, Team};
/// use serde_json::Value;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_dag::Result<()> {
/// let team = Team::builder()
///     .function("noop", |_: StepInput| async { Ok(Value::Null) })
///     .build()?;
/// let started = Arc::new(Mutex::new(Vec::new()));
/// let sink = started.clone();
/// let run = team.run(Plan::new().step(Step::new("a", "noop"))).on_event(move |event| {
///     if let Some(PlanNotice::StepStarted { step, attempt, .. }) = PlanNotice::of(&event.kind) {
///         sink.lock().unwrap().push(format!("{step}, attempt {attempt}"));
///     }
/// });
/// run.await?;
/// assert_eq!(*started.lock().unwrap(), ["a, attempt 1"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanNotice {
    /// An agent inspects the input files; the effect is its run.
    Profiling {
        /// The id of the effect.
        effect: EffectId,
    },
    /// The planner is asked for a plan or for a change to it.
    Planning {
        /// The id of the effect.
        effect: EffectId,
        /// The number of earlier answers to this request that were invalid.
        again: u32,
        /// The number of the replan, from 1; 0 for the initial plan.
        replan: u32,
    },
    /// The planner's answer was invalid.
    Rejected {
        /// The faults found in the answer.
        faults: Vec<String>,
    },
    /// The planner's reply reached its length limit and was cut off. levity requests the rest.
    PlanCut {
        /// The number of steps and other parts that arrived complete.
        kept: usize,
    },
    /// A plan was made and validated.
    Planned {
        /// The plan after it was validated.
        plan: Arc<Plan>,
        /// The edges, including those derived from variables.
        edges: Vec<(StepId, StepId)>,
    },
    /// levity asks for a change to the plan.
    Replanning {
        /// The number of the replan, from 1.
        replan: u32,
        /// The steps that failed or were rejected.
        steps: Vec<StepId>,
        /// The reason for the replan.
        #[serde(rename = "why")]
        reason: String,
    },
    /// The plan was changed.
    Replanned {
        /// The number of the replan, from 1.
        replan: u32,
        /// The change that was applied to the plan.
        diff: Arc<Diff>,
        /// The plan after the change.
        plan: Arc<Plan>,
        /// The edges of the changed plan.
        edges: Vec<(StepId, StepId)>,
    },
    /// The planner found no other way to reach the goal.
    GaveUp {
        /// The reason for giving up.
        #[serde(rename = "why")]
        reason: String,
    },
    /// An attempt at a step started.
    StepStarted {
        /// The id of the step.
        step: StepId,
        /// The effect that performs the attempt. A child run with this number is the agent's run.
        effect: EffectId,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The round within the attempt, from 1. An agent may request another round, or get one
        /// because variables are missing.
        round: u32,
        /// The index of the list element, for a fan-out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<u32>,
    },
    /// A step fans out over the elements of a list.
    FannedOut {
        /// The id of the step.
        step: StepId,
        /// The number of elements.
        items: u32,
    },
    /// The plan's run asks a person a question on behalf of a step. An agent's run reports its own
    /// questions.
    StepAsked {
        /// The id of the step.
        step: StepId,
        /// The effect of the question.
        effect: EffectId,
    },
    /// A list element completed or failed.
    ItemFinished {
        /// The id of the step.
        step: StepId,
        /// The index of the element.
        item: u32,
        /// The error message, if the element failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// An attempt failed, and another one follows after a pause.
    StepRetried {
        /// The id of the step.
        step: StepId,
        /// The number of the failed attempt, from 1.
        attempt: u32,
        /// The error message of the attempt.
        error: String,
    },
    /// A step completed without an error.
    StepCompleted {
        /// The id of the step.
        step: StepId,
        /// The variables that it wrote.
        writes: Vec<WrittenVariable>,
        /// The complete output of the step.
        output: Value,
        /// The resources that the step used.
        spent: StepUsage,
    },
    /// A step failed in all its attempts.
    StepFailed {
        /// The id of the step.
        step: StepId,
        /// The error message of the step.
        error: String,
        /// The resources that the step used.
        spent: StepUsage,
    },
    /// A step was skipped.
    StepSkipped {
        /// The id of the step.
        step: StepId,
        /// The reason for skipping it.
        #[serde(rename = "why")]
        reason: String,
    },
    /// A judge returned a verdict on the work of other steps.
    Verdict {
        /// The step of the judge.
        step: StepId,
        /// `true` if the judge accepted the work.
        passed: bool,
        /// The issues that the judge found.
        issues: Vec<String>,
    },
}

/// A variable that a step wrote, with its value.
///
/// ```
/// use levity_dag::{Strategy, WrittenVariable};
/// use serde_json::json;
///
/// let written = WrittenVariable::new("page", Strategy::Output, json!("high water at six"));
/// assert_eq!(
///     serde_json::to_value(&written)?,
///     json!({"name": "page", "by": "output", "value": "high water at six"}),
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WrittenVariable {
    /// The name of the variable.
    pub name: Arc<str>,
    /// The strategy that found the value in the output.
    pub by: Strategy,
    /// The value of the variable.
    pub value: Value,
}

impl WrittenVariable {
    /// Creates a record of a variable that a step wrote.
    pub fn new(name: impl Into<Arc<str>>, by: Strategy, value: Value) -> Self {
        Self {
            name: name.into(),
            by,
            value,
        }
    }
}

/// The strategies to find a variable's value in a step's output; the first match counts.
///
/// levity tries them in the order of the variants. A bare text or list counts only if the step
/// writes one variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Strategy {
    /// The value is in the result of code that the step ran.
    CodeResult,
    /// The value is in the output, under the variable's name.
    Output,
    /// The value is in the output's `output` field, under the variable's name.
    Nested,
    /// The value is the output's `final_answer`, or the whole text.
    FinalAnswer,
}

/// The resources that a step used in all its attempts.
///
/// The usage includes failed attempts, all rounds, code that ran, and all elements of a fan-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StepUsage {
    /// The number of attempts.
    pub attempts: u32,
    /// The tokens and the cost.
    pub usage: Usage,
    /// The numbers of turns and calls.
    pub stats: Stats,
}

/// The current status of a step.
///
/// ```
/// use levity_dag::StepStatus;
///
/// assert!(StepStatus::Skipped.is_settled() && !StepStatus::Waiting.is_settled());
/// assert_eq!(StepStatus::Completed.as_str(), "completed");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepStatus {
    /// A predecessor is not settled yet.
    #[default]
    Pending,
    /// The step has started.
    Running,
    /// The step waits for a person or for its next attempt.
    Waiting,
    /// The step has completed.
    Completed,
    /// The step has failed.
    Failed,
    /// The step was not run.
    Skipped,
}

impl StepStatus {
    /// Returns `true` if the status is final.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped)
    }

    /// Returns the status as text, as session files contain it.
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
    /// The name of the custom events.
    pub const NAME: &'static str = "graph";

    /// Returns the notice in an event, if there is one.
    ///
    /// ```
    /// use levity_core::EventKind;
    /// use levity_dag::PlanNotice;
    /// use serde_json::json;
    ///
    /// let data = json!({"notice": "gave_up", "why": "no other way"});
    /// let event = EventKind::Custom { name: PlanNotice::NAME.to_owned(), data };
    /// let Some(PlanNotice::GaveUp { reason }) = PlanNotice::of(&event) else { unreachable!() };
    /// assert_eq!(reason, "no other way");
    /// ```
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
