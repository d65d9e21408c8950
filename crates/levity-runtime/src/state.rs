use std::collections::{HashSet, VecDeque};

use levity_core::{
    Ask, CallId, Command, Decision, Digest, Effect, EffectId, EffectKind, EffectNote, Entry, Event,
    EventKind, Input, Limit, Machine, Opened, Outcome, Permit, Prepared, Record, RunId, Step, Timestamp,
};

use crate::error::Divergence;
use crate::fingerprint::Fingerprint;

/// A run as its records tell it: driving, resuming and replaying all go through [`State::apply`].
pub(crate) struct State<M> {
    pub(crate) run: RunId,
    pub(crate) machine: M,
    /// The number of the next record.
    pub(crate) seq: u64,
    pub(crate) opened: Timestamp,
    pub(crate) queue: VecDeque<Wanted>,
    pub(crate) running: Vec<Running>,
    pub(crate) paused: bool,
    pub(crate) wrapped: bool,
    /// Whether the machine knows that little is left.
    pub(crate) low: bool,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) ended: bool,
    /// Words of the host since the last call of a model.
    pub(crate) said: usize,
    /// The calls that have no final outcome yet, in the order in which they were first wanted.
    line: Vec<Place>,
    step: Step,
}

/// An effect the machine wants and that has not begun.
pub(crate) struct Wanted {
    pub(crate) id: EffectId,
    pub(crate) effect: Effect,
    pub(crate) prepared: Option<Prepared>,
}

/// An effect that has begun and not finished.
pub(crate) struct Running {
    pub(crate) id: EffectId,
    pub(crate) note: EffectNote,
    /// The number of the record by which it began.
    pub(crate) seq: u64,
    /// Taken out by whoever performs it.
    pub(crate) effect: Option<Effect>,
    /// The host says that it did not take effect.
    pub(crate) cleared: bool,
    /// Whether it had begun before, in a process that is gone.
    pub(crate) again: bool,
    call: Option<CallId>,
}

/// A call's place in line; it keeps it while a person decides.
struct Place {
    call: CallId,
    /// Taken to run alone until the executor says otherwise.
    alone: bool,
}

impl<M: Machine> State<M> {
    pub(crate) fn new(run: RunId, machine: M) -> Self {
        let mut step = Step::new();
        // Mostly one thing is wanted at a time.
        step.effects.reserve_exact(1);
        Self {
            run,
            machine,
            seq: 0,
            opened: Timestamp::default(),
            queue: VecDeque::with_capacity(1),
            running: Vec::with_capacity(1),
            paused: false,
            wrapped: false,
            low: false,
            fingerprint: Fingerprint::default(),
            ended: false,
            said: 0,
            line: Vec::new(),
            step,
        }
    }

    /// Folds one record in, and tells what is to know about it when `told` is there to take it.
    pub(crate) fn apply(&mut self, record: Record, told: Option<&mut Vec<Event>>) -> Result<(), Divergence> {
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
            let call = effect.call().filter(|_| effect.is_ordered());
            let call = call.filter(|call| self.line.iter().all(|place| place.call != **call));
            // A question about what is no call yet holds up none.
            let alone = !matches!(&effect, Effect::Ask(ask) if ask.wanted == levity_core::Wanted::Permission);
            self.line.extend(call.map(|call| Place { call: call.clone(), alone }));
            self.queue.push_back(Wanted { id, effect, prepared: None });
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
            return Err(self.diverged(None, "a run is opened by its first record, and only by that"));
        }
        if self.ended {
            return Err(self.diverged(None, "the run had ended before it"));
        }
        match entry {
            Entry::Opened(Opened { machine, wrap, low, .. }) => {
                self.opened = at;
                self.wrapped = wrap.is_some();
                told.push(EventKind::RunStarted { machine });
                told.extend(wrap.map(EventKind::LimitNear));
                low.into_iter().for_each(|limit| self.tell_low(limit, told));
                self.machine.apply(Input::Begin { run: self.run.clone(), wrap }, &mut self.step);
            }
            Entry::Started { effect, note } => self.start(effect, note, watched, told)?,
            Entry::Finished { effect, outcome, .. } => {
                if watched {
                    told.extend(finished_event(effect, &outcome));
                    told.extend(outcome.guarded().iter().map(|guarded| EventKind::Guarded {
                        effect: Some(effect),
                        intervention: guarded.clone(),
                    }));
                }
                let open = self.finish(effect, &outcome)?;
                self.machine.apply(Input::Finished { effect, outcome }, &mut self.step);
                if let Some(call) =
                    open.filter(|call| self.step.effects.iter().all(|(_, e)| e.call() != Some(call)))
                {
                    self.leave_line(&call);
                }
            }
            Entry::Cleared { effect } => match self.running.iter_mut().find(|running| running.id == effect) {
                Some(running) => running.cleared = true,
                None => return Err(self.diverged(Some(effect), "it clears an effect that is not under way")),
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
                    return Err(self.diverged(None, "it ends the run, and the machine did not end like this"));
                }
                self.ended = true;
                told.extend(self.machine.ending().cloned().map(|end| EventKind::RunEnded(Box::new(end))));
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

    fn obey(&mut self, command: Command, told: &mut Vec<EventKind>) {
        match command {
            Command::Pause => {
                self.paused = true;
                told.push(EventKind::Paused);
            }
            Command::Resume => {
                self.paused = false;
                told.push(EventKind::Resumed);
            }
            Command::Say { message } => {
                self.said += 1;
                told.push(EventKind::Said { message: message.clone() });
                self.machine.apply(Input::Say(message), &mut self.step);
            }
            Command::Guarded(intervention) => told.push(EventKind::Guarded { effect: None, intervention }),
            Command::Cancel { reason } => self.machine.apply(Input::Cancel { reason }, &mut self.step),
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
        let wanted = self.queue.iter().position(|wanted| wanted.id == id);
        let begins = match wanted {
            Some(at) => self.queue.remove(at).map(|wanted| (wanted.effect, false)),
            None => self.take_up_again(id),
        };
        let Some((effect, again)) = begins else {
            return Err(self.diverged(Some(id), format!("it starts `{}`, which nobody wants", note.name)));
        };
        if effect.kind() != note.kind || effect.name() != &*note.name {
            let what =
                format!("it starts {:?} `{}`, and `{}` is wanted", note.kind, note.name, effect.name());
            return Err(self.diverged(Some(id), what));
        }
        if note.kind == EffectKind::Model {
            self.said = 0;
        }
        if watched {
            told.extend(started_event(&self.run, id, &effect, note.until));
        }
        let call = effect.call().cloned();
        if note.kind != EffectKind::Ask {
            let mut places = self.line.iter_mut().filter(|place| Some(&place.call) == call.as_ref());
            places.by_ref().for_each(|place| place.alone = note.alone);
        }
        let effect = Some(effect);
        self.running.push(Running { id, note, seq: self.seq, effect, cleared: false, again, call });
        Ok(())
    }

    /// An effect that an earlier process left under way, and that begins once more; and whether something may
    /// have come of it then.
    fn take_up_again(&mut self, id: EffectId) -> Option<(Effect, bool)> {
        let at = self.running.iter().position(|running| running.id == id && running.effect.is_some())?;
        let left = self.running.swap_remove(at);
        Some((left.effect?, !left.cleared))
    }

    /// Takes the effect off the list of those that run, and its call out of the line once that is settled. Returns the
    /// call if it is not: it leaves the line all the same when nothing more is wanted for it.
    fn finish(&mut self, id: EffectId, outcome: &Outcome) -> Result<Option<CallId>, Divergence> {
        let call = if let Some(at) = self.running.iter().position(|running| running.id == id) {
            self.running.swap_remove(at).call
        } else if let Some(at) = self.queue.iter().position(|wanted| wanted.id == id) {
            // What policy, a limit or the lack of anybody to ask forbids is finished without having begun.
            self.queue.remove(at).and_then(|wanted| wanted.effect.call().cloned())
        } else {
            return Err(self.diverged(Some(id), "it finishes an effect that never began"));
        };
        let settled = !matches!(
            outcome,
            Outcome::NeedsApproval { .. } | Outcome::Decision(Decision::Allow | Decision::Edit { .. })
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
        self.line.retain(|place| place.call != *call);
    }

    /// Fingerprints of what goes into an effect that is wanted.
    pub(crate) fn inputs(&mut self, id: EffectId) -> Vec<(String, Digest)> {
        match self.queue.iter().find(|wanted| wanted.id == id) {
            Some(wanted) => self.fingerprint.inputs(&wanted.effect),
            None => Vec::new(),
        }
    }

    /// Notes what the executor says of the effects that it has not been asked about yet.
    pub(crate) fn prepare(&mut self, prepare: impl Fn(&Effect) -> Prepared) {
        for wanted in self.queue.iter_mut().filter(|wanted| wanted.prepared.is_none()) {
            let prepared = prepare(&wanted.effect);
            let call = wanted.effect.call().filter(|_| wanted.effect.kind() != EffectKind::Ask);
            for place in self.line.iter_mut().filter(|place| Some(&place.call) == call) {
                place.alone = prepared.alone;
            }
            wanted.prepared = Some(prepared);
        }
    }

    /// The effects that may begin now. A call that runs alone waits for all calls before it in line, and
    /// all behind it wait for it. What is not allowed need not wait to be told so.
    pub(crate) fn startable(&self) -> Vec<EffectId> {
        if self.line.is_empty() {
            return self.queue.iter().map(|wanted| wanted.id).collect();
        }
        // All before the first that runs alone, or that one when it is the first of all.
        let free = self.line.iter().position(|place| place.alone).unwrap_or(self.line.len()).max(1);
        let waiting: HashSet<&CallId> = self.line.iter().skip(free).map(|place| &place.call).collect();
        let may_start = |wanted: &&Wanted| {
            let forbidden = !wanted.effect.is_approved()
                && wanted.prepared.as_ref().is_some_and(|prepared| prepared.permit != Permit::Allow);
            let waits = wanted.effect.kind() != EffectKind::Ask
                && wanted.effect.call().is_some_and(|call| waiting.contains(call));
            forbidden || !waits
        };
        self.queue.iter().filter(may_start).map(|wanted| wanted.id).collect()
    }

    /// Whether an effect that has begun is a question.
    pub(crate) fn is_question(&self, id: EffectId) -> bool {
        self.running.iter().any(|running| running.id == id && running.note.kind == EffectKind::Ask)
    }

    /// A question that an earlier process has asked, and this one has not yet.
    pub(crate) fn left_question(&self, id: EffectId) -> Option<&Ask> {
        match self.running.iter().find(|running| running.id == id)?.effect.as_ref()? {
            Effect::Ask(ask) => Some(ask),
            _ => None,
        }
    }

    /// The effects that an earlier process left under way.
    pub(crate) fn left_under_way(&self) -> Vec<EffectId> {
        self.running.iter().filter(|running| running.effect.is_some()).map(|running| running.id).collect()
    }

    /// Takes an effect out that an earlier process left under way.
    pub(crate) fn take_left(&mut self, id: EffectId) -> Option<Effect> {
        self.running.iter_mut().find(|running| running.id == id)?.effect.take()
    }

    /// Gives back what [`take_left`](Self::take_left) took.
    pub(crate) fn put_back(&mut self, id: EffectId, effect: Effect) {
        if let Some(running) = self.running.iter_mut().find(|running| running.id == id) {
            running.effect = Some(effect);
        }
    }

    /// The effects that have begun and not finished, oldest first.
    pub(crate) fn into_under_way(self) -> (M, Vec<(EffectId, Effect)>) {
        let mut open: Vec<_> =
            self.running.into_iter().filter_map(|running| Some((running.id, running.effect?))).collect();
        open.sort_by_key(|(id, _)| *id);
        (self.machine, open)
    }

    /// An effect that has begun, that nobody performs yet and that does not wait for anything.
    pub(crate) fn next_to_launch(&mut self, waiting: &[EffectId]) -> Option<(EffectId, Effect)> {
        let mut ready = self.running.iter_mut().filter(|running| !waiting.contains(&running.id));
        ready.find_map(|running| Some((running.id, running.effect.take()?)))
    }

    pub(crate) fn diverged(&self, effect: Option<EffectId>, what: impl Into<String>) -> Divergence {
        Divergence::new(&self.run, self.seq, effect, what)
    }
}

fn started_event(
    run: &RunId,
    effect: EffectId,
    what: &Effect,
    until: Option<Timestamp>,
) -> Option<EventKind> {
    match what {
        Effect::Model(call) => Some(EventKind::ModelStarted { effect, slot: call.slot.clone() }),
        Effect::Tool(tool) => Some(EventKind::ToolStarted { effect, call: tool.call.clone() }),
        Effect::Ask(ask) => Some(EventKind::Asked(ask.clone())),
        Effect::Wait(_) => until.map(|until| EventKind::WaitStarted { effect, until }),
        Effect::Child(child) => {
            Some(EventKind::ChildStarted { effect, child: run.child(effect), agent: child.agent.clone() })
        }
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
        Outcome::Model(Err(error)) => EventKind::ModelFailed { effect, error: error.clone() },
        Outcome::Tool(result) => EventKind::ToolFinished { effect, result: result.clone() },
        Outcome::Decision(decision) => EventKind::Decided { effect, decision: decision.clone() },
        Outcome::Child(ending) => EventKind::ChildFinished { effect, ending: ending.clone() },
        Outcome::Denied { reason } => EventKind::Denied { effect, reason: reason.clone() },
        Outcome::Woken => EventKind::Woken { effect },
        Outcome::Saved(Ok(())) => EventKind::Saved { effect },
        Outcome::Saved(Err(error)) => EventKind::SaveFailed { effect, error: error.clone() },
        Outcome::Refused(limit) => EventKind::Refused { effect, limit: *limit },
        Outcome::Unknown => EventKind::OutcomeUnknown { effect },
        _ => return None,
    })
}
