//! Runs that are resumed from a snapshot.

use std::fs;
use std::sync::Arc;

use levity_core::{
    Child, ChildRun, Effect, EffectCx, EffectId, Ending, Eventual, Executor, Input, Journal,
    Limits, Machine, MachineKind, MachineOutput, Outcome, PrepareCx, Prepared, RunId, Status,
    ToolCall, ToolError, ToolRun,
};
use levity_driver::{DriverSettings, Meter, RunDriver, RunSnapshot};
use levity_runtime::{FileJournal, MachineRun, MemoryJournal, Runtime};
use levity_test::FaultyJournal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::driving::Answers;
use crate::files::Folder;

const CALLS: u64 = 200;

/// A machine that requests calls in pairs, and saves all of its state.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Twos {
    begun: u64,
    done: Vec<String>,
    ending: Option<Ending>,
}

impl Twos {
    fn want(&mut self, step: &mut MachineOutput) {
        let call = ToolCall::new(
            format!("c{}", self.begun),
            "tool",
            json!({ "number": self.begun }),
        );
        step.request(EffectId::new(self.begun), Effect::Tool(ToolRun::new(call)));
        self.begun += 1;
    }

    fn restore(_: &MachineKind, state: &Value) -> Result<Self, String> {
        Self::deserialize(state).map_err(|error| error.to_string())
    }
}

impl Machine for Twos {
    fn kind(&self) -> MachineKind {
        MachineKind::new("twos", 1)
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap()
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        match input {
            Input::Begin { .. } => (0..2).for_each(|_| self.want(step)),
            Input::Finished { effect, .. } => {
                self.done.push(effect.to_string());
                if self.begun < CALLS {
                    self.want(step);
                } else if self.done.len() as u64 == CALLS {
                    self.ending = Some(Ending::new(Status::Complete));
                }
            }
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

fn run() -> RunId {
    RunId::new("r")
}

/// Drives a run until its journal fails, and then to its end.
async fn fail_and_resume<J: Journal + Clone + 'static>(journal: J) {
    let failing = FaultyJournal::new(journal.clone()).fail_from(60);
    let runtime = Runtime::new().with_journal(failing);
    let job = MachineRun::new(Twos::default(), Arc::new(Answers::default())).id(run());
    runtime.run(job).await.unwrap_err();
    let latest = journal.open_latest(&run()).await.unwrap();
    let (snapshot, tail) = (latest.snapshot.unwrap(), latest.records);
    assert!(
        snapshot.seq > 100 && tail.len() < 100,
        "{} and {}",
        snapshot.seq,
        tail.len()
    );
    drop(latest.log);
    let (executor, runtime) = (
        Arc::new(Answers::default()),
        Runtime::new().with_journal(journal.clone()),
    );
    let done = runtime
        .run(MachineRun::resume(run(), executor.clone(), Twos::restore))
        .await
        .unwrap();
    let records = journal.read(&run()).await.unwrap();
    let folded = levity_runtime::replay(&run(), &records, Twos::restore).unwrap();
    assert_eq!(
        done.machine, folded.machine,
        "the snapshot and all records come to the same"
    );
    let performed = executor.seen.lock().unwrap().len() as u64;
    assert!(
        performed < CALLS,
        "{performed}: the first calls are not made again"
    );
}

#[tokio::test]
async fn run_resumes_from_last_snapshot_in_file() {
    let folder = Folder::new();
    fail_and_resume(folder.journal().with_snapshot_interval(2_000)).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn run_resumes_from_last_snapshot_in_database() {
    let folder = Folder::new();
    fs::create_dir_all(&folder.0).unwrap();
    let journal = levity_runtime::SqliteJournal::new(folder.0.join("runs.db")).unwrap();
    fail_and_resume(journal.with_snapshot_interval(2_000)).await;
}

#[tokio::test]
async fn run_resumes_from_every_snapshot_in_memory() {
    for interval in 1..=3 {
        fail_and_resume(MemoryJournal::new().with_snapshots(interval)).await;
    }
}

#[tokio::test]
async fn snapshots_are_taken_across_reopened_runs() {
    let folder = Folder::new();
    let journal = folder.journal().with_snapshot_interval(4_000);
    let first = FaultyJournal::new(journal.clone()).fail_from(5);
    let job = MachineRun::new(Twos::default(), Arc::new(Answers::default())).id(run());
    Runtime::new()
        .with_journal(first)
        .run(job)
        .await
        .unwrap_err();
    // Each process appends far less than the interval.
    for _ in 0..20 {
        let some = Runtime::new().with_journal(FaultyJournal::new(journal.clone()).fail_from(4));
        some.run(MachineRun::resume(
            run(),
            Arc::new(Answers::default()),
            Twos::restore,
        ))
        .await
        .unwrap_err();
    }
    let latest = journal.open_latest(&run()).await.unwrap();
    let seq = latest.snapshot.unwrap().seq;
    assert!(
        seq > 50 && latest.records.len() < 50,
        "{seq} and {}",
        latest.records.len()
    );
}

#[tokio::test]
async fn record_out_of_sequence_is_rejected() {
    let folder = Folder::new();
    let journal = with_snapshot(&folder).await;
    let mut open = journal.open_latest(&run()).await.unwrap();
    let wrong = levity_core::Record::new(0, Default::default(), crate::files::opened());
    let error = open.log.append(&[wrong]).await.unwrap_err();
    assert!(
        error.to_string().contains("record 0 cannot follow"),
        "{error}"
    );
}

/// A machine with one child, which is [`Twos`].
#[derive(Debug, Default)]
struct Parent(Option<Ending>);

impl Machine for Parent {
    fn kind(&self) -> MachineKind {
        MachineKind::new("parent", 1)
    }

    fn save(&self) -> Value {
        json!(self.0)
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        match input {
            Input::Begin { .. } => {
                step.request(
                    EffectId::new(0),
                    Effect::Child(ChildRun::new("twos", json!("Work."))),
                );
            }
            Input::Finished { .. } => self.0 = Some(Ending::new(Status::Complete)),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.0.as_ref()
    }
}

struct WithChild(Arc<Answers>);

#[async_trait::async_trait]
impl Executor for WithChild {
    fn prepare(&self, _: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        Prepared::default().into()
    }

    async fn execute(&self, _: Effect, _: EffectCx) -> Outcome {
        Outcome::Unknown
    }

    async fn child(&self, _: &ChildRun, state: Option<&Value>) -> Result<Child, ToolError> {
        let machine = match state {
            Some(state) => {
                Twos::restore(&MachineKind::new("twos", 1), state).map_err(ToolError::failed)?
            }
            None => Twos::default(),
        };
        Ok(Child::new(machine, self.0.clone(), Limits::default()))
    }
}

#[tokio::test]
async fn child_resumes_from_records_if_snapshot_has_other_version() {
    let folder = Folder::new();
    let journal = folder.journal().with_snapshot_interval(2_000);
    let executor = || Arc::new(WithChild(Arc::new(Answers::default())));
    let failing = Runtime::new().with_journal(FaultyJournal::new(journal.clone()).fail_from(60));
    failing
        .run(MachineRun::new(Parent::default(), executor()).id(run()))
        .await
        .unwrap_err();
    let child = RunId::new("r.0");
    let before = journal.read(&child).await.unwrap().len();
    let file = folder.0.join(".r.0.snapshot");
    let older = fs::read_to_string(&file)
        .unwrap()
        .replace("\"version\":\"", "\"version\":\"0.");
    fs::write(&file, crate::files::sealed(older.trim_end()) + "\n").unwrap();
    assert!(
        journal
            .open_latest(&child)
            .await
            .unwrap()
            .snapshot
            .is_some(),
        "the journal has one still"
    );
    let again = executor();
    let restore = |_: &MachineKind, _: &Value| Ok(Parent::default());
    let runtime = Runtime::new().with_journal(journal.clone());
    runtime
        .run(MachineRun::resume(run(), again.clone(), restore))
        .await
        .unwrap();
    let records = journal.read(&child).await.unwrap();
    assert!(
        records.len() > before && before > 50,
        "{before} and {}",
        records.len()
    );
    let performed = again.0.seen.lock().unwrap().len() as u64;
    assert!(
        performed < CALLS - 20,
        "{performed}: the first calls are not made again"
    );
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn snapshot_of_other_history_is_ignored() {
    let folder = Folder::new();
    fs::create_dir_all(&folder.0).unwrap();
    let path = folder.0.join("runs.db");
    let journal = levity_runtime::SqliteJournal::new(&path)
        .unwrap()
        .with_snapshot_interval(2_000);
    let failing = Runtime::new().with_journal(FaultyJournal::new(journal.clone()).fail_from(60));
    let job = MachineRun::new(Twos::default(), Arc::new(Answers::default())).id(run());
    failing.run(job).await.unwrap_err();
    let seq = journal
        .open_latest(&run())
        .await
        .unwrap()
        .snapshot
        .unwrap()
        .seq;
    // The record before the snapshot was changed by hand.
    let sql = rusqlite::Connection::open(&path).unwrap();
    let change = "UPDATE records SET at = at + 1, crc = NULL WHERE seq = ?1";
    assert_eq!(sql.execute(change, [seq.cast_signed() - 1]).unwrap(), 1);
    let latest = journal.open_latest(&run()).await.unwrap();
    assert!(latest.snapshot.is_none());
    assert!(latest.records.len() as u64 >= seq);
}

/// Returns the journal of a run that has ended, with a snapshot somewhere in it.
async fn with_snapshot(folder: &Folder) -> FileJournal {
    let journal = folder.journal().with_snapshot_interval(20_000);
    let runtime = Runtime::new().with_journal(journal.clone());
    runtime
        .run(MachineRun::new(Twos::default(), Arc::new(Answers::default())).id(run()))
        .await
        .unwrap();
    journal
}

#[tokio::test]
async fn damaged_snapshot_is_ignored() {
    let folder = Folder::new();
    let journal = with_snapshot(&folder).await;
    let all = journal.read(&run()).await.unwrap();
    let file = folder.0.join(".r.snapshot");
    let whole = fs::read(&file).unwrap();
    for bit in (0..8 * whole.len()).step_by(211) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&file, flipped).unwrap();
        let latest = journal.open_latest(&run()).await.unwrap();
        assert!(latest.snapshot.is_none(), "bit {bit}");
        assert_eq!(latest.records, all, "bit {bit}");
    }
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(journal.open_latest(&run()).await.unwrap().records, all);
    fs::remove_file(&file).unwrap();
    assert_eq!(journal.open_latest(&run()).await.unwrap().records, all);
}

#[tokio::test]
async fn snapshot_of_replaced_file_is_ignored() {
    let folder = Folder::new();
    let journal = with_snapshot(&folder).await;
    let (file, whole) = (
        folder.0.join("r.jsonl"),
        fs::read_to_string(folder.0.join("r.jsonl")).unwrap(),
    );
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    // The file was truncated before the snapshot.
    fs::write(&file, lines[..10].concat()).unwrap();
    let latest = journal.open_latest(&run()).await.unwrap();
    assert!(latest.snapshot.is_none());
    assert_eq!(latest.records.len(), 9);
    drop(latest);
    // The run was deleted by hand, and another one with its id has started.
    fs::remove_file(&file).unwrap();
    let runtime = Runtime::new().with_journal(folder.journal());
    let other = Twos {
        done: vec!["another".to_owned()],
        ..Twos::default()
    };
    runtime
        .run(MachineRun::new(other, Arc::new(Answers::default())).id(run()))
        .await
        .unwrap();
    let latest = journal.open_latest(&run()).await.unwrap();
    assert!(latest.snapshot.is_none());
    drop(latest);
    assert!(journal.remove(&run()).await.unwrap());
    assert_eq!(
        fs::read_dir(&folder.0).unwrap().count(),
        0,
        "nothing is left of it"
    );
}

#[tokio::test]
async fn snapshot_at_every_prefix_gives_same_result_as_all_records() {
    let journal = MemoryJournal::new();
    let runtime = Runtime::new().with_journal(journal.clone());
    runtime
        .run(MachineRun::new(Twos::default(), Arc::new(Answers::default())).id(run()))
        .await
        .unwrap();
    let records = journal.records(&run());
    let settings = || {
        let mut settings = DriverSettings::new(Arc::new(Meter::new(Default::default(), None)));
        settings.snapshots = true;
        settings
    };
    let mut straight = RunDriver::new(run(), Twos::default(), settings());
    for (record, rest) in records.iter().zip(1..) {
        straight.fold(record.clone()).unwrap();
        let Some(snapshot) = straight.snapshot() else {
            continue;
        };
        let read = RunSnapshot::read(snapshot.clone()).unwrap();
        let machine = Twos::restore(read.machine().0, read.machine().1).unwrap();
        let mut restored = RunDriver::restore(run(), machine, read, settings());
        assert_eq!(
            restored.snapshot().unwrap(),
            snapshot,
            "record {}",
            record.seq
        );
        assert_eq!(restored.spent(), straight.spent());
        for record in &records[rest..] {
            restored.fold(record.clone()).unwrap();
        }
        assert!(restored.is_ended());
        assert_eq!(
            restored.machine().save(),
            records_end(&records),
            "record {}",
            record.seq
        );
    }
}

/// Returns the state of the machine after all records.
fn records_end(records: &[levity_core::Record]) -> Value {
    levity_runtime::replay(&run(), records, Twos::restore)
        .unwrap()
        .machine
        .save()
}
