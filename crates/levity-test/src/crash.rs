//! Crash tests: stops a scenario after every record in turn, and resumes it.
//!
//! The scenario is an async closure that starts or resumes its run, and returns a value that must
//! be the same whatever happened in between. It is called once to the end, and then twice for each
//! stop. The first call has a journal that blocks after so many records, where everything is
//! dropped as if the process had been killed. The second call gets the content of that journal.
//!
//! ```
//! # use std::collections::BTreeMap;
//! # use std::sync::{Arc, Mutex};
//! # use levity_core::*;
//! # #[derive(Clone, Default)]
//! # struct MemoryJournal(Arc<Mutex<BTreeMap<RunId, Vec<Record>>>>);
//! # impl MemoryJournal { fn new() -> Self { Self::default() } }
//! # struct Log(MemoryJournal, RunId);
//! # #[async_trait::async_trait]
//! # impl Journal for MemoryJournal {
//! #     async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
//! #         let records = self.0.lock().unwrap().get(run).cloned().unwrap_or_default();
//! #         Ok(OpenRun::new(records, Log(self.clone(), run.clone())))
//! #     }
//! #     async fn list(&self, _: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
//! #         Ok(Vec::new())
//! #     }
//! # }
//! # #[async_trait::async_trait]
//! # impl RunLog for Log {
//! #     async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
//! #         let mut runs = self.0.0.lock().unwrap();
//! #         runs.entry(self.1.clone()).or_default().extend_from_slice(records);
//! #         Ok(())
//! #     }
//! # }
//! use levity_test::crash;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let report = crash::after_every_record(MemoryJournal::new, async |life| {
//!     // An agent would be started here, or resumed if `life.knows("r").await`. This scenario
//!     // writes to the journal directly: three records, and it sends something before the last.
//!     let mut run = life.journal.open(&RunId::new("r")).await.unwrap();
//!     for seq in run.records.len() as u64..3 {
//!         if seq == 2 {
//!             life.world.record_action("send");
//!         }
//!         let record = Record::new(seq, Timestamp::default(), Entry::Wrapped(Limit::Tokens));
//!         run.log.append(&[record]).await.unwrap();
//!     }
//!     "All is sent."
//! })
//! .await;
//!
//! report.assert_same();
//! // The send is not journaled before it starts, so one crash makes it happen twice.
//! let twice: Vec<_> =
//!     report.stops.iter().filter(|end| end.world.remaining("send") == 2).collect();
//! assert_eq!(twice.len(), 1);
//! let text = "stopped after record 2 (`wrapped` of run `r`), before the next was written";
//! assert_eq!(twice[0].to_string(), text);
//! # }
//! ```
//!
//! With an agent, the closure calls `agent.resume("r")` if `life.knows("r")` returns `true`, and
//! otherwise starts a run with the id `r`.
//!
//! Every record has two moments. At [`Moment::Written`], nothing that follows from it has started.
//! At [`Moment::BeforeNext`], everything that follows from it was done and not recorded. Records
//! are counted over a run and its children, one by one, even when the runtime writes several at
//! once.
//!
//! Work on a separate thread cannot be dropped and continues, unlike after a real crash.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use levity_core::{Journal, RunId};

use crate::conformance::panic_message;

mod journal;
mod report;
mod tally;

pub use journal::CrashJournal;
pub use report::{CrashEnd, Moment, Point, Report, WrittenRecord};
pub use tally::CrashTally;

use journal::Plan;

/// Stops a scenario after every record in turn, and resumes it; see the [module](self).
///
/// `journal` creates an empty journal. Use [`Crashes`] for more settings.
///
/// # Panics
/// Panics if the scenario panics, writes nothing to its journal, or does not end.
pub async fn after_every_record<J: Journal + 'static, T>(
    journal: impl Fn() -> J,
    scenario: impl AsyncFn(Life) -> T,
) -> Report<T> {
    Crashes::new(journal).run(scenario).await
}

/// One life of a scenario: from its start, or its restart, to its end or the crash.
#[non_exhaustive]
pub struct Life<W = CrashTally> {
    /// The journal, which stores the scenario's runs from life to life.
    pub journal: CrashJournal,
    /// The effects of the scenario outside its runs, shared from life to life.
    pub world: Arc<W>,
    /// The number of the life: 1 at first, and one more after each crash.
    pub number: usize,
}

impl<W> Life<W> {
    /// Returns `true` if the journal has records of this run, so that it must be resumed and not
    /// started.
    pub async fn knows(&self, run: impl Into<RunId>) -> bool {
        self.journal
            .read(&run.into())
            .await
            .is_ok_and(|records| !records.is_empty())
    }
}

impl<W> fmt::Debug for Life<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// Settings for crashes on purpose.
///
/// ```no_run
/// # use levity_core::Journal;
/// # use levity_test::crash::Crashes;
/// # use std::sync::Mutex;
/// # async fn test<J: Journal + 'static>(journal: impl Fn() -> J) {
/// let sent = || Mutex::new(Vec::<String>::new());
/// let report = Crashes::new(journal).world(sent).stop_again(4).run(async |life| {
///     life.world.lock().unwrap().push("a letter".into());
/// });
/// report.await.assert_same_by(|end| end.world.lock().unwrap().clone());
/// # }
/// ```
#[must_use = "crash tests do nothing until `run`"]
pub struct Crashes<'a, W = CrashTally> {
    journal: Box<dyn Fn() -> Arc<dyn Journal> + 'a>,
    world: Box<dyn Fn() -> W + 'a>,
    max_records: usize,
    again: usize,
}

impl<'a> Crashes<'a> {
    /// Creates crash tests with the empty journals of `journal`, and a [`CrashTally`] for effects.
    pub fn new<J: Journal + 'static>(journal: impl Fn() -> J + 'a) -> Self {
        let journal = Box::new(move || Arc::new(journal()) as Arc<dyn Journal>);
        Self {
            journal,
            world: Box::new(CrashTally::new),
            max_records: 1000,
            again: 0,
        }
    }
}

impl<'a, W> Crashes<'a, W> {
    /// Sets the type that holds the effects outside the runs; one for each stop, shared by the
    /// lives of that stop.
    pub fn world<V>(self, make: impl Fn() -> V + 'a) -> Crashes<'a, V> {
        let Self {
            journal,
            max_records,
            again,
            ..
        } = self;
        Crashes {
            journal,
            world: Box::new(make),
            max_records,
            again,
        }
    }

    /// Sets the maximum number of records that one life may write; 1,000 by default.
    pub fn max_records(mut self, records: usize) -> Self {
        self.max_records = records;
        self
    }

    /// Stops the second life as well, after each of its first `records` records, before a third one
    /// runs to the end.
    ///
    /// 0 by default, which is never; the cost grows with the length of the run times this number.
    pub fn stop_again(mut self, records: usize) -> Self {
        self.again = records;
        self
    }

    /// Runs the scenario to its end, and then stops it after every record in turn.
    ///
    /// # Panics
    /// Panics if the scenario panics, writes nothing to its journal, or does not end.
    pub async fn run<T>(self, scenario: impl AsyncFn(Life<W>) -> T) -> Report<T, W> {
        let whole = self.trial(&[], &scenario).await.0;
        let mut stops = Vec::new();
        for records in 0.. {
            for plan in Plan::moments(records) {
                let (end, stopped) = self.trial(&[plan], &scenario).await;
                stops.push(end);
                if !stopped {
                    assert!(
                        records > 0,
                        "crash: the scenario wrote nothing to `life.journal`"
                    );
                    return Report { whole, stops };
                }
                self.stop_twice(plan, &scenario, &mut stops).await;
            }
        }
        Report { whole, stops }
    }

    /// Stops at `first`, and again after each record that the second life begins with.
    async fn stop_twice<T>(
        &self,
        first: Plan,
        scenario: &impl AsyncFn(Life<W>) -> T,
        stops: &mut Vec<CrashEnd<T, W>>,
    ) {
        for second in (0..self.again).flat_map(Plan::moments) {
            let (end, stopped) = self.trial(&[first, second], scenario).await;
            if !stopped {
                return;
            }
            stops.push(end);
        }
    }

    /// Runs lives that are stopped as planned, and one more to the end; returns `true` if all were
    /// stopped.
    async fn trial<T>(
        &self,
        plans: &[Plan],
        scenario: &impl AsyncFn(Life<W>) -> T,
    ) -> (CrashEnd<T, W>, bool) {
        let world = Arc::new((self.world)());
        let mut journal =
            CrashJournal::new((self.journal)(), plans.first().copied(), self.max_records);
        let mut points: Vec<Point> = Vec::new();
        let mut number = 1;
        loop {
            let life = Life {
                journal: journal.clone(),
                world: world.clone(),
                number,
            };
            let value = live(scenario(life), &journal, &points).await;
            let point = journal.point();
            match value {
                Some(value) if number > plans.len() => {
                    let stopped = points.iter().all(|point| point.moment != Moment::Ended);
                    return (
                        CrashEnd {
                            stopped: points,
                            value,
                            world,
                        },
                        stopped,
                    );
                }
                Some(_) => points.push(Point {
                    moment: Moment::Ended,
                    ..point
                }),
                None => points.push(point),
            }
            journal = journal.next(plans.get(number).copied());
            number += 1;
        }
    }
}

impl<W> fmt::Debug for Crashes<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Crashes");
        shown
            .field("max_records", &self.max_records)
            .field("again", &self.again)
            .finish_non_exhaustive()
    }
}

/// Runs a scenario until it ends or its journal blocks; then it is dropped entirely.
#[expect(clippy::panic, reason = "a test fails by panicking")]
async fn live<T>(
    scenario: impl Future<Output = T>,
    journal: &CrashJournal,
    points: &[Point],
) -> Option<T> {
    let value = {
        let mut scenario = pin!(scenario);
        poll_fn(|cx| {
            journal.watch(cx.waker());
            let poll = catch_unwind(AssertUnwindSafe(|| scenario.as_mut().poll(cx)));
            let poll = poll.unwrap_or_else(|panic| {
                panic!(
                    "crash: {}: the scenario panicked: {}",
                    report::describe_points(points),
                    panic_message(&*panic)
                )
            });
            match poll {
                _ if journal.is_stopped() => Poll::Ready(None),
                poll => poll.map(Some),
            }
        })
        .await
    };
    journal.end().await;
    if let Some(limit) = journal.overrun() {
        panic!(
            "crash: {}: the scenario did not end within {limit} records; if it does end, raise \
                `max_records`",
            report::describe_points(points)
        );
    }
    value
}
