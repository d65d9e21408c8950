//! Effects that an earlier process had begun and that must not be performed twice.

use futures_util::future::{AbortHandle, Abortable};
use levity_core::{Effect, EffectId, Entry, Machine, Outcome, Resolution, ToolResult};

use super::{Came, Driver, Lookup, may_repeat};

impl<M: Machine + 'static> Driver<M> {
    /// Whether nobody knows what came of an effect that has begun, and nobody looks for it.
    pub(super) fn is_lost(&self, id: EffectId) -> bool {
        self.state.running.get(id).is_some_and(|running| {
            let lost = |effect: &Effect| !running.cleared && !may_repeat(effect, running.note.class);
            running.effect.as_ref().is_some_and(lost)
        })
    }

    /// Has the executor find out what came of it. The effect is kept out of reach meanwhile: what stands with
    /// the others that have begun is performed.
    pub(super) fn look_up(&mut self, id: EffectId) {
        let Some(effect) = self.state.take_left(id) else { return };
        let (executor, cx) = (self.around.executor.clone(), self.effect_cx(id));
        let (stop, registration) = AbortHandle::new_pair();
        let what = effect.clone();
        self.lookups.insert(id, Lookup { effect, stop });
        let look = Abortable::new(async move { executor.resolve(&what, &cx).await }, registration);
        self.effects
            .push(Box::pin(async move { (id, Ok(look.await.map_or(Came::Withdrawn, Came::Resolved))) }));
    }

    /// The entry by which an effect is known again. The first answer counts.
    pub(super) fn resolved(&mut self, id: EffectId, resolution: Resolution) -> Option<Entry> {
        let effect = match self.lookups.remove(id) {
            Some(lookup) => {
                lookup.stop.abort();
                lookup.effect
            }
            None if self.is_lost(id) => self.state.take_left(id)?,
            None => return None,
        };
        Some(match (resolution, effect) {
            (Resolution::Done(output), Effect::Tool(run)) => {
                Entry::finished(id, Outcome::Tool(ToolResult::new(&run.call, Ok(output))))
            }
            (Resolution::NotDone, effect) => {
                self.state.put_back(id, effect);
                Entry::Cleared { effect: id }
            }
            _ => Entry::finished(id, Outcome::Unknown),
        })
    }
}
