//! Runs that do nothing but wait.

use levity_core::{EffectKind, Machine, Waiting};

use super::Driver;
use crate::state::Running;

impl<M: Machine + 'static> Driver<M> {
    /// What the run waits for, if it may be left in its journal and does nothing else.
    pub(super) fn only_waits(&self) -> Option<Vec<Waiting>> {
        let may_park =
            self.around.park && self.keeps() && !self.state.paused && self.budget.waiting().is_empty();
        if !may_park || self.state.running.is_empty() || !self.state.running.iter().all(|r| self.waits(r)) {
            return None;
        }
        let own = self.state.running.iter().filter(|running| running.note.kind != EffectKind::Child);
        Some(own.map(|running| Waiting::new(running.id, running.note.until)).collect())
    }

    fn waits(&self, running: &Running) -> bool {
        match running.note.kind {
            EffectKind::Ask => {
                self.questions.iter().any(|q| q.ask.effect == running.id && q.approver.is_none())
            }
            EffectKind::Wait => true,
            EffectKind::Child => self.parked.iter().any(|(id, _)| *id == running.id),
            _ => false,
        }
    }
}
