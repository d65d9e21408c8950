use std::fmt;
use std::future::{Future, IntoFuture};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use levity_core::text::is_blank;
use levity_core::{Cause, Event, EventKind, Limits, RunId};
use levity_runtime::{Control, Events, Job, RunHandle, Watcher};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::files::{Manifest, profile_all};
use crate::finished::{Finished, conclude};
use crate::graph::Graph;
use crate::machine::{GraphMachine, Start};
use crate::session::SessionWriter;
use crate::team::Team;

/// A run that is about to begin: await it for what it comes to, or set something first; see [`Team::run`].
#[must_use = "a run does nothing until it is awaited or started"]
pub struct TeamRun {
    start: Start,
    files: Vec<PathBuf>,
    checked: Option<Box<Graph>>,
    way: Way,
}

/// What can be set on a run before it is driven.
struct Way {
    team: Team,
    id: Option<RunId>,
    limits: Option<Limits>,
    watcher: Option<Watcher>,
    park: bool,
    writer: Option<SessionWriter>,
}

impl Way {
    fn new(team: Team) -> Self {
        Self { team, id: None, limits: None, watcher: None, park: false, writer: None }
    }

    fn set_up(mut self, mut job: Job<GraphMachine>) -> (Job<GraphMachine>, Option<SessionWriter>) {
        self.keep_session();
        if let Some(run) = self.id {
            job = job.id(run);
        }
        if let Some(limits) = self.limits {
            job = job.limits(limits);
        }
        if let Some(watcher) = watchers(self.watcher, self.writer.clone()) {
            job = job.watch(watcher);
        }
        (if self.park { job.park() } else { job }, self.writer)
    }

    /// Has a session file written, if the team keeps them.
    fn keep_session(&mut self) {
        let inner = &self.team.inner;
        if let Some(sessions) = inner.sessions.as_ref().filter(|_| self.writer.is_none()) {
            let run = self.id.get_or_insert_with(|| RunId::random(&**inner.runtime.world()));
            self.writer = Some(sessions.writer(run));
        }
    }

    fn start(self, job: Job<GraphMachine>) -> TeamHandle {
        let runtime = self.team.runtime().clone();
        let (job, writer) = self.set_up(job);
        TeamHandle { handle: runtime.start(job), writer, rest: None }
    }

    fn finish(self, job: Job<GraphMachine>) -> Ending {
        let runtime = self.team.runtime().clone();
        let (job, writer) = self.set_up(job);
        Box::pin(async move { settle(writer, conclude(runtime.run(job).await)).await })
    }
}

type Ending = Pin<Box<dyn Future<Output = Result<Finished>> + Send>>;

/// Waits for the session file to be whole. That it could not be written ends nothing: the writer tells it, and the journal has
/// all that is in it.
async fn settle(writer: Option<SessionWriter>, ended: Result<Finished>) -> Result<Finished> {
    if let Some(writer) = writer {
        let _ = writer.flush().await;
    }
    ended
}

fn watchers(own: Option<Watcher>, writer: Option<SessionWriter>) -> Option<Watcher> {
    let Some(writer) = writer else { return own };
    Some(Arc::new(move |event: &Event| {
        writer.apply(event);
        if let Some(own) = &own {
            own(event);
        }
    }))
}

impl TeamRun {
    pub(crate) fn new(team: Team, mut start: Start) -> Self {
        let limits = Some(team.inner.limits);
        start.limits = team.inner.limits;
        Self { start, files: Vec::new(), checked: None, way: Way { limits, ..Way::new(team) } }
    }

    pub(crate) fn checked(mut self, graph: Graph) -> Self {
        self.checked = Some(Box::new(graph));
        self
    }

    /// What is to be reached, for a plan that is there already.
    pub fn goal(mut self, goal: impl Into<String>) -> Self {
        self.start.goal = goal.into();
        self
    }

    /// Gives a variable from the start.
    pub fn given(mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.start.given.insert(name.into(), value.into());
        self
    }

    /// Gives files: what they are is found out before the plan is made, and is there for every step as `file_manifest`.
    pub fn files<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.files.extend(paths.into_iter().map(Into::into));
        self
    }

    /// What this run may use, in place of the team's limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.way.limits = Some(limits);
        self.start.limits = limits;
        self
    }

    /// The run's id; a random one by default.
    pub fn id(mut self, run: impl Into<RunId>) -> Self {
        self.way.id = Some(run.into());
        self
    }

    /// Calls `watcher` with each event, in order; it must not block.
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.way.watcher = Some(Arc::new(watcher));
        self
    }

    /// Leaves the run in its journal when all it does is wait, for a person or a time: awaiting it then gives
    /// [`Error::Parked`].
    pub fn park(mut self) -> Self {
        self.way.park = true;
        self
    }

    /// Works on a task of its own, and returns a handle on it at once.
    ///
    /// # Errors
    /// When the plan that was given cannot be carried out.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start(self) -> Result<TeamHandle> {
        let (job, way) = self.job()?;
        Ok(way.start(job))
    }

    /// Waits for the run on this thread, for programs that are not async; see `levity_loop::blocking`.
    ///
    /// # Errors
    /// Those of the run, and when it is called from async code.
    pub fn blocking(self) -> Result<Finished> {
        let ended = levity_loop::blocking::run(async { Ok(self.into_future().await) });
        ended.unwrap_or_else(|error| Err(Error::Agent(Box::new(error))))
    }

    /// The job; a plan that cannot be carried out begins nothing.
    fn job(self) -> Result<(Job<GraphMachine>, Way)> {
        let Self { mut start, files, checked, way } = self;
        // A plan says what is to be done by itself.
        if start.plan.is_none() && is_blank(&start.goal) {
            return Err(Error::EmptyPrompt);
        }
        let inner = &way.team.inner;
        let (rules, executor) = (inner.rules.clone(), inner.executor.clone());
        let mut machine = GraphMachine::new(rules.clone(), start.clone());
        machine.check_start(!files.is_empty(), checked).map_err(Error::Plan)?;
        if files.is_empty() {
            return Ok((Job::new(machine, executor), way));
        }
        let machine = async move {
            start.files = Some(look_at(files).await?);
            Ok(GraphMachine::new(rules, start))
        };
        Ok((Job::deferred(machine, executor), way))
    }
}

/// Finds out what files are, where that holds up nobody.
async fn look_at(files: Vec<PathBuf>) -> Result<Manifest, Cause> {
    let looked = tokio::runtime::Handle::current().spawn_blocking(move || profile_all(files));
    looked.await.map_err(Cause::new)
}

impl IntoFuture for TeamRun {
    type Output = Result<Finished>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        match self.job() {
            Ok((job, way)) => way.finish(job),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

impl fmt::Debug for TeamRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamRun").field("goal", &self.start.goal).finish_non_exhaustive()
    }
}

/// A run that is about to go on from its journal; see [`Team::resume`].
#[must_use = "a run does not go on until it is awaited or started"]
pub struct Resume {
    run: RunId,
    way: Way,
}

impl Resume {
    pub(crate) fn new(team: Team, run: RunId) -> Self {
        Self { run, way: Way::new(team) }
    }

    /// What the run may use, in place of what it was made with; what it has used counts.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.way.limits = Some(limits);
        self
    }

    /// Calls `watcher` with each new event.
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.way.watcher = Some(Arc::new(watcher));
        self
    }

    /// Leaves the run in its journal again when all it does is wait.
    pub fn park(mut self) -> Self {
        self.way.park = true;
        self
    }

    /// Goes on on a task of its own, and returns a handle on it at once.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub async fn start(mut self) -> TeamHandle {
        self.catch_up().await;
        let job = self.job();
        self.way.start(job)
    }

    /// Brings the session file up to where the run was left: what was told then is not told again.
    async fn catch_up(&mut self) {
        self.way.id = Some(self.run.clone());
        self.way.keep_session();
        if let Some(writer) = &self.way.writer {
            // Whatever is wrong with the journal is told when the run goes on.
            let told = self.way.team.history(&self.run).await.unwrap_or_default();
            writer.begin_with(&told);
        }
        self.way.id = None;
    }

    fn job(&self) -> Job<GraphMachine> {
        let team = self.way.team.clone();
        Job::resume(self.run.clone(), team.inner.executor.clone(), move |kind, state| {
            GraphMachine::check_kind(kind)?;
            team.restore(state)
        })
    }
}

impl IntoFuture for Resume {
    type Output = Result<Finished>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            self.catch_up().await;
            let job = self.job();
            self.way.finish(job).await
        })
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("run", &self.run).finish_non_exhaustive()
    }
}

/// A run that is about to go another way than an old one did; see [`Team::fork`].
#[must_use = "a fork does nothing until it is awaited or started"]
pub struct Fork {
    from: RunId,
    after: Option<u64>,
    way: Way,
}

impl Fork {
    pub(crate) fn new(team: Team, from: RunId) -> Self {
        Self { from, after: None, way: Way::new(team) }
    }

    /// The last record of the old run that the new one begins with, by its number; by default the last there is.
    pub fn after(mut self, record: u64) -> Self {
        self.after = Some(record);
        self
    }

    /// The new run's id; a random one by default.
    pub fn id(mut self, run: impl Into<RunId>) -> Self {
        self.way.id = Some(run.into());
        self
    }

    /// What the run may use, in place of what the old one could; what it had used by then counts.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.way.limits = Some(limits);
        self
    }

    /// Calls `watcher` with each new event.
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.way.watcher = Some(Arc::new(watcher));
        self
    }

    /// Leaves the run in its journal when all it does is wait.
    pub fn park(mut self) -> Self {
        self.way.park = true;
        self
    }

    /// Works on a task of its own, and returns a handle on it at once.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub async fn start(mut self) -> TeamHandle {
        self.catch_up().await;
        let job = self.job();
        self.way.start(job)
    }

    /// Puts what the new run begins with into its session file: it is not told again.
    async fn catch_up(&mut self) {
        self.way.keep_session();
        let (Some(writer), Some(run)) = (&self.way.writer, &self.way.id) else { return };
        let runtime = self.way.team.runtime();
        if runtime.journal().read(run).await.is_ok_and(|records| records.is_empty()) {
            // Whatever is wrong with the old journal is told when the run begins.
            let told = self.way.team.history_until(&self.from, self.after).await.unwrap_or_default();
            let now = runtime.world().now();
            let ours = |event: Event| {
                let begins = matches!(event.kind, EventKind::RunStarted { .. });
                Event::new(run.clone(), event.seq, if begins { now } else { event.at }, event.kind)
            };
            writer.begin_with(&told.into_iter().map(ours).collect::<Vec<_>>());
        }
    }

    fn job(&self) -> Job<GraphMachine> {
        let team = self.way.team.clone();
        Job::fork(self.from.clone(), self.after, team.inner.executor.clone(), move |kind, state| async move {
            GraphMachine::check_kind(&kind)?;
            team.restore(&state)
        })
    }
}

impl IntoFuture for Fork {
    type Output = Result<Finished>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            self.catch_up().await;
            let job = self.job();
            self.way.finish(job).await
        })
    }
}

impl fmt::Debug for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fork").field("from", &self.from).finish_non_exhaustive()
    }
}

/// A run under way. Awaiting it gives what it comes to; dropping it stops it.
#[must_use = "dropping the handle stops the run"]
pub struct TeamHandle {
    handle: RunHandle<GraphMachine>,
    writer: Option<SessionWriter>,
    /// What is left to do once the run has ended.
    rest: Option<Ending>,
}

impl TeamHandle {
    /// The run's id.
    pub fn id(&self) -> &RunId {
        self.handle.id()
    }

    /// What happens in the run and its children: at the first call from the start, later from now on. Those that are a
    /// [`Notice`](crate::Notice) tell how the plan goes.
    pub fn events(&mut self) -> Events {
        self.handle.events()
    }

    /// Tells the run what to do: pause, go on, cancel, approve, answer. It can be cloned and sent away.
    pub fn control(&self) -> &Control {
        self.handle.control()
    }

    /// Stops the run where it is, as dropping the handle does, and waits until nothing of it is left.
    pub async fn stop(self) {
        self.handle.stop().await;
    }
}

impl Future for TeamHandle {
    type Output = Result<Finished>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let me = &mut *self;
        let rest = match &mut me.rest {
            Some(rest) => rest,
            None => {
                let ended = std::task::ready!(Pin::new(&mut me.handle).poll(cx));
                me.rest.insert(Box::pin(settle(me.writer.take(), conclude(ended))))
            }
        };
        rest.as_mut().poll(cx)
    }
}

impl fmt::Debug for TeamHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TeamHandle").field(self.id()).finish()
    }
}
