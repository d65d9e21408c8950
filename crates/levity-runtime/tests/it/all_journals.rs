//! Common behaviour of all journals, and changes from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use levity_core::{
    ControlCommand, Digest, EffectClass, EffectId, EffectKind, EffectNote, Entry, Journal,
    JournalErrorKind, Limits, MachineKind, Outcome, Record, RunHeader, RunId, RunQuery, RunState,
    RunSummary, Status, Timestamp,
};
use levity_runtime::{Durability, FileJournal, MemoryJournal, SqliteJournal};
use rusqlite::Connection;
use serde_json::json;

/// A temporary folder of one test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stores-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> FileJournal {
        FileJournal::new(self.0.join("runs"))
            .unwrap()
            .with_durability(Durability::Buffered)
    }

    fn db(&self) -> PathBuf {
        self.0.join("runs.db")
    }

    fn sqlite(&self) -> SqliteJournal {
        SqliteJournal::new(self.db())
            .unwrap()
            .with_durability(Durability::Buffered)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn opened(child: bool) -> Entry {
    let mut opened = RunHeader::new(MachineKind::new("m", 1), json!({}), Limits::default());
    opened.origin = child.then_some(Digest::EMPTY);
    Entry::Opened(opened)
}

fn records(at: u64, entries: Vec<Entry>) -> Vec<Record> {
    (0..)
        .zip(entries)
        .map(|(seq, entry)| Record::new(seq, Timestamp::from_millis(at + seq / 2), entry))
        .collect()
}

/// A source of pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn entry(&mut self) -> Entry {
        let effect = EffectId::new(self.below(4));
        match self.below(12) {
            0..=4 => {
                let kinds = [
                    EffectKind::Ask,
                    EffectKind::Wait,
                    EffectKind::Model,
                    EffectKind::Tool,
                    EffectKind::Child,
                ];
                let mut note =
                    EffectNote::new(kinds[self.below(5) as usize], "it", EffectClass::ReadOnly);
                let times = [
                    None,
                    Some(0),
                    Some(5),
                    Some(9),
                    Some(i64::MAX as u64),
                    Some(u64::MAX),
                ];
                note.until = times[self.below(6) as usize].map(Timestamp::from_millis);
                Entry::Started { effect, note }
            }
            5 | 6 => Entry::finished(effect, Outcome::Unknown),
            7 => Entry::Cleared { effect },
            8 => Entry::Commanded(ControlCommand::Pause),
            9 => Entry::Commanded(ControlCommand::Resume),
            10 => Entry::Commanded(ControlCommand::Cancel {
                reason: "x".repeat(self.below(2) as usize * 70_000),
            }),
            _ => match self.below(4) {
                0 => Entry::Ended(Status::Complete),
                1 => Entry::Ended(Status::Cancelled {
                    reason: "y".repeat(self.below(2) as usize * 70_000),
                }),
                2 => Entry::Ended(Status::Partial(levity_core::Limit::Tokens)),
                _ => Entry::Ended(Status::BestEffort(levity_core::Limit::Tokens)),
            },
        }
    }

    fn query(&mut self) -> RunQuery {
        let mut query = RunQuery::new();
        let time = |dice: &mut Self| {
            let times = [0, 1, 3, 5, 9, i64::MAX as u64 - 1, u64::MAX];
            Timestamp::from_millis(times[dice.below(7) as usize])
        };
        if self.below(3) == 0 {
            query = query.state(RunState::ALL[self.below(4) as usize]);
        }
        if self.below(4) == 0 {
            query = query.roots();
        }
        if self.below(4) == 0 {
            query = query.below(RunId::new(["a", "a.1", "b", "a."][self.below(4) as usize]));
        }
        if self.below(4) == 0 {
            query = query.since(time(self));
        }
        if self.below(4) == 0 {
            query = query.before(time(self));
        }
        if self.below(4) == 0 {
            query = query.due(time(self));
        }
        if self.below(3) == 0 {
            query = query.limit(self.below(4) as usize);
        }
        if self.below(2) == 0 {
            query = query.newest_first();
        }
        query
    }
}

#[tokio::test]
async fn list_of_every_journal_equals_fold() {
    let ids = [
        "a", "a.1", "a.1.1", "a.2", "a-b", "ab", "b", "b.1", "a.", "A",
    ];
    for seed in 1..12 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let folder = Folder::new();
        let journals: [Box<dyn Journal>; 3] = [
            Box::new(MemoryJournal::new()),
            Box::new(folder.files()),
            Box::new(folder.sqlite()),
        ];
        for id in ids {
            let id = RunId::new(id);
            let mut entries = vec![opened(dice.below(2) == 0)];
            for _ in 0..dice.below(8) {
                let entry = dice.entry();
                let last = matches!(entry, Entry::Ended(_));
                entries.push(entry);
                if last {
                    break;
                }
            }
            let records = records(dice.below(4), entries);
            let cut = dice.below(records.len() as u64 + 1) as usize;
            for journal in &journals {
                journal
                    .open(&id)
                    .await
                    .unwrap()
                    .log
                    .append(&records[..cut])
                    .await
                    .unwrap();
                journal
                    .open(&id)
                    .await
                    .unwrap()
                    .log
                    .append(&records[cut..])
                    .await
                    .unwrap();
            }
        }
        for _ in 0..60 {
            let query = dice.query();
            let expected = journals[0].list(&query).await.unwrap();
            for (name, journal) in [("files", &journals[1]), ("sqlite", &journals[2])] {
                let found = journal.list(&query).await.unwrap();
                assert!(
                    found == expected,
                    "seed {seed}: {name}: {query:?}\n{found:#?}\n{expected:#?}"
                );
            }
        }
        assert!(journals[0].remove(&RunId::new("a")).await.unwrap());
        for journal in &journals[1..] {
            assert!(journal.remove(&RunId::new("a")).await.unwrap());
            assert_eq!(
                journal.list(&RunQuery::new()).await.unwrap(),
                journals[0].list(&RunQuery::new()).await.unwrap()
            );
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn pipe_in_folder_does_not_block_readers() {
    let folder = Folder::new();
    let journal = folder.files();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.0.join("runs/p.jsonl"))
        .status()
        .unwrap();
    assert!(made.success());
    let run = RunId::new("p");
    assert_eq!(
        journal.open(&run).await.unwrap_err().kind(),
        JournalErrorKind::Refused
    );
    let read = tokio::time::timeout(Duration::from_secs(3), journal.read(&run)).await;
    if read.is_err() {
        // This frees the thread that waits for a writer.
        drop(
            fs::OpenOptions::new()
                .write(true)
                .open(folder.0.join("runs/p.jsonl")),
        );
    }
    assert_eq!(
        read.expect("it hangs").unwrap_err().kind(),
        JournalErrorKind::Refused
    );
}

#[tokio::test]
async fn removal_leaves_files_that_are_not_runs() {
    let folder = Folder::new();
    let journal = folder.files();
    let run = RunId::new("train");
    journal
        .open(&run)
        .await
        .unwrap()
        .log
        .append(&records(1, vec![opened(false)]))
        .await
        .unwrap();
    journal
        .open(&RunId::new("train.1"))
        .await
        .unwrap()
        .log
        .append(&records(1, vec![opened(true)]))
        .await
        .unwrap();
    let file = |name: &str| folder.0.join("runs").join(name);
    fs::copy(file("train.jsonl"), file("train.backup.jsonl")).unwrap();
    fs::write(file("train.2026.jsonl"), "{\"question\":\"6 * 7\"}\n").unwrap();
    assert!(journal.remove(&run).await.unwrap());
    let mut left: Vec<_> = fs::read_dir(folder.0.join("runs"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["train.2026.jsonl", "train.backup.jsonl"]);
}

#[tokio::test]
async fn damaged_complete_last_line_is_not_cut_off() {
    let folder = Folder::new();
    let journal = folder.files();
    let run = RunId::new("r");
    let written = records(
        1,
        vec![
            opened(false),
            Entry::finished(EffectId::new(0), Outcome::Unknown),
        ],
    );
    journal
        .open(&run)
        .await
        .unwrap()
        .log
        .append(&written)
        .await
        .unwrap();
    let path = folder.0.join("runs/r.jsonl");
    let mut bytes = fs::read(&path).unwrap();
    let start = bytes[..bytes.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap()
        + 1;
    // This flips one bit of the first quote of the last record.
    bytes[start + 1] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let opened = journal
        .open(&run)
        .await
        .map(|open| open.records.len())
        .map_err(|error| error.kind());
    assert_eq!(opened, Err(JournalErrorKind::Damaged));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[cfg(unix)]
#[tokio::test]
async fn runs_have_one_driver_under_every_path_of_the_file() {
    let folder = Folder::new();
    let run = RunId::new("r");
    let journal = folder.sqlite();
    let mut open = journal.open(&run).await.unwrap();
    open.log
        .append(&records(1, vec![opened(false)]))
        .await
        .unwrap();
    let link = folder.0.join("link.db");
    std::os::unix::fs::symlink(folder.db(), &link).unwrap();
    let other = SqliteJournal::new(&link).unwrap();
    assert_eq!(
        other.open(&run).await.map(drop).unwrap_err().kind(),
        JournalErrorKind::Busy
    );
    assert!(
        open.log
            .append(&[Record::new(
                1,
                Timestamp::from_millis(2),
                Entry::Commanded(ControlCommand::Pause)
            )])
            .await
            .is_ok()
    );
    let slashes = format!("//{}", folder.db().display());
    SqliteJournal::new(slashes).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn removed_or_replaced_file_rejects_appends() {
    for replaced in [false, true] {
        let folder = Folder::new();
        let run = RunId::new("r");
        let journal = folder.sqlite();
        let mut open = journal.open(&run).await.unwrap();
        open.log
            .append(&records(1, vec![opened(false)]))
            .await
            .unwrap();
        for name in ["runs.db", "runs.db-wal", "runs.db-shm"] {
            let _ = fs::rename(folder.0.join(name), folder.0.join(format!("old-{name}")));
        }
        if replaced {
            let fresh = folder.sqlite();
            fresh
                .open(&run)
                .await
                .unwrap()
                .log
                .append(&records(1, vec![opened(false)]))
                .await
                .unwrap();
        }
        let more = [Record::new(
            1,
            Timestamp::from_millis(2),
            Entry::Commanded(ControlCommand::Pause),
        )];
        assert!(
            open.log.append(&more).await.is_err(),
            "replaced: {replaced}"
        );
        assert!(journal.read(&run).await.is_err(), "replaced: {replaced}");
        assert!(
            journal.open(&RunId::new("q")).await.is_err(),
            "replaced: {replaced}"
        );
    }
}

#[tokio::test]
async fn unreadable_row_does_not_hide_other_runs() {
    let folder = Folder::new();
    let journal = folder.sqlite();
    for id in ["a", "b", "c"] {
        let ended = Entry::Ended(Status::Complete);
        journal
            .open(&RunId::new(id))
            .await
            .unwrap()
            .log
            .append(&records(1, vec![opened(false), ended]))
            .await
            .unwrap();
    }
    let sql = Connection::open(folder.db()).unwrap();
    sql.execute(
        "UPDATE runs SET status = '\"of_a_newer_kind\"' WHERE id = 'a'",
        [],
    )
    .unwrap();
    sql.execute(
        "UPDATE runs SET waiting = 'no list', opened = 'x' WHERE id = 'b'",
        [],
    )
    .unwrap();
    let names = async |query: RunQuery| -> Vec<String> {
        journal
            .list(&query)
            .await
            .unwrap()
            .into_iter()
            .map(|run: RunSummary| run.run.to_string())
            .collect()
    };
    assert!(names(RunQuery::new()).await.contains(&"c".to_owned()));
    assert!(
        names(RunQuery::new().state(RunState::Answered))
            .await
            .contains(&"c".to_owned())
    );
}

/// A first append of many records, killed at any moment: `levity_runtime::import`, or a fork.
#[cfg(unix)]
#[tokio::test]
async fn first_append_of_many_records_is_atomic() {
    let folder = Folder::new();
    let journal = folder.files();
    let text = "x".repeat(1_000);
    let entries = (0..4_000).map(|n| match n {
        0 => opened(false),
        _ => Entry::Commanded(ControlCommand::Cancel {
            reason: text.clone(),
        }),
    });
    let all = records(1, entries.collect());
    let path = folder.0.join("runs/r.jsonl");
    // These are the files that a process killed at that moment would have left behind.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let watcher = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut seen = std::collections::BTreeSet::new();
            while stopped.try_recv().is_err() {
                seen.extend(fs::metadata(&path).ok().map(|there| there.len()));
            }
            seen
        }
    });
    let mut open = journal.open(&RunId::new("r")).await.unwrap();
    open.log.append(&all).await.unwrap();
    let whole = fs::metadata(&path).unwrap().len();
    stop.send(()).unwrap();
    assert!(
        watcher
            .join()
            .unwrap()
            .into_iter()
            .all(|len| len == 0 || len == whole)
    );
    // It is the same log as before: locked, at its end, and in its place.
    assert_eq!(
        journal
            .open(&RunId::new("r"))
            .await
            .map(drop)
            .unwrap_err()
            .kind(),
        JournalErrorKind::Busy
    );
    let more = Record::new(
        4_000,
        Timestamp::from_millis(2),
        Entry::Commanded(ControlCommand::Pause),
    );
    open.log.append(std::slice::from_ref(&more)).await.unwrap();
    drop(open);
    assert_eq!(journal.read(&RunId::new("r")).await.unwrap().len(), 4_001);
    assert_eq!(fs::read_dir(folder.0.join("runs")).unwrap().count(), 1);
}

#[tokio::test]
async fn run_with_more_children_than_open_files_is_removed() {
    let folder = Folder::new();
    let journal = folder.files();
    let ids = std::iter::once("r".to_owned()).chain((0..1_100).map(|n| format!("r.{n}")));
    for id in ids {
        let mut open = journal.open(&RunId::from(id)).await.unwrap();
        open.log
            .append(&records(1, vec![opened(false)]))
            .await
            .unwrap();
    }
    let driven = journal.open(&RunId::new("r.700")).await.unwrap();
    assert_eq!(
        journal.remove(&RunId::new("r")).await.unwrap_err().kind(),
        JournalErrorKind::Busy
    );
    assert_eq!(journal.list(&RunQuery::new()).await.unwrap().len(), 1_101);
    drop(driven);
    assert!(journal.remove(&RunId::new("r")).await.unwrap());
    assert_eq!(fs::read_dir(folder.0.join("runs")).unwrap().count(), 0);
}
