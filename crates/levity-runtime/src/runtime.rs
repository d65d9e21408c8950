//! Opens runs and drives them: on the caller's task, or on a task of their own.
//!
//! A run can begin in four ways, which [`Origin`] lists. All of them end in the same place: a log
//! that this process holds, a machine, and the records to fold. From there on the driver does not
//! know how the run began.
//!
//! Settings that a run needs only at its start are boxed, because the future of a driven run keeps
//! the room of everything that it once held. Thousands of waiting runs fit into memory that way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use levity_core::{
    Entry, Executor, Journal, Lease, Limits, Machine, MachineKind, OpenRun, RunId, RuntimeError,
    Secrets, SharedError, World,
};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::control::{CommandReceiver, CommandRouter, Control};
use crate::drive::{AT_ONCE, CallerContext, DriveResult, Driver, RunEnvironment, meter};
use crate::events::{CloseOnDrop, Events, Hub, Watcher};
use crate::journal::NoJournal;
use crate::runnable::{LeaseFuture, LeasedMachine};
use crate::stored_run::StoredRun;
use crate::trace::ParentSpan;
use levity_driver::{Fork, cut};
use levity_system::SystemWorld;

/// Drives machines: performs their effects, journals their progress, enforces their limits and
/// notifies subscribers. Cloning costs nothing.
///
/// ```
/// # use levity_runtime::{MemoryJournal, Runtime};
/// let runtime = Runtime::new().with_journal(MemoryJournal::new());
/// ```
///
/// The defaults are [`NoJournal`] and [`SystemWorld`]. Runs of one runtime share its journal and
/// its clock, and nothing else.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) world: Arc<dyn World>,
    /// The secrets to redact, if spans have contents.
    pub(crate) contents: Option<Secrets>,
}

impl Default for Runtime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime {
    /// Creates a runtime without a journal, on the real clock.
    pub fn new() -> Self {
        let (journal, world) = (Arc::new(NoJournal), Arc::new(SystemWorld));
        Self {
            shared: Arc::new(Shared {
                journal,
                world,
                contents: None,
            }),
        }
    }

    /// Sets the journal that stores the runs.
    ///
    /// ```
    /// # use levity_runtime::{FileJournal, Runtime};
    /// fn durable(folder: &str) -> Result<Runtime, levity_core::JournalError> {
    ///     Ok(Runtime::new().with_journal(FileJournal::new(folder)?))
    /// }
    /// ```
    #[must_use]
    pub fn with_journal(self, journal: impl Journal + 'static) -> Self {
        let shared = Shared {
            journal: Arc::new(journal),
            ..Shared::clone(&self.shared)
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Sets another clock and random source.
    #[must_use]
    pub fn with_world(self, world: impl World + 'static) -> Self {
        let shared = Shared {
            world: Arc::new(world),
            ..Shared::clone(&self.shared)
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Adds the contents of model and tool calls to spans, without these secrets; by default spans
    /// have no contents.
    ///
    /// Without the feature `tracing` there are no spans.
    ///
    /// ```
    /// # use levity_core::Secrets;
    /// # use levity_runtime::Runtime;
    /// let runtime = Runtime::new().trace_contents(Secrets::new().known("hunter2"));
    /// ```
    #[must_use]
    pub fn trace_contents(self, secrets: Secrets) -> Self {
        let shared = Shared {
            contents: Some(secrets),
            ..Shared::clone(&self.shared)
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns the clock and random source.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.shared.world
    }

    /// Returns the journal that stores the runs.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.shared.journal
    }

    /// Drives a run to its end, on the caller's own task.
    ///
    /// Dropping the future stops the run where it is. With a journal that stores its records, you
    /// can resume it from there.
    ///
    /// # Errors
    /// Returns an error if the run could not be driven to an end; [`StoppedMachine`] has its
    /// partial state. A run that *ended* with a failure is not an error here: its machine's ending
    /// states so.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use levity_core::{Executor, Machine};
    /// use levity_runtime::{MachineRun, Runtime};
    ///
    /// /// Drives a machine to its end and returns its text.
    /// async fn text<M>(machine: M, executor: Arc<dyn Executor>) -> Option<String>
    /// where
    ///     M: Machine + 'static,
    /// {
    ///     let ended = Runtime::new().run(MachineRun::new(machine, executor)).await.ok()?;
    ///     ended.machine.ending().map(|ending| ending.text.clone())
    /// }
    /// ```
    pub async fn run<M: Machine + 'static>(
        &self,
        job: MachineRun<M>,
    ) -> Result<EndedMachine<M>, StoppedMachine<M>> {
        let (run, driven) = self.driver(job, None, ParentSpan::here()).await;
        settle(run, driven)
    }

    /// Drives a run on a separate task, and returns a handle to it at once.
    ///
    /// # Panics
    /// Panics when called outside a tokio runtime.
    pub fn start<M: Machine + 'static>(&self, mut job: MachineRun<M>) -> MachineRunHandle<M> {
        let run = job
            .id
            .get_or_insert_with(|| RunId::random(&*self.shared.world))
            .clone();
        let board = Arc::new(CommandRouter::default());
        let hub = Arc::new(Hub::new(job.watcher.take()));
        let events = hub.subscribe();
        let line = board.connect(&run, None);
        let (runtime, inner_hub, above) = (self.clone(), hub.clone(), ParentSpan::here());
        #[expect(
            clippy::disallowed_methods,
            reason = "the handle owns the task and aborts it on drop"
        )]
        let task = tokio::spawn(async move {
            let (run, driven) = runtime.driver(job, Some((line, inner_hub)), above).await;
            settle(run, driven)
        });
        MachineRunHandle {
            control: Control::new(run.clone(), board),
            run,
            hub,
            events: Some(events),
            task,
        }
    }

    /// The lease is released after the run, with the work that the run left for its conversation.
    async fn driver<M: Machine + 'static>(
        &self,
        job: MachineRun<M>,
        attached: Option<(CommandReceiver, Arc<Hub>)>,
        above: ParentSpan,
    ) -> (RunId, DriveResult<M>) {
        // Boxed, since a driven run needs no room for its initial settings.
        let StartedRun {
            run,
            driver,
            lease,
            _close,
        } = Box::pin(self.begin(job, attached, above)).await;
        let driven = match driver {
            Ok(driver) => match driver.traced() {
                Ok(traced) => traced.await,
                Err(driver) => driver.drive().await,
            },
            Err(stopped) => Err(*stopped),
        };
        if let Some(lease) = lease {
            let left = {
                let ending = driven.as_ref().ok().and_then(Machine::ending);
                ending.and_then(|ending| ending.conversation_end.clone())
            };
            lease.release(left).await;
        }
        (run, driven)
    }

    /// It never returns an error directly: the event streams must be closed in every case, which
    /// the returned value does when it is dropped.
    async fn begin<M: Machine + 'static>(
        &self,
        job: MachineRun<M>,
        attached: Option<(CommandReceiver, Arc<Hub>)>,
        above: ParentSpan,
    ) -> StartedRun<M> {
        let run = job.id.unwrap_or_else(|| RunId::random(&*self.shared.world));
        let (line, hub) = match attached {
            Some((line, hub)) => (Some(line), Some(hub)),
            None => (
                None,
                job.watcher.map(|watcher| Arc::new(Hub::new(Some(watcher)))),
            ),
        };
        let _close = hub.clone().map(CloseOnDrop);
        if let Some(before) = job.before {
            before.await;
        }
        let opened = self
            .open(&run, job.origin, job.limits, line, &*job.executor)
            .await;
        let Ready {
            machine,
            lease,
            open,
            limits,
            line,
            fork,
        } = match opened {
            Ok(ready) => ready,
            Err(stopped) => {
                return StartedRun {
                    run,
                    driver: Err(Box::new(stopped)),
                    lease: None,
                    _close,
                };
            }
        };
        let (shared, meter, park) = (self.shared.clone(), meter(*limits), job.park);
        let (executor, audit, name) = (job.executor, job.audit.is_some(), job.name);
        let (cancel, depth, origin, before, rests) = (None, 0, None, None, None);
        let env = RunEnvironment {
            shared,
            executor,
            meter,
            hub,
            cancel,
            depth,
            origin,
            park,
            audit,
            before,
            rests,
            name,
            above,
            given: job.given,
            guarded: Vec::new(),
        };
        let driver = match fork {
            None if open.len() > AT_ONCE => {
                Driver::load(run.clone(), machine, open, env, line).await
            }
            fork => Driver::new(run.clone(), machine, open, fork, env, line),
        };
        let driver = match driver {
            Ok(driver) => Ok(driver.audited(job.audit)),
            Err((machine, error)) => Err(Box::new((Some(machine), error))),
        };
        StartedRun {
            run,
            driver,
            lease,
            _close,
        }
    }

    /// Opens the run's log and creates its machine.
    async fn open<M>(
        &self,
        run: &RunId,
        origin: Origin<M>,
        limits: Option<Box<Limits>>,
        mut line: Option<CommandReceiver>,
        executor: &dyn Executor,
    ) -> Result<Ready<M>, (Option<M>, RuntimeError)> {
        let machine = match origin {
            Origin::New(machine) => LeasedMachine::from(*machine),
            Origin::Later(machine) => {
                let time = limits.as_ref().and_then(|limits| limits.wall_time);
                self.prepare(run, machine, time, &mut line)
                    .await
                    .map_err(|error| (None, error))?
            }
            Origin::Stored(restore, lease) => {
                let (machine, open) = self
                    .stored(run, &*restore)
                    .await
                    .map_err(|error| (None, error))?;
                let limits = limits.unwrap_or_else(|| Box::new(open.limits()));
                let lease = lease
                    .filter(|_| !open.is_ended())
                    .and_then(|lease| lease(&machine));
                let lease = match self.lease(run, lease, &mut line).await {
                    Ok(lease) => lease,
                    Err(error) => return Err((Some(machine), error)),
                };
                return Ok(Ready {
                    machine,
                    lease,
                    open,
                    limits,
                    line,
                    fork: None,
                });
            }
            Origin::Fork(plan) => {
                return Box::pin(self.fork(run, plan, limits, line, executor))
                    .await
                    .map_err(|error| (None, error));
            }
        };
        let LeasedMachine { machine, lease } = machine;
        match self.shared.journal.open(run).await {
            Ok(open) if open.records.is_empty() => {
                let open = StoredRun::whole(open);
                Ok(Ready {
                    machine,
                    lease,
                    open,
                    limits: limits.unwrap_or_default(),
                    line,
                    fork: None,
                })
            }
            Ok(_) => Err((Some(machine), RuntimeError::Exists(run.clone()))),
            Err(error) => Err((Some(machine), error.into())),
        }
    }

    /// Opens an old run and rebuilds its machine, from its last snapshot if there is a valid one.
    async fn stored<M>(
        &self,
        run: &RunId,
        restore: &(dyn Fn(&MachineKind, &Value) -> Result<M, String> + Send + Sync),
    ) -> Result<(M, StoredRun), RuntimeError> {
        let journal = &*self.shared.journal;
        let open = StoredRun::latest(journal, run).await?;
        open.check_is_own(run)?;
        match open.restore(run, restore) {
            // A snapshot only saves time: without it, all records are read.
            Err(_) if open.has_snapshot() => {
                drop(open);
                let open = StoredRun::whole(journal.open(run).await?);
                Ok((open.restore(run, restore)?, open))
            }
            machine => Ok((machine?, open)),
        }
    }

    /// Waits for the lease of a resumed run. A run that is cancelled meanwhile needs no lease: it
    /// only writes its end.
    async fn lease(
        &self,
        run: &RunId,
        lease: Option<LeaseFuture>,
        line: &mut Option<CommandReceiver>,
    ) -> Result<Option<Lease>, RuntimeError> {
        let Some(lease) = lease else { return Ok(None) };
        let run = run.clone();
        tokio::select! {
            lease = lease => lease.map(Some).map_err(|cause| RuntimeError::Prepare { run, cause }),
            () = cancelled(line) => Ok(None),
        }
    }

    /// Opens a new run that begins with the first records of an old one.
    ///
    /// The old run is only read. The new one stores a copy of the records, so that removing the old
    /// run does not break it.
    async fn fork<M>(
        &self,
        run: &RunId,
        plan: Box<ForkPlan<M>>,
        limits: Option<Box<Limits>>,
        line: Option<CommandReceiver>,
        executor: &dyn Executor,
    ) -> Result<Ready<M>, RuntimeError> {
        let old = self.shared.journal.read_to_continue(&plan.from).await?;
        let records = cut(&plan.from, old, plan.after)?;
        let Some(Entry::Opened(opened)) = records.first().map(|record| &record.entry) else {
            return Err(RuntimeError::NotFound(plan.from));
        };
        let mut opened = opened.clone();
        opened.limits = limits.unwrap_or(opened.limits);
        let inspection = executor.inspect();
        (opened.setup, opened.screens_input) = (inspection.setup, inspection.screener.is_some());
        let restored = (plan.restore)(opened.machine.clone(), opened.state.clone()).await;
        let restored = restored.map_err(|reason| RuntimeError::Restore {
            run: plan.from.clone(),
            reason,
        });
        let machine = restored?;
        let open = self.shared.journal.open(run).await?;
        if !open.records.is_empty() {
            return Err(RuntimeError::Exists(run.clone()));
        }
        let limits = opened.limits.clone();
        let fork = Fork {
            from: plan.from,
            opened,
            now: self.shared.world.now(),
        };
        Ok(Ready {
            machine,
            lease: None,
            open: StoredRun::whole(OpenRun::from_parts(records, open.log)),
            limits,
            line,
            fork: Some(Box::new(fork)),
        })
    }

    /// Waits for a machine to be created, within the run's time limit and until it is cancelled.
    ///
    /// Nothing is in the journal yet, so a cancelled preparation leaves no run behind.
    async fn prepare<M>(
        &self,
        run: &RunId,
        machine: BoxFuture<'static, Result<LeasedMachine<M>, SharedError>>,
        time: Option<Duration>,
        line: &mut Option<CommandReceiver>,
    ) -> Result<LeasedMachine<M>, RuntimeError> {
        let run = run.clone();
        let world = &self.shared.world;
        tokio::select! {
            made = machine => made.map_err(|cause| RuntimeError::Prepare { run, cause }),
            () = cancelled(line) => {
                let reason = line.as_mut().and_then(CommandReceiver::take_cancel);
                let reason = reason.unwrap_or_default();
                Err(RuntimeError::Cancelled { run, reason })
            }
            () = passed(&**world, time) => {
                let cause = SharedError::new("its time limit was reached before it could start");
                Err(RuntimeError::Prepare { run, cause })
            }
        }
    }
}

async fn cancelled(line: &mut Option<CommandReceiver>) {
    match line {
        Some(line) => line.cancelled().await,
        None => std::future::pending().await,
    }
}

async fn passed(world: &dyn World, time: Option<Duration>) {
    match time {
        Some(time) => world.sleep(time).await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("keeps", &self.shared.journal.keeps())
            .finish_non_exhaustive()
    }
}

/// Returns the lease that an old run must hold before it continues.
type LeaseFn<M> = Box<dyn FnOnce(&M) -> Option<LeaseFuture> + Send>;

type Restore<M> = Box<dyn Fn(&MachineKind, &Value) -> Result<M, String> + Send + Sync>;

/// A run that is ready to be driven.
struct Ready<M> {
    machine: M,
    lease: Option<Lease>,
    open: StoredRun,
    limits: Box<Limits>,
    line: Option<CommandReceiver>,
    fork: Option<Box<Fork>>,
}

type NotDriven<M> = Box<(Option<M>, RuntimeError)>;

/// A run that is about to be driven, or the error that prevents it.
struct StartedRun<M> {
    run: RunId,
    driver: Result<Box<Driver<M>>, NotDriven<M>>,
    lease: Option<Lease>,
    _close: Option<CloseOnDrop>,
}

pub(crate) type LaterRestore<M> =
    Box<dyn FnOnce(MachineKind, Value) -> BoxFuture<'static, Result<M, String>> + Send>;

/// The parameters of a fork.
///
/// `after` is the number of the last shared record; `None` selects the default.
struct ForkPlan<M> {
    from: RunId,
    after: Option<u64>,
    restore: LaterRestore<M>,
}

/// The ways in which a run begins: as a fork of another, with a machine, with the future of a
/// machine, or from the journal with a function that rebuilds the machine.
enum Origin<M> {
    Fork(Box<ForkPlan<M>>),
    New(Box<M>),
    Later(BoxFuture<'static, Result<LeasedMachine<M>, SharedError>>),
    Stored(Restore<M>, Option<LeaseFn<M>>),
}

/// A run of a machine, ready to be driven.
///
/// Use [`Run`](crate::Run) for agents, teams and swarms; a `MachineRun` needs no
/// [`Runnable`](crate::Runnable).
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::{Executor, Limits, Machine};
/// use levity_runtime::MachineRun;
///
/// fn job<M: Machine>(machine: M, executor: Arc<dyn Executor>) -> MachineRun<M> {
///     MachineRun::new(machine, executor).id("monday".into()).limits(Limits::new().model_calls(5))
/// }
/// ```
#[must_use = "a job does nothing until a runtime drives it"]
pub struct MachineRun<M> {
    origin: Origin<M>,
    executor: Arc<dyn Executor>,
    /// Boxed, since a started run keeps the room of its job.
    limits: Option<Box<Limits>>,
    id: Option<RunId>,
    watcher: Option<Watcher>,
    park: bool,
    audit: Option<LaterRestore<M>>,
    name: Option<Arc<str>>,
    before: Option<BoxFuture<'static, ()>>,
    given: Option<Arc<CallerContext>>,
}

impl<M> MachineRun<M> {
    fn of(origin: Origin<M>, executor: Arc<dyn Executor>) -> Self {
        let (limits, id, watcher, audit, name, before, given) =
            (None, None, None, None, None, None, None);
        Self {
            origin,
            executor,
            limits,
            id,
            watcher,
            park: false,
            audit,
            name,
            before,
            given,
        }
    }

    /// Creates a new run of `machine`, whose effects `executor` performs.
    pub fn new(machine: M, executor: Arc<dyn Executor>) -> Self {
        Self::of(Origin::New(Box::new(machine)), executor)
    }

    /// Creates a new run whose machine is created as part of the run.
    pub fn deferred(
        machine: impl Future<Output = Result<LeasedMachine<M>, SharedError>> + Send + 'static,
        executor: Arc<dyn Executor>,
    ) -> Self {
        Self::of(Origin::Later(Box::pin(machine)), executor)
    }

    /// Resumes an old run from its journal. `restore` rebuilds its machine from a state that it has
    /// saved: the one it began with, or a later one.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use levity_core::{Executor, RunId};
    /// use levity_runtime::MachineRun;
    ///
    /// /// Resumes a run whose machine is a list of finished steps.
    /// fn again(run: RunId, executor: Arc<dyn Executor>) -> MachineRun<Vec<String>> {
    ///     MachineRun::resume(run, executor, |kind, state| match &*kind.name {
    ///         "steps" => serde_json::from_value(state.clone()).map_err(|error| error.to_string()),
    ///         other => Err(format!("there is no machine `{other}`")),
    ///     })
    /// }
    /// ```
    pub fn resume(
        run: RunId,
        executor: Arc<dyn Executor>,
        restore: impl Fn(&MachineKind, &Value) -> Result<M, String> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Origin::Stored(Box::new(restore), None), executor).id(run)
    }

    /// Returns `true` if the run has been started before.
    pub(crate) fn is_old(&self) -> bool {
        matches!(self.origin, Origin::Stored(..))
    }

    /// Sets the values that the program gives to the run.
    pub(crate) fn given(mut self, given: Option<Arc<CallerContext>>) -> Self {
        self.given = given;
        self
    }

    /// Waits for this work before anything of the run starts.
    pub(crate) fn before(mut self, work: BoxFuture<'static, ()>) -> Self {
        self.before = Some(work);
        self
    }

    /// Sets the lease that an old run that has not ended must hold before it continues, such as
    /// that of its conversation.
    pub fn leased(
        mut self,
        lease: impl FnOnce(&M) -> Option<LeaseFuture> + Send + 'static,
    ) -> Self {
        if let Origin::Stored(_, slot) = &mut self.origin {
            *slot = Some(Box::new(lease));
        }
        self
    }

    /// Creates a new run that begins with the records of an old one up to `after`, and diverges
    /// from there.
    ///
    /// By default it uses all records, or all before the last model call if the run has ended.
    /// `restore` rebuilds the machine from the state that the old one began with.
    ///
    /// Effects that had finished by then are not performed again. A child that was in progress then
    /// is started anew.
    pub fn fork<F>(
        from: RunId,
        after: Option<u64>,
        executor: Arc<dyn Executor>,
        restore: impl FnOnce(MachineKind, Value) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<M, String>> + Send + 'static,
    {
        let restore: LaterRestore<M> = Box::new(move |kind, state| Box::pin(restore(kind, state)));
        let origin = Origin::Fork(Box::new(ForkPlan {
            from,
            after,
            restore,
        }));
        Self::of(origin, executor)
    }

    /// Sets the limits of the run; the defaults for a new run, and the original ones for an old
    /// run.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(Box::new(limits));
        self
    }

    /// Sets the id of a new run; a random one by default.
    pub fn id(mut self, run: RunId) -> Self {
        self.id = Some(run);
        self
    }

    /// Sets the name of the agent, for traces.
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Calls `watcher` with each event; see [`Watcher`].
    pub fn watch(mut self, watcher: Watcher) -> Self {
        self.watcher = Some(watcher);
        self
    }
}

impl<M> MachineRun<M> {
    /// Replays the run and its children from the journal at their ends, and fails if one gives
    /// another result.
    ///
    /// Use it to find a machine that is not deterministic. `restore` rebuilds the machine.
    pub fn audit<F>(
        mut self,
        restore: impl FnOnce(MachineKind, Value) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<M, String>> + Send + 'static,
    {
        self.audit = Some(Box::new(move |kind, state| Box::pin(restore(kind, state))));
        self
    }

    /// Parks the run in its journal when it only waits, for a person or a time.
    ///
    /// Driving it then ends with [`RuntimeError::Parked`], and it uses no resources except its
    /// place in the journal until it is resumed.
    pub fn park(mut self) -> Self {
        self.park = true;
        self
    }
}

impl<M> fmt::Debug for MachineRun<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineRun")
            .field("id", &self.id)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The result of a run that ended.
///
/// ```
/// use levity_core::{Machine, Status};
/// use levity_runtime::EndedMachine;
///
/// fn is_complete<M: Machine>(ended: &EndedMachine<M>) -> bool {
///     ended.machine.ending().is_some_and(|ending| ending.status == Status::Complete)
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct EndedMachine<M> {
    /// The id of the run.
    pub run: RunId,
    /// The machine of the run, which contains the ending.
    pub machine: M,
}

/// The result of a run that could not be driven to its end.
///
/// The run is still in its journal, if that stores records, and can be resumed when the reason is
/// gone.
///
/// ```
/// use levity_core::RuntimeError;
/// use levity_runtime::StoppedMachine;
///
/// /// Returns `true` if the run only waits for a person or a time.
/// fn is_parked<M>(stopped: &StoppedMachine<M>) -> bool {
///     matches!(stopped.error, RuntimeError::Parked { .. })
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct StoppedMachine<M> {
    /// The id of the run.
    pub run: RunId,
    /// The machine in its last state, unless it could not be built.
    pub machine: Option<M>,
    /// The reason for the stop.
    pub error: RuntimeError,
}

fn settle<M>(run: RunId, driven: DriveResult<M>) -> Result<EndedMachine<M>, StoppedMachine<M>> {
    match driven {
        Ok(machine) => Ok(EndedMachine { run, machine }),
        Err((machine, error)) => Err(StoppedMachine {
            run,
            machine,
            error,
        }),
    }
}

/// A handle to a run in progress. Awaiting it returns its end; dropping it stops the run.
///
/// ```
/// use levity_core::EventKind;
/// use levity_runtime::MachineRunHandle;
///
/// /// Waits for a run and counts its model calls meanwhile.
/// async fn model_calls<M>(mut handle: MachineRunHandle<M>) -> usize {
///     let (mut events, mut calls) = (handle.events(), 0);
///     while let Some(event) = events.next().await {
///         calls += usize::from(matches!(event.kind, EventKind::ModelStarted { .. }));
///     }
///     let _ended = handle.await;
///     calls
/// }
/// ```
#[must_use = "dropping the handle stops the run"]
pub struct MachineRunHandle<M> {
    run: RunId,
    control: Control,
    hub: Arc<Hub>,
    events: Option<Events>,
    task: JoinHandle<Result<EndedMachine<M>, StoppedMachine<M>>>,
}

impl<M> MachineRunHandle<M> {
    /// Returns the id of the run.
    pub fn id(&self) -> &RunId {
        &self.run
    }

    /// Returns the events of the run and its children: at the first call from the start, later from
    /// now on.
    pub fn events(&mut self) -> Events {
        self.events.take().unwrap_or_else(|| self.hub.subscribe())
    }

    /// Stops the run where it is, as dropping the handle does, and waits until all its tasks have
    /// ended; other processes can then open its journal.
    pub async fn stop(mut self) {
        self.task.abort();
        // A run that was stopped and one that had just ended make no difference here.
        let _ = (&mut self.task).await;
    }

    /// Returns a control of the run.
    pub fn control(&self) -> &Control {
        &self.control
    }
}

impl<M> Future for MachineRunHandle<M> {
    type Output = Result<EndedMachine<M>, StoppedMachine<M>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.task)
            .poll(cx)
            .map(|joined| match joined {
                Ok(ended) => ended,
                Err(_) => {
                    let run = self.run.clone();
                    Err(StoppedMachine {
                        error: RuntimeError::Lost(run.clone()),
                        run,
                        machine: None,
                    })
                }
            })
    }
}

impl<M> Drop for MachineRunHandle<M> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<M> fmt::Debug for MachineRunHandle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MachineRunHandle").field(&self.run).finish()
    }
}
