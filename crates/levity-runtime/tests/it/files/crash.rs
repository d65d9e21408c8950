//! Effects of a crash, a full disk, a missing permission, a second process or a wrong clock on a
//! run in a file.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Child, ChildRun, Effect, EffectCx, Entry, Eventual, Executor, Journal, JournalErrorKind, Limit,
    Limits, Outcome, PrepareCx, Prepared, Record, RunQuery, RuntimeError, Status, Timestamp,
    ToolError, ToolOutput, ToolResult,
};
use levity_runtime::{Durability, EndedMachine, FileJournal, MachineRun, Runtime, StoppedMachine};
use levity_test::ManualWorld;
use serde_json::Value;
use tokio::sync::Notify;

use super::{Folder, opened, result, run, write};
use crate::driving::{Answers, Calls};

fn performed(executor: &Answers) -> usize {
    executor.seen.lock().unwrap().len()
}

async fn resume(
    journal: FileJournal,
    count: u64,
    executor: Arc<dyn Executor>,
) -> Result<EndedMachine<Calls>, StoppedMachine<Calls>> {
    let job = MachineRun::resume(run(), executor, move |_, _| Ok(Calls::one_by_one(count)));
    Runtime::new().with_journal(journal).run(job).await
}

/// A run is cut at every byte of its last two records, with and without zeros behind, and resumes.
/// Finished effects are not repeated, and possibly finished ones have an unknown outcome.
#[tokio::test]
async fn run_torn_in_its_last_records_is_resumed() {
    let folder = Folder::new();
    let buffered = || folder.journal().with_durability(Durability::Buffered);
    let job = MachineRun::new(Calls::one_by_one(2), Arc::new(Answers::default())).id(run());
    Runtime::new()
        .with_journal(buffered())
        .run(job)
        .await
        .unwrap();
    let whole = fs::read(folder.file()).unwrap();
    let ends: Vec<usize> = (1..=whole.len())
        .filter(|end| whole[end - 1] == b'\n')
        .collect();
    let [.., finished, last, _] = ends[..] else {
        panic!("{ends:?}")
    };
    for end in finished..=whole.len() {
        for zeros in [0, whole.len() - end, 4096] {
            fs::write(folder.file(), [&whole[..end], &vec![0; zeros]].concat()).unwrap();
            let executor = Arc::new(Answers::default());
            let done = resume(buffered(), 2, executor.clone()).await.unwrap();
            assert_eq!(performed(&executor), 0, "cut at byte {end}");
            let unknown = done
                .machine
                .done
                .iter()
                .filter(|outcome| **outcome == Outcome::Unknown)
                .count();
            assert_eq!(
                (done.machine.done.len(), unknown),
                (2, usize::from(end < last)),
                "cut at byte {end}"
            );
            let records = buffered().read(&run()).await.unwrap();
            assert_eq!(
                records.last().unwrap().entry,
                Entry::Ended(Status::Complete)
            );
        }
    }
}

/// The variable that is set in the process with limited space.
const CRAMPED: &str = "LEVITY_TEST_CRAMPED";

/// Drives a run until the disk is full, and reports its progress. It does nothing when run as a
/// test on its own.
#[tokio::test]
async fn run_in_child_process_until_disk_is_full() {
    let Some(folder) = std::env::var_os(CRAMPED) else {
        return;
    };
    let executor = Arc::new(Answers::default());
    let journal = FileJournal::new(Path::new(&folder)).unwrap();
    let job = MachineRun::new(Calls::one_by_one(300), executor.clone()).id(run());
    let stopped = Runtime::new()
        .with_journal(journal)
        .run(job)
        .await
        .unwrap_err();
    let RuntimeError::Journal(error) = stopped.error else {
        panic!("{}", stopped.error)
    };
    assert_eq!(error.kind(), JournalErrorKind::Io, "{error}");
    println!(
        "\nfinished {} of {}\n",
        stopped.machine.unwrap().done.len(),
        performed(&executor)
    );
}

#[cfg(unix)]
#[tokio::test]
async fn full_disk_is_an_error_and_run_resumes_when_there_is_room() {
    let folder = Folder::new();
    // A process with a limit on file size gets the same error as on a full disk; the signal that
    // comes with it is ignored.
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact \
        files::crash::run_in_child_process_until_disk_is_full --nocapture";
    let mut child = Command::new("sh");
    child
        .arg("-c")
        .arg(script)
        .arg(std::env::current_exe().unwrap())
        .env(CRAMPED, &folder.0);
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("finished "))
        .unwrap();
    let (seen, done) = line.split_once(" of ").unwrap();
    let (seen, done): (usize, usize) = (seen.parse().unwrap(), done.parse().unwrap());
    assert!((5..300).contains(&seen) && done <= seen + 1, "{line}");

    let before = folder.journal().read(&run()).await.unwrap();
    let finished = |records: &[Record]| {
        records
            .iter()
            .filter(|record| matches!(record.entry, Entry::Finished { .. }))
            .count()
    };
    // The last outcome had arrived, and could not be written.
    assert_eq!(
        finished(&before),
        seen - 1,
        "what was written before is there, and nothing else"
    );
    let executor = Arc::new(Answers::default());
    let end = resume(
        folder.journal().with_durability(Durability::Buffered),
        300,
        executor.clone(),
    )
    .await
    .unwrap();
    assert_eq!(end.machine.done.len(), 300);
    assert_eq!(performed(&executor) + done, 300, "each call is made once");
}

#[cfg(unix)]
#[tokio::test]
async fn run_without_write_permission_is_rejected_and_unchanged() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let journal = folder.journal();
    write(&journal, vec![opened(), result("one", None)]).await;
    let before = fs::read(folder.file()).unwrap();
    let allow = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(&folder.file(), 0o444);
    allow(&folder.0, 0o555);
    if fs::OpenOptions::new()
        .append(true)
        .open(folder.file())
        .is_ok()
    {
        eprintln!("SKIPPED: this user may write what is read-only, so the test shows nothing");
        return allow(&folder.0, 0o755);
    }
    let refused = journal.open(&run()).await.map(|_| ()).unwrap_err();
    let new = journal
        .open(&levity_core::RunId::new("new"))
        .await
        .map(|_| ())
        .unwrap_err();
    let removed = journal.remove(&run()).await.unwrap_err();
    for error in [&refused, &new, &removed] {
        assert_eq!(error.kind(), JournalErrorKind::Io, "{error}");
    }
    assert_eq!(
        journal.read(&run()).await.unwrap().len(),
        2,
        "who only looks needs no such right"
    );
    assert_eq!(journal.list(&RunQuery::new()).await.unwrap().len(), 1);
    allow(&folder.0, 0o755);
    assert_eq!(fs::read(folder.file()).unwrap(), before);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
}

/// An executor that answers on request.
#[derive(Default)]
struct Slow {
    asked: Notify,
    go: Notify,
}

#[async_trait]
impl Executor for Slow {
    fn prepare(&self, _: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        Prepared::default().into()
    }

    async fn execute(&self, effect: Effect, _: EffectCx) -> Outcome {
        let Effect::Tool(tool) = effect else {
            return Outcome::Unknown;
        };
        self.asked.notify_one();
        self.go.notified().await;
        Outcome::Tool(ToolResult::new(&tool.call, Ok(ToolOutput::text("slow"))))
    }

    async fn child(&self, _: &ChildRun, _: Option<&Value>) -> Result<Child, ToolError> {
        Err(ToolError::failed("there are no children here"))
    }
}

fn is_busy(stopped: &StoppedMachine<Calls>) -> bool {
    matches!(&stopped.error, RuntimeError::Journal(error) if error.kind() == JournalErrorKind::Busy)
}

#[tokio::test]
async fn second_resume_of_a_run_gets_busy_error() {
    let folder = Folder::new();
    write(&folder.journal(), vec![opened()]).await;
    let slow = Arc::new(Slow::default());
    let first = resume(folder.journal(), 1, slow.clone());
    let second = async {
        slow.asked.notified().await;
        let idle = Arc::new(Answers::default());
        let before = fs::read(folder.file()).unwrap();
        let stopped = resume(folder.journal(), 1, idle.clone()).await.unwrap_err();
        assert!(
            is_busy(&stopped) && stopped.error.is_retryable(),
            "{}",
            stopped.error
        );
        assert_eq!(performed(&idle), 0);
        assert_eq!(fs::read(folder.file()).unwrap(), before);
        slow.go.notify_one();
    };
    let (first, ()) = tokio::join!(first, second);
    assert_eq!(first.unwrap().machine.done.len(), 1);
}

/// Many threads resume the run at once: only one continues, and each call is made once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_resumes_of_a_run_have_one_winner() {
    for _ in 0..10 {
        let folder = Folder::new();
        let buffered = || folder.journal().with_durability(Durability::Buffered);
        write(&buffered(), vec![opened()]).await;
        let executor = Arc::new(Answers::default());
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..8 {
            all.spawn(resume(buffered(), 5, executor.clone()));
        }
        let ended = all.join_all().await;
        assert!(ended.iter().any(Result::is_ok));
        for stopped in ended.iter().filter_map(|ended| ended.as_ref().err()) {
            assert!(is_busy(stopped), "{}", stopped.error);
        }
        assert_eq!(performed(&executor), 5);
    }
}

#[tokio::test]
async fn clock_set_back_between_processes_does_no_harm() {
    let folder = Folder::new();
    let hour = Duration::from_secs(3_600);
    let limits = Limits::new().wall_time(hour);
    let world = ManualWorld::new();
    let runtime = Runtime::new()
        .with_journal(folder.journal())
        .with_world(world.clone());
    let slow = Arc::new(Slow::default());
    let job = MachineRun::new(Calls::one_by_one(3), slow.clone())
        .id(run())
        .limits(limits);
    let handle = runtime.start(job);
    slow.asked.notified().await;
    slow.go.notify_one();
    slow.asked.notified().await;
    handle.stop().await;

    // The clock is two hours before the creation of the run; its time is not up, and its wait is no
    // longer than requested.
    let start = ManualWorld::START.as_millis();
    world.set(Timestamp::from_millis(start - 2 * 3_600_000));
    let job = MachineRun::resume(run(), slow.clone(), |_, _| Ok(Calls::one_by_one(3)));
    let handle = runtime.start(job);
    slow.asked.notified().await;
    world.advance(hour);
    let done = handle.await.unwrap();
    assert_eq!(
        levity_core::Machine::ending(&done.machine).unwrap().status,
        Status::Partial(Limit::WallTime)
    );

    let records = folder.journal().read(&run()).await.unwrap();
    assert!(
        records
            .iter()
            .enumerate()
            .all(|(at, record)| record.seq == at as u64)
    );
    let back = records
        .windows(2)
        .filter(|pair| pair[1].at < pair[0].at)
        .count();
    assert_eq!(back, 1, "the records say when the clock said what");
    let listed = folder.journal().list(&RunQuery::new()).await.unwrap();
    assert_eq!(
        (listed[0].opened, listed[0].records),
        (ManualWorld::START, records.len() as u64)
    );
    assert!(listed[0].updated < listed[0].opened);
}
