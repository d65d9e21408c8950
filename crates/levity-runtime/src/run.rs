//! The options of a run, and its life from the options to the result.
//!
//! [`Run`] collects options without side effects. Awaiting or starting it creates a [`MachineRun`],
//! which the runtime drives. Options that belong to another mode have no effect, such as `after`
//! for a new run: so a program can use one chain of options for all modes.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    Approver, ConversationId, Error, Event, Failure, History, Limits, Machine as _, RunId,
    RuntimeError, Status, StoppedRun,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::drive::CallerContext;
use crate::events::Watcher;
use crate::handle::RunHandle;
use crate::inspect::{fork_history, replay_run};
use crate::observe::{Observe, Observers};
use crate::runnable::{Conversational, End, MachineSource, Runnable, Typed, TypedOutput};
use crate::runtime::{EndedMachine, MachineRun, StoppedMachine};

/// A run that is about to start, resume or fork: await it for the result, or set options first.
///
/// ```
/// use std::time::Duration;
///
/// use levity_core::{Error, Limits};
/// use levity_runtime::{Run, Runnable};
///
/// /// Runs something within a minute and reports each event.
/// async fn within_a_minute<W: Runnable>(what: W, input: W::Input) -> Result<W::Output, Error> {
///     Run::new(what, input)
///         .limits(Limits::new().wall_time(Duration::from_secs(60)))
///         .on_event(|event| println!("{}", event.kind.name()))
///         .await
/// }
/// ```
#[must_use = "a run does nothing until it is awaited or started"]
pub struct Run<W: Runnable> {
    what: W,
    mode: Mode<W::Input>,
    id: Option<RunId>,
    /// Boxed, since a started run keeps the room of its settings.
    limits: Option<Box<Limits>>,
    watcher: Option<Watcher>,
    observers: Vec<Arc<dyn Observe>>,
    park: bool,
    given: Option<Arc<CallerContext>>,
}

/// The work that remains once a run has ended.
pub(crate) type FinalWork = Option<BoxFuture<'static, ()>>;

/// The input of a new run is boxed, since it may be large and the other modes have none.
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

    /// Creates a new run.
    ///
    /// ```
    /// use levity_core::Error;
    /// use levity_runtime::{Run, Runnable};
    ///
    /// /// Runs something, and once more if it failed.
    /// async fn twice<W: Runnable>(what: W, inputs: [W::Input; 2]) -> Result<W::Output, Error> {
    ///     let [first, second] = inputs;
    ///     match Run::new(what.clone(), first).await {
    ///         Err(error) if error.is_retryable() => Run::new(what, second).await,
    ///         result => result,
    ///     }
    /// }
    /// ```
    pub fn new(what: W, input: impl Into<W::Input>) -> Self {
        Self::of(what, Mode::New(Box::new(input.into())))
    }

    /// Resumes an old run from its journal. Completed effects are not repeated.
    ///
    /// ```
    /// use levity_core::{Error, RunId, RunQuery, RunState};
    /// use levity_runtime::{Run, Runnable};
    ///
    /// /// Resumes every run that an earlier process left in progress.
    /// async fn resume_all<W: Runnable>(what: &W) -> Result<usize, Error> {
    ///     let open = RunQuery::new().state(RunState::Open).roots();
    ///     let runs = what.runtime().journal().list(&open).await?;
    ///     for run in &runs {
    ///         Run::resume(what.clone(), run.run.clone()).await?;
    ///     }
    ///     Ok(runs.len())
    /// }
    /// ```
    pub fn resume(what: W, run: impl Into<RunId>) -> Self {
        Self::of(what, Mode::Resume(run.into()))
    }

    /// Creates a new run that begins with the records of an old one, and diverges from there.
    ///
    /// ```
    /// use levity_core::Error;
    /// use levity_runtime::{Run, Runnable};
    ///
    /// /// Tries a run again from its tenth record on, under another id.
    /// async fn again<W: Runnable>(what: W) -> Result<W::Output, Error> {
    ///     Run::fork(what, "monday").after(9).id("monday-again").await
    /// }
    /// ```
    pub fn fork(what: W, from: impl Into<RunId>) -> Self {
        Self::of(
            what,
            Mode::Fork {
                from: from.into(),
                after: None,
            },
        )
    }

    /// Sets the number of the last record of the old run that a fork begins with.
    ///
    /// By default it is the last record, or the last one before the last model call if the run has
    /// ended. It has no effect on other runs.
    pub fn after(mut self, record: u64) -> Self {
        if let Mode::Fork { after, .. } = &mut self.mode {
            *after = Some(record);
        }
        self
    }

    /// Sets the id of the run; a random one by default. A dot separates a run from its children. A
    /// resumed run keeps its id.
    ///
    /// ```
    /// use levity_core::Error;
    /// use levity_runtime::{Run, Runnable};
    ///
    /// /// The report of a day is one run: a second one of this id is refused.
    /// async fn report<W: Runnable>(what: W, input: W::Input) -> Result<W::Output, Error> {
    ///     Run::new(what, input).id("report-2026-05-04").await
    /// }
    /// ```
    pub fn id(mut self, run: impl Into<RunId>) -> Self {
        self.id = Some(run.into());
        self
    }

    /// Sets the limits of this run, in place of the default limits, or in place of the original
    /// ones for a resumed run. Its previous usage counts.
    ///
    /// ```
    /// use levity_core::{Limits, Money};
    /// use levity_runtime::{Run, Runnable};
    ///
    /// fn cheap<W: Runnable>(run: Run<W>) -> Run<W> {
    ///     run.limits(Limits::new().money(Money::from_dollars(0.05)))
    /// }
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(Box::new(limits));
        self
    }

    /// Calls `watcher` with each new event, in order; it must not block. Progress of a blocking
    /// tool is reported from that tool's thread, everything else from the task that drives the run.
    ///
    /// ```
    /// use levity_core::EventKind;
    /// use levity_runtime::{Run, Runnable};
    ///
    /// fn verbose<W: Runnable>(run: Run<W>) -> Run<W> {
    ///     run.on_event(|event| {
    ///         if let EventKind::ToolStarted { .. } = event.kind {
    ///             println!("{}: a tool runs", event.at);
    ///         }
    ///     })
    /// }
    /// ```
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }

    /// Adds an observer of this run, beside the observers of every run of its kind. Use it for a
    /// session file. For a single closure, [`on_event`](Self::on_event) is shorter.
    pub fn observe(mut self, observe: impl Observe + 'static) -> Self {
        self.observers.push(Arc::new(observe));
        self
    }

    /// Parks the run in its journal when it only waits, for a person or a time.
    ///
    /// Awaiting it then returns an error that reports so. Until it is resumed, it uses no resources
    /// except its place in the journal. Without a journal, this has no effect.
    ///
    /// ```
    /// use levity_core::Error;
    /// use levity_runtime::{Run, Runnable};
    ///
    /// /// Returns the result, or `None` if the run waits for a person.
    /// async fn or_parked<W: Runnable>(run: Run<W>) -> Result<Option<W::Output>, Error> {
    ///     match run.park().await {
    ///         Err(Error::Parked { .. }) => Ok(None),
    ///         result => result.map(Some),
    ///     }
    /// }
    /// ```
    pub fn park(mut self) -> Self {
        self.park = true;
        self
    }

    /// Gives the run's tools a value, such as the user, the tenant or a transaction. It replaces a
    /// value of the same type.
    ///
    /// A tool reads it with [`ToolCx::get`](levity_core::ToolCx::get). No journal stores it: pass
    /// it again when you resume the run.
    ///
    /// ```
    /// use levity_runtime::{Run, Runnable};
    ///
    /// struct User(u32);
    ///
    /// fn for_user<W: Runnable>(run: Run<W>, user: u32) -> Run<W> {
    ///     run.with(User(user)) // a tool reads it with `cx.get::<User>()`
    /// }
    /// ```
    pub fn with<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        let given = Arc::make_mut(self.given.get_or_insert_default());
        given.values = std::mem::take(&mut given.values).with(value);
        self
    }

    /// Sets the approver that answers the questions of this run and its child runs, in place of the
    /// default one.
    ///
    /// ```
    /// use levity_core::{Approver, Ask, Decision};
    /// use levity_runtime::{Run, Runnable};
    ///
    /// struct Never;
    ///
    /// #[async_trait::async_trait]
    /// impl Approver for Never {
    ///     async fn decide(&self, _: &Ask) -> Decision {
    ///         Decision::deny("nobody is here to approve it")
    ///     }
    /// }
    ///
    /// fn unattended<W: Runnable>(run: Run<W>) -> Run<W> {
    ///     run.approver(Never)
    /// }
    /// ```
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        Arc::make_mut(self.given.get_or_insert_default()).approver = Some(Arc::new(approver));
        self
    }

    /// Starts the run on a separate task, and returns a handle to it at once. An invalid input is
    /// reported when the handle is awaited.
    ///
    /// # Panics
    /// Panics when called outside a tokio runtime.
    pub fn start(mut self) -> RunHandle<W> {
        let run = self.settle_id();
        self.try_start()
            .unwrap_or_else(|error| RunHandle::refused(run, error))
    }

    /// Starts the run as [`start`](Self::start) does, but reports an invalid input at once.
    ///
    /// # Errors
    /// Returns an error if the run cannot start with the input.
    ///
    /// # Panics
    /// Panics when called outside a tokio runtime.
    pub fn try_start(self) -> Result<RunHandle<W>, Error> {
        let what = self.what.clone();
        let (job, after) = self.into_job()?;
        Ok(RunHandle::new(what.runtime().start(job), what, after))
    }

    /// Waits for the run on this thread, for programs that are not async.
    ///
    /// Each call has its own async runtime, which ends with it; a model's client has to open its
    /// connections again.
    ///
    /// # Errors
    /// Returns the errors of the run, and an error if it is called from async code, which it would
    /// block.
    ///
    /// ```
    /// use levity_core::Error;
    /// use levity_runtime::{Run, Runnable};
    ///
    /// fn answer<W: Runnable>(what: W, input: W::Input) -> Result<W::Output, Error> {
    ///     Run::new(what, input).blocking()
    /// }
    /// ```
    pub fn blocking(self) -> Result<W::Output, Error> {
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(RuntimeError::InsideAsync.into());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(RuntimeError::NoRuntime)?;
        let ended = runtime.block_on(self.into_future());
        // A blocking tool that was abandoned must not block the caller.
        runtime.shutdown_background();
        ended
    }

    /// Fixes and returns the id of the run.
    fn settle_id(&mut self) -> RunId {
        let random = || RunId::random(&**self.what.runtime().world());
        match &self.mode {
            Mode::Resume(run) => run.clone(),
            _ => self.id.get_or_insert_with(random).clone(),
        }
    }

    /// Returns the observers of this run.
    ///
    /// The id is fixed here if there are observers, because they are created for an id.
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

    /// Passes the earlier events to observers before the run starts.
    ///
    /// A new run has no earlier events. Errors are not reported here: the run itself will report
    /// them.
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
                // Errors of the journal are reported when the run resumes.
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

    /// Returns the job, and the work that remains at its end.
    fn into_job(mut self) -> Result<(MachineRun<W::Machine>, FinalWork), Error> {
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
        if what.verifies_replay() {
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
                MachineSource::Now(machine) => MachineRun::new(machine, executor),
                MachineSource::Later(machine) => MachineRun::deferred(machine, executor),
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
    /// Continues a conversation in the agent's memory, in place of a history: earlier messages are
    /// loaded, and new ones are stored.
    ///
    /// The run waits for other users of the conversation. A resumed run stays in its original
    /// conversation.
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        if let Mode::New(input) = &mut self.mode
            && let Some(place) = W::conversation(input)
        {
            *place = Some(id.into());
        }
        self
    }

    /// Continues from earlier messages.
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
    /// Requests the answer as a `T`.
    ///
    /// The model gets the schema, and the answer is validated against it. If the answer is invalid,
    /// the model is asked again.
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
    /// Waits for the answer as a `T`, together with the whole output.
    ///
    /// # Errors
    /// Returns the errors of any run, and an error if the answer remains invalid after the retries.
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

/// Does the remaining work of an ended run, and returns its result.
///
/// A run that was stopped has a partial result as well, if its machine could be built.
pub(crate) async fn finish<W: Runnable>(
    what: W,
    ended: Result<EndedMachine<W::Machine>, StoppedMachine<W::Machine>>,
    after: FinalWork,
) -> End<W::Output> {
    if let Some(after) = after {
        after.await;
    }
    match ended {
        Ok(EndedMachine { run, machine }) => match machine.ending().cloned() {
            Some(ending) => End::Ended(what.conclude(StoppedRun::new(run, ending, machine))),
            None => End::Stopped(RuntimeError::Lost(run).into()),
        },
        Err(StoppedMachine {
            run,
            machine,
            error,
        }) => {
            let partial = machine.and_then(|machine| {
                let ending =
                    machine.partial_ending(Status::Failed(Failure::Internal(error.to_string())));
                what.conclude(StoppedRun::new(run, ending, machine))
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
