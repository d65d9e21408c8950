//! A host for one run that performs no effect on its own.
//!
//! The tokio runtime and this host share the rules of `RunDriver`; they differ in who performs
//! effects and who writes records. Here the test performs them, and records go to a list in memory.
//! `crash` drops everything but that list, which is exactly the information that survives a kill.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    ControlCommand, Decision, Divergence, Effect, EffectId, Ending, Event, Limits, Machine,
    Outcome, Prepared, Record, Resolution, RunId, Timestamp,
};
use levity_driver::{Action, DriverHost, DriverSettings, EffectResult, Meter, RunDriver};

/// Drives a run by hand: a test performs each effect itself, in any order, and can kill the process
/// at any point.
///
/// It hosts the same [`RunDriver`] as the tokio runtime, without a task, a clock or an executor.
/// Effects that may start are [open](Self::open); [`finish`](Self::finish) reports the outcome of
/// one. [`crash`](Self::crash) continues with the records alone.
///
/// ```
/// # use levity_core::{
/// #     Effect, EffectId, Ending, Input, Machine, MachineKind, MachineOutput, Outcome, Status,
/// #     Wait,
/// # };
/// # use levity_test::ManualHost;
/// # #[derive(Default)]
/// # struct Naps(Option<Ending>);
/// # impl Machine for Naps {
/// #     fn kind(&self) -> MachineKind { MachineKind::new("naps", 1) }
/// #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
/// #     fn apply(&mut self, input: Input, step: &mut MachineOutput) {
/// #         match input {
/// #             Input::Begin { .. } => {
/// #                 let wait = Wait::new(std::time::Duration::from_secs(60));
/// #                 step.request(EffectId::new(0), Effect::Wait(wait));
/// #             }
/// #             _ => self.0 = Some(Ending::new(Status::Complete)),
/// #         }
/// #     }
/// #     fn ending(&self) -> Option<&Ending> { self.0.as_ref() }
/// # }
/// let mut host = ManualHost::new("r", Naps::default())?;
/// let (nap, _) = host.open().next().unwrap();
/// host.finish(nap, Outcome::Woken)?;
/// assert!(host.ending().is_some());
/// # Ok::<(), levity_core::Divergence>(())
/// ```
pub struct ManualHost<M> {
    driver: RunDriver<M>,
    host: Host,
    now: Timestamp,
    records: Vec<Record>,
    events: Vec<Event>,
    open: BTreeMap<EffectId, Effect>,
    lost: BTreeMap<EffectId, Effect>,
}

type Prepare = Arc<dyn Fn(&Effect) -> Prepared>;

/// The part of the host that the driver calls back: the preparation of effects.
struct Host(Prepare);

impl DriverHost for Host {
    fn prepare(&mut self, _: EffectId, effect: &Effect) -> Option<Prepared> {
        Some((self.0)(effect))
    }
}

impl<M: Machine> ManualHost<M> {
    /// Starts a run without limits. Every effect may start at once.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    pub fn new(run: impl Into<RunId>, machine: M) -> Result<Self, Divergence> {
        Self::prepared_by(run, machine, |_| Prepared::default())
    }

    /// Starts a run in which `prepare` replaces the executor: the class of an effect, its
    /// exclusivity, the decision of the policy.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    pub fn prepared_by(
        run: impl Into<RunId>,
        machine: M,
        prepare: impl Fn(&Effect) -> Prepared + 'static,
    ) -> Result<Self, Divergence> {
        Self::from_records(
            run.into(),
            machine,
            Vec::new(),
            Arc::new(prepare),
            Timestamp::from_millis(0),
        )
    }

    /// Folds the records, takes the run over and starts it. New runs and crashed ones use the same
    /// path, as in the runtime.
    fn from_records(
        run: RunId,
        machine: M,
        records: Vec<Record>,
        prepare: Prepare,
        now: Timestamp,
    ) -> Result<Self, Divergence> {
        let meter = Arc::new(Meter::new(Limits::new(), None));
        let mut driver = RunDriver::new(run, machine, DriverSettings::new(meter));
        driver.watch(true);
        records
            .iter()
            .try_for_each(|record| driver.fold(record.clone()))?;
        driver.take_over();
        driver.open(now, || (Vec::new(), false))?;
        let (events, open, lost) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut host = Self {
            driver,
            host: Host(prepare),
            now,
            records,
            events,
            open,
            lost,
        };
        if !host.driver.is_ended() {
            let actions = host.driver.ask_again(now, &mut host.host)?;
            host.take(actions);
            host.advance()?;
        }
        Ok(host)
    }

    /// Ends the process and resumes from the records, with a machine in the initial state of the
    /// first one.
    ///
    /// Effects with an unknown outcome are then [lost](Self::lost); [`resolve`](Self::resolve)
    /// decides what became of them.
    ///
    /// # Errors
    /// Returns an error if the records do not fit the machine.
    pub fn crash(self, machine: M) -> Result<Self, Divergence> {
        Self::from_records(
            self.driver.run().clone(),
            machine,
            self.records,
            self.host.0,
            self.now,
        )
    }

    /// Records the folded entries, and starts the effects that may start.
    fn advance(&mut self) -> Result<(), Divergence> {
        loop {
            let actions = self.driver.advance(self.now, usize::MAX, &mut self.host)?;
            self.write();
            self.take(actions);
            if !self.driver.has_more() {
                break;
            }
        }
        if self.driver.ending().is_some() && !self.driver.is_ended() {
            let actions = self.driver.end();
            (self.open, self.lost) = (BTreeMap::new(), BTreeMap::new());
            self.take(actions);
            // A machine that has ended can be closed.
            let _ = self.driver.close(self.now);
            self.write();
        }
        Ok(())
    }

    fn write(&mut self) {
        self.records.extend_from_slice(self.driver.records());
        self.driver.written();
        self.events.extend(self.driver.take_events());
    }

    /// Sorts the actions of the driver into open and lost effects. Others, such as timers, have no
    /// meaning here.
    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Perform(id, effect) => drop(self.open.insert(id, effect)),
                Action::Resolve(id, effect) => drop(self.lost.insert(id, effect)),
                Action::Withdraw(id) => {
                    self.open.remove(&id);
                    self.lost.remove(&id);
                }
                _ => {}
            }
        }
    }

    /// Returns the effects that have started and not finished.
    pub fn open(&self) -> impl Iterator<Item = (EffectId, &Effect)> {
        self.open.iter().map(|(id, effect)| (*id, effect))
    }

    /// Returns the effects that an earlier process had started, with unknown outcome.
    pub fn lost(&self) -> impl Iterator<Item = (EffectId, &Effect)> {
        self.lost.iter().map(|(id, effect)| (*id, effect))
    }

    /// Reports the outcome of an effect.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    pub fn finish(&mut self, id: EffectId, outcome: Outcome) -> Result<(), Divergence> {
        self.open.remove(&id);
        self.driver
            .finished(self.now, vec![(id, EffectResult::Finished(outcome, None))]);
        self.advance()
    }

    /// Resolves an effect with unknown outcome.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    pub fn resolve(&mut self, id: EffectId, resolution: Resolution) -> Result<(), Divergence> {
        self.lost.remove(&id);
        self.driver
            .finished(self.now, vec![(id, EffectResult::Resolved(resolution))]);
        self.advance()
    }

    /// Decides on a question of the run, and returns `true` if it was open.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    pub fn decide(&mut self, id: EffectId, decision: Decision) -> Result<bool, Divergence> {
        let decided = self.driver.decide(self.now, id, decision).is_ok();
        self.advance().map(|()| decided)
    }

    /// Sends the run a command, and returns `true` if it was accepted.
    ///
    /// # Errors
    /// Returns an error if the machine breaks its contract.
    pub fn command(&mut self, command: ControlCommand) -> Result<bool, Divergence> {
        let taken = self.driver.command(self.now, command).is_ok();
        self.advance().map(|()| taken)
    }

    /// Advances the time, for the records that follow.
    pub fn sleep(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// Returns the driver, for everything else.
    pub fn driver(&self) -> &RunDriver<M> {
        &self.driver
    }

    /// Returns the ending of the run, once it has one.
    pub fn ending(&self) -> Option<&Ending> {
        self.driver.ending()
    }

    /// Returns all written records.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the events since the last crash.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

impl<M> fmt::Debug for ManualHost<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualHost")
            .field("records", &self.records.len())
            .finish_non_exhaustive()
    }
}
