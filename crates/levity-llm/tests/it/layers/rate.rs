use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream as _;
use levity_core::{Delta, Deltas, Model, ModelError, ModelErrorKind, Request, Timestamp, World};
use levity_llm::ModelExt;
use levity_llm::layers::{Rate, RateLimit};
use levity_test::{ManualWorld, ScriptedModel, Turn};

use super::support::{ask, pieces};

type Limited = RateLimit<ScriptedModel>;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn model(key: &str, rate: Rate, world: &ManualWorld) -> Limited {
    let inner = ScriptedModel::looping(Turn::new().text("yes"));
    inner
        .rate_limit(rate)
        .key(key)
        .with_world(Arc::new(world.clone()))
}

fn since_start(world: &ManualWorld) -> Duration {
    world.now().since(ManualWorld::START)
}

#[tokio::test]
async fn gemini_free_tier_allows_fifteen_spaced_requests_per_minute() {
    let world = ManualWorld::auto();
    let inner = ScriptedModel::looping(Turn::new().text("yes"));
    let model = RateLimit::gemini_free(inner)
        .key("gemini")
        .with_world(Arc::new(world.clone()));
    let mut sent = Vec::new();
    for _ in 0..31 {
        model.complete(Request::new()).await.unwrap();
        sent.push(since_start(&world));
    }
    assert!(
        sent.windows(2)
            .all(|pair| pair[1] - pair[0] >= Duration::from_millis(4_500)),
        "{sent:?}"
    );
    assert!(
        sent.windows(16)
            .all(|window| window[15] - window[0] >= seconds(60)),
        "{sent:?}"
    );
    assert_eq!(
        sent[14],
        Duration::from_millis(14 * 4_500),
        "and no later than needed"
    );
    assert_eq!(sent[15], Duration::from_millis(15 * 4_500));
}

#[tokio::test]
async fn requests_per_minute_use_sliding_window() {
    let world = ManualWorld::auto();
    let model = model("slide", Rate::new().requests(2), &world);
    let mut sent = Vec::new();
    for pause in [0, 50, 0, 0] {
        world.advance(seconds(pause));
        model.complete(Request::new()).await.unwrap();
        sent.push(since_start(&world).as_secs());
    }
    assert_eq!(sent, [0, 50, 60, 110]);
}

#[tokio::test]
async fn rate_is_shared_per_key() {
    let world = ManualWorld::auto();
    let rate = || Rate::new().min_interval(seconds(10));
    let (one, two, other) = (
        model("k1", rate(), &world),
        model("k1", rate(), &world),
        model("k2", rate(), &world),
    );
    one.complete(Request::new()).await.unwrap();
    other.complete(Request::new()).await.unwrap();
    assert_eq!(since_start(&world), seconds(0));
    two.complete(Request::new()).await.unwrap();
    assert_eq!(since_start(&world), seconds(10));
    drop((one, two));
    model("k1", rate(), &world)
        .complete(Request::new())
        .await
        .unwrap();
    assert_eq!(
        since_start(&world),
        seconds(10),
        "what nobody holds is forgotten"
    );
}

#[tokio::test]
async fn waiters_run_in_order_and_waits_are_reported() {
    let world = ManualWorld::new();
    let limited = Arc::new(model("line", Rate::new().min_interval(seconds(10)), &world));
    limited.complete(Request::new()).await.unwrap();
    let mut waiting = Vec::new();
    for expected in [10, 20, 30] {
        let mut deltas = limited.stream(ask("?")).await.unwrap();
        match deltas.next().await.unwrap().unwrap() {
            Delta::Waiting { time, reason } => {
                assert_eq!(
                    (time, reason.as_str()),
                    (seconds(expected), "rate limit `line`")
                );
            }
            other => panic!("{other:?}"),
        }
        waiting.push(deltas);
    }
    // The second gives up, and the third moves up.
    drop(waiting.remove(1));
    let (mut third, mut first) = (waiting.pop().unwrap(), waiting.pop().unwrap());
    let yes = || Poll::Ready(Some(Ok(Delta::Text("yes".into()))));
    assert!(poll(&mut third).await.is_pending() && poll(&mut first).await.is_pending());
    world.advance(seconds(10));
    assert!(poll(&mut third).await.is_pending(), "though it asks first");
    assert_eq!(poll(&mut first).await, yes());
    assert!(
        poll(&mut third).await.is_pending(),
        "its turn, and too early"
    );
    world.advance(seconds(10));
    assert_eq!(poll(&mut third).await, yes());
}

/// Polls once, without waiting.
async fn poll(deltas: &mut Deltas) -> Poll<Option<Result<Delta, ModelError>>> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *deltas).poll_next(cx))).await
}

#[tokio::test]
async fn dropped_waiter_blocks_no_other() {
    let world = ManualWorld::new();
    let limited = model("quit", Rate::new().min_interval(seconds(10)), &world);
    limited.complete(Request::new()).await.unwrap();
    let (mut dropped, mut stays) = (
        limited.stream(ask("1")).await.unwrap(),
        limited.stream(ask("2")).await.unwrap(),
    );
    dropped.next().await;
    stays.next().await;
    tokio::select! {
        biased;
        _ = dropped.next() => panic!("the clock stands still"),
        () = world.until_sleeping(1) => {}
    }
    drop(dropped);
    assert_eq!(world.sleepers(), 0);
    let turn = async {
        world.until_sleeping(1).await;
        world.advance(seconds(10));
    };
    let (next, ()) = tokio::join!(stays.next(), turn);
    assert_eq!(next, Some(Ok(Delta::Text("yes".into()))));
}

#[tokio::test]
async fn token_estimate_is_corrected_by_usage() {
    let world = ManualWorld::auto();
    let inner = ScriptedModel::new()
        .turn(Turn::new().text("a").usage(90, 10))
        .turn(Turn::new().text("b").usage(10, 10))
        .turn(Turn::new().text("c").usage(10, 10));
    let rate = Rate::new().tokens(100);
    let model = inner
        .rate_limit(rate)
        .key("tokens")
        .with_world(Arc::new(world.clone()));
    model.complete(ask("hi")).await.unwrap();
    assert_eq!(since_start(&world), seconds(0), "the estimate is small");
    model.complete(ask("hi")).await.unwrap();
    assert_eq!(
        since_start(&world),
        seconds(60),
        "what it took was all there is"
    );
    model
        .stream(ask(&"x".repeat(400)))
        .await
        .unwrap()
        .fold()
        .await
        .unwrap();
    assert_eq!(
        since_start(&world),
        seconds(120),
        "an estimate counts before the call"
    );
    let huge = ask(&"x".repeat(4_000_000));
    let (deltas, error) = pieces(&model, huge).await;
    assert_eq!(
        error.unwrap().kind(),
        ModelErrorKind::BadRequest,
        "the script is over, so it was sent"
    );
    assert!(
        matches!(&deltas[..], [Delta::Waiting { time, .. }] if *time == seconds(60)),
        "once there is room"
    );
}

#[tokio::test]
async fn retry_after_of_provider_delays_all_requests() {
    let world = ManualWorld::auto();
    let busy = ModelErrorKind::RateLimited {
        retry_after: Some(seconds(30)),
    };
    let inner = ScriptedModel::new().fail(busy).reply("yes").reply("yes");
    let limited = |inner: ScriptedModel| {
        inner
            .rate_limit(Rate::new())
            .key("busy")
            .with_world(Arc::new(world.clone()))
    };
    let (one, other) = (limited(inner.clone()), limited(inner));
    assert_eq!(one.complete(ask("?")).await.unwrap_err().kind(), busy);
    other.complete(ask("?")).await.unwrap();
    assert_eq!(since_start(&world), seconds(30));
    other.complete(ask("?")).await.unwrap();
    assert_eq!(since_start(&world), seconds(30));
}

#[tokio::test]
async fn clock_set_back_does_not_extend_waits() {
    let world = ManualWorld::auto();
    let limited = model("back", Rate::new().requests(1), &world);
    limited.complete(Request::new()).await.unwrap();
    world.set(Timestamp::from_millis(
        ManualWorld::START.as_millis() - 3_600_000,
    ));
    let before = world.now();
    limited.complete(Request::new()).await.unwrap();
    assert_eq!(world.now().since(before), seconds(60));
}

#[tokio::test]
async fn queue_is_bounded() {
    let world = ManualWorld::new();
    let limited = model(
        "full",
        Rate::new().min_interval(seconds(10)).max_waiting(1),
        &world,
    );
    limited.complete(Request::new()).await.unwrap();
    let mut waits = limited.stream(Request::new()).await.unwrap();
    waits.next().await;
    let error = limited.complete(Request::new()).await.unwrap_err();
    assert_eq!(
        error.kind(),
        ModelErrorKind::RateLimited { retry_after: None }
    );
    assert_eq!(
        error.to_string(),
        "1 calls are already waiting for the rate limit `full`; retry later or raise `max_waiting`"
    );
}

#[tokio::test]
async fn without_waiting_only_immediate_requests_pass() {
    let world = ManualWorld::new();
    let limited = model(
        "no line",
        Rate::new().min_interval(seconds(10)).max_waiting(0),
        &world,
    );
    limited.complete(Request::new()).await.unwrap();
    assert!(limited.complete(Request::new()).await.is_err());
    world.advance(seconds(10));
    limited.complete(Request::new()).await.unwrap();
}
