use std::sync::Arc;

use levity_core::{EffectId, EventKind};
use serde::{Deserialize, Serialize};

use crate::bus::BusMessage;
use crate::plan::{Delegation, PlanFaults};

/// A progress notice about a swarm, emitted in addition to the events that every run emits. In the
/// event stream it is an [`EventKind::Custom`] with the name [`SwarmNotice::NAME`]; use
/// [`SwarmNotice::of`] to extract it.
///
/// Notices are derived from the journal, so a replay emits them again.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use levity_loop::Agent;
/// use levity_swarm::{Router, Swarm, SwarmNotice};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_swarm::Result<()> {
/// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
/// let swarm = Swarm::builder(Router::keywords())
///     .agent("pilot", "Knows the tides.", pilot)
///     .build()?;
/// let done = Arc::new(Mutex::new(Vec::new()));
/// let sink = done.clone();
/// let run = swarm.run("When is the tide high?").on_event(move |event| {
///     if let Some(SwarmNotice::Done { id, worker }) = SwarmNotice::of(&event.kind) {
///         sink.lock().unwrap().push(format!("{id} by {worker}"));
///     }
/// });
/// run.await?;
/// assert_eq!(*done.lock().unwrap(), ["d1 by pilot"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SwarmNotice {
    /// The router is asked for a plan.
    Planning {
        /// The round, from 1; later rounds are about failed work.
        round: u32,
        /// The attempt, from 1.
        attempt: u32,
        /// The child run that makes the plan.
        effect: EffectId,
    },
    /// The router's plan was malformed JSON and was repaired.
    PlanRepaired {
        /// A description of the repairs.
        mends: String,
    },
    /// The router's plan is invalid.
    PlanRejected {
        /// The attempt, from 1.
        attempt: u32,
        /// The faults in the plan.
        faults: PlanFaults,
    },
    /// The router made no valid plan, so the keywords of the goal select the workers.
    FellBack {
        /// The reason for the fallback.
        #[serde(rename = "why")]
        reason: String,
    },
    /// A plan was accepted.
    Planned {
        /// The round, from 1.
        round: u32,
        /// The author of the plan.
        by: PlannedBy,
        /// The delegations, in plan order.
        plan: Vec<Delegation>,
    },
    /// A worker started a piece of work.
    Began {
        /// The id of the delegation, leg, turn or round.
        id: Arc<str>,
        /// The name of the worker.
        worker: Arc<str>,
        /// The child run that does the work.
        effect: EffectId,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// A worker completed its part.
    Done {
        /// The id of the delegation, leg, turn or round.
        id: Arc<str>,
        /// The name of the worker.
        worker: Arc<str>,
    },
    /// A worker failed at its part.
    Failed {
        /// The id of the delegation, leg, turn or round.
        id: Arc<str>,
        /// The name of the worker.
        worker: Arc<str>,
        /// The error message that explains the failure.
        error: String,
        /// The action that follows.
        then: FailureAction,
    },
    /// A part was skipped.
    Skipped {
        /// The id of the delegation, leg, turn or round.
        id: Arc<str>,
        /// The reason for skipping it.
        #[serde(rename = "why")]
        reason: String,
    },
    /// The results are being combined.
    Synthesising {
        /// The child run that combines them.
        effect: EffectId,
    },
    /// The results could not be combined by a model, and are listed.
    Listed {
        /// The reason for listing them.
        #[serde(rename = "why")]
        reason: String,
    },
    /// An agent passed the conversation on.
    HandedOff {
        /// The worker that had the conversation.
        from: Arc<str>,
        /// The recipient of the conversation.
        to: Arc<str>,
        /// The note to the recipient.
        note: Arc<str>,
    },
    /// A handoff was refused: it would be one too many, has an unknown recipient, or is near a
    /// limit. The current worker continues and must answer.
    LoopFound {
        /// The worker that requested the handoff.
        from: Arc<str>,
        /// The worker that was to receive the handoff.
        to: Arc<str>,
        /// The reason for the refusal.
        #[serde(rename = "why")]
        reason: String,
    },
    /// The host's filter function for the history failed, so only the text messages were passed on.
    FilterFailed {
        /// The recipient of the conversation.
        to: Arc<str>,
        /// A description of the failure.
        #[serde(rename = "why")]
        reason: String,
    },
    /// A round of a debate or of a blackboard started.
    RoundBegan {
        /// The round, from 1.
        round: u32,
        /// The maximum number of rounds.
        of: u32,
    },
    /// The judge returned a verdict.
    Judged {
        /// The round that the verdict follows.
        round: u32,
        /// `true` if the judge ends the work.
        done: bool,
        /// The reason that the judge gave.
        reason: Arc<str>,
    },
    /// An entry of the blackboard was written.
    Written {
        /// The key of the entry.
        key: Arc<str>,
        /// The worker that wrote it.
        by: Arc<str>,
        /// The number of writes of this entry.
        version: u32,
    },
    /// A write on the blackboard was refused.
    Refused {
        /// The key of the refused entry.
        key: Arc<str>,
        /// The worker that tried to write it.
        by: Arc<str>,
        /// The reason for the refusal.
        #[serde(rename = "why")]
        reason: String,
    },
    /// A message was posted on the bus.
    Message(BusMessage),
}

/// The author of a plan.
///
/// It serializes as a word in snake case, such as `"keywords"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlannedBy {
    /// The router made the plan.
    Router,
    /// The keywords of the goal determined the plan.
    Keywords,
    /// The host passed the plan.
    Host,
    /// A custom [`Coordinator`](crate::Coordinator) made the plan.
    Coordinator,
}

/// The action that follows a failure.
///
/// ```
/// use levity_swarm::FailureAction;
/// use serde_json::json;
///
/// let then = FailureAction::Fallback { worker: "deputy".into() };
/// assert_eq!(serde_json::to_value(&then)?, json!({"stand_in": {"worker": "deputy"}}));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureAction {
    /// The same worker tries again.
    Retry,
    /// A fallback worker takes over the task.
    #[serde(rename = "stand_in")]
    Fallback {
        /// The name of the fallback worker.
        worker: Arc<str>,
    },
    /// No action now; the router may still reassign the task.
    #[serde(rename = "leave")]
    GiveUp,
}

impl SwarmNotice {
    /// The name of the custom events.
    pub const NAME: &'static str = "swarm";

    /// Returns the notice in an event, if there is one.
    ///
    /// ```
    /// use levity_core::EventKind;
    /// use levity_swarm::SwarmNotice;
    /// use serde_json::json;
    ///
    /// let data = json!({"skipped": {"id": "d2", "why": "`d1` is not done"}});
    /// let event = EventKind::Custom { name: SwarmNotice::NAME.to_owned(), data };
    /// assert!(matches!(SwarmNotice::of(&event), Some(SwarmNotice::Skipped { .. })));
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
