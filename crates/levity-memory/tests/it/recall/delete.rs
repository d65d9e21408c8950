//! Complete removal of forgotten facts, to the last byte.

use std::fs;
use std::path::Path;

use levity_core::ConversationId;
use levity_memory::Scope;
use levity_test::WordEmbedder;
use rusqlite::Connection;

use super::{open, user};

/// Returns every byte of the file and of the files beside it.
fn all_bytes(dir: &Path) -> Vec<u8> {
    let files = fs::read_dir(dir)
        .unwrap()
        .map(|file| fs::read(file.unwrap().path()).unwrap());
    files.flatten().collect()
}

fn contains_word(all_bytes: &[u8], word: &str) -> bool {
    let lower = all_bytes.to_ascii_lowercase();
    contains_bytes(&lower, word.to_ascii_lowercase().as_bytes())
}

fn contains_bytes(all_bytes: &[u8], word: &[u8]) -> bool {
    all_bytes.windows(word.len()).any(|window| window == word)
}

#[tokio::test]
async fn forget_leaves_no_bytes_of_fact() {
    let dir = tempfile::tempdir().unwrap();
    let recall = open(&dir.path().join("facts.db"));
    recall
        .remember(&user(), "Likes tea.", "test")
        .await
        .unwrap();
    let secret = recall
        .remember(&user(), "The code is QZX7711KVW.", "letter WWJ5523")
        .await
        .unwrap();
    let conversation = ConversationId::new("YYH9931");
    let session = recall
        .remember_session(&user(), &conversation, "They spoke of PPF4417XDD.")
        .await
        .unwrap();
    let before = all_bytes(dir.path());
    for word in ["ZX7711KV", "WWJ5523", "YH9931", "PF4417XD"] {
        assert!(contains_word(&before, word), "{word} is kept");
    }
    assert!(recall.forget(&[user()], secret.id).await.unwrap());
    assert!(recall.forget(&[user()], session.id).await.unwrap());
    let after = all_bytes(dir.path());
    for word in ["X7711K", "J5523", "H9931", "F4417X"] {
        assert!(!contains_word(&after, word), "{word} is left");
    }
    drop(recall);
    let later = open(&dir.path().join("facts.db"));
    assert_eq!(
        later
            .recall(&[user()], "tea code", 9)
            .await
            .unwrap()
            .facts
            .len(),
        1
    );
}

/// A small scope is removed fact by fact, a large one by a rebuild of the index.
#[tokio::test]
async fn forget_scope_leaves_no_bytes_of_facts() {
    for (facts, others) in [(50, 50), (5, 60), (20, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("facts.db");
        let recall = open(&path).with_embedder(WordEmbedder::new());
        let forgotten = Scope::user("RRT8812QQ");
        for n in 0..facts {
            recall
                .remember(&forgotten, &format!("Secret KKV{n:04}JHX of many."), "test")
                .await
                .unwrap();
        }
        for n in 0..others {
            recall
                .remember(&user(), &format!("Thing{n} of many."), "test")
                .await
                .unwrap();
        }
        assert!(contains_word(&all_bytes(dir.path()), "KV0003JH"));
        assert_eq!(recall.forget_scope(&forgotten).await.unwrap(), facts);
        assert_eq!(recall.forget_scope(&forgotten).await.unwrap(), 0);
        let after = all_bytes(dir.path());
        assert!(!contains_word(&after, "RT8812Q"));
        for n in 0..facts {
            assert!(!contains_word(&after, &format!("V{n:04}J")), "{n}");
        }
        check_index(&path);
        let vectors = "SELECT count(*) FROM vectors";
        let vectors: i64 = Connection::open(&path)
            .unwrap()
            .query_row(vectors, [], |row| row.get(0))
            .unwrap();
        assert_eq!(
            (
                usize::try_from(vectors).unwrap(),
                recall.list(&user(), None, 100).await.unwrap().len()
            ),
            (others, others)
        );
        for n in 0..others {
            let found = open(&path)
                .recall(&[user()], &format!("thing{n}"), 3)
                .await
                .unwrap();
            assert_eq!(found.facts.len(), 1);
        }
    }
}

/// Uses many facts, so that pages split and merge, and the index has forgotten words between
/// others.
#[tokio::test]
async fn forget_leaves_no_bytes_among_many_facts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let recall = open(&path);
    let mut ids = Vec::new();
    for n in 0..240 {
        let long = "filler ".repeat((n % 40) as usize * 10);
        let text = format!("Note {} says {long}{}.", word(n), word(n + 10_000));
        ids.push(
            recall
                .remember(&user(), &text, &format!("source {}", word(n + 20_000)))
                .await
                .unwrap()
                .id,
        );
    }
    for (n, id) in ids.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
        assert!(recall.forget(&[user()], *id).await.unwrap(), "{n}");
    }
    let after = all_bytes(dir.path());
    let lower = after.to_ascii_lowercase();
    let windows: std::collections::HashSet<&[u8]> = lower.windows(9).collect();
    for n in (0..240).filter(|n| n % 3 != 0) {
        for n in [n, n + 10_000, n + 20_000] {
            // The index omits the prefix that a word shares with the previous one.
            let word = word(n);
            assert!(
                !windows.contains(&word.as_bytes()[4..13]),
                "{word} of {n} is left"
            );
        }
    }
    check_index(&path);
    for n in (0..240).filter(|n| n % 3 == 0) {
        assert_eq!(
            recall
                .recall(&[user()], &word(n), 3)
                .await
                .unwrap()
                .facts
                .len(),
            1,
            "{n}"
        );
    }
}

/// Growing summaries make SQLite move rows from page to page, which leaves copies behind.
#[tokio::test]
async fn forget_leaves_no_copies_of_moved_rows() {
    const TALKS: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let recall = open(&path);
    let words = |talk: u64, round: u64| (0..=round * (talk % 5)).map(move |n| word(talk * 100 + n));
    for round in 0..6 {
        for talk in 0..TALKS {
            let text = format!(
                "Talk of {}",
                words(talk, round).collect::<Vec<_>>().join(" and ")
            );
            recall
                .remember_session(&user(), &format!("c{talk}").into(), &text)
                .await
                .unwrap();
        }
    }
    for talk in (0..TALKS).filter(|talk| talk % 10 != 3) {
        assert!(
            recall
                .forget_session(&user(), &format!("c{talk}").into())
                .await
                .unwrap()
        );
    }
    let after = all_bytes(dir.path());
    let windows: std::collections::HashSet<&[u8]> = after.windows(9).collect();
    for talk in (0..TALKS).filter(|talk| talk % 10 != 3) {
        for word in words(talk, 5) {
            assert!(
                !windows.contains(&word.as_bytes()[4..13]),
                "{word} of {talk} is left"
            );
        }
    }
    check_index(&path);
    assert_eq!(
        recall.list(&user(), None, 1_000).await.unwrap().len() as u64,
        TALKS / 10
    );
}

#[tokio::test]
async fn forget_of_last_fact_removes_scope_name() {
    let dir = tempfile::tempdir().unwrap();
    let recall = open(&dir.path().join("facts.db"));
    let forgotten = Scope::session("RRT8812QQ");
    let fact = recall
        .remember(&forgotten, "Likes tea.", "test")
        .await
        .unwrap();
    assert!(contains_word(&all_bytes(dir.path()), "RT8812Q"));
    recall
        .forget(std::slice::from_ref(&forgotten), fact.id)
        .await
        .unwrap();
    assert!(!contains_word(&all_bytes(dir.path()), "RT8812Q"));
    let again = recall
        .remember(&forgotten, "Likes tea.", "test")
        .await
        .unwrap();
    assert_ne!(again.id, fact.id);
    assert_eq!(recall.list(&forgotten, None, 9).await.unwrap().len(), 1);
}

/// Returns words that have nothing in common.
fn word(n: u64) -> String {
    let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    format!("{:013x}", (mixed ^ (mixed >> 32)) >> 12)
}

fn check_index(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let whole: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok");
    connection
        .execute("INSERT INTO words (words) VALUES ('integrity-check')", [])
        .unwrap();
}

#[tokio::test]
async fn forget_during_foreign_read_returns_busy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let recall = open(&path);
    let secret = recall
        .remember(&user(), "The code is QZX7711KVW.", "test")
        .await
        .unwrap();
    let reader = Connection::open(&path).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM facts;")
        .unwrap();
    let error = recall.forget(&[user()], secret.id).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(recall.recall(&[user()], "code", 9).await.unwrap().facts, []);
    reader.execute_batch("COMMIT").unwrap();
    assert!(!recall.forget(&[user()], secret.id).await.unwrap());
    assert!(!contains_word(&all_bytes(dir.path()), "ZX7711KV"));
}
