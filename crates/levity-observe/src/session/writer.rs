use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{Ending, Event, EventKind, RunId};
use levity_dag::PlanNotice;
use tokio::sync::watch;

use super::book::Book;
use super::error::{SessionError, SessionProblem};
use super::folder::SessionFolder;

/// Keeps the session file of a run up to date, from its events.
///
/// The file is written when there is a plan or another one, after each settled step, and at the
/// end. Whoever reads it finds the old one or the new one, also after the process was killed.
/// Nobody waits for it: it is written aside, one write at a time, and what happens meanwhile is in
/// the next. Cloning costs nothing.
///
/// A write that fails does not end the run: it is told to [`SessionFolder::on_error`], and the next
/// is tried all the same.
///
/// ```
/// # use levity_core::{Event, RunId};
/// # use levity_observe::{SessionError, SessionFolder};
/// # async fn doc(events: Vec<Event>) -> Result<(), std::sync::Arc<SessionError>> {
/// let writer = SessionFolder::open("sessions").writer(&RunId::new("r"));
/// for event in &events {
///     writer.apply(event);
/// }
/// writer.flush().await
/// # }
/// ```
#[derive(Clone)]
pub struct SessionWriter(Arc<Shared>);

struct Shared {
    run: RunId,
    dir: PathBuf,
    /// What the one at work works on; nobody else waits for this lock for longer than it takes to
    /// look.
    book: Mutex<Book>,
    inbox: Mutex<Inbox>,
    /// How many times all that was there had been written, or failed to be: for those who wait.
    idle: watch::Sender<u64>,
}

#[derive(Default)]
struct Inbox {
    /// What had happened before the first event that is still to come; it is in no file before
    /// that.
    before: Vec<Event>,
    /// What has happened and is in no file yet.
    events: Vec<Event>,
    /// Whether it is to be written.
    due: bool,
    /// Whether somebody is at work.
    busy: bool,
    path: Option<PathBuf>,
    failed: Option<Arc<SessionError>>,
    on_error: Option<Arc<OnError>>,
}

pub(super) type OnError = dyn Fn(&SessionError) + Send + Sync;

impl SessionWriter {
    pub(super) fn new(sessions: SessionFolder, run: RunId, on_error: Option<Arc<OnError>>) -> Self {
        Self(Arc::new(Shared {
            dir: sessions.dir().to_owned(),
            book: Mutex::new(Book::new(sessions, run.clone())),
            run,
            inbox: Mutex::new(Inbox {
                on_error,
                ..Inbox::default()
            }),
            idle: watch::channel(0).0,
        }))
    }

    /// Takes in an event of the run; those of runs below it, and fleeting ones, are left out. It
    /// does not block.
    ///
    /// They must all come, in order: from a listener that can miss some, the file would be wrong
    /// until the next plan.
    pub fn apply(&self, event: &Event) {
        let Some(event) = self.0.wanted(event) else {
            return;
        };
        let due = is_due(&event.kind);
        let mut inbox = self.0.inbox();
        let before = std::mem::take(&mut inbox.before);
        inbox.due |= !before.is_empty();
        inbox.events.extend(before);
        inbox.events.push(event);
        inbox.due |= due;
        if inbox.due && !inbox.busy {
            inbox.busy = true;
            drop(inbox);
            self.begin();
        }
    }

    /// Takes in what had happened before. Unless the run had ended, nothing is written before the
    /// first event after it: until then it may turn out that others drive the run, whose file this
    /// is.
    pub(crate) fn begin_with(&self, told: &[Event]) {
        if told
            .iter()
            .any(|event| matches!(event.kind, EventKind::RunEnded(_)))
        {
            return told.iter().for_each(|event| self.apply(event));
        }
        self.0.inbox().before = told
            .iter()
            .filter_map(|event| self.0.wanted(event))
            .collect();
    }

    /// Waits until all that was taken in is written.
    ///
    /// # Errors
    /// When the last write failed.
    pub async fn flush(&self) -> Result<(), Arc<SessionError>> {
        let mut idle = self.0.idle.subscribe();
        loop {
            idle.borrow_and_update();
            let begin = {
                let mut inbox = self.0.inbox();
                if !inbox.busy && inbox.events.is_empty() {
                    return inbox.failed.clone().map_or(Ok(()), Err);
                }
                let begin = !inbox.busy;
                inbox.busy = true;
                inbox.due = true;
                begin
            };
            if begin {
                self.begin();
            }
            // The sender is here, so it cannot have gone.
            let _ = idle.changed().await;
        }
    }

    /// The file, once something was written.
    pub fn path(&self) -> Option<PathBuf> {
        self.0.inbox().path.clone()
    }

    /// Why the last write failed, if it did.
    pub fn last_error(&self) -> Option<Arc<SessionError>> {
        self.0.inbox().failed.clone()
    }

    fn begin(&self) {
        let work = Work {
            shared: self.0.clone(),
            settled: false,
        };
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => {
                handle.spawn_blocking(move || work.run());
            }
            Err(_) => work.run(),
        }
    }
}

impl fmt::Debug for SessionWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionWriter")
            .field("run", &self.0.run)
            .field("dir", &self.0.dir)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What of an event is kept until it is written.
    fn wanted(&self, event: &Event) -> Option<Event> {
        if event.run != self.run || event.kind.is_fleeting() {
            return None;
        }
        let kind = match &event.kind {
            EventKind::Custom { name, .. } if name != PlanNotice::NAME => return None,
            EventKind::ChildFinished { effect, ending } => {
                // What a step answered is told once more when the step is done; here, what it took
                // is enough.
                let mut short = Ending::new(ending.status.clone());
                (short.usage, short.stats) = (ending.usage, ending.stats);
                EventKind::ChildFinished {
                    effect: *effect,
                    ending: Box::new(short),
                }
            }
            EventKind::Custom { .. }
            | EventKind::RunStarted { .. }
            | EventKind::Goal { .. }
            | EventKind::Asked(_)
            | EventKind::Decided { .. }
            | EventKind::RunEnded(_) => event.kind.clone(),
            _ => return None,
        };
        Some(Event::new(event.run.clone(), event.seq, event.at, kind))
    }
}

/// Whether the file is written after an event.
fn is_due(kind: &EventKind) -> bool {
    let EventKind::Custom { data, .. } = kind else {
        return matches!(kind, EventKind::RunEnded(_));
    };
    let notice = data
        .get("notice")
        .and_then(|notice| notice.as_str())
        .unwrap_or_default();
    matches!(
        notice,
        "planning"
            | "planned"
            | "replanning"
            | "replanned"
            | "gave_up"
            | "step_completed"
            | "step_failed"
            | "step_skipped"
    )
}

/// Writes until there is nothing left to write. However it ends, others can begin again.
struct Work {
    shared: Arc<Shared>,
    /// Whether it has said itself that it is no longer at work. Otherwise it was never begun, or
    /// has broken down.
    settled: bool,
}

impl Work {
    fn run(mut self) {
        let shared = self.shared.clone();
        let mut book = shared.book.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let events = {
                let mut inbox = shared.inbox();
                if !std::mem::take(&mut inbox.due) {
                    // In one breath with the look, or what comes in between would wait for somebody
                    // who has gone.
                    inbox.busy = false;
                    self.settled = true;
                    return;
                }
                std::mem::take(&mut inbox.events)
            };
            let written = events
                .iter()
                .try_for_each(|event| book.apply(event))
                .and_then(|()| book.write());
            self.tell(&book, written);
        }
    }

    fn tell(&self, book: &Book, written: Result<(), SessionProblem>) {
        let path = book.path().cloned();
        let failed = written
            .err()
            .map(|problem| Arc::new(problem.at(path.as_ref().unwrap_or(&self.shared.dir))));
        let on_error = {
            let mut inbox = self.shared.inbox();
            inbox.path = path;
            inbox.failed.clone_from(&failed);
            inbox.on_error.clone()
        };
        if let Some((tell, error)) = on_error.zip(failed) {
            tell(&error);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.settled {
            self.shared.inbox().busy = false;
        }
        self.shared
            .idle
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}
