//! Effects that begin, and orphaned effects that an earlier process left in progress.
//!
//! An effect passes several checks before it begins, in this order: an answerable question, the
//! permit, the depth of children, the budget, and the counts of calls. The first one that fails
//! gives the outcome, and the effect finishes without having begun. Only a missing budget that
//! other calls still hold makes it wait.

use levity_core::{
    Decision, Divergence, Effect, EffectClass, EffectId, EffectKind, EffectNote, Entry, Limit,
    Machine, Outcome, Permit, Prepared, Timestamp,
};

use super::{Action, DriverHost, Question, RunDriver};
use crate::budget::reserves;

/// The reason why an orphaned effect does not begin now.
///
/// An orphan that waits for budget is `Again`; one that waits for the executor or for a resolution
/// is `Elsewhere`.
enum Deferred {
    /// The effect is checked again later.
    Again,
    /// The effect waits for an answer, or it is finished.
    Elsewhere,
}

impl<M: Machine> RunDriver<M> {
    /// Begins the effects that may begin, at most `room` of them, and returns the actions of the
    /// host. Write the records first.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    pub fn advance(
        &mut self,
        now: Timestamp,
        mut room: usize,
        host: &mut dyn DriverHost,
    ) -> Result<Vec<Action>, Divergence> {
        self.check()?;
        self.budget.forget_freed();
        while room > 0 && self.may_begin() {
            self.prepare(room, host);
            self.budget.reset();
            // Most runs start one effect at a time.
            let mut entries = Vec::with_capacity(1);
            self.adopt_orphans(room, &mut entries, host);
            while entries.len() < room
                && let Some(id) = self.state.next_startable()
            {
                match self.admit(now, id) {
                    Some(entry) => entries.push(entry),
                    None => self.state.prepare_again(id),
                }
                // Checking the clock once for several effects is enough.
                if entries.len() % 8 == 7 && host.is_late() {
                    room = entries.len();
                }
            }
            if entries.is_empty() {
                break;
            }
            room = room.saturating_sub(entries.len());
            self.actions.reserve_exact(entries.len());
            self.stage(now, entries);
            self.check()?;
            while let Some((id, effect)) = self.state.next_to_launch() {
                self.launch(id, effect);
            }
        }
        self.more =
            self.may_begin() && (self.state.has_more() || (room == 0 && self.state.has_orphans()));
        Ok(std::mem::take(&mut self.actions))
    }

    fn may_begin(&self) -> bool {
        !self.state.paused && self.ending().is_none()
    }

    /// Repeats the questions of an earlier process; also while paused, because an answer begins
    /// nothing.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    pub fn ask_again(
        &mut self,
        now: Timestamp,
        host: &mut dyn DriverHost,
    ) -> Result<Vec<Action>, Divergence> {
        let asks = self
            .state
            .orphaned_effects()
            .into_iter()
            .filter(|id| self.state.is_question(*id));
        let asks: Vec<EffectId> = asks.collect();
        let picked = asks
            .into_iter()
            .filter_map(|id| Some((id, self.adopt_orphan(id, host).ok()?)));
        let (asks, entries): (Vec<EffectId>, Vec<Entry>) = picked.unzip();
        self.stage(now, entries);
        self.check()?;
        for id in asks {
            if let Some(effect) = self.state.take_orphan(id) {
                self.launch(id, effect);
            }
        }
        Ok(std::mem::take(&mut self.actions))
    }

    /// Asks the host to prepare requested effects, at most `limit` of them.
    fn prepare(&mut self, limit: usize, host: &mut dyn DriverHost) {
        let wanted = &mut self.preparing.wanted;
        self.state.prepare(limit, |id, effect| {
            let prepared = host.prepare(id, effect);
            if prepared.is_none() {
                wanted.insert(id);
            }
            prepared
        });
    }

    /// Records the executor's answer about an effect that the host could not answer immediately.
    pub fn prepared(&mut self, id: EffectId, prepared: Prepared) {
        self.preparing.wanted.remove(&id);
        match self.preparing.orphaned.get_mut(&id) {
            Some(answer) => {
                *answer = Some(prepared);
                self.state.requeue_orphans([id]);
            }
            None => self.state.prepared(id, prepared),
        }
    }

    fn adopt_orphans(&mut self, room: usize, entries: &mut Vec<Entry>, host: &mut dyn DriverHost) {
        let mut later = Vec::new();
        while entries.len() < room
            && let Some(id) = self.state.next_orphan()
        {
            match self.adopt_orphan(id, host) {
                Ok(entry) => entries.push(entry),
                Err(Deferred::Again) => later.push(id),
                Err(Deferred::Elsewhere) => {}
            }
        }
        self.state.requeue_orphans(later);
    }

    /// Returns the entry for an orphaned effect. The effect begins once more if it may be repeated;
    /// otherwise its outcome may be determined.
    fn adopt_orphan(&mut self, id: EffectId, host: &mut dyn DriverHost) -> Result<Entry, Deferred> {
        if self.is_lost(id) {
            if let Some(effect) = self.state.take_orphan(id) {
                // The effect is set aside, because effects stored with the others in progress are
                // performed.
                self.lookups.insert(id, effect.clone());
                self.actions.push(Action::Resolve(id, effect));
            }
            return Err(Deferred::Elsewhere);
        }
        let prepared = self.prepare_again(id, host)?;
        let is_alone = self.is_alone(prepared.answered);
        let running = self.state.running.get_mut(id).ok_or(Deferred::Elsewhere)?;
        running.answered = prepared.answered;
        let (effect, mut note) = (
            running.effect.as_ref().ok_or(Deferred::Elsewhere)?,
            running.note.clone(),
        );
        if is_alone && matches!(effect, Effect::Ask(_)) {
            return Ok(Entry::finished(id, deny_unanswerable()));
        }
        let cost = prepared.cost.map(|cost| *cost);
        match self
            .budget
            .take(&self.settings.meter, id, effect, cost, &mut note)
        {
            Ok(()) => Ok(Entry::Started { effect: id, note }),
            // A limit prevents undoing or repeating it, so its effect may still exist.
            Err(Some(_)) if note.class != EffectClass::ReadOnly => {
                Ok(Entry::finished(id, Outcome::Unknown))
            }
            Err(outcome) => Ok(Entry::finished(id, *outcome.ok_or(Deferred::Again)?)),
        }
    }

    /// Prepares an orphaned effect again if the executor's answer is needed.
    fn prepare_again(
        &mut self,
        id: EffectId,
        host: &mut dyn DriverHost,
    ) -> Result<Prepared, Deferred> {
        if let Some(answer) = self.preparing.orphaned.get(&id) {
            let is_known = answer.is_some();
            let answer = is_known
                .then(|| self.preparing.orphaned.remove(&id))
                .flatten()
                .flatten();
            return answer.ok_or(Deferred::Elsewhere);
        }
        let effect = self
            .state
            .running
            .get(id)
            .and_then(|running| running.effect.as_ref());
        let effect = effect.ok_or(Deferred::Elsewhere)?;
        let asks = matches!(effect, Effect::Ask(_)) && !self.settings.has_approver;
        if !asks && !reserves(&self.settings.meter, effect) {
            return Ok(Prepared::default());
        }
        host.prepare(id, effect).ok_or_else(|| {
            self.preparing.wanted.insert(id);
            self.preparing.orphaned.insert(id, None);
            Deferred::Elsewhere
        })
    }

    /// Returns `true` if no one can answer a question.
    fn is_alone(&self, answered: bool) -> bool {
        !self.settings.is_reachable && !self.settings.has_approver && !answered
    }

    /// Returns `true` if the outcome of an effect in progress is unknown, and is not being
    /// determined.
    pub(super) fn is_lost(&self, id: EffectId) -> bool {
        self.state.running.get(id).is_some_and(|running| {
            let lost =
                |effect: &Effect| !running.cleared && !may_repeat(effect, running.note.class);
            running.effect.as_ref().is_some_and(lost)
        })
    }

    /// Returns the entry by which a requested effect begins, or finishes without having begun.
    ///
    /// The permit is checked before the budget, so that a denied call never reserves money.
    fn admit(&mut self, now: Timestamp, id: EffectId) -> Option<Entry> {
        let refused = |outcome| Some(Entry::finished(id, outcome));
        let (is_reachable, has_approver) = (self.settings.is_reachable, self.settings.has_approver);
        let wanted = self.state.queue.get_mut(id)?;
        let effect = &wanted.effect;
        let prepared = wanted.prepared.take().unwrap_or_default();
        wanted.answered = prepared.answered;
        let is_alone = !is_reachable && !has_approver && !prepared.answered;
        if is_alone && matches!(effect, Effect::Ask(_)) {
            return refused(deny_unanswerable());
        }
        match prepared.permit {
            Permit::Ask { reason } if !effect.is_approved() => {
                return refused(Outcome::NeedsApproval { reason });
            }
            Permit::Deny { reason } => return refused(Outcome::Denied { reason }),
            _ => {}
        }
        let meter = &self.settings.meter;
        if effect.kind() == EffectKind::Child && self.settings.depth >= meter.depth() {
            return refused(Outcome::Refused(Limit::Depth));
        }
        let mut note = EffectNote::new(effect.kind(), effect.name(), prepared.class);
        note.alone = prepared.alone;
        note.call = effect.call().cloned();
        if let Effect::Wait(wait) = effect {
            note.until = Some(now.after(wait.time));
        }
        let cost = prepared.cost.map(|cost| *cost);
        if let Err(outcome) = self.budget.take(meter, id, effect, cost, &mut note) {
            return refused(*outcome?);
        }
        if self.settings.keeps {
            note.inputs = self.state.fingerprint.inputs(effect);
            note.inputs.extend(prepared.inputs);
        }
        Some(Entry::Started { effect: id, note })
    }

    /// Creates the action for an effect whose beginning is recorded.
    fn launch(&mut self, id: EffectId, effect: Effect) {
        if self.settings.snapshots
            && let Some(running) = self.state.running.get_mut(id)
        {
            running.launched = Some(Box::new(effect.clone()));
        }
        if let Effect::Ask(ask) = &effect {
            let answered = self
                .state
                .running
                .get(id)
                .is_some_and(|running| running.answered);
            let is_asked = self.settings.has_approver || answered;
            self.questions.insert(
                id,
                Question {
                    ask: ask.clone(),
                    is_asked,
                },
            );
            if !is_asked {
                return;
            }
        }
        self.actions.push(Action::Perform(id, effect));
    }
}

/// Returns `true` if an effect that began in an earlier process may be performed now. Repeating a
/// question or resuming a child repeats no effect, and the executor undoes compensable effects
/// first.
fn may_repeat(effect: &Effect, class: EffectClass) -> bool {
    match effect {
        Effect::Ask(_)
        | Effect::Child(_)
        | Effect::Model(_)
        | Effect::Wait(_)
        | Effect::Save(_) => true,
        _ => class.may_repeat() || class.needs_undo(),
    }
}

fn deny_unanswerable() -> Outcome {
    let reason =
        "no one can be asked for approval: the run was started without a handle or an approver";
    Outcome::Decision(Decision::deny(reason))
}
