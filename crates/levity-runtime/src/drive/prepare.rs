//! What the executor says of effects before they begin, also if it takes its time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::pending;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use levity_core::{Effect, EffectId, Eventual, Machine, PrepareCx, Prepared};

use super::{BATCH, Deferred, Driver};

/// What the executor has yet to say. Mostly it says all at once, and a run has no room for this.
#[derive(Default)]
pub(super) struct Preparing(Option<Box<Pending>>);

#[derive(Default)]
struct Pending {
    later: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// What was said of effects that an earlier process left under way; nothing until it is.
    left: BTreeMap<EffectId, Option<Prepared>>,
}

/// What the executor says of an effect.
type Answer = (EffectId, Prepared);

impl Preparing {
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|pending| pending.later.is_empty())
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// What is known now; the rest is waited for beside all else that happens.
    fn take(&mut self, id: EffectId, prepared: Eventual<Prepared>) -> Option<Prepared> {
        match prepared {
            Eventual::Known(prepared) => Some(prepared),
            Eventual::Later(later) => {
                let answer = later.map(move |prepared| (id, prepared)).boxed();
                self.0.get_or_insert_default().later.push(answer);
                None
            }
        }
    }

    /// The next answer. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Answer {
        match &mut self.0 {
            Some(waiting) => match waiting.later.next().await {
                Some(answer) => answer,
                None => pending().await,
            },
            None => pending().await,
        }
    }
}

impl<M: Machine + 'static> Driver<M> {
    fn prepare_cx(&self) -> PrepareCx {
        PrepareCx::new().with_cost(self.around.meter.is_budget())
    }

    /// Asks the executor about effects that are wanted, at most so many.
    pub(super) fn prepare(&mut self, most: usize) {
        let (executor, cx) = (self.around.executor.clone(), self.prepare_cx());
        let preparing = &mut self.preparing;
        self.state.prepare(most, |id, effect| preparing.take(id, executor.prepare(effect, &cx)));
    }

    /// Asks about an effect that an earlier process left under way, where something must be known again.
    pub(super) fn prepare_again(&mut self, id: EffectId) -> Result<Prepared, Deferred> {
        if let Some(pending) = &mut self.preparing.0
            && let Entry::Occupied(said) = pending.left.entry(id)
        {
            return if said.get().is_some() { said.remove() } else { None }.ok_or(Deferred::Elsewhere);
        }
        let effect = self.state.running.get(id).and_then(|running| running.effect.as_ref());
        let effect = effect.ok_or(Deferred::Elsewhere)?;
        let asks = matches!(effect, Effect::Ask(_)) && self.around.approver().is_none();
        if !asks && !self.around.reserves(effect) {
            return Ok(Prepared::default());
        }
        let prepared = self.around.executor.prepare(effect, &self.prepare_cx());
        self.preparing.take(id, prepared).ok_or_else(|| {
            self.preparing.0.get_or_insert_default().left.insert(id, None);
            Deferred::Elsewhere
        })
    }

    /// Notes an answer of the executor, and all others that have come by now; as many as a slice has room for.
    pub(super) fn take_prepared(&mut self, first: Answer) {
        self.note_prepared(first);
        for _ in 1..BATCH {
            let Some(next) = self.preparing.next().now_or_never() else { break };
            self.note_prepared(next);
        }
    }

    fn note_prepared(&mut self, (id, prepared): Answer) {
        match self.preparing.0.as_mut().and_then(|pending| pending.left.get_mut(&id)) {
            Some(said) => {
                *said = Some(prepared);
                self.state.look_again([id]);
            }
            None => self.state.prepared(id, prepared),
        }
    }
}
