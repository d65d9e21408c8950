//! The suite for journals: records, exclusivity and snapshots. The module `runs` has the checks of
//! lists, removal and posts.
//!
//! Each check gets a new journal, so that it fails for one reason only.

use levity_core::{
    Journal, JournalErrorKind, OpenRun, Record, RunId, RunQuery, RunSummary, Snapshot,
};
use serde_json::json;

use super::check::{abandon, expect_ok, same};
use super::runs::{check_post, check_query, check_remove};
use super::samples::{ODD_IDS, records};

/// Checks a [`Journal`] against its contract.
///
/// `make` returns an empty journal.
///
/// The suite checks:
/// - a new run has no records, and an empty journal lists no runs;
/// - records are returned as they were appended and in that order, in one batch or several;
/// - `read` returns the same records as `open`, and none for a run that does not exist;
/// - an empty append changes nothing;
/// - `open` is exclusive: a second one fails with [`Busy`](JournalErrorKind::Busy), and again after
///   that failure; other runs can be opened; dropping the log, and nothing else, frees the run;
/// - an append is all or nothing, even when its future is dropped half-way;
/// - runs are separate, whatever their ids; an id may be rejected, but not confused with another;
/// - `list` is oldest first and has the creation time, length and ending of each run, open or not;
///   it returns the runs that match the query;
/// - `remove` removes a run with its children and no others, and none that is being driven;
/// - `open_latest` returns the last snapshot, if the journal supports them, and the records behind
///   it; all records are still there;
/// - a post to a run reaches its current or next driver, once and oldest first.
///
/// A journal that does not [`keep`](Journal::keeps) records is only required to be exclusive and
/// empty.
///
/// Not checked: that another process is locked out, and that records outlive this one.
///
/// ```no_run
/// # use levity_core::Journal;
/// # async fn test<J: Journal>(new_in_empty_folder: impl AsyncFn() -> J) {
/// use levity_test::conformance;
///
/// conformance::journal(new_in_empty_folder).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn journal<J: Journal>(make: impl AsyncFn() -> J) {
    check_empty(&make().await).await;
    check_exclusive(&make().await).await;
    if !make().await.keeps() {
        check_keeps_nothing(&make().await).await;
        return;
    }
    check_order(&make().await).await;
    check_whole(&make().await).await;
    check_apart(&make().await).await;
    check_list(&make().await).await;
    check_read(&make().await).await;
    check_query(&make().await).await;
    check_remove(&make().await).await;
    check_post(&make().await).await;
    check_snapshot(&make().await).await;
}

async fn check_snapshot(journal: &impl Journal) {
    let promise = "journal: `open_latest` gives the last snapshot and the records behind it";
    let (run, written) = (RunId::new("snapshot"), records(1_000));
    let (first, rest) = written.split_at(3);
    let mut opened = open(journal, &run, promise).await;
    expect_ok(opened.log.append(first).await, promise);
    let takes = opened.log.takes_snapshots();
    let mut last = None;
    for text in ["one", "two"] {
        let snapshot = Snapshot::new(3, json!({ "text": text, "list": [1, null, {}] }));
        expect_ok(opened.log.snapshot(snapshot.clone()).await, promise);
        last = Some(snapshot).filter(|_| takes);
    }
    drop(opened);
    let begins = if takes { 3 } else { 0 };
    for count in [3, written.len()] {
        let mut latest = expect_ok(journal.open_latest(&run).await, promise);
        same(&latest.snapshot, &last, promise);
        same(&latest.records, &written[begins..count].to_vec(), promise);
        if count == 3 {
            expect_ok(
                latest.log.append(rest).await,
                "journal: a run that was opened from a snapshot continues",
            );
        }
    }
    let promise = "journal: a snapshot removes no record";
    same(
        &expect_ok(journal.read(&run).await, promise),
        &written,
        promise,
    );
    same(
        &open(journal, &run, promise).await.records,
        &written,
        promise,
    );
    if journal.remove(&run).await.is_ok() {
        let promise = "journal: a snapshot is removed with its run";
        let latest = expect_ok(journal.open_latest(&run).await, promise);
        same(
            &(latest.snapshot, latest.records),
            &(None, Vec::new()),
            promise,
        );
    }
}

async fn check_read(journal: &impl Journal) {
    let promise = "journal: `read` gives the records of a run";
    let (run, written) = (RunId::new("read"), records(1_000));
    same(
        &expect_ok(journal.read(&run).await, promise),
        &Vec::new(),
        promise,
    );
    append(journal, &run, &written).await;
    same(
        &expect_ok(journal.read(&run).await, promise),
        &written,
        promise,
    );
    same(
        &open(journal, &run, promise).await.records,
        &written,
        promise,
    );
}

const EXCLUSIVE: &str = "journal: `open` is exclusive while the log lives";
const ORDER: &str = "journal: records are returned as they were appended, and in that order";
const WHOLE: &str = "journal: an append is all or nothing";

async fn open(journal: &impl Journal, run: &RunId, promise: &str) -> OpenRun {
    expect_ok(journal.open(run).await, promise)
}

async fn append(journal: &impl Journal, run: &RunId, records: &[Record]) {
    let mut opened = open(
        journal,
        run,
        "journal: a run that no process drives can be opened",
    )
    .await;
    expect_ok(
        opened.log.append(records).await,
        "journal: records can be appended",
    );
}

async fn check_empty(journal: &impl Journal) {
    let promise = "journal: an empty journal lists no runs";
    same(
        &expect_ok(journal.list(&RunQuery::new()).await, promise),
        &Vec::new(),
        promise,
    );
    let promise = "journal: a new run has no records";
    same(
        &open(journal, &RunId::new("new"), promise).await.records,
        &Vec::new(),
        promise,
    );
}

async fn check_exclusive(journal: &impl Journal) {
    let run = RunId::new("r1");
    let OpenRun {
        records: before,
        log,
        ..
    } = open(journal, &run, EXCLUSIVE).await;
    drop(before);
    for _ in 0..2 {
        let second = journal
            .open(&run)
            .await
            .map(|_| "an open run")
            .map_err(|error| error.kind());
        same(&second, &Err(JournalErrorKind::Busy), EXCLUSIVE);
    }
    let promise = "journal: an open run does not prevent others from being opened";
    let child = open(journal, &RunId::new("r1.1"), promise).await;
    drop(log);
    let promise = "journal: dropping the log lets others open the run";
    drop(open(journal, &run, promise).await);
    drop(open(journal, &run, promise).await);
    drop(child);
}

async fn check_keeps_nothing(journal: &impl Journal) {
    let run = RunId::new("r1");
    append(journal, &run, &records(0)).await;
    let promise = "journal: one that stores nothing has nothing to return";
    same(
        &open(journal, &run, promise).await.records,
        &Vec::new(),
        promise,
    );
}

async fn check_order(journal: &impl Journal) {
    let (run, sent) = (RunId::new("order"), records(5_000));
    let mut opened = open(journal, &run, ORDER).await;
    let (first, rest) = sent.split_at(4);
    for record in first {
        expect_ok(opened.log.append(std::slice::from_ref(record)).await, ORDER);
    }
    expect_ok(
        opened.log.append(&[]).await,
        "journal: an empty append changes nothing",
    );
    drop(opened);
    same(
        &open(journal, &run, ORDER).await.records,
        &first.to_vec(),
        ORDER,
    );
    append(journal, &run, rest).await;
    for _ in 0..2 {
        same(&open(journal, &run, ORDER).await.records, &sent, ORDER);
    }
}

async fn check_whole(journal: &impl Journal) {
    let (run, sent) = (RunId::new("whole"), records(0));
    let (first, rest) = sent.split_at(1);
    append(journal, &run, first).await;
    let mut opened = open(journal, &run, WHOLE).await;
    drop(abandon(opened.log.append(rest)));
    drop(opened);
    let found = open(journal, &run, WHOLE).await.records;
    assert!(
        found == sent || found == first,
        "{WHOLE}\nfound {} of {} records",
        found.len(),
        sent.len()
    );
}

async fn check_apart(journal: &impl Journal) {
    let promise = "journal: runs are separate, whatever their ids";
    let mut taken = Vec::new();
    for (start, run) in (0..).zip(ODD_IDS.map(RunId::new)) {
        let Ok(mut opened) = journal.open(&run).await else {
            continue;
        };
        same(&opened.records, &Vec::new(), promise);
        expect_ok(opened.log.append(&records(start)[..2]).await, promise);
        taken.push((run, start));
    }
    assert!(!taken.is_empty(), "journal: some runs can be opened");
    for (run, start) in taken {
        same(
            &open(journal, &run, promise).await.records,
            &records(start)[..2].to_vec(),
            promise,
        );
    }
}

async fn check_list(journal: &impl Journal) {
    let promise = "journal: `list` is oldest first and has the length and the ending of each run";
    let runs =
        [("b", 1_000), ("c", 2_000), ("a", 3_000)].map(|(id, start)| (RunId::new(id), start));
    let mut expected = Vec::new();
    for (n, (run, start)) in runs.iter().enumerate() {
        // The last run is complete, the others have one record and two.
        let all = records(*start);
        let sent = if n == 2 { &all[..] } else { &all[..=n] };
        append(journal, run, sent).await;
        expected.extend(RunSummary::of(run, sent));
    }
    same(
        &expect_ok(journal.list(&RunQuery::new()).await, promise),
        &expected,
        promise,
    );
    let opened = open(journal, &runs[1].0, promise).await;
    same(
        &expect_ok(journal.list(&RunQuery::new()).await, promise),
        &expected,
        "journal: `list` shows open runs as well",
    );
    drop(opened);
}
