//! The phases of the loop, each with the data that exists only in it.

use std::collections::BTreeMap;
use std::mem;

use levity_core::{CallId, EffectId, Ending, Exchange, Phase as Told};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::window::PendingSummary;

/// The current phase of the loop.
///
/// All versions save a state before the start as `"goal"`; the form of the other phases may change
/// with each version.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// The run has not started.
    Goal,
    /// A model is asked.
    Asking { effect: EffectId, purpose: Purpose },
    /// One or more tools are called.
    Calling(Calls),
    /// The run ends like this once everything is saved.
    Leaving(Box<Ending>),
    /// The run has ended.
    Ended(Box<Ending>),
    /// A transient phase within one input: the last phase is over, and the next one is not chosen
    /// yet.
    #[serde(skip)]
    Deciding,
}

/// The purpose of a question to a model.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Purpose {
    Plan,
    Reply(Turn),
    Reflection,
    /// A summary, so that there is room for the next question.
    Summary {
        folding: Box<PendingSummary>,
        next: Question,
    },
}

/// A question to a model that depends on the available room.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    Plan(String),
    Reply(Turn),
    Reflection(String),
}

/// A turn of the model.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Turn {
    /// `true` if tools are offered.
    pub(super) offered: bool,
    /// The number of last messages that begin this turn, which the provider interrupted.
    pub(super) paused: u32,
}

/// The calls of a reply.
#[derive(Serialize, Deserialize)]
pub(super) struct Calls {
    pub(super) exchange: Exchange,
    pub(super) waiting: BTreeMap<EffectId, Waiting>,
    /// The arguments that a person has changed.
    pub(super) edited: BTreeMap<CallId, Value>,
}

/// The effect that a call waits for.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Waiting {
    Tool(CallId),
    Decision(CallId),
    Answer(CallId),
    Child(CallId),
    Wait(CallId),
}

impl Phase {
    /// Returns the phase as events name it.
    pub(super) fn event_phase(&self) -> Told {
        match self {
            Self::Goal => Told::Goal,
            Self::Asking { purpose, .. } => purpose.event_phase(),
            Self::Calling(_) | Self::Deciding => Told::Act,
            Self::Leaving(_) | Self::Ended(_) => Told::End,
        }
    }

    /// Returns the last of the effects that it waits for.
    pub(super) fn last_effect(&self) -> Option<EffectId> {
        match self {
            Self::Asking { effect, .. } => Some(*effect),
            Self::Calling(calls) => calls.waiting.keys().next_back().copied(),
            _ => None,
        }
    }

    /// Returns `true` if it points to messages beyond the end of a history.
    pub(super) fn is_beyond(&self, len: usize) -> bool {
        matches!(
            self,
            Self::Asking { purpose: Purpose::Summary { folding, .. }, .. } if folding.is_beyond(len)
        )
    }

    /// Returns the exchange in progress.
    pub(super) fn exchange(&self) -> Option<&Exchange> {
        if let Self::Calling(calls) = self {
            Some(&calls.exchange)
        } else {
            None
        }
    }

    /// Ends the wait for a model, if this is its effect.
    pub(super) fn take_purpose(&mut self, answered: EffectId) -> Option<Purpose> {
        match mem::replace(self, Self::Deciding) {
            Self::Asking { effect, purpose } if effect == answered => Some(purpose),
            other => self.put_back(other),
        }
    }

    /// Ends the calls, if there are any.
    pub(super) fn take_exchange(&mut self) -> Option<Exchange> {
        match mem::replace(self, Self::Deciding) {
            Self::Calling(calls) => Some(calls.exchange),
            other => self.put_back(other),
        }
    }

    /// Ends the wait for what is being saved, if the run only waits for that.
    pub(super) fn take_ending(&mut self) -> Option<Box<Ending>> {
        match mem::replace(self, Self::Deciding) {
            Self::Leaving(ending) => Some(ending),
            other => self.put_back(other),
        }
    }

    fn put_back<T>(&mut self, phase: Self) -> Option<T> {
        *self = phase;
        None
    }
}

impl Purpose {
    fn event_phase(&self) -> Told {
        match self {
            Self::Plan
            | Self::Summary {
                next: Question::Plan(_),
                ..
            } => Told::Plan,
            Self::Reply(_)
            | Self::Summary {
                next: Question::Reply(_),
                ..
            } => Told::Act,
            Self::Reflection
            | Self::Summary {
                next: Question::Reflection(_),
                ..
            } => Told::Reflect,
        }
    }
}

impl Calls {
    pub(super) fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            waiting: BTreeMap::new(),
            edited: BTreeMap::new(),
        }
    }
}
