use std::fs;

use levity_core::MemoryErrorKind;
use levity_memory::Recall;
use rusqlite::Connection;

use super::{open, texts, user};

#[tokio::test]
async fn reopened_file_has_facts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd ?#%name.db");
    open(&path)
        .remember(&user(), "Likes tea.", "test")
        .await
        .unwrap();
    let found = open(&path).recall(&[user()], "tea", 9).await.unwrap();
    assert_eq!(texts(&found), ["Likes tea."]);
}

#[tokio::test]
async fn two_stores_share_facts_of_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let (one, two) = (open(&path), open(&path));
    let saved = one.remember(&user(), "Likes tea.", "test").await.unwrap();
    let again = two.remember(&user(), "Likes tea.", "test").await.unwrap();
    assert_eq!((again.id, again.new), (saved.id, false));
    assert!(two.forget(&[user()], saved.id).await.unwrap());
    assert_eq!(one.list(&user(), None, 9).await.unwrap(), []);
}

#[test]
fn foreign_files_are_rejected_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let check = |kind: MemoryErrorKind| {
        let before = fs::read(&path).unwrap();
        let error = Recall::open(&path).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing is put beside it"
        );
        fs::remove_file(&path).unwrap();
    };
    fs::write(
        &path,
        "not a database, but a text that is long enough to look at".repeat(100),
    )
    .unwrap();
    check(MemoryErrorKind::Damaged);

    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE theirs (x)")
        .unwrap();
    check(MemoryErrorKind::Damaged);

    drop(open(&path));
    Connection::open(&path)
        .unwrap()
        .execute_batch("PRAGMA journal_mode = delete; PRAGMA user_version = 2")
        .unwrap();
    check(MemoryErrorKind::Version);

    drop(open(&path));
    Connection::open(&path)
        .unwrap()
        .execute_batch("PRAGMA journal_mode = delete; DROP TABLE vectors")
        .unwrap();
    check(MemoryErrorKind::Damaged);

    let error = Recall::open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn scope_with_too_large_key_is_reported_as_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let recall = open(&path);
    recall
        .remember(&user(), "Likes tea.", "test")
        .await
        .unwrap();
    let sql = Connection::open(&path).unwrap();
    sql.execute_batch("UPDATE facts SET scope = 9223372036854775807")
        .unwrap();
    sql.execute_batch("UPDATE scopes SET key = 9223372036854775807")
        .unwrap();
    for error in [
        recall.forget_scope(&user()).await.map(drop).unwrap_err(),
        recall
            .recall(&[user()], "tea", 9)
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), MemoryErrorKind::Damaged, "{error}");
    }
}

#[tokio::test]
#[cfg(unix)]
async fn remember_after_file_was_moved_returns_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let recall = open(&path);
    recall
        .remember(&user(), "Likes tea.", "test")
        .await
        .unwrap();
    fs::remove_file(&path).unwrap();
    let error = recall
        .remember(&user(), "Likes coffee.", "test")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), MemoryErrorKind::Io);
}
