use std::collections::VecDeque;

use levity_core::{
    CallId, Command, Decision, Effect, EffectId, EffectKind, EffectNote, Entry, Event, EventKind, Input,
    Machine, Outcome, Prepared, Record, RunId, Step, Timestamp,
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
    pub(crate) fingerprint: Fingerprint,
    /// A call that runs alone and waits for a decision; no later tool may overtake it.
    held: Option<CallId>,
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
    /// Taken out by whoever performs it.
    pub(crate) effect: Option<Effect>,
    call: Option<CallId>,
}

impl<M: Machine> State<M> {
    pub(crate) fn new(run: RunId, machine: M) -> Self {
        Self {
            run,
            machine,
            seq: 0,
            opened: Timestamp::default(),
            queue: VecDeque::new(),
            running: Vec::new(),
            paused: false,
            wrapped: false,
            fingerprint: Fingerprint::default(),
            held: None,
            step: Step::new(),
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
        self.take(at, entry, watched, &mut own)?;
        self.seq += 1;
        let wanted = self.step.effects.drain(..);
        self.queue.extend(wanted.map(|(id, effect)| Wanted { id, effect, prepared: None }));
        let Some(told) = told else {
            self.step.events.clear();
            return Ok(());
        };
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
        if (self.seq == 0) != matches!(entry, Entry::Opened { .. }) {
            return Err(self.diverged(None, "a run is opened by its first record, and only by that"));
        }
        match entry {
            Entry::Opened { machine, wrap, .. } => {
                self.opened = at;
                self.wrapped = wrap.is_some();
                told.push(EventKind::RunStarted { machine });
                told.extend(wrap.map(EventKind::LimitNear));
                self.machine.apply(Input::Begin { run: self.run.clone(), wrap }, &mut self.step);
            }
            Entry::Started { effect, note } => self.start(effect, note, watched, told)?,
            Entry::Finished { effect, outcome } => {
                if watched {
                    told.extend(finished_event(effect, &outcome));
                }
                self.finish(effect, &outcome)?;
                self.machine.apply(Input::Finished { effect, outcome }, &mut self.step);
            }
            Entry::Commanded(command) => self.obey(command, told),
            Entry::Wrapped(limit) => {
                self.wrapped = true;
                told.push(EventKind::LimitNear(limit));
                self.machine.apply(Input::Wrap(limit), &mut self.step);
            }
            Entry::Stopped(limit) => {
                told.push(EventKind::LimitPassed(limit));
                self.machine.apply(Input::Stop(limit), &mut self.step);
            }
            Entry::Ended(_) => {
                told.extend(self.machine.ending().cloned().map(|end| EventKind::RunEnded(Box::new(end))));
            }
            _ => return Err(self.diverged(None, "it is of a kind that this version does not know")),
        }
        Ok(())
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
                told.push(EventKind::Said { message: message.clone() });
                self.machine.apply(Input::Say(message), &mut self.step);
            }
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
        let Some(at) = self.queue.iter().position(|wanted| wanted.id == id) else {
            return Err(self.diverged(Some(id), format!("it starts `{}`, which nobody wants", note.name)));
        };
        let Some(Wanted { effect, .. }) = self.queue.remove(at) else {
            return Ok(());
        };
        if effect.kind() != note.kind || effect.name() != &*note.name {
            let what =
                format!("it starts {:?} `{}`, and `{}` is wanted", note.kind, note.name, effect.name());
            return Err(self.diverged(Some(id), what));
        }
        if watched {
            told.extend(started_event(&self.run, id, &effect));
        }
        let call = call_of(&effect).cloned();
        self.running.push(Running { id, note, effect: Some(effect), call });
        Ok(())
    }

    /// Takes the effect off the list of those that run, and keeps track of who holds up whom.
    fn finish(&mut self, id: EffectId, outcome: &Outcome) -> Result<(), Divergence> {
        if let Some(at) = self.running.iter().position(|running| running.id == id) {
            let done = self.running.swap_remove(at);
            match outcome {
                Outcome::NeedsApproval { .. } if done.note.alone => self.held = done.call,
                Outcome::Decision(Decision::Allow | Decision::Edit { .. }) => {}
                _ if done.call.is_some() && done.call == self.held => self.held = None,
                _ => {}
            }
            return Ok(());
        }
        // What a limit or the lack of anybody to ask forbids is finished without having begun.
        match self.queue.iter().position(|wanted| wanted.id == id) {
            Some(at) => {
                let refused = self.queue.remove(at);
                if refused.as_ref().and_then(|refused| call_of(&refused.effect)) == self.held.as_ref() {
                    self.held = None;
                }
                Ok(())
            }
            None => Err(self.diverged(Some(id), "it finishes an effect that never began")),
        }
    }

    /// The effects that may begin now. A tool that runs alone waits for all tools asked for before it,
    /// and all asked for after it wait for it.
    pub(crate) fn startable(&self) -> Vec<EffectId> {
        let tool = |running: &&Running| running.note.kind == EffectKind::Tool;
        let mut some_run = self.running.iter().any(|running| tool(&running));
        let mut alone = self.running.iter().filter(tool).any(|running| running.note.alone);
        let mut may_start = Vec::new();
        for wanted in &self.queue {
            if wanted.effect.kind() != EffectKind::Tool {
                may_start.push(wanted.id);
                continue;
            }
            if self.held.is_some() && call_of(&wanted.effect) != self.held.as_ref() {
                continue;
            }
            let runs_alone = wanted.prepared.as_ref().is_some_and(|prepared| prepared.alone);
            let must_wait = alone || (runs_alone && some_run);
            if !must_wait {
                may_start.push(wanted.id);
                some_run = true;
            }
            alone |= runs_alone;
        }
        may_start
    }

    pub(crate) fn diverged(&self, effect: Option<EffectId>, what: impl Into<String>) -> Divergence {
        Divergence::new(&self.run, self.seq, effect, what)
    }
}

fn call_of(effect: &Effect) -> Option<&CallId> {
    match effect {
        Effect::Tool(run) => Some(&run.call.id),
        Effect::Ask(ask) => Some(&ask.call.id),
        _ => None,
    }
}

fn started_event(run: &RunId, effect: EffectId, what: &Effect) -> Option<EventKind> {
    match what {
        Effect::Model(call) => Some(EventKind::ModelStarted { effect, slot: call.slot.clone() }),
        Effect::Tool(tool) => Some(EventKind::ToolStarted { effect, call: tool.call.clone() }),
        Effect::Ask(ask) => Some(EventKind::Asked(ask.clone())),
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
        Outcome::Refused(limit) => EventKind::Refused { effect, limit: *limit },
        Outcome::Unknown => EventKind::OutcomeUnknown { effect },
        _ => return None,
    })
}
