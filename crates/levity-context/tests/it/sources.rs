use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_context::{ContextExt as _, ContextFn, Sources};
use levity_core::{ContextBlock, ContextError, ContextLifetime, ContextRequest, ContextSource};
use levity_test::{ManualWorld, conformance};

use crate::{assert_texts, blocks, texts};

fn block(name: &str, lines: usize) -> ContextBlock {
    ContextBlock::new(name, "0123456\n".repeat(lines))
}

fn names(blocks: &[ContextBlock]) -> Vec<&str> {
    blocks.iter().map(|block| block.name.as_str()).collect()
}

fn is_cut(block: &ContextBlock) -> bool {
    block.text.contains("[cut: ")
}

#[tokio::test]
async fn blocks_keep_order_of_sources_with_any_priority() {
    let sources = Sources::new()
        .source_with_priority(-5, block("a", 1))
        .source_with_priority(9, block("b", 1))
        .source(block("c", 1));
    assert_eq!(names(&blocks(&sources, 1_000).await), ["a", "b", "c"]);
}

#[tokio::test]
async fn low_priority_source_is_omitted_first() {
    // Each block takes 103 tokens if it is complete.
    let sources = Sources::new()
        .source_with_priority(-1, block("low", 50))
        .source_with_priority(1, block("high", 50))
        .source(block("mid", 50));
    for (budget, whole) in [(400, 3), (300, 2), (200, 1)] {
        let found = blocks(&sources, budget).await;
        assert!(found.iter().map(ContextBlock::tokens).sum::<usize>() <= budget);
        let complete: Vec<_> = ["high", "mid", "low"]
            .into_iter()
            .filter(|name| {
                found
                    .iter()
                    .any(|block| block.name == *name && !is_cut(block))
            })
            .collect();
        assert_eq!(complete, ["high", "mid", "low"][..whole], "{budget}");
    }
    let found = blocks(&sources, 150).await;
    assert_eq!(names(&found), ["high", "mid", "context left out"]);
    assert_eq!(found[2].text, "[there is no room for all]");
    let found = blocks(&sources.with_budget(240), 1_000).await;
    assert_eq!(names(&found), ["high", "mid", "context left out"]);
    assert_eq!(
        found[2].text,
        "[not shown for lack of room: what comes from 1 more source]"
    );
}

/// A source that returns more than the budget allows.
struct Greedy;

#[async_trait]
impl ContextSource for Greedy {
    async fn blocks(&self, _: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        Ok((0..9).map(|n| block(&n.to_string(), 50)).collect())
    }
}

#[tokio::test]
async fn excess_blocks_are_omitted_and_named() {
    let found = blocks(&Sources::new().source(Greedy).source(block("last", 1)), 300).await;
    assert!(found.iter().map(ContextBlock::tokens).sum::<usize>() <= 300);
    assert_eq!(names(&found), ["0", "1", "2", "context left out"]);
    let note = "[not shown for lack of room: `3`, `4`, `5`, `6`, `7`, 1 more block, what comes \
        from 1 more source]";
    assert_eq!(found[3].text, note);
}

#[tokio::test]
async fn blocks_with_same_name_are_numbered() {
    let sources = Sources::new()
        .source(block("a", 1))
        .source(block("a", 2))
        .source(block("a (2)", 3));
    assert_eq!(
        names(&blocks(&sources, 1_000).await),
        ["a", "a (2)", "a (2) (2)"]
    );
}

#[tokio::test]
async fn context_fn_receives_budget_and_goal() {
    let echo = |ask: ContextRequest| async move {
        Ok::<_, ContextError>(format!("{} in {}", ask.goal, ask.budget))
    };
    let source = Sources::new().source(ContextFn::new("echo", echo).with_budget(50));
    let found = source
        .blocks(&ContextRequest::new(1_000).for_goal("Tidy up"))
        .await
        .unwrap();
    assert_eq!(
        (&*found[0].text, found[0].lasts),
        ("Tidy up in 50", ContextLifetime::Run)
    );
    let found = texts(
        &ContextFn::new("echo", echo).lifetime(ContextLifetime::Long),
        20,
    )
    .await;
    assert_texts(&found, &[("echo", " in 20")]);
    let empty = ContextFn::new("empty", |_| async {
        Ok::<_, ContextError>(" \n".to_owned())
    });
    assert_texts(&texts(&empty, 100).await, &[]);
}

#[tokio::test]
async fn sources_pass_goal_and_conversation_to_every_source() {
    let echo = |ask: ContextRequest| async move {
        Ok::<_, ContextError>(format!("{} in {:?}", ask.goal, ask.conversation))
    };
    let sources = Sources::new()
        .source(ContextFn::new("first", echo))
        .source_with_priority(1, ContextFn::new("second", echo));
    let ask = ContextRequest::new(1_000)
        .for_goal("Tidy up")
        .in_conversation(Some("monday".into()));
    let found = sources.blocks(&ask).await.unwrap();
    assert_eq!(names(&found), ["first", "second"]);
    let expected = format!("Tidy up in {:?}", ask.conversation);
    assert!(
        found.iter().all(|block| block.text == expected),
        "{found:?}"
    );
}

#[tokio::test]
async fn failing_source_returns_error_or_note() {
    let fails = || {
        ContextFn::new("tickets", |_| async {
            Err::<String, _>("key 123 was refused")
        })
    };
    let error = Sources::new()
        .source(fails())
        .blocks(&ContextRequest::new(100))
        .await
        .unwrap_err();
    assert_eq!(error.name, "tickets");
    let received = Arc::new(Mutex::new(Vec::new()));
    let into = received.clone();
    let noted = fails()
        .with_fallback_note()
        .on_failure(move |error| into.lock().unwrap().push(error.name.clone()));
    let found = texts(&Sources::new().source(noted).source(block("a", 1)), 100).await;
    assert_texts(
        &found,
        &[
            ("tickets", "[this is not available now]"),
            ("a", "0123456\n"),
        ],
    );
    assert_eq!(*received.lock().unwrap(), ["tickets"]);
}

#[tokio::test]
async fn slow_source_times_out() {
    let world = ManualWorld::new();
    let never = ContextFn::new("never", |_| {
        std::future::pending::<Result<String, ContextError>>()
    });
    let slow = never
        .with_timeout(Duration::from_secs(5), "never")
        .world(world.clone());
    let ask = ContextRequest::new(100);
    let mut asked = std::pin::pin!(slow.blocks(&ask));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(&mut cx).is_pending());
    world.advance(Duration::from_secs(5));
    let error = asked.await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!((&*error.name, &*cause), ("never", "it took longer than 5s"));
    assert_eq!(world.sleepers(), 0);
    assert_texts(
        &texts(
            &block("a", 0).with_timeout(Duration::ZERO, "a").world(world),
            100,
        )
        .await,
        &[("a", "")],
    );
}

#[tokio::test]
async fn sources_pass_source_conformance() {
    let echo = |ask: ContextRequest| async move { Ok::<_, ContextError>(ask.goal.repeat(100)) };
    let fails = || ContextFn::new("fails", |_| async { Err::<String, _>("no") });
    let world = ManualWorld::new();
    conformance::context_source(|| block("a", 100)).await;
    conformance::context_source(|| ContextFn::new("goal", echo)).await;
    conformance::context_source(|| fails().with_fallback_note()).await;
    conformance::context_source(|| {
        block("a", 100)
            .with_timeout(Duration::from_secs(1), "a")
            .world(world.clone())
    })
    .await;
    conformance::context_source(|| {
        let few = Sources::new()
            .source(Greedy)
            .source_with_priority(7, block("b", 9))
            .source(fails().with_fallback_note());
        Sources::new()
            .source(few)
            .source_with_priority(1, ContextFn::new("goal", echo).with_budget(30))
            .source(block("0", 1_000))
    })
    .await;
}
