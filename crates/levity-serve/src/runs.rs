//! The runs of a server: starting, finding, resuming and reading them.
//!
//! A run is registered in `Known` before it starts and leaves it through the drop of its
//! [`RunSlot`], so every path out of a run frees its slot. Up to 64
//! ended runs stay in memory for late readers; everything older is read from the journal.
//!
//! Limits are checked in two steps: the total of all runs, and the share of a tenant. The id of a
//! run determines its tenant, so the share also holds for runs that were resumed after a restart.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use levity_core::{
    Ask, Ending, Event, EventKind, JournalError, RunId, RunQuery, RunSummary, SharedError, World,
};
use levity_observe::RunView;
use levity_runtime::{Runtime, Watcher};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access::{Caller, tenant_of};
use crate::error::{Error, Result};
use crate::feed::{EventReader, Feed};
use crate::quota::{Quota, TokenShare};
use crate::runner::{ModelRunner, RunSetup, Runner, StartedRun};

mod briefs;
mod commands;
mod event_cache;
mod live;
mod models;
mod new_run;
mod queue;
mod reads;
mod settings;
mod status;
mod views;

pub(crate) use briefs::MAX_GOAL;
pub(crate) use commands::CommandKind;
pub use live::{LiveRun, RunOutcome};
pub use new_run::NewRun;
use queue::ReservedSlot;
pub(crate) use status::OpenAsk;
pub use status::RunStatus;
pub use views::NewFork;

/// The runs that a server drives for its clients. Cloning is cheap. Dropping the last clone stops
/// the runs in progress; the journal retains them.
///
/// A run does not depend on the client that started it: it continues when the client disconnects,
/// and can be found again by its id.
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::{NewRun, Runs};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().reply("Paris.")).build()?;
/// let runs = Runs::new(agent);
/// let run = runs.start(NewRun::new("What is the capital of France?"))?;
/// assert_eq!(run.outcome().await.ending().unwrap().text, "Paris.");
/// # Ok(())
/// # }
/// ```
///
/// A run that ended stays readable: [`get`](Self::get) finds the latest 64 of them in memory, and
/// [`status`](Self::status), [`ending`](Self::ending) and [`events`](Self::events) read older ones
/// from the journal. Give the agent a runtime with a journal if runs must survive a restart.
#[derive(Clone)]
pub struct Runs {
    inner: Arc<Inner>,
}

/// The shared state of all clones. Settings cannot change after creation; each setter creates a new
/// value.
struct Inner {
    runner: Arc<ModelRunner>,
    settings: Settings,
    boot: Arc<str>,
    /// The number of feeds created by this process. Each gets its own id, because the order of
    /// events in one feed does not apply to another.
    feeds: AtomicU64,
    known: Mutex<Known>,
    tasks: Mutex<JoinSet<()>>,
    /// Limits the commands being delivered to runs that other processes drive.
    deliveries: Arc<Quota>,
    /// Limits the runs being read in full from the journal for clients.
    reads: Arc<Quota>,
    /// Limits the lists being read for clients.
    lists: Arc<Quota>,
    /// Counts the changes of the states of runs.
    state_changes: watch::Sender<u64>,
    /// The events of runs that were recently viewed at an earlier point.
    viewed: event_cache::EventCache,
    /// The goals of stored runs that were listed.
    briefs: briefs::BriefCache,
}

#[derive(Clone)]
struct Settings {
    max_runs: usize,
    prompt_limit: usize,
    share: TokenShare,
    watchers: Vec<Watcher>,
    may_resume: Option<ResumeCheck>,
    is_skipped: Option<StartFilter>,
}

/// Decides if a run of the journal may be resumed.
type ResumeCheck = Arc<dyn Fn(&RunId) -> std::result::Result<(), JournalError> + Send + Sync>;

/// Decides if a run of the journal is left alone when the server starts.
type StartFilter = Arc<dyn Fn(&RunId) -> bool + Send + Sync>;

/// The runs in memory. A run is in `live` or in `ended`, never in both.
#[derive(Default)]
struct Known {
    live: BTreeMap<RunId, Arc<LiveRun>>,
    /// Recently ended runs, the newest last.
    ended: VecDeque<Arc<LiveRun>>,
    /// Runs of an earlier process that wait for a slot, the oldest first.
    queue: VecDeque<RunId>,
    /// The number of slots reserved for queued runs that are being resumed.
    reserved: usize,
}

impl Runs {
    /// The default maximum number of runs in progress: 64.
    pub const DEFAULT_MAX_RUNS: usize = 64;
    /// The default maximum length of a prompt on any channel: 256 KiB.
    pub const DEFAULT_PROMPT_LIMIT: usize = 256 << 10;
    /// The number of ended runs that stay in memory for late readers: 64. All others are read from
    /// the journal.
    pub const MAX_ENDED_RUNS: usize = 64;
    /// The maximum number of bytes of events of ended runs in memory: 32 MiB.
    pub const MAX_ENDED_BYTES: usize = 32 << 20;

    /// Creates a set of runs that an agent, a swarm or a team executes.
    ///
    /// The defaults are 64 runs, prompts of up to 256 KiB and a share of 25 percent for each
    /// tenant.
    pub fn new(runner: impl Runner + 'static) -> Self {
        let runner = Arc::new(ModelRunner::new(Arc::new(runner)));
        let boot = format!(
            "{:08x}",
            runner.runtime().world().random() & u64::from(u32::MAX)
        )
        .into();
        let prompt_limit = Self::DEFAULT_PROMPT_LIMIT;
        let (max_runs, share) = (Self::DEFAULT_MAX_RUNS, TokenShare::DEFAULT);
        let settings = Settings {
            max_runs,
            prompt_limit,
            share,
            watchers: Vec::new(),
            may_resume: None,
            is_skipped: None,
        };
        Self::from_parts(runner, settings, boot)
    }

    /// Creates a set without runs. Setters use it, which is why they must be called before the
    /// first run: the runs of the old value stop when it is dropped.
    fn from_parts(runner: Arc<ModelRunner>, settings: Settings, boot: Arc<str>) -> Self {
        let (feeds, known, tasks) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        let deliveries = Quota::new(Self::MAX_PENDING_COMMANDS, settings.share);
        let reads = Quota::new(Self::JOURNAL_READS, settings.share);
        let lists = Quota::new(Self::JOURNAL_LISTS, settings.share);
        Self {
            inner: Arc::new(Inner {
                runner,
                settings,
                boot,
                feeds,
                known,
                tasks,
                deliveries,
                reads,
                lists,
                state_changes: watch::Sender::new(0),
                viewed: event_cache::EventCache::default(),
                briefs: briefs::BriefCache::default(),
            }),
        }
    }

    /// Returns the runtime that drives the runs.
    pub fn runtime(&self) -> &Runtime {
        self.inner.runner.runtime()
    }

    fn world(&self) -> &dyn World {
        &**self.runtime().world()
    }

    /// Starts a run and returns at once. Use [`LiveRun::opened`] to wait until the run is in the
    /// journal.
    ///
    /// Dropping the returned handle does not stop the run.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new().reply("Done.")).build()?);
    /// runs.start(NewRun::new("Do it").id("r1"))?;
    /// let run = runs.get(&"r1".into()).unwrap(); // for example in a later request
    /// assert_eq!(run.outcome().await.ending().unwrap().text, "Done.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if too many runs are in progress, or if the run cannot start with these parameters.
    ///
    /// # Panics
    /// Panics if called outside a tokio runtime.
    pub fn start(&self, new_run: NewRun) -> Result<Arc<LiveRun>> {
        self.start_for(&Caller::owner(), new_run)
    }

    /// Same as [`start`](Self::start), for a caller that may use only its share of the runs.
    pub(crate) fn start_for(&self, caller: &Caller, new_run: NewRun) -> Result<Arc<LiveRun>> {
        self.start_by(&*self.inner.runner, caller, new_run)
    }

    /// Same as [`start_for`](Self::start_for), by another runner of the same journal, such as one
    /// that calls the model of a client.
    pub(crate) fn start_by(
        &self,
        runner: &dyn Runner,
        caller: &Caller,
        new_run: NewRun,
    ) -> Result<Arc<LiveRun>> {
        self.check_prompt(&new_run.goal)?;
        self.inner.runner.check(new_run.model.as_deref())?;
        let id = new_run.id.unwrap_or_else(|| RunId::random(self.world()));
        if id.parent().is_some() {
            return Err(Error::setting(
                "id",
                "contains a dot, which separates a run from its child runs; remove it",
            ));
        }
        let slot = self.admit(
            &id,
            self.feed(&id),
            RunStatus::of_goal(&new_run.goal),
            RunView::new(id.clone()),
            &RunOrigin::Caller(caller),
        )?;
        let watcher = self.watcher(&slot.run, new_run.watcher);
        let mut setup = RunSetup::new(id, watcher)
            .with_conversation(new_run.conversation)
            .with_messages(new_run.on_messages);
        setup.model = new_run.model;
        let started = runner.start(&new_run.goal, setup)?;
        Ok(self.drive(slot, started))
    }

    /// Resumes a run of the journal.
    ///
    /// A run that this process already drives is returned as it is. Calls that a crash interrupted
    /// are resolved by the runtime before the run continues.
    ///
    /// # Errors
    /// Fails if there is no such run, if it has ended, or if too many runs are in progress.
    pub async fn resume(&self, id: &RunId) -> Result<Arc<LiveRun>> {
        self.resume_for(&Caller::owner(), id).await
    }

    /// Same as [`resume`](Self::resume), for a caller that may use only its share of the runs.
    pub(crate) async fn resume_for(&self, caller: &Caller, id: &RunId) -> Result<Arc<LiveRun>> {
        self.resume_at(id, RunOrigin::Caller(caller)).await
    }

    /// Fails if the check of [`resume_if`](Self::resume_if) rejects the run.
    pub(crate) fn check_resumable(&self, id: &RunId) -> Result<()> {
        match &self.inner.settings.may_resume {
            Some(check) => Ok(check(id)?),
            None => Ok(()),
        }
    }

    /// Fails if the records of a run may not be used to continue it.
    pub(crate) async fn check_records(&self, id: &RunId) -> Result<()> {
        self.check_resumable(id)?;
        self.runtime().journal().read_to_continue(id).await?;
        Ok(())
    }

    /// Reads the run before it takes a slot, because reading may wait for a permit. Two tasks that
    /// resume the same run at once get the same one: the second finds the run of the first.
    async fn resume_at(&self, id: &RunId, origin: RunOrigin<'_>) -> Result<Arc<LiveRun>> {
        if let Some(run) = self.live(id) {
            return Ok(run);
        }
        self.check_resumable(id)?;
        let events = match &origin {
            RunOrigin::Caller(caller) => {
                let (runner, run) = (self.inner.runner.clone(), id.clone());
                let read = async move { runner.history_with_children(&run).await };
                self.with_journal(caller, read).await?
            }
            RunOrigin::Queue(_) => self.inner.runner.history_with_children(id).await?,
        };
        let view = RunView::of(id.clone(), &events);
        let status = RunStatus::of(id, &events);
        let mut events = events;
        events.retain(|event| event.run == *id);
        let is_end =
            |event: &Event| event.run == *id && matches!(event.kind, EventKind::RunEnded(_));
        if events.iter().any(is_end) {
            return Err(Error::NotRunning(id.clone()));
        }
        let feed = self.feed(id);
        events.iter().for_each(|event| feed.push(event));
        let admitted = self.admit(id, feed, status, view, &origin);
        drop(origin);
        let slot = match admitted {
            Ok(slot) => slot,
            // Another task resumed the run first.
            Err(error) => return self.live(id).ok_or(error),
        };
        let started = self
            .inner
            .runner
            .resume(id, self.watcher(&slot.run, None))
            .await?;
        let run = self.drive(slot, started);
        run.open();
        Ok(run)
    }

    /// Returns a run that is in progress in this process, or recently ended in it.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new().reply("Yes.")).build()?);
    /// let run = runs.start(NewRun::new("Is it?"))?;
    /// assert!(runs.get(run.id()).is_some());
    /// assert!(runs.get(&"unknown".into()).is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, id: &RunId) -> Option<Arc<LiveRun>> {
        let known = self.known();
        known
            .live
            .get(id)
            .or_else(|| known.ended.iter().rev().find(|run| run.id() == id))
            .cloned()
    }

    /// Removes an ended run from memory; the journal retains it.
    pub(crate) fn forget(&self, id: &RunId) {
        self.inner.viewed.remove(id);
        self.inner.briefs.remove(id);
        self.known().ended.retain(|run| run.id() != id);
    }

    fn live(&self, id: &RunId) -> Option<Arc<LiveRun>> {
        self.known().live.get(id).cloned()
    }

    /// Returns the runs that are in progress in this process, and those that recently ended in it.
    pub fn in_memory(&self) -> Vec<Arc<LiveRun>> {
        let known = self.known();
        known
            .ended
            .iter()
            .chain(known.live.values())
            .cloned()
            .collect()
    }

    /// Fails if no further run can start now. Use it before preparing a run.
    pub(crate) fn check_capacity(&self) -> Result<()> {
        let (most, known) = (self.inner.settings.max_runs, self.known());
        if known.live.len() + known.reserved < most {
            Ok(())
        } else {
            Err(Error::Full { limit: most })
        }
    }

    /// Returns the number of runs in progress in this process.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new().hang()).build()?);
    /// runs.start(NewRun::new("Wait."))?;
    /// assert_eq!(runs.running(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn running(&self) -> usize {
        self.known().live.len()
    }

    /// Lists runs of the journal. Without a journal, lists the runs that are
    /// [`in_memory`](Self::in_memory).
    ///
    /// ```
    /// use levity_core::RunQuery;
    /// use levity_loop::Agent;
    /// use levity_runtime::{MemoryJournal, Runtime};
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::new().with_journal(MemoryJournal::new());
    /// let agent = Agent::builder(ScriptedModel::new().reply("Yes.")).runtime(runtime).build()?;
    /// let runs = Runs::new(agent);
    /// runs.start(NewRun::new("Is it?").id("r1"))?.outcome().await;
    /// let found = runs.list(&RunQuery::new().newest_first()).await?;
    /// assert_eq!(found[0].run.as_str(), "r1");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the journal fails.
    pub async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>> {
        match self.runtime().journal().keeps() {
            true => Ok(self.runtime().journal().list(query).await?),
            false => Ok(query.select(self.in_memory().iter().map(|run| run.summary()))),
        }
    }

    /// Returns the events of a run up to now, without transient ones.
    ///
    /// The events come from the journal. Without a journal, no run is found here; read
    /// [`events`](Self::events) instead.
    ///
    /// # Errors
    /// Fails if there is no such run.
    pub async fn history(&self, id: &RunId) -> Result<Vec<Event>> {
        self.inner.runner.history(id).await
    }

    /// Returns the status of a run.
    ///
    /// ```
    /// use levity_core::RunState;
    /// use levity_loop::Agent;
    /// use levity_serve::{Error, NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new().reply("Yes.")).build()?);
    /// let run = runs.start(NewRun::new("Is it?"))?;
    /// run.outcome().await;
    /// assert_eq!(runs.status(run.id()).await?.state(), RunState::Answered);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such run.
    pub async fn status(&self, id: &RunId) -> Result<RunStatus> {
        match self.known_here(id) {
            Some(run) => Ok(run.status()),
            None => Ok(RunStatus::of(id, &self.history(id).await?)),
        }
    }

    /// Returns a run whose state in memory is current, so that the journal need not be read.
    pub(crate) fn known_here(&self, id: &RunId) -> Option<Arc<LiveRun>> {
        self.get(id).filter(|run| !self.was_stopped_here(run))
    }

    /// Returns `true` if this process stopped driving the run before its end, so that another
    /// process may have resumed it.
    fn was_stopped_here(&self, run: &LiveRun) -> bool {
        self.runtime().journal().keeps() && matches!(run.ended(), Some(RunOutcome::Stopped(_)))
    }

    /// Returns the questions that wait for a decision in a run and its child runs, whichever
    /// process drives it.
    ///
    /// # Errors
    /// Fails if there is no such run.
    pub async fn asks(&self, id: &RunId) -> Result<Vec<Ask>> {
        match self.known_here(id) {
            Some(run) => Ok(run.asks().await),
            None => self.inner.runner.asks(id).await,
        }
    }

    /// Returns the ending of a run, if it has ended.
    ///
    /// Returns `None` while the run is in progress, and for a run that stopped without an end.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new().reply("Yes.")).build()?);
    /// let run = runs.start(NewRun::new("Is it?"))?;
    /// assert!(runs.ending(run.id()).await?.is_none());
    /// run.outcome().await;
    /// assert_eq!(runs.ending(run.id()).await?.unwrap().text, "Yes.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such run.
    pub async fn ending(&self, id: &RunId) -> Result<Option<Box<Ending>>> {
        if let Some(run) = self.known_here(id) {
            return Ok(run
                .ended()
                .and_then(|outcome| outcome.ending().cloned().map(Box::new)));
        }
        let ends = self
            .history(id)
            .await?
            .into_iter()
            .filter(|event| event.run == *id);
        Ok(ends
            .filter_map(|event| {
                if let EventKind::RunEnded(ending) = event.kind {
                    Some(ending)
                } else {
                    None
                }
            })
            .last())
    }

    /// Returns a reader of a run's events, from the beginning or after the event with the given id.
    ///
    /// A reader of a run that only the journal has gets the events up to now and then the end, also
    /// if another process still drives the run.
    ///
    /// # Errors
    /// Fails if there is no such run.
    pub async fn events(&self, id: &RunId, after: Option<&str>) -> Result<EventReader> {
        if let Some(run) = self.known_here(id) {
            return Ok(run.events(after));
        }
        Ok(Arc::new(Feed::from_journal(id.clone(), &self.history(id).await?)).reader(after))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the feed of a run. Its name consists of a random number of this process and a
    /// counter, so ids of an earlier process are recognized as foreign.
    fn feed(&self, id: &RunId) -> Arc<Feed> {
        let number = self.inner.feeds.fetch_add(1, Ordering::Relaxed);
        Arc::new(Feed::new(
            id.clone(),
            format!("{}{number:x}", self.inner.boot).into(),
        ))
    }

    /// Registers a run, if the limits allow it or a slot is reserved for it.
    fn admit(
        &self,
        id: &RunId,
        feed: Arc<Feed>,
        standing: RunStatus,
        view: RunView,
        origin: &RunOrigin<'_>,
    ) -> Result<RunSlot> {
        let tenant = origin.tenant(id);
        let run = Arc::new(LiveRun::new(id.clone(), tenant, feed, standing, view));
        let mut known = self.known();
        let queued = match origin {
            RunOrigin::Caller(caller) => {
                self.check_share(&known, caller)?;
                false
            }
            RunOrigin::Queue(_) => true,
        };
        if known.live.contains_key(id) {
            drop(known);
            return Err(Error::run(
                id,
                levity_core::RuntimeError::Exists(id.clone()),
            ));
        }
        known.live.insert(id.clone(), run.clone());
        known.queue.retain(|queued| queued != id);
        drop(known);
        self.report_change();
        Ok(RunSlot {
            run,
            inner: Arc::downgrade(&self.inner),
            driven: false,
            queued,
        })
    }

    /// Fails if a caller cannot have another run.
    fn check_share(&self, known: &Known, caller: &Caller) -> Result<()> {
        let Settings {
            max_runs: most,
            share,
            ..
        } = self.inner.settings;
        if known.live.len() + known.reserved >= most {
            return Err(Error::Full { limit: most });
        }
        // Resumed runs of an earlier process count as well, because the id of a run determines its
        // owner.
        let own = || {
            known
                .live
                .keys()
                .filter(|id| caller.owns(id.as_str()))
                .count()
        };
        let most = share.of_caller(most, caller);
        if caller.namespace().is_some() && own() >= most {
            Err(Error::Full { limit: most })
        } else {
            Ok(())
        }
    }

    /// Combines the watchers of a run. The run records an event before other watchers see it, so a
    /// watcher that reads the status finds the event applied.
    fn watcher(&self, run: &Arc<LiveRun>, own: Option<Watcher>) -> Watcher {
        let (run, mut others) = (run.clone(), self.inner.settings.watchers.clone());
        others.extend(own);
        let changes = self.inner.state_changes.clone();
        Arc::new(move |event: &Event| {
            run.record(event);
            if views::changes_state(&event.kind) {
                changes.send_modify(|count| *count += 1);
            }
            others.iter().for_each(|watcher| watcher(event));
        })
    }

    /// Drives a run on a task that ends with these runs.
    fn drive(&self, mut slot: RunSlot, started: StartedRun) -> Arc<LiveRun> {
        let run = slot.run.clone();
        run.connect(started.control);
        slot.driven = true;
        let mut tasks = self
            .inner
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let stopped: Option<SharedError> = started.ended.await;
            slot.run.finish(stopped);
            let runs = slot.inner.clone();
            drop(slot);
            if let Some(inner) = runs.upgrade() {
                Runs { inner }.resume_queued().await;
            }
        });
        drop(tasks);
        run
    }

    /// Returns `true` if runs can be part of conversations.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::Runs;
    /// use levity_test::ScriptedModel;
    ///
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new()).build()?);
    /// assert!(!runs.supports_conversations(), "this agent has no store for them");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn supports_conversations(&self) -> bool {
        self.inner.runner.supports_conversations()
    }

    /// Moves a run from `live` to `ended`, and drops the oldest ended runs of the heaviest tenant
    /// until the limits of number and bytes are met. A run that never started, or that another
    /// process drives, is not remembered.
    fn retire(&self, slot: &RunSlot) {
        let run = &slot.run;
        self.retire_run(slot, run);
        self.report_change();
    }

    fn retire_run(&self, slot: &RunSlot, run: &Arc<LiveRun>) {
        let mut known = self.known();
        known.live.remove(run.id());
        if !slot.driven
            || run
                .ended()
                .is_some_and(|outcome| outcome.is_driven_elsewhere())
        {
            return;
        }
        known.ended.push_back(run.clone());
        while known.ended.len() > Self::MAX_ENDED_RUNS {
            evict_one(&mut known.ended, |_| 1);
        }
        while known.ended.len() > 1 && weight(&known.ended, LiveRun::bytes) > Self::MAX_ENDED_BYTES
        {
            evict_one(&mut known.ended, LiveRun::bytes);
        }
    }
}

fn weight(ended: &VecDeque<Arc<LiveRun>>, weight: impl Fn(&LiveRun) -> usize) -> usize {
    ended.iter().map(|run| weight(run)).sum()
}

/// Removes the oldest run of the tenant with the greatest total weight, so that no tenant displaces
/// the runs of another.
fn evict_one(ended: &mut VecDeque<Arc<LiveRun>>, weight: impl Fn(&LiveRun) -> usize) {
    let mut by_tenant: BTreeMap<Option<Arc<str>>, usize> = BTreeMap::new();
    for run in ended.iter() {
        *by_tenant.entry(run.tenant.clone()).or_default() += weight(run);
    }
    let heaviest = by_tenant
        .into_iter()
        .max_by_key(|(_, weight)| *weight)
        .map(|(tenant, _)| tenant);
    let oldest = ended
        .iter()
        .position(|run| heaviest.as_ref() == Some(&run.tenant));
    ended.remove(oldest.unwrap_or(0));
}

/// The origin of a run that is registered.
enum RunOrigin<'a> {
    Caller(&'a Caller),
    /// The queue, which has reserved a slot for the run.
    Queue(
        #[expect(
            dead_code,
            reason = "the slot stays reserved until this is \
        dropped"
        )]
        ReservedSlot,
    ),
}

impl RunOrigin<'_> {
    /// Returns the tenant that a run counts for. Runs in the queue have no caller, so their id
    /// decides.
    fn tenant(&self, run: &RunId) -> Option<Arc<str>> {
        let tenant = match self {
            Self::Caller(caller) => caller.namespace(),
            Self::Queue(_) => tenant_of(run.as_str()),
        };
        tenant.map(Into::into)
    }
}

/// The slot of a run in progress. Dropping it releases the slot and notifies waiting tasks, however
/// the run ends.
struct RunSlot {
    run: Arc<LiveRun>,
    inner: Weak<Inner>,
    driven: bool,
    /// `true` if the slot was reserved for a run of the queue.
    queued: bool,
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        // This has an effect only if no outcome was set: the run is no longer driven.
        self.run.finish(Some(SharedError::new(Error::NotRunning(
            self.run.id().clone(),
        ))));
        if let Some(inner) = self.inner.upgrade() {
            let runs = Runs { inner };
            runs.retire(self);
            // The task that drove the run, and the one that resumes the queue, continue with the
            // queue themselves. If a run that cannot be resumed restarted the queue here, it would
            // do so forever.
            if !self.driven && !self.queued {
                runs.spawn_resume_queued();
            }
        }
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs")
            .field("under_way", &self.running())
            .finish_non_exhaustive()
    }
}
