//! The driver of a run, without I/O.
//!
//! All changes of a run pass through [`RunDriver::stage`]: it turns an entry into a record and
//! folds that record into the state, exactly as a resumed run folds it later. Nothing changes the
//! state beside it. So a live run and its replay cannot differ by construction, except if the
//! machine itself is not deterministic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Ask, CancelToken, ControlCommand, Digest, Divergence, Effect, EffectId, EffectKind, Ending,
    Entry, Event, Machine, Prepared, Record, RunHeader, RunId, RuntimeError, Spending, Timestamp,
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

/// The maximum number of pending messages before a run calls the model again.
///
/// Further messages are refused with [`ControlError::Full`](levity_core::ControlError::Full).
pub const MAX_PENDING_MESSAGES: usize = 256;

/// Decides what a run does next: the half of a runtime that does no I/O.
///
/// A driver folds records, keeps calls in order, applies limits and policy, reserves and settles
/// budgets, and detects effects that an earlier process lost. It has no clock, executor or task:
/// its host provides the time, answers its questions, performs its [`Action`]s and writes its
/// records.
///
/// # Duties of the host
/// 1. Create a driver with [`new`](Self::new); for an existing run, [`fold`](Self::fold) its
///    records. Then call [`take_over`](Self::take_over) and [`open`](Self::open).
/// 2. Call [`advance`](Self::advance). Write [`records`](Self::records) to the journal, publish
///    [`take_events`](Self::take_events) and call [`written`](Self::written). Only then perform the
///    actions.
/// 3. Wait for results or commands, and report them: [`finished`](Self::finished),
///    [`command`](Self::command), [`decide`](Self::decide), [`stop`](Self::stop). Repeat step 2
///    until there is an [`ending`](Self::ending).
/// 4. Perform the actions that [`end`](Self::end) returns, call [`close`](Self::close) and write
///    the records.
///
/// `levity_runtime::Runtime` is a host on tokio; `levity_test::ManualHost` is a host for tests.
///
/// # Promises
/// - No action is returned before its record is among [`records`](Self::records).
/// - Each effect gets one outcome; later ones are ignored.
/// - An effect that an earlier process began is repeated only if its class allows that.
/// - A paused run starts nothing new, but accepts outcomes, decisions and messages.
///
/// The page of the [crate](crate) has a complete host as an example.
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
    /// `true` if the machine did not end although it was required to.
    ignored_end: bool,
    diverged: Option<Divergence>,
}

/// The settings of a driver.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::Limits;
/// use levity_driver::{DriverSettings, Meter};
///
/// let mut settings = DriverSettings::new(Arc::new(Meter::new(Limits::new(), None)));
/// settings.has_approver = true; // every question becomes an action
/// assert!(settings.keeps && settings.depth == 0);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DriverSettings {
    /// The meter that counts the spending of the run.
    pub meter: Arc<Meter>,
    /// The number of ancestors of this run.
    pub depth: usize,
    /// The fingerprint that distinguishes a child of its parent from another run of the same id.
    pub origin: Option<Digest>,
    /// `true` if the journal returns records. Otherwise the driver skips the work that only a
    /// reader needs.
    pub keeps: bool,
    /// `true` if questions can be answered through the host, now or later.
    pub is_reachable: bool,
    /// `true` if a paused run resumes as soon as it is driven, because nothing else can resume it.
    pub resumes: bool,
    /// `true` if the host has an approver, which answers every question.
    pub has_approver: bool,
    /// `true` if [snapshots](RunDriver::snapshot) are taken. The driver then retains a copy of each
    /// effect in progress.
    pub snapshots: bool,
}

impl DriverSettings {
    /// Creates the settings of a root run whose records are stored and whose questions can be
    /// answered.
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

/// Answers the questions of a driver while it begins effects.
///
/// # Contract
/// - `prepare` answers immediately, or returns `None` and reports the answer once by
///   [`RunDriver::prepared`].
/// - `prepare` may be called again for the same effect, if it could not begin or belongs to an
///   earlier process.
/// - `is_late` is cheap. After `true`, [`RunDriver::advance`] returns soon, and
///   [`RunDriver::has_more`] reports the rest.
///
/// ```
/// use levity_core::{Effect, EffectClass, EffectId, Permit, Prepared};
/// use levity_driver::DriverHost;
///
/// /// Lets everything run, but asks before a tool is called.
/// struct Careful;
///
/// impl DriverHost for Careful {
///     fn prepare(&mut self, _: EffectId, effect: &Effect) -> Option<Prepared> {
///         Some(match effect {
///             Effect::Tool(_) => Prepared::default().permit(Permit::ask("it calls a tool")),
///             _ => Prepared::new(EffectClass::Idempotent),
///         })
///     }
/// }
/// ```
pub trait DriverHost {
    /// Asks the executor to prepare an effect before it begins. Returns `None` if the answer
    /// follows later through [`RunDriver::prepared`].
    fn prepare(&mut self, id: EffectId, effect: &Effect) -> Option<Prepared>;

    /// Returns `true` to begin no more effects for now. The driver calls it occasionally.
    fn is_late(&mut self) -> bool {
        false
    }
}

/// A task for the host.
///
/// ```
/// use std::time::Duration;
///
/// use levity_core::{Effect, EffectId, Wait};
/// use levity_driver::Action;
///
/// let action = Action::Perform(EffectId::new(0), Effect::Wait(Wait::new(Duration::from_secs(5))));
/// assert!(matches!(action, Action::Perform(id, _) if id.get() == 0));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Perform an effect and report its outcome with [`RunDriver::finished`]. A question that is
    /// [open to people only](RunDriver::is_open) is not an action.
    Perform(EffectId, Effect),
    /// Determine the outcome of an effect that an earlier process began, and report it as
    /// [`EffectResult::Resolved`].
    Resolve(EffectId, Effect),
    /// Withdraw the question of an effect, because it was answered elsewhere.
    Withdraw(EffectId),
}

/// The circumstances in which an effect begins.
///
/// The host copies these values into the context of the executor.
///
/// ```
/// # use levity_driver::EffectStart;
/// let start = EffectStart::default();
/// assert!(!start.again && start.max_output.is_none(), "no earlier process, no budget");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EffectStart {
    /// The number of the record by which it began.
    pub seq: u64,
    /// `true` if the effect had begun before, in a process that has ended.
    pub again: bool,
    /// The idempotency key that external services know, if it is not the effect's own.
    pub key: Option<Arc<str>>,
    /// The time at which a wait ends.
    pub until: Option<Timestamp>,
    /// The maximum number of tokens to send.
    pub max_input: Option<u64>,
    /// The maximum number of tokens of the reply.
    pub max_output: Option<u64>,
}

/// A question that has no answer yet.
#[derive(Debug)]
struct Question {
    ask: Ask,
    /// `true` if an approver or the executor is asked, and not only people.
    is_asked: bool,
}

/// The pending answers of the executor about effects.
///
/// `wanted` has every effect without an answer. An orphaned effect is in `orphaned` as well,
/// because its answer goes to another place.
#[derive(Debug, Default)]
struct Preparing {
    wanted: BTreeSet<EffectId>,
    /// The answers about orphaned effects; `None` until they arrive.
    orphaned: BTreeMap<EffectId, Option<Prepared>>,
}

impl<M: Machine> RunDriver<M> {
    /// Creates a driver of a run of this machine. Feed it the run's records, if any, before it
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

    /// Folds a record of an earlier process.
    ///
    /// # Errors
    /// Returns an error if the record does not match the machine.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use levity_core::{
    ///     ControlCommand, Ending, Entry, Input, Limits, Machine, MachineKind, MachineOutput,
    ///     Record, Timestamp,
    /// };
    /// use levity_driver::{DriverSettings, Meter, RunDriver};
    /// # struct Idle;
    /// # impl Machine for Idle {
    /// #     fn kind(&self) -> MachineKind { MachineKind::new("idle", 1) }
    /// #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
    /// #     fn apply(&mut self, _: Input, _: &mut MachineOutput) {}
    /// #     fn ending(&self) -> Option<&Ending> { None }
    /// # }
    /// let settings = DriverSettings::new(Arc::new(Meter::new(Limits::new(), None)));
    /// let mut driver = RunDriver::new("r1".into(), Idle, settings);
    /// let pause = Entry::Commanded(ControlCommand::Pause);
    /// let error = driver.fold(Record::new(0, Timestamp::default(), pause)).unwrap_err();
    /// assert!(error.to_string().contains("only the first record can open a run"));
    /// ```
    pub fn fold(&mut self, record: Record) -> Result<(), Divergence> {
        self.state.apply(record, None)
    }

    /// Folds the records of the run that this one is forked from. They are written as records of
    /// this run.
    ///
    /// # Errors
    /// Returns an error if a record does not match the machine.
    pub fn fold_fork(&mut self, fork: Fork, records: Vec<Record>) -> Result<(), Divergence> {
        self.records = fork.fold(&mut self.state, records)?;
        Ok(())
    }

    /// Ends the folding of records: from now on the driver handles the effects that an earlier
    /// process left in progress.
    pub fn take_over(&mut self) {
        self.state.take_over();
    }

    /// Opens a run without records, and resumes a paused run if the settings require it. The driver
    /// calls `setup` for a new run that is stored. It returns fingerprints by name, and whether
    /// messages from people are screened.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use levity_core::{Ending, Input, Limits, Machine, MachineKind, MachineOutput, Timestamp};
    /// # use levity_driver::{DriverSettings, Meter, RunDriver};
    /// # struct Idle;
    /// # impl Machine for Idle {
    /// #     fn kind(&self) -> MachineKind { MachineKind::new("idle", 1) }
    /// #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
    /// #     fn apply(&mut self, _: Input, _: &mut MachineOutput) {}
    /// #     fn ending(&self) -> Option<&Ending> { None }
    /// # }
    /// let settings = DriverSettings::new(Arc::new(Meter::new(Limits::new(), None)));
    /// let mut driver = RunDriver::new("r1".into(), Idle, settings);
    /// driver.take_over();
    /// driver.open(Timestamp::from_millis(1_000), || (Vec::new(), false))?;
    /// assert_eq!(driver.records().len(), 1); // write it to the journal
    /// assert_eq!(driver.opened_at(), Timestamp::from_millis(1_000));
    /// # Ok::<(), levity_core::Divergence>(())
    /// ```
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
            let mut opened = RunHeader::new(self.state.machine.kind(), state, *meter.limits());
            (opened.wrap, opened.low, opened.origin) =
                (meter.almost_reached(), meter.low(), self.settings.origin);
            if keeps {
                (opened.setup, opened.screens_input) = setup();
            }
            self.stage_one(now, Entry::Opened(opened));
        }
        if self.state.paused && self.settings.resumes && self.ending().is_none() {
            self.stage_one(now, Entry::Commanded(ControlCommand::Resume));
        }
        self.check()
    }

    pub(crate) fn state(&self) -> &State<M> {
        &self.state
    }

    pub(crate) fn settings(&self) -> &DriverSettings {
        &self.settings
    }

    /// Returns an interrupted effect whose outcome is being determined.
    pub(crate) fn pending_lookup(&self, id: EffectId) -> Option<&Effect> {
        self.lookups.get(id)
    }

    /// Returns the divergence if the machine broke its contract. Nothing of a run that diverged is
    /// written.
    ///
    /// # Errors
    /// Returns an error if the machine broke its contract.
    pub fn check(&mut self) -> Result<(), Divergence> {
        self.diverged.take().map_or(Ok(()), Err)
    }

    /// Folds entries as records of the current time.
    ///
    /// Entries after a divergence are dropped: the machine can no longer be trusted, and nothing of
    /// the run is written.
    fn stage(&mut self, now: Timestamp, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            self.stage_one(now, entry);
        }
    }

    /// Stages a single entry, without the copies that a list of large entries costs.
    fn stage_one(&mut self, now: Timestamp, entry: Entry) {
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
        let events = self.watched.then_some(&mut self.events);
        self.diverged = self.state.apply(record, events).err();
        self.ignored_end |= must_end && self.state.machine.ending().is_none();
    }

    /// Returns the records that the journal does not have yet.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Marks these records as written to the journal.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use levity_core::{Ending, Input, Limits, Machine, MachineKind, MachineOutput, Timestamp};
    /// # use levity_driver::{DriverSettings, Meter, RunDriver};
    /// # struct Idle;
    /// # impl Machine for Idle {
    /// #     fn kind(&self) -> MachineKind { MachineKind::new("idle", 1) }
    /// #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
    /// #     fn apply(&mut self, _: Input, _: &mut MachineOutput) {}
    /// #     fn ending(&self) -> Option<&Ending> { None }
    /// # }
    /// # let settings = DriverSettings::new(Arc::new(Meter::new(Limits::new(), None)));
    /// # let mut driver = RunDriver::new("r1".into(), Idle, settings);
    /// # driver.take_over();
    /// driver.open(Timestamp::default(), || (Vec::new(), false))?;
    /// let mut journal = driver.records().to_vec();
    /// driver.written();
    /// assert_eq!((journal.len(), driver.records().len(), driver.seq()), (1, 0, 1));
    /// # Ok::<(), levity_core::Divergence>(())
    /// ```
    pub fn written(&mut self) {
        self.records.clear();
    }

    /// Sets whether the driver creates events.
    pub fn watch(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// Removes and returns the events of the records. Publish them once the records are written.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use levity_core::{Ending, Input, Limits, Machine, MachineKind, MachineOutput, Timestamp};
    /// # use levity_driver::{DriverSettings, Meter, RunDriver};
    /// # struct Idle;
    /// # impl Machine for Idle {
    /// #     fn kind(&self) -> MachineKind { MachineKind::new("idle", 1) }
    /// #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
    /// #     fn apply(&mut self, _: Input, _: &mut MachineOutput) {}
    /// #     fn ending(&self) -> Option<&Ending> { None }
    /// # }
    /// # let settings = DriverSettings::new(Arc::new(Meter::new(Limits::new(), None)));
    /// # let mut driver = RunDriver::new("r1".into(), Idle, settings);
    /// # driver.take_over();
    /// driver.watch(true);
    /// driver.open(Timestamp::default(), || (Vec::new(), false))?;
    /// let names: Vec<_> = driver.take_events().map(|event| event.kind.name()).collect();
    /// assert_eq!(names, ["run_started"]);
    /// assert!(driver.events().is_empty());
    /// # Ok::<(), levity_core::Divergence>(())
    /// ```
    pub fn take_events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// Returns the events of the records that were not removed yet.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the id of the run.
    pub fn run(&self) -> &RunId {
        &self.state.run
    }

    /// Returns the machine of the run.
    pub fn machine(&self) -> &M {
        &self.state.machine
    }

    /// Returns the machine and ends the driver.
    pub fn into_machine(self) -> M {
        self.state.machine
    }

    /// Returns the ending of the machine, once it has one.
    pub fn ending(&self) -> Option<&Ending> {
        self.state.machine.ending()
    }

    /// Returns `true` if the run has its last record.
    pub fn is_ended(&self) -> bool {
        self.state.ended
    }

    /// Returns `true` if the run is paused.
    pub fn is_paused(&self) -> bool {
        self.state.paused
    }

    /// Returns the number of the next record.
    pub fn seq(&self) -> u64 {
        self.state.seq
    }

    /// Returns the time at which the run was opened.
    pub fn opened_at(&self) -> Timestamp {
        self.state.opened
    }

    /// Returns the remaining time of the run, if its time is limited.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use levity_core::{Ending, Input, Limits, Machine, MachineKind, MachineOutput, Timestamp};
    /// # use levity_driver::{DriverSettings, Meter, RunDriver};
    /// # struct Idle;
    /// # impl Machine for Idle {
    /// #     fn kind(&self) -> MachineKind { MachineKind::new("idle", 1) }
    /// #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
    /// #     fn apply(&mut self, _: Input, _: &mut MachineOutput) {}
    /// #     fn ending(&self) -> Option<&Ending> { None }
    /// # }
    /// let limits = Limits::new().wall_time(Duration::from_secs(60));
    /// let settings = DriverSettings::new(Arc::new(Meter::new(limits, None)));
    /// let mut driver = RunDriver::new("r1".into(), Idle, settings);
    /// driver.take_over();
    /// driver.open(Timestamp::from_millis(0), || (Vec::new(), false))?;
    /// let left = driver.time_left(Timestamp::from_millis(20_000));
    /// assert_eq!(left, Some(Duration::from_secs(40)));
    /// # Ok::<(), levity_core::Divergence>(())
    /// ```
    pub fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let limit = self.settings.meter.limits().wall_time?;
        Some(limit.saturating_sub(now.since(self.state.opened)))
    }

    /// Returns the spending of the run by its records. Effects in progress count in full.
    pub fn spent(&self) -> Spending {
        self.state.spent()
    }

    /// Returns the children that are in progress.
    pub fn children(&self) -> impl Iterator<Item = EffectId> {
        let running = self.state.running.iter();
        running
            .filter(|(_, running)| running.note.kind == EffectKind::Child)
            .map(|(id, _)| id)
    }

    /// Returns the circumstances in which an effect began.
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

    /// Returns the questions that wait for a decision.
    pub fn questions(&self) -> impl Iterator<Item = &Ask> {
        self.questions.iter().map(|(_, question)| &question.ask)
    }

    /// Returns `true` if only people can answer a question: no approver and no executor answers it.
    pub fn is_open(&self, id: EffectId) -> bool {
        self.questions
            .get(id)
            .is_some_and(|question| !question.is_asked)
    }

    /// Returns the call that a question is about.
    pub fn asked(&self, id: EffectId) -> Option<ToolCall> {
        let open = self.questions.get(id).map(|question| &question.ask);
        open.or_else(|| self.state.orphaned_question(id))
            .map(|ask| ask.call.clone())
    }

    /// Returns `true` if effects were left for the next call of [`advance`](Self::advance).
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Returns the token that is cancelled when there may be budget for waiting effects. Call
    /// [`advance`](Self::advance) then.
    pub fn budget_released(&self) -> Option<&CancelToken> {
        self.budget.freed()
    }

    /// Returns `true` if the run can never continue: nothing is in progress, and the machine
    /// requests nothing.
    pub fn is_stuck(&self) -> bool {
        let idle = self.state.running.is_empty() && self.preparing.wanted.is_empty();
        let idle = idle && !self.budget.has_waiting() && !self.more && !self.state.paused;
        self.ending().is_none() && idle
    }

    /// Returns `true` if the machine ignored the request to end. The run cannot be driven any
    /// further.
    pub fn has_ignored_end(&self) -> bool {
        self.ignored_end
    }

    /// Returns the questions and times that the run waits for, if it does nothing else. `rests`
    /// answers the same for a child.
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
            // A wait whose time has passed ends as soon as it is checked.
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

    /// Ends all effects in progress. Returns the children that an earlier process left; they must
    /// also write their endings.
    pub fn end(&mut self) -> Vec<Action> {
        self.preparing = Preparing::default();
        self.budget.clear();
        let mut children = Vec::new();
        for id in self.state.orphaned_effects() {
            if let Some(effect @ Effect::Child(_)) = self.state.take_orphan(id) {
                children.push(Action::Perform(id, effect));
            }
        }
        children
    }

    /// Writes the end of a run whose machine and children have ended.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    pub fn close(&mut self, now: Timestamp) -> Result<(), RuntimeError> {
        let Some(status) = self.ending().map(|ending| ending.status.clone()) else {
            return Err(RuntimeError::Stuck(self.state.run.clone()));
        };
        self.stage_one(now, Entry::Ended(status));
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
