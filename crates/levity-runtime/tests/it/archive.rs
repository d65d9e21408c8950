//! Runs that are moved from one journal to another, and runs that have ended.

use std::error::Error as _;
use std::fs;

use async_trait::async_trait;
use levity_core::{
    ControlCommand, Digest, Entry, Journal, JournalError, JournalErrorKind, Limits, MachineKind,
    OpenRun, Record, RunHeader, RunId, RunLog, RunQuery, RunSummary, RuntimeError, Status,
    Timestamp,
};
use levity_runtime::{FileJournal, MemoryJournal, NoJournal, export, import, remove_ended_before};
use levity_test::FaultyJournal;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::files::{Folder, opened, resealed, result, sealed, write_to};

fn id(run: &str) -> RunId {
    RunId::new(run)
}

fn child() -> Entry {
    let mut opened = RunHeader::new(MachineKind::new("calls", 1), Value::Null, Limits::default());
    opened.origin = Some(Digest::EMPTY);
    Entry::Opened(opened)
}

/// Fills a journal with a run with two children, long texts, and other runs.
async fn fill(journal: &dyn Journal) {
    let ended = || Entry::Ended(Status::Complete);
    let long = result(&"ä".repeat(50_000), None);
    let tricky = result(
        "",
        Some(json!({"$body": "x", "n": 1.5e300, "t": "y".repeat(70_000)})),
    );
    write_to(
        journal,
        &id("r"),
        vec![opened(), long.clone(), tricky, ended()],
    )
    .await;
    write_to(journal, &id("r.2"), vec![child(), long]).await;
    write_to(journal, &id("r.2.1"), vec![child(), ended()]).await;
    write_to(journal, &id("r2"), vec![opened()]).await;
    write_to(journal, &id("q"), vec![opened()]).await;
}

async fn exported() -> Vec<u8> {
    let journal = MemoryJournal::new();
    fill(&journal).await;
    export(&journal, &id("r")).await.unwrap()
}

#[tokio::test]
async fn export_and_import_round_trip_is_byte_identical() {
    let (from, to, memory) = (Folder::new(), Folder::new(), MemoryJournal::new());
    fill(&from.journal()).await;
    let first = export(&from.journal(), &id("r")).await.unwrap();
    let runs = ["r", "r.2", "r.2.1"].map(id);
    assert_eq!(import(&memory, &first).await.unwrap(), runs);
    let second = export(&memory, &id("r")).await.unwrap();
    assert!(first == second, "the exports differ");
    assert_eq!(import(&to.journal(), &second).await.unwrap(), runs);
    for run in &runs {
        let file = |folder: &Folder| fs::read(folder.0.join(format!("{run}.jsonl"))).unwrap();
        assert!(file(&from) == file(&to), "the files of {run} differ");
        assert_eq!(
            to.journal().read(run).await.unwrap(),
            from.journal().read(run).await.unwrap()
        );
    }
    assert_eq!(to.journal().list(&RunQuery::new()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn export_of_one_run_is_a_journal_file() {
    let (folder, memory) = (Folder::new(), MemoryJournal::new());
    fill(&memory).await;
    let journal = folder.journal();
    fs::write(
        folder.0.join("r.2.1.jsonl"),
        export(&memory, &id("r.2.1")).await.unwrap(),
    )
    .unwrap();
    assert_eq!(
        journal.read(&id("r.2.1")).await.unwrap(),
        memory.records(&id("r.2.1"))
    );
    // The file of a run without long texts equals its export.
    let file = fs::read(folder.0.join("r.2.1.jsonl")).unwrap();
    assert_eq!(
        import(&MemoryJournal::new(), &file).await.unwrap(),
        [id("r.2.1")]
    );
}

#[tokio::test]
async fn export_of_missing_run_fails() {
    for journal in [&MemoryJournal::new() as &dyn Journal, &NoJournal] {
        assert!(matches!(
            export(journal, &id("r")).await,
            Err(RuntimeError::NotFound(_))
        ));
    }
    let error = import(&NoJournal, &exported().await).await.unwrap_err();
    assert!(
        matches!(&error, RuntimeError::Journal(cause) if cause.kind() == JournalErrorKind::Refused),
        "{error}"
    );
}

#[tokio::test]
async fn interrupted_import_is_completed_by_another() {
    let bytes = exported().await;
    for appends in 1..=3 {
        let journal = MemoryJournal::new();
        let failing = FaultyJournal::new(journal.clone()).fail_append(appends);
        assert!(import(&failing, &bytes).await.is_err());
        let there = journal.list(&RunQuery::new()).await.unwrap();
        assert_eq!(there.len(), appends - 1);
        assert!(
            there.iter().all(|summary| summary.run != id("r")),
            "the first run comes last"
        );
        assert_eq!(import(&journal, &bytes).await.unwrap().len(), 3);
        assert_eq!(export(&journal, &id("r")).await.unwrap(), bytes);
        assert_eq!(
            import(&journal, &bytes).await.unwrap().len(),
            3,
            "what is there is left"
        );
    }
}

#[tokio::test]
async fn import_leaves_existing_run_with_other_records() {
    let bytes = exported().await;
    for run in ["r", "r.2", "r.2.1"] {
        let journal = MemoryJournal::new();
        let records = write_to(&journal, &id(run), vec![opened()]).await;
        let error = import(&journal, &bytes).await.unwrap_err();
        assert!(
            matches!(&error, RuntimeError::Exists(there) if *there == id(run)),
            "{error}"
        );
        assert_eq!(journal.list(&RunQuery::new()).await.unwrap().len(), 1);
        assert_eq!(journal.records(&id(run)), records);
    }
}

#[track_caller]
fn check(error: &RuntimeError, at: usize, kind: JournalErrorKind, part: &str) {
    let RuntimeError::Archive { line, cause, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((*line, cause.kind()), (at, kind), "{cause}");
    assert!(cause.to_string().contains(part), "{cause}");
    assert!(error.source().is_some());
}

#[tokio::test]
async fn invalid_export_is_rejected_with_its_line() {
    let whole = String::from_utf8(exported().await).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let starts: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].starts_with("{\"levity"))
        .collect();
    assert_eq!(starts, [0, 5, 8]);
    let (damaged, version) = (JournalErrorKind::Damaged, JournalErrorKind::Version);
    let join = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let without = |gone: usize| join(&[&lines[..gone], &lines[gone + 1..]].concat());
    let deep = format!("{}{}", "[".repeat(122), "]".repeat(122));
    let unknown = sealed(&lines[10].replace("ended", "of_a_newer_kind"));
    let cases = [
        (String::new(), 1, damaged, "contains no run"),
        ("name,age\n".to_owned(), 1, damaged, "not a levity journal"),
        (lines[0].to_owned(), 1, damaged, "it is incomplete"),
        (join(&lines[..1]), 1, damaged, "has no records"),
        (without(0), 1, damaged, "not a levity journal"),
        (without(1), 2, damaged, "it is not record 0"),
        (without(2), 3, damaged, "it is not record 1"),
        (whole.trim_end().to_owned(), 11, damaged, "it is incomplete"),
        (
            join(&[&lines[..6], &lines[8..]].concat()),
            7,
            damaged,
            "has no records",
        ),
        (
            join(&[&lines[..5], &lines[8..]].concat()),
            6,
            damaged,
            "the parent of run `r.2.1` is missing",
        ),
        (
            join(&[&lines[..], &lines[5..8]].concat()),
            12,
            damaged,
            "run `r.2` occurs twice",
        ),
        (
            join(&[&lines[5..], &lines[..5]].concat()),
            7,
            damaged,
            "run `r` is not a child of `r.2`",
        ),
        (
            whole.replace(
                "\"levity_journal\":1,\"run\":\"r.2\"",
                "\"levity_journal\":2,\"run\":\"r.2\"",
            ),
            6,
            version,
            "use a newer version",
        ),
        (
            join(&[&lines[..10], &[&unknown]].concat()),
            11,
            version,
            "record 1 is a `of_a_newer_kind`, which",
        ),
        (
            resealed(&whole.replace("\"state\":null", &format!("\"state\":{deep}"))),
            7,
            damaged,
            "nested too deep",
        ),
        (
            whole.replace("\"state\":null", "\"state\":true"),
            7,
            damaged,
            "its checksum does not match",
        ),
        (
            resealed(&whole.replace(
                "\"state\":null",
                &format!("\"state\":{}", "[".repeat(100_000)),
            )),
            7,
            damaged,
            "it is not record 0",
        ),
        (
            join(&[lines[0], "{\"$aside\":{\"seq\":0}}"]),
            2,
            damaged,
            "stored in a separate folder",
        ),
        (
            join(&[&lines[..5], &lines[4..5]].concat()),
            6,
            damaged,
            "it is not record 4",
        ),
        (
            join(
                &[
                    &lines[..5],
                    &[&sealed(&lines[4].replace("\"seq\":3", "\"seq\":4"))[..]],
                ]
                .concat(),
            ),
            6,
            damaged,
            "follows the end of the run",
        ),
    ];
    for (text, line, kind, part) in cases {
        let journal = MemoryJournal::new();
        check(
            &import(&journal, text.as_bytes()).await.unwrap_err(),
            line,
            kind,
            part,
        );
        assert!(journal.list(&RunQuery::new()).await.unwrap().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn random_bytes_are_rejected_and_nothing_is_written(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
        junk in prop::collection::vec(any::<u8>(), 0..200),
        only_junk in any::<bool>(),
    ) {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio.block_on(async {
            let source = MemoryJournal::new();
            let run = id("r");
            let entries = vec![opened(), result("one", None), Entry::Ended(Status::Complete)];
            write_to(&source, &run, entries).await;
            let mut bytes = if only_junk {
                junk.clone()
            } else {
                export(&source, &run).await.unwrap()
            };
            for (at, byte, what) in edits {
                let at = at.index(bytes.len() + 1);
                match what {
                    0 => bytes.insert(at, byte),
                    1 => bytes.truncate(at),
                    _ => if let Some(there) = bytes.get_mut(at) { *there = byte },
                }
            }
            let journal = MemoryJournal::new();
            if import(&journal, &bytes).await.is_err() {
                assert!(journal.list(&RunQuery::new()).await.unwrap().is_empty());
            }
        });
    }
}

/// A journal whose runs continue while they are read.
struct Busy {
    inner: MemoryJournal,
}

#[async_trait]
impl Journal for Busy {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.inner.open(run).await
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.inner.list(query).await
    }

    /// Reading `r` lets it start `r.1` and that `r.1.1`, unnoticed by the reader.
    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        let records = self.inner.read(run).await?;
        if run.depth() < 2 && self.inner.records(&id(&format!("{run}.1"))).is_empty() {
            write_to(&self.inner, &id(&format!("{run}.1")), vec![child()]).await;
        }
        Ok(records)
    }
}

#[tokio::test]
async fn runs_started_during_export_are_included() {
    let journal = Busy {
        inner: MemoryJournal::new(),
    };
    write_to(&journal, &id("r"), vec![opened()]).await;
    let bytes = export(&journal, &id("r")).await.unwrap();
    assert_eq!(
        import(&MemoryJournal::new(), &bytes).await.unwrap(),
        ["r", "r.1", "r.1.1"].map(id)
    );
}

async fn write_at(journal: &dyn Journal, run: &str, ended: Option<u64>) {
    let mut open = journal.open(&id(run)).await.unwrap();
    let mut records = vec![Record::new(0, Timestamp::from_millis(1), opened())];
    let last = match ended {
        Some(time) => Record::new(
            1,
            Timestamp::from_millis(time),
            Entry::Ended(Status::Complete),
        ),
        None => Record::new(
            1,
            Timestamp::from_millis(1),
            Entry::Commanded(ControlCommand::Pause),
        ),
    };
    records.push(last);
    open.log.append(&records).await.unwrap();
}

#[tokio::test]
async fn only_runs_ended_before_the_time_are_removed() {
    let folder = Folder::new();
    let files: FileJournal = folder.journal();
    let memory = MemoryJournal::new();
    for journal in [&memory as &dyn Journal, &files] {
        let runs = [
            ("old", Some(10)),
            ("new", Some(20)),
            ("open", None),
            ("a", Some(5)),
            ("a.b", None),
        ];
        for (run, ended) in
            runs.into_iter()
                .chain([("b", Some(5)), ("b.c", Some(6)), ("held", Some(5))])
        {
            write_at(journal, run, ended).await;
        }
        write_to(journal, &id("old.1"), vec![child()]).await;
        let held: Box<dyn RunLog> = journal.open(&id("held")).await.unwrap().log;
        let removed = remove_ended_before(journal, Timestamp::from_millis(20))
            .await
            .unwrap();
        let left = journal.list(&RunQuery::new()).await.unwrap();
        let left: Vec<_> = left.iter().map(|run| run.run.as_str()).collect();
        assert_eq!(left, ["a", "a.b", "held", "new", "open"]);
        // `b.c` is removed with `b`, or before it.
        assert!((2..=3).contains(&removed), "{removed}");
        drop(held);
    }
    assert!(
        remove_ended_before(&NoJournal, Timestamp::default())
            .await
            .is_ok()
    );
}
