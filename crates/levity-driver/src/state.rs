use std::collections::{BTreeSet, VecDeque};

use levity_core::{
    Ask, CallId, ControlCommand, Decision, Digest, Divergence, Effect, EffectId, EffectKind,
    EffectNote, Entry, Event, EventKind, Input, Limit, Machine, MachineOutput, Opened, Outcome,
    Permit, Prepared, Record, RunId, Spending, Timestamp,
};

use serde_json::Value;

use crate::budget::Tally;
use crate::fingerprint::Fingerprint;

pub(crate) mod by_id;
mod line;

pub(crate) use by_id::ById;
use line::Line;

/// A run as its records tell it: driving, resuming and replaying all go through [`State::apply`].
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
    /// Whether the machine knows that little is left.
    pub(crate) low: bool,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) ended: bool,
    /// Words of the host since the last call of a model.
    pub(crate) said: usize,
    /// The spending of the run, without effects under way.
    pub(crate) tally: Tally,
    /// The record that opened the run, if snapshots are made; without the first state of its
    /// machine.
    pub(crate) opened_as: Option<Box<Opened>>,
    /// `true` if snapshots are made.
    pub(crate) snapshots: bool,
    /// The calls that have no final outcome yet.
    pub(crate) line: Line,
    /// The executor has not been asked about effects from this number on, nor about those in
    /// `again`.
    unprepared: EffectId,
    again: Vec<EffectId>,
    /// Effects that may begin, as far as is known, oldest first.
    ready: VecDeque<EffectId>,
    /// Effects that wait for the calls before theirs, by the place of their call.
    held: BTreeSet<(u64, EffectId)>,
    /// Effects that have begun in this process and that nobody performs yet.
    begun: VecDeque<EffectId>,
    /// Effects that an earlier process left under way, and that have not been looked at yet.
    left: BTreeSet<EffectId>,
    step: MachineOutput,
}

/// An effect the machine wants and that has not begun.
pub(crate) struct Wanted {
    pub(crate) effect: Effect,
    pub(crate) prepared: Option<Prepared>,
    /// Whether the executor answers it, if it is a question that is about to begin.
    pub(crate) answered: bool,
}

/// An effect that has begun and not finished.
pub(crate) struct Running {
    pub(crate) note: EffectNote,
    /// The number of the record by which it began.
    pub(crate) seq: u64,
    /// Taken out by whoever performs it.
    pub(crate) effect: Option<Effect>,
    /// The host says that it did not take effect.
    pub(crate) cleared: bool,
    /// `true` if the effect had begun before, in a process that is gone.
    pub(crate) again: bool,
    /// Whether the executor answers it, if it is a question.
    pub(crate) answered: bool,
    /// A copy of the effect while somebody performs it, if snapshots are made.
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
        // Mostly one thing is wanted at a time.
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
            said: 0,
            tally: Tally::default(),
            opened_as: None,
            snapshots: false,
            line: Line::default(),
            unprepared: EffectId::new(0),
            again: Vec::new(),
            ready: VecDeque::new(),
            held: BTreeSet::new(),
            begun: VecDeque::new(),
            left: BTreeSet::new(),
            step,
        }
    }

    /// Folds one record in, and tells what is to know about it when `told` is there to take it.
    pub(crate) fn apply(
        &mut self,
        record: Record,
        told: Option<&mut Vec<Event>>,
    ) -> Result<(), Divergence> {
        let Record { seq, at, entry, .. } = record;
        if seq != self.seq {
            return Err(self.diverged(None, format!("its number should be {}", self.seq)));
        }
        let mut own = Vec::new();
        let watched = told.is_some();
        self.step.set_quiet(!watched);
        self.step.set_at(at);
        self.take(at, entry, watched, &mut own)?;
        self.seq += 1;
        for (id, effect) in self.step.effects.drain(..) {
            if let Some(call) = effect.call().filter(|_| effect.is_ordered()) {
                self.line.join(call, holds_up(&effect));
            }
            wanted(
                &mut self.queue,
                &mut self.again,
                self.unprepared,
                id,
                effect,
            );
        }
        let Some(told) = told else { return Ok(()) };
        let events = own.into_iter().chain(self.step.events.drain(..));
        told.extend(events.map(|kind| Event::new(self.run.clone(), seq, at, kind)));
        Ok(())
    }

    fn take(
        &mut self,
        at: Timestamp,
        entry: Entry,
        watched: bool,
        told: &mut Vec<EventKind>,
    ) -> Result<(), Divergence> {
        if (self.seq == 0) != matches!(entry, Entry::Opened(_)) {
            return Err(self.diverged(
                None,
                "a run is opened by its first record, and only by that",
            ));
        }
        if self.ended {
            return Err(self.diverged(None, "the run had ended before it"));
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
                told.push(EventKind::RunStarted { machine });
                told.extend(wrap.map(EventKind::LimitNear));
                low.into_iter().for_each(|limit| self.tell_low(limit, told));
                self.machine.apply(
                    Input::Begin {
                        run: self.run.clone(),
                        wrap,
                    },
                    &mut self.step,
                );
            }
            Entry::Started { effect, note } => self.start(effect, note, watched, told)?,
            Entry::Finished {
                effect,
                outcome,
                spent,
            } => {
                if watched {
                    told.extend(finished_event(effect, &outcome));
                    told.extend(outcome.guarded().iter().map(|guarded| EventKind::Guarded {
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
                    return Err(
                        self.diverged(Some(effect), "it clears an effect that is not under way")
                    );
                }
            },
            Entry::Commanded(command) => self.obey(command, told),
            Entry::Wrapped(limit) => {
                self.wrapped = true;
                told.push(EventKind::LimitNear(limit));
                self.machine.apply(Input::Wrap(limit), &mut self.step);
            }
            Entry::Low(limit) => self.tell_low(limit, told),
            Entry::Stopped(limit) => {
                told.push(EventKind::LimitPassed(limit));
                self.machine.apply(Input::Stop(limit), &mut self.step);
            }
            Entry::Ended(status) => {
                if self.machine.ending().map(|ending| &ending.status) != Some(&status) {
                    return Err(self.diverged(
                        None,
                        "it ends the run, and the machine did not end like this",
                    ));
                }
                self.ended = true;
                told.extend(
                    self.machine
                        .ending()
                        .cloned()
                        .map(|end| EventKind::RunEnded(Box::new(end))),
                );
            }
            _ => return Err(self.diverged(None, "it is of a kind that this version does not know")),
        }
        Ok(())
    }

    fn tell_low(&mut self, limit: Limit, told: &mut Vec<EventKind>) {
        self.low = true;
        told.push(EventKind::LimitLow(limit));
        self.machine.apply(Input::Low(limit), &mut self.step);
    }

    fn obey(&mut self, command: ControlCommand, told: &mut Vec<EventKind>) {
        match command {
            ControlCommand::Pause => {
                self.paused = true;
                told.push(EventKind::Paused);
            }
            ControlCommand::Resume => {
                self.paused = false;
                told.push(EventKind::Resumed);
            }
            ControlCommand::Say { message } => {
                self.said += 1;
                told.push(EventKind::Said {
                    message: message.clone(),
                });
                self.machine.apply(Input::Say(message), &mut self.step);
            }
            ControlCommand::Guarded(intervention) => {
                told.push(EventKind::Guarded {
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
        told: &mut Vec<EventKind>,
    ) -> Result<(), Divergence> {
        let begins = match self.queue.remove(id) {
            Some(wanted) => {
                self.tally.started(&note, None);
                Some((wanted.effect, false, wanted.answered))
            }
            None => self.take_up_again(id, &note),
        };
        let Some((effect, again, answered)) = begins else {
            return Err(self.diverged(
                Some(id),
                format!("it starts `{}`, which nobody wants", note.name),
            ));
        };
        if effect.kind() != note.kind || effect.name() != &*note.name {
            let what = format!(
                "it starts {:?} `{}`, and `{}` is wanted",
                note.kind,
                note.name,
                effect.name()
            );
            return Err(self.diverged(Some(id), what));
        }
        if note.kind == EffectKind::Model {
            self.said = 0;
        }
        if watched {
            told.extend(started_event(&self.run, id, &effect, note.until));
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

    /// An effect that an earlier process left under way, and that begins once more; whether
    /// something may have come of it then; and whether the executor answers it.
    fn take_up_again(&mut self, id: EffectId, note: &EffectNote) -> Option<(Effect, bool, bool)> {
        self.running.get(id)?.effect.as_ref()?;
        let left = self.running.remove(id)?;
        self.tally.started(note, Some(&left.note));
        Some((left.effect?, !left.cleared, left.answered))
    }

    /// Takes the effect off the list of those that run, and its call out of the line once that is
    /// settled. Returns the call if it is not: it leaves the line all the same when nothing more is
    /// wanted for it.
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
            // What policy, a limit or the lack of anybody to ask forbids is finished without having
            // begun.
            self.tally.finished(outcome, spent, None);
            wanted.effect.call().cloned()
        } else {
            return Err(self.diverged(Some(id), "it finishes an effect that never began"));
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

    fn leave_line(&mut self, call: &CallId) {
        let Some(place) = self.line.leave(call) else {
            return;
        };
        // Whatever else is wanted for it waits for nobody any more.
        while let Some((at, id)) = self.held.range((place, EffectId::new(0))..).next().copied()
            && at == place
        {
            self.held.remove(&(at, id));
            self.be_ready(id);
        }
    }

    /// Notes that an effect may begin. They begin in the order in which they were wanted.
    fn be_ready(&mut self, id: EffectId) {
        let in_order = self.ready.back().is_none_or(|last| *last < id);
        let at = if in_order {
            self.ready.len()
        } else {
            self.ready.partition_point(|other| *other < id)
        };
        self.ready.insert(at, id);
    }

    /// The spending of the run so far. Effects under way count in full.
    pub(crate) fn spent(&self) -> Spending {
        self.tally
            .with(self.running.iter().map(|(_, running)| &running.note))
    }

    /// Forgets what an earlier process was told of a wanted effect: whether its call runs alone is
    /// asked again.
    pub(crate) fn rejoin(&mut self, effect: &Effect) {
        if let Some(call) = effect.call().filter(|_| effect.is_ordered()) {
            self.line.set_alone(call, holds_up(effect));
        }
    }

    /// Adds an effect that the machine wants.
    pub(crate) fn want(&mut self, id: EffectId, effect: Effect) {
        wanted(
            &mut self.queue,
            &mut self.again,
            self.unprepared,
            id,
            effect,
        );
    }

    /// Fingerprints of what goes into an effect that is wanted.
    pub(crate) fn inputs(&mut self, id: EffectId) -> Vec<(String, Digest)> {
        match self.queue.get(id) {
            Some(wanted) => self.fingerprint.inputs(&wanted.effect),
            None => Vec::new(),
        }
    }

    /// Ends the folding of what an earlier process has written: what that left under way is to be
    /// looked at.
    pub(crate) fn take_over(&mut self) {
        self.begun.clear();
        self.left = self.left_under_way().into_iter().collect();
    }

    /// Notes what the executor says of effects that it has not been asked about yet, at most so
    /// many. What it says later is noted by [`prepared`](Self::prepared); until then, calls behind
    /// such a call wait.
    pub(crate) fn prepare(
        &mut self,
        most: usize,
        mut prepare: impl FnMut(EffectId, &Effect) -> Option<Prepared>,
    ) {
        let new = self.queue.ids_from(self.unprepared).take(most);
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

    /// Notes what the executor says of an effect, which may begin then, unless it was finished
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
        self.be_ready(id);
    }

    /// Has the executor asked about an effect once more: it did not begin.
    pub(crate) fn prepare_again(&mut self, id: EffectId) {
        self.again.push(id);
    }

    /// The next effect that may begin now; whoever takes it begins it, finishes it, or has it
    /// [prepared again](Self::prepare_again). A call that runs alone waits for all calls before it
    /// in line, and all behind it wait for it. What is not allowed need not wait to be told so.
    pub(crate) fn next_startable(&mut self) -> Option<EffectId> {
        let before = self.line.may_begin_before();
        while let Some((_, id)) = self
            .held
            .first()
            .copied()
            .filter(|(place, _)| *place < before)
        {
            self.held.pop_first();
            self.be_ready(id);
        }
        while let Some(id) = self.ready.pop_front() {
            match self.queue.get(id).map(|wanted| self.waits_at(wanted)) {
                Some(Some(place)) if place >= before => drop(self.held.insert((place, id))),
                Some(_) => return Some(id),
                // It was finished meanwhile.
                None => {}
            }
        }
        None
    }

    /// Whether effects may begin, or may be found to, that were left for later.
    pub(crate) fn has_more(&mut self) -> bool {
        let before = self.line.may_begin_before();
        self.queue.ids_from(self.unprepared).next().is_some()
            || !self.ready.is_empty()
            || self.held.first().is_some_and(|(place, _)| *place < before)
    }

    /// The place in line by which an effect may have to wait.
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

    /// Whether an effect that has begun is a question.
    pub(crate) fn is_question(&self, id: EffectId) -> bool {
        self.running
            .get(id)
            .is_some_and(|running| running.note.kind == EffectKind::Ask)
    }

    /// A question that an earlier process has asked, and this one has not yet.
    pub(crate) fn left_question(&self, id: EffectId) -> Option<&Ask> {
        match self.running.get(id)?.effect.as_ref()? {
            Effect::Ask(ask) => Some(ask),
            _ => None,
        }
    }

    /// The effects that an earlier process left under way.
    pub(crate) fn left_under_way(&self) -> Vec<EffectId> {
        self.running
            .iter()
            .filter(|(_, running)| running.effect.is_some())
            .map(|(id, _)| id)
            .collect()
    }

    /// The next of them that has not been looked at. It begins again, is finished, is [taken
    /// out](Self::take_left), or is [left for later](Self::look_again).
    pub(crate) fn next_left(&mut self) -> Option<EffectId> {
        while let Some(id) = self.left.pop_first() {
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

    /// Has effects looked at again that an earlier process left under way.
    pub(crate) fn look_again(&mut self, ids: impl IntoIterator<Item = EffectId>) {
        self.left.extend(ids);
    }

    /// Whether some of them have not been looked at.
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Takes an effect out that an earlier process left under way.
    pub(crate) fn take_left(&mut self, id: EffectId) -> Option<Effect> {
        self.running.get_mut(id)?.effect.take()
    }

    /// Gives back what [`take_left`](Self::take_left) took.
    pub(crate) fn put_back(&mut self, id: EffectId, effect: Effect) {
        if let Some(running) = self.running.get_mut(id) {
            running.effect = Some(effect);
            self.look_again([id]);
        }
    }

    /// The effects that have begun and not finished, oldest first.
    pub(crate) fn into_under_way(self) -> (M, Vec<(EffectId, Effect)>) {
        let open = self
            .running
            .into_values()
            .filter_map(|(id, running)| Some((id, running.effect?)));
        (self.machine, open.collect())
    }

    /// An effect that has begun and that nobody performs yet.
    pub(crate) fn next_to_launch(&mut self) -> Option<(EffectId, Effect)> {
        while let Some(id) = self.begun.pop_front() {
            if let Some(effect) = self.take_left(id) {
                return Some((id, effect));
            }
        }
        None
    }

    pub(crate) fn diverged(&self, effect: Option<EffectId>, what: impl Into<String>) -> Divergence {
        Divergence::new(&self.run, self.seq, effect, what)
    }
}

/// Returns whether others wait for the call of an effect of which nothing else is known. A question
/// about what is no call yet holds up none.
fn holds_up(effect: &Effect) -> bool {
    !matches!(effect, Effect::Ask(ask) if ask.wanted == levity_core::Wanted::Permission)
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
