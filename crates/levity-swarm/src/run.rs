use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use levity_core::text::is_blank;
use levity_core::{ConversationId, Event, Limits, RunId};
use levity_runtime::{Job, Watcher};

use crate::error::{Error, Result};
use crate::finished::{Finished, conclude};
use crate::handle::{SwarmHandle, Watch};
use crate::machine::SwarmMachine;
use crate::names::ROUTER;
use crate::pattern::Kind;
use crate::plan::{Delegation, Known, check};
use crate::rules::Start;
use crate::swarm::Swarm;

/// A run that is about to begin, to go on or to go another way: await it for what it comes to, or set something first; see
/// [`Swarm::run`], [`Swarm::resume`] and [`Swarm::fork`].
#[must_use = "a run does nothing until it is awaited or started"]
pub struct SwarmRun {
    swarm: Swarm,
    origin: Origin,
    id: Option<RunId>,
    limits: Option<Limits>,
    watcher: Option<Watcher>,
    park: bool,
}

enum Origin {
    New(Box<Start>),
    Old(RunId),
    Fork(RunId, Option<u64>),
}

impl SwarmRun {
    fn of(swarm: Swarm, origin: Origin) -> Self {
        Self { swarm, origin, id: None, limits: None, watcher: None, park: false }
    }

    pub(crate) fn new(swarm: Swarm, start: Start) -> Self {
        let limits = Some(start.limits);
        Self { limits, ..Self::of(swarm, Origin::New(Box::new(start))) }
    }

    pub(crate) fn resume(swarm: Swarm, run: RunId) -> Self {
        Self::of(swarm, Origin::Old(run))
    }

    pub(crate) fn fork(swarm: Swarm, run: RunId, after: Option<u64>) -> Self {
        Self::of(swarm, Origin::Fork(run, after))
    }

    fn start_mut(&mut self, set: impl FnOnce(&mut Start)) {
        if let Origin::New(start) = &mut self.origin {
            set(start);
        }
    }

    /// Carries out a plan that is there already, in place of asking the router for one. It is checked before anything begins.
    pub fn plan(mut self, plan: impl IntoIterator<Item = Delegation>) -> Self {
        let plan = plan.into_iter().collect();
        self.start_mut(|start| start.plan = Some(plan));
        self
    }

    /// The conversation that workers with such a memory remember; see [`Scope::Conversation`](crate::Scope::Conversation).
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        let id = id.into();
        self.start_mut(|start| start.conversation = Some(id));
        self
    }

    /// Goes on from where an earlier run of a handoff ended: with its conversation, and whoever had it last. Other patterns have
    /// no such conversation, and refuse it.
    pub fn after(mut self, earlier: &Finished) -> Self {
        let (history, last) = (earlier.conversation().to_vec(), earlier.last_speaker().map(Into::into));
        self.start_mut(|start| (start.history, start.first) = (history, last));
        self
    }

    /// What this run may use, in place of the swarm's limits; of a run that goes on, in place of what it was made with: what it has
    /// used counts. The shares of its workers, and the call that is kept for the answer, still follow what it was made with.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self.start_mut(|start| start.limits = limits);
        self
    }

    /// The run's id; a random one by default. One that goes on keeps its own.
    pub fn id(mut self, run: impl Into<RunId>) -> Self {
        self.id = Some(run.into());
        self
    }

    /// Calls `watcher` with each event, in order; it must not block. Of a run that goes on, only what is new is told.
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }

    /// Leaves the run in its journal when all it does is wait, for a person or a time: awaiting it then gives
    /// [`Error::Parked`].
    pub fn park(mut self) -> Self {
        self.park = true;
        self
    }

    /// Works on a task of its own, and returns a handle on it at once.
    ///
    /// # Errors
    /// When the plan that was given cannot be carried out.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start(mut self) -> Result<SwarmHandle> {
        let run = self.settle_id();
        let watch = Arc::new(Watch::new(run));
        let (own, noted) = (self.watcher.take(), watch.clone());
        self.watcher = Some(Arc::new(move |event: &Event| {
            noted.note(event);
            if let Some(own) = &own {
                own(event);
            }
        }));
        let runtime = self.swarm.runtime().clone();
        Ok(SwarmHandle::new(runtime.start(self.job()?), watch))
    }

    /// The id that the run has.
    fn settle_id(&mut self) -> RunId {
        let random = || RunId::random(&**self.swarm.runtime().world());
        match &self.origin {
            Origin::Old(run) => run.clone(),
            _ => self.id.get_or_insert_with(random).clone(),
        }
    }

    /// Waits for the run on this thread, for programs that are not async; see `levity_loop::blocking`.
    ///
    /// # Errors
    /// Those of the run, and when it is called from async code.
    pub fn blocking(self) -> Result<Finished> {
        let ended = levity_loop::blocking::run(async { Ok(self.into_future().await) });
        ended.unwrap_or_else(|error| Err(Error::Agent(Box::new(error))))
    }

    fn job(self) -> Result<Job<SwarmMachine>> {
        let Self { swarm, origin, id, limits, watcher, park } = self;
        let is_old = matches!(origin, Origin::Old(_));
        let mut job = origin.job(swarm)?;
        if let Some(run) = id.filter(|_| !is_old) {
            job = job.id(run);
        }
        if let Some(limits) = limits {
            job = job.limits(limits);
        }
        if let Some(watcher) = watcher {
            job = job.watch(watcher);
        }
        Ok(if park { job.park() } else { job })
    }
}

impl Origin {
    fn job(self, swarm: Swarm) -> Result<Job<SwarmMachine>> {
        let executor = swarm.executor();
        Ok(match self {
            Self::New(start) => {
                check_start(&swarm, &start)?;
                Job::new(SwarmMachine::new(swarm.inner.rules.clone(), *start), executor)
            }
            Self::Old(run) => Job::resume(run, executor, move |kind, state| {
                SwarmMachine::check_kind(kind)?;
                swarm.restore(state)
            }),
            Self::Fork(run, after) => Job::fork(run, after, executor, move |kind, state| async move {
                SwarmMachine::check_kind(&kind)?;
                swarm.restore(&state)
            }),
        })
    }
}

/// What the host gave is looked over before anything begins.
fn check_start(swarm: &Swarm, start: &Start) -> Result<()> {
    // A plan says what is to be done by itself.
    if start.plan.is_none() && is_blank(&start.goal) {
        return Err(Error::EmptyPrompt);
    }
    let rules = &swarm.inner.rules;
    if let Some(first) = start.first.as_ref().filter(|first| !rules.cards.contains_key(*first)) {
        return Err(Error::setting("after", format!("ends with `{first}`, who is no worker of this swarm")));
    }
    let goes_on = start.first.is_some() || !start.history.is_empty();
    if goes_on && !matches!(rules.pattern.0, Kind::Handoff(_)) {
        return Err(Error::setting("after", "is only for swarms with a `Handoff`; leave it out"));
    }
    let Some(plan) = &start.plan else { return Ok(()) };
    let Kind::Router(router) = &rules.pattern.0 else {
        return Err(Error::setting("plan", "is only for swarms with a `Router`; leave it out"));
    };
    let done = Swarm::none();
    let most = router.most.max(plan.len());
    let known = Known { workers: &rules.names, router: ROUTER, done: &done, reports: &[], most };
    check(plan, &known).map(drop).map_err(Error::Plan)
}

impl IntoFuture for SwarmRun {
    type Output = Result<Finished>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let runtime = self.swarm.runtime().clone();
        match self.job() {
            Ok(job) => Box::pin(async move { conclude(runtime.run(job).await) }),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

impl fmt::Debug for SwarmRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmRun").field("swarm", &self.swarm).finish_non_exhaustive()
    }
}
