//! Runs that do nothing but wait.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{EffectId, EffectKind, Entry, Machine, RuntimeError, Waiting};
use tokio::sync::Notify;

use super::Driver;
use crate::state::Running;

/// Which children of a run do nothing but wait. They are driven all the same until the run itself is left, so
/// that whatever they wait for reaches them while it works.
#[derive(Clone, Default)]
pub(crate) struct Resting(Arc<Rests>);

#[derive(Default)]
struct Rests {
    children: Mutex<BTreeSet<EffectId>>,
    changed: Notify,
}

impl Resting {
    fn set(&self, child: EffectId, rests: bool) {
        let mut children = self.0.children.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = if rests { children.insert(child) } else { children.remove(&child) };
        if changed && rests {
            self.0.changed.notify_one();
        }
    }

    fn has(&self, child: EffectId) -> bool {
        self.0.children.lock().unwrap_or_else(PoisonError::into_inner).contains(&child)
    }

    /// Resolves when one more child does nothing but wait.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

/// What a run that may be left is to do.
pub(super) enum Next {
    /// Leave it: it only waits, for this.
    Leave(Vec<Waiting>),
    /// Write this, which others have left for it.
    Take(Vec<Entry>),
    /// Wait for what happens next.
    Wait,
}

impl<M: Machine + 'static> Driver<M> {
    /// Whether to leave the run in its journal. What others have left for it is looked at before, since nobody
    /// may look again for days.
    pub(super) async fn leave(&mut self) -> Result<Next, RuntimeError> {
        let Some(waiting) = self.only_waits() else { return Ok(Next::Wait) };
        let posts = self.log.posted_by_now().await?;
        if !posts.is_empty() {
            return Ok(Next::Take(self.screen_posts(posts).await));
        }
        Ok(match &self.around.rests {
            Some((resting, id)) => {
                resting.set(*id, true);
                Next::Wait
            }
            None => Next::Leave(waiting),
        })
    }

    /// Says that the run does something again.
    pub(super) fn stir(&self) {
        if let Some((resting, id)) = &self.around.rests {
            resting.set(*id, false);
        }
    }

    /// What the run waits for, if it may be left in its journal and does nothing else.
    fn only_waits(&self) -> Option<Vec<Waiting>> {
        let may_park =
            self.around.park && self.keeps() && !self.state.paused && self.budget.waiting().is_empty();
        let may_park = may_park && self.screening.is_empty() && self.preparing.is_empty() && !self.more;
        if !may_park
            || self.state.running.is_empty()
            || !self.state.running.iter().all(|(id, r)| self.waits(id, r))
        {
            return None;
        }
        let own = self.state.running.iter().filter(|(_, running)| running.note.kind != EffectKind::Child);
        Some(own.map(|(id, running)| Waiting::new(id, running.note.until)).collect())
    }

    fn waits(&self, id: EffectId, running: &Running) -> bool {
        match running.note.kind {
            EffectKind::Ask => self.questions.get(id).is_some_and(|question| question.approver.is_none()),
            // One whose time has come is over as soon as it is looked at.
            EffectKind::Wait => running.note.until > Some(self.around.shared.world.now()),
            EffectKind::Child => self.resting.has(id),
            _ => false,
        }
    }
}
