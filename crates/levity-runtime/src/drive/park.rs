//! Parks runs that only wait.
//!
//! A run that waits for a person may wait for days. Parking ends its task and releases its log; the
//! journal holds everything that resuming needs. A tree of runs is parked as a whole: each child
//! reports to its parent when it only waits, and the root decides.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{EffectId, Machine, RuntimeError, Waiting};
use tokio::sync::Notify;

use super::Driver;

/// The children of a run that only wait. They are still driven until the run itself is parked, so
/// that their input reaches them while it works.
#[derive(Clone, Default)]
pub(crate) struct WaitingChildren(Arc<WaitingChildrenState>);

#[derive(Default)]
struct WaitingChildrenState {
    children: Mutex<BTreeSet<EffectId>>,
    changed: Notify,
}

impl WaitingChildren {
    /// Only new waits wake the parent. A child that works again needs no reaction.
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

    /// Resolves when one more child only waits.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

/// The next step of a run that may be parked.
pub(super) enum ParkDecision {
    /// Park the run: it only waits, for this.
    Leave(Vec<Waiting>),
    /// Continue: requests from others have been processed.
    Taken,
    /// Wait for the next input.
    Wait,
}

impl<M: Machine + 'static> Driver<M> {
    /// Decides if the run is parked in its journal. It reads the requests of others before, since
    /// no process may read them again for days.
    pub(super) async fn leave(&mut self) -> Result<ParkDecision, RuntimeError> {
        let Some(waiting) = self.only_waits() else {
            return Ok(ParkDecision::Wait);
        };
        let posts = self.log.posted_by_now().await?;
        if !posts.is_empty() {
            self.screen_posts(posts).await;
            return Ok(ParkDecision::Taken);
        }
        Ok(match &self.env.rests {
            Some((resting, id)) => {
                resting.set(*id, true);
                ParkDecision::Wait
            }
            None => ParkDecision::Leave(waiting),
        })
    }

    /// Reports that the run works again.
    pub(super) fn mark_working(&self) {
        if let Some((resting, id)) = &self.env.rests {
            resting.set(*id, false);
        }
    }

    /// Returns the conditions that the run waits for, if it may be parked and does nothing else.
    fn only_waits(&self) -> Option<Vec<Waiting>> {
        if !self.env.park || !self.keeps() || !self.screening.is_empty() {
            return None;
        }
        self.core
            .waits_only(self.env.shared.world.now(), |child| self.resting.has(child))
    }
}
