use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use levity_core::{Cause, Executor, Journal, Limits, Machine, MachineKind, Record, RunId, World};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::control::{Control, Line, Switchboard};
use crate::drive::{Around, Driven, Driver, Records, meter};
use crate::error::Error;
use crate::events::{CloseOnDrop, Events, Hub, Watcher};
use crate::journal::NoJournal;
use crate::replay::opened;
use crate::world::SystemWorld;

/// Drives machines: performs their effects, journals what happens, keeps them within their limits and
/// tells those who watch. Cloning costs nothing.
///
/// ```
/// # use levity_runtime::{MemoryJournal, Runtime};
/// let runtime = Runtime::new().with_journal(MemoryJournal::new());
/// ```
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) world: Arc<dyn World>,
}

impl Default for Runtime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime {
    /// A runtime that keeps no journal and goes by the real clock.
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared { journal: Arc::new(NoJournal), world: Arc::new(SystemWorld) }) }
    }

    /// Keeps a journal.
    #[must_use]
    pub fn with_journal(self, journal: impl Journal + 'static) -> Self {
        let journal: Arc<dyn Journal> = Arc::new(journal);
        Self { shared: Arc::new(Shared { journal, world: self.shared.world.clone() }) }
    }

    /// Goes by another clock and other dice.
    #[must_use]
    pub fn with_world(self, world: impl World + 'static) -> Self {
        let world: Arc<dyn World> = Arc::new(world);
        Self { shared: Arc::new(Shared { journal: self.shared.journal.clone(), world }) }
    }

    /// The clock and the dice.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.shared.world
    }

    /// The journal.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.shared.journal
    }

    /// Drives a run to its end, on the caller's own task. Dropping the future stops the run where it is;
    /// with a journal that keeps its records, it can be resumed from there.
    ///
    /// # Errors
    /// When the run could not be driven to an end; [`Stopped`] has what it had reached. A run that
    /// *ended* badly is no error here: its machine's ending says so.
    pub async fn run<M: Machine + 'static>(&self, job: Job<M>) -> Result<Done<M>, Stopped<M>> {
        let (run, driven) = self.driver(job, None).await;
        settle(run, driven)
    }

    /// Drives a run on a task of its own, and returns a handle on it at once.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start<M: Machine + 'static>(&self, mut job: Job<M>) -> RunHandle<M> {
        let run = job.id.get_or_insert_with(|| RunId::random(&*self.shared.world)).clone();
        let board = Arc::new(Switchboard::default());
        let hub = Arc::new(Hub::new(job.watcher.take()));
        let events = hub.subscribe();
        let line = board.connect(&run);
        let (runtime, inner_hub) = (self.clone(), hub.clone());
        #[expect(clippy::disallowed_methods, reason = "the handle owns the task and aborts it on drop")]
        let task = tokio::spawn(async move {
            let (run, driven) = runtime.driver(job, Some((line, inner_hub))).await;
            settle(run, driven)
        });
        RunHandle { control: Control::new(run.clone(), board), run, hub, events: Some(events), task }
    }

    async fn driver<M: Machine + 'static>(
        &self,
        job: Job<M>,
        attached: Option<(Line, Arc<Hub>)>,
    ) -> (RunId, Driven<M>) {
        let run = job.id.unwrap_or_else(|| RunId::random(&*self.shared.world));
        let (line, hub) = match attached {
            Some((line, hub)) => (Some(line), Some(hub)),
            None => (None, job.watcher.map(|watcher| Arc::new(Hub::new(Some(watcher))))),
        };
        let _close = hub.clone().map(CloseOnDrop);
        let (shared, meter) = (self.shared.clone(), meter(job.limits));
        let (machine, records) = match job.origin {
            Origin::New(machine) => (machine, Records::None),
            Origin::Later(machine) => match machine.await {
                Ok(machine) => (machine, Records::None),
                Err(cause) => return (run.clone(), Err((None, Error::Prepare { run, cause }))),
            },
            Origin::Stored(restore) => match self.restore(&run, restore).await {
                Ok(machine) => (machine, Records::Continue),
                Err(error) => return (run, Err((None, error))),
            },
        };
        let around = Around { shared, executor: job.executor, meter, hub, cancel: None };
        let driven = match Driver::open(run.clone(), machine, around, line, records).await {
            Ok(driver) => driver.drive().await,
            Err((machine, error)) => Err((Some(machine), error)),
        };
        (run, driven)
    }

    async fn restore<M>(&self, run: &RunId, restore: Restore<M>) -> Result<M, Error> {
        // The log is opened once more to drive the run; whoever takes it in between makes that fail.
        let open = self.shared.journal.open(run).await?;
        restore_from(run, &open.records, restore)
    }
}

pub(crate) fn restore_from<M>(
    run: &RunId,
    records: &[Record],
    restore: impl FnOnce(&MachineKind, &Value) -> Result<M, String>,
) -> Result<M, Error> {
    let Some(first) = records.first() else {
        return Err(Error::NotFound(run.clone()));
    };
    let (kind, state) = opened(run, first)?;
    restore(kind, state).map_err(|reason| Error::Restore { run: run.clone(), reason })
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("keeps", &self.shared.journal.keeps()).finish_non_exhaustive()
    }
}

type Restore<M> = Box<dyn FnOnce(&MachineKind, &Value) -> Result<M, String> + Send>;

enum Origin<M> {
    New(M),
    Later(BoxFuture<'static, Result<M, Cause>>),
    Stored(Restore<M>),
}

/// A run to be driven.
#[must_use = "a job does nothing until a runtime drives it"]
pub struct Job<M> {
    origin: Origin<M>,
    executor: Arc<dyn Executor>,
    limits: Limits,
    id: Option<RunId>,
    watcher: Option<Watcher>,
}

impl<M> Job<M> {
    /// A new run of `machine`, whose effects `executor` performs.
    pub fn new(machine: M, executor: Arc<dyn Executor>) -> Self {
        Self { origin: Origin::New(machine), executor, limits: Limits::default(), id: None, watcher: None }
    }

    /// A new run whose machine has yet to be made; making it is part of the run.
    pub fn deferred(
        machine: impl Future<Output = Result<M, Cause>> + Send + 'static,
        executor: Arc<dyn Executor>,
    ) -> Self {
        let origin = Origin::Later(Box::pin(machine));
        Self { origin, executor, limits: Limits::default(), id: None, watcher: None }
    }

    /// An old run, to go on from its journal. `restore` builds its machine from the state it began with.
    pub fn resume(
        run: RunId,
        executor: Arc<dyn Executor>,
        restore: impl FnOnce(&MachineKind, &Value) -> Result<M, String> + Send + 'static,
    ) -> Self {
        Self {
            origin: Origin::Stored(Box::new(restore)),
            executor,
            limits: Limits::default(),
            id: Some(run),
            watcher: None,
        }
    }

    /// What it may use.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The id of a new run; a random one by default.
    pub fn id(mut self, run: RunId) -> Self {
        self.id = Some(run);
        self
    }

    /// Calls `watcher` with each event, in order, on the task that drives the run; it must not block.
    pub fn watch(mut self, watcher: Watcher) -> Self {
        self.watcher = Some(watcher);
        self
    }
}

impl<M> fmt::Debug for Job<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.id).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A run that ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Done<M> {
    /// The run.
    pub run: RunId,
    /// Its machine; the ending is there.
    pub machine: M,
}

/// A run that could not be driven to its end.
#[derive(Debug)]
#[non_exhaustive]
pub struct Stopped<M> {
    /// The run.
    pub run: RunId,
    /// Its machine as it was left, unless it could not even be built.
    pub machine: Option<M>,
    /// Why.
    pub error: Error,
}

fn settle<M>(run: RunId, driven: Driven<M>) -> Result<Done<M>, Stopped<M>> {
    match driven {
        Ok(machine) => Ok(Done { run, machine }),
        Err((machine, error)) => Err(Stopped { run, machine, error }),
    }
}

/// A run under way. Awaiting it gives its end; dropping it stops it.
#[must_use = "dropping the handle stops the run"]
pub struct RunHandle<M> {
    run: RunId,
    control: Control,
    hub: Arc<Hub>,
    events: Option<Events>,
    task: JoinHandle<Result<Done<M>, Stopped<M>>>,
}

impl<M> RunHandle<M> {
    /// The run's id.
    pub fn id(&self) -> &RunId {
        &self.run
    }

    /// What happens in the run and its children: at the first call from the start, later from now on.
    pub fn events(&mut self) -> Events {
        self.events.take().unwrap_or_else(|| self.hub.subscribe())
    }

    /// Tells the run what to do.
    pub fn control(&self) -> &Control {
        &self.control
    }
}

impl<M> Future for RunHandle<M> {
    type Output = Result<Done<M>, Stopped<M>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.task).poll(cx).map(|joined| match joined {
            Ok(ended) => ended,
            Err(_) => {
                let run = self.run.clone();
                Err(Stopped { error: Error::Lost(run.clone()), run, machine: None })
            }
        })
    }
}

impl<M> Drop for RunHandle<M> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<M> fmt::Debug for RunHandle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunHandle").field(&self.run).finish()
    }
}
