//! Runs in files as a whole: listed, removed, swept, fenced.

use std::fs;

use levity_core::{
    ControlCommand, EffectClass, EffectId, EffectKind, EffectNote, Entry, Failure, Journal,
    JournalErrorKind, Record, RunId, RunQuery, RunState, RunSummary, Status, Timestamp,
};
use levity_runtime::Durability;

use super::{Folder, opened, result, run, write, write_to};

fn started(effect: u64, kind: EffectKind) -> Entry {
    let note = EffectNote::new(kind, "it", EffectClass::ReadOnly);
    Entry::Started {
        effect: EffectId::new(effect),
        note,
    }
}

fn long() -> String {
    "ä".repeat(50_000)
}

/// The list equals a fold of all records, wherever the pieces end that it reads.
#[tokio::test]
async fn list_equals_fold_of_all_records() {
    let text = |len: usize| result(&"x".repeat(len), None);
    let failed = |len: usize| Entry::Ended(Status::Failed(Failure::Internal("y".repeat(len))));
    let mut cases = vec![
        vec![opened()],
        vec![
            opened(),
            started(1, EffectKind::Ask),
            started(2, EffectKind::Wait),
        ],
        vec![opened(), started(0, EffectKind::Ask), text(40_000)],
        vec![
            opened(),
            Entry::Commanded(ControlCommand::Pause),
            text(40_000),
        ],
        vec![
            opened(),
            Entry::Commanded(ControlCommand::Pause),
            Entry::Ended(Status::Complete),
        ],
        vec![
            opened(),
            text(70_000),
            started(1, EffectKind::Ask),
            text(70_000),
        ],
    ];
    for len in [
        0, 10, 3_700, 3_900, 4_000, 4_096, 4_100, 16_300, 16_384, 40_000, 64_000, 70_000,
    ] {
        cases.push(vec![
            opened(),
            text(len),
            text(len),
            Entry::Ended(Status::Complete),
        ]);
        cases.push(vec![opened(), text(100), failed(len)]);
        cases.push(vec![opened(), failed(len)]);
    }
    for (number, entries) in cases.into_iter().enumerate() {
        let folder = Folder::new();
        let journal = folder.journal().with_durability(Durability::Buffered);
        let records = write(&journal, entries).await;
        let listed = journal.list(&RunQuery::new()).await.unwrap();
        assert_eq!(
            listed,
            [RunSummary::of(&run(), &records).unwrap()],
            "case {number}"
        );
    }
}

#[tokio::test]
async fn damaged_file_does_not_hide_other_runs() {
    let folder = Folder::new();
    let journal = folder.journal();
    write(
        &journal,
        vec![opened(), result("one", None), started(3, EffectKind::Ask)],
    )
    .await;
    let whole = fs::read_to_string(folder.file()).unwrap();
    let file = |name: &str| folder.0.join(format!("{name}.jsonl"));
    let named = |name: &str| whole.replace("\"run\":\"r\"", &format!("\"run\":\"{name}\""));
    fs::write(file("copy"), &whole).unwrap();
    fs::write(
        file("newer"),
        named("newer").replace("\"levity_journal\":1", "\"levity_journal\":2"),
    )
    .unwrap();
    fs::write(
        file("torn"),
        [named("torn").as_bytes(), b"{\"seq\":3,\"at\""].concat(),
    )
    .unwrap();
    fs::write(
        file("zeros"),
        [named("zeros").as_bytes(), &[0; 50]].concat(),
    )
    .unwrap();
    fs::write(file("damaged"), named("damaged").replace("\"one\"", "\"on")).unwrap();
    let listed = journal.list(&RunQuery::new()).await.unwrap();
    let found: Vec<_> = listed
        .iter()
        .map(|run| (run.run.as_str(), run.records, run.state()))
        .collect();
    let waits = RunState::Waiting;
    assert_eq!(
        found,
        [
            ("damaged", 1, RunState::Open),
            ("r", 3, waits),
            ("torn", 3, waits),
            ("zeros", 3, waits)
        ]
    );
}

#[tokio::test]
async fn interrupted_removal_can_be_repeated() {
    let ids = ["a.b", "a.b.1", "a.b.1.2", "a.b.10", "a.bc", "a", "a.b-1"].map(RunId::new);
    let within = |id: &RunId| id.as_str() == "a.b" || id.as_str().starts_with("a.b.");
    // A crash leaves the last ones; the run itself is the last of all.
    for gone in [
        &[][..],
        &["a.b.1.2"],
        &["a.b.1.2", "a.b.10"],
        &["a.b.1.2", "a.b.10", "a.b.1"],
    ] {
        let folder = Folder::new();
        let journal = folder.journal();
        for id in &ids {
            write_to(&journal, id, vec![opened()]).await;
        }
        for id in gone {
            fs::remove_file(folder.0.join(format!("{id}.jsonl"))).unwrap();
        }
        assert!(journal.remove(&ids[0]).await.unwrap());
        let left = journal.list(&RunQuery::new()).await.unwrap();
        let left: Vec<_> = left.into_iter().map(|run| run.run).collect();
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(!left.iter().any(within), "{left:?}");
        assert!(!journal.remove(&ids[0]).await.unwrap());
    }
}

#[tokio::test]
async fn run_is_not_removed_while_a_child_is_driven() {
    let folder = Folder::new();
    let (journal, other) = (folder.journal(), folder.journal());
    for id in ["r", "r.1", "r.2", "r.2.1"] {
        write_to(&journal, &RunId::new(id), vec![opened()]).await;
    }
    for id in ["r", "r.1", "r.2.1"] {
        let held = other.open(&RunId::new(id)).await.unwrap();
        assert_eq!(
            journal.remove(&run()).await.unwrap_err().kind(),
            JournalErrorKind::Busy,
            "{id}"
        );
        assert_eq!(
            journal.list(&RunQuery::new()).await.unwrap().len(),
            4,
            "{id}"
        );
        drop(held);
    }
    assert!(journal.remove(&run()).await.unwrap());
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[tokio::test]
async fn sweep_removes_only_unreferenced_texts() {
    let folder = Folder::new();
    let journal = folder.journal();
    let other = RunId::new("other");
    assert_eq!(journal.remove_unused_texts().await.unwrap(), 0);
    write(
        &journal,
        vec![
            opened(),
            result(&long(), None),
            result(&"b".repeat(70_000), None),
        ],
    )
    .await;
    let kept = write_to(&journal, &other, vec![opened(), result(&long(), None)]).await;
    // These are the remains of a text after a crash, and a foreign file.
    let name = folder.bodies()[0].with_extension("tmp-1-0x1");
    fs::write(&name, "half a te").unwrap();
    fs::write(folder.0.join("bodies/notes"), "mine").unwrap();
    assert_eq!(
        journal.remove_unused_texts().await.unwrap(),
        0,
        "both texts are named"
    );
    assert!(!name.exists());
    assert!(journal.remove(&run()).await.unwrap());
    assert_eq!(folder.bodies().len(), 3, "removing leaves them");
    assert_eq!(journal.remove_unused_texts().await.unwrap(), 1);
    assert_eq!(journal.read(&other).await.unwrap(), kept);
    assert!(folder.0.join("bodies/notes").exists());
}

#[cfg(unix)]
#[tokio::test]
async fn sweep_keeps_texts_about_to_be_referenced() {
    let folder = Folder::new();
    let journal = folder.journal().with_durability(Durability::Buffered);
    write(&journal, vec![opened(), result(&long(), None)]).await;
    // A writer has found the text and not referred to it yet: this is the lock that writers share.
    let lock = fs::File::open(folder.0.join("bodies/lock")).unwrap();
    lock.lock_shared().unwrap();
    fs::remove_file(folder.file()).unwrap();
    assert_eq!(
        journal.remove_unused_texts().await.unwrap_err().kind(),
        JournalErrorKind::Busy
    );
    assert_eq!(folder.bodies().len(), 1);
    drop(lock);
    assert_eq!(journal.remove_unused_texts().await.unwrap(), 1);
}

/// Runs that write the same text are created and removed during a sweep; none ever misses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn runs_can_write_texts_during_a_sweep() {
    let folder = Folder::new();
    let journal = folder.journal().with_durability(Durability::Buffered);
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..4 {
        let journal = journal.clone();
        writers.spawn(async move {
            let run = RunId::from(format!("r{number}"));
            for _ in 0..50 {
                let written = write_to(&journal, &run, vec![opened(), result(&long(), None)]).await;
                assert_eq!(journal.read(&run).await.unwrap(), written);
                journal.remove(&run).await.unwrap();
            }
        });
    }
    let mut swept = 0;
    while !writers.is_empty() {
        match journal.remove_unused_texts().await {
            Ok(texts) => swept += texts,
            Err(error) => assert_eq!(error.kind(), JournalErrorKind::Busy, "{error}"),
        }
        while let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
    }
    swept += journal.remove_unused_texts().await.unwrap();
    assert!(swept > 0);
    assert!(folder.bodies().is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn log_of_removed_file_rejects_appends() {
    let more = |seq| {
        [Record::new(
            seq,
            Timestamp::from_millis(6),
            result("late", None),
        )]
    };
    for (what, replaced) in [("removed", false), ("replaced", true)] {
        let folder = Folder::new();
        write(&folder.journal(), vec![opened()]).await;
        let mut open = folder.journal().open(&run()).await.unwrap();
        open.log.append(&more(1)).await.unwrap();
        fs::remove_file(folder.file()).unwrap();
        let new = if replaced {
            write(&folder.journal(), vec![opened()]).await
        } else {
            Vec::new()
        };
        for _ in 0..2 {
            let error = open.log.append(&more(2)).await.unwrap_err();
            assert!(
                matches!(
                    error.kind(),
                    JournalErrorKind::Fenced | JournalErrorKind::Io
                ),
                "{what}: {error}"
            );
        }
        drop(open);
        assert_eq!(folder.journal().read(&run()).await.unwrap(), new, "{what}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn log_of_externally_changed_file_rejects_appends() {
    for bytes in [&b"{}\n"[..], b""] {
        let folder = Folder::new();
        write(&folder.journal(), vec![opened()]).await;
        let mut open = folder.journal().open(&run()).await.unwrap();
        fs::write(folder.file(), bytes).unwrap();
        let record = Record::new(1, Timestamp::default(), result("late", None));
        let error = open.log.append(&[record]).await.unwrap_err();
        assert_eq!(error.kind(), JournalErrorKind::Fenced, "{error}");
        assert_eq!(fs::read(folder.file()).unwrap(), bytes);
    }
}
