//! What is left of the limits, and what the loop does when that is little.

use levity_core::{EventKind, Limit, MachineOutput, Status};
use serde::{Deserialize, Serialize};

use crate::executor::CHEAP;
use crate::notes;
use crate::strategy::Low;

use super::AgentMachine;
use super::phase::{Purpose, Turn};

/// Whether the run has to come to its end, and which model it calls until then.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Budget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) closing: Option<Closing>,
    /// Whether the model knows that no more tools are offered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    announced: bool,
    /// Whether the cheap model is called.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cheap: bool,
}

/// Why no more tools are offered.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Closing {
    Limit(Limit),
    Enough,
}

impl Budget {
    /// Whether a limit is near.
    pub(super) fn is_low(&self) -> bool {
        matches!(self.closing, Some(Closing::Limit(_)))
    }

    /// A limit is near. The first one counts.
    pub(super) fn wrap(&mut self, limit: Limit) {
        if !self.is_low() {
            self.closing = Some(Closing::Limit(limit));
        }
    }

    /// Enough was done for an answer.
    pub(super) fn enough(&mut self) {
        self.closing.get_or_insert(Closing::Enough);
    }
}

impl AgentMachine {
    /// The model for a purpose; the cheap one for all once it was switched to.
    pub(super) fn slot(&self, purpose: &'static str) -> &'static str {
        if self.state.budget.cheap {
            CHEAP
        } else {
            purpose
        }
    }

    /// Little is left of what a limit allows.
    pub(super) fn low(&mut self, limit: Limit) {
        match self.spec.when_low {
            Low::Answer => self.state.budget.wrap(limit),
            Low::Switch => self.state.budget.cheap = true,
        }
    }

    /// A limit forbids a call. Where a smaller one may do, there can be enough left for an answer:
    /// of the cheap model, without a question on the side, without tools.
    pub(super) fn refused(&mut self, purpose: &Purpose, limit: Limit, step: &mut MachineOutput) {
        let is_last = matches!(purpose, Purpose::Reply(Turn { offered: false, .. }));
        let switches = self.spec.when_low == Low::Switch && !self.state.budget.cheap;
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

    /// Counts a turn, and says so.
    pub(super) fn count_turn(&mut self, step: &mut MachineOutput) {
        let turns = &mut self.state.tally.stats.turns;
        *turns = turns.saturating_add(1);
        step.tell(EventKind::TurnStarted {
            turn: *turns,
            of: self.spec.max_turns.max(*turns),
        });
    }
}
