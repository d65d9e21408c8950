//! Owners of runs: leases, clocks, locks.

use std::fs;
use std::time::Duration;

use levity_core::{ControlCommand, Journal, JournalErrorKind, RunId, RunRequest};
use levity_test::ManualWorld;

use super::{Folder, add, kind, run};

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
        error.to_string().contains("another program has locked it"),
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
