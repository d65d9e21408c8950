use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Child, ChildRun, Effect, EffectClass, EffectCx, EffectId, Ending, Entry, Eventual, Executor,
    Input, Journal, JournalErrorKind, Limit, Limits, Machine, MachineKind, MachineOutput, Outcome,
    PrepareCx, Prepared, RunId, RuntimeError, Status, ToolCall, ToolError, ToolOutput, ToolResult,
    ToolRun,
};
use levity_runtime::{MachineRun, MemoryJournal, Runtime};
use levity_test::crash::{self, Crashes};
use levity_test::{FaultyJournal, ManualWorld};
use serde_json::{Value, json};

/// A machine that requests `count` calls, all at once or one by one, and ends when they are done.
#[derive(Debug)]
pub(crate) struct Calls {
    count: u64,
    at_once: bool,
    one_id: bool,
    pub(crate) done: Vec<Outcome>,
    ending: Option<Ending>,
}

impl Calls {
    pub(crate) fn at_once(count: u64) -> Self {
        Self {
            count,
            at_once: true,
            one_id: false,
            done: Vec::new(),
            ending: None,
        }
    }

    pub(crate) fn one_by_one(count: u64) -> Self {
        Self {
            at_once: false,
            ..Self::at_once(count)
        }
    }

    fn want(&self, number: u64, step: &mut MachineOutput) {
        let id = if self.one_id { 0 } else { number };
        let call = ToolCall::new(format!("c{id}"), "tool", json!(number));
        step.request(EffectId::new(number), Effect::Tool(ToolRun::new(call)));
    }
}

impl Machine for Calls {
    fn kind(&self) -> MachineKind {
        MachineKind::new("calls", 1)
    }

    fn save(&self) -> Value {
        json!({"count": self.count, "at_once": self.at_once})
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        match input {
            Input::Begin { .. } if self.at_once => (0..self.count).for_each(|n| self.want(n, step)),
            Input::Begin { .. } => self.want(0, step),
            Input::Finished { outcome, .. } => {
                self.done.push(outcome);
                let done = self.done.len() as u64;
                if done == self.count {
                    self.ending = Some(Ending::new(Status::Complete));
                } else if !self.at_once {
                    self.want(done, step);
                }
            }
            Input::Stop(limit) => self.ending = Some(Ending::new(Status::Partial(limit))),
            Input::Cancel { reason } => {
                self.ending = Some(Ending::new(Status::Cancelled { reason }));
            }
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

/// An executor that answers every call, and records the number of journaled records at its start.
#[derive(Default)]
pub(crate) struct Answers {
    alone: bool,
    class: EffectClass,
    journal: Option<MemoryJournal>,
    pub(crate) seen: Mutex<Vec<(u64, usize)>>,
    /// The calls that had started before, in an earlier process.
    again: Mutex<Vec<u64>>,
}

#[async_trait]
impl Executor for Answers {
    fn prepare(&self, _: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        let prepared = Prepared::new(self.class);
        if self.alone {
            prepared.alone().into()
        } else {
            prepared.into()
        }
    }

    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome {
        let Effect::Tool(run) = effect else {
            return Outcome::Unknown;
        };
        let records = self.journal.as_ref().map_or(0, |journal| {
            let records = journal.records(&cx.run);
            let started = |entry: &Entry| {
                matches!(entry, Entry::Started { effect, .. } if *effect == cx.effect)
            };
            assert!(
                records.iter().any(|record| started(&record.entry)),
                "it began before it was written down"
            );
            records.len()
        });
        self.seen.lock().unwrap().push((cx.effect.get(), records));
        if cx.again {
            self.again.lock().unwrap().push(cx.effect.get());
        }
        Outcome::Tool(ToolResult::new(&run.call, Ok(ToolOutput::text("ok"))))
    }

    async fn child(&self, _: &ChildRun, _: Option<&Value>) -> Result<Child, ToolError> {
        Err(ToolError::failed("there are no children here"))
    }
}

fn runtime(journal: impl Journal + 'static) -> Runtime {
    Runtime::new()
        .with_journal(journal)
        .with_world(ManualWorld::new())
}

#[tokio::test]
async fn start_is_journaled_first_and_outcome_before_it_is_seen() {
    let journal = MemoryJournal::new();
    let executor = Arc::new(Answers {
        journal: Some(journal.clone()),
        ..Answers::default()
    });
    let done = runtime(journal.clone())
        .run(MachineRun::new(Calls::one_by_one(3), executor.clone()))
        .await
        .unwrap();
    let kinds: Vec<&str> = journal
        .records(&done.run)
        .iter()
        .map(|record| match record.entry {
            Entry::Opened(_) => "opened",
            Entry::Started { .. } => "started",
            Entry::Finished { .. } => "finished",
            Entry::Ended(_) => "ended",
            _ => "other",
        })
        .collect();
    let turn = ["started", "finished"];
    assert_eq!(
        kinds,
        [&["opened"][..], &turn, &turn, &turn, &["ended"]].concat()
    );
    assert_eq!(*executor.seen.lock().unwrap(), [(0, 2), (1, 4), (2, 6)]);
}

#[tokio::test]
async fn failing_journal_stops_run_and_keeps_partial_state() {
    for failing in 1..=4 {
        let journal = FaultyJournal::new(MemoryJournal::new()).fail_append(failing);
        let executor = Arc::new(Answers::default());
        let stopped = runtime(journal)
            .run(MachineRun::new(Calls::one_by_one(3), executor.clone()))
            .await
            .unwrap_err();
        let RuntimeError::Journal(error) = stopped.error else {
            panic!("{}", stopped.error)
        };
        assert_eq!(error.kind(), JournalErrorKind::Io);
        let seen = stopped.machine.unwrap().done.len();
        let performed = executor.seen.lock().unwrap().len();
        assert!(
            seen <= performed && performed <= seen + 1,
            "append {failing}: {seen} of {performed} seen"
        );
    }
}

#[tokio::test]
async fn run_is_driven_by_one_driver_and_created_once() {
    let journal = MemoryJournal::new();
    let run = RunId::new("r");
    let job =
        || MachineRun::new(Calls::one_by_one(1), Arc::new(Answers::default())).id(run.clone());
    let held = journal.open(&run).await.unwrap();
    let stopped = runtime(journal.clone()).run(job()).await.unwrap_err();
    assert!(stopped.error.is_retryable(), "{}", stopped.error);
    drop(held);
    runtime(journal.clone()).run(job()).await.unwrap();
    let stopped = runtime(journal).run(job()).await.unwrap_err();
    assert!(
        matches!(stopped.error, RuntimeError::Exists(_)),
        "{}",
        stopped.error
    );
}

#[tokio::test]
async fn missing_run_cannot_be_resumed() {
    let job = MachineRun::<Calls>::resume(RunId::new("r"), Arc::new(Answers::default()), |_, _| {
        Ok(Calls::at_once(1))
    });
    let stopped = runtime(MemoryJournal::new()).run(job).await.unwrap_err();
    assert!(
        matches!(stopped.error, RuntimeError::NotFound(_)),
        "{}",
        stopped.error
    );
}

/// Stops three calls of this class after every record in turn; returns the outcomes and their
/// executors.
async fn stopped(class: EffectClass) -> crash::Report<Vec<Outcome>, Answers> {
    let answers = || Answers {
        class,
        ..Answers::default()
    };
    let report = Crashes::new(MemoryJournal::new)
        .world(answers)
        .stop_again(3)
        .run(async |life| {
            let (run, executor) = (RunId::new("r"), life.world.clone());
            let job = match life.knows("r").await {
                true => MachineRun::resume(run, executor, |_, _| Ok(Calls::at_once(3))),
                false => MachineRun::new(Calls::at_once(3), executor).id(run),
            };
            runtime(life.journal).run(job).await.unwrap().machine.done
        });
    report.await
}

fn performed(answers: &Answers) -> Vec<u64> {
    let mut performed: Vec<u64> = answers
        .seen
        .lock()
        .unwrap()
        .iter()
        .map(|(effect, _)| *effect)
        .collect();
    performed.sort_unstable();
    performed
}

#[tokio::test]
async fn run_resumed_after_every_record_performs_each_call_once() {
    let report = stopped(EffectClass::AtMostOnce).await;
    report.assert_same_by(|end| end.value.len());
    for end in &report.stops {
        let performed = performed(&end.world);
        let mut once = performed.clone();
        once.dedup();
        assert_eq!(performed, once, "{end}: a call was made twice");
        let unknown = end
            .value
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Unknown))
            .count();
        let known = end
            .value
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Tool(_)))
            .count();
        assert_eq!(unknown + known, 3, "{end}: nothing is lost in silence");
    }
}

#[tokio::test]
async fn repeatable_effects_restart_and_executor_is_informed() {
    for class in [
        EffectClass::ReadOnly,
        EffectClass::Idempotent,
        EffectClass::Compensable,
    ] {
        let report = stopped(class).await;
        // The first life knows no earlier effects, and restarted effects end in the order of their
        // resumption.
        report.assert_same_by(|end| {
            let mut known: Vec<_> = end
                .value
                .iter()
                .map(|outcome| format!("{outcome:?}"))
                .collect();
            known.sort();
            known
        });
        assert!(
            report.whole.world.again.lock().unwrap().is_empty(),
            "{class:?}"
        );
        let mut begun_again = 0;
        for end in &report.stops {
            let (all, again) = (
                performed(&end.world),
                end.world.again.lock().unwrap().clone(),
            );
            begun_again += again.len();
            for effect in 0..3 {
                let times = |list: &[u64]| list.iter().filter(|other| **other == effect).count();
                // These are all but the first attempt, and that one too if only its start was
                // journaled.
                assert!(
                    times(&again) + 1 >= times(&all),
                    "{class:?}, {end}: {again:?} of {all:?}"
                );
            }
        }
        assert!(begun_again >= 6, "{class:?}: {begun_again}");
    }
}

#[tokio::test]
async fn limit_that_forbids_undo_leaves_outcome_unknown() {
    for (class, expected) in [
        (EffectClass::Compensable, Outcome::Unknown),
        (EffectClass::ReadOnly, Outcome::Refused(Limit::ToolCalls)),
    ] {
        let journal = MemoryJournal::new();
        let answers = || {
            Arc::new(Answers {
                class,
                ..Answers::default()
            })
        };
        let limits = Limits::new().tool_calls(1);
        let stopping = FaultyJournal::new(journal.clone()).stop_after_records(2);
        let job = MachineRun::new(Calls::one_by_one(1), answers())
            .id(RunId::new("r"))
            .limits(limits);
        assert!(runtime(stopping).run(job).await.is_err());
        let job = MachineRun::resume(RunId::new("r"), answers(), |_, _| Ok(Calls::one_by_one(1)))
            .limits(limits);
        assert_eq!(
            runtime(journal).run(job).await.unwrap().machine.done,
            [expected]
        );
    }
}

/// A machine that requests nothing and never ends.
#[derive(Debug)]
struct Stubborn;

impl Machine for Stubborn {
    fn kind(&self) -> MachineKind {
        MachineKind::new("stubborn", 1)
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn apply(&mut self, _: Input, _: &mut MachineOutput) {}

    fn ending(&self) -> Option<&Ending> {
        None
    }
}

#[tokio::test]
async fn machine_that_waits_for_nothing_returns_error() {
    let stopped = Runtime::new()
        .run(MachineRun::new(Stubborn, Arc::new(Answers::default())))
        .await
        .unwrap_err();
    assert!(
        matches!(stopped.error, RuntimeError::Stuck(_)),
        "{}",
        stopped.error
    );
}

#[tokio::test]
async fn calls_beyond_limit_are_rejected_before_start() {
    let journal = MemoryJournal::new();
    let executor = Arc::new(Answers::default());
    let job =
        MachineRun::new(Calls::at_once(5), executor.clone()).limits(Limits::new().tool_calls(2));
    let done = runtime(journal.clone()).run(job).await.unwrap();
    let refused = Outcome::Refused(Limit::ToolCalls);
    assert_eq!(
        done.machine
            .done
            .iter()
            .filter(|outcome| **outcome == refused)
            .count(),
        3
    );
    assert_eq!(executor.seen.lock().unwrap().len(), 2);
    let started = |entry: &Entry| matches!(entry, Entry::Started { .. });
    assert_eq!(
        journal
            .records(&done.run)
            .iter()
            .filter(|record| started(&record.entry))
            .count(),
        2
    );
}

#[tokio::test]
async fn resumed_run_counts_earlier_usage() {
    let journal = MemoryJournal::new();
    let run = RunId::new("r");
    let stopping = FaultyJournal::new(journal.clone()).stop_after_records(5);
    let limits = Limits::new().tool_calls(3);
    let job = MachineRun::new(Calls::one_by_one(5), Arc::new(Answers::default()))
        .id(run.clone())
        .limits(limits);
    assert!(runtime(stopping).run(job).await.is_err());
    let executor = Arc::new(Answers::default());
    let job =
        MachineRun::resume(run, executor.clone(), |_, _| Ok(Calls::one_by_one(5))).limits(limits);
    let done = runtime(journal).run(job).await.unwrap();
    assert_eq!(
        executor.seen.lock().unwrap().len(),
        1,
        "two of the three were used before"
    );
    assert_eq!(done.machine.done.len(), 5);
}

#[tokio::test]
async fn calls_with_the_same_id_are_all_made() {
    let machine = Calls {
        one_id: true,
        ..Calls::at_once(3)
    };
    let executor = Arc::new(Answers {
        alone: true,
        ..Answers::default()
    });
    let done = runtime(MemoryJournal::new())
        .run(MachineRun::new(machine, executor))
        .await
        .unwrap();
    assert_eq!(done.machine.done.len(), 3);
}

/// An executor that answers every call, and runs a function once, during the first.
struct First<F>(Answers, Mutex<Option<F>>);

#[async_trait]
impl<F: FnOnce() + Send> Executor for First<F> {
    fn prepare(&self, effect: &Effect, cx: &PrepareCx) -> Eventual<Prepared> {
        self.0.prepare(effect, cx)
    }

    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome {
        if let Some(first) = self.1.lock().unwrap().take() {
            first();
        }
        self.0.execute(effect, cx).await
    }

    async fn child(&self, _: &ChildRun, _: Option<&Value>) -> Result<Child, ToolError> {
        Err(ToolError::failed("there are no children here"))
    }
}

/// The maximum number of calls in a slice of the driver.
const SLICE: usize = 256;

/// Returns machines with many concurrent calls: parallel ones and ones that run alone.
fn many() -> [(Calls, bool); 3] {
    [
        (Calls::at_once(10_000), false),
        (Calls::at_once(10_000), true),
        (Calls::one_by_one(10_000), false),
    ]
}

#[tokio::test]
async fn driver_checks_wall_time_within_slice_of_many_calls() {
    for (machine, alone) in many() {
        let world = ManualWorld::new();
        let clock = world.clone();
        let answers = Answers {
            alone,
            ..Answers::default()
        };
        let first = Mutex::new(Some(move || clock.advance(Duration::from_secs(3))));
        let executor = Arc::new(First(answers, first));
        let limits = Limits::new()
            .wall_time(Duration::from_secs(2))
            .tool_calls(u64::MAX);
        let runtime = Runtime::new()
            .with_journal(MemoryJournal::new())
            .with_world(world);
        let done = runtime
            .run(MachineRun::new(machine, executor.clone()).limits(limits))
            .await
            .unwrap();
        assert_eq!(
            done.machine.ending().unwrap().status,
            Status::Partial(Limit::WallTime)
        );
        let made = executor.0.seen.lock().unwrap().len();
        assert!(
            made <= 2 * SLICE,
            "{made} calls were made after the time was up, alone: {alone}"
        );
    }
}

#[tokio::test]
async fn driver_handles_cancel_and_pause_within_slice_of_many_calls() {
    for (machine, alone) in many() {
        let (told, tell) = tokio::sync::oneshot::channel();
        let answers = Answers {
            alone,
            ..Answers::default()
        };
        let executor = Arc::new(First(answers, Mutex::new(Some(move || _ = told.send(())))));
        let limits = Limits::new().tool_calls(u64::MAX);
        let job = MachineRun::new(machine, executor.clone()).limits(limits);
        let run = runtime(MemoryJournal::new()).start(job);
        let control = run.control().clone();
        tell.await.unwrap();
        control.pause().await.unwrap();
        let paused = executor.0.seen.lock().unwrap().len();
        assert!(
            paused <= 4 * SLICE,
            "{paused} calls were made before the pause, alone: {alone}"
        );
        control.cancel("enough").await.unwrap();
        let done = run.await.unwrap();
        assert!(matches!(
            done.machine.ending().unwrap().status,
            Status::Cancelled { .. }
        ));
        let made = executor.0.seen.lock().unwrap().len();
        assert!(
            made <= 6 * SLICE,
            "{made} calls were made before the cancel, alone: {alone}"
        );
    }
}

#[tokio::test]
async fn many_calls_are_all_made_once_and_survive_a_crash() {
    const CALLS: u64 = 2_000;
    for alone in [false, true] {
        let journal = MemoryJournal::new();
        let answers = || {
            Arc::new(Answers {
                alone,
                ..Answers::default()
            })
        };
        let limits = Limits::new().tool_calls(u64::MAX);
        let stopping = FaultyJournal::new(journal.clone()).stop_after_records(1_500);
        let (before, after) = (answers(), answers());
        let job = MachineRun::new(Calls::at_once(CALLS), before.clone())
            .id(RunId::new("r"))
            .limits(limits);
        assert!(runtime(stopping).run(job).await.is_err());
        let job = MachineRun::resume(RunId::new("r"), after.clone(), |_, _| {
            Ok(Calls::at_once(CALLS))
        })
        .limits(limits);
        let done = runtime(journal.clone()).run(job).await.unwrap();
        assert_eq!(done.machine.done.len() as u64, CALLS);
        let mut all = [performed(&before), performed(&after)].concat();
        all.sort_unstable();
        let made = all.len();
        all.dedup();
        assert_eq!(made, all.len(), "a call was made twice");
        let unknown = done
            .machine
            .done
            .iter()
            .filter(|outcome| **outcome == Outcome::Unknown)
            .count();
        assert!(
            all.len() + unknown >= usize::try_from(CALLS).unwrap(),
            "{} and {unknown}",
            all.len()
        );
        let records = journal.records(&RunId::new("r"));
        let again =
            levity_runtime::replay(&RunId::new("r"), &records, |_, _| Ok(Calls::at_once(CALLS)));
        assert_eq!(again.unwrap().machine.done, done.machine.done);
    }
}

#[tokio::test]
async fn resuming_run_of_many_records_yields_to_other_tasks() {
    const CALLS: u64 = 20_000;
    let journal = MemoryJournal::new();
    let limits = Limits::new().tool_calls(u64::MAX);
    let stopping = FaultyJournal::new(journal.clone()).stop_after_records(40_000);
    let job = MachineRun::new(Calls::at_once(CALLS), Arc::new(Answers::default()))
        .id(RunId::new("r"))
        .limits(limits);
    assert!(runtime(stopping).run(job).await.is_err());
    let job = MachineRun::resume(RunId::new("r"), Arc::new(Answers::default()), |_, _| {
        Ok(Calls::at_once(CALLS))
    });
    let job = job.limits(limits);
    let runtime = runtime(journal);
    let mut resumed = std::pin::pin!(runtime.run(job));
    let mut polls = 0;
    let done = std::future::poll_fn(|cx| {
        polls += 1;
        resumed.as_mut().poll(cx)
    });
    assert_eq!(done.await.unwrap().machine.done.len() as u64, CALLS);
    assert!(polls >= 2 * CALLS / 4_096, "{polls} polls");
}
