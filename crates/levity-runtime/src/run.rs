use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    Approver, ConversationId, Error, Event, Failure, History, Limits, Machine as _, Reached, RunId,
    RuntimeError, Status,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::drive::Given;
use crate::events::Watcher;
use crate::handle::RunHandle;
use crate::inspect::{fork_history, replay_run};
use crate::observe::{Observe, Observers};
use crate::runnable::{Conversational, End, Machined, Runnable, Typed, TypedOutput};
use crate::runtime::{EndedMachine, MachineRun, StoppedMachine};

/// A run that is about to begin, to go on or to go another way: await it for what it gives, or set
/// something first.
#[must_use = "a run does nothing until it is awaited or started"]
pub struct Run<W: Runnable> {
    what: W,
    mode: Mode<W::Input>,
    id: Option<RunId>,
    /// In a box, since a run that has begun keeps the room of what it was made of.
    limits: Option<Box<Limits>>,
    watcher: Option<Watcher>,
    observers: Vec<Arc<dyn Observe>>,
    park: bool,
    given: Option<Arc<Given>>,
}

/// What is left to do once a run has ended.
pub(crate) type Afterwards = Option<BoxFuture<'static, ()>>;

enum Mode<I> {
    New(Box<I>),
    Resume(RunId),
    Fork { from: RunId, after: Option<u64> },
}

impl<I> fmt::Debug for Mode<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(_) => f.write_str("New"),
            Self::Resume(run) => f.debug_tuple("Resume").field(run).finish(),
            Self::Fork { from, after } => f
                .debug_struct("Fork")
                .field("from", from)
                .field("after", after)
                .finish(),
        }
    }
}

impl<W: Runnable> Run<W> {
    fn of(what: W, mode: Mode<W::Input>) -> Self {
        Self {
            what,
            mode,
            id: None,
            limits: None,
            watcher: None,
            observers: Vec::new(),
            park: false,
            given: None,
        }
    }

    /// A new run.
    pub fn new(what: W, input: impl Into<W::Input>) -> Self {
        Self::of(what, Mode::New(Box::new(input.into())))
    }

    /// An old run, to go on from its journal. What was done is not done again.
    pub fn resume(what: W, run: impl Into<RunId>) -> Self {
        Self::of(what, Mode::Resume(run.into()))
    }

    /// A new run that begins with the records of an old one, and goes its own way from there.
    pub fn fork(what: W, from: impl Into<RunId>) -> Self {
        Self::of(
            what,
            Mode::Fork {
                from: from.into(),
                after: None,
            },
        )
    }

    /// The last record of the old run that a fork begins with, by its number; by default the last
    /// there is, and of a run that has ended the last before the last call of its model. Other runs
    /// have no use for it.
    pub fn after(mut self, record: u64) -> Self {
        if let Mode::Fork { after, .. } = &mut self.mode {
            *after = Some(record);
        }
        self
    }

    /// The run's id; a random one by default. A dot stands between a run and its children. A run
    /// that goes on keeps its own.
    pub fn id(mut self, run: impl Into<RunId>) -> Self {
        self.id = Some(run.into());
        self
    }

    /// What this run may use, in place of the limits of what is run; of a run that goes on, in
    /// place of what it was made with. What it has used counts.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(Box::new(limits));
        self
    }

    /// Calls `watcher` with each new event, in order; it must not block. What a blocking tool
    /// reports of its progress comes from that tool's thread, all else from the task that drives
    /// the run.
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }

    /// Has `observe` follow this run, beside the observers that follow every run of its kind. Use
    /// it for a session file. For a single closure, [`on_event`](Self::on_event) is shorter.
    pub fn observe(mut self, observe: impl Observe + 'static) -> Self {
        self.observers.push(Arc::new(observe));
        self
    }

    /// Leaves the run in its journal when all it does is wait, for a person or a time: awaiting it
    /// then gives an error that says so, and until it is resumed, it takes up nothing but its place
    /// in the journal. Without a journal, it makes no difference.
    pub fn park(mut self) -> Self {
        self.park = true;
        self
    }

    /// Gives the run's tools a value, in place of one of the same type: the user, the tenant, a
    /// transaction. A tool has it by [`ToolCx::get`](levity_core::ToolCx::get). It is in no
    /// journal: whoever resumes the run gives it again.
    pub fn with<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        let given = Arc::make_mut(self.given.get_or_insert_default());
        given.values = std::mem::take(&mut given.values).with(value);
        self
    }

    /// Has the questions of this run and the runs below it answered by `approver`, in place of
    /// whoever answers them otherwise.
    pub fn on_ask(mut self, approver: impl Approver + 'static) -> Self {
        Arc::make_mut(self.given.get_or_insert_default()).approver = Some(Arc::new(approver));
        self
    }

    /// Works on a task of its own, and returns a handle on it at once. An input that cannot be
    /// begun with is told when the handle is awaited.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start(mut self) -> RunHandle<W> {
        let run = self.settle_id();
        self.try_start()
            .unwrap_or_else(|error| RunHandle::refused(run, error))
    }

    /// As [`start`](Self::start), and tells at once of an input that cannot be begun with.
    ///
    /// # Errors
    /// When nothing can be begun with the input.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn try_start(self) -> Result<RunHandle<W>, Error> {
        let what = self.what.clone();
        let (job, after) = self.into_job()?;
        Ok(RunHandle::new(what.runtime().start(job), what, after))
    }

    /// Waits for the run on this thread, for programs that are not async.
    ///
    /// Each call has an async runtime of its own, which ends with it; a model's client that keeps
    /// connections open makes them anew.
    ///
    /// # Errors
    /// Those of the run, and when it is called from async code, where it would hold up others.
    pub fn blocking(self) -> Result<W::Output, Error> {
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(RuntimeError::InsideAsync.into());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(RuntimeError::NoRuntime)?;
        let ended = runtime.block_on(self.into_future());
        // A tool that blocks and was given up on must not hold up the caller.
        runtime.shutdown_background();
        ended
    }

    /// The id that the run has.
    fn settle_id(&mut self) -> RunId {
        let random = || RunId::random(&**self.what.runtime().world());
        match &self.mode {
            Mode::Resume(run) => run.clone(),
            _ => self.id.get_or_insert_with(random).clone(),
        }
    }

    /// The observers of this run, each with its own part of it.
    fn observed(&mut self) -> Observers {
        let mut observers = Observers::default();
        if self.observers.is_empty() && self.what.observers().is_empty() {
            return observers;
        }
        let run = self.settle_id();
        for observe in self.what.observers().iter().chain(&self.observers) {
            observers.add(observe.observe(&run));
        }
        observers
    }

    /// Gives observers the events from before the run begins.
    fn before(&mut self, observers: &mut Observers) -> Option<BoxFuture<'static, ()>> {
        let earlier = std::mem::take(&mut observers.earlier);
        if earlier.is_empty() || matches!(self.mode, Mode::New(_)) {
            return None;
        }
        let (what, run) = (self.what.clone(), self.settle_id());
        let fork = match &self.mode {
            Mode::Fork { from, after } => Some((from.clone(), *after)),
            _ => None,
        };
        Some(Box::pin(async move {
            let events = match fork {
                Some((from, after)) => fork_history(&what, &run, &from, after).await,
                // Errors of the journal are reported when the run goes on.
                None => Some(
                    replay_run(&what, &run)
                        .await
                        .map(|replay| replay.events)
                        .unwrap_or_default(),
                ),
            };
            if let Some(events) = events {
                earlier.into_iter().for_each(|take| take(&events));
            }
        }))
    }

    /// The job, and what is left to do at its end.
    fn into_job(mut self) -> Result<(MachineRun<W::Machine>, Afterwards), Error> {
        let mut observers = self.observed();
        let before = self.before(&mut observers);
        let Self {
            what,
            mode,
            id,
            limits,
            watcher,
            park,
            given,
            ..
        } = self;
        let mut job = job(&what, mode, limits)?.given(given);
        if let Some(run) = id.filter(|_| !job.is_old()) {
            job = job.id(run);
        }
        if let Some(name) = what.name() {
            job = job.named(name);
        }
        if what.audits() {
            job = job.audit(move |kind, state| async move { what.restore(&kind, &state) });
        }
        if let Some(watcher) = observers.watcher(watcher) {
            job = job.watch(watcher);
        }
        if let Some(before) = before {
            job = job.before(before);
        }
        Ok((if park { job.park() } else { job }, observers.after()))
    }
}

fn job<W: Runnable>(
    what: &W,
    mode: Mode<W::Input>,
    limits: Option<Box<Limits>>,
) -> Result<MachineRun<W::Machine>, Error> {
    let (executor, again) = (what.executor(), what.clone());
    let job = match mode {
        Mode::New(input) => {
            let limits = limits.unwrap_or_else(|| Box::new(what.limits()));
            let job = match what.begin(*input, &limits)?.0 {
                Machined::Now(machine) => MachineRun::new(machine, executor),
                Machined::Later(machine) => MachineRun::deferred(machine, executor),
            };
            return Ok(job.limits(*limits));
        }
        Mode::Resume(run) => {
            let leasing = what.clone();
            MachineRun::resume(run, executor, move |kind, state| again.restore(kind, state))
                .leased(move |machine| leasing.lease(machine))
        }
        Mode::Fork { from, after } => {
            MachineRun::fork(from, after, executor, move |kind, state| async move {
                again.adapt(again.restore(&kind, &state)?).await
            })
        }
    };
    Ok(match limits {
        Some(limits) => job.limits(*limits),
        None => job,
    })
}

impl<W: Conversational> Run<W> {
    /// Goes on with a conversation in the memory of what is run, in place of a history: what was
    /// said before is there, and what is said now is kept. Whoever else works on the conversation
    /// is waited for. A run that goes on is part of the one it was part of.
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        if let Mode::New(input) = &mut self.mode
            && let Some(place) = W::conversation(input)
        {
            *place = Some(id.into());
        }
        self
    }

    /// Goes on from earlier messages.
    pub fn history(mut self, history: History) -> Self {
        if let Mode::New(input) = &mut self.mode
            && let Some(place) = W::history(input)
        {
            *place = history;
        }
        self
    }
}

impl<W: TypedOutput> Run<W> {
    /// Wants the answer as a `T`: the model is given its schema, the answer is checked against it,
    /// mended where that is safe, and asked for again when it is wrong.
    pub fn typed<T: DeserializeOwned + JsonSchema + Send + 'static>(self) -> Run<Typed<W, T>> {
        let Self {
            what,
            mode,
            id,
            limits,
            watcher,
            observers,
            park,
            given,
        } = self;
        Run {
            what: Typed::new(&what),
            mode,
            id,
            limits,
            watcher,
            observers,
            park,
            given,
        }
    }
}

impl<W: TypedOutput, T: DeserializeOwned + Send + 'static> Run<Typed<W, T>> {
    /// Waits for the answer as a `T`, together with all there is to know of it.
    ///
    /// # Errors
    /// As for any run, and when the answer keeps having the wrong shape.
    pub async fn with_answer(self) -> Result<(T, W::Output), Error> {
        let Self {
            what,
            mode,
            id,
            limits,
            watcher,
            observers,
            park,
            given,
        } = self;
        let output = Run {
            what: what.inner,
            mode,
            id,
            limits,
            watcher,
            observers,
            park,
            given,
        }
        .await?;
        Ok((W::parse(&output)?, output))
    }
}

impl<W: Runnable> IntoFuture for Run<W> {
    type Output = Result<W::Output, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let what = self.what.clone();
        match self.into_job() {
            Ok((job, after)) => Box::pin(async move {
                let ended = what.runtime().run(job).await;
                finish(what, ended, after).await.into_result()
            }),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// Does what is left to do when a run has ended, and says what it gives.
pub(crate) async fn finish<W: Runnable>(
    what: W,
    ended: Result<EndedMachine<W::Machine>, StoppedMachine<W::Machine>>,
    after: Afterwards,
) -> End<W::Output> {
    if let Some(after) = after {
        after.await;
    }
    match ended {
        Ok(EndedMachine { run, machine }) => match machine.ending().cloned() {
            Some(ending) => End::Ended(what.conclude(Reached::new(run, ending, machine))),
            None => End::Stopped(RuntimeError::Lost(run).into()),
        },
        Err(StoppedMachine {
            run,
            machine,
            error,
        }) => {
            let partial = machine.and_then(|machine| {
                let ending = machine.so_far(Status::Failed(Failure::Internal(error.to_string())));
                what.conclude(Reached::new(run, ending, machine))
                    .err()?
                    .partial()
                    .cloned()
            });
            End::Stopped(Error::stopped(error, partial))
        }
    }
}

impl<W: Runnable> fmt::Debug for Run<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("id", &self.id)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
