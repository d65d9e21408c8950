//! Conversations in SQLite: the content of the file, and rejected files.

use std::fs;
use std::path::{Path, PathBuf};

use levity_core::{
    ConversationChange, ConversationId, MemoryErrorKind, MemoryStore, Message, Part, Role, Summary,
    Timestamp, ToolCall, ToolOutput, ToolResult,
};
use levity_memory::{Durability, SqliteMemory};
use rusqlite::Connection;
use serde_json::json;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("memory.db")
    }

    fn store(&self) -> SqliteMemory {
        SqliteMemory::new(self.path())
            .unwrap()
            .with_durability(Durability::Buffered)
    }

    /// Returns `true` if these bytes are anywhere in the files.
    fn contains_bytes(&self, word: &str) -> bool {
        let files = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut plain = files.filter(|path| path.is_file());
        plain.any(|path| {
            fs::read(path)
                .unwrap()
                .windows(word.len())
                .any(|bytes| bytes == word.as_bytes())
        })
    }
}

fn secret_messages(word: &str) -> Vec<Message> {
    let call = ToolCall::new("c1", "find", json!({"what": word}));
    let result = ToolResult::new(&call, Ok(ToolOutput::text(format!("{word} is here"))));
    let filler = (0..30).map(|n| {
        Message::user(format!(
            "{word} and filler {n} {}",
            "more words ".repeat(40)
        ))
    });
    let mut messages = vec![
        Message::user(format!("I say {word} twice: {word}")),
        Message::new(Role::Assistant, [Part::ToolCall(call)]),
        Message::new(Role::Tool, [Part::ToolResult(result)]),
    ];
    messages.extend(filler);
    messages
}

#[tokio::test]
async fn forgotten_and_trimmed_text_is_in_no_file() {
    let folder = Folder::new();
    let store = folder.store();
    let (forgotten, trimmed, stays) = ("qfarewellword", "jgoodbyeword", "zremainword");
    for word in [forgotten, trimmed, stays] {
        let id = ConversationId::new(word.to_uppercase());
        let change = ConversationChange::at(0)
            .with_messages(secret_messages(word))
            .with_summary(Summary::new("They met.", 1));
        store.save(&id, &change).await.unwrap();
        assert_eq!(store.search(&id, word, 99).await.unwrap().len(), 33);
        // Some messages that are not in the word index yet.
        store
            .save(
                &id,
                &ConversationChange::at(33).with_messages(secret_messages(word)),
            )
            .await
            .unwrap();
    }
    let id = |word: &str| ConversationId::new(word.to_uppercase());
    let summary =
        ConversationChange::at(66).with_summary(Summary::new(format!("All of {forgotten}"), 66));
    store.save(&id(forgotten), &summary).await.unwrap();
    assert!(
        [forgotten, trimmed, stays]
            .iter()
            .all(|word| folder.contains_bytes(word) && folder.contains_bytes(&word[1..]))
    );
    assert!(store.forget(&id(forgotten)).await.unwrap());
    store.trim(&id(trimmed), 66).await.unwrap();
    for word in [forgotten, trimmed] {
        assert!(
            !folder.contains_bytes(word) && !folder.contains_bytes(&word[1..]),
            "{word}"
        );
        assert!(
            !folder.contains_bytes(&forgotten.to_uppercase()),
            "not even its id"
        );
        assert_eq!(store.search(&id(word), word, 9).await.unwrap(), []);
    }
    assert_eq!(store.load(&id(trimmed), 0).await.unwrap().end, 66);
    assert_eq!(store.search(&id(stays), stays, 99).await.unwrap().len(), 66);
    let connection = Connection::open(folder.path()).unwrap();
    connection
        .execute("INSERT INTO words (words) VALUES ('integrity-check')", [])
        .unwrap();
}

/// Creates conversations that grow in parallel, so that SQLite moves their rows from page to page.
async fn grow_in_parallel(store: &SqliteMemory) -> Vec<(ConversationId, String)> {
    let talks: Vec<_> = (0..60)
        .map(|n| (ConversationId::new(format!("c{n}")), format!("qword{n}x")))
        .collect();
    for turn in 0..14 {
        for (n, (id, word)) in talks.iter().enumerate() {
            let text = format!("{word} {}", "y".repeat((n * 37 + turn * 101) % 900));
            store
                .save(
                    id,
                    &ConversationChange::at(turn as u64).with_messages([Message::user(text)]),
                )
                .await
                .unwrap();
        }
    }
    for (id, word) in &talks {
        assert_eq!(store.search(id, word, 99).await.unwrap().len(), 14);
    }
    talks
}

#[tokio::test]
async fn forget_leaves_no_copies_of_moved_rows() {
    let folder = Folder::new();
    let store = folder.store();
    let talks = grow_in_parallel(&store).await;
    for (id, word) in &talks[..59] {
        assert!(store.forget(id).await.unwrap());
        assert!(!folder.contains_bytes(word), "{word}");
    }
    assert!(folder.contains_bytes(&talks[59].1));
}

#[tokio::test]
async fn wipe_removes_all_trimmed_text() {
    let folder = Folder::new();
    let store = folder.store();
    let talks = grow_in_parallel(&store).await;
    for (id, _) in &talks {
        store.trim(id, 14).await.unwrap();
    }
    store.wipe().await.unwrap();
    let left: Vec<_> = talks
        .iter()
        .filter(|(_, word)| folder.contains_bytes(word))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn reader_delays_wipe_only_until_it_ends() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("a");
    store
        .save(
            &id,
            &ConversationChange::at(0).with_messages(secret_messages("qfarewellword")),
        )
        .await
        .unwrap();
    let reader = Connection::open(folder.path()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let count = || {
        reader
            .query_row("SELECT count(*) FROM messages", [], |row| {
                row.get::<_, i64>(0)
            })
            .unwrap()
    };
    assert_eq!(count(), 33);
    assert!(store.forget(&id).await.unwrap());
    assert_eq!(count(), 33, "whoever reads goes on reading");
    assert_eq!(store.load(&id, 9).await.unwrap().end, 0);
    reader.execute_batch("COMMIT").unwrap();
    // The next write moves the old pages as well.
    store
        .save(
            &"b".into(),
            &ConversationChange::at(0).with_messages([Message::user("new")]),
        )
        .await
        .unwrap();
    assert!(!folder.contains_bytes("qfarewellword"));
}

#[tokio::test]
async fn forget_removes_hold_of_killed_process() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("qfarewellword");
    store
        .save(
            &id,
            &ConversationChange::at(0).with_messages([Message::user("Hello")]),
        )
        .await
        .unwrap();
    let by_hand = Connection::open(folder.path()).unwrap();
    by_hand
        .execute(
            "INSERT INTO holds (id, owner) VALUES ('qfarewellword', 77)",
            [],
        )
        .unwrap();
    assert!(store.forget(&id).await.unwrap());
    assert!(!folder.contains_bytes("qfarewellword"));
    by_hand
        .execute(
            "INSERT INTO holds (id, owner) VALUES ('qfarewellword', 77)",
            [],
        )
        .unwrap();
    drop(store.hold(&id).await.unwrap());
    by_hand
        .execute("INSERT INTO holds (id, owner) VALUES ('another', 77)", [])
        .unwrap();
    drop(folder.store().hold(&id).await.unwrap());
    let left: i64 = by_hand
        .query_row("SELECT count(*) FROM holds WHERE owner = 77", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(left, 0, "who comes next tidies up");
}

#[tokio::test]
async fn dropped_removal_leaves_conversation_intact() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("a");
    let messages = (0..1_000).map(|n| Message::user(format!("message {n}")));
    store
        .save(&id, &ConversationChange::at(0).with_messages(messages))
        .await
        .unwrap();
    assert_eq!(
        store.search(&id, "message", 2_000).await.unwrap().len(),
        1_000
    );
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..2 {
        assert!(Future::poll(std::pin::pin!(store.forget(&id)).as_mut(), &mut cx).is_pending());
        assert!(Future::poll(std::pin::pin!(store.trim(&id, 700)).as_mut(), &mut cx).is_pending());
    }
    store
        .save(
            &id,
            &ConversationChange::at(1_000).with_messages([Message::user("message 1000")]),
        )
        .await
        .unwrap();
    assert_eq!(
        store.search(&id, "message", 2_000).await.unwrap().len(),
        1_001
    );
    store.trim(&id, 600).await.unwrap();
    assert_eq!(
        store.search(&id, "message", 2_000).await.unwrap().len(),
        401
    );
    let connection = Connection::open(folder.path()).unwrap();
    connection
        .execute("INSERT INTO words (words) VALUES ('integrity-check')", [])
        .unwrap();
    assert!(store.forget(&id).await.unwrap());
    let left: i64 = connection
        .query_row("SELECT count(*) FROM words_docsize", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn search_matches_words_best_first() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("birds");
    let texts = [
        "The heron is grey",
        "A kingfisher and a heron",
        "Grüße vom Eisvogel",
        "kingfisher kingfisher",
    ];
    store
        .save(
            &id,
            &ConversationChange::at(0).with_messages(texts.map(Message::user)),
        )
        .await
        .unwrap();
    store
        .save(
            &"other".into(),
            &ConversationChange::at(0).with_messages(texts.map(Message::user)),
        )
        .await
        .unwrap();
    let find = async |query: &str| {
        let found = store.search(&id, query, 10).await.unwrap();
        found.into_iter().map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(find("kingfisher heron").await[0], 1, "both words");
    assert_eq!(
        find("kingfisher").await,
        [3, 1],
        "more of it, in a shorter message"
    );
    assert_eq!(find("grusse").await, [2u64; 0]);
    assert_eq!(find("GRÜSSE").await, [2u64; 0]);
    assert_eq!(find("grüße").await, [2]);
    assert_eq!(find("kingfish").await, [2u64; 0], "whole words");
    assert_eq!(find("NOT heron").await.len(), 2, "a query has no syntax");
    assert_eq!(find("\"grey heron\"").await[0], 0);
    let words: Vec<_> = (0..10_000).map(|n| format!("word{n}")).collect();
    assert_eq!(find(&words.join(" ")).await, [2u64; 0]);
}

/// Checks that a file is rejected with this error, and stays unchanged.
#[track_caller]
fn check_rejected(path: &Path, kind: MemoryErrorKind) {
    let before = fs::read(path).unwrap();
    let error = SqliteMemory::new(path).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(fs::read(path).unwrap(), before);
}

#[tokio::test]
async fn foreign_files_are_rejected_and_unchanged() {
    let folder = Folder::new();
    let path = folder.path();
    fs::write(
        &path,
        "not a database at all, but long enough to have a header of a hundred bytes ".repeat(9),
    )
    .unwrap();
    check_rejected(&path, MemoryErrorKind::Damaged);
    fs::remove_file(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE theirs (a); PRAGMA application_id = 77;")
        .unwrap();
    drop(other);
    check_rejected(&path, MemoryErrorKind::Damaged);
    fs::remove_file(&path).unwrap();
    drop(SqliteMemory::new(&path).unwrap());
    let newer = Connection::open(&path).unwrap();
    newer
        .execute_batch("PRAGMA user_version = 2; PRAGMA wal_checkpoint(TRUNCATE);")
        .unwrap();
    drop(newer);
    check_rejected(&path, MemoryErrorKind::Version);
    fs::create_dir(folder.0.path().join("dir.db")).unwrap();
    let error = SqliteMemory::new(folder.0.path().join("dir.db")).unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Refused);
    fs::write(folder.0.path().join("empty.db"), "").unwrap();
    SqliteMemory::new(folder.0.path().join("empty.db")).unwrap();
}

#[tokio::test]
async fn damaged_message_is_rejected_and_unchanged() {
    let folder = Folder::new();
    let store = folder.store();
    let messages = || (0..5).map(|n| Message::user(format!("message {n}")));
    for id in ["a", "b"] {
        store
            .save(
                &id.into(),
                &ConversationChange::at(0).with_messages(messages()),
            )
            .await
            .unwrap();
    }
    let by_hand = Connection::open(folder.path()).unwrap();
    by_hand
        .execute(
            "UPDATE messages SET message = '{\"role\": hunter2' WHERE place & 4294967295 = \
        2 AND place >> 32 = 1",
            [],
        )
        .unwrap();
    let id = ConversationId::new("a");
    let error = store.load(&id, 9).await.unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Damaged);
    assert!(error.to_string().contains("message 2"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    assert_eq!(
        store.load(&id, 2).await.unwrap().messages.len(),
        2,
        "what is not looked at does not matter"
    );
    assert_eq!(
        store.search(&id, "message", 9).await.unwrap_err().kind(),
        MemoryErrorKind::Damaged
    );
    by_hand
        .execute(
            "DELETE FROM messages WHERE place & 4294967295 = 2 AND place >> 32 = 1",
            [],
        )
        .unwrap();
    assert_eq!(
        store.load(&id, 9).await.unwrap_err().kind(),
        MemoryErrorKind::Damaged
    );
    assert_eq!(store.load(&"b".into(), 9).await.unwrap().messages.len(), 5);
}

#[tokio::test]
async fn rows_with_invalid_positions_are_rejected() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("a");
    let change = ConversationChange::at(0).with_messages([Message::user("new")]);
    store.save(&id, &change).await.unwrap();
    let by_hand = Connection::open(folder.path()).unwrap();
    for wrong in [
        "first = 9",
        "next = -1",
        "next = 9223372036854775807",
        "words_to = 7",
        "words_from = 1",
        "key = -5",
    ] {
        by_hand
            .execute_batch(&format!(
                "SAVEPOINT s; UPDATE conversations SET {wrong}; RELEASE s"
            ))
            .unwrap();
        let failed = [
            store.load(&id, 9).await.map(drop),
            store.read(&id, 0, 9).await.map(drop),
            store.save(&id, &change).await,
            store.trim(&id, 1).await,
            store.search(&id, "new", 1).await.map(drop),
            store.forget(&id).await.map(drop),
        ];
        for failed in failed {
            assert_eq!(
                failed.unwrap_err().kind(),
                MemoryErrorKind::Damaged,
                "{wrong}"
            );
        }
        let right =
            "UPDATE conversations SET key = 1, first = 0, next = 1, words_from = 0, words_to = 0";
        by_hand.execute_batch(right).unwrap();
    }
    assert_eq!(store.load(&id, 9).await.unwrap().end, 1);
}

#[tokio::test]
async fn save_after_file_was_moved_returns_error() {
    let folder = Folder::new();
    let store = folder.store();
    let change = ConversationChange::at(0).with_messages([Message::user("new")]);
    store.save(&"a".into(), &change).await.unwrap();
    fs::rename(folder.path(), folder.0.path().join("away.db")).unwrap();
    assert_eq!(
        store.save(&"b".into(), &change).await.unwrap_err().kind(),
        MemoryErrorKind::Io
    );
    assert_eq!(
        store.load(&"a".into(), 1).await.unwrap_err().kind(),
        MemoryErrorKind::Io
    );
}

#[tokio::test]
async fn store_accepts_any_id_up_to_length_limit() {
    let folder = Folder::new();
    let store = folder.store();
    let long = ConversationId::new("x".repeat(1_001));
    let change = ConversationChange::at(0).with_messages([Message::user("new")]);
    assert_eq!(
        store.save(&long, &change).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
    assert_eq!(
        store.hold(&long).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
    assert_eq!(store.load(&long, 1).await.unwrap().end, 0);
    for id in ["", "a\0b", "a\0c", "'; DROP TABLE messages; --"] {
        store.save(&id.into(), &change).await.unwrap();
        assert_eq!(store.load(&id.into(), 1).await.unwrap().end, 1);
    }
}

#[tokio::test]
async fn write_after_reopening_truncates_leftover_log() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("a");
    let change = ConversationChange::at(0).with_messages(secret_messages("qfarewellword"));
    store.save(&id, &change).await.unwrap();
    let reader = Connection::open(folder.path()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let count = || {
        reader
            .query_row("SELECT count(*) FROM messages", [], |row| {
                row.get::<_, i64>(0)
            })
            .unwrap()
    };
    assert_eq!(count(), 33);
    store.forget(&id).await.unwrap();
    let owner = store.hold(&id).await.unwrap();
    drop((store, owner));
    // Once this store holds it, the other has ended, and could not truncate the log.
    let store = folder.store();
    drop(store.hold(&id).await.unwrap());
    assert!(folder.contains_bytes("qfarewellword"));
    reader.execute_batch("COMMIT").unwrap();
    drop(store);
    let store = folder.store();
    store
        .save(
            &id,
            &ConversationChange::at(0).with_messages([Message::user("new")]),
        )
        .await
        .unwrap();
    assert!(!folder.contains_bytes("qfarewellword"));
}

#[tokio::test]
async fn dropped_store_releases_holds() {
    let folder = Folder::new();
    let id = ConversationId::new("a");
    for _ in 0..60 {
        let store = folder.store();
        drop(store.hold(&id).await.unwrap());
        drop(store);
        assert!(!folder.store().forget(&id).await.unwrap());
    }
}

#[tokio::test]
async fn failed_removal_leaves_messages_indexed() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("a");
    // More messages than one step removes from the index.
    let long = |word: &str| Message::user(format!("{word} {}", "filler ".repeat(700_000)));
    let change =
        ConversationChange::at(0).with_messages([long("kestrel"), long("heron"), long("robin")]);
    store.save(&id, &change).await.unwrap();
    assert_eq!(store.search(&id, "kestrel", 9).await.unwrap().len(), 1);
    let by_hand = Connection::open(folder.path()).unwrap();
    by_hand
        .execute(
            "UPDATE messages SET message = 'x' || message WHERE place & 4294967295 = 2",
            [],
        )
        .unwrap();
    assert_eq!(
        store.forget(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Damaged
    );
    assert_eq!(
        store.trim(&id, 3).await.unwrap_err().kind(),
        MemoryErrorKind::Damaged
    );
    let right = "UPDATE messages SET message = substr(message, 2) WHERE place & 4294967295 = 2";
    by_hand.execute(right, []).unwrap();
    assert_eq!(store.search(&id, "kestrel", 9).await.unwrap().len(), 1);
    assert!(store.forget(&id).await.unwrap());
    by_hand
        .execute("INSERT INTO words (words) VALUES ('integrity-check')", [])
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forget_finishes_during_concurrent_searches() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("a");
    let messages = (0..600).map(|n| Message::user(format!("word{n} and filler")));
    store
        .save(&id, &ConversationChange::at(0).with_messages(messages))
        .await
        .unwrap();
    let mut searches = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (store, id) = (store.clone(), id.clone());
        searches.spawn(async move {
            while !store.search(&id, "filler", 1).await.unwrap().is_empty() {}
        });
    }
    store.search(&id, "filler", 1).await.unwrap();
    let forgotten =
        tokio::time::timeout(std::time::Duration::from_secs(60), store.forget(&id)).await;
    assert!(forgotten.expect("it ends").unwrap());
    while let Some(done) = searches.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn rejected_removal_leaves_messages_indexed() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("a");
    let messages = (0..300).map(|n| Message::user(format!("word{n}")));
    let change = ConversationChange::at(0)
        .with_messages(messages)
        .when(Timestamp::from_millis(1_000));
    store.save(&id, &change).await.unwrap();
    store.search(&id, "word7", 1).await.unwrap();
    assert!(
        !store
            .expire(&id, Timestamp::from_millis(1_000))
            .await
            .unwrap()
    );
    let _hold = store.hold(&id).await.unwrap();
    assert_eq!(
        store.forget(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Busy
    );
    let by_hand = Connection::open(folder.path()).unwrap();
    let sql = "SELECT words_from, words_to FROM conversations";
    let known: (i64, i64) = by_hand
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(known, (0, 300));
}

/// Returns the size of the file after all of the log is in it.
fn size(folder: &Folder) -> u64 {
    let connection = Connection::open(folder.path()).unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    fs::metadata(folder.path()).unwrap().len()
}

#[tokio::test]
async fn file_size_grows_with_message_size() {
    let folder = Folder::new();
    let store = folder.store();
    let id = ConversationId::new("growing");
    let empty = size(&folder);
    let turn = |n: u64| {
        [
            Message::user(format!("question {n}")),
            Message::assistant(format!("answer {n}")),
        ]
    };
    for n in 0..400 {
        store
            .save(&id, &ConversationChange::at(n * 2).with_messages(turn(n)))
            .await
            .unwrap();
    }
    store.search(&id, "question", 1).await.unwrap();
    let payload: usize = (0..400)
        .flat_map(turn)
        .map(|message| serde_json::to_string(&message).unwrap().len())
        .sum();
    let beyond = (size(&folder) - empty - payload as u64) / 400;
    assert!(beyond < 300, "{beyond} bytes a turn beyond the payload");
}

#[cfg(unix)]
#[tokio::test]
async fn new_database_is_readable_by_owner_only() {
    let folder = Folder::new();
    let store = folder.store();
    store
        .save(
            &"a".into(),
            &ConversationChange::at(0).with_messages([Message::user("hello")]),
        )
        .await
        .unwrap();
    let recall = levity_memory::Recall::open(folder.0.path().join("facts.db"));
    let recall = recall.unwrap();
    let rights = crate::files::permissions_of_others(folder.0.path());
    assert!(
        rights
            .iter()
            .any(|(path, _)| path.ends_with("memory.db-wal")),
        "{rights:?}"
    );
    assert!(
        rights.iter().any(|(path, _)| path.ends_with("facts.db")),
        "{rights:?}"
    );
    assert!(rights.iter().all(|(_, rights)| *rights == 0), "{rights:?}");
    assert_eq!(
        (store.warnings(), recall.warnings()),
        (Vec::new(), Vec::new())
    );
    // The warnings name shared files.
    use std::os::unix::fs::PermissionsExt as _;
    for path in ["", "memory.db", "facts.db"].map(|name| folder.0.path().join(name)) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    let is_reached = folder
        .0
        .path()
        .ancestors()
        .all(|above| mode(above) & 0o011 != 0);
    for (problems, name) in [
        (store.warnings(), "memory.db"),
        (recall.warnings(), "facts.db"),
    ] {
        assert_eq!(problems.len(), usize::from(is_reached), "{problems:?}");
        assert!(
            problems
                .iter()
                .all(|problem| problem.contains(name) && problem.contains("chmod")),
            "{problems:?}"
        );
    }
}
