//! Runs in an SQLite file: many at once, lists, long texts, posts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levity_core::{
    ControlCommand, EffectClass, EffectId, EffectKind, EffectNote, Entry, Journal, JournalError,
    JournalErrorKind, Limits, MachineKind, OpenRun, Outcome, Record, RunHeader, RunId, RunQuery,
    RunRequest, RunState, RunSummary, Timestamp, ToolCall, ToolOutput, ToolResult,
};
use levity_runtime::{Durability, MachineRun, Runtime, SqliteJournal};
use levity_test::{ManualWorld, conformance};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::driving::{Answers, Calls};

mod damage;
mod owners;
#[cfg(unix)]
mod permissions;

/// A temporary folder of one test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sqlite-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn journal(&self) -> SqliteJournal {
        SqliteJournal::new(self.file())
            .unwrap()
            .with_durability(Durability::Buffered)
    }

    fn file(&self) -> PathBuf {
        self.0.join("runs.db")
    }

    /// Opens the file as another program does.
    fn sql(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run() -> RunId {
    RunId::new("r")
}

fn opened() -> Entry {
    Entry::Opened(RunHeader::new(
        MachineKind::new("calls", 1),
        json!({"count": 1}),
        Limits::default(),
    ))
}

fn result(text: &str, value: Option<Value>) -> Entry {
    let output = value.map_or_else(|| ToolOutput::text(text), ToolOutput::value);
    let result = ToolResult::new(&ToolCall::new("c", "tool", json!({})), Ok(output));
    Entry::finished(EffectId::new(0), Outcome::Tool(result))
}

fn record(seq: u64, entry: Entry) -> Record {
    Record::new(seq, Timestamp::from_millis(5), entry)
}

async fn add(open: &mut OpenRun, seq: u64, text: &str) -> Result<(), JournalError> {
    open.log
        .append(&[record(
            seq,
            if seq == 0 {
                opened()
            } else {
                result(text, None)
            },
        )])
        .await
}

fn kind<T>(result: Result<T, JournalError>) -> JournalErrorKind {
    match result {
        Ok(_) => panic!("it went well"),
        Err(error) => error.kind(),
    }
}

fn integrity(folder: &Folder) -> String {
    folder
        .sql()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap()
}

#[tokio::test]
async fn sqlite_journal_passes_conformance_suite() {
    for durability in [Durability::Synced, Durability::Buffered] {
        let folders = std::sync::Mutex::new(Vec::new());
        conformance::journal(async || {
            let folder = Folder::new();
            let journal = SqliteJournal::new(folder.file())
                .unwrap()
                .with_durability(durability);
            folders.lock().unwrap().push(folder);
            journal
        })
        .await;
    }
}

#[tokio::test]
async fn separate_sqlite_journals_pass_conformance_suite() {
    let folders = std::sync::Mutex::new(Vec::new());
    conformance::journal(async || {
        let folder = Folder::new();
        let journal = Alternating(
            [folder.journal(), folder.journal(), folder.journal()],
            AtomicU64::new(0),
        );
        folders.lock().unwrap().push(folder);
        journal
    })
    .await;
}

/// A journal that alternates between its journals.
struct Alternating([SqliteJournal; 3], AtomicU64);

impl Alternating {
    fn next(&self) -> &SqliteJournal {
        &self.0[self.1.fetch_add(1, Ordering::Relaxed) as usize % 3]
    }
}

#[async_trait::async_trait]
impl Journal for Alternating {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.next().open(run).await
    }

    async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.next().open_latest(run).await
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.next().list(query).await
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.next().read(run).await
    }

    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        self.next().remove(run).await
    }

    async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        self.next().post(run, post).await
    }
}

#[tokio::test]
async fn database_file_consists_of_readable_tables() {
    let folder = Folder::new();
    let executor = Arc::new(Answers::default());
    let runtime = Runtime::new().with_journal(folder.journal());
    runtime
        .run(MachineRun::new(Calls::at_once(2), executor).id(run()))
        .await
        .unwrap();
    let sql = folder.sql();
    let state: (i64, String) = sql
        .query_row("SELECT state, status FROM runs WHERE id = 'r'", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(state, (2, "\"complete\"".to_owned()));
    let first: String = sql
        .query_row(
            "SELECT entry ->> '$.opened.machine.name' FROM records JOIN runs ON runs.key = run \
                WHERE seq = 0",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(first, "calls");
}

#[tokio::test]
async fn empty_file_becomes_journal_and_unusual_names_work() {
    let folder = Folder::new();
    fs::write(folder.file(), "").unwrap();
    add(&mut folder.journal().open(&run()).await.unwrap(), 0, "")
        .await
        .unwrap();
    assert_eq!(
        folder.journal().list(&RunQuery::new()).await.unwrap().len(),
        1
    );
    for name in [":memory:", "file:x?mode=memory", "50% ä#?.db"] {
        let path = folder.0.join(name);
        add(
            &mut SqliteJournal::new(&path)
                .unwrap()
                .open(&run())
                .await
                .unwrap(),
            0,
            "",
        )
        .await
        .unwrap();
        assert!(path.is_file());
        assert_eq!(
            SqliteJournal::new(path)
                .unwrap()
                .read(&run())
                .await
                .unwrap()
                .len(),
            1
        );
    }
    assert_eq!(
        SqliteJournal::new(&folder.0).unwrap_err().kind(),
        JournalErrorKind::Refused
    );
    assert_eq!(
        SqliteJournal::new(folder.0.join("no/such/folder"))
            .unwrap_err()
            .kind(),
        JournalErrorKind::Io
    );
}

#[tokio::test]
async fn long_texts_are_restored_and_unreadable_ones_not_written() {
    let folder = Folder::new();
    let journal = folder.journal();
    let mut open = journal.open(&run()).await.unwrap();
    let records = [
        record(0, opened()),
        record(1, result(&"ä".repeat(2_000_000), None)),
    ];
    open.log.append(&records).await.unwrap();
    let deep = (0..125).fold(json!(1), |inner, _| json!([inner]));
    let two = [
        record(2, result("fine", None)),
        record(3, result("", Some(deep))),
    ];
    assert_eq!(kind(open.log.append(&two).await), JournalErrorKind::Refused);
    assert!(add(&mut open, 2, "after a failure").await.is_err());
    drop(open);
    let mut open = journal.open(&run()).await.unwrap();
    assert_eq!(open.records, records);
    assert_eq!(
        kind(add(&mut open, 7, "a gap").await),
        JournalErrorKind::Refused
    );
    drop(open);
    let long = RunId::new("x".repeat(1_001));
    assert_eq!(kind(journal.open(&long).await), JournalErrorKind::Refused);
}

#[tokio::test]
async fn looking_up_a_missing_run_leaves_nothing() {
    let folder = Folder::new();
    let journal = folder.journal();
    let job = MachineRun::<Calls>::resume(run(), Arc::new(Answers::default()), |_, _| {
        Ok(Calls::at_once(1))
    });
    assert!(
        Runtime::new()
            .with_journal(journal.clone())
            .run(job)
            .await
            .is_err()
    );
    // The next job is done after the release.
    assert!(!journal.remove(&RunId::new("nobody")).await.unwrap());
    let rows: i64 = folder
        .sql()
        .query_row("SELECT count(*) FROM runs", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousand_concurrent_runs_are_all_complete() {
    let folder = Folder::new();
    let journals = [folder.journal(), folder.journal()];
    let mut runs = tokio::task::JoinSet::new();
    for number in 0..1_000 {
        let runtime = Runtime::new().with_journal(journals[number % 2].clone());
        let job = MachineRun::new(Calls::at_once(3), Arc::new(Answers::default()))
            .id(RunId::from(format!("r{number}")));
        runs.spawn(async move { runtime.run(job).await });
    }
    while let Some(ended) = runs.join_next().await {
        ended.unwrap().unwrap();
    }
    let answered = journals[0]
        .list(&RunQuery::new().state(RunState::Answered))
        .await
        .unwrap();
    assert_eq!(answered.len(), 1_000);
    for summary in answered {
        let records = journals[1].read(&summary.run).await.unwrap();
        assert_eq!(RunSummary::of(&summary.run, &records), Some(summary));
    }
    assert_eq!(integrity(&folder), "ok");
}

#[tokio::test]
async fn list_reports_what_a_run_waits_for() {
    let folder = Folder::new();
    let journal = folder.journal();
    let started = |effect, kind, until: Option<u64>| {
        let mut note = EffectNote::new(kind, "it", EffectClass::ReadOnly);
        note.until = until.map(Timestamp::from_millis);
        Entry::Started {
            effect: EffectId::new(effect),
            note,
        }
    };
    let waits = [
        vec![],
        vec![started(1, EffectKind::Ask, None)],
        vec![started(u64::MAX, EffectKind::Wait, Some(u64::MAX))],
        vec![
            started(3, EffectKind::Wait, Some(7)),
            started(4, EffectKind::Ask, None),
        ],
    ];
    for (number, waits) in waits.into_iter().enumerate() {
        let run = RunId::from(format!("r{number}"));
        let entries = std::iter::once(opened()).chain(waits);
        let records: Vec<_> = (0..)
            .zip(entries)
            .map(|(seq, entry)| record(seq, entry))
            .collect();
        journal
            .open(&run)
            .await
            .unwrap()
            .log
            .append(&records)
            .await
            .unwrap();
        let listed = journal
            .list(&RunQuery::new().below(run.clone()))
            .await
            .unwrap();
        assert_eq!(listed, Vec::from_iter(RunSummary::of(&run, &records)));
    }
}

#[tokio::test]
async fn long_list_has_every_run_once_and_in_order() {
    let folder = Folder::new();
    let journal = folder.journal();
    let count = 23_456;
    let fill = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1) \
                INSERT INTO runs (id, opened, records) SELECT 'r' || n, ?1 - n / 3, n % 10 FROM n";
    folder.sql().execute(fill, [count]).unwrap();
    let listed = journal.list(&RunQuery::new()).await.unwrap();
    let mut expected: Vec<_> = (1..=count)
        .filter(|n| n % 10 > 0)
        .map(|n| {
            (
                Timestamp::from_millis((count - n / 3) as u64),
                RunId::from(format!("r{n}")),
            )
        })
        .collect();
    expected.sort();
    assert!(
        listed
            .iter()
            .map(|run| (run.opened, run.run.clone()))
            .eq(expected.iter().cloned())
    );
    let newest = journal.list(&RunQuery::new().newest_first()).await.unwrap();
    assert!(newest.iter().eq(listed.iter().rev()));
    let some = journal
        .list(&RunQuery::new().newest_first().limit(50))
        .await
        .unwrap();
    assert_eq!(some, newest[..50]);
}

#[tokio::test]
async fn failed_append_does_not_fail_concurrent_ones() {
    let folder = Folder::new();
    let (journal, other) = (
        folder.journal().with_world(ManualWorld::new()),
        folder.journal(),
    );
    let mut logs = Vec::new();
    for number in 0..20 {
        let mut open = journal
            .open(&RunId::from(format!("r{number}")))
            .await
            .unwrap();
        add(&mut open, 0, "").await.unwrap();
        logs.push(open);
    }
    // For the real clock, the lease of the others expired long ago.
    let stolen = other.open(&RunId::new("r7")).await.unwrap();
    let appends = logs.iter_mut().map(|open| add(open, 1, "more"));
    let written = futures_util::future::join_all(appends).await;
    for (number, result) in written.into_iter().enumerate() {
        match number {
            7 => assert_eq!(kind(result), JournalErrorKind::Fenced),
            _ => result.unwrap(),
        }
    }
    drop((stolen, logs));
    let counts = journal.list(&RunQuery::new()).await.unwrap();
    let short: Vec<_> = counts
        .iter()
        .filter(|run| run.records == 1)
        .map(|run| run.run.as_str())
        .collect();
    assert_eq!((counts.len(), short), (20, vec!["r7"]));
}

#[tokio::test]
async fn posts_are_limited_and_arrive_from_other_journals() {
    let folder = Folder::new();
    let (journal, other) = (folder.journal(), folder.journal());
    let mut open = journal.open(&run()).await.unwrap();
    let post = RunRequest::Command(ControlCommand::Pause);
    assert_eq!(
        kind(other.post(&run(), &post).await),
        JournalErrorKind::Refused,
        "it has no records yet"
    );
    add(&mut open, 0, "").await.unwrap();
    // A receiver that waited and gave up, as in `select!`, has lost nothing.
    assert!(futures_util::FutureExt::now_or_never(open.log.posted()).is_none());
    other.post(&run(), &post).await.unwrap();
    assert_eq!(
        open.log.posted().await.unwrap(),
        std::slice::from_ref(&post)
    );
    for _ in 1..1_000 {
        other.post(&run(), &post).await.unwrap();
    }
    assert_eq!(
        kind(other.post(&run(), &post).await),
        JournalErrorKind::Refused
    );
    add(&mut open, 1, "").await.unwrap();
    let mut got = 0;
    while got < 999 {
        got += open.log.posted().await.unwrap().len();
    }
    add(&mut open, 2, "").await.unwrap();
    other.post(&run(), &post).await.unwrap();
    drop(open);
    assert!(journal.remove(&run()).await.unwrap());
    let left: i64 = folder
        .sql()
        .query_row("SELECT count(*) FROM inbox", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}
