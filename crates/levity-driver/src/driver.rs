use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Ask, CancelToken, ControlCommand, Digest, Divergence, Effect, EffectId, EffectKind, Ending,
    Entry, Event, Machine, Opened, Prepared, Record, RunId, RuntimeError, Spending, Timestamp,
    ToolCall, Waiting,
};
use serde_json::Value;

use crate::budget::Budget;
use crate::fork::Fork;
use crate::meter::{Meter, Reservation};
use crate::state::{ById, State};

mod begin;
mod input;

pub use input::EffectResult;

/// The number of messages that a run takes before it calls the model again.
pub const MAX_SAID: usize = 256;

/// Decides what a run does next: the half of a runtime that does no I/O.
///
/// A driver folds records, keeps calls in order, applies limits and policy, reserves and settles
/// budgets, and finds out which effects an earlier process has lost. It has no clock, no executor
/// and no task: its host tells it the time, answers what it asks, performs its [`Action`]s and
/// writes its records.
///
/// # The host's part
/// 1. Make a driver with [`new`](Self::new); for an old run, [`fold`](Self::fold) its records. Then
///    call [`take_over`](Self::take_over) and [`open`](Self::open).
/// 2. Call [`advance`](Self::advance). Write [`records`](Self::records) to the journal, publish
///    [`take_events`](Self::take_events) and call [`written`](Self::written). Only then perform the
///    actions.
/// 3. Wait for something to happen, and report it: [`finished`](Self::finished),
///    [`command`](Self::command), [`decide`](Self::decide), [`stop`](Self::stop). Go on with 2
///    until [`ending`](Self::ending) is there.
/// 4. Perform what [`end`](Self::end) returns, call [`close`](Self::close) and write the records.
///
/// `levity_runtime::Runtime` is one host, on tokio; `levity_test::ManualHost` is another, for
/// tests.
pub struct RunDriver<M> {
    state: State<M>,
    settings: DriverSettings,
    budget: Budget,
    questions: ById<Question>,
    lookups: ById<Effect>,
    preparing: Preparing,
    records: Vec<Record>,
    events: Vec<Event>,
    actions: Vec<Action>,
    watched: bool,
    /// `true` if effects were left for the next call of `advance`.
    more: bool,
    /// `true` if the machine was told to end and did not.
    ignored_end: bool,
    diverged: Option<Divergence>,
}

/// Settings of a driver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DriverSettings {
    /// Counts what the run uses.
    pub meter: Arc<Meter>,
    /// The number of runs above this one.
    pub depth: usize,
    /// Tells a child that belongs to its parent from another run of the same id.
    pub origin: Option<Digest>,
    /// `true` if the journal gives records back. Otherwise the driver skips the work that only a
    /// reader needs.
    pub keeps: bool,
    /// `true` if somebody can answer questions through the host, now or later.
    pub is_reachable: bool,
    /// `true` if a paused run resumes as soon as it is driven, because nobody else can resume it.
    pub resumes: bool,
    /// `true` if the host has an approver, which answers every question.
    pub has_approver: bool,
    /// `true` if [snapshots](RunDriver::snapshot) are made. The driver then keeps a copy of each
    /// effect under way.
    pub snapshots: bool,
}

impl DriverSettings {
    /// Settings of a run at the top, whose records are kept and whose questions somebody may
    /// answer.
    pub fn new(meter: Arc<Meter>) -> Self {
        let (depth, origin, keeps, is_reachable) = (0, None, true, true);
        let (resumes, has_approver, snapshots) = (false, false, false);
        Self {
            meter,
            depth,
            origin,
            keeps,
            is_reachable,
            resumes,
            has_approver,
            snapshots,
        }
    }
}

/// Answers what a driver asks while it begins effects.
pub trait DriverHost {
    /// Asks the executor about an effect before it begins. Returns `None` if the answer comes
    /// later, by [`RunDriver::prepared`].
    fn prepare(&mut self, id: EffectId, effect: &Effect) -> Option<Prepared>;

    /// Returns whether to begin no more effects for now. Asked now and then.
    fn is_late(&mut self) -> bool {
        false
    }
}

/// A task for the host.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Perform an effect and report its outcome by [`RunDriver::finished`]. A question that is
    /// [open to people only](RunDriver::is_open) is no action.
    Perform(EffectId, Effect),
    /// Find out what came of an effect that an earlier process began, and report it as
    /// [`EffectResult::Resolved`].
    Resolve(EffectId, Effect),
    /// Stop asking about an effect: somebody else has answered.
    Withdraw(EffectId),
}

/// The circumstances in which an effect begins.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EffectStart {
    /// The number of the record by which it began.
    pub seq: u64,
    /// `true` if the effect had begun before, in a process that is gone.
    pub again: bool,
    /// The key by which the outside knows it, if not by its own.
    pub key: Option<Arc<str>>,
    /// The end of a wait.
    pub until: Option<Timestamp>,
    /// The most tokens that may be sent.
    pub max_input: Option<u64>,
    /// The most tokens that the reply may have.
    pub max_output: Option<u64>,
}

/// A question that nobody has answered yet.
#[derive(Debug)]
struct Question {
    ask: Ask,
    /// `true` if an approver or the executor is asked, and not only people.
    is_asked: bool,
}

/// Pending answers of the executor about effects.
#[derive(Debug, Default)]
struct Preparing {
    wanted: BTreeSet<EffectId>,
    /// The answers about effects that an earlier process left under way; nothing until they come.
    left: BTreeMap<EffectId, Option<Prepared>>,
}

impl<M: Machine> RunDriver<M> {
    /// A driver of a run of this machine. Feed it the run's records, if there are any, before it
    /// begins.
    pub fn new(run: RunId, machine: M, settings: DriverSettings) -> Self {
        Self::of(State::new(run, machine), settings)
    }

    pub(crate) fn of(mut state: State<M>, settings: DriverSettings) -> Self {
        state.snapshots = settings.snapshots;
        Self {
            state,
            settings,
            budget: Budget::default(),
            questions: ById::default(),
            lookups: ById::default(),
            preparing: Preparing::default(),
            records: Vec::new(),
            events: Vec::new(),
            actions: Vec::new(),
            watched: false,
            more: false,
            ignored_end: false,
            diverged: None,
        }
    }

    /// Folds in a record of an earlier process.
    ///
    /// # Errors
    /// When the record does not fit the machine.
    pub fn fold(&mut self, record: Record) -> Result<(), Divergence> {
        self.state.apply(record, None)
    }

    /// Folds in the records of another run that this one is forked from. They are written as
    /// records of this run.
    ///
    /// # Errors
    /// When a record does not fit the machine.
    pub fn fold_fork(&mut self, fork: Fork, records: Vec<Record>) -> Result<(), Divergence> {
        self.records = fork.fold(&mut self.state, records)?;
        Ok(())
    }

    /// Ends the folding of records: effects that an earlier process left under way are looked at
    /// from now on.
    pub fn take_over(&mut self) {
        self.state.take_over();
    }

    /// Opens a run that has no records yet, and lets a paused run go on if the settings say so.
    /// `setup` is asked for a new run that is kept: fingerprints by name, and whether people's
    /// words are screened.
    ///
    /// # Errors
    /// When the machine breaks its contract.
    pub fn open(
        &mut self,
        now: Timestamp,
        setup: impl FnOnce() -> (Vec<(String, Digest)>, bool),
    ) -> Result<(), Divergence> {
        if self.state.seq == 0 {
            let (keeps, meter) = (self.settings.keeps, &self.settings.meter);
            let state = if keeps {
                self.state.machine.save()
            } else {
                Value::Null
            };
            let mut opened = Opened::new(self.state.machine.kind(), state, *meter.limits());
            (opened.wrap, opened.low, opened.origin) =
                (meter.near(), meter.low(), self.settings.origin);
            if keeps {
                (opened.setup, opened.hears) = setup();
            }
            self.stage(now, vec![Entry::Opened(opened)]);
        }
        if self.state.paused && self.settings.resumes && self.ending().is_none() {
            self.stage(now, vec![Entry::Commanded(ControlCommand::Resume)]);
        }
        self.check()
    }

    pub(crate) fn state(&self) -> &State<M> {
        &self.state
    }

    pub(crate) fn settings(&self) -> &DriverSettings {
        &self.settings
    }

    /// An effect that an earlier process has lost, and that somebody looks for.
    pub(crate) fn looked_up(&self, id: EffectId) -> Option<&Effect> {
        self.lookups.get(id)
    }

    /// The record by which the machine broke its contract, if it did. Nothing of a run that
    /// diverged is written.
    ///
    /// # Errors
    /// When the machine broke its contract.
    pub fn check(&mut self) -> Result<(), Divergence> {
        self.diverged.take().map_or(Ok(()), Err)
    }

    /// Folds entries in, as records of now.
    fn stage(&mut self, now: Timestamp, entries: Vec<Entry>) {
        let mut events = self.watched.then_some(&mut self.events);
        for entry in entries {
            if self.diverged.is_some() {
                return;
            }
            let must_end = matches!(
                entry,
                Entry::Stopped(_) | Entry::Commanded(ControlCommand::Cancel { .. })
            );
            let record = Record::new(self.state.seq, now, entry);
            if self.settings.keeps {
                self.records.push(record.clone());
            }
            self.diverged = self.state.apply(record, events.as_deref_mut()).err();
            self.ignored_end |= must_end && self.state.machine.ending().is_none();
        }
    }

    /// The records that the journal does not have yet.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Notes that the journal has them.
    pub fn written(&mut self) {
        self.records.clear();
    }

    /// Has events made from now on, or not.
    pub fn watch(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// Takes out the events of the records. Publish them once the records are written.
    pub fn take_events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// The events of the records that were not taken out.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.state.run
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.state.machine
    }

    /// The machine, for whoever drives the run no more.
    pub fn into_machine(self) -> M {
        self.state.machine
    }

    /// The ending of the machine, once it has one.
    pub fn ending(&self) -> Option<&Ending> {
        self.state.machine.ending()
    }

    /// Returns whether the last record of the run is there.
    pub fn is_ended(&self) -> bool {
        self.state.ended
    }

    /// Returns whether the run is paused.
    pub fn is_paused(&self) -> bool {
        self.state.paused
    }

    /// The number of the next record.
    pub fn seq(&self) -> u64 {
        self.state.seq
    }

    /// The time at which the run was opened.
    pub fn opened_at(&self) -> Timestamp {
        self.state.opened
    }

    /// The time that the run may still take, if its time is limited.
    pub fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let limit = self.settings.meter.limits().wall_time?;
        Some(limit.saturating_sub(now.since(self.state.opened)))
    }

    /// The spending of the run by its records. Effects under way count in full.
    pub fn spent(&self) -> Spending {
        self.state.spent()
    }

    /// The children that are under way.
    pub fn children(&self) -> impl Iterator<Item = EffectId> {
        let running = self.state.running.iter();
        running
            .filter(|(_, running)| running.note.kind == EffectKind::Child)
            .map(|(id, _)| id)
    }

    /// Returns the circumstances in which an effect has begun.
    pub fn start_of(&self, id: EffectId) -> EffectStart {
        let reservation = self.budget.reservation(id);
        let (max_input, max_output) = (
            reservation.map(Reservation::input),
            reservation.map(Reservation::output),
        );
        self.state
            .running
            .get(id)
            .map_or_else(EffectStart::default, |running| EffectStart {
                seq: running.seq,
                again: running.again,
                key: running.note.key.clone(),
                until: running.note.until,
                max_input,
                max_output,
            })
    }

    /// The questions that wait for a decision.
    pub fn questions(&self) -> impl Iterator<Item = &Ask> {
        self.questions.iter().map(|(_, question)| &question.ask)
    }

    /// Returns whether a question is open to people only: no approver and no executor answers it.
    pub fn is_open(&self, id: EffectId) -> bool {
        self.questions
            .get(id)
            .is_some_and(|question| !question.is_asked)
    }

    /// The call that a question is about.
    pub fn asked(&self, id: EffectId) -> Option<ToolCall> {
        let open = self.questions.get(id).map(|question| &question.ask);
        open.or_else(|| self.state.left_question(id))
            .map(|ask| ask.call.clone())
    }

    /// Returns whether effects may begin that were left for the next call of
    /// [`advance`](Self::advance).
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// The token that is cancelled when there may be room in a budget for effects that wait for it.
    /// Call [`advance`](Self::advance) then.
    pub fn freed(&self) -> Option<&CancelToken> {
        self.budget.freed()
    }

    /// Returns whether the run can never go on: nothing is under way, and the machine wants
    /// nothing.
    pub fn is_stuck(&self) -> bool {
        let idle = self.state.running.is_empty() && self.preparing.wanted.is_empty();
        let idle = idle && !self.budget.has_waiting() && !self.more && !self.state.paused;
        self.ending().is_none() && idle
    }

    /// Returns whether the machine was told to end, and did not. The run cannot be driven on.
    pub fn has_ignored_end(&self) -> bool {
        self.ignored_end
    }

    /// Returns the questions and times that the run waits for, if it does nothing else. `rests`
    /// says so of a child.
    pub fn waits_only(
        &self,
        now: Timestamp,
        rests: impl Fn(EffectId) -> bool,
    ) -> Option<Vec<Waiting>> {
        let state = &self.state;
        let busy = state.paused
            || self.more
            || self.budget.has_waiting()
            || !self.preparing.wanted.is_empty();
        let waits = |(id, running): (EffectId, &crate::state::Running)| match running.note.kind {
            EffectKind::Ask => self.is_open(id),
            // One whose time has come is over as soon as it is looked at.
            EffectKind::Wait => running.note.until > Some(now),
            EffectKind::Child => rests(id),
            _ => false,
        };
        if busy || state.running.is_empty() || !state.running.iter().all(waits) {
            return None;
        }
        let own = state
            .running
            .iter()
            .filter(|(_, running)| running.note.kind != EffectKind::Child);
        Some(
            own.map(|(id, running)| Waiting::new(id, running.note.until))
                .collect(),
        )
    }

    /// Ends what is under way. Returns the children that an earlier process left; they, too, must
    /// write their ends.
    pub fn end(&mut self) -> Vec<Action> {
        self.preparing = Preparing::default();
        self.budget.clear();
        let mut children = Vec::new();
        for id in self.state.left_under_way() {
            if let Some(effect @ Effect::Child(_)) = self.state.take_left(id) {
                children.push(Action::Perform(id, effect));
            }
        }
        children
    }

    /// Writes the end of a run whose machine has ended, and whose children have.
    ///
    /// # Errors
    /// When the machine breaks its contract.
    pub fn close(&mut self, now: Timestamp) -> Result<(), RuntimeError> {
        let Some(status) = self.ending().map(|ending| ending.status.clone()) else {
            return Err(RuntimeError::Stuck(self.state.run.clone()));
        };
        self.stage(now, vec![Entry::Ended(status)]);
        Ok(self.check()?)
    }
}

impl<M> std::fmt::Debug for RunDriver<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunDriver")
            .field("run", &self.state.run)
            .field("seq", &self.state.seq)
            .finish_non_exhaustive()
    }
}
