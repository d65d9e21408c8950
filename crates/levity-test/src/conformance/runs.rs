//! Checks of a journal's runs as a whole: listing, removal, posts.
//!
//! The samples cover each state of a run, and an id, `worksalone`, that begins like another one
//! without being its child.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use levity_core::{
    ControlCommand, Decision, EffectClass, EffectId, EffectKind, EffectNote, Entry, Journal,
    JournalErrorKind, Limits, MachineKind, OpenRun, Record, RunHeader, RunId, RunQuery, RunRequest,
    RunState, Status, Timestamp,
};
use serde_json::json;

use super::check::{expect_ok, same};

/// A sample run, with its id, its time and its entries.
struct Sample(&'static str, u64, Vec<Entry>);

fn opened(child: bool) -> Entry {
    let mut opened = RunHeader::new(MachineKind::new("sample", 1), json!({}), Limits::default());
    opened.origin = child.then_some(levity_core::Digest::EMPTY);
    Entry::Opened(opened)
}

fn started(kind: EffectKind, until: Option<u64>) -> Entry {
    let mut note = EffectNote::new(kind, "it", EffectClass::ReadOnly);
    note.until = until.map(Timestamp::from_millis);
    Entry::Started {
        effect: EffectId::new(1),
        note,
    }
}

fn samples() -> Vec<Sample> {
    let cancelled = Status::Cancelled {
        reason: "enough".to_owned(),
    };
    vec![
        Sample(
            "done",
            1_000,
            vec![opened(false), Entry::Ended(Status::Complete)],
        ),
        Sample(
            "asks",
            2_000,
            vec![opened(false), started(EffectKind::Ask, None)],
        ),
        Sample(
            "works",
            3_000,
            vec![opened(false), started(EffectKind::Child, None)],
        ),
        Sample(
            "works.1",
            4_000,
            vec![opened(true), started(EffectKind::Wait, Some(9_000))],
        ),
        Sample("works.1.1", 5_000, vec![opened(true)]),
        Sample(
            "worksalone",
            6_000,
            vec![opened(false), Entry::Ended(cancelled)],
        ),
    ]
}

async fn fill(journal: &impl Journal) {
    for Sample(run, start, entries) in samples() {
        let mut open = expect_ok(
            journal.open(&RunId::new(run)).await,
            "journal: a new run can be opened",
        );
        let at = |seq: u64| Timestamp::from_millis(start + seq);
        let records: Vec<_> = (0..)
            .zip(entries)
            .map(|(seq, e)| Record::new(seq, at(seq), e))
            .collect();
        expect_ok(
            open.log.append(&records).await,
            "journal: records can be appended",
        );
    }
}

/// Checks the filters of `list`, one by one, against the samples.
pub(super) async fn check_query(journal: &impl Journal) {
    fill(journal).await;
    let query = RunQuery::new;
    let at = Timestamp::from_millis;
    let cases: [(RunQuery, &[&str]); 11] = [
        (
            query(),
            &[
                "done",
                "asks",
                "works",
                "works.1",
                "works.1.1",
                "worksalone",
            ],
        ),
        (
            query().newest_first().limit(2),
            &["worksalone", "works.1.1"],
        ),
        (query().roots(), &["done", "asks", "works", "worksalone"]),
        (
            query().below(RunId::new("works")),
            &["works", "works.1", "works.1.1"],
        ),
        (query().state(RunState::Waiting), &["asks", "works.1"]),
        (query().state(RunState::Open), &["works", "works.1.1"]),
        (query().state(RunState::Answered), &["done"]),
        (query().state(RunState::Failed), &["worksalone"]),
        (
            query().since(at(2_000)).before(at(4_000)),
            &["asks", "works"],
        ),
        (query().due(at(9_000)), &["works.1"]),
        (query().due(at(8_999)), &[]),
    ];
    for (query, expected) in cases {
        let promise = format!("journal: `list` returns the runs that match {query:?}");
        let found = expect_ok(journal.list(&query).await, &promise);
        let names: Vec<_> = found.iter().map(|run| run.run.as_str()).collect();
        same(&names, &expected.to_vec(), &promise);
    }
}

/// Checks that a removal takes children along, refuses driven runs, and frees the id. A journal may
/// refuse removal.
pub(super) async fn check_remove(journal: &impl Journal) {
    fill(journal).await;
    let (works, child) = (RunId::new("works"), RunId::new("works.1"));
    let promise = "journal: a run is not removed while it or one of its children is driven";
    let open = expect_ok(journal.open(&child).await, promise);
    let refused = match journal.remove(&works).await {
        // The journal may not support removal at all.
        Err(error) if error.kind() == JournalErrorKind::Refused => return,
        other => other.map_err(|error| error.kind()),
    };
    same(&refused, &Err(JournalErrorKind::Busy), promise);
    same(
        &expect_ok(journal.list(&RunQuery::new()).await, promise).len(),
        &6,
        promise,
    );
    drop(open);
    let promise = "journal: a run is removed with its children, and no others";
    same(
        &expect_ok(journal.remove(&works).await, promise),
        &true,
        promise,
    );
    let left = expect_ok(journal.list(&RunQuery::new()).await, promise);
    let names: Vec<_> = left.iter().map(|run| run.run.as_str()).collect();
    same(&names, &vec!["done", "asks", "worksalone"], promise);
    same(
        &expect_ok(journal.read(&child).await, promise),
        &Vec::new(),
        promise,
    );
    let promise = "journal: removing a run that does not exist is not an error";
    same(
        &expect_ok(journal.remove(&works).await, promise),
        &false,
        promise,
    );
    let promise = "journal: the id of a removed run can be used again";
    let mut open = expect_ok(journal.open(&works).await, promise);
    same(&open.records, &Vec::new(), promise);
    expect_ok(
        open.log
            .append(&[Record::new(0, Timestamp::from_millis(1), opened(false))])
            .await,
        promise,
    );
    drop(open);
    same(
        &expect_ok(journal.read(&works).await, promise).len(),
        &1,
        promise,
    );
}

/// Returns the posts for a run that have arrived.
async fn posted_now(open: &mut OpenRun, promise: &str) -> Option<Vec<RunRequest>> {
    let mut posted = pin!(open.log.posted());
    poll_fn(|cx| {
        Poll::Ready(match posted.as_mut().poll(cx) {
            Poll::Ready(posts) => Some(expect_ok(posts, promise)),
            Poll::Pending => None,
        })
    })
    .await
}

/// Checks that a post survives until an append confirms it: delivered twice after a crash, never
/// lost.
pub(super) async fn check_post(journal: &impl Journal) {
    fill(journal).await;
    let run = RunId::new("asks");
    let word = RunRequest::Decide {
        effect: EffectId::new(1),
        decision: Decision::Allow,
    };
    let promise = "journal: a post reaches the next driver of the run";
    if journal.post(&run, &word).await.is_err() {
        // The journal may not support posts.
        let mut open = expect_ok(journal.open(&run).await, promise);
        same(
            &posted_now(&mut open, promise).await,
            &None,
            "journal: one without support for posts returns none",
        );
        return;
    }
    let mut open = expect_ok(journal.open(&run).await, promise);
    same(
        &expect_ok(open.log.posted().await, promise),
        &vec![word.clone()],
        promise,
    );
    drop(open);
    let promise = "journal: a delivered post is delivered again until an append";
    let mut open = expect_ok(journal.open(&run).await, promise);
    same(
        &expect_ok(open.log.posted().await, promise),
        &vec![word],
        promise,
    );
    let records = [Record::new(
        2,
        Timestamp::from_millis(3),
        Entry::Commanded(ControlCommand::Resume),
    )];
    expect_ok(open.log.append(&records).await, promise);
    let promise = "journal: a post reaches the current driver of the run, oldest first and once";
    let words = [
        RunRequest::Command(ControlCommand::Pause),
        RunRequest::Command(ControlCommand::Resume),
    ];
    for word in &words {
        expect_ok(journal.post(&run, word).await, promise);
    }
    let mut got = expect_ok(open.log.posted().await, promise);
    while got.len() < words.len() {
        got.extend(expect_ok(open.log.posted().await, promise));
    }
    same(&got, &words.to_vec(), promise);
    let records = [Record::new(
        3,
        Timestamp::from_millis(4),
        Entry::Commanded(ControlCommand::Resume),
    )];
    expect_ok(open.log.append(&records).await, promise);
    drop(open);
    let promise = "journal: a delivered post is removed by an append";
    expect_ok(journal.post(&run, &words[0]).await, promise);
    let mut open = expect_ok(journal.open(&run).await, promise);
    same(
        &expect_ok(open.log.posted().await, promise),
        &words[..1].to_vec(),
        promise,
    );
    drop(open);
    let promise = "journal: posts that have arrived are delivered without waiting";
    let mut open = expect_ok(journal.open(&run).await, promise);
    same(
        &expect_ok(open.log.posted_by_now().await, promise),
        &words[..1].to_vec(),
        promise,
    );
    let promise = "journal: a delivered post is removed by an append without records";
    expect_ok(open.log.append(&[]).await, promise);
    drop(open);
    let mut open = expect_ok(journal.open(&run).await, promise);
    same(
        &expect_ok(open.log.posted_by_now().await, promise),
        &Vec::new(),
        promise,
    );
    let missing = journal.post(&RunId::new("nobody"), &words[0]).await;
    assert!(
        missing.is_err(),
        "journal: a run that does not exist accepts no posts"
    );
}
