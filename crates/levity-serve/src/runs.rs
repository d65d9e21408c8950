use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use levity_core::text::is_blank;
use levity_core::{
    Ask, ConversationId, Ending, Event, EventKind, JournalError, Message, RunId, RunQuery,
    RunSummary, SharedError, World,
};
use levity_runtime::{Runtime, Watcher};
use tokio::task::JoinSet;

use crate::access::Caller;
use crate::error::{Error, Result};
use crate::feed::{Feed, Reader};
use crate::quota::{Quota, TokenShare};
use crate::runner::{MessageSink, RunSetup, Runner, Started};

mod live;
mod queue;
mod reads;
mod standing;
mod tell;

pub use live::{LiveRun, RunOutcome};
use queue::KeptPlace;
pub use standing::RunStatus;
pub(crate) use tell::Way;

/// The runs that are worked on for others. Cloning costs nothing; when the last clone is gone, so
/// is what was under way, and its journal has it.
///
/// A run belongs to nobody who asked for it: it goes on when they have left, and can be found again
/// by its id.
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
#[derive(Clone)]
pub struct Runs {
    inner: Arc<Inner>,
}

struct Inner {
    runner: Arc<dyn Runner>,
    settings: Settings,
    boot: Arc<str>,
    /// How many feeds this process has begun: the order of events in one says nothing about
    /// another.
    feeds: AtomicU64,
    known: Mutex<Known>,
    tasks: Mutex<JoinSet<()>>,
    /// How much more may be seen through for runs that others drive.
    errands: Arc<Quota>,
    /// How many more runs may be read whole from the journal for clients.
    reads: Arc<Quota>,
    /// How many more lists may be read for clients.
    lists: Arc<Quota>,
}

#[derive(Clone)]
struct Settings {
    most: usize,
    prompt_limit: usize,
    share: TokenShare,
    watchers: Vec<Watcher>,
    may_resume: Option<ResumeCheck>,
}

/// Says whether a run of the journal may be resumed.
type ResumeCheck = Arc<dyn Fn(&RunId) -> std::result::Result<(), JournalError> + Send + Sync>;

#[derive(Default)]
struct Known {
    live: BTreeMap<RunId, Arc<LiveRun>>,
    /// Those that have ended of late, the newest last.
    ended: VecDeque<Arc<LiveRun>>,
    /// Those that an earlier process left and that wait for a place, the oldest first.
    queue: VecDeque<RunId>,
    /// How many places are kept for those of them that are being taken up.
    kept: usize,
}

/// What is to be done.
#[derive(Clone)]
#[non_exhaustive]
pub struct NewRun {
    /// In words.
    pub goal: String,
    /// The conversation that the run is part of.
    pub conversation: Option<ConversationId>,
    /// The run's id; a random one by default.
    pub id: Option<RunId>,
    watcher: Option<Watcher>,
    on_messages: Option<MessageSink>,
}

impl NewRun {
    /// A goal to work on.
    pub fn new(goal: impl Into<String>) -> Self {
        Self {
            goal: goal.into(),
            conversation: None,
            id: None,
            watcher: None,
            on_messages: None,
        }
    }

    /// Makes the run part of a conversation.
    #[must_use]
    pub fn conversation(mut self, id: impl Into<ConversationId>) -> Self {
        self.conversation = Some(id.into());
        self
    }

    /// Gives the run an id.
    #[must_use]
    pub fn id(mut self, id: impl Into<RunId>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Calls `watcher` with each event of the run; it must not block.
    #[must_use]
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }

    /// Calls `sink` with the messages of the run when it has an answer, before its outcome is
    /// known; only agents have them.
    #[must_use]
    pub fn on_messages(mut self, sink: impl Fn(&[Arc<Message>]) + Send + Sync + 'static) -> Self {
        self.on_messages = Some(Arc::new(sink));
        self
    }
}

/// Shows nothing of what is to be done.
impl fmt::Debug for NewRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRun")
            .field("conversation", &self.conversation)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Runs {
    /// How many runs may be under way at once: 64.
    pub const DEFAULT_MOST: usize = 64;
    /// How long a prompt may be, however it comes: 256 KiB.
    pub const DEFAULT_PROMPT_LIMIT: usize = 256 << 10;
    /// How many runs that have ended are kept in memory, for those who come late: 64. All others
    /// are read from the journal.
    pub const ENDED: usize = 64;
    /// How many bytes of events of them: 32 MiB.
    pub const ENDED_BYTES: usize = 32 << 20;

    /// Has work done by an agent, a swarm or a team.
    pub fn new(runner: impl Runner + 'static) -> Self {
        let runner: Arc<dyn Runner> = Arc::new(runner);
        let boot = format!(
            "{:08x}",
            runner.runtime().world().random() & u64::from(u32::MAX)
        )
        .into();
        let prompt_limit = Self::DEFAULT_PROMPT_LIMIT;
        let (most, share) = (Self::DEFAULT_MOST, TokenShare::DEFAULT);
        let settings = Settings {
            most,
            prompt_limit,
            share,
            watchers: Vec::new(),
            may_resume: None,
        };
        Self::made(runner, settings, boot)
    }

    fn made(runner: Arc<dyn Runner>, settings: Settings, boot: Arc<str>) -> Self {
        let (feeds, known, tasks) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        let errands = Quota::new(Self::TOLD, settings.share);
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
                errands,
                reads,
                lists,
            }),
        }
    }

    /// How many runs may be under way at once; [`DEFAULT_MOST`](Self::DEFAULT_MOST) by default. It
    /// is set before the first run.
    #[must_use]
    pub fn most(self, runs: usize) -> Self {
        let settings = Settings {
            most: runs,
            ..self.inner.settings.clone()
        };
        Self::made(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    /// How long a prompt may be; [`DEFAULT_PROMPT_LIMIT`](Self::DEFAULT_PROMPT_LIMIT) by default.
    /// It holds for HTTP, MCP and the bridge. It is set before the first run.
    #[must_use]
    pub fn prompt_limit(self, bytes: usize) -> Self {
        let settings = Settings {
            prompt_limit: bytes,
            ..self.inner.settings.clone()
        };
        Self::made(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    /// How much of a limit one named token may take, in percent: of the runs here, of the runs and
    /// lists that are read from the journal, and of the tool calls and the readers of an
    /// [`HttpApi`](crate::http::HttpApi). 25 by default; one place at least. Tokens of one tenant
    /// share it, and tokens with the scope `admin` are not limited by it. It is set before the
    /// first run.
    #[must_use]
    pub fn token_share(self, percent: u8) -> Self {
        let settings = Settings {
            share: TokenShare::percent(percent),
            ..self.inner.settings.clone()
        };
        Self::made(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    /// Asks `check` before a run of the journal is resumed, by whomever: a journal may hold runs
    /// that somebody else started, with calls that somebody else approved. It must not block, and
    /// is set before the first run.
    #[must_use]
    pub fn resume_if(
        self,
        check: impl Fn(&RunId) -> std::result::Result<(), JournalError> + Send + Sync + 'static,
    ) -> Self {
        let settings = Settings {
            may_resume: Some(Arc::new(check)),
            ..self.inner.settings.clone()
        };
        Self::made(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    pub(crate) fn share(&self) -> TokenShare {
        self.inner.settings.share
    }

    /// Checks a prompt before anything is made of it.
    ///
    /// # Errors
    /// When it has nothing that can be seen, or is longer than it may be.
    pub fn check_prompt(&self, prompt: &str) -> Result<()> {
        let most = self.inner.settings.prompt_limit;
        match prompt.len() > most {
            true => Err(Error::PromptTooLong { most }),
            false if is_blank(prompt) => Err(Error::EmptyPrompt),
            false => Ok(()),
        }
    }

    /// Calls `watcher` with each event of every run; it must not block. It is set before the first
    /// run.
    #[must_use]
    pub fn on_event(self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        let mut settings = self.inner.settings.clone();
        settings.watchers.push(Arc::new(watcher));
        Self::made(self.inner.runner.clone(), settings, self.inner.boot.clone())
    }

    /// What drives the runs.
    pub fn runtime(&self) -> &Runtime {
        self.inner.runner.runtime()
    }

    fn world(&self) -> &dyn World {
        &**self.runtime().world()
    }

    /// Begins a run, and returns at once. [`LiveRun::opened`] tells when it is in the journal.
    ///
    /// # Errors
    /// When too many are under way, or it cannot begin as it is wanted.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start(&self, order: NewRun) -> Result<Arc<LiveRun>> {
        self.start_for(&Caller::owner(), order)
    }

    /// As [`start`](Self::start), for somebody who may have a share of the runs only.
    pub(crate) fn start_for(&self, caller: &Caller, order: NewRun) -> Result<Arc<LiveRun>> {
        self.start_by(&*self.inner.runner, caller, order)
    }

    /// As [`start_for`](Self::start_for), by another runner of the same journal: one that calls the
    /// model of a client, for instance.
    pub(crate) fn start_by(
        &self,
        runner: &dyn Runner,
        caller: &Caller,
        order: NewRun,
    ) -> Result<Arc<LiveRun>> {
        self.check_prompt(&order.goal)?;
        let id = order.id.unwrap_or_else(|| RunId::random(self.world()));
        if id.parent().is_some() {
            return Err(Error::setting(
                "id",
                "has a dot, which stands between a run and those below it",
            ));
        }
        let place = self.admit(
            &id,
            self.feed(&id),
            RunStatus::of_goal(&order.goal),
            &Whose::Caller(caller),
        )?;
        let watcher = self.watcher(&place.run, order.watcher);
        let setup = RunSetup::new(id, watcher)
            .with_conversation(order.conversation)
            .with_messages(order.on_messages);
        let started = runner.start(&order.goal, setup)?;
        Ok(self.attend(place, started))
    }

    /// Goes on with a run of the journal.
    ///
    /// # Errors
    /// When there is no such run, it has ended, or too many are under way.
    pub async fn resume(&self, id: &RunId) -> Result<Arc<LiveRun>> {
        self.resume_for(&Caller::owner(), id).await
    }

    /// As [`resume`](Self::resume), for somebody who may have a share of the runs only.
    pub(crate) async fn resume_for(&self, caller: &Caller, id: &RunId) -> Result<Arc<LiveRun>> {
        self.resume_at(id, Whose::Caller(caller)).await
    }

    async fn resume_at(&self, id: &RunId, whose: Whose<'_>) -> Result<Arc<LiveRun>> {
        if let Some(run) = self.live(id) {
            return Ok(run);
        }
        if let Some(check) = &self.inner.settings.may_resume {
            check(id)?;
        }
        let told = match &whose {
            Whose::Caller(caller) => {
                let (runner, run) = (self.inner.runner.clone(), id.clone());
                self.with_journal(caller, async move { runner.history(&run).await })
                    .await?
            }
            Whose::Queue(_) => self.inner.runner.history(id).await?,
        };
        let is_end =
            |event: &Event| event.run == *id && matches!(event.kind, EventKind::RunEnded(_));
        if told.iter().any(is_end) {
            return Err(Error::NotUnderWay(id.clone()));
        }
        let feed = self.feed(id);
        told.iter().for_each(|event| feed.push(event));
        let admitted = self.admit(id, feed, RunStatus::of(id, &told), &whose);
        drop(whose);
        let place = match admitted {
            Ok(place) => place,
            // Somebody else was faster.
            Err(error) => return self.live(id).ok_or(error),
        };
        place.run.open();
        let started = self
            .inner
            .runner
            .resume(id, self.watcher(&place.run, None))
            .await?;
        Ok(self.attend(place, started))
    }

    /// A run that is under way here, or has ended here of late.
    pub fn get(&self, id: &RunId) -> Option<Arc<LiveRun>> {
        let known = self.known();
        known
            .live
            .get(id)
            .or_else(|| known.ended.iter().rev().find(|run| run.id() == id))
            .cloned()
    }

    /// Forgets a run that has ended here; its journal keeps what it has.
    pub(crate) fn forget(&self, id: &RunId) {
        self.known().ended.retain(|run| run.id() != id);
    }

    fn live(&self, id: &RunId) -> Option<Arc<LiveRun>> {
        self.known().live.get(id).cloned()
    }

    /// The runs that are under way here, and those that have ended here of late.
    pub fn here(&self) -> Vec<Arc<LiveRun>> {
        let known = self.known();
        known
            .ended
            .iter()
            .chain(known.live.values())
            .cloned()
            .collect()
    }

    /// Says that no further run can begin now, if that is so, before anything is prepared for one.
    pub(crate) fn room(&self) -> Result<()> {
        let (most, known) = (self.inner.settings.most, self.known());
        if known.live.len() + known.kept < most {
            Ok(())
        } else {
            Err(Error::Full { most })
        }
    }

    /// How many runs are under way here.
    pub fn under_way(&self) -> usize {
        self.known().live.len()
    }

    /// Lists runs of the journal. Without one, those that are [`here`](Self::here) are all there
    /// are, and these are listed.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>> {
        match self.runtime().journal().keeps() {
            true => Ok(self.runtime().journal().list(query).await?),
            false => Ok(query.select(self.here().iter().map(|run| run.summary()))),
        }
    }

    /// What a run has told by now, but for what was fleeting.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn history(&self, id: &RunId) -> Result<Vec<Event>> {
        self.inner.runner.history(id).await
    }

    /// How a run stands.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn standing(&self, id: &RunId) -> Result<RunStatus> {
        match self.known_here(id) {
            Some(run) => Ok(run.standing()),
            None => Ok(RunStatus::of(id, &self.history(id).await?)),
        }
    }

    /// A run of which all is known here, so that the journal need not be read.
    pub(crate) fn known_here(&self, id: &RunId) -> Option<Arc<LiveRun>> {
        self.get(id).filter(|run| !self.is_left(run))
    }

    /// Whether a run could not be driven to its end here, so that others may have gone on with it.
    fn is_left(&self, run: &LiveRun) -> bool {
        self.runtime().journal().keeps() && matches!(run.ended(), Some(RunOutcome::Stopped(_)))
    }

    /// The questions that wait for a decision in a run and those below it, whoever drives it.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn asks(&self, id: &RunId) -> Result<Vec<Ask>> {
        match self.known_here(id) {
            Some(run) => Ok(run.asks().await),
            None => self.inner.runner.asks(id).await,
        }
    }

    /// How a run ended, if it has.
    ///
    /// # Errors
    /// When there is no such run.
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

    /// Reads what a run tells: behind an event, named by the id it came with, or from the
    /// beginning.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn events(&self, id: &RunId, after: Option<&str>) -> Result<Reader> {
        if let Some(run) = self.known_here(id) {
            return Ok(run.events(after));
        }
        Ok(Arc::new(Feed::kept(id.clone(), &self.history(id).await?)).reader(after))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn feed(&self, id: &RunId) -> Arc<Feed> {
        let number = self.inner.feeds.fetch_add(1, Ordering::Relaxed);
        Arc::new(Feed::new(
            id.clone(),
            format!("{}{number:x}", self.inner.boot).into(),
        ))
    }

    /// Takes a run in, if there is room or a place was kept for it.
    fn admit(
        &self,
        id: &RunId,
        feed: Arc<Feed>,
        standing: RunStatus,
        whose: &Whose<'_>,
    ) -> Result<Place> {
        let run = Arc::new(LiveRun::new(id.clone(), whose.tenant(), feed, standing));
        let mut known = self.known();
        let queued = match whose {
            Whose::Caller(caller) => {
                self.fits(&known, caller)?;
                false
            }
            Whose::Queue(_) => true,
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
        Ok(Place {
            run,
            inner: Arc::downgrade(&self.inner),
            driven: false,
            queued,
        })
    }

    /// Says that a caller has no further run, if that is so.
    fn fits(&self, known: &Known, caller: &Caller) -> Result<()> {
        let Settings { most, share, .. } = self.inner.settings;
        if known.live.len() + known.kept >= most {
            return Err(Error::Full { most });
        }
        // Runs that an earlier process left count, too: whose a run is follows from its id.
        let own = || {
            known
                .live
                .keys()
                .filter(|id| caller.owns(id.as_str()))
                .count()
        };
        let most = share.of_caller(most, caller);
        if caller.namespace().is_some() && own() >= most {
            Err(Error::Full { most })
        } else {
            Ok(())
        }
    }

    fn watcher(&self, run: &Arc<LiveRun>, own: Option<Watcher>) -> Watcher {
        let (run, mut others) = (run.clone(), self.inner.settings.watchers.clone());
        others.extend(own);
        Arc::new(move |event: &Event| {
            run.tell(event);
            others.iter().for_each(|watcher| watcher(event));
        })
    }

    /// Drives a run on a task that is ended with these runs.
    fn attend(&self, mut place: Place, started: Started) -> Arc<LiveRun> {
        let run = place.run.clone();
        run.connect(started.control);
        place.driven = true;
        let mut tasks = self
            .inner
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let stopped: Option<SharedError> = started.ended.await;
            place.run.finish(stopped);
            let runs = place.inner.clone();
            drop(place);
            if let Some(inner) = runs.upgrade() {
                Runs { inner }.go_on().await;
            }
        });
        drop(tasks);
        run
    }

    /// Whether runs can be part of conversations.
    pub fn talks(&self) -> bool {
        self.inner.runner.talks()
    }

    fn retire(&self, place: &Place) {
        let run = &place.run;
        let mut known = self.known();
        known.live.remove(run.id());
        if !place.driven || run.ended().is_some_and(|outcome| outcome.is_elsewhere()) {
            return;
        }
        known.ended.push_back(run.clone());
        while known.ended.len() > Self::ENDED {
            forget_one(&mut known.ended, |_| 1);
        }
        while known.ended.len() > 1 && weight(&known.ended, LiveRun::bytes) > Self::ENDED_BYTES {
            forget_one(&mut known.ended, LiveRun::bytes);
        }
    }
}

fn weight(ended: &VecDeque<Arc<LiveRun>>, weight: impl Fn(&LiveRun) -> usize) -> usize {
    ended.iter().map(|run| weight(run)).sum()
}

/// Forgets the oldest run of the tenant whose runs weigh most, so that none pushes out the runs of
/// another.
fn forget_one(ended: &mut VecDeque<Arc<LiveRun>>, weight: impl Fn(&LiveRun) -> usize) {
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

/// For whom a run is taken in.
enum Whose<'a> {
    Caller(&'a Caller),
    /// The queue, which has kept a place for it.
    Queue(#[expect(dead_code, reason = "the place is kept until it is dropped")] KeptPlace),
}

impl Whose<'_> {
    fn tenant(&self) -> Option<Arc<str>> {
        match self {
            Self::Caller(caller) => caller.namespace().map(Into::into),
            Self::Queue(_) => None,
        }
    }
}

/// A run's place among those under way. It is given back however the run comes to its end, and who
/// waits for that is told.
struct Place {
    run: Arc<LiveRun>,
    inner: Weak<Inner>,
    driven: bool,
    /// Whether it was kept for a run of the queue.
    queued: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        // This counts only where nothing was said of its end: it is driven no more.
        self.run.finish(Some(SharedError::new(Error::NotUnderWay(
            self.run.id().clone(),
        ))));
        if let Some(inner) = self.inner.upgrade() {
            let runs = Runs { inner };
            runs.retire(self);
            // Whoever drove it goes on with others by itself, and so does whoever takes up the
            // queue: a run that cannot be taken up now must not have it begun anew at once, and so
            // for ever.
            if !self.driven && !self.queued {
                runs.go_on_soon();
            }
        }
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs")
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}
