//! The suite for everything that can be run.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::{
    Ask, ControlCommand, Decision, Entry, Error, Event, EventKind, Input, Journal, Record, RunId,
    Timestamp,
};
use levity_runtime::{MemoryJournal, Run, RunHandle, Runnable, Runtime, replay_run};

use serde_json::Value;

use super::machine::check_restored;
use crate::crash::{Crashes, Life};

/// Checks a [`Runnable`]: an agent, a team, a swarm, your own machine. Requires the feature
/// `runtime`.
///
/// `make` creates the runnable with this runtime. It must answer the same each time, so give its
/// models scripts that go [by history](crate::ScriptedModel::by_history). `input` is the input of
/// each run. `show` turns an output into the value that must be the same in every case.
///
/// The suite checks: a replay with the same events; a machine rebuilt from its saved state after
/// every record; a crash after every record, and a run resumed from its records and from snapshots;
/// a fork from every record; a pause; a cancel, which persists; a run that is stopped and resumed;
/// questions answered by a function, by the handle, and after the run was parked. Every question is
/// answered with yes.
///
/// Not checked: limits, messages to the run, and effects that happen twice, for which
/// [`crash`](crate::crash) has a tally.
///
/// The chapter on kinds of runs shows the suite with a run of its own kind.
///
/// # Panics
/// Panics at the first broken promise, with its name, and when called outside a tokio runtime.
pub async fn runnable<W, T>(
    make: impl Fn(Runtime) -> W,
    input: impl Fn() -> W::Input,
    show: impl Fn(&W::Output) -> T,
) where
    W: Runnable,
    T: PartialEq + fmt::Debug,
{
    let suite = Suite { make, input, show };
    let whole = suite.whole().await;
    suite.replayed(&whole).await;
    suite.restored(&whole).await;
    suite.crashed(&whole).await;
    suite.forked(&whole).await;
    suite.paused(&whole).await;
    suite.cancelled().await;
    suite.stopped(&whole).await;
    suite.approved_by_the_handle(&whole).await;
    suite.parked(&whole).await;
}

/// Checks that the machine of a journaled run can be rebuilt from its saved state after every
/// record. Requires the feature `runtime`.
///
/// The rest of the run gives the same effects, events, ending and states, byte for byte.
///
/// # Panics
/// Panics if a promise is broken, or the run is not in the journal.
pub async fn recorded<W: Runnable>(what: &W, journal: &dyn Journal, run: &RunId) {
    let records = journal
        .read(run)
        .await
        .expect("Runnable: the run is in the journal");
    let Some(Entry::Opened(opened)) = records.first().map(|record| &record.entry) else {
        panic!("Runnable: the first record of a run opens it");
    };
    let restore = |state: Value| match what.restore(&opened.machine, &state) {
        Ok(machine) => machine,
        Err(why) => {
            panic!("Runnable: a state that its machine saved cannot be restored: {why}\n{state}")
        }
    };
    let inputs: Vec<_> = records
        .iter()
        .flat_map(|record| inputs(run, record))
        .collect();
    let every: Vec<usize> = (0..inputs.len()).collect();
    check_restored(&|| restore(opened.state.clone()), &restore, &inputs, &every);
}

struct Suite<M, I, S> {
    make: M,
    input: I,
    show: S,
}

/// The journal, the events and the result of an undisturbed run.
struct Whole<T> {
    journal: MemoryJournal,
    events: Vec<Event>,
    shown: T,
}

fn id() -> RunId {
    RunId::new("r")
}

fn yes(_: &Ask) -> Decision {
    Decision::Allow
}

fn journaled_runtime() -> (MemoryJournal, Runtime) {
    let journal = MemoryJournal::new();
    (journal.clone(), Runtime::new().with_journal(journal))
}

impl<M, I, S> Suite<M, I, S> {
    fn begin<W: Runnable>(&self, runtime: Runtime) -> Run<W>
    where
        M: Fn(Runtime) -> W,
        I: Fn() -> W::Input,
    {
        Run::new((self.make)(runtime), (self.input)()).id(id())
    }

    fn shown<W: Runnable, T>(&self, when: &str, result: Result<W::Output, Error>) -> T
    where
        M: Fn(Runtime) -> W,
        S: Fn(&W::Output) -> T,
    {
        match result {
            Ok(output) => (self.show)(&output),
            Err(error) => panic!("Runnable: {when}: the run has no result: {error:?}"),
        }
    }
}

impl<W, T, M, I, S> Suite<M, I, S>
where
    W: Runnable,
    T: PartialEq + fmt::Debug,
    M: Fn(Runtime) -> W,
    I: Fn() -> W::Input,
    S: Fn(&W::Output) -> T,
{
    async fn whole(&self) -> Whole<T> {
        let (journal, runtime) = journaled_runtime();
        let events = Arc::new(Mutex::new(Vec::new()));
        let emitted = events.clone();
        let run = self
            .begin(runtime)
            .approver(yes)
            .on_event(move |event: &Event| {
                emitted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(event.clone());
            });
        let shown = self.shown("run undisturbed", run.await);
        let events = std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner));
        Whole {
            journal,
            events,
            shown,
        }
    }

    /// Checks that a replay of the records emits all but the transient events, identical to the
    /// byte.
    async fn replayed(&self, whole: &Whole<T>) {
        let what = (self.make)(Runtime::new().with_journal(whole.journal.clone()));
        let replayed = replay_run(&what, &id())
            .await
            .expect("Runnable: a run that has ended can be replayed");
        let lasts = |event: &&Event| event.run == id() && !event.kind.is_transient();
        let emitted: Vec<_> = whole.events.iter().filter(lasts).collect();
        let again: Vec<_> = replayed.events.iter().filter(lasts).collect();
        assert_eq!(emitted, again, "Runnable: a replay emits the same events");
    }

    async fn restored(&self, whole: &Whole<T>) {
        recorded(&(self.make)(Runtime::new()), &whole.journal, &id()).await;
    }

    async fn crashed(&self, whole: &Whole<T>) {
        let live = async |life: Life| {
            let runtime = Runtime::new().with_journal(life.journal.clone());
            let run = match life.knows(id()).await {
                true => Run::resume((self.make)(runtime), id()),
                false => self.begin(runtime),
            };
            self.shown(
                "stopped after a record and resumed",
                run.approver(yes).await,
            )
        };
        for (journal, how) in [
            (
                MemoryJournal::new as fn() -> MemoryJournal,
                "from its records",
            ),
            (
                || MemoryJournal::new().with_snapshots(1),
                "from its last snapshot",
            ),
        ] {
            for end in &Crashes::new(journal).run(live).await.stops {
                assert_eq!(
                    end.value, whole.shown,
                    "Runnable: {end}: a run resumed {how} has the same result"
                );
            }
        }
    }

    async fn forked(&self, whole: &Whole<T>) {
        let records = whole
            .journal
            .read(&id())
            .await
            .expect("Runnable: the run is in the journal");
        for after in 0..records.len().saturating_sub(1) as u64 {
            let what = (self.make)(Runtime::new().with_journal(whole.journal.clone()));
            let fork = Run::fork(what, id())
                .after(after)
                .id(format!("fork-{after}"))
                .approver(yes)
                .await;
            let shown = self.shown(&format!("forked after record {after}"), fork);
            assert_eq!(
                shown, whole.shown,
                "Runnable: a fork after record {after} has the same result"
            );
        }
    }

    async fn paused(&self, whole: &Whole<T>) {
        let run = self.begin(journaled_runtime().1).approver(yes).start();
        // A run that has already ended cannot be paused.
        if run.pause().await.is_ok() {
            run.resume()
                .await
                .expect("Runnable: a paused run can be resumed");
        }
        assert_eq!(
            self.shown("paused and resumed", run.await),
            whole.shown,
            "Runnable: a pause changes nothing"
        );
    }

    async fn cancelled(&self) {
        let (journal, runtime) = journaled_runtime();
        let run = self.begin(runtime.clone()).approver(yes).start();
        if run.cancel("enough").await.is_err() {
            return;
        }
        let cancelled = |result: Result<W::Output, Error>| match result {
            Err(Error::Cancelled { .. }) => {}
            Err(error) => {
                panic!(
                    "Runnable: a cancelled run ends with `Error::Cancelled`; it ended with: {error}"
                )
            }
            Ok(_) => {
                panic!(
                    "Runnable: a cancelled run ends with `Error::Cancelled`; it ended with an \
                        answer"
                )
            }
        };
        cancelled(run.await);
        // A run that was cancelled during its preparation has no records.
        let Ok(records) = journal.read(&id()).await else {
            return;
        };
        let ended = records
            .last()
            .is_some_and(|record| matches!(record.entry, Entry::Ended(_)));
        assert!(ended, "Runnable: a cancelled run has ended in its journal");
        let again = Run::resume((self.make)(runtime), id()).await;
        cancelled(again);
    }

    async fn stopped(&self, whole: &Whole<T>) {
        let (_, runtime) = journaled_runtime();
        let mut run = self.begin(runtime.clone()).approver(yes).start();
        run.events().next().await;
        run.stop().await;
        let again = Run::resume((self.make)(runtime), id()).approver(yes).await;
        assert_eq!(
            self.shown("stopped and resumed", again),
            whole.shown,
            "Runnable: stopping loses nothing"
        );
    }

    async fn approved_by_the_handle(&self, whole: &Whole<T>) {
        let run = self.begin(journaled_runtime().1).start();
        let shown = self.shown("approved by its handle", approve(run).await);
        assert_eq!(
            shown, whole.shown,
            "Runnable: the handle answers questions like a function"
        );
    }

    async fn parked(&self, whole: &Whole<T>) {
        let (_, runtime) = journaled_runtime();
        let shown = match self.begin(runtime.clone()).park().await {
            Err(Error::Parked { .. }) => {
                let again = Run::resume((self.make)(runtime), id()).approver(yes).await;
                self.shown("parked and resumed", again)
            }
            result => self.shown("started with `park`", result),
        };
        assert_eq!(
            shown, whole.shown,
            "Runnable: a parked run continues as if it had waited"
        );
    }
}

/// Approves every question of a run until it ends.
async fn approve<W: Runnable>(mut run: RunHandle<W>) -> Result<W::Output, Error> {
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            // A question that is no longer open needs no answer.
            let _ = run.approve(ask).await;
        }
    }
    run.await
}

/// Returns the inputs that a record is for the machine of its run.
fn inputs(run: &RunId, record: &Record) -> Vec<(Timestamp, Input)> {
    let inputs = match record.entry.clone() {
        Entry::Opened(opened) => {
            let begin = Input::Begin {
                run: run.clone(),
                wrap: opened.wrap,
            };
            opened
                .low
                .map(Input::Low)
                .into_iter()
                .chain([begin])
                .collect()
        }
        Entry::Finished {
            effect, outcome, ..
        } => vec![Input::Finished { effect, outcome }],
        Entry::Wrapped(limit) => vec![Input::FinishSoon(limit)],
        Entry::Low(limit) => vec![Input::Low(limit)],
        Entry::Stopped(limit) => vec![Input::Stop(limit)],
        Entry::Commanded(ControlCommand::Say { message }) => vec![Input::Say(message)],
        Entry::Commanded(ControlCommand::Cancel { reason }) => vec![Input::Cancel { reason }],
        _ => Vec::new(),
    };
    inputs.into_iter().map(|input| (record.at, input)).collect()
}
