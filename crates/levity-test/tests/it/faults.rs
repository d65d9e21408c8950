use levity_core::{
    EffectClass, Entry, Hints, Journal, JournalErrorKind, Limit, Record, RunId, RunQuery,
    Timestamp, Tool, ToolCx, ToolError, ToolErrorKind, ToolOutput,
};
use levity_test::{FaultyJournal, FaultyTool, RecordingTool};
use serde_json::json;

use crate::conformance::FlawedJournal;
use crate::{block_on, panic_of};

fn records(count: u64) -> Vec<Record> {
    (0..count)
        .map(|seq| Record::new(seq, Timestamp::default(), Entry::Wrapped(Limit::Tokens)))
        .collect()
}

/// Appends batches of these sizes, each with its own log, and returns which of them succeeded.
fn append(journal: &FaultyJournal, batches: &[u64]) -> Vec<bool> {
    block_on(async {
        let mut done = Vec::new();
        for (n, batch) in batches.iter().enumerate() {
            let mut opened = journal.open(&RunId::from(format!("r{n}"))).await.unwrap();
            let result = opened.log.append(&records(*batch)).await;
            assert!(
                result
                    .as_ref()
                    .err()
                    .is_none_or(|error| error.kind() == JournalErrorKind::Io)
            );
            done.push(result.is_ok());
        }
        done
    })
}

#[track_caller]
fn check(plan: impl Fn(FaultyJournal) -> FaultyJournal, batches: &[u64], done: &[bool]) {
    let journal = plan(FaultyJournal::new(FlawedJournal::default()));
    assert_eq!(append(&journal, batches), done);
    let sizes = batches.iter().zip(done);
    let kept: u64 = sizes.filter(|(_, done)| **done).map(|(size, _)| size).sum();
    let listed = block_on(journal.list(&RunQuery::new()))
        .unwrap()
        .iter()
        .map(|run| run.records)
        .sum::<u64>();
    assert_eq!(
        (listed, journal.records() as u64),
        (kept, kept),
        "what fails keeps nothing"
    );
    assert_eq!(journal.appends(), batches.len());
}

#[test]
fn appends_fail_as_planned() {
    check(|journal| journal, &[1, 2], &[true, true]);
    check(
        |journal| journal.fail_append(2),
        &[1, 1, 1],
        &[true, false, true],
    );
    check(
        |journal| journal.fail_append(1).fail_append(3),
        &[1, 1, 1],
        &[false, true, false],
    );
    check(
        |journal| journal.fail_from(2),
        &[1, 1, 1],
        &[true, false, false],
    );
    check(
        |journal| journal.stop_after_records(3),
        &[2, 2, 1, 1],
        &[true, false, true, false],
    );
    check(
        |journal| journal.stop_after_records(0),
        &[0, 1],
        &[true, false],
    );
}

#[test]
fn append_is_cut_as_by_a_kill() {
    let journal = FaultyJournal::new(FlawedJournal::default()).cut_after_records(3);
    assert_eq!(append(&journal, &[2, 2, 1]), [true, false, false]);
    let kept: Vec<u64> = block_on(journal.list(&RunQuery::new()))
        .unwrap()
        .iter()
        .map(|run| run.records)
        .collect();
    assert_eq!((kept, journal.records()), (vec![2, 1], 3));
}

#[test]
fn open_fails_as_planned() {
    let journal = FaultyJournal::new(FlawedJournal::default()).fail_open();
    let error = block_on(journal.open(&RunId::new("r1"))).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Io);
}

#[test]
fn log_fails_permanently_after_a_failure() {
    let journal = FaultyJournal::new(FlawedJournal::default()).fail_append(1);
    block_on(async {
        let mut opened = journal.open(&RunId::new("r1")).await.unwrap();
        assert!(opened.log.append(&records(1)).await.is_err());
        let error = opened.log.append(&records(1)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "an earlier append failed, so this log cannot be used any more"
        );
        drop(opened);
        let mut opened = journal.open(&RunId::new("r1")).await.unwrap();
        assert!(opened.records.is_empty());
        assert!(opened.log.append(&records(1)).await.is_ok());
    });
}

fn call(tool: &impl Tool) -> Result<ToolOutput, ToolError> {
    block_on(tool.call(json!({}), &ToolCx::detached()))
}

#[test]
fn faulty_tools_misbehave_as_planned() {
    let tool = FaultyTool::panics().named("boom");
    assert_eq!(
        panic_of(|| drop(call(&tool))),
        "tool `boom` panics as planned"
    );
    assert_eq!(tool.calls(), 1);

    assert_eq!(
        call(&FaultyTool::huge(100_000)).unwrap().as_text().len(),
        100_000
    );

    let tool = FaultyTool::wrong_output();
    assert!(call(&tool).unwrap().value.unwrap()["sum"].is_string());
    assert_eq!(
        tool.spec().output.as_ref().unwrap()["properties"]["sum"]["type"],
        "number"
    );

    let (hangs, cx) = (FaultyTool::hangs(), ToolCx::detached());
    block_on(async {
        tokio::select! {
            biased;
            _ = hangs.call(json!({}), &cx) => unreachable!(),
            () = tokio::task::yield_now() => {}
        }
    });
    assert_eq!(hangs.clone().calls(), 1);
}

#[test]
fn flaky_tool_fails_and_then_succeeds() {
    let tool = FaultyTool::fails(2).with_hints(Hints::new().idempotent());
    assert_eq!(tool.spec().hints.class, EffectClass::Idempotent);
    for _ in 0..2 {
        let error = call(&tool).unwrap_err();
        assert_eq!(
            (error.kind(), error.is_retryable()),
            (ToolErrorKind::Failed, true)
        );
    }
    assert_eq!(call(&tool).unwrap().as_text(), "done");
    assert_eq!(tool.calls(), 3);
}

#[test]
fn recording_tool_remembers_its_calls() {
    let tool = RecordingTool::new("echo", |args| Ok(ToolOutput::value(args.clone())))
        .with_input(json!({"type": "object", "required": ["a"]}))
        .with_hints(Hints::new().read_only());
    let mut cx = ToolCx::new(RunId::new("r1"), "c1".into(), "r1/3");
    cx.attempt = 2;
    let output = block_on(tool.clone().call(json!({"a": 1}), &cx)).unwrap();
    assert_eq!(output.value, Some(json!({"a": 1})));
    let calls = tool.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (&calls[0].args, &*calls[0].key, calls[0].attempt),
        (&json!({"a": 1}), "r1/3", 2)
    );
    assert_eq!(
        (&tool.spec().input["required"][0], tool.spec().hints.class),
        (&json!("a"), EffectClass::ReadOnly)
    );
}
