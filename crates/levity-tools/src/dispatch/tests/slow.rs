//! Tools that take long, hang, panic or fail temporarily.

use std::sync::mpsc;
use std::task::Poll;

use futures_util::future::join_all;
use tokio::sync::Notify;

use super::*;

fn counting(
    hints: Hints,
    work: impl Fn(u32) -> Result<ToolOutput, ToolError> + Send + Sync + 'static,
) -> (FnTool, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let tool = FnTool::new(spec("t", hints), move |_, cx| {
        assert_eq!(cx.attempt, count.fetch_add(1, Ordering::SeqCst) + 1);
        assert_eq!(&*cx.key, "run/1");
        std::future::ready(work(cx.attempt))
    });
    (tool, calls)
}

#[track_caller]
fn retried(
    hints: Hints,
    work: impl Fn(u32) -> Result<ToolOutput, ToolError> + Send + Sync + 'static,
    calls: u32,
    text: &str,
) {
    let (tool, count) = counting(hints, work);
    assert_eq!(call(&dispatcher(tool), "t", json!({})).text(), text);
    assert_eq!(count.load(Ordering::SeqCst), calls);
}

fn fails_twice(attempt: u32) -> Result<ToolOutput, ToolError> {
    if attempt <= 2 {
        Err(ToolError::transient("busy"))
    } else {
        Ok(ToolOutput::text("at last"))
    }
}

#[test]
fn only_safe_and_transient_failures_are_retried() {
    retried(Hints::new().read_only(), fails_twice, 3, "at last");
    retried(Hints::new().idempotent(), fails_twice, 3, "at last");
    retried(Hints::new(), fails_twice, 1, "busy");
    let busy = |_| Err(ToolError::transient("busy"));
    retried(
        Hints::new().read_only(),
        busy,
        3,
        "busy (3 attempts were made)",
    );
    let broken = |attempt| match attempt {
        1 => Err(ToolError::transient("busy")),
        _ => Err(ToolError::failed("broken")),
    };
    retried(
        Hints::new().read_only(),
        broken,
        2,
        "broken (2 attempts were made)",
    );
    retried(
        Hints::new().read_only(),
        |_| Err(ToolError::failed("broken")),
        1,
        "broken",
    );
}

#[test]
fn pauses_grow_and_are_random() {
    let (tool, calls) = counting(Hints::new().read_only(), |_| {
        Err(ToolError::transient("busy"))
    });
    let clock = Clock::skipping();
    let registry = Registry::builder().tool(tool).build().unwrap();
    let (base, max) = (Duration::from_secs(1), Duration::from_secs(3));
    let dispatcher = Dispatcher::builder(registry)
        .world(clock.clone())
        .retries(4)
        .backoff(base, max)
        .build()
        .unwrap();
    call(&dispatcher, "t", json!({}));
    assert_eq!(calls.load(Ordering::SeqCst), 5);
    let slept: Vec<_> = clock
        .slept
        .lock()
        .unwrap()
        .iter()
        .map(Duration::as_millis)
        .collect();
    // The clock's random numbers are 0.00, 0.62, 0.24 and 0.85 of the whole; the wholes 1, 2, 3 and
    // 3 s.
    assert_eq!(slept, [0, 1236, 708, 2562]);
}

#[test]
fn tool_that_never_returns_times_out() {
    let tokens = Arc::new(Mutex::new(Vec::<CancelToken>::new()));
    let hang = |hints: Hints| {
        let tokens = tokens.clone();
        dispatcher(FnTool::new(spec("t", hints), move |_, cx| {
            tokens.lock().unwrap().push(cx.cancel);
            std::future::pending()
        }))
    };
    let text = "the tool timed out after 60s; it may have taken effect nevertheless";
    check(
        &call(&hang(Hints::new()), "t", json!({})),
        ToolErrorKind::Timeout,
        text,
    );
    let hints = Hints::new()
        .read_only()
        .timeout(Duration::from_millis(1500));
    let text = "the tool timed out after 1.5s (3 attempts were made)";
    check(
        &call(&hang(hints), "t", json!({})),
        ToolErrorKind::Timeout,
        text,
    );
    let tokens = tokens.lock().unwrap();
    assert!(tokens.len() == 4 && tokens.iter().all(CancelToken::is_cancelled));
}

#[test]
fn ready_tool_never_uses_the_clock() {
    let clock = Clock::still();
    let registry = Registry::builder()
        .tool(FnTool::named("t"))
        .build()
        .unwrap();
    call(
        &Dispatcher::builder(registry)
            .world(clock.clone())
            .build()
            .unwrap(),
        "t",
        json!({}),
    );
    assert!(clock.slept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn timeout_counts_from_start_and_not_from_queue() {
    let gate = Arc::new(Notify::new());
    let waiting = gate.clone();
    let tool = FnTool::new(
        spec("t", Hints::new().timeout(Duration::from_secs(10))),
        move |args, _| {
            let gate = waiting.clone();
            async move {
                if args["wait"] == true {
                    gate.notified().await;
                }
                Ok(ToolOutput::text("done"))
            }
        },
    );
    let open = json!({"type": "object"});
    let tool = FnTool(tool.0.with_input(open), tool.1);
    let clock = Clock::still();
    let registry = Registry::builder().tool(tool).build().unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(clock.clone())
        .max_concurrent(1)
        .build()
        .unwrap();
    let (first, second) = (
        ToolCall::new("1", "t", json!({"wait": true})),
        ToolCall::new("2", "t", json!({})),
    );
    let mut first = Box::pin(dispatcher.dispatch(&first, false, cx()));
    let mut second = Box::pin(dispatcher.dispatch(&second, false, cx()));
    let poll = &mut Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(poll).is_pending() && second.as_mut().poll(poll).is_pending());
    clock.advance(Duration::from_secs(9));
    assert!(first.as_mut().poll(poll).is_pending() && second.as_mut().poll(poll).is_pending());
    clock.advance(Duration::from_secs(1));
    let Poll::Ready(Dispatched::Done(result)) = first.as_mut().poll(poll) else {
        panic!()
    };
    assert_eq!(result.error, Some(ToolErrorKind::Timeout));
    let Poll::Ready(Dispatched::Done(result)) = second.as_mut().poll(poll) else {
        panic!()
    };
    assert_eq!(result.error, None);
}

#[test]
fn dropping_call_cancels_tool() {
    let seen = Arc::new(Mutex::new(None));
    let place = seen.clone();
    let tool = FnTool::new(ToolSpec::new("t", ""), move |_, cx| {
        *place.lock().unwrap() = Some(cx.cancel);
        std::future::pending()
    });
    let registry = Registry::builder().tool(tool).build().unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Clock::still())
        .build()
        .unwrap();
    let call = ToolCall::new("c", "t", json!({}));
    let mut future = Box::pin(dispatcher.dispatch(&call, false, cx()));
    assert!(
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    let token = seen.lock().unwrap().clone().unwrap();
    assert!(!token.is_cancelled());
    drop(future);
    assert!(token.is_cancelled());
}

fn panics(hints: Hints) -> FnTool {
    FnTool::new(
        spec("t", hints).with_input(json!({"type": "object"})),
        |args, _| {
            assert_ne!(args["now"], json!(true), "at once");
            async move {
                match args["with"].as_str() {
                    Some("number") => std::panic::panic_any(7),
                    Some("long") => panic!("{}", "é".repeat(10_000)),
                    _ => panic!("oh no"),
                }
            }
        },
    )
}

#[tokio::test]
async fn tool_panic_is_a_failure() {
    for hints in [Hints::new(), Hints::new().blocking()] {
        let registry = Registry::builder().tool(panics(hints)).build().unwrap();
        let dispatcher = Dispatcher::builder(registry)
            .world(Clock::still())
            .build()
            .unwrap();
        let mut texts = Vec::new();
        for args in [
            json!({}),
            json!({"with": "number"}),
            json!({"with": "long"}),
            json!({"now": true}),
        ] {
            let call = ToolCall::new("c", "t", args);
            let Dispatched::Done(result) = dispatcher.dispatch(&call, false, cx()).await else {
                panic!()
            };
            assert_eq!(result.error, Some(ToolErrorKind::Failed));
            texts.push(result.text().into_owned());
        }
        assert_eq!(
            (&*texts[0], &*texts[1]),
            ("the tool panicked: oh no", "the tool panicked")
        );
        assert!(texts[2].len() < 600 && texts[2].ends_with('…'));
        assert!(texts[3].contains("at once"));
    }
}

#[test]
fn panic_while_dropping_tool_is_ignored() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    let tool = FnTool::new(ToolSpec::new("t", ""), |_, _| async {
        let _bomb = Bomb;
        std::future::pending().await
    });
    assert_eq!(
        call(&dispatcher(tool), "t", json!({})).error,
        Some(ToolErrorKind::Timeout)
    );
}

#[tokio::test]
async fn blocking_tool_does_not_stall_others() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(Some(released));
    let blocking = FnTool::ready(spec("block", Hints::new().blocking()), move |_| {
        released.lock().unwrap().take().unwrap().recv().unwrap();
        Ok(ToolOutput::text("released"))
    });
    let registry = Registry::builder()
        .tool(blocking)
        .tool(FnTool::named("quick"))
        .build()
        .unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Clock::still())
        .build()
        .unwrap();
    let block = ToolCall::new("1", "block", json!({}));
    let mut blocked = Box::pin(dispatcher.dispatch(&block, false, cx()));
    assert!(
        blocked
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    assert_eq!(call(&dispatcher, "quick", json!({})).text(), "done");
    release.send(()).unwrap();
    let Dispatched::Done(result) = blocked.await else {
        panic!()
    };
    assert_eq!(result.text(), "released");
}

#[tokio::test]
async fn blocking_tool_is_notified_of_timeout() {
    let (told, hears) = mpsc::channel();
    let started = Arc::new(Notify::new());
    let start = started.clone();
    let tool = FnTool::ready(spec("t", Hints::new().blocking()), |_| unreachable!());
    let tool = FnTool::new(tool.0, move |_, cx| {
        start.notify_one();
        while !cx.cancel.is_cancelled() {
            std::thread::yield_now();
        }
        told.send(()).unwrap();
        std::future::ready(Ok(ToolOutput::default()))
    });
    let clock = Clock::still();
    let registry = Registry::builder().tool(tool).build().unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(clock.clone())
        .build()
        .unwrap();
    let call = ToolCall::new("c", "t", json!({}));
    let wait = async {
        started.notified().await;
        clock.advance(Duration::from_secs(60));
    };
    let (Dispatched::Done(result), ()) =
        tokio::join!(dispatcher.dispatch(&call, false, cx()), wait)
    else {
        panic!()
    };
    assert_eq!(result.error, Some(ToolErrorKind::Timeout));
    hears.recv().unwrap();
}

#[tokio::test]
async fn waiting_tool_on_thread_is_stopped() {
    let (dropped, hears) = mpsc::channel::<()>();
    let started = Arc::new(Notify::new());
    let (start, dropped) = (started.clone(), Mutex::new(Some(dropped)));
    let tool = FnTool::new(spec("t", Hints::new().blocking()), move |_, _| {
        let held = dropped.lock().unwrap().take();
        start.notify_one();
        async move {
            let _held = held;
            std::future::pending().await
        }
    });
    let registry = Registry::builder().tool(tool).build().unwrap();
    let dispatcher = Dispatcher::builder(registry)
        .world(Clock::still())
        .build()
        .unwrap();
    let call = ToolCall::new("c", "t", json!({}));
    let mut future = Box::pin(dispatcher.dispatch(&call, false, cx()));
    assert!(
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    started.notified().await;
    drop(future);
    assert!(hears.recv().is_err());
}

#[test]
fn blocking_tool_without_runtime_returns_error() {
    let tool = FnTool::ready(spec("t", Hints::new().blocking()), |_| {
        Ok(ToolOutput::default())
    });
    let text = "the tool needs a separate thread, but there is no tokio runtime";
    check(
        &call(&dispatcher(tool), "t", json!({})),
        ToolErrorKind::Failed,
        text,
    );
}

#[tokio::test]
async fn failing_calls_do_not_affect_others() {
    let tools = Registry::builder()
        .tool(weather())
        .tool_as("panics", panics(Hints::new()))
        .tool_as("panics_apart", panics(Hints::new().blocking()))
        .tool_as(
            "hangs",
            FnTool::new(ToolSpec::new("t", ""), |_, _| std::future::pending()),
        )
        .tool_as(
            "long",
            FnTool::ready(ToolSpec::new("t", ""), |_| {
                Ok(ToolOutput::text("x".repeat(1 << 22)))
            }),
        );
    let clock = Clock::still();
    let dispatcher = Dispatcher::builder(tools.build().unwrap())
        .world(clock.clone())
        .build()
        .unwrap();
    let names = [
        "panics",
        "weather",
        "hangs",
        "weather",
        "nobody",
        "long",
        "panics_apart",
        "weather",
    ];
    let calls = names.map(|name| {
        ToolCall::new(
            "c",
            name,
            if name == "weather" {
                json!({"city": "Rome"})
            } else {
                json!({})
            },
        )
    });
    let work = join_all(
        calls
            .iter()
            .map(|call| dispatcher.dispatch(call, false, cx())),
    );
    let turn = async {
        // The hanging call has to be asleep before time passes.
        while clock.slept.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(60));
    };
    let (results, ()) = tokio::join!(work, turn);
    for (result, name) in results.iter().zip(names) {
        let Dispatched::Done(result) = result else {
            panic!()
        };
        assert_eq!(
            result.is_error(),
            !matches!(name, "weather" | "long"),
            "{name}: {}",
            result.text()
        );
    }
}
