//! The state of a run as a fold over its records.
//!
//! Effects move through three places: requested (`queue`), in progress (`running`), finished
//! (nowhere: the machine has the outcome). Within the queue they are unprepared, ready or blocked
//! by an earlier call. After a crash, effects in progress are orphaned: their records say that they
//! began, and nobody performs them.
//!
//! Costs per effect do not depend on the number of other effects. A model may request thousands of
//! calls in one reply.

use std::collections::{BTreeSet, VecDeque};

use levity_core::{
    Ask, CallId, ControlCommand, Decision, Digest, Divergence, Effect, EffectId, EffectKind,
    EffectNote, Entry, Event, EventKind, Input, Limit, Machine, MachineOutput, Outcome, Permit,
    Prepared, Record, RunHeader, RunId, Spending, Timestamp,
};

use serde_json::Value;

use crate::budget::Tally;
use crate::fingerprint::Fingerprint;

pub(crate) mod by_id;
mod call_queue;

pub(crate) use by_id::ById;
use call_queue::CallQueue;

/// The state of a run by its records: driving, resuming and replaying all use [`State::apply`].
pub(crate) struct State<M> {
    pub(crate) run: RunId,
    pub(crate) machine: M,
    /// The number of the next record.
    pub(crate) seq: u64,
    pub(crate) opened: Timestamp,
    pub(crate) queue: ById<Wanted>,
    pub(crate) running: ById<Running>,
    pub(crate) paused: bool,
    pub(crate) wrapped: bool,
    /// `true` if the machine was warned that little of a limit remains.
    pub(crate) low: bool,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) ended: bool,
    /// The number of messages from the host since the last model call.
    pub(crate) pending_messages: usize,
    /// The spending of the run, without effects in progress.
    pub(crate) tally: Tally,
    /// The record that opened the run, without the first state of its machine, if snapshots are
    /// taken.
    pub(crate) opened_as: Option<Box<RunHeader>>,
    /// `true` if snapshots are taken.
    pub(crate) snapshots: bool,
    /// The calls without a final outcome.
    pub(crate) line: CallQueue,
    /// The executor has not prepared effects from this number on, nor those in `again`.
    unprepared: EffectId,
    again: Vec<EffectId>,
    /// Effects that may begin, as far as known, oldest first.
    ready: VecDeque<EffectId>,
    /// Effects that wait for earlier calls, by the position of their call.
    blocked: BTreeSet<(u64, EffectId)>,
    /// Effects that have begun in this process and are not performed yet.
    begun: VecDeque<EffectId>,
    /// Orphaned effects: an earlier process left them in progress, and they are not handled yet.
    orphaned: BTreeSet<EffectId>,
    step: MachineOutput,
}

/// An effect that the machine requests and that has not begun.
pub(crate) struct Wanted {
    pub(crate) effect: Effect,
    pub(crate) prepared: Option<Prepared>,
    /// `true` if the effect is a question that the executor answers.
    pub(crate) answered: bool,
}

/// An effect that has begun and not finished.
pub(crate) struct Running {
    pub(crate) note: EffectNote,
    /// The number of the record by which it began.
    pub(crate) seq: u64,
    /// The effect, removed when it is performed.
    pub(crate) effect: Option<Effect>,
    /// `true` if the host reported that it did not take effect.
    pub(crate) cleared: bool,
    /// `true` if the effect had begun before, in a process that has ended.
    pub(crate) again: bool,
    /// `true` if the effect is a question that the executor answers.
    pub(crate) answered: bool,
    /// A copy of the effect while it is performed, if snapshots are taken.
    pub(crate) launched: Option<Box<Effect>>,
    pub(crate) call: Option<CallId>,
}

impl Running {
    pub(crate) fn new(note: EffectNote, seq: u64, effect: Effect) -> Self {
        let call = effect.call().cloned();
        let (cleared, again, answered, launched) = (false, false, false, None);
        Self {
            note,
            seq,
            effect: Some(effect),
            cleared,
            again,
            answered,
            launched,
            call,
        }
    }
}

impl<M: Machine> State<M> {
    pub(crate) fn new(run: RunId, machine: M) -> Self {
        let mut step = MachineOutput::new();
        // Usually one effect is requested at a time.
        step.effects.reserve_exact(1);
        Self {
            run,
            machine,
            seq: 0,
            opened: Timestamp::default(),
            queue: ById::with_capacity(1),
            running: ById::with_capacity(1),
            paused: false,
            wrapped: false,
            low: false,
            fingerprint: Fingerprint::default(),
            ended: false,
            pending_messages: 0,
            tally: Tally::default(),
            opened_as: None,
            snapshots: false,
            line: CallQueue::default(),
            unprepared: EffectId::new(0),
            again: Vec::new(),
            ready: VecDeque::new(),
            blocked: BTreeSet::new(),
            begun: VecDeque::new(),
            orphaned: BTreeSet::new(),
            step,
        }
    }

    /// Folds one record and adds its events to `sink`, if there is one.
    pub(crate) fn apply(
        &mut self,
        record: Record,
        sink: Option<&mut Vec<Event>>,
    ) -> Result<(), Divergence> {
        let Record { seq, at, entry, .. } = record;
        if seq != self.seq {
            return Err(self.diverged(None, format!("the record number should be {}", self.seq)));
        }
        let mut own = Vec::new();
        let watched = sink.is_some();
        self.step.set_quiet(!watched);
        self.step.set_at(at);
        self.apply_entry(at, entry, watched, &mut own)?;
        self.seq += 1;
        for (id, effect) in self.step.effects.drain(..) {
            if let Some(call) = effect.call().filter(|_| effect.is_ordered()) {
                self.line.join(call, blocks_later_calls(&effect));
            }
            wanted(
                &mut self.queue,
                &mut self.again,
                self.unprepared,
                id,
                effect,
            );
        }
        let Some(sink) = sink else { return Ok(()) };
        let events = own.into_iter().chain(self.step.events.drain(..));
        sink.extend(events.map(|kind| Event::new(self.run.clone(), seq, at, kind)));
        Ok(())
    }

    /// A record that does not fit is a divergence, and the state must not be used any further.
    fn apply_entry(
        &mut self,
        at: Timestamp,
        entry: Entry,
        watched: bool,
        sink: &mut Vec<EventKind>,
    ) -> Result<(), Divergence> {
        if (self.seq == 0) != matches!(entry, Entry::Opened(_)) {
            return Err(self.diverged(None, "only the first record can open a run, and it must"));
        }
        if self.ended {
            return Err(self.diverged(None, "the run ended before this record"));
        }
        match entry {
            Entry::Opened(mut opened) => {
                let (machine, wrap, low) = (opened.machine.clone(), opened.wrap, opened.low);
                if self.snapshots {
                    opened.state = Value::Null;
                    self.opened_as = Some(Box::new(opened));
                }
                self.opened = at;
                self.wrapped = wrap.is_some();
                sink.push(EventKind::RunStarted { machine });
                sink.extend(wrap.map(EventKind::LimitNear));
                low.into_iter().for_each(|limit| self.warn_low(limit, sink));
                self.machine.apply(
                    Input::Begin {
                        run: self.run.clone(),
                        wrap,
                    },
                    &mut self.step,
                );
            }
            Entry::Started { effect, note } => self.start(effect, note, watched, sink)?,
            Entry::Finished {
                effect,
                outcome,
                spent,
            } => {
                if watched {
                    sink.extend(file_changes(effect, &outcome));
                    sink.extend(finished_event(effect, &outcome));
                    sink.extend(outcome.guarded().iter().map(|guarded| EventKind::Guarded {
                        effect: Some(effect),
                        intervention: guarded.clone(),
                    }));
                }
                let open = self.finish(effect, &outcome, spent)?;
                self.machine
                    .apply(Input::Finished { effect, outcome }, &mut self.step);
                if let Some(call) = open.filter(|call| {
                    self.step
                        .effects
                        .iter()
                        .all(|(_, e)| e.call() != Some(call))
                }) {
                    self.leave_line(&call);
                }
            }
            Entry::Cleared { effect } => match self.running.get_mut(effect) {
                Some(running) => running.cleared = true,
                None => {
                    return Err(self.diverged(
                        Some(effect),
                        "the record clears an effect that is not in progress",
                    ));
                }
            },
            Entry::Commanded(command) => self.apply_command(command, sink),
            Entry::Wrapped(limit) => {
                self.wrapped = true;
                sink.push(EventKind::LimitNear(limit));
                self.machine.apply(Input::FinishSoon(limit), &mut self.step);
            }
            Entry::Low(limit) => self.warn_low(limit, sink),
            Entry::Stopped(limit) => {
                sink.push(EventKind::LimitPassed(limit));
                self.machine.apply(Input::Stop(limit), &mut self.step);
            }
            Entry::Ended(status) => {
                if self.machine.ending().map(|ending| &ending.status) != Some(&status) {
                    return Err(self.diverged(
                        None,
                        "the record ends the run, but the machine has another ending",
                    ));
                }
                self.ended = true;
                sink.extend(
                    self.machine
                        .ending()
                        .cloned()
                        .map(|end| EventKind::RunEnded(Box::new(end))),
                );
            }
            _ => {
                return Err(self.diverged(None, "this version does not know this kind of record"));
            }
        }
        Ok(())
    }

    fn warn_low(&mut self, limit: Limit, sink: &mut Vec<EventKind>) {
        self.low = true;
        sink.push(EventKind::LimitLow(limit));
        self.machine.apply(Input::Low(limit), &mut self.step);
    }

    fn apply_command(&mut self, command: ControlCommand, sink: &mut Vec<EventKind>) {
        match command {
            ControlCommand::Pause => {
                self.paused = true;
                sink.push(EventKind::Paused);
            }
            ControlCommand::Resume => {
                self.paused = false;
                sink.push(EventKind::Resumed);
            }
            ControlCommand::Say { message } => {
                self.pending_messages += 1;
                sink.push(EventKind::MessageReceived {
                    message: message.clone(),
                });
                self.machine.apply(Input::Say(message), &mut self.step);
            }
            ControlCommand::Guarded(intervention) => {
                sink.push(EventKind::Guarded {
                    effect: None,
                    intervention,
                });
            }
            ControlCommand::Cancel { reason } => {
                self.machine.apply(Input::Cancel { reason }, &mut self.step);
            }
            _ => {}
        }
    }

    fn start(
        &mut self,
        id: EffectId,
        note: EffectNote,
        watched: bool,
        sink: &mut Vec<EventKind>,
    ) -> Result<(), Divergence> {
        let begins = match self.queue.remove(id) {
            Some(wanted) => {
                self.tally.started(&note, None);
                Some((wanted.effect, false, wanted.answered))
            }
            None => self.restart_orphan(id, &note),
        };
        let Some((effect, again, answered)) = begins else {
            return Err(self.diverged(
                Some(id),
                format!(
                    "the record starts `{}`, which the machine did not request",
                    note.name
                ),
            ));
        };
        if effect.kind() != note.kind || effect.name() != &*note.name {
            let what = format!(
                "the record starts {:?} `{}`, but the machine requested `{}`",
                note.kind,
                note.name,
                effect.name()
            );
            return Err(self.diverged(Some(id), what));
        }
        if note.kind == EffectKind::Model {
            self.pending_messages = 0;
        }
        if watched {
            sink.extend(started_event(&self.run, id, &effect, note.until));
        }
        if let Some(call) = effect.call().filter(|_| note.kind != EffectKind::Ask) {
            self.line.set_alone(call, note.alone);
        }
        self.running.insert(
            id,
            Running {
                again,
                answered,
                ..Running::new(note, self.seq, effect)
            },
        );
        self.begun.push_back(id);
        Ok(())
    }

    /// Removes an orphaned effect that begins once more. Returns the effect, whether its first
    /// attempt may have had an outcome, and whether the executor answers it.
    fn restart_orphan(&mut self, id: EffectId, note: &EffectNote) -> Option<(Effect, bool, bool)> {
        self.running.get(id)?.effect.as_ref()?;
        let orphan = self.running.remove(id)?;
        self.tally.started(note, Some(&orphan.note));
        Some((orphan.effect?, !orphan.cleared, orphan.answered))
    }

    /// Removes the effect from those in progress, and its call from the queue once the call is
    /// settled. Otherwise it returns the call, which leaves the queue if nothing more is requested
    /// for it.
    fn finish(
        &mut self,
        id: EffectId,
        outcome: &Outcome,
        spent: Option<Spending>,
    ) -> Result<Option<CallId>, Divergence> {
        let call = if let Some(running) = self.running.remove(id) {
            self.tally.finished(outcome, spent, Some(&running.note));
            running.call
        } else if let Some(wanted) = self.queue.remove(id) {
            // Effects that the policy, a limit or a missing approver forbids finish without having
            // begun.
            self.tally.finished(outcome, spent, None);
            wanted.effect.call().cloned()
        } else {
            return Err(self.diverged(Some(id), "the record finishes an effect that never began"));
        };
        let settled = !matches!(
            outcome,
            Outcome::NeedsApproval { .. }
                | Outcome::Decision(Decision::Allow | Decision::Edit { .. })
        );
        match call {
            Some(call) if settled => {
                self.leave_line(&call);
                Ok(None)
            }
            call => Ok(call),
        }
    }

    /// Effects that only waited for this call become ready.
    fn leave_line(&mut self, call: &CallId) {
        let Some(place) = self.line.leave(call) else {
            return;
        };
        // All other effects of the call no longer wait.
        while let Some((at, id)) = self
            .blocked
            .range((place, EffectId::new(0))..)
            .next()
            .copied()
            && at == place
        {
            self.blocked.remove(&(at, id));
            self.mark_ready(id);
        }
    }

    /// Marks an effect as ready to begin. Effects begin in the order in which they were requested.
    fn mark_ready(&mut self, id: EffectId) {
        let in_order = self.ready.back().is_none_or(|last| *last < id);
        let at = if in_order {
            self.ready.len()
        } else {
            self.ready.partition_point(|other| *other < id)
        };
        self.ready.insert(at, id);
    }

    /// Returns the spending of the run. Effects in progress count in full.
    pub(crate) fn spent(&self) -> Spending {
        self.tally
            .with(self.running.iter().map(|(_, running)| &running.note))
    }

    /// Resets the prepared properties of a requested effect: whether its call runs alone is
    /// determined again.
    pub(crate) fn rejoin(&mut self, effect: &Effect) {
        if let Some(call) = effect.call().filter(|_| effect.is_ordered()) {
            self.line.set_alone(call, blocks_later_calls(effect));
        }
    }

    /// Adds an effect that the machine requests.
    pub(crate) fn want(&mut self, id: EffectId, effect: Effect) {
        wanted(
            &mut self.queue,
            &mut self.again,
            self.unprepared,
            id,
            effect,
        );
    }

    /// Returns the fingerprints of the inputs of a requested effect.
    pub(crate) fn inputs(&mut self, id: EffectId) -> Vec<(String, Digest)> {
        match self.queue.get(id) {
            Some(wanted) => self.fingerprint.inputs(&wanted.effect),
            None => Vec::new(),
        }
    }

    /// Ends the folding of earlier records: effects that are in progress become orphaned.
    pub(crate) fn take_over(&mut self) {
        self.begun.clear();
        self.orphaned = self.orphaned_effects().into_iter().collect();
    }

    /// Prepares effects that the executor has not prepared yet, at most `limit` of them. Later
    /// answers arrive through [`prepared`](Self::prepared); until then, calls after such a call
    /// wait.
    pub(crate) fn prepare(
        &mut self,
        limit: usize,
        mut prepare: impl FnMut(EffectId, &Effect) -> Option<Prepared>,
    ) {
        let new = self.queue.ids_from(self.unprepared).take(limit);
        let ids: Vec<EffectId> = self.again.drain(..).chain(new).collect();
        self.unprepared = ids
            .iter()
            .map(|id| id.next())
            .max()
            .unwrap_or(self.unprepared)
            .max(self.unprepared);
        for id in ids {
            let Some(wanted) = self.queue.get(id) else {
                continue;
            };
            if let Some(prepared) = prepare(id, &wanted.effect) {
                self.prepared(id, prepared);
            }
        }
    }

    /// Records the executor's answer about an effect, which may then begin, unless it has finished
    /// meanwhile.
    pub(crate) fn prepared(&mut self, id: EffectId, prepared: Prepared) {
        let Some(wanted) = self.queue.get_mut(id) else {
            return;
        };
        if let Some(call) = wanted
            .effect
            .call()
            .filter(|_| wanted.effect.kind() != EffectKind::Ask)
        {
            self.line.set_alone(call, prepared.alone);
        }
        wanted.prepared = Some(prepared);
        self.mark_ready(id);
    }

    /// Schedules an effect that did not begin to be prepared again.
    pub(crate) fn prepare_again(&mut self, id: EffectId) {
        self.again.push(id);
    }

    /// Returns the next effect that may begin now. The caller begins it, finishes it, or [prepares
    /// it again](Self::prepare_again). A call that runs alone waits for all earlier calls in the
    /// queue, and all later ones wait for it. A denied effect does not wait.
    pub(crate) fn next_startable(&mut self) -> Option<EffectId> {
        let before = self.line.may_begin_before();
        while let Some((_, id)) = self
            .blocked
            .first()
            .copied()
            .filter(|(place, _)| *place < before)
        {
            self.blocked.pop_first();
            self.mark_ready(id);
        }
        while let Some(id) = self.ready.pop_front() {
            match self.queue.get(id).map(|wanted| self.waits_at(wanted)) {
                Some(Some(place)) if place >= before => drop(self.blocked.insert((place, id))),
                Some(_) => return Some(id),
                // It has finished meanwhile.
                None => {}
            }
        }
        None
    }

    /// Returns `true` if effects may begin, or may turn out to, that were left for later.
    pub(crate) fn has_more(&mut self) -> bool {
        let before = self.line.may_begin_before();
        self.queue.ids_from(self.unprepared).next().is_some()
            || !self.ready.is_empty()
            || self
                .blocked
                .first()
                .is_some_and(|(place, _)| *place < before)
    }

    /// Returns the position in the queue at which an effect may have to wait.
    ///
    /// A question, and an effect that will be denied, wait for nothing: their outcome changes
    /// nothing outside.
    fn waits_at(&self, wanted: &Wanted) -> Option<u64> {
        let forbidden = !wanted.effect.is_approved()
            && wanted
                .prepared
                .as_ref()
                .is_some_and(|prepared| prepared.permit != Permit::Allow);
        if forbidden || wanted.effect.kind() == EffectKind::Ask {
            return None;
        }
        self.line.find(wanted.effect.call()?)
    }

    /// Returns `true` if an effect that has begun is a question.
    pub(crate) fn is_question(&self, id: EffectId) -> bool {
        self.running
            .get(id)
            .is_some_and(|running| running.note.kind == EffectKind::Ask)
    }

    /// Returns a question of an earlier process that this one has not repeated yet.
    pub(crate) fn orphaned_question(&self, id: EffectId) -> Option<&Ask> {
        match self.running.get(id)?.effect.as_ref()? {
            Effect::Ask(ask) => Some(ask),
            _ => None,
        }
    }

    /// Returns the effects that an earlier process left in progress.
    pub(crate) fn orphaned_effects(&self) -> Vec<EffectId> {
        self.running
            .iter()
            .filter(|(_, running)| running.effect.is_some())
            .map(|(id, _)| id)
            .collect()
    }

    /// Returns the next orphaned effect that is not handled yet. The caller begins it again,
    /// finishes it, [takes it out](Self::take_orphan), or [leaves it for
    /// later](Self::requeue_orphans).
    pub(crate) fn next_orphan(&mut self) -> Option<EffectId> {
        while let Some(id) = self.orphaned.pop_first() {
            if self
                .running
                .get(id)
                .is_some_and(|running| running.effect.is_some())
            {
                return Some(id);
            }
        }
        None
    }

    /// Schedules orphaned effects to be handled again.
    pub(crate) fn requeue_orphans(&mut self, ids: impl IntoIterator<Item = EffectId>) {
        self.orphaned.extend(ids);
    }

    /// Returns `true` if some orphaned effects are not handled yet.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphaned.is_empty()
    }

    /// Takes out the effect of an orphan.
    pub(crate) fn take_orphan(&mut self, id: EffectId) -> Option<Effect> {
        self.running.get_mut(id)?.effect.take()
    }

    /// Puts back an effect that [`take_orphan`](Self::take_orphan) returned.
    pub(crate) fn put_back(&mut self, id: EffectId, effect: Effect) {
        if let Some(running) = self.running.get_mut(id) {
            running.effect = Some(effect);
            self.requeue_orphans([id]);
        }
    }

    /// Returns the effects that have begun and not finished, oldest first.
    pub(crate) fn into_in_progress(self) -> (M, Vec<(EffectId, Effect)>) {
        let open = self
            .running
            .into_values()
            .filter_map(|(id, running)| Some((id, running.effect?)));
        (self.machine, open.collect())
    }

    /// Returns an effect that has begun and is not performed yet.
    pub(crate) fn next_to_launch(&mut self) -> Option<(EffectId, Effect)> {
        while let Some(id) = self.begun.pop_front() {
            if let Some(effect) = self.take_orphan(id) {
                return Some((id, effect));
            }
        }
        None
    }

    pub(crate) fn diverged(&self, effect: Option<EffectId>, what: impl Into<String>) -> Divergence {
        Divergence::new(&self.run, self.seq, effect, what)
    }
}

/// Returns `true` if other calls wait for the call of an effect that is not prepared yet. A
/// question about a future call blocks none.
fn blocks_later_calls(effect: &Effect) -> bool {
    !matches!(effect, Effect::Ask(ask) if ask.wanted == levity_core::AskKind::Permission)
}

fn wanted(
    queue: &mut ById<Wanted>,
    again: &mut Vec<EffectId>,
    unprepared: EffectId,
    id: EffectId,
    effect: Effect,
) {
    // Numbers count upwards, unless the machine breaks its contract.
    if id < unprepared {
        again.push(id);
    }
    queue.insert(
        id,
        Wanted {
            effect,
            prepared: None,
            answered: false,
        },
    );
}

fn started_event(
    run: &RunId,
    effect: EffectId,
    what: &Effect,
    until: Option<Timestamp>,
) -> Option<EventKind> {
    match what {
        Effect::Model(call) => Some(EventKind::ModelStarted {
            effect,
            slot: call.slot.clone(),
        }),
        Effect::Tool(tool) => Some(EventKind::ToolStarted {
            effect,
            call: tool.call.clone(),
        }),
        Effect::Ask(ask) => Some(EventKind::Asked(ask.clone())),
        Effect::Wait(_) => until.map(|until| EventKind::WaitStarted { effect, until }),
        Effect::Child(child) => Some(EventKind::ChildStarted {
            effect,
            child: run.child(effect),
            agent: child.agent.clone(),
        }),
        _ => None,
    }
}

/// Returns an event for each file that a tool call changed.
fn file_changes(effect: EffectId, outcome: &Outcome) -> impl Iterator<Item = EventKind> + '_ {
    let changes = outcome.tool_result().into_iter().flat_map(|result| {
        let call = &result.call;
        result.changes.iter().map(move |change| (call, change))
    });
    changes.map(move |(call, change)| EventKind::FileChanged {
        effect,
        call: call.clone(),
        change: change.clone(),
    })
}

fn finished_event(effect: EffectId, outcome: &Outcome) -> Option<EventKind> {
    Some(match outcome {
        Outcome::Model(Ok(response)) => EventKind::ModelFinished {
            effect,
            message: response.message.clone(),
            finish: response.finish.clone(),
            usage: response.usage,
        },
        Outcome::Model(Err(error)) => EventKind::ModelFailed {
            effect,
            error: error.clone(),
        },
        Outcome::Tool(result) => EventKind::ToolFinished {
            effect,
            result: result.clone(),
        },
        Outcome::Decision(decision) => EventKind::Decided {
            effect,
            decision: decision.clone(),
        },
        Outcome::Child(ending) => EventKind::ChildFinished {
            effect,
            ending: ending.clone(),
        },
        Outcome::Denied { reason } => EventKind::Denied {
            effect,
            reason: reason.clone(),
        },
        Outcome::Woken => EventKind::Woken { effect },
        Outcome::Saved(Ok(())) => EventKind::Saved { effect },
        Outcome::Saved(Err(error)) => EventKind::SaveFailed {
            effect,
            error: error.clone(),
        },
        Outcome::Refused(limit) => EventKind::Refused {
            effect,
            limit: *limit,
        },
        Outcome::Unknown => EventKind::OutcomeUnknown { effect },
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
