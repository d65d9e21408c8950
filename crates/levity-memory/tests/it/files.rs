//! Conversations in files: the format, and rejected files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use levity_core::{
    ConversationChange, ConversationId, ConversationQuery, History, MemoryErrorKind, MemoryStore,
    Message, Part, Role, Summary, Timestamp, ToolCall, ToolOutput, ToolResult,
};
use levity_memory::FileMemory;
use serde_json::{Value, json};

fn temp_store() -> (tempfile::TempDir, FileMemory) {
    let dir = tempfile::tempdir().unwrap();
    let store = FileMemory::new(dir.path()).unwrap();
    (dir, store)
}

fn texts(messages: &[Arc<Message>]) -> Vec<(Role, String)> {
    messages
        .iter()
        .map(|message| (message.role, message.text().into_owned()))
        .collect()
}

#[tokio::test]
async fn load_reads_file_with_only_summary_and_history() {
    let (dir, store) = temp_store();
    let old = json!({
        "summary": "They met.",
        "history": [
            {"role": "user", "content": "What is 2 + 5?"},
            {"role": "tool", "content": "7"},
            {"role": "assistant", "content": "It is 7."},
            {"role": "system", "content": "Be brief."},
        ],
    });
    fs::write(
        dir.path().join("old.json"),
        serde_json::to_string_pretty(&old).unwrap(),
    )
    .unwrap();
    let id = ConversationId::new("old");
    let found = store.load(&id, 10).await.unwrap();
    assert_eq!(found.summary, Some(Summary::new("They met.", 0)));
    assert_eq!((found.first, found.end), (0, 4));
    let expected = [
        (Role::User, "What is 2 + 5?"),
        (Role::User, "Result of a tool: 7"),
        (Role::Assistant, "It is 7."),
        (Role::System, "Be brief."),
    ];
    assert_eq!(
        texts(&found.messages),
        expected.map(|(role, text)| (role, text.to_owned()))
    );
    let all: Vec<Message> = found
        .messages
        .iter()
        .map(|message| (**message).clone())
        .collect();
    History::try_from(all).unwrap();
    assert!(
        found.changed > Timestamp::from_millis(1_700_000_000_000),
        "as old as the file"
    );
    let infos = store.list(&ConversationQuery::new()).await.unwrap();
    assert_eq!(
        (infos[0].id.as_str(), infos[0].end, infos[0].changed),
        ("old", 4, found.changed)
    );

    store
        .save(
            &id,
            &ConversationChange::at(4).with_messages([Message::user("Thanks")]),
        )
        .await
        .unwrap();
    assert_eq!(
        FileMemory::new(dir.path())
            .unwrap()
            .load(&id, 1)
            .await
            .unwrap()
            .end,
        5
    );
    fs::write(
        dir.path().join("bare.json"),
        r#"{"summary": "", "history": []}"#,
    )
    .unwrap();
    let bare = store.load(&"bare".into(), 10).await.unwrap();
    assert_eq!((bare.summary, bare.end), (None, 0));
}

#[tokio::test]
async fn save_writes_readable_summary_and_history() {
    let (dir, store) = temp_store();
    let call = ToolCall::new("c1", "add", json!({"a": 2}));
    let result = ToolResult::new(&call, Ok(ToolOutput::text("7".repeat(5_000))));
    let messages = [
        Message::user("2 + 5?"),
        Message::new(
            Role::Assistant,
            [Part::text("Let me see."), Part::ToolCall(call)],
        ),
        Message::new(Role::Tool, [Part::ToolResult(result)]),
        Message::assistant("7"),
    ];
    let change = ConversationChange::at(0)
        .with_messages(messages.clone())
        .with_summary(Summary::new("They met.", 1));
    store
        .save(&"a".into(), &change.when(Timestamp::from_millis(5)))
        .await
        .unwrap();
    let text = fs::read_to_string(dir.path().join("a.json")).unwrap();
    let first = r#"{"levity_memory":1,"id":"a","changed":5,"first":0,"end":4,"upto":1,"#;
    assert_eq!(text.lines().next().unwrap(), first);
    assert_eq!(
        text.lines().nth(3).unwrap(),
        r#"{"role":"user","content":"2 + 5?"},"#
    );
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["summary"], "They met.");
    let said: Vec<_> = file["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["content"])
        .collect();
    assert_eq!(
        said,
        [
            &json!("2 + 5?"),
            &json!("Let me see."),
            &json!("7".repeat(1_000)),
            &json!("7")
        ]
    );
    let read = FileMemory::new(dir.path())
        .unwrap()
        .read(&"a".into(), 0, 10)
        .await
        .unwrap();
    assert!(read.iter().map(|(_, message)| &**message).eq(&messages));
}

/// Checks that a file is rejected with this error, and that no operation changes it.
async fn check_rejected(content: &[u8], kind: MemoryErrorKind, message: &str) {
    let (dir, store) = temp_store();
    let (id, path) = (ConversationId::new("a"), dir.path().join("a.json"));
    fs::write(&path, content).unwrap();
    let change = ConversationChange::at(0).with_messages([Message::user("new")]);
    let errors = [
        store.load(&id, 1).await.unwrap_err(),
        store.read(&id, 0, 1).await.unwrap_err(),
        store.save(&id, &change).await.unwrap_err(),
        store.search(&id, "a", 1).await.unwrap_err(),
        store.trim(&id, 1).await.unwrap_err(),
        store.forget(&id).await.unwrap_err(),
        store
            .expire(&id, Timestamp::from_millis(u64::MAX))
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    assert_eq!(fs::read(&path).unwrap(), content);
    store.save(&"b".into(), &change).await.unwrap();
    let infos = store.list(&ConversationQuery::new()).await.unwrap();
    assert_eq!(
        infos
            .iter()
            .map(|info| info.id.as_str())
            .collect::<Vec<_>>(),
        ["b"],
        "others are not hidden"
    );
}

#[tokio::test]
async fn damaged_file_is_rejected_and_unchanged() {
    let damaged = MemoryErrorKind::Damaged;
    check_rejected(b"", damaged, "line 1, column 0").await;
    check_rejected(
        b"{\"summary\": \"a\",\n\"history\": [{\"ro",
        damaged,
        "line 2",
    )
    .await;
    check_rejected(b"[]", damaged, "line 1").await;
    check_rejected(b"{}", damaged, "line 1").await;
    check_rejected(b"\0\0\0\0", damaged, "line 1").await;
    check_rejected(
        br#"{"summary": "", "history": [], "note": "kept by hand"}"#,
        damaged,
        "line 1",
    )
    .await;
    check_rejected(
        br#"{"summary": "", "history": [{"role": "user"}]}"#,
        damaged,
        "message 0",
    )
    .await;
    check_rejected(
        br#"{"summary": "", "history": [{"role": "nobody", "content": ""}]}"#,
        damaged,
        "line 1",
    )
    .await;
    check_rejected(
        br#"{"summary": "", "history": [], "first": 2, "end": 3}"#,
        damaged,
        "ends at message 2",
    )
    .await;
    check_rejected(
        br#"{"summary": "", "history": [], "upto": 3}"#,
        damaged,
        "summary",
    )
    .await;
    check_rejected(
        br#"{"history": [], "first": 18446744073709551615}"#,
        damaged,
        "positions",
    )
    .await;
    check_rejected(br#"{"history": [], "id": "b"}"#, damaged, "another").await;
}

#[tokio::test]
async fn file_of_newer_format_is_rejected_and_unchanged() {
    let newer = br#"{"levity_memory": 2, "history": {"of": "another kind"}}"#;
    check_rejected(newer, MemoryErrorKind::Version, "format 2").await;
}

#[tokio::test]
async fn error_of_damaged_file_contains_no_content() {
    let (dir, store) = temp_store();
    fs::write(
        dir.path().join("a.json"),
        r#"{"history": [], "summary": 5, "hunter2": "hunter2"}"#,
    )
    .unwrap();
    let error = store.load(&"a".into(), 1).await.unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn store_does_not_follow_links() {
    let (dir, store) = temp_store();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(
        outside.path(),
        r#"{"summary": "", "history": [{"role": "user", "content": "secret"}]}"#,
    )
    .unwrap();
    let before = fs::read(outside.path()).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("a.json")).unwrap();
    let change = ConversationChange::at(0).with_messages([Message::user("new")]);
    assert_eq!(
        store.load(&"a".into(), 9).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
    assert_eq!(
        store.save(&"a".into(), &change).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
    std::os::unix::fs::symlink(outside.path(), dir.path().join(".b.json.new")).unwrap();
    store.save(&"b".into(), &change).await.unwrap();
    assert_eq!(fs::read(outside.path()).unwrap(), before);
    fs::create_dir(dir.path().join("c.json")).unwrap();
    assert_eq!(
        store.load(&"c".into(), 9).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
    let infos = store.list(&ConversationQuery::new()).await.unwrap();
    assert_eq!(
        infos
            .iter()
            .map(|info| info.id.as_str())
            .collect::<Vec<_>>(),
        ["b"]
    );
}

/// Locks and holds are files as well, and a foreign folder may have links in their places.
#[cfg(unix)]
#[tokio::test]
async fn store_does_not_follow_links_for_locks_and_holds() {
    let names = ["letter.txt", "0123456789abcdef", "a"];
    let locks: Vec<String> = (0..32).map(|number| format!("lock-{number:02}")).collect();
    let mut places = vec![
        vec!["".to_owned()],
        vec!["owners".to_owned()],
        vec!["holds".to_owned()],
        locks,
    ];
    places.push(vec!["holds/a".to_owned()]);
    for linked in places {
        let outside = tempfile::tempdir().unwrap();
        names
            .iter()
            .for_each(|name| fs::write(outside.path().join(name), "mine").unwrap());
        let (dir, store) = temp_store();
        for name in &linked {
            let side = dir.path().join(".levity");
            let place = if name.is_empty() {
                side
            } else {
                side.join(name)
            };
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            let is_file = name.contains('/') || name.starts_with("lock");
            let target = if is_file {
                outside.path().join("letter.txt")
            } else {
                outside.path().to_owned()
            };
            std::os::unix::fs::symlink(target, place).unwrap();
        }
        let change = ConversationChange::at(0).with_messages([Message::user("new")]);
        let held = store.hold(&"a".into()).await;
        let saved = store.save(&"a".into(), &change).await;
        assert!(
            linked[0] == "holds/a" || (held.is_err() && saved.is_err()),
            "{linked:?}"
        );
        drop(held);
        let _ = store.forget(&"a".into()).await;
        for name in names {
            assert_eq!(
                fs::read(outside.path().join(name)).unwrap(),
                b"mine",
                "{linked:?} {name}"
            );
        }
        assert_eq!(
            fs::read_dir(outside.path()).unwrap().count(),
            names.len(),
            "{linked:?}"
        );
    }
}

fn list_tree(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            names.extend(list_tree(&entry.path()));
        } else {
            names.push(entry.file_name().into_string().unwrap());
        }
    }
    names
}

#[tokio::test]
async fn conversation_id_cannot_leave_folder() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileMemory::new(dir.path().join("in")).unwrap();
    let odd = [
        "../up",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a\0b",
        "C:\\x",
        "A",
        "a",
        "con",
        "ü",
        ".levity",
        "%",
        "a/b",
    ];
    for id in odd {
        let change = ConversationChange::at(0).with_messages([Message::user(id)]);
        store.save(&id.into(), &change).await.unwrap();
        drop(store.hold(&id.into()).await.unwrap());
    }
    for id in odd {
        let found = store.load(&id.into(), 9).await.unwrap();
        assert_eq!(texts(&found.messages), [(Role::User, id.to_owned())]);
    }
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing beside the folder"
    );
    let files: Vec<_> = list_tree(dir.path())
        .into_iter()
        .filter(|name| name.ends_with(".json"))
        .collect();
    assert_eq!(files.len(), odd.len());
    let mut small: Vec<_> = files.iter().map(|name| name.to_lowercase()).collect();
    small.sort();
    small.dedup();
    assert_eq!(
        small.len(),
        odd.len(),
        "names differ where capitals do not count, too"
    );

    let long = ConversationId::new("x".repeat(300));
    let change = ConversationChange::at(0).with_messages([Message::user("new")]);
    assert_eq!(
        store.save(&long, &change).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
    assert_eq!(store.load(&long, 9).await.unwrap().end, 0);
    assert!(!store.forget(&long).await.unwrap());
}

#[tokio::test]
async fn single_file_store_holds_one_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent_memory.json");
    fs::write(
        &path,
        r#"{"summary": "They met.", "history": [{"role": "user", "content": "Hello"}]}"#,
    )
    .unwrap();
    let store = FileMemory::single_file(&path).unwrap();
    let id = ConversationId::new("any name / at all");
    assert_eq!(
        store.list(&ConversationQuery::new()).await.unwrap()[0]
            .id
            .as_str(),
        "agent_memory"
    );
    assert_eq!(store.load(&id, 9).await.unwrap().end, 1);
    store
        .save(
            &id,
            &ConversationChange::at(1).with_messages([Message::assistant("Hello")]),
        )
        .await
        .unwrap();
    assert_eq!(
        store.list(&ConversationQuery::new()).await.unwrap()[0].id,
        id
    );
    let other = ConversationId::new("other");
    assert_eq!(store.load(&other, 9).await.unwrap().end, 0);
    let change = ConversationChange::at(0).with_messages([Message::user("new")]);
    assert_eq!(
        store.save(&other, &change).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
    assert_eq!(
        store.hold(&other).await.unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
    assert!(!store.forget(&other).await.unwrap());
    let hold = store.hold(&id).await.unwrap();
    assert_eq!(
        FileMemory::single_file(&path)
            .unwrap()
            .hold(&id)
            .await
            .unwrap_err()
            .kind(),
        MemoryErrorKind::Busy
    );
    drop(hold);
    assert!(store.forget(&id).await.unwrap());
    assert!(!path.exists());
    store.save(&other, &change).await.unwrap();
    fs::write(&path, "{}").unwrap();
    let listed = store.list(&ConversationQuery::new()).await;
    assert_eq!(
        listed.unwrap_err().kind(),
        MemoryErrorKind::Damaged,
        "nothing is said to be there only if it is not"
    );
    fs::remove_file(&path).unwrap();
    assert!(
        store
            .list(&ConversationQuery::new())
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        FileMemory::single_file("..").unwrap_err().kind(),
        MemoryErrorKind::Refused
    );
}

#[tokio::test]
async fn load_sees_manual_edit_of_file() {
    let (dir, store) = temp_store();
    let id = ConversationId::new("a");
    store
        .save(
            &id,
            &ConversationChange::at(0).with_messages([Message::user("Hello")]),
        )
        .await
        .unwrap();
    let path = dir.path().join("a.json");
    let changed = fs::read_to_string(&path)
        .unwrap()
        .replace("Hello", "Good morning");
    fs::write(&path, changed).unwrap();
    assert_eq!(
        store.load(&id, 1).await.unwrap().messages[0].text(),
        "Good morning"
    );
    store
        .save(
            &id,
            &ConversationChange::at(1).with_messages([Message::user("Bye")]),
        )
        .await
        .unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("Good morning"));
}

#[tokio::test]
async fn forget_removes_leftovers_of_killed_process() {
    let (dir, store) = temp_store();
    let id = ConversationId::new("a");
    let left = [
        dir.path().join(".a.json.new"),
        dir.path().join(".levity/holds/a"),
    ];
    for saved in [false, true] {
        if saved {
            store
                .save(
                    &id,
                    &ConversationChange::at(0).with_messages([Message::user("Hello")]),
                )
                .await
                .unwrap();
        }
        fs::create_dir_all(dir.path().join(".levity/holds")).unwrap();
        for path in &left {
            fs::write(path, "4d").unwrap();
        }
        assert!(!store.expire(&id, Timestamp::default()).await.unwrap());
        assert_eq!(store.forget(&id).await.unwrap(), saved);
        assert!(left.iter().all(|path| !path.exists()));
    }
}

#[tokio::test]
async fn missing_folder_returns_error_instead_of_empty() {
    let dir = tempfile::tempdir().unwrap();
    let (temp_store, id) = (dir.path().join("in"), ConversationId::new("a"));
    let store = FileMemory::new(&temp_store).unwrap();
    let change = ConversationChange::at(0).with_messages([Message::user("Hello")]);
    store.save(&id, &change).await.unwrap();
    fs::rename(&temp_store, dir.path().join("away")).unwrap();
    let failed = [
        store.load(&id, 9).await.map(drop),
        store.save(&id, &change).await,
        store.trim(&id, 1).await,
        store.forget(&id).await.map(drop),
        store.hold(&id).await.map(drop),
        store.list(&ConversationQuery::new()).await.map(drop),
    ];
    for failed in failed {
        assert_eq!(failed.unwrap_err().kind(), MemoryErrorKind::Io);
    }
    assert!(!temp_store.exists());
    fs::rename(dir.path().join("away"), &temp_store).unwrap();
    assert_eq!(store.load(&id, 9).await.unwrap().end, 1);
}

#[cfg(unix)]
#[tokio::test]
async fn save_preserves_file_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, store) = temp_store();
    let (id, path) = (ConversationId::new("a"), dir.path().join("a.json"));
    store
        .save(
            &id,
            &ConversationChange::at(0).with_messages([Message::user("Hello")]),
        )
        .await
        .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    store
        .save(
            &id,
            &ConversationChange::at(1).with_messages([Message::user("Bye")]),
        )
        .await
        .unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[cfg(unix)]
#[tokio::test]
async fn unreadable_hold_file_blocks_hold() {
    let (dir, store) = temp_store();
    let (id, path) = (ConversationId::new("a"), dir.path().join(".levity/holds/a"));
    store
        .save(
            &id,
            &ConversationChange::at(0).with_messages([Message::user("Hello")]),
        )
        .await
        .unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    assert_eq!(
        store.hold(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Io
    );
    assert_eq!(
        store.forget(&id).await.unwrap_err().kind(),
        MemoryErrorKind::Io
    );
    assert_eq!(store.load(&id, 9).await.unwrap().end, 1);
}

#[tokio::test]
async fn dropped_hold_future_releases_hold_at_once() {
    let (_dir, store) = temp_store();
    let id = ConversationId::new("a");
    for _ in 0..1_000 {
        {
            let mut hold = std::pin::pin!(store.hold(&id));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            drop(Future::poll(hold.as_mut(), &mut cx));
        }
        drop(store.hold(&id).await.unwrap());
    }
}

/// Returns everything below a folder, with the permissions of users other than the owner.
#[cfg(unix)]
pub(crate) fn permissions_of_others(temp_store: &Path) -> Vec<(std::path::PathBuf, u32)> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = Vec::new();
    for entry in fs::read_dir(temp_store).unwrap() {
        let path = entry.unwrap().path();
        found.push((
            path.clone(),
            fs::metadata(&path).unwrap().permissions().mode() & 0o077,
        ));
        if path.is_dir() {
            found.extend(permissions_of_others(&path));
        }
    }
    found
}

#[cfg(unix)]
#[tokio::test]
async fn new_files_are_readable_by_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let store = FileMemory::new(dir.path().join("deep/talks")).unwrap();
    let change = ConversationChange::at(0).with_messages([Message::user("hello")]);
    store.save(&"a".into(), &change).await.unwrap();
    let one = FileMemory::single_file(dir.path().join("own/one.json")).unwrap();
    one.save(&"b".into(), &change).await.unwrap();
    let rights = permissions_of_others(dir.path());
    assert!(
        rights.len() >= 5 && rights.iter().all(|(_, rights)| *rights == 0),
        "{rights:?}"
    );
    assert_eq!((store.warnings(), one.warnings()), (Vec::new(), Vec::new()));
    // A shared file stays shared, and the warning names it.
    let kept = fs::read_dir(dir.path().join("deep/talks"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let kept: Vec<_> = kept.filter(|path| path.is_file()).collect();
    let shared =
        ["own", "own/one.json", "deep", "deep/talks", "."].map(|path| dir.path().join(path));
    for path in shared.iter().chain(&kept) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    one.save(
        &"b".into(),
        &ConversationChange::at(1).with_messages([Message::user("more")]),
    )
    .await
    .unwrap();
    assert_eq!(
        fs::metadata(dir.path().join("own/one.json"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o755
    );
    let problems = one.warnings();
    let is_reached = dir
        .path()
        .ancestors()
        .all(|above| fs::metadata(above).unwrap().permissions().mode() & 0o011 != 0);
    assert_eq!(problems.len(), usize::from(is_reached), "{problems:?}");
    assert!(
        problems
            .iter()
            .all(|problem| problem.contains("one.json") && problem.contains("chmod")),
        "{problems:?}"
    );
    let problems = store.warnings();
    assert_eq!(problems.len(), usize::from(is_reached), "{problems:?}");
    assert!(
        problems
            .iter()
            .all(|problem| problem.contains("/deep/talks/") && problem.contains("chmod -R")),
        "{problems:?}"
    );
}
