//! Tracks the remaining limits, and the reaction of the loop when little remains.
//!
//! A run that is about to reach a limit does not simply stop: it gets one more model call without
//! tools, for an answer from what it has. That answer is marked as best effort.

use levity_core::{EventKind, Limit, MachineOutput, Status};
use serde::{Deserialize, Serialize};

use crate::executor::CHEAP;
use crate::notes;
use crate::strategy::LowBudgetAction;

use super::AgentMachine;
use super::phase::{Purpose, Turn};

/// Tracks the need to end the run, and the model that is called until then.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Budget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) closing: Option<Closing>,
    /// `true` once the model knows that no more tools are offered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    announced: bool,
    /// `true` once the cheap model is in use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cheap: bool,
}

/// The reason for which no more tools are offered.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Closing {
    Limit(Limit),
    Enough,
}

impl Budget {
    /// Returns `true` if a limit is near.
    pub(super) fn is_low(&self) -> bool {
        matches!(self.closing, Some(Closing::Limit(_)))
    }

    /// Notes that a limit is near. The first one counts.
    pub(super) fn wrap(&mut self, limit: Limit) {
        if !self.is_low() {
            self.closing = Some(Closing::Limit(limit));
        }
    }

    /// Notes that the results suffice for an answer.
    pub(super) fn enough(&mut self) {
        self.closing.get_or_insert(Closing::Enough);
    }
}

impl AgentMachine {
    /// Returns the slot for a purpose; the cheap one for all purposes after the switch.
    pub(super) fn slot(&self, purpose: &'static str) -> &'static str {
        if self.state.budget.cheap {
            CHEAP
        } else {
            purpose
        }
    }

    /// Reacts to a limit of which little remains.
    pub(super) fn low(&mut self, limit: Limit) {
        match self.spec.when_low {
            LowBudgetAction::Answer => self.state.budget.wrap(limit),
            LowBudgetAction::Switch => self.state.budget.cheap = true,
        }
    }

    /// Reacts to a limit that forbids a call.
    ///
    /// If a smaller call is possible, the rest may suffice for an answer: by the cheap model,
    /// without side questions, without tools.
    pub(super) fn refused(&mut self, purpose: &Purpose, limit: Limit, step: &mut MachineOutput) {
        let is_last = matches!(purpose, Purpose::Reply(Turn { offered: false, .. }));
        let switches = self.spec.when_low == LowBudgetAction::Switch && !self.state.budget.cheap;
        match limit {
            Limit::Money if switches => self.state.budget.cheap = true,
            Limit::Tokens | Limit::Money if !is_last => self.state.budget.wrap(limit),
            _ => return self.stop(Status::Partial(limit), step),
        }
        self.act(step);
    }

    pub(super) fn closing(&self) -> Option<Closing> {
        let is_last = self.state.tally.stats.turns >= self.spec.max_turns;
        let turns = is_last.then_some(Closing::Limit(Limit::Turns));
        self.state
            .budget
            .closing
            .filter(|_| self.state.budget.is_low())
            .or(turns)
            .or(self.state.budget.closing)
    }

    pub(super) fn announce(&mut self, closing: Option<Closing>, step: &mut MachineOutput) {
        let Some(closing) = closing.filter(|_| self.has_tools() && !self.state.budget.announced)
        else {
            return;
        };
        self.state.budget.announced = true;
        let text = match closing {
            Closing::Limit(limit) => notes::last_turn(limit),
            Closing::Enough => notes::ANSWER_NOW.to_owned(),
        };
        self.note(text, step);
    }

    /// Counts a turn, and emits its event.
    pub(super) fn count_turn(&mut self, step: &mut MachineOutput) {
        let turns = &mut self.state.tally.stats.turns;
        *turns = turns.saturating_add(1);
        step.emit(EventKind::TurnStarted {
            turn: *turns,
            of: self.spec.max_turns.max(*turns),
        });
    }
}
