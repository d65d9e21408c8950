use std::collections::HashMap;
use std::fmt;
use std::future::{pending, poll_fn};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    EffectId, EffectKind, EffectNote, Entry, Journal, JournalError, JournalErrorKind, OpenRun,
    Record, RunId, RunLog, RunQuery, RunRequest, RunSummary, Snapshot,
};

use super::{Moment, Point, WrittenRecord};

/// The journal of one life. Once the life has been stopped, all further calls wait forever.
#[derive(Clone)]
pub struct CrashJournal(Arc<Shared>);

/// The moment at which a life is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    records: usize,
    moment: Moment,
}

impl Plan {
    /// Returns the moments after so many records. Before the first record there is only one.
    pub(super) fn moments(records: usize) -> impl Iterator<Item = Self> {
        let moments = [Moment::Written, Moment::BeforeNext]
            .into_iter()
            .skip(usize::from(records == 0));
        moments.map(move |moment| Self { records, moment })
    }
}

struct Shared {
    inner: Arc<dyn Journal>,
    plan: Option<Plan>,
    limit: usize,
    /// The names of the effects of each run, for messages.
    names: Arc<Mutex<HashMap<(RunId, EffectId), String>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: usize,
    last: Option<WrittenRecord>,
    moment: Option<Moment>,
    stopped: bool,
    overrun: bool,
    /// The number of records that are being written.
    writing: usize,
    waker: Option<Waker>,
    logs: Vec<Weak<Slot>>,
}

/// The log of an open run, unless a record is being written to it or the life has been stopped.
type Slot = Mutex<Option<Box<dyn RunLog>>>;

impl CrashJournal {
    pub(super) fn new(inner: Arc<dyn Journal>, plan: Option<Plan>, limit: usize) -> Self {
        Self(Arc::new(Shared {
            inner,
            plan,
            limit,
            names: Arc::default(),
            state: Mutex::default(),
        }))
    }

    /// Returns the same journal in the next life.
    pub(super) fn next(&self, plan: Option<Plan>) -> Self {
        let Shared {
            inner,
            limit,
            names,
            ..
        } = &*self.0;
        let (inner, names) = (inner.clone(), names.clone());
        Self(Arc::new(Shared {
            inner,
            plan,
            limit: *limit,
            names,
            state: Mutex::default(),
        }))
    }

    /// Wakes the driver of the scenario when this journal blocks.
    pub(super) fn watch(&self, waker: &Waker) {
        self.state().waker = Some(waker.clone());
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Returns the limit on records, if it was exceeded.
    pub(super) fn overrun(&self) -> Option<usize> {
        self.state().overrun.then_some(self.0.limit)
    }

    pub(super) fn point(&self) -> Point {
        let state = self.state();
        let moment = state.moment.unwrap_or(Moment::Ended);
        Point {
            records: state.records,
            last: state.last.clone(),
            moment,
        }
    }

    /// Takes the open runs away, so that the next life can open them.
    pub(super) async fn end(&self) {
        let logs = {
            let mut state = self.state();
            state.stopped = true;
            std::mem::take(&mut state.logs)
        };
        logs.iter()
            .filter_map(Weak::upgrade)
            .for_each(|slot| drop(lock(&slot).take()));
        poll_fn(|cx| {
            let mut state = self.state();
            state.waker = Some(cx.waker().clone());
            if state.writing == 0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Returns `true` if one more record may be written.
    fn admits(&self) -> bool {
        let mut state = self.state();
        state.overrun |= !state.stopped && state.records >= self.0.limit;
        let planned = self
            .0
            .plan
            .is_some_and(|plan| state.records == plan.records);
        if state.overrun || planned {
            state.stop(Moment::BeforeNext);
        }
        !state.stopped
    }

    /// Counts a record, and returns `true` if the life continues.
    fn wrote(&self, run: &RunId, record: &Record) -> bool {
        let entry = self.describe(run, &record.entry);
        let mut state = self.state();
        state.records += 1;
        state.last = Some(WrittenRecord {
            run: run.clone(),
            seq: record.seq,
            entry,
        });
        let stops = |plan: Plan| plan.moment == Moment::Written && plan.records == state.records;
        if self.0.plan.is_some_and(stops) {
            state.stop(Moment::Written);
        }
        !state.stopped
    }

    /// Describes the kind of an entry, and its subject.
    fn describe(&self, run: &RunId, entry: &Entry) -> String {
        match entry {
            Entry::Opened { .. } => "opened".into(),
            Entry::Started { effect, note } => {
                let name = effect_name(note);
                lock(&self.0.names).insert((run.clone(), *effect), name.clone());
                format!("started {name}")
            }
            Entry::Finished { effect, .. } => {
                let name = lock(&self.0.names).get(&(run.clone(), *effect)).cloned();
                format!(
                    "finished {}",
                    name.unwrap_or_else(|| format!("effect {effect}"))
                )
            }
            Entry::Commanded(_) => "commanded".into(),
            Entry::Wrapped(_) => "wrapped".into(),
            Entry::Stopped(_) => "stopped".into(),
            Entry::Ended(_) => "ended".into(),
            _ => "another entry".into(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Returns a run whose log stops with the life.
    fn crashing(&self, run: &RunId, mut opened: OpenRun) -> OpenRun {
        let slot = Arc::new(Mutex::new(Some(opened.log)));
        let mut state = self.state();
        if !state.stopped {
            state.logs.retain(|slot| slot.strong_count() > 0);
            state.logs.push(Arc::downgrade(&slot));
        } else {
            lock(&slot).take();
        }
        drop(state);
        opened.log = Box::new(CrashLog {
            slot,
            run: run.clone(),
            journal: self.clone(),
        });
        opened
    }

    /// Waits forever if the life has been stopped.
    async fn alive(&self) {
        if self.is_stopped() {
            pending::<()>().await;
        }
    }
}

impl State {
    fn stop(&mut self, moment: Moment) {
        if !self.stopped {
            self.stopped = true;
            self.moment = Some(moment);
        }
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn effect_name(note: &EffectNote) -> String {
    let kind = match note.kind {
        EffectKind::Model => "model",
        EffectKind::Tool => "tool",
        EffectKind::Ask => "question about",
        EffectKind::Child => "child",
        _ => "effect",
    };
    format!("{kind} {}", note.name)
}

/// Opens a run, and tries again for a second while it is busy: a thread of the previous life may
/// still be closing its file, which the end of a process would do at once.
async fn once_free<F>(open: impl Fn() -> F + Send) -> Result<OpenRun, JournalError>
where
    F: Future<Output = Result<OpenRun, JournalError>> + Send,
{
    const ATTEMPTS: usize = 1_000;
    for _ in 0..ATTEMPTS {
        match open().await {
            Err(error) if error.kind() == JournalErrorKind::Busy => {
                // The tasks of the previous life may need this thread.
                let mut has_yielded = false;
                poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    match std::mem::replace(&mut has_yielded, true) {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    }
                })
                .await;
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
    open().await
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Journal for CrashJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.alive().await;
        Ok(self.crashing(run, once_free(|| self.0.inner.open(run)).await?))
    }

    async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.alive().await;
        Ok(self.crashing(run, once_free(|| self.0.inner.open_latest(run)).await?))
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.alive().await;
        self.0.inner.read(run).await
    }

    async fn read_to_continue(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.alive().await;
        self.0.inner.read_to_continue(run).await
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.alive().await;
        self.0.inner.list(query).await
    }

    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        self.alive().await;
        self.0.inner.remove(run).await
    }

    /// A scenario is one process, so there is no other process to post to.
    async fn post(&self, run: &RunId, _: &RunRequest) -> Result<(), JournalError> {
        Err(JournalError::busy(run))
    }

    fn keeps(&self) -> bool {
        self.0.inner.keeps()
    }
}

impl fmt::Debug for CrashJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashJournal")
            .field("plan", &self.0.plan)
            .finish_non_exhaustive()
    }
}

struct CrashLog {
    slot: Arc<Slot>,
    run: RunId,
    journal: CrashJournal,
}

#[async_trait]
impl RunLog for CrashLog {
    /// Writes one record after the other, as a process can be killed in between.
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        for record in records {
            if !self.journal.admits() {
                return pending().await;
            }
            let Some(mut writing) = Writing::new(self) else {
                return pending().await;
            };
            if let Some(log) = &mut writing.log {
                log.append(slice::from_ref(record)).await?;
            }
            drop(writing);
            if !self.journal.wrote(&self.run, record) {
                return pending().await;
            }
        }
        Ok(())
    }

    fn takes_snapshots(&self) -> bool {
        lock(&self.slot)
            .as_ref()
            .is_some_and(|log| log.takes_snapshots())
    }

    fn wants_snapshot(&self) -> bool {
        lock(&self.slot)
            .as_ref()
            .is_some_and(|log| log.wants_snapshot())
    }

    async fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), JournalError> {
        let Some(mut writing) = Writing::new(self) else {
            return pending().await;
        };
        match &mut writing.log {
            Some(log) => log.snapshot(snapshot).await,
            None => Ok(()),
        }
    }
}

/// The log while a record is written to it. It returns to its slot, unless the life has been
/// stopped.
struct Writing<'a> {
    log: Option<Box<dyn RunLog>>,
    of: &'a CrashLog,
}

impl<'a> Writing<'a> {
    fn new(of: &'a CrashLog) -> Option<Self> {
        let log = lock(&of.slot).take()?;
        of.journal.state().writing += 1;
        Some(Self { log: Some(log), of })
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let log = self.log.take();
        let mut state = self.of.journal.state();
        if !state.stopped {
            *lock(&self.of.slot) = log;
        } else {
            drop(log);
        }
        state.writing -= 1;
        if state.stopped {
            state.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}
