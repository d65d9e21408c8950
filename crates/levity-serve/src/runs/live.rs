//! One run in this process: its feed, its status and its outcome.
//!
//! The stage only moves forward: preparing, open, finished. It is a `watch` channel, so any number
//! of tasks can wait for it and a late one sees the current value.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use levity_core::{Ask, Ending, Event, JournalErrorKind, RunId, RunState, RunSummary, SharedError};
use levity_observe::{RunView, ViewAsk, ViewChanges};
use levity_runtime::Control;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::feed::{EventReader, Feed};
use crate::runs::commands::CommandSlots;
use crate::runs::{OpenAsk, RunStatus};

/// A run that is or was in progress in this process.
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::{NewRun, Runs};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runs = Runs::new(Agent::builder(ScriptedModel::new().reply("Yes.")).build()?);
/// let run = runs.start(NewRun::new("Is it?").id("r1"))?;
/// run.opened().await?; // the run is in its journal
/// assert_eq!(run.id().as_str(), "r1");
/// run.outcome().await;
/// assert!(run.control().is_err(), "an ended run takes no commands");
/// # Ok(())
/// # }
/// ```
pub struct LiveRun {
    id: RunId,
    /// The tenant whose limits the run counts towards.
    pub(super) tenant: Option<Arc<str>>,
    feed: Arc<Feed>,
    control: OnceLock<Control>,
    standing: Mutex<RunStatus>,
    /// The view of the run and its child runs, and its latest revision.
    view: Mutex<RunView>,
    revision: watch::Sender<u64>,
    stage: watch::Sender<Stage>,
    pub(super) command_slots: CommandSlots,
}

/// The progress of a run in this process. A run is `Open` once its first event has arrived, or when
/// it is resumed.
#[derive(Clone)]
enum Stage {
    Preparing,
    Open,
    Finished(RunOutcome),
}

/// The outcome of a run.
///
/// ```
/// use levity_core::Status;
/// use levity_loop::Agent;
/// use levity_serve::{NewRun, RunOutcome, Runs};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runs = Runs::new(Agent::builder(ScriptedModel::new().hang()).build()?);
/// let run = runs.start(NewRun::new("Wait."))?;
/// run.control()?.cancel("not needed").await?;
/// match run.outcome().await {
///     RunOutcome::Ended(ending) => assert!(matches!(ending.status, Status::Cancelled { .. })),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunOutcome {
    /// The run has ended with this ending.
    Ended(Arc<Ending>),
    /// The run could not be driven to its end. You can resume it from the journal.
    Stopped(SharedError),
}

impl RunOutcome {
    /// Returns the ending of the run, if it ended.
    ///
    /// A failed or cancelled run has an ending as well; check its status.
    pub fn ending(&self) -> Option<&Ending> {
        match self {
            Self::Ended(ending) => Some(ending),
            Self::Stopped(_) => None,
        }
    }

    /// Returns `true` if the run belongs to another process, or existed before and this one only
    /// has its id.
    pub(super) fn is_driven_elsewhere(&self) -> bool {
        use levity_core::RuntimeError::{Exists, Journal};
        let Self::Stopped(cause) = self else {
            return false;
        };
        match crate::http::runtime_error(cause) {
            Some(Journal(error)) => error.kind() == JournalErrorKind::Busy,
            Some(Exists(_)) => true,
            _ => false,
        }
    }
}

impl LiveRun {
    pub(super) fn new(
        id: RunId,
        tenant: Option<Arc<str>>,
        feed: Arc<Feed>,
        standing: RunStatus,
        view: RunView,
    ) -> Self {
        let revision = watch::Sender::new(view.revision());
        let view = Mutex::new(view);
        let stage = watch::Sender::new(Stage::Preparing);
        let (control, standing, command_slots) = (
            OnceLock::new(),
            Mutex::new(standing),
            CommandSlots::default(),
        );
        Self {
            id,
            tenant,
            feed,
            control,
            standing,
            view,
            revision,
            stage,
            command_slots,
        }
    }

    /// Returns the id of the run.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns the status of the run.
    ///
    /// The status is current up to the latest event, and the call does not wait for the run.
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
    /// run.outcome().await;
    /// assert_eq!(run.status().stats.model_calls, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn status(&self) -> RunStatus {
        self.state().clone()
    }

    /// Returns the status in the form of a journal summary.
    pub(crate) fn summary(&self) -> RunSummary {
        let standing = self.status();
        let mut summary = RunSummary::new(self.id.clone(), standing.opened.unwrap_or_default());
        summary.updated = standing.updated.unwrap_or_default();
        summary.paused = standing.paused;
        summary.waiting = standing.waiting();
        summary.status = standing.ending.as_ref().map(|ending| ending.status.clone());
        summary
    }

    fn state(&self) -> MutexGuard<'_, RunStatus> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the handle that controls the run.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runs = Runs::new(Agent::builder(ScriptedModel::new().hang()).build()?);
    /// let run = runs.start(NewRun::new("Wait."))?;
    /// run.control()?.cancel("the user closed the page").await?;
    /// assert!(!run.outcome().await.ending().unwrap().status.is_answer());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the run has ended.
    pub fn control(&self) -> Result<&Control> {
        let finished = self.ended().is_some();
        self.control
            .get()
            .filter(|_| !finished)
            .ok_or_else(|| Error::NotRunning(self.id.clone()))
    }

    /// Returns the questions of the run and its child runs that wait for a decision.
    ///
    /// Decide one with [`Control::decide`](levity_runtime::Control::decide):
    ///
    /// ```
    /// use levity_core::{Decision, Hints, ToolOutput};
    /// use levity_loop::Agent;
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::{RecordingTool, ScriptedModel};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")))
    ///     .with_hints(Hints::new().destructive());
    /// let model = ScriptedModel::new().call("send", serde_json::json!({})).reply("Sent.");
    /// let runs = Runs::new(Agent::builder(model).tool(send).build()?);
    /// let run = runs.start(NewRun::new("Send it"))?;
    /// let mut events = run.events(None);
    /// let ask = loop {
    ///     events.next().await.expect("the run asks before it ends");
    ///     if let Some(ask) = run.asks().await.into_iter().next() {
    ///         break ask;
    ///     }
    /// };
    /// run.control()?.decide(&ask, Decision::Allow).await?;
    /// assert_eq!(run.outcome().await.ending().unwrap().text, "Sent.");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn asks(&self) -> Vec<Ask> {
        // A run that has not started does not answer control requests yet, so this call would
        // block.
        if self.state().state() != RunState::Waiting {
            return Vec::new();
        }
        // The state of a resumed run is known before the run can be controlled.
        if self.opened().await.is_err() {
            return Vec::new();
        }
        match self.control() {
            Ok(control) => control.pending_asks().await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// Returns the pending questions with the ids that decide them.
    pub(crate) async fn open_asks(&self) -> Vec<OpenAsk> {
        let asks = self.asks().await;
        self.state().open_asks(asks)
    }

    /// Returns a reader of the run's events, from the beginning or after the event with the given
    /// id.
    pub fn events(&self, after: Option<&str>) -> EventReader {
        self.feed.reader(after)
    }

    /// Waits until the run is in its journal. If its conversation is busy, the run waits for that
    /// first.
    ///
    /// From then on, a crash does not lose the run: [`Runs::resume`](crate::Runs::resume) continues
    /// it.
    ///
    /// # Errors
    /// Fails if the run could not start.
    pub async fn opened(&self) -> Result<()> {
        let mut stage = self.stage.subscribe();
        let stage = stage
            .wait_for(|stage| !matches!(stage, Stage::Preparing))
            .await;
        match stage.as_deref() {
            Ok(Stage::Finished(RunOutcome::Stopped(cause))) => Err(Error::Run {
                run: self.id.clone(),
                cause: cause.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Waits for the outcome of the run.
    ///
    /// Any number of tasks can wait. Dropping the future does not affect the run.
    pub async fn outcome(&self) -> RunOutcome {
        let mut stage = self.stage.subscribe();
        match stage
            .wait_for(|stage| matches!(stage, Stage::Finished(_)))
            .await
            .as_deref()
        {
            Ok(Stage::Finished(outcome)) => outcome.clone(),
            _ => RunOutcome::Stopped(SharedError::new(Error::NotRunning(self.id.clone()))),
        }
    }

    /// Returns the outcome, if the run has finished.
    pub fn ended(&self) -> Option<RunOutcome> {
        match &*self.stage.borrow() {
            Stage::Finished(outcome) => Some(outcome.clone()),
            _ => None,
        }
    }

    /// Returns the number of bytes of buffered events, and of the view.
    pub(super) fn bytes(&self) -> usize {
        self.feed.bytes() + self.view_state().size()
    }

    fn view_state(&self) -> MutexGuard<'_, RunView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the view of the run and its child runs, up to the latest event.
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
    /// run.outcome().await;
    /// let view = run.view();
    /// assert_eq!((view.goal(), view.items().count()), ("Is it?", 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn view(&self) -> RunView {
        self.view_state().clone()
    }

    /// Returns the number of durable events of the run and its child runs.
    pub(crate) fn event_count(&self) -> u64 {
        self.view_state().len()
    }

    /// Returns the changes of the view since a revision, and the new revision. The changes are
    /// `None` if the revision is too old.
    pub(crate) fn view_changes(&self, since: u64) -> (Option<ViewChanges>, u64) {
        let view = self.view_state();
        (view.changes_since(since), view.revision())
    }

    /// Returns a receiver of the latest revision of the view.
    pub(crate) fn watch_view(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Returns the pending questions without asking the run, the oldest first.
    pub(crate) fn known_asks(&self) -> Vec<ViewAsk> {
        if self.ended().is_some() || self.state().state() != RunState::Waiting {
            return Vec::new();
        }
        self.view_state().asks().cloned().collect()
    }

    /// Returns the status with only the beginning of the goal.
    pub(crate) fn brief(&self, goal: usize) -> RunStatus {
        self.state().brief(goal)
    }

    pub(super) fn connect(&self, control: Control) {
        let _ = self.control.set(control);
    }

    /// Marks the run as stored in its journal. Only the first call has an effect.
    pub(super) fn open(&self) {
        self.stage.send_if_modified(|stage| {
            let first = matches!(stage, Stage::Preparing);
            if first {
                *stage = Stage::Open;
            }
            first
        });
    }

    /// Applies an event of the run or of one of its child runs.
    pub(super) fn record(&self, event: &Event) {
        // The status is updated before readers can see the event.
        self.state().add(&self.id, event);
        let revision = {
            let mut view = self.view_state();
            view.apply(event);
            view.revision()
        };
        self.revision.send_replace(revision);
        self.feed.push(event);
        self.open();
    }

    /// Sets the outcome, unless it is already set.
    pub(super) fn finish(&self, stopped: Option<SharedError>) {
        if self.ended().is_some() {
            return;
        }
        self.feed.close();
        let outcome = match (self.state().ending.clone(), stopped) {
            (Some(ending), _) => RunOutcome::Ended(ending),
            (None, Some(cause)) => RunOutcome::Stopped(cause),
            (None, None) => RunOutcome::Stopped(SharedError::new(
                "the run stopped without \
                reporting an ending",
            )),
        };
        self.stage.send_replace(Stage::Finished(outcome));
    }
}

impl fmt::Debug for LiveRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRun")
            .field("id", &self.id)
            .field("finished", &self.ended().is_some())
            .finish_non_exhaustive()
    }
}
