use std::sync::Arc;

use levity_core::{EffectId, EventKind};
use serde::{Deserialize, Serialize};

use crate::bus::BusMessage;
use crate::plan::{Delegation, PlanFaults};

/// What is told of a swarm, beside what is told of every run. In the event stream it is an
/// [`EventKind::Custom`] of the name [`SwarmNotice::NAME`]; [`SwarmNotice::of`] reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SwarmNotice {
    /// The router is asked for a plan.
    Planning {
        /// Which round, from 1; later ones are about what failed.
        round: u32,
        /// Which try, from 1.
        attempt: u32,
        /// The run below that makes it.
        effect: EffectId,
    },
    /// What the router wrote was no sound JSON, and was mended.
    PlanRepaired {
        /// What was mended, in words.
        mends: String,
    },
    /// What the router gave cannot be carried out.
    PlanRejected {
        /// Which try, from 1.
        attempt: u32,
        /// What is wrong with it.
        faults: PlanFaults,
    },
    /// The router gave no plan that could be carried out, so words of the goal decide who works on
    /// it.
    FellBack {
        /// Why.
        why: String,
    },
    /// There is a plan.
    Planned {
        /// Which round, from 1.
        round: u32,
        /// Who made it.
        by: PlannedBy,
        /// What is to be done, in the order of the plan.
        plan: Vec<Delegation>,
    },
    /// A worker begins.
    Began {
        /// The delegation, leg, turn or round.
        id: Arc<str>,
        /// Who.
        worker: Arc<str>,
        /// The run below that does it.
        effect: EffectId,
        /// Which attempt, from 1.
        attempt: u32,
    },
    /// A worker has done its part.
    Done {
        /// The delegation, leg, turn or round.
        id: Arc<str>,
        /// Who.
        worker: Arc<str>,
    },
    /// A worker has failed at its part.
    Failed {
        /// The delegation, leg, turn or round.
        id: Arc<str>,
        /// Who.
        worker: Arc<str>,
        /// Why.
        error: String,
        /// What is done about it.
        then: FailureAction,
    },
    /// A part is not begun.
    Skipped {
        /// The delegation, leg, turn or round.
        id: Arc<str>,
        /// Why.
        why: String,
    },
    /// The results are put together.
    Synthesising {
        /// The run below that does it.
        effect: EffectId,
    },
    /// The results could not be put together by a model, and are listed.
    Listed {
        /// Why.
        why: String,
    },
    /// An agent passes the conversation on.
    HandedOff {
        /// Who did.
        from: Arc<str>,
        /// To whom.
        to: Arc<str>,
        /// What it said.
        note: Arc<str>,
    },
    /// The conversation is not passed on: it was to be once too often, to nobody who is there, or
    /// near a limit. Who has it goes on, and must answer.
    LoopFound {
        /// Who wanted to.
        from: Arc<str>,
        /// To whom.
        to: Arc<str>,
        /// What makes it a loop, or stands in the way.
        why: String,
    },
    /// The program's function that says what goes along failed, and only the words went along.
    FilterFailed {
        /// To whom the conversation is passed on.
        to: Arc<str>,
        /// What happened.
        why: String,
    },
    /// A round of a debate or of work on a blackboard begins.
    RoundBegan {
        /// Which, from 1.
        round: u32,
        /// How many there may be.
        of: u32,
    },
    /// The judge has spoken.
    Judged {
        /// After which round.
        round: u32,
        /// Whether it is enough.
        done: bool,
        /// What it said.
        reason: Arc<str>,
    },
    /// Something was written on the blackboard.
    Written {
        /// Where.
        key: Arc<str>,
        /// By whom.
        by: Arc<str>,
        /// How often it was written by now.
        version: u32,
    },
    /// Something could not be written on the blackboard.
    Refused {
        /// Where it was to stand.
        key: Arc<str>,
        /// By whom.
        by: Arc<str>,
        /// Why.
        why: String,
    },
    /// A message is on the bus.
    Message(BusMessage),
}

/// Who made a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlannedBy {
    /// The router.
    Router,
    /// Words of the goal.
    Keywords,
    /// The host.
    Host,
    /// A [`Coordinator`](crate::Coordinator) of the program's own.
    Coordinator,
}

/// What is done about a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureAction {
    /// The same worker tries again.
    Retry,
    /// Another takes the task.
    StandIn {
        /// Who.
        worker: Arc<str>,
    },
    /// Nothing, or nothing now: the router may still give it to another.
    Leave,
}

impl SwarmNotice {
    /// The name of the events.
    pub const NAME: &'static str = "swarm";

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
