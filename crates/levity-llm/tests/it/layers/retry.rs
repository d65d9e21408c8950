use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Delta, Fees, Message, Model, ModelCard, ModelError, ModelErrorKind, Money, Price, Request,
    Response, Usage, World,
};
use levity_llm::ModelExt;
use levity_test::{FunctionModel, ManualWorld, ScriptedModel, Turn};

use super::support::{ask, auto, pieces};

const BUSY: ModelErrorKind = ModelErrorKind::Overloaded;

fn rate_limited(seconds: u64) -> ModelErrorKind {
    ModelErrorKind::RateLimited {
        retry_after: Some(Duration::from_secs(seconds)),
    }
}

fn interrupted(kind: ModelErrorKind) -> Turn {
    Turn::new()
        .text("Good mor")
        .break_off(ModelError::new(kind, "broke off"))
}

fn since_start(world: &ManualWorld) -> Duration {
    world.now().since(ManualWorld::START)
}

#[tokio::test]
async fn transient_error_is_retried_up_to_limit() {
    let (_, world) = auto();
    let inner = ScriptedModel::new()
        .fail(BUSY)
        .fail(ModelErrorKind::Timeout)
        .fail(BUSY)
        .reply("yes");
    let model = inner.clone().retry().with_world(world.clone());
    assert_eq!(
        model.complete(ask("?")).await.unwrap().message.text(),
        "yes"
    );
    assert_eq!(inner.requests().len(), 4);

    let inner = ScriptedModel::new()
        .fail(BUSY)
        .fail(BUSY)
        .fail(BUSY)
        .fail(ModelErrorKind::Server)
        .reply("no");
    let model = inner.clone().retry().with_world(world);
    let (deltas, error) = pieces(&model, ask("?")).await;
    assert_eq!(
        error.unwrap().kind(),
        ModelErrorKind::Server,
        "the last error, as it came"
    );
    assert_eq!(
        (inner.requests().len(), deltas.len()),
        (4, 3),
        "three waits were seen"
    );
}

#[tokio::test]
async fn permanent_error_is_not_retried() {
    for kind in [
        ModelErrorKind::Auth,
        ModelErrorKind::BadRequest,
        ModelErrorKind::ContextTooLong,
    ] {
        let inner = ScriptedModel::new().fail(kind).reply("no");
        let error = inner.clone().retry().complete(ask("?")).await.unwrap_err();
        assert_eq!((error.kind(), inner.remaining()), (kind, 1));
    }
    let chosen = ScriptedModel::new()
        .fail(ModelErrorKind::Malformed)
        .reply("yes")
        .retry()
        .with_world(auto().1);
    let chosen = chosen.on(|kind| kind == ModelErrorKind::Malformed);
    assert_eq!(
        chosen.complete(ask("?")).await.unwrap().message.text(),
        "yes"
    );
}

#[tokio::test]
async fn backoff_grows_with_jitter() {
    let waits = |seed| async move {
        let world = Arc::new(ManualWorld::auto().with_seed(seed));
        let model = (0..9)
            .fold(ScriptedModel::new(), |model, _| model.fail(BUSY))
            .retry()
            .attempts(9);
        let (deltas, _) = pieces(&model.with_world(world), ask("?")).await;
        let wait = |delta: &Delta| match delta {
            Delta::Waiting { time, .. } => *time,
            other => panic!("{other:?}"),
        };
        deltas.iter().map(wait).collect::<Vec<_>>()
    };
    let (first, second) = (waits(1).await, waits(2).await);
    assert_ne!(first, second, "chance has a part");
    for waits in [first, second] {
        for (wait, full) in waits.iter().zip([1, 2, 4, 8, 16, 32, 60, 60]) {
            let full = Duration::from_secs(full);
            assert!(*wait >= full / 2 && *wait <= full, "{wait:?} of {full:?}");
        }
        assert_eq!(waits.len(), 8);
    }
}

#[tokio::test]
async fn retry_after_is_waited_in_full() {
    let (clock, world) = auto();
    let inner = ScriptedModel::new().fail(rate_limited(300)).reply("yes");
    inner
        .clone()
        .retry()
        .with_world(world.clone())
        .complete(ask("?"))
        .await
        .unwrap();
    let waited = since_start(&clock);
    assert!(
        waited >= Duration::from_secs(300) && waited <= Duration::from_secs(301),
        "{waited:?}"
    );

    let inner = ScriptedModel::new().fail(rate_limited(300)).reply("no");
    let model = inner
        .clone()
        .retry()
        .max_wait(Duration::from_secs(299))
        .with_world(world);
    assert_eq!(
        model.complete(ask("?")).await.unwrap_err().kind(),
        rate_limited(300),
        "unchanged"
    );
    assert_eq!(
        (since_start(&clock), inner.remaining()),
        (waited, 1),
        "and at once"
    );
}

#[tokio::test]
async fn overloaded_error_with_retry_after_is_waited() {
    let (clock, world) = auto();
    let busy = ModelError::new(BUSY, "busy").with_retry_after(Duration::from_secs(300));
    let inner = ScriptedModel::new().fail_with(busy).reply("yes");
    inner
        .retry()
        .with_world(world)
        .complete(ask("?"))
        .await
        .unwrap();
    assert!(since_start(&clock) >= Duration::from_secs(300));
}

#[tokio::test]
async fn streamed_reply_is_not_restarted_unless_allowed() {
    let script = || {
        ScriptedModel::new()
            .turn(interrupted(ModelErrorKind::Transport))
            .reply("Good evening")
    };
    let inner = script();
    let (deltas, error) = pieces(&inner.clone().retry().with_world(auto().1), ask("?")).await;
    assert_eq!(
        (deltas, inner.remaining()),
        (vec![Delta::Text("Good mor".into())], 1)
    );
    assert_eq!(error.unwrap().kind(), ModelErrorKind::Transport);

    let model = || {
        script()
            .retry()
            .restart_after_first_delta()
            .with_world(auto().1)
    };
    let (deltas, error) = pieces(&model(), ask("?")).await;
    let names: Vec<&str> = deltas.iter().map(name).collect();
    assert_eq!(
        (names, error),
        (vec!["text", "waiting", "restart", "text", "usage"], None)
    );
    let whole = model()
        .stream(ask("?"))
        .await
        .unwrap()
        .fold()
        .await
        .unwrap();
    assert_eq!(
        whole.message.text(),
        "Good evening",
        "only the last attempt"
    );
    assert_eq!(model().complete(ask("?")).await.unwrap(), whole);
}

fn name(delta: &Delta) -> &'static str {
    match delta {
        Delta::Text(_) => "text",
        Delta::Waiting { .. } => "waiting",
        Delta::Restart { .. } => "restart",
        Delta::Usage(_) => "usage",
        _ => "other",
    }
}

#[tokio::test]
async fn dropped_call_ends_wait() {
    let world = ManualWorld::new();
    let inner = ScriptedModel::new().fail(BUSY).reply("no");
    let model = inner.clone().retry().with_world(Arc::new(world.clone()));
    let mut deltas = model.stream(ask("?")).await.unwrap();
    assert!(matches!(
        deltas.next().await,
        Some(Ok(Delta::Waiting { .. }))
    ));
    tokio::select! {
        biased;
        _ = deltas.next() => panic!("the clock stands still"),
        () = world.until_sleeping(1) => {}
    }
    drop(deltas);
    assert_eq!((world.sleepers(), inner.remaining()), (0, 1));
}

#[tokio::test]
async fn worst_case_includes_all_attempts() {
    let inner = ScriptedModel::new();
    let once = inner.cost_bound(&ask("?"));
    let worst = inner.clone().retry().attempts(3).cost_bound(&ask("?"));
    assert_eq!((worst.sends, worst.input), (3, once.input));
    let twice = inner.retry().attempts(3).retry().attempts(2);
    assert_eq!(twice.cost_bound(&ask("?")).sends, 6);
}

#[tokio::test]
async fn unknown_fees_count_at_maximum() {
    let mut used = Usage::new(1_000_000, 0);
    (used.searches, used.cache_written) = (Some(2), Some(0));
    let cost = async |price: Price, used: Usage| {
        let reply =
            move |_: &Request| Ok(Response::new(Message::assistant("yes")).with_usage(used));
        let model =
            FunctionModel::new(reply).with_card(ModelCard::new("test", "m").with_price(price));
        model
            .retry()
            .complete(ask("?"))
            .await
            .unwrap()
            .usage
            .cost
            .unwrap()
    };
    let (price, dollars) = (Price::new(1.0, 1.0), Money::from_dollars);
    let fees = Fees::UNKNOWN.saturating_mul(2);
    assert_eq!(cost(price, used).await, dollars(1.0).saturating_add(fees));
    assert_eq!(
        cost(price.with_fees(Fees::new().with_search(0.01)), used).await,
        dollars(1.02)
    );
    // The same holds if the provider does not report cache writes, which then have the highest
    // rate.
    used.cache_written = None;
    assert_eq!(
        cost(price.with_cache_write(2.0), used).await,
        dollars(2.0).saturating_add(fees)
    );
    used.priority = true;
    assert_eq!(
        cost(price.with_cache_write(2.0).with_priority(200), used).await,
        dollars(4.0).saturating_add(fees)
    );
}

#[tokio::test]
async fn attempts_that_may_have_cost_mark_usage_as_estimate() {
    let card = ModelCard::new("test", "m").with_price(Price::new(1.0, 1.0));
    let script = |kind| {
        let model = ScriptedModel::new()
            .fail(kind)
            .turn(Turn::new().text("yes").usage(10, 3));
        model.with_card(card.clone()).retry().with_world(auto().1)
    };
    let sure = script(rate_limited(1))
        .complete(ask("?"))
        .await
        .unwrap()
        .usage;
    assert_eq!(
        (sure.total(), sure.estimated, sure.cost.is_some()),
        (13, false, true),
        "turned down is free"
    );
    let unsure = script(ModelErrorKind::Timeout)
        .complete(ask("?"))
        .await
        .unwrap()
        .usage;
    assert_eq!(
        (unsure.total(), unsure.estimated, unsure.cost),
        (13, true, None)
    );

    let mut known = interrupted(ModelErrorKind::Transport);
    known = known.usage(10, 1);
    let inner = ScriptedModel::new()
        .turn(known)
        .turn(Turn::new().text("yes").usage(10, 3));
    let model = inner
        .retry()
        .restart_after_first_delta()
        .with_world(auto().1);
    let usage = model
        .stream(Request::new())
        .await
        .unwrap()
        .fold()
        .await
        .unwrap()
        .usage;
    let mut expected = Usage::new(10, 3);
    expected.estimated = true;
    assert_eq!(
        usage, expected,
        "a reply that breaks off gives no counts here"
    );
}

#[tokio::test]
async fn reply_failing_midway_may_have_cost() {
    let model = ScriptedModel::new()
        .turn(interrupted(rate_limited(1)))
        .turn(Turn::new().text("yes").usage(10, 3));
    let model = model
        .retry()
        .restart_after_first_delta()
        .with_world(auto().1);
    let usage = model
        .stream(ask("?"))
        .await
        .unwrap()
        .fold()
        .await
        .unwrap()
        .usage;
    assert_eq!(
        (usage.total(), usage.estimated, usage.cost),
        (13, true, None)
    );
    let (_, error) = pieces(
        &ScriptedModel::new()
            .turn(interrupted(rate_limited(1)))
            .retry(),
        ask("?"),
    )
    .await;
    assert!(error.unwrap().may_cost());
}

#[tokio::test]
async fn error_reports_earlier_attempts_that_may_have_cost() {
    let model = ScriptedModel::new()
        .fail(ModelErrorKind::Timeout)
        .fail(ModelErrorKind::Auth);
    let error = model
        .retry()
        .with_world(auto().1)
        .complete(ask("?"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.may_cost()),
        (ModelErrorKind::Auth, true)
    );
    let model = ScriptedModel::new()
        .fail(rate_limited(1))
        .fail(ModelErrorKind::Auth);
    let (_, error) = pieces(&model.retry().with_world(auto().1), ask("?")).await;
    assert!(!error.unwrap().may_cost());
}

#[tokio::test]
async fn extreme_settings_are_accepted() {
    let model = (0..70)
        .fold(ScriptedModel::new(), |model, _| model.fail(BUSY))
        .reply("yes");
    let model = model
        .retry()
        .attempts(u64::MAX)
        .backoff(Duration::MAX, Duration::from_secs(60));
    assert_eq!(
        model
            .with_world(auto().1)
            .complete(ask("?"))
            .await
            .unwrap()
            .message
            .text(),
        "yes"
    );
    let once = ScriptedModel::new()
        .fail(rate_limited(u64::MAX))
        .reply("no")
        .retry()
        .attempts(0);
    assert_eq!(
        once.complete(ask("?")).await.unwrap_err().kind(),
        rate_limited(u64::MAX),
        "once at least"
    );
}
