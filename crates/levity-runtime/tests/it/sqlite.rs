//! Runs in an SQLite file: many at once, two owners, foreign files, posts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use levity_core::{
    ControlCommand, EffectClass, EffectId, EffectKind, EffectNote, Entry, Journal, JournalError,
    JournalErrorKind, Limits, MachineKind, OpenRun, Opened, Outcome, Record, RunId, RunQuery,
    RunRequest, RunState, RunSummary, Timestamp, ToolCall, ToolOutput, ToolResult,
};
use levity_runtime::{Durability, MachineRun, Runtime, SqliteJournal};
use levity_test::{ManualWorld, conformance};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::driving::{Answers, Calls};

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
    Entry::Opened(Opened::new(
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

/// Checks that the content of a file leads to this error, and stays unchanged, with no file beside
/// it.
#[track_caller]
fn refused(bytes: &[u8], kind: JournalErrorKind, part: &str) {
    let folder = Folder::new();
    fs::write(folder.file(), bytes).unwrap();
    for _ in 0..2 {
        let error = SqliteJournal::new(folder.file()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(
        fs::read(folder.file()).unwrap() == bytes,
        "it was changed: {part}"
    );
    assert_eq!(folder.names(), ["runs.db"], "{part}");
}

/// Returns the bytes of a file that another program changed.
fn changed(journal: bool, change: &str) -> Vec<u8> {
    let folder = Folder::new();
    if journal {
        drop(folder.journal());
    }
    let sql = folder.sql();
    sql.execute_batch("PRAGMA journal_mode = delete").unwrap();
    sql.execute_batch(change).unwrap();
    drop(sql);
    fs::read(folder.file()).unwrap()
}

#[test]
fn damaged_database_is_rejected_and_unchanged() {
    let damaged = JournalErrorKind::Damaged;
    refused(b"name,age\nAda,36\n", damaged, "it is not an SQLite file");
    refused(b"\xff", damaged, "left as it is");
    refused(&vec![0; 10_000], damaged, "it is not an SQLite file");
    refused(
        &changed(false, "CREATE TABLE books (title)"),
        damaged,
        "it is another program's",
    );
    refused(
        &changed(
            false,
            "PRAGMA journal_mode = wal; CREATE TABLE books (title)",
        ),
        damaged,
        "it is another program's",
    );
    refused(
        &changed(true, "PRAGMA user_version = 2"),
        JournalErrorKind::Version,
        "use a newer one",
    );
    refused(
        &changed(true, "PRAGMA user_version = 0"),
        damaged,
        "it is another program's",
    );
    refused(
        &changed(true, "DROP TABLE inbox"),
        damaged,
        "`inbox_run` is not as levity makes it",
    );
    refused(
        &changed(true, "ALTER TABLE runs DROP COLUMN fence"),
        damaged,
        "`runs` is not as levity makes it",
    );
    // These are forged posts, which would approve calls.
    let posts = "SELECT 1 AS id, 1 AS run, '{}' AS post";
    for forged in [
        format!("DROP TABLE inbox; CREATE VIEW inbox AS {posts}"),
        format!(
            "DROP INDEX inbox_run; DROP TABLE inbox; CREATE VIEW v AS {posts}; CREATE VIRTUAL \
            TABLE inbox USING fts5(id, run, post, content='v', content_rowid='id')"
        ),
        "ALTER TABLE runs RENAME TO other; CREATE VIEW runs AS SELECT * FROM other".to_owned(),
        "ALTER TABLE records ADD COLUMN more TEXT AS (entry || '')".to_owned(),
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN INSERT INTO inbox (run, post) VALUES \
            (new.run, '{}'); END"
            .to_owned(),
    ] {
        refused(
            &changed(true, &forged),
            damaged,
            "is not as levity makes it",
        );
    }
    let whole = changed(true, "SELECT 1");
    refused(
        &whole[..whole.len() / 2],
        damaged,
        "SQLite finds flaws in it",
    );
    let mut page = whole;
    page[100..200].fill(0xff);
    refused(&page, damaged, "SQLite finds flaws in it");
}

#[tokio::test]
async fn damage_of_a_run_is_reported_for_that_run_only() {
    for (flaw, part) in [
        (
            "DELETE FROM records WHERE run = 1 AND seq = 1",
            "record 1 is missing",
        ),
        (
            "DELETE FROM records WHERE run = 1 AND seq = 2",
            "has 2 records but should have 3",
        ),
        (
            "UPDATE records SET entry = '{\"of_a_newer_kind\":{}}' WHERE run = 1 AND seq = 1",
            "record 1 is damaged",
        ),
        (
            "UPDATE records SET entry = x'ff' WHERE run = 1 AND seq = 1",
            "record 1 is damaged",
        ),
    ] {
        let folder = Folder::new();
        let journal = folder.journal();
        for id in ["r", "other"] {
            let mut open = journal.open(&RunId::new(id)).await.unwrap();
            for seq in 0..3 {
                add(&mut open, seq, "text").await.unwrap();
            }
        }
        folder.sql().execute(flaw, []).unwrap();
        for error in [
            journal.open(&run()).await.map(drop).unwrap_err(),
            journal.read(&run()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), JournalErrorKind::Damaged);
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(
            journal
                .open(&RunId::new("other"))
                .await
                .unwrap()
                .records
                .len(),
            3
        );
    }
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
async fn expired_lease_rejects_appends() {
    let folder = Folder::new();
    let lease = Duration::from_secs(10);
    let (early, late) = (ManualWorld::new(), ManualWorld::new());
    let first = folder.journal().with_lease(lease).with_world(early.clone());
    let second = folder.journal().with_lease(lease).with_world(late.clone());
    let mut paused = first.open(&run()).await.unwrap();
    add(&mut paused, 0, "").await.unwrap();
    late.advance(lease - Duration::from_millis(1));
    assert_eq!(kind(second.open(&run()).await), JournalErrorKind::Busy);
    late.advance(Duration::from_millis(1));
    let mut taken = second.open(&run()).await.unwrap();
    assert_eq!(taken.records.len(), 1);
    add(&mut taken, 1, "the second's").await.unwrap();

    for _ in 0..2 {
        assert_eq!(
            kind(add(&mut paused, 1, "the first's").await),
            JournalErrorKind::Fenced
        );
    }
    // It no longer owns the run that it releases.
    drop(paused);
    assert_eq!(kind(first.open(&run()).await), JournalErrorKind::Busy);
    add(&mut taken, 2, "the second's").await.unwrap();
    let records = first.read(&run()).await.unwrap();
    let text = serde_json::to_string(&records).unwrap();
    assert_eq!((records.len(), text.contains("the first's")), (3, false));
}

#[tokio::test]
async fn clock_set_back_does_not_allow_two_writers() {
    let folder = Folder::new();
    let (first, second) = (ManualWorld::new(), ManualWorld::new());
    let ahead = folder.journal().with_world(first.clone());
    let behind = folder.journal().with_world(second.clone());
    first.advance(Duration::from_secs(3_600));
    let mut one = ahead.open(&run()).await.unwrap();
    add(&mut one, 0, "").await.unwrap();
    // With a clock an hour behind, the lease seems longer than it is; with one ahead, it has
    // expired.
    assert_eq!(kind(behind.open(&run()).await), JournalErrorKind::Busy);
    second.advance(Duration::from_secs(7_200));
    let mut other = behind.open(&run()).await.unwrap();
    assert_eq!(kind(add(&mut one, 1, "").await), JournalErrorKind::Fenced);
    add(&mut other, 1, "").await.unwrap();
    drop(one);
    // The same owner as before, while its old log was fenced.
    first.advance(Duration::from_secs(7_200));
    let mut again = ahead.open(&run()).await.unwrap();
    assert_eq!(kind(add(&mut other, 2, "").await), JournalErrorKind::Fenced);
    add(&mut again, 2, "").await.unwrap();
    // Back to the other, whose fenced log still exists and gets no posts for the new one.
    second.advance(Duration::from_secs(36_000));
    let mut newest = behind.open(&run()).await.unwrap();
    assert_eq!(kind(other.log.posted().await), JournalErrorKind::Fenced);
    ahead
        .post(&run(), &RunRequest::Command(ControlCommand::Pause))
        .await
        .unwrap();
    assert_eq!(newest.log.posted().await.unwrap().len(), 1);
    assert_eq!(behind.read(&run()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn removed_and_recreated_id_is_another_run() {
    let folder = Folder::new();
    let (early, late) = (
        folder.journal().with_world(ManualWorld::new()),
        folder.journal(),
    );
    let mut stale = early.open(&run()).await.unwrap();
    add(&mut stale, 0, "").await.unwrap();
    assert!(late.remove(&run()).await.unwrap());
    let mut fresh = early.open(&run()).await.unwrap();
    assert_eq!(kind(add(&mut stale, 1, "").await), JournalErrorKind::Fenced);
    drop(stale);
    assert_eq!(kind(early.open(&run()).await), JournalErrorKind::Busy);
    add(&mut fresh, 0, "").await.unwrap();
    assert_eq!(early.read(&run()).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_opens_of_a_run_have_one_winner() {
    let folder = Folder::new();
    drop(folder.journal());
    for round in 0..10 {
        let id = RunId::from(format!("r{round}"));
        let opens: Vec<_> = (0..8)
            .map(|_| {
                let (journal, id) = (folder.journal(), id.clone());
                async move {
                    tokio::task::JoinSet::from_iter([
                        async move { (journal.open(&id).await, journal) },
                    ])
                    .join_all()
                    .await
                    .remove(0)
                }
            })
            .collect();
        let opened = futures_util::future::join_all(opens).await;
        let won = opened.iter().filter(|(open, _)| open.is_ok()).count();
        assert_eq!(won, 1, "round {round}");
        for (open, _) in opened {
            assert!(open.is_ok() || kind(open) == JournalErrorKind::Busy);
        }
    }
}

#[tokio::test]
async fn ended_owner_holds_no_runs_and_is_removed() {
    let folder = Folder::new();
    drop(folder.journal());
    let sql = folder.sql();
    // This is the state that a killed process leaves: its lease continues, its file exists and is
    // not locked.
    let far = i64::MAX;
    sql.execute(
        "INSERT INTO owners (id, expires) VALUES (7, ?1), (8, ?1)",
        [far],
    )
    .unwrap();
    sql.execute(
        "INSERT INTO runs (id, owner) VALUES ('r', 7), ('q', 8), ('p', 9)",
        [],
    )
    .unwrap();
    let owners = folder.0.join("runs.db-owners");
    fs::create_dir(&owners).unwrap();
    fs::write(owners.join("0000000000000007"), "").unwrap();
    let journal = folder.journal();
    for id in ["r", "q", "p"] {
        add(&mut journal.open(&RunId::new(id)).await.unwrap(), 0, "")
            .await
            .unwrap();
    }
    let left: i64 = sql
        .query_row("SELECT count(*) FROM owners", [], |row| row.get(0))
        .unwrap();
    assert_eq!(
        (left, fs::read_dir(&owners).unwrap().count()),
        (1, 1),
        "only this journal's own"
    );
    drop(journal);
    // The thread ends on its own, without a notification.
    while owners.exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn locked_database_returns_error_instead_of_hanging() {
    let folder = Folder::new();
    let journal = folder.journal();
    let mut open = journal.open(&run()).await.unwrap();
    add(&mut open, 0, "").await.unwrap();
    let sql = folder.sql();
    sql.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = add(&mut open, 1, "").await.unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Io);
    assert!(
        error.to_string().contains("another program keeps it busy"),
        "{error}"
    );
    assert_eq!(
        journal.read(&run()).await.unwrap().len(),
        1,
        "who reads is not held up"
    );
    drop(open);
    sql.execute_batch("ROLLBACK").unwrap();
    let mut open = journal.open(&run()).await.unwrap();
    add(&mut open, 1, "").await.unwrap();
    assert_eq!(journal.read(&run()).await.unwrap().len(), 2);
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

/// Writes a run of a few short records.
async fn short(journal: &SqliteJournal) -> Vec<Record> {
    let mut open = journal.open(&run()).await.unwrap();
    let records = vec![
        record(0, opened()),
        record(1, result("a b, c", None)),
        record(2, Entry::Ended(levity_core::Status::Complete)),
    ];
    open.log.append(&records).await.unwrap();
    records
}

/// Returns `true` if a change of the file is reported, or changes no record.
async fn is_told(journal: &SqliteJournal, records: &[Record]) -> bool {
    match journal.read(&run()).await {
        Ok(found) => found == records,
        Err(error) => error.kind() == JournalErrorKind::Damaged,
    }
}

#[tokio::test]
async fn every_flipped_bit_of_row_is_detected() {
    let folder = Folder::new();
    let journal = folder.journal();
    let records = short(&journal).await;
    let sql = folder.sql();
    sql.execute_batch("PRAGMA synchronous = OFF").unwrap();
    for seq in 0..3_i64 {
        let entry: String = sql
            .query_row("SELECT entry FROM records WHERE seq = ?1", [seq], |row| {
                row.get(0)
            })
            .unwrap();
        // The first record is long, and a checksum treats its bits alike.
        for bit in (0..8 * entry.len()).step_by(if seq == 0 { 7 } else { 1 }) {
            let mut flipped = entry.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let change = "UPDATE records SET entry = CAST(?2 AS TEXT) WHERE seq = ?1";
            sql.execute(change, rusqlite::params![seq, flipped])
                .unwrap();
            let found = journal.read(&run()).await.map_err(|error| error.kind());
            assert_eq!(
                found,
                Err(JournalErrorKind::Damaged),
                "record {seq}, bit {bit}"
            );
        }
        sql.execute(
            "UPDATE records SET entry = ?2 WHERE seq = ?1",
            rusqlite::params![seq, entry],
        )
        .unwrap();
        for column in ["at", "crc"] {
            for bit in 0..63 {
                let flip = format!(
                    "UPDATE records SET {column} = ({column} | ?2) - ({column} & ?2) WHERE seq = ?1"
                );
                sql.execute(&flip, [seq, 1_i64 << bit]).unwrap();
                let found = journal.read(&run()).await.map_err(|error| error.kind());
                assert_eq!(
                    found,
                    Err(JournalErrorKind::Damaged),
                    "record {seq}, bit {bit} of {column}"
                );
                sql.execute(&flip, [seq, 1_i64 << bit]).unwrap();
            }
        }
    }
    assert_eq!(journal.read(&run()).await.unwrap(), records);
}

#[tokio::test]
async fn every_flipped_bit_of_row_on_disk_is_detected_or_harmless() {
    let folder = Folder::new();
    let journal = folder.journal();
    let records = short(&journal).await;
    folder
        .sql()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let whole = fs::read(folder.file()).unwrap();
    let text = b"{\"ended\":\"complete\"}";
    let at = whole
        .windows(text.len())
        .position(|part| part == text)
        .unwrap();
    // These are SQLite's header of a row, the values, and the checksum behind them.
    for bit in 8 * (at - 12)..8 * (at + text.len() + 6) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let copy = Folder::new();
        fs::write(copy.file(), &flipped).unwrap();
        let told = match SqliteJournal::new(copy.file()) {
            Ok(journal) => is_told(&journal, &records).await,
            Err(error) => error.kind() == JournalErrorKind::Damaged,
        };
        assert!(
            told,
            "bit {bit}, {} bytes behind the text's start",
            (bit / 8).cast_signed() - at.cast_signed()
        );
    }
}

#[tokio::test]
async fn files_of_versions_without_checksums_are_read_and_continued() {
    let folder = Folder::new();
    let mut records = short(&folder.journal()).await;
    records.pop();
    let sql = folder.sql();
    let older =
        "DELETE FROM records WHERE seq = 2; UPDATE runs SET records = 2, status = NULL, state = 0;
                 DROP TABLE snapshots; ALTER TABLE records DROP COLUMN crc";
    sql.execute_batch(older).unwrap();
    let journal = folder.journal();
    let mut open = loop {
        match journal.open(&run()).await {
            // The thread of the first journal has not released the run yet.
            Err(error) if error.kind() == JournalErrorKind::Busy => tokio::task::yield_now().await,
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(open.records, records);
    add(&mut open, 2, "new").await.unwrap();
    drop(open);
    // This is a row as an older version writes it into a newer file.
    let insert =
        "INSERT INTO records (run, seq, at, entry) VALUES (1, 3, 7, '{\"ended\":\"complete\"}');
                  UPDATE runs SET records = 4";
    sql.execute_batch(insert).unwrap();
    assert_eq!(folder.journal().read(&run()).await.unwrap().len(), 4);
    let checked: i64 = sql
        .query_row(
            "SELECT count(*) FROM records WHERE crc IS NOT NULL",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(checked, 1);
    sql.execute("UPDATE records SET at = 8 WHERE seq = 2", [])
        .unwrap();
    let error = folder.journal().read(&run()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("run `r`: record 2 is damaged: its checksum"),
        "{error}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn database_file_is_created_for_owner_only() {
    use crate::files::{rights_of_others, share};
    let folder = Folder::new();
    let journal = folder.journal();
    let _open = journal.open(&RunId::new("r")).await.unwrap();
    let rights = rights_of_others(&folder.0);
    assert!(
        rights.iter().any(|(path, _)| path.ends_with("runs.db-wal")),
        "{rights:?}"
    );
    assert!(
        rights
            .iter()
            .any(|(path, _)| path.ends_with("runs.db-owners")),
        "{rights:?}"
    );
    assert!(rights.iter().all(|(_, rights)| *rights == 0), "{rights:?}");
    assert_eq!(journal.problems(), [""; 0]);
    share(&folder.file(), 0o640);
    let is_reached = folder.0.ancestors().all(|above| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(above).unwrap().permissions().mode() & 0o011 != 0
    });
    let problems = folder.journal().problems();
    assert_eq!(problems.len(), usize::from(is_reached), "{problems:?}");
    assert!(
        problems
            .iter()
            .all(|problem| problem.contains("chmod go-rwx '")),
        "{problems:?}"
    );
}

#[cfg(unix)]
#[test]
fn database_file_is_not_created_through_a_link() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("real.db", folder.file()).unwrap();
    let error = SqliteJournal::new(folder.file()).map(drop).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Refused, "{error}");
    assert!(
        error
            .to_string()
            .contains("is a link to a file that is not there"),
        "{error}"
    );
    assert!(!folder.0.join("real.db").exists());
}

/// In a cloned folder, `runs.db-owners` may be a link to any folder of the user.
#[cfg(unix)]
#[tokio::test]
async fn owners_remove_no_files_of_others() {
    let names = [
        "letter.txt",
        "0123456789abcdef",
        "0123456789ABCDEF",
        "0123456789abcde",
        "notes",
    ];
    let outside = Folder::new();
    names
        .iter()
        .for_each(|name| fs::write(outside.0.join(name), "mine").unwrap());
    let kept = || {
        names
            .iter()
            .filter(|name| outside.0.join(name).exists())
            .count()
    };
    let folder = Folder::new();
    let journal = folder.journal();
    let owners = folder.0.join("runs.db-owners");
    std::os::unix::fs::symlink(&outside.0, &owners).unwrap();
    assert!(journal.open(&run()).await.is_err());
    drop(journal);
    assert_eq!(kept(), names.len());

    // This is a separate folder with files and links of others in it.
    let folder = Folder::new();
    let owners = folder.0.join("runs.db-owners");
    fs::create_dir(&owners).unwrap();
    for name in ["letter.txt", "0123456789ABCDEF"] {
        fs::write(owners.join(name), "mine").unwrap();
    }
    fs::write(owners.join("00000000000000ff"), "").unwrap();
    std::os::unix::fs::symlink(
        outside.0.join("letter.txt"),
        owners.join("0123456789abcdef"),
    )
    .unwrap();
    let journal = folder.journal();
    drop(journal.open(&run()).await.unwrap());
    drop(journal);
    assert!(owners.join("letter.txt").exists() && owners.join("0123456789ABCDEF").exists());
    assert!(
        !owners.join("00000000000000ff").exists(),
        "one of ours, which nobody holds, is removed"
    );
    assert_eq!(kept(), names.len());
}
