//! Calls that are undone before they are repeated.

use std::sync::mpsc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use levity_core::{Tool, ToolCx};
use tokio::sync::Notify;

use super::*;

type Outcome = Result<ToolOutput, ToolError>;
type Work = dyn Fn(ToolCx) -> BoxFuture<'static, Outcome> + Send + Sync;

/// A tool that records its calls and undos.
struct Undoable {
    spec: ToolSpec,
    log: Log,
    call: Box<Work>,
    undo: Box<Work>,
}

type Log = Arc<Mutex<Vec<String>>>;

#[async_trait]
impl Tool for Undoable {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Outcome {
        self.note("call", &args, cx);
        (self.call)(cx.clone()).await
    }

    async fn undo(&self, args: Value, cx: &ToolCx) -> Result<(), ToolError> {
        self.note("undo", &args, cx);
        (self.undo)(cx.clone()).await.map(drop)
    }
}

impl Undoable {
    fn note(&self, what: &str, args: &Value, cx: &ToolCx) {
        assert_eq!(
            (args, &*cx.key, cx.call.as_str()),
            (&json!({"n": 7}), "run/1", "c")
        );
        let resumed = if cx.resumed { " resumed" } else { "" };
        self.log
            .lock()
            .unwrap()
            .push(format!("{what} {}{resumed}", cx.attempt));
    }
}

fn undoable(
    hints: Hints,
    call: impl Fn(ToolCx) -> Outcome + Send + Sync + 'static,
    undo: impl Fn(ToolCx) -> Outcome + Send + Sync + 'static,
) -> (Dispatcher, Log) {
    let (call, undo): (Box<Work>, Box<Work>) = (
        Box::new(move |cx| std::future::ready(call(cx)).boxed()),
        Box::new(move |cx| std::future::ready(undo(cx)).boxed()),
    );
    made(hints, call, undo, Clock::skipping())
}

fn made(hints: Hints, call: Box<Work>, undo: Box<Work>, clock: Arc<Clock>) -> (Dispatcher, Log) {
    let log = Log::default();
    let spec = spec("t", hints).with_input(json!({"type": "object", "required": ["n"]}));
    let tool = Undoable {
        spec,
        log: log.clone(),
        call,
        undo,
    };
    // The tool has another name, so that renaming is tested as well.
    let registry = Registry::builder().tool_as("u", tool).build().unwrap();
    (
        Dispatcher::builder(registry).world(clock).build().unwrap(),
        log,
    )
}

/// Dispatches a call that does not wait.
#[track_caller]
fn dispatched(dispatcher: &Dispatcher, args: Value, again: bool) -> Dispatched {
    let call = ToolCall::new("c", "u", args);
    let future = dispatcher.dispatch(&call, false, cx().with_again(again));
    future.now_or_never().expect("it waits")
}

#[track_caller]
fn check_log(log: &Log, expected: &[&str]) {
    assert_eq!(*log.lock().unwrap(), expected);
}

fn ok(_: ToolCx) -> Outcome {
    Ok(ToolOutput::text("done"))
}

fn busy(_: ToolCx) -> Outcome {
    Err(ToolError::transient("busy"))
}

fn at_third(cx: ToolCx) -> Outcome {
    if cx.attempt < 3 { busy(cx) } else { ok(cx) }
}

#[track_caller]
fn check_done(dispatched: &Dispatched, text: &str) {
    let Dispatched::Done(result) = dispatched else {
        panic!("{dispatched:?}")
    };
    assert_eq!(result.text(), text);
}

#[track_caller]
fn check_unknown(dispatched: &Dispatched, why: &str) {
    let Dispatched::Unknown { reason } = dispatched else {
        panic!("{dispatched:?}")
    };
    assert_eq!(reason, why);
}

#[test]
fn call_is_undone_before_retry() {
    let (dispatcher, log) = undoable(Hints::new().compensable(), at_third, ok);
    check_done(&dispatched(&dispatcher, json!({"n": 7}), false), "done");
    check_log(&log, &["call 1", "undo 1", "call 2", "undo 2", "call 3"]);
}

#[test]
fn failure_without_retry_is_not_undone() {
    let broken = |_| Err(ToolError::failed("broken"));
    let (dispatcher, log) = undoable(Hints::new().compensable(), broken, ok);
    check_done(&dispatched(&dispatcher, json!({"n": 7}), false), "broken");
    check_log(&log, &["call 1"]);

    let (dispatcher, log) = undoable(Hints::new().compensable(), busy, ok);
    check_done(
        &dispatched(&dispatcher, json!({"n": 7}), false),
        "busy (3 attempts were made)",
    );
    check_log(&log, &["call 1", "undo 1", "call 2", "undo 2", "call 3"]);
}

#[test]
fn failed_undo_is_reported_with_first_error() {
    let (dispatcher, log) = undoable(Hints::new().compensable(), busy, |_| {
        Err(ToolError::transient("no way back"))
    });
    let text = "busy; undoing the call failed as well, so it may have taken effect: no way back";
    check_done(&dispatched(&dispatcher, json!({"n": 7}), false), text);
    check_log(&log, &["call 1", "undo 1"]);
}

#[test]
fn timed_out_call_is_undone_under_a_timeout() {
    let hang = || -> Box<Work> { Box::new(|_| std::future::pending().boxed()) };
    let hints = || Hints::new().compensable().timeout(Duration::from_secs(5));
    let fine: Box<Work> = Box::new(|cx| std::future::ready(ok(cx)).boxed());
    let (dispatcher, log) = made(hints(), hang(), fine, Clock::skipping());
    let text = "the tool timed out after 5s; it may have taken effect nevertheless (3 attempts \
        were made)";
    check_done(&dispatched(&dispatcher, json!({"n": 7}), false), text);
    check_log(&log, &["call 1", "undo 1", "call 2", "undo 2", "call 3"]);

    let (dispatcher, log) = made(hints(), hang(), hang(), Clock::skipping());
    let text = "the tool timed out after 5s; undoing the call failed as well, so it may have \
        taken effect: \
                the tool timed out after 5s";
    check_done(&dispatched(&dispatcher, json!({"n": 7}), false), text);
    check_log(&log, &["call 1", "undo 1"]);
}

#[test]
fn call_of_earlier_process_is_undone_first() {
    let (dispatcher, log) = undoable(Hints::new().compensable(), ok, ok);
    check_done(&dispatched(&dispatcher, json!({"n": 7}), true), "done");
    check_log(&log, &["undo 1 resumed", "call 1 resumed"]);

    for hints in [Hints::new().idempotent(), Hints::new().read_only()] {
        let (dispatcher, log) = undoable(hints, ok, ok);
        check_done(&dispatched(&dispatcher, json!({"n": 7}), true), "done");
        check_log(&log, &["call 1 resumed"]);
    }
}

#[test]
fn failed_undo_after_crash_leaves_outcome_unknown() {
    let why = |error| format!("the call had started before, and undoing it failed: {error}");
    let check = |undo: fn(ToolCx) -> Outcome, error| {
        let (dispatcher, log) = undoable(Hints::new().compensable(), ok, undo);
        check_unknown(&dispatched(&dispatcher, json!({"n": 7}), true), &why(error));
        check_log(&log, &["undo 1 resumed"]);
    };
    check(|_| Err(ToolError::failed("no way back")), "no way back");
    check(|_| panic!("oh no"), "the tool panicked: oh no");

    let tool = FnTool::ready(spec("u", Hints::new().compensable()), |_| unreachable!());
    let default = dispatched(&dispatcher(tool), json!({}), true);
    check_unknown(
        &default,
        &why("`u` cannot be undone: the tool does not implement `undo`"),
    );
}

#[test]
fn replaced_tool_is_not_called_again() {
    let (dispatcher, log) = undoable(Hints::new(), ok, ok);
    let why = "the call had started before, and must not be made twice";
    check_unknown(&dispatched(&dispatcher, json!({"n": 7}), true), why);
    check_log(&log, &[]);

    let (dispatcher, log) = undoable(Hints::new().compensable(), ok, ok);
    assert!(matches!(
        dispatched(&dispatcher, json!({}), true),
        Dispatched::Unknown { .. }
    ));
    check_log(&log, &[]);
    let gone = ToolCall::new("c", "gone", json!({}));
    let gone = dispatcher
        .dispatch(&gone, false, cx().with_again(true))
        .now_or_never();
    assert!(matches!(gone, Some(Dispatched::Unknown { .. })), "{gone:?}");

    let (dispatcher, _) = undoable(Hints::new().idempotent(), ok, ok);
    let Dispatched::Done(result) = dispatched(&dispatcher, json!({}), true) else {
        panic!()
    };
    assert_eq!(result.error, Some(ToolErrorKind::InvalidArgs));
}

#[tokio::test]
async fn blocking_call_is_undone_after_its_thread_has_finished() {
    let (release, released) = mpsc::channel::<()>();
    let (started, released) = (Arc::new(Notify::new()), Mutex::new(released));
    let (start, order) = (started.clone(), Log::default());
    let (late, undone) = (order.clone(), order.clone());
    let call: Box<Work> = Box::new(move |cx| {
        if cx.attempt == 1 {
            start.notify_one();
            released.lock().unwrap().recv().unwrap();
            late.lock().unwrap().push("took effect late".into());
        }
        std::future::ready(ok(cx)).boxed()
    });
    let undo: Box<Work> = Box::new(move |cx| {
        undone.lock().unwrap().push("undone".into());
        std::future::ready(ok(cx)).boxed()
    });
    let clock = Clock::still();
    let (dispatcher, log) = made(
        Hints::new().compensable().blocking(),
        call,
        undo,
        clock.clone(),
    );
    let call = ToolCall::new("c", "u", json!({"n": 7}));
    let turn = async {
        started.notified().await;
        clock.advance(Duration::from_secs(60));
        // The undo has its own timeout, so it waits once a second sleep has started.
        while clock.slept.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        // An undo that did not wait for the lock would be on its thread before this is on one.
        for _ in 0..10 {
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        }
        release.send(()).unwrap();
        while clock.slept.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(10));
    };
    let (done, ()) = tokio::join!(dispatcher.dispatch(&call, false, cx()), turn);
    check_done(&done, "done");
    check_log(&order, &["took effect late", "undone"]);
    check_log(&log, &["call 1", "undo 1", "call 2"]);
}

#[tokio::test]
async fn other_dispatcher_also_waits_for_blocking_thread() {
    let (release, released) = mpsc::channel::<()>();
    let (started, released) = (Arc::new(Notify::new()), Mutex::new(released));
    let (start, order) = (started.clone(), Log::default());
    let (late, undone) = (order.clone(), order.clone());
    let call: Box<Work> = Box::new(move |cx| {
        start.notify_one();
        released.lock().unwrap().recv().unwrap();
        late.lock().unwrap().push("took effect late".into());
        std::future::ready(ok(cx)).boxed()
    });
    let hints = || Hints::new().compensable().blocking();
    let fine = || -> Box<Work> { Box::new(|cx| std::future::ready(ok(cx)).boxed()) };
    let (first, _) = made(hints(), call, fine(), Clock::still());
    let undo: Box<Work> = Box::new(move |cx| {
        undone.lock().unwrap().push("undone".into());
        std::future::ready(ok(cx)).boxed()
    });
    let (second, _) = made(hints(), fine(), undo, Clock::still());
    let tool_call = ToolCall::new("c", "u", json!({"n": 7}));
    // The run is dropped, and resumed at once by a newly built agent.
    tokio::select! {
        _ = first.dispatch(&tool_call, false, cx()) => panic!("it waits"),
        () = started.notified() => {}
    }
    let turn = async {
        for _ in 0..10 {
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        }
        release.send(()).unwrap();
    };
    let (done, ()) = tokio::join!(
        second.dispatch(&tool_call, false, cx().with_again(true)),
        turn
    );
    check_done(&done, "done");
    check_log(&order, &["took effect late", "undone"]);
}
