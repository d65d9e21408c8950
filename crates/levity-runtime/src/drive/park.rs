//! Runs that do nothing but wait.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{EffectId, Machine, RuntimeError, Waiting};
use tokio::sync::Notify;

use super::Driver;

/// Which children of a run do nothing but wait. They are driven all the same until the run itself
/// is left, so that whatever they wait for reaches them while it works.
#[derive(Clone, Default)]
pub(crate) struct Resting(Arc<Rests>);

#[derive(Default)]
struct Rests {
    children: Mutex<BTreeSet<EffectId>>,
    changed: Notify,
}

impl Resting {
    fn set(&self, child: EffectId, rests: bool) {
        let mut children = self
            .0
            .children
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let changed = if rests {
            children.insert(child)
        } else {
            children.remove(&child)
        };
        if changed && rests {
            self.0.changed.notify_one();
        }
    }

    fn has(&self, child: EffectId) -> bool {
        self.0
            .children
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&child)
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
    /// Go on: others have left something for it, which was taken in.
    Taken,
    /// Wait for what happens next.
    Wait,
}

impl<M: Machine + 'static> Driver<M> {
    /// Whether to leave the run in its journal. What others have left for it is looked at before,
    /// since nobody may look again for days.
    pub(super) async fn leave(&mut self) -> Result<Next, RuntimeError> {
        let Some(waiting) = self.only_waits() else {
            return Ok(Next::Wait);
        };
        let posts = self.log.posted_by_now().await?;
        if !posts.is_empty() {
            self.screen_posts(posts).await;
            return Ok(Next::Taken);
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
        if !self.around.park || !self.keeps() || !self.screening.is_empty() {
            return None;
        }
        self.core
            .waits_only(self.around.shared.world.now(), |child| {
                self.resting.has(child)
            })
    }
}
