//! Writes session files in the background.
//!
//! An event is reduced and queued under a short lock; a blocking task folds the queue and replaces
//! the file. At most one task runs for each writer, and it continues until the queue needs no
//! write. So a fast run causes few writes, and a slow disk never delays a run.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{Ending, Event, EventKind, RunId};
use levity_dag::PlanNotice;
use tokio::sync::watch;

use super::content::SessionContent;
use super::error::{SessionError, SessionProblem};
use super::folder::SessionFolder;

/// A writer that keeps the session file of a run up to date from its events.
///
/// It writes the file when there is a new plan, after each settled step, and at the end. Readers
/// find the old or the new content, even after the process was killed. Writes happen in the
/// background, one at a time, and never block the run; events in the meantime go into the next
/// write. Clones are cheap.
///
/// A failed write does not end the run: the writer reports it to [`SessionFolder::on_error`], and
/// retries with the next write.
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
    /// The content that the writing task works on; other callers hold this lock only briefly.
    content: Mutex<SessionContent>,
    inbox: Mutex<Inbox>,
    /// Counts the completed or failed writes, for `flush`.
    idle: watch::Sender<u64>,
}

#[derive(Default)]
struct Inbox {
    /// Earlier events, which are not written before the next event arrives.
    earlier: Vec<Event>,
    /// Events that are not in the file yet.
    events: Vec<Event>,
    /// `true` if the events must be written.
    write_due: bool,
    /// `true` while a task is writing.
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
            content: Mutex::new(SessionContent::new(sessions, run.clone())),
            run,
            inbox: Mutex::new(Inbox {
                on_error,
                ..Inbox::default()
            }),
            idle: watch::channel(0).0,
        }))
    }

    /// Adds an event of the run, without blocking. Events of child runs and transient events are
    /// ignored.
    ///
    /// Pass every event in order: if a listener misses some, the file is wrong until the next plan.
    ///
    /// Outside of a tokio runtime, a due write happens on the calling thread.
    pub fn apply(&self, event: &Event) {
        let Some(event) = self.0.reduce(event) else {
            return;
        };
        let write_due = is_write_due(&event.kind);
        let mut inbox = self.0.inbox();
        let earlier = std::mem::take(&mut inbox.earlier);
        inbox.write_due |= !earlier.is_empty();
        inbox.events.extend(earlier);
        inbox.events.push(event);
        inbox.write_due |= write_due;
        if inbox.write_due && !inbox.busy {
            inbox.busy = true;
            drop(inbox);
            self.start_writing();
        }
    }

    /// Adds events from before this process. Unless the run has ended, the writer waits for the
    /// next event: until then, another process may turn out to drive the run and own the file.
    pub(crate) fn begin_with(&self, earlier_events: &[Event]) {
        if earlier_events
            .iter()
            .any(|event| matches!(event.kind, EventKind::RunEnded(_)))
        {
            return earlier_events.iter().for_each(|event| self.apply(event));
        }
        self.0.inbox().earlier = earlier_events
            .iter()
            .filter_map(|event| self.0.reduce(event))
            .collect();
    }

    /// Waits until all added events are written.
    ///
    /// # Errors
    /// If the last write failed.
    ///
    /// Call it before the process ends. An observed run does so itself.
    pub async fn flush(&self) -> Result<(), Arc<SessionError>> {
        let mut idle = self.0.idle.subscribe();
        loop {
            idle.borrow_and_update();
            let start_writing = {
                let mut inbox = self.0.inbox();
                if !inbox.busy && inbox.events.is_empty() {
                    return inbox.failed.clone().map_or(Ok(()), Err);
                }
                let start_writing = !inbox.busy;
                inbox.busy = true;
                inbox.write_due = true;
                start_writing
            };
            if start_writing {
                self.start_writing();
            }
            // The sender is in `self`, so it cannot be closed.
            let _ = idle.changed().await;
        }
    }

    /// Returns the path of the file, after the first write.
    ///
    /// ```
    /// use levity_core::{Event, EventKind, RunId, Timestamp};
    /// use levity_observe::SessionFolder;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), std::sync::Arc<levity_observe::SessionError>> {
    /// let folder = tempfile::tempdir().unwrap();
    /// let writer = SessionFolder::open(folder.path()).writer(&RunId::new("r"));
    /// assert!(writer.path().is_none());
    /// let goal = EventKind::Goal { text: "compare two pages".into() };
    /// writer.apply(&Event::new("r".into(), 1, Timestamp::from_millis(0), goal));
    /// writer.flush().await?;
    /// assert!(writer.path().unwrap().is_file() && writer.last_error().is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn path(&self) -> Option<PathBuf> {
        self.0.inbox().path.clone()
    }

    /// Returns the error of the last write, if it failed.
    pub fn last_error(&self) -> Option<Arc<SessionError>> {
        self.0.inbox().failed.clone()
    }

    fn start_writing(&self) {
        let task = WriteTask {
            shared: self.0.clone(),
            finished: false,
        };
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => {
                handle.spawn_blocking(move || task.run());
            }
            Err(_) => task.run(),
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

    /// Returns the part of an event that is retained until it is written.
    fn reduce(&self, event: &Event) -> Option<Event> {
        // Of the events of child runs, only the files are in no event of the run itself.
        let is_needed = event.run == self.run
            || matches!(event.kind, EventKind::FileChanged { .. })
                && event.run.is_within(&self.run);
        if !is_needed || event.kind.is_transient() {
            return None;
        }
        let kind = match &event.kind {
            EventKind::Custom { name, .. } if name != PlanNotice::NAME => return None,
            EventKind::ChildFinished { effect, ending } => {
                // The completion notice of the step repeats its answer; only the usage is needed
                // here.
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
            | EventKind::FileChanged { .. }
            | EventKind::RunEnded(_) => event.kind.clone(),
            _ => return None,
        };
        Some(Event::new(event.run.clone(), event.seq, event.at, kind))
    }
}

/// Returns `true` if the file is written after an event.
fn is_write_due(kind: &EventKind) -> bool {
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

/// A task that writes until there is nothing left to write. It resets `busy` however it ends.
struct WriteTask {
    shared: Arc<Shared>,
    /// `true` if the task has reset `busy` itself. Otherwise it never started, or it panicked.
    finished: bool,
}

impl WriteTask {
    fn run(mut self) {
        let shared = self.shared.clone();
        let mut content = shared
            .content
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            let events = {
                let mut inbox = shared.inbox();
                if !std::mem::take(&mut inbox.write_due) {
                    // This must happen under the same lock as the check, or later events would wait
                    // for a task that has ended.
                    inbox.busy = false;
                    self.finished = true;
                    return;
                }
                std::mem::take(&mut inbox.events)
            };
            let written = events
                .iter()
                .try_for_each(|event| content.apply(event))
                .and_then(|()| content.write());
            self.report(&content, written);
        }
    }

    fn report(&self, content: &SessionContent, written: Result<(), SessionProblem>) {
        let path = content.path().cloned();
        let failed = written
            .err()
            .map(|problem| Arc::new(problem.at(path.as_ref().unwrap_or(&self.shared.dir))));
        let on_error = {
            let mut inbox = self.shared.inbox();
            inbox.path = path;
            inbox.failed.clone_from(&failed);
            inbox.on_error.clone()
        };
        if let Some((report, error)) = on_error.zip(failed) {
            report(&error);
        }
    }
}

impl Drop for WriteTask {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.inbox().busy = false;
        }
        self.shared
            .idle
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}
