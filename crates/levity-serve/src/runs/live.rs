use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use levity_core::{Ask, Ending, Event, JournalErrorKind, RunId, RunState, RunSummary, SharedError};
use levity_runtime::Control;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::feed::{Feed, Reader};
use crate::runs::RunStatus;
use crate::runs::tell::Lines;

/// A run that is under way here, or was.
pub struct LiveRun {
    id: RunId,
    /// The tenant that it counts for.
    pub(super) tenant: Option<Arc<str>>,
    feed: Arc<Feed>,
    control: OnceLock<Control>,
    standing: Mutex<RunStatus>,
    stage: watch::Sender<Stage>,
    pub(super) lines: Lines,
}

#[derive(Clone)]
enum Stage {
    Preparing,
    Open,
    Over(RunOutcome),
}

/// What became of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunOutcome {
    /// It has ended; how is in the ending.
    Ended(Arc<Ending>),
    /// It could not be driven to its end. What it has in the journal can be gone on with.
    Stopped(SharedError),
}

impl RunOutcome {
    /// How the run ended, if it did.
    pub fn ending(&self) -> Option<&Ending> {
        match self {
            Self::Ended(ending) => Some(ending),
            Self::Stopped(_) => None,
        }
    }

    /// Whether the run is another's: another process drives it, or it was there before, and this
    /// one has only its id.
    pub(super) fn is_elsewhere(&self) -> bool {
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
    ) -> Self {
        let stage = watch::Sender::new(Stage::Preparing);
        let (control, standing, lines) = (OnceLock::new(), Mutex::new(standing), Lines::default());
        Self {
            id,
            tenant,
            feed,
            control,
            standing,
            stage,
            lines,
        }
    }

    /// The run.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// How the run stands.
    pub fn standing(&self) -> RunStatus {
        self.state().clone()
    }

    /// The same, as a journal says it.
    pub(crate) fn summary(&self) -> RunSummary {
        let standing = self.standing();
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

    /// Tells the run what to do.
    ///
    /// # Errors
    /// When it has ended.
    pub fn control(&self) -> Result<&Control> {
        let over = self.ended().is_some();
        self.control
            .get()
            .filter(|_| !over)
            .ok_or_else(|| Error::NotUnderWay(self.id.clone()))
    }

    /// The questions of the run and the runs below it that wait for a decision.
    pub async fn asks(&self) -> Vec<Ask> {
        // One that has not begun takes no questions yet, and would have this wait.
        let waits = self.state().state() == RunState::Waiting;
        match self.control() {
            Ok(control) if waits => control.asks().await.unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Reads what the run tells: behind an event, named by the id it came with, or from the
    /// beginning.
    pub fn events(&self, after: Option<&str>) -> Reader {
        self.feed.reader(after)
    }

    /// Waits until the run is in its journal. One whose conversation is busy waits for that first.
    ///
    /// # Errors
    /// When it could not begin.
    pub async fn opened(&self) -> Result<()> {
        let mut stage = self.stage.subscribe();
        let stage = stage
            .wait_for(|stage| !matches!(stage, Stage::Preparing))
            .await;
        match stage.as_deref() {
            Ok(Stage::Over(RunOutcome::Stopped(cause))) => Err(Error::Run {
                run: self.id.clone(),
                cause: cause.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Waits for the end.
    pub async fn outcome(&self) -> RunOutcome {
        let mut stage = self.stage.subscribe();
        match stage
            .wait_for(|stage| matches!(stage, Stage::Over(_)))
            .await
            .as_deref()
        {
            Ok(Stage::Over(outcome)) => outcome.clone(),
            _ => RunOutcome::Stopped(SharedError::new(Error::NotUnderWay(self.id.clone()))),
        }
    }

    /// What became of it, if it is over.
    pub fn ended(&self) -> Option<RunOutcome> {
        match &*self.stage.borrow() {
            Stage::Over(outcome) => Some(outcome.clone()),
            _ => None,
        }
    }

    /// How many bytes of events are kept for readers.
    pub(super) fn bytes(&self) -> usize {
        self.feed.bytes()
    }

    pub(super) fn connect(&self, control: Control) {
        let _ = self.control.set(control);
    }

    pub(super) fn open(&self) {
        self.stage.send_if_modified(|stage| {
            let first = matches!(stage, Stage::Preparing);
            if first {
                *stage = Stage::Open;
            }
            first
        });
    }

    pub(super) fn tell(&self, event: &Event) {
        // Whoever reads an event finds that the run stands accordingly.
        self.state().add(&self.id, event);
        self.feed.push(event);
        self.open();
    }

    /// Says what became of it, unless that was said.
    pub(super) fn finish(&self, stopped: Option<SharedError>) {
        if self.ended().is_some() {
            return;
        }
        self.feed.close();
        let outcome = match (self.state().ending.clone(), stopped) {
            (Some(ending), _) => RunOutcome::Ended(ending),
            (None, Some(cause)) => RunOutcome::Stopped(cause),
            (None, None) => RunOutcome::Stopped(SharedError::new("the run told no ending")),
        };
        self.stage.send_replace(Stage::Over(outcome));
    }
}

impl fmt::Debug for LiveRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRun")
            .field("id", &self.id)
            .field("over", &self.ended().is_some())
            .finish_non_exhaustive()
    }
}
