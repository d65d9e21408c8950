//! Processes that share a file, and processes killed while they write.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use levity_core::ConversationId;
use rusqlite::Connection;

use super::{open, user};

const CHILD: &str = "LEVITY_RECALL_CHILD";

/// Runs the task of a child process; it is not a test.
#[tokio::test]
async fn child() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    let name = std::env::var("LEVITY_RECALL_NAME").unwrap();
    let rounds: u64 = std::env::var("LEVITY_RECALL_ROUNDS")
        .unwrap()
        .parse()
        .unwrap();
    let recall = open(Path::new(&path));
    println!("\nready");
    for n in 0..rounds {
        let saved = recall
            .remember(&user(), &format!("Fact {n} of {name} twin{n}."), "child")
            .await
            .unwrap();
        let session = ConversationId::new(name.clone());
        recall
            .remember_session(&user(), &session, &format!("Round {n} of {name}."))
            .await
            .unwrap();
        if n % 3 == 2 {
            assert!(recall.forget(&[user()], saved.id).await.unwrap());
        }
    }
    println!("done");
}

fn start(path: &Path, name: &str, rounds: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "recall::crash::child",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, path)
        .env("LEVITY_RECALL_NAME", name)
        .env("LEVITY_RECALL_ROUNDS", rounds.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn await_ready(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
}

#[tokio::test]
async fn two_processes_write_to_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let mut children = [start(&path, "one", 30), start(&path, "two", 30)];
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let saved = open(&path).list(&user(), None, 1000).await.unwrap();
    assert_eq!(saved.len(), 2 * 20 + 2);
    check_consistency(&path);
}

/// Kills a child 200 times at different moments; the remaining data must be whole each time.
#[tokio::test]
async fn killed_process_leaves_whole_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let mut seed = 1_u64;
    for round in 0..200 {
        let mut child = start(&path, &format!("child{round}"), u64::MAX);
        if round % 4 != 0 {
            await_ready(&mut child);
        }
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(std::time::Duration::from_micros((seed >> 33) % 12_000));
        child.kill().unwrap();
        child.wait().unwrap();
        if path.exists() {
            let recall = open(&path);
            let found = recall
                .recall(&[user()], &format!("child{round}"), 1000)
                .await
                .unwrap();
            assert!(
                found
                    .facts
                    .iter()
                    .all(|fact| fact.text.contains(&format!("child{round}")))
            );
            if round % 20 == 0 {
                recall.forget_scope(&user()).await.unwrap();
            }
        }
        if round % 10 == 0 && path.exists() {
            check_consistency(&path);
        }
    }
    check_consistency(&path);
}

/// Checks that tables and index are valid and consistent.
fn check_consistency(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let number = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let whole: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok");
    connection
        .execute("INSERT INTO words (words) VALUES ('integrity-check')", [])
        .unwrap();
    let facts = number("SELECT count(*) FROM facts");
    assert_eq!(number("SELECT coalesce(sum(facts), 0) FROM scopes"), facts);
    assert_eq!(number("SELECT count(*) FROM words"), facts);
}
