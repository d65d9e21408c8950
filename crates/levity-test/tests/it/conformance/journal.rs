use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{
    Entry, Journal, JournalError, OpenRun, Record, RunId, RunLog, RunQuery, RunRequest, RunSummary,
};
use levity_test::{FaultyJournal, conformance};

use crate::{block_on, refuses};

/// A journal in memory, with an optional flaw.
#[derive(Clone, Default)]
pub(crate) struct FlawedJournal {
    flaw: Option<Flaw>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    ListsAtFirst,
    RecordsAtFirst,
    NotExclusive,
    BusyForOthers,
    FreedByFailure,
    NeverFreed,
    Reverses,
    DropsLast,
    RepeatsLast,
    EmptyAppendFails,
    Tears,
    MixesCase,
    ListsByName,
    ListsNoEnd,
    HidesOpenRuns,
    IgnoresQuery,
    RemovesOne,
    RemovesMore,
    RemovesDriven,
    LosesPosts,
    RepeatsPosts,
    TakesPostsOnce,
    KeepsNothing,
    SaysItKeepsNothing,
}

#[derive(Default)]
struct State {
    runs: Vec<(RunId, Vec<Record>)>,
    open: HashSet<RunId>,
    posts: Vec<(RunId, RunRequest)>,
}

impl FlawedJournal {
    fn with(flaw: Flaw) -> Self {
        Self {
            flaw: Some(flaw),
            ..Self::default()
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn run(&self, run: &RunId) -> RunId {
        if self.has(Flaw::MixesCase) {
            RunId::from(run.as_str().to_lowercase())
        } else {
            run.clone()
        }
    }

    fn records(&self, run: &RunId) -> Vec<Record> {
        let state = self.state.lock().unwrap();
        let mut records = state
            .runs
            .iter()
            .find(|(kept, _)| kept == run)
            .map(|(_, records)| records.clone())
            .unwrap_or_default();
        match self.flaw {
            Some(Flaw::Reverses) => records.reverse(),
            Some(Flaw::DropsLast) => drop(records.pop()),
            Some(Flaw::KeepsNothing) => records.clear(),
            Some(Flaw::RecordsAtFirst) if records.is_empty() => {
                records.push(Record::new(
                    0,
                    Default::default(),
                    Entry::Wrapped(levity_core::Limit::Depth),
                ));
            }
            _ => {}
        }
        records
    }
}

#[async_trait]
impl Journal for FlawedJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let run = self.run(run);
        {
            let mut state = self.state.lock().unwrap();
            let busy = match self.flaw {
                Some(Flaw::NotExclusive) => false,
                Some(Flaw::BusyForOthers) => !state.open.is_empty(),
                _ => state.open.contains(&run),
            };
            if busy {
                if self.has(Flaw::FreedByFailure) {
                    state.open.remove(&run);
                }
                return Err(JournalError::busy(&run));
            }
            state.open.insert(run.clone());
        }
        Ok(OpenRun::new(
            self.records(&run),
            Log {
                journal: self.clone(),
                run,
                taken: 0,
            },
        ))
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        let state = self.state.lock().unwrap();
        let mut runs = state.runs.clone();
        match self.flaw {
            Some(Flaw::ListsAtFirst) if runs.is_empty() => {
                let record = Record::new(
                    0,
                    Default::default(),
                    Entry::Wrapped(levity_core::Limit::Depth),
                );
                runs.push((RunId::new("ghost"), vec![record]));
            }
            Some(Flaw::ListsByName) => runs.sort_by(|(a, _), (b, _)| a.cmp(b)),
            Some(Flaw::HidesOpenRuns) => runs.retain(|(run, _)| !state.open.contains(run)),
            _ => {}
        }
        let mut list: Vec<_> = runs
            .iter()
            .filter_map(|(run, records)| RunSummary::of(run, records))
            .collect();
        if self.has(Flaw::ListsNoEnd) {
            list.iter_mut().for_each(|summary| summary.status = None);
        }
        // Sorting would repair the flaw.
        let by_order = [Flaw::ListsByName, Flaw::IgnoresQuery]
            .into_iter()
            .any(|flaw| self.has(flaw));
        Ok(if by_order { list } else { query.select(list) })
    }

    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let mut state = self.state.lock().unwrap();
        if state.open.iter().any(|open| open.is_within(run)) && !self.has(Flaw::RemovesDriven) {
            return Err(JournalError::busy(run));
        }
        let before = state.runs.len();
        state.runs.retain(|(other, _)| match self.flaw {
            Some(Flaw::RemovesOne) => other != run,
            Some(Flaw::RemovesMore) => !other.as_str().starts_with(run.as_str()),
            _ => !other.is_within(run),
        });
        Ok(state.runs.len() < before)
    }

    async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        let mut state = self.state.lock().unwrap();
        if !state.runs.iter().any(|(kept, _)| kept == run) {
            return Err(JournalError::busy(run));
        }
        if !self.has(Flaw::LosesPosts) {
            state.posts.push((run.clone(), post.clone()));
        }
        Ok(())
    }

    fn keeps(&self) -> bool {
        !self.has(Flaw::SaysItKeepsNothing)
    }
}

struct Log {
    journal: FlawedJournal,
    run: RunId,
    taken: usize,
}

impl Log {
    fn push(&mut self, records: &[Record]) {
        let mut state = self.journal.state.lock().unwrap();
        if !self.journal.has(Flaw::RepeatsPosts) {
            state.posts.drain(..self.taken);
            self.taken = 0;
        }
        if !state.runs.iter().any(|(run, _)| *run == self.run) {
            state.runs.push((self.run.clone(), Vec::new()));
        }
        let kept = state
            .runs
            .iter_mut()
            .find(|(run, _)| *run == self.run)
            .unwrap();
        kept.1.extend_from_slice(records);
    }
}

#[async_trait]
impl RunLog for Log {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        match self.journal.flaw {
            Some(Flaw::EmptyAppendFails) if records.is_empty() => {
                Err(JournalError::busy(&self.run))
            }
            Some(Flaw::Tears) => {
                for record in records {
                    self.push(std::slice::from_ref(record));
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
            Some(Flaw::RepeatsLast) => {
                self.push(records);
                self.push(&records[records.len().saturating_sub(1)..]);
                Ok(())
            }
            _ => {
                self.push(records);
                Ok(())
            }
        }
    }

    async fn posted(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        let mut state = self.journal.state.lock().unwrap();
        let new: Vec<_> = state
            .posts
            .iter()
            .skip(self.taken)
            .map(|(_, post)| post.clone())
            .collect();
        self.taken = state.posts.len();
        if self.journal.has(Flaw::TakesPostsOnce) {
            state.posts.clear();
            self.taken = 0;
        }
        drop(state);
        assert!(
            !new.is_empty() || self.journal.flaw.is_none(),
            "lost: it would wait for ever"
        );
        Ok(new)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if !self.journal.has(Flaw::NeverFreed) {
            self.journal.state.lock().unwrap().open.remove(&self.run);
        }
    }
}

/// A journal that stores nothing, and reports so.
struct Nothing(FlawedJournal);

#[async_trait]
impl Journal for Nothing {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.0.open(run).await
    }

    async fn list(&self, _: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        Ok(Vec::new())
    }

    fn keeps(&self) -> bool {
        false
    }
}

#[test]
fn journal_suite_accepts_correct_journal() {
    block_on(conformance::journal(async || FlawedJournal::default()));
    block_on(conformance::journal(async || {
        FaultyJournal::new(FlawedJournal::default())
    }));
    block_on(conformance::journal(async || {
        Nothing(FlawedJournal::with(Flaw::KeepsNothing))
    }));
}

#[test]
fn journal_suite_rejects_every_flaw() {
    let check = |flaw, promise| {
        refuses(
            conformance::journal(async || FlawedJournal::with(flaw)),
            promise,
        );
    };
    let order = "journal: records are returned as they were appended, and in that order";
    let exclusive = "journal: `open` is exclusive while the log lives";
    check(
        Flaw::ListsAtFirst,
        "journal: an empty journal lists no runs",
    );
    check(Flaw::RecordsAtFirst, "journal: a new run has no records");
    check(Flaw::NotExclusive, exclusive);
    check(Flaw::FreedByFailure, exclusive);
    check(
        Flaw::BusyForOthers,
        "journal: an open run does not prevent others from being opened",
    );
    check(
        Flaw::NeverFreed,
        "journal: dropping the log lets others open the run",
    );
    check(Flaw::Reverses, order);
    check(Flaw::DropsLast, order);
    check(Flaw::RepeatsLast, order);
    check(Flaw::KeepsNothing, order);
    check(
        Flaw::EmptyAppendFails,
        "journal: an empty append changes nothing",
    );
    check(Flaw::Tears, "journal: an append is all or nothing");
    check(
        Flaw::MixesCase,
        "journal: runs are separate, whatever their ids",
    );
    let list = "journal: `list` is oldest first and has the length and the ending of each run";
    check(Flaw::ListsByName, list);
    check(Flaw::ListsNoEnd, list);
    check(
        Flaw::HidesOpenRuns,
        "journal: `list` shows open runs as well",
    );
    check(
        Flaw::IgnoresQuery,
        "journal: `list` returns the runs that match",
    );
    check(
        Flaw::RemovesOne,
        "journal: a run is removed with its children, and no others",
    );
    check(
        Flaw::RemovesMore,
        "journal: a run is removed with its children, and no others",
    );
    check(
        Flaw::RemovesDriven,
        "journal: a run is not removed while it or one of its children is driven",
    );
    check(Flaw::LosesPosts, "lost");
    check(
        Flaw::RepeatsPosts,
        "journal: a delivered post is removed by an append",
    );
    check(Flaw::TakesPostsOnce, "lost");
    check(
        Flaw::SaysItKeepsNothing,
        "journal: one that stores nothing has nothing to return",
    );
}
