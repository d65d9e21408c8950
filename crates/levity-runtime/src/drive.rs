//! The I/O around the pure driver of `levity-driver`.
//!
//! [`RunDriver`] decides which effects may start and what each input changes. This module performs
//! the effects, appends the records and waits. Its loop has one order that carries the guarantees
//! of the runtime:
//!
//! 1. `advance`: the core turns requests of the machine into actions and records.
//! 2. `commit`: the records are appended, then events are published and senders get their replies.
//! 3. `launch`: only now the effects of step 1 start.
//! 4. `wait`: the next input arrives, such as an outcome, an order, a post or the time limit.
//!
//! So the start of an effect is durable before the effect begins, and nobody sees an event that a
//! crash could undo.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures_util::stream::StreamExt;
use levity_core::{
    Approver, Ask, CancelToken, ControlCommand, ControlError, Digest, Divergence, Effect, EffectCx,
    EffectId, Event, EventKind, Executor, Intervention, Limit, Limits, LiveEvents, LiveSink,
    Machine, Outcome, Record, RunId, RunLog, RunRequest, RuntimeError, Timestamp, Values, World,
};
use levity_driver::{Action, EffectResult, Fork, Meter, RunDriver, changes};
use tokio::sync::oneshot;

use crate::control::{CommandReceiver, Order, OrderKind};
use crate::events::Hub;
use crate::runtime::{LaterRestore, Shared};
use crate::stored_run::StoredRun;
use crate::trace::{ParentSpan, Trace};

mod audit;
mod child;
mod child_usage;
mod host;
mod in_progress;
pub(crate) mod orders;
mod park;
pub(crate) mod screen;

pub(crate) use audit::Audit;
use host::PendingAnswers;
use in_progress::InProgress;
use park::{ParkDecision, WaitingChildren};

/// The number of effects that are started or finished before the run checks for orders.
const BATCH: usize = 256;

/// The number of records that are folded before the task yields.
pub(crate) const AT_ONCE: usize = 4_096;

/// The time for which the run may start or finish effects before it checks for orders.
const SLICE: Duration = Duration::from_millis(5);

/// Drives one machine to its end.
///
/// The driver reacts quickly to orders and limits, whatever a model requests. It works in slices of
/// at most [`BATCH`] effects and about [`SLICE`], and yields in between.
///
/// Dropping the driver drops all effects and children in progress, and the log last.
pub(crate) struct Driver<M> {
    core: RunDriver<M>,
    env: RunEnvironment,
    line: Option<CommandReceiver>,
    effects: InProgress<FinishedEffect>,
    children: InProgress<FinishedEffect>,
    /// Handles that withdraw pending questions about effects.
    asked: BTreeMap<EffectId, AbortHandle>,
    preparing: PendingAnswers,
    screening: screen::ScreeningQueue,
    resting: WaitingChildren,
    end_children: CancelToken,
    deadline: Option<BoxFuture<'static, ()>>,
    acks: Vec<Ack>,
    /// Requests for the open questions that arrived before an old run continued. They are answered
    /// once its children run again.
    early: Vec<Order>,
    slice: Slice,
    /// The check of the run at its end.
    audit: Option<Audit<M>>,
    trace: Trace,
    /// Last, so that everything else in the driver has released its logs before this one is free.
    log: Box<dyn RunLog>,
}

/// A performed effect with its result; `None` if the result is no longer needed. An error does not
/// belong to the effect: the run cannot continue.
type FinishedEffect = (EffectId, Result<Option<EffectResult>, RuntimeError>);

/// The environment in which a run is driven.
///
/// A child gets its own environment: the meter is a part of its parent's, and hub, journal and
/// clock are shared.
pub(crate) struct RunEnvironment {
    pub(crate) shared: Arc<Shared>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) hub: Option<Arc<Hub>>,
    pub(crate) cancel: Option<CancelToken>,
    /// The number of parents of this run.
    pub(crate) depth: usize,
    /// Distinguishes this run's own child from another run of the same id.
    pub(crate) origin: Option<Digest>,
    /// `true` if the run is parked in its journal when it only waits.
    pub(crate) park: bool,
    /// `true` if child runs are checked at their ends.
    pub(crate) audit: bool,
    /// The usage of earlier processes.
    pub(crate) before: child_usage::EarlierUsage,
    /// The place where a child reports that it only waits, and the child's effect.
    pub(crate) rests: Option<(WaitingChildren, EffectId)>,
    /// The name of the agent, for traces.
    pub(crate) name: Option<Arc<str>>,
    /// The parent span of the run.
    pub(crate) above: ParentSpan,
    /// The values that the program gave to this run and its children.
    pub(crate) given: Option<Arc<CallerContext>>,
    /// Interventions of guards in the input of a new run.
    pub(crate) guarded: Vec<Intervention>,
}

/// The values that a program gives to one run, which no journal stores.
#[derive(Clone, Default)]
pub(crate) struct CallerContext {
    pub(crate) values: Values,
    /// Answers the questions of the run, in place of the agent's approver.
    pub(crate) approver: Option<Arc<dyn Approver>>,
}

impl RunEnvironment {
    fn approver(&self) -> Option<Arc<dyn Approver>> {
        self.given.as_ref()?.approver.clone()
    }
}

/// The amount of work since the task last yielded.
///
/// A machine that answers each outcome with a new effect could otherwise occupy the task forever.
#[derive(Default)]
struct Slice {
    entries: usize,
    since: Timestamp,
    /// The time of the latest input.
    now: Timestamp,
}

impl Slice {
    fn add(&mut self, entries: usize) {
        if self.entries == 0 {
            self.since = self.now;
        }
        self.entries += entries;
    }

    /// Returns `true` if the slice is over; then a new one begins.
    fn ends(&mut self) -> bool {
        let over = self.entries >= BATCH || self.now.since(self.since) >= SLICE;
        if over {
            self.entries = 0;
        }
        over
    }
}

/// The parts of a driver beside its core.
struct DriverParts {
    setup: Vec<(String, Digest)>,
    log: Box<dyn RunLog>,
    env: RunEnvironment,
    line: Option<CommandReceiver>,
}

impl DriverParts {
    /// Returns the core of a driver, and the records that it has yet to fold.
    fn split<M: Machine>(
        run: RunId,
        machine: M,
        open: StoredRun,
        env: RunEnvironment,
        line: Option<CommandReceiver>,
    ) -> (RunDriver<M>, Vec<Record>, Self) {
        let setup = open
            .opened()
            .map(|opened| opened.setup.clone())
            .unwrap_or_default();
        let StoredRun {
            snapshot,
            records,
            log,
            ..
        } = open;
        let mut settings = env.settings(line.is_some());
        settings.snapshots = log.takes_snapshots();
        let core = match snapshot {
            Some(snapshot) => RunDriver::restore(run, machine, *snapshot, settings),
            None => RunDriver::new(run, machine, settings),
        };
        (
            core,
            records,
            Self {
                setup,
                log,
                env,
                line,
            },
        )
    }
}

/// The machine in its last state, with the error if it did not end.
pub(crate) type DriveResult<M> = Result<M, (Option<M>, RuntimeError)>;

impl<M: Machine + 'static> Driver<M> {
    /// Folds the records of the run's log, or those that a fork begins with.
    pub(crate) fn new(
        run: RunId,
        machine: M,
        open: StoredRun,
        fork: Option<Box<Fork>>,
        env: RunEnvironment,
        line: Option<CommandReceiver>,
    ) -> Result<Box<Self>, (M, RuntimeError)> {
        let (mut core, records, loaded) = DriverParts::split(run, machine, open, env, line);
        let folded = match fork {
            Some(fork) => core.fold_fork(*fork, records),
            None => records.into_iter().try_for_each(|record| core.fold(record)),
        };
        Self::of(core, folded, loaded)
    }

    /// Does the same for a run with many records, and yields in between.
    ///
    /// A run of many thousand records takes noticeable time, in which other runs on the same thread
    /// must not stand still.
    pub(crate) async fn load(
        run: RunId,
        machine: M,
        open: StoredRun,
        env: RunEnvironment,
        line: Option<CommandReceiver>,
    ) -> Result<Box<Self>, (M, RuntimeError)> {
        let (mut core, records, loaded) = DriverParts::split(run, machine, open, env, line);
        let mut folded = Ok(());
        for (number, record) in (1..).zip(records) {
            folded = core.fold(record);
            if folded.is_err() {
                break;
            }
            if number % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
        Self::of(core, folded, loaded)
    }

    /// Creates the driver of a run whose records are folded.
    fn of(
        mut core: RunDriver<M>,
        folded: Result<(), Divergence>,
        loaded: DriverParts,
    ) -> Result<Box<Self>, (M, RuntimeError)> {
        let DriverParts {
            setup,
            log,
            mut env,
            line,
        } = loaded;
        if let Err(divergence) = folded {
            let divergence = divergence.since(&changes(&setup, &env.executor.inspect().setup));
            return Err((core.into_machine(), divergence.into()));
        }
        core.take_over();
        env.count(core.run(), core.seq(), &core.spent());
        let (above, name) = (std::mem::take(&mut env.above), env.name.as_deref());
        let trace = Trace::run(core.run(), core.machine(), name, core.seq() > 0, above);
        Ok(Box::new(Self {
            core,
            acks: Vec::new(),
            early: Vec::new(),
            slice: Slice::default(),
            log,
            env,
            line,
            effects: InProgress::new(),
            children: InProgress::new(),
            asked: BTreeMap::new(),
            preparing: PendingAnswers::default(),
            screening: screen::ScreeningQueue::default(),
            resting: WaitingChildren::default(),
            audit: None,
            end_children: CancelToken::new(),
            deadline: None,
            trace,
        }))
    }

    pub(crate) fn boxed(self: Box<Self>) -> BoxFuture<'static, DriveResult<M>> {
        self.traced()
            .unwrap_or_else(|driver| Box::pin(driver.drive()))
    }

    /// Drives the run within its span, if a subscriber is interested. Other runs do not pay for
    /// another box.
    pub(crate) fn traced(self: Box<Self>) -> Result<BoxFuture<'static, DriveResult<M>>, Box<Self>> {
        if !self.trace.is_on() {
            return Err(self);
        }
        let span = self.trace.above();
        Ok(span.within(Box::pin(self.drive())))
    }

    /// Checks the run once it has ended; `restore` rebuilds its machine.
    pub(crate) fn audited(mut self: Box<Self>, restore: Option<LaterRestore<M>>) -> Box<Self> {
        self.audit = restore.map(|restore| Audit::new(restore, self.core.seq()));
        self
    }

    pub(crate) async fn drive(mut self: Box<Self>) -> DriveResult<M> {
        let driven = match self.steps().await {
            Ok(()) => self.check().await,
            stopped => stopped,
        };
        match driven {
            Ok(()) => {
                self.trace.ended(self.core.ending());
                Ok(self.core.into_machine())
            }
            Err(error) => {
                self.trace.stopped(&error);
                Err((Some(self.core.into_machine()), error))
            }
        }
    }

    /// Each round starts what may start, performs it and waits for one batch of input. It ends when
    /// the machine has an ending, when it can never get one (stuck), or when the run is parked.
    async fn steps(&mut self) -> Result<(), RuntimeError> {
        if self.core.is_ended() {
            return Ok(());
        }
        self.begin().await?;
        while self.core.ending().is_none() {
            // A run that is only resumed to be ended starts nothing.
            let cancelled = self.is_cancelled();
            let actions = if cancelled {
                Vec::new()
            } else {
                self.advance()?
            };
            self.perform(actions).await?;
            if self.core.ending().is_some() {
                break;
            }
            if !cancelled && self.core.is_stuck() {
                return Err(RuntimeError::Stuck(self.core.run().clone()));
            }
            match if cancelled {
                ParkDecision::Wait
            } else {
                self.leave().await?
            } {
                ParkDecision::Leave(waiting) => {
                    return Err(RuntimeError::Parked {
                        run: self.core.run().clone(),
                        waiting,
                    });
                }
                ParkDecision::Taken => {}
                ParkDecision::Wait => self.wait().await?,
            }
            self.mark_working();
            self.core.check()?;
            if self.core.has_ignored_end() {
                self.commit().await?;
                return Err(RuntimeError::Stuck(self.core.run().clone()));
            }
        }
        self.end().await
    }

    /// Returns `true` if the parent run, or an order that arrived early, cancels the run.
    fn is_cancelled(&self) -> bool {
        let above = self
            .env
            .cancel
            .as_ref()
            .is_some_and(CancelToken::is_cancelled);
        above
            || self
                .line
                .as_ref()
                .is_some_and(CommandReceiver::is_cancelled)
    }

    /// Opens a new run, or continues an old one.
    async fn begin(&mut self) -> Result<(), RuntimeError> {
        self.commit().await?;
        self.count_below().await?;
        let old = self.core.seq() > 0;
        let now = self.now();
        let executor = self.env.executor.clone();
        self.core.open(now, || {
            let inspection = executor.inspect();
            (inspection.setup, inspection.screener.is_some())
        })?;
        let guarded = std::mem::take(&mut self.env.guarded);
        if !old {
            self.core.guarded(now, guarded);
            self.core.check()?;
        }
        if self.core.ending().is_some() {
            return Ok(());
        }
        if old {
            self.commit().await?;
            self.screen_pending().await?;
        }
        if !self.is_cancelled() {
            self.ask_again().await?;
        }
        if old {
            self.take_early_orders();
        }
        if let Some(left) = self.core.time_left(self.env.shared.world.now()) {
            let world = self.env.shared.world.clone();
            self.deadline = Some(Box::pin(async move { world.sleep(left).await }));
        }
        Ok(())
    }

    /// Takes the orders that arrived before an old run or a fork continues, so that its next model
    /// call knows a message that was sent at once. Messages that must be screened come later, and
    /// so does a cancellation, which keeps the run from starting anything.
    fn take_early_orders(&mut self) {
        while !self.is_cancelled()
            && let Some(order) = next_order(&mut self.line).now_or_never()
        {
            match order.what {
                OrderKind::Asks(_) => self.early.push(order),
                _ => self.screen_order(order),
            }
        }
    }

    /// Stops the effects in progress, lets the children write their ends, and writes the end of
    /// this run.
    ///
    /// Children are not dropped: each writes its own end, so that no run in the journal looks as if
    /// it were still in progress.
    async fn end(&mut self) -> Result<(), RuntimeError> {
        self.preparing.clear();
        self.effects.clear();
        self.end_children.cancel();
        for action in self.core.end() {
            self.launch(action);
        }
        if !self.children.is_empty() {
            self.commit().await?;
        }
        while self.children.next().await.is_some() {}
        let now = self.now();
        self.core.close(now)?;
        self.commit().await
    }

    fn keeps(&self) -> bool {
        self.env.shared.journal.keeps()
    }

    /// Returns the time for the next input of the core, and updates the flag for subscribers.
    fn now(&mut self) -> Timestamp {
        let watched = self.env.hub.as_ref().is_some_and(|hub| hub.is_watched());
        self.core.watch(watched || self.audit.is_some());
        self.slice.now = self.env.shared.world.now();
        self.slice.now
    }

    /// Appends the folded records to the journal, then notifies subscribers and waiting senders.
    ///
    /// Senders get their replies after the append, since a reply promises that the command survives
    /// a crash.
    async fn commit(&mut self) -> Result<(), RuntimeError> {
        if !self.core.records().is_empty() {
            self.log.append(self.core.records()).await?;
            self.core.written();
        }
        if let Some(audit) = &mut self.audit {
            audit.record_events(self.core.events());
        }
        let watched = self.env.hub.as_ref().filter(|hub| hub.is_watched());
        for event in self.core.take_events() {
            if let Some(hub) = watched {
                hub.publish(event);
            }
        }
        self.acks.drain(..).for_each(|ack| drop(ack.send(Ok(()))));
        Ok(())
    }

    /// Appends the start of effects to the journal, and performs them.
    async fn perform(&mut self, actions: Vec<Action>) -> Result<(), RuntimeError> {
        self.commit().await?;
        if self.log.wants_snapshot()
            && let Some(snapshot) = self.core.snapshot()
        {
            // A snapshot only saves time when the run is resumed.
            let _ = self.log.snapshot(snapshot).await;
        }
        self.trace.begins(&actions);
        actions.into_iter().for_each(|action| self.launch(action));
        Ok(())
    }

    /// Questions and waits need no executor: the runtime keeps them itself.
    fn launch(&mut self, action: Action) {
        match action {
            Action::Perform(id, Effect::Child(child)) => self.children.push(self.child(id, child)),
            Action::Perform(id, Effect::Ask(ask)) => self.ask(id, ask),
            Action::Perform(id, Effect::Wait(wait)) => self.sleep(id, wait.time),
            Action::Perform(id, effect) => {
                let (executor, cx) = (self.env.executor.clone(), self.effect_cx(id));
                let trace =
                    self.trace
                        .effect(&effect, &*executor, self.env.shared.contents.as_ref());
                let perform = async move {
                    (
                        id,
                        Ok(Some(EffectResult::Finished(
                            executor.execute(effect, cx).await,
                            None,
                        ))),
                    )
                };
                self.effects.push(trace.around(Box::pin(perform), outcome));
            }
            Action::Resolve(id, effect) => self.resolve_lost(id, effect),
            Action::Withdraw(id) => self.withdraw(id),
            _ => {}
        }
    }

    fn ask(&mut self, id: EffectId, ask: Ask) {
        let approver = self.env.approver();
        let (executor, cx) = (self.env.executor.clone(), self.effect_cx(id));
        self.push_withdrawable(id, async move {
            let (run, call) = (ask.run.clone(), ask.call.clone());
            let decided = match approver {
                Some(approver) => Outcome::Decision(approver.decide(&ask).await),
                None => executor.execute(Effect::Ask(ask), cx).await,
            };
            match decided {
                Outcome::Decision(decision) => {
                    screen::decided(&*executor, &run, call, decision).await
                }
                outcome => EffectResult::Finished(outcome, None),
            }
        });
    }

    /// Asks the executor for the outcome of an effect that an earlier process started.
    fn resolve_lost(&mut self, id: EffectId, effect: Effect) {
        let (executor, cx) = (self.env.executor.clone(), self.effect_cx(id));
        self.push_withdrawable(id, async move {
            EffectResult::Resolved(executor.resolve(&effect, &cx).await)
        });
    }

    /// A decision from a handle may arrive while the approver still thinks; the approver's answer
    /// is then aborted and ignored.
    fn push_withdrawable(
        &mut self,
        id: EffectId,
        answer: impl Future<Output = EffectResult> + Send + 'static,
    ) {
        let (handle, registration) = AbortHandle::new_pair();
        self.asked.insert(id, handle);
        let answer = Abortable::new(answer, registration);
        self.effects
            .push(Box::pin(async move { (id, Ok(answer.await.ok())) }));
    }

    fn withdraw(&mut self, id: EffectId) {
        if let Some(handle) = self.asked.remove(&id) {
            handle.abort();
        }
    }

    /// Waits until the time in the journal, and never longer than the whole wait: the clock may
    /// have been set back since.
    fn sleep(&mut self, id: EffectId, longest: Duration) {
        let world = self.env.shared.world.clone();
        let left = self
            .core
            .start_of(id)
            .until
            .unwrap_or_default()
            .since(world.now())
            .min(longest);
        self.effects.push(Box::pin(async move {
            world.sleep(left).await;
            (id, Ok(Some(EffectResult::Finished(Outcome::Woken, None))))
        }));
    }

    /// Transient events carry the number of the record that started the effect.
    fn effect_cx(&self, id: EffectId) -> EffectCx {
        let run = self.core.run().clone();
        let start = self.core.start_of(id);
        let live = self
            .env
            .hub
            .as_ref()
            .map_or_else(LiveEvents::default, |hub| {
                let world = self.env.shared.world.clone();
                LiveEvents::new(Arc::new(LiveForwarder {
                    hub: hub.clone(),
                    world,
                    run: run.clone(),
                    seq: start.seq,
                }))
            });
        let values = self.env.given.as_ref().map(|given| given.values.clone());
        EffectCx::new(run, id, live)
            .with_values(values.unwrap_or_default())
            .with_again(start.again)
            .with_key(start.key)
            .with_max_output(start.max_output)
            .with_max_input(start.max_input)
    }

    /// Waits for the next input, and processes all input that has arrived meanwhile.
    ///
    /// The order of the branches matters (`biased`): cancellation and the time limit come first, so
    /// that a flood of outcomes cannot delay them.
    async fn wait(&mut self) -> Result<(), RuntimeError> {
        if self.slice.ends() {
            // An elapsed timer and orders become visible only after the task has yielded.
            tokio::task::yield_now().await;
        }
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            early.into_iter().for_each(|order| self.take_order(order));
            return Ok(());
        }
        let (keeps, has_children, more) = (
            self.keeps(),
            !self.children.is_empty(),
            self.core.has_more(),
        );
        let seq = self.core.seq();
        tokio::select! {
            biased;
            () = parent_cancelled(self.env.cancel.as_ref()) => {
                let (now, reason) = (self.now(), "its parent run ended".to_owned());
                let _ = self.core.command(now, ControlCommand::Cancel { reason });
            }
            () = passed(&mut self.deadline) => {
                self.deadline = None;
                let now = self.now();
                self.core.stop(now, Limit::WallTime);
            }
            order = next_order(&mut self.line) => self.screen_order(order),
            screened = self.screening.next() => self.take_screened(screened),
            posts = next_posts(&mut *self.log, keeps) => self.screen_posts(posts?).await,
            prepared = self.preparing.next() => self.take_prepared(prepared),
            Some(first) = self.effects.next() => self.finished(first)?,
            Some(first) = self.children.next() => self.finished(first)?,
            () = self.resting.changed(), if has_children => {}
            () = budget_freed(self.core.budget_released()) => {}
            () = tokio::task::yield_now(), if more => {}
        }
        self.add_to_slice(seq);
        Ok(())
    }

    /// Counts the records since `seq`.
    fn add_to_slice(&mut self, seq: u64) {
        let taken = usize::try_from(self.core.seq() - seq).unwrap_or(usize::MAX);
        if taken > 0 {
            self.slice.add(taken);
        }
    }

    /// Returns an effect, or else a child, that has finished.
    fn next_finished(&mut self) -> Option<FinishedEffect> {
        let effect = self.effects.next().now_or_never().flatten();
        effect.or_else(|| self.children.next().now_or_never().flatten())
    }

    /// Processes a finished effect and others that have finished too, as many as fit into a slice.
    ///
    /// One append for many outcomes saves a sync of the disk for each of them.
    fn finished(&mut self, first: FinishedEffect) -> Result<(), RuntimeError> {
        let (mut next, mut late) = (Some(first), self.slice_timer());
        let mut done = Vec::with_capacity(1);
        while let Some((id, performed)) = next.take() {
            self.asked.remove(&id);
            done.extend(performed?.map(|result| (id, result)));
            if done.len() < BATCH && (done.len() <= 1 || !late.is_late()) {
                next = self.next_finished();
            }
        }
        let now = self.now();
        self.core.finished(now, done);
        Ok(())
    }
}

/// Returns the outcome, for traces.
fn outcome((_, performed): &FinishedEffect) -> Option<&Outcome> {
    match performed {
        Ok(Some(EffectResult::Finished(outcome, _))) => Some(outcome),
        _ => None,
    }
}

type Ack = oneshot::Sender<Result<(), ControlError>>;

async fn parent_cancelled(cancel: Option<&CancelToken>) {
    match cancel {
        Some(cancel) => cancel.cancelled().await,
        None => pending().await,
    }
}

/// Resolves when a budget may have room for waiting effects.
async fn budget_freed(token: Option<&CancelToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => pending().await,
    }
}

async fn next_order(line: &mut Option<CommandReceiver>) -> Order {
    match line {
        Some(line) => line.next().await,
        None => pending().await,
    }
}

/// Returns the requests of others for the run; a journal that stores nothing has none.
async fn next_posts(log: &mut dyn RunLog, keeps: bool) -> Result<Vec<RunRequest>, RuntimeError> {
    if keeps {
        Ok(log.posted().await?)
    } else {
        pending().await
    }
}

async fn passed(moment: &mut Option<BoxFuture<'static, ()>>) {
    match moment {
        Some(moment) => moment.await,
        None => pending().await,
    }
}

/// The target of an effect's transient events.
struct LiveForwarder {
    hub: Arc<Hub>,
    world: Arc<dyn World>,
    run: RunId,
    seq: u64,
}

impl LiveSink for LiveForwarder {
    fn is_watched(&self) -> bool {
        self.hub.is_watched()
    }

    fn send(&self, event: EventKind) {
        self.hub.publish(Event::new(
            self.run.clone(),
            self.seq,
            self.world.now(),
            event,
        ));
    }
}

/// Returns the meter of a run without its own limits.
pub(crate) fn meter(limits: Limits) -> Arc<Meter> {
    Arc::new(Meter::new(limits, None))
}
