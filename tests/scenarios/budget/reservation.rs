//! Reservations: children that wait for budget, repeated requests and custom cost bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use levity::core::{
    CostBound, Deltas, Event, EventKind, Limit, ModelCard, ModelError, ModelErrorKind, Request,
};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::{ManualWorld, RecordingTool, ScriptedModel, Turn};
use serde_json::json;

use super::{Billing, Ledger, Provider, assert_ended, card, dollars, provider_price};
use crate::support::{add, collect_events, runtime};

/// Builds an agent whose first child reserves the whole budget forever, while the others wait.
fn agent_with_waiting_children(runtime: Runtime) -> Agent {
    let leaf = Agent::builder(ScriptedModel::new().with_card(card()).hang().hang().hang())
        .build()
        .unwrap();
    let delegation = (0..3).fold(Turn::new(), |turn, _| {
        turn.call("helper", json!({"task": "Count"}))
    });
    let model = ScriptedModel::new()
        .turn(delegation.usage(10, 1))
        .with_card(card());
    let limits = Limits::new()
        .money(dollars(0.025))
        .wall_time(Duration::from_secs(60));
    Agent::builder(model)
        .agent("helper", "Counts.", leaf)
        .limits(limits)
        .runtime(runtime)
        .build()
        .unwrap()
}

fn is_child_call(event: &Event) -> bool {
    event.run.as_str() != "r" && matches!(event.kind, EventKind::ModelStarted { .. })
}

#[tokio::test]
async fn child_without_budget_waits_for_calls_in_progress() {
    let ledger = Ledger::default();
    let leaf = Agent::builder(Provider::new(&ledger, Billing::Modest))
        .build()
        .unwrap();
    let delegation = (0..8).fold(Turn::new(), |turn, _| {
        turn.call("helper", json!({"task": "Count"}))
    });
    let model = ScriptedModel::new()
        .turn(delegation.usage(10, 1))
        .turn(Turn::new().text("2").usage(10, 1));
    let agent = Agent::builder(model.with_card(card())).agent("helper", "Counts.", leaf);
    // The highest cost of one call, and a little more.
    let agent = agent
        .limits(Limits::new().money(dollars(0.03)))
        .build()
        .unwrap();
    let answer = agent.run("Count").await.unwrap();
    assert!(
        answer
            .history()
            .calls()
            .all(|(_, result)| !result.is_error()),
        "a child was refused"
    );
    assert_eq!(
        (ledger.calls(), ledger.max_in_flight.load(Ordering::SeqCst)),
        (8, 1)
    );
}

#[tokio::test]
async fn children_waiting_for_budget_can_be_paused_and_cancelled() {
    let (runtime, _) = runtime();
    let mut run = agent_with_waiting_children(runtime.with_world(ManualWorld::new()))
        .run("Count")
        .id("r")
        .start();
    let mut events = run.events();
    while !is_child_call(&events.next().await.unwrap()) {}
    run.pause().await.unwrap();
    run.resume().await.unwrap();
    run.cancel("enough").await.unwrap();
    let error = run.await.unwrap_err();
    assert!(matches!(error, levity::Error::Cancelled { .. }), "{error}");
    let mut calls = 0;
    while let Some(event) = events.next().await {
        calls += usize::from(is_child_call(&event));
        assert!(
            !matches!(event.kind, EventKind::Refused { .. }),
            "a waiting child must not be refused"
        );
    }
    assert_eq!(calls, 0, "the budget allowed only one of three calls");
}

#[tokio::test]
async fn wall_time_ends_children_waiting_for_budget() {
    let (runtime, _) = runtime();
    let world = ManualWorld::new();
    let mut run = agent_with_waiting_children(runtime.with_world(world.clone()))
        .run("Count")
        .id("r")
        .start();
    let mut events = run.events();
    while !is_child_call(&events.next().await.unwrap()) {}
    world.until_sleeping(1).await;
    world.advance(Duration::from_secs(60));
    let error = run.await.unwrap_err();
    assert!(
        matches!(
            error,
            levity::Error::Limit {
                limit: Limit::WallTime,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn provider_exceeding_its_bound_is_not_called_again() {
    let turn = Turn::new()
        .text("One more.")
        .call("add", json!({"a": 1, "b": 1}))
        .usage(1_000_000, 100_000);
    let model = ScriptedModel::looping(turn).with_card(card());
    let agent = Agent::builder(model.clone())
        .tool(add)
        .limits(Limits::new().money(dollars(0.1)));
    let error = agent.build().unwrap().run("Count").await.unwrap_err();
    assert!(
        matches!(
            error,
            levity::Error::Limit {
                limit: Limit::Money,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.partial().unwrap().usage().cost, Some(dollars(4.5)));
    assert_eq!(model.requests().len(), 1);
}

/// A grandchild waits for a person, while a tool of the child exceeds the time limit.
#[tokio::test]
async fn parked_grandchild_is_counted_once_when_child_ends() {
    let (journal, world) = (MemoryJournal::new(), ManualWorld::new());
    let runtime = Runtime::new()
        .with_journal(journal.clone())
        .with_world(world.clone());
    let call = |names: &[&str], args: serde_json::Value| {
        let turn = names
            .iter()
            .fold(Turn::new(), |turn, name| turn.call(*name, args.clone()));
        turn.usage(1_000, 0)
    };
    let task = json!({"task": "Count"});
    let risky = RecordingTool::new("risky", |_| Ok(ToolOutput::text("2")))
        .with_hints(levity::core::Hints::new().destructive());
    let low = ScriptedModel::new()
        .turn(call(&["risky"], json!({})))
        .with_card(card());
    let low = Agent::builder(low).tool(risky).build().unwrap();
    let middle = ScriptedModel::new().turn(call(&["low"], task.clone()).call("slow", json!({})));
    let slow = levity::test::FaultyTool::hangs().named("slow").with_hints(
        levity::core::Hints::new()
            .parallel()
            .timeout(Duration::from_secs(600)),
    );
    let middle = Agent::builder(middle.with_card(card()))
        .agent("low", "Counts.", low)
        .tool(slow)
        .limits(Limits::new().wall_time(Duration::from_secs(60)))
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let top = ScriptedModel::new()
        .turn(call(&["middle"], task))
        .turn(Turn::new().text("2").usage(1_000, 0));
    let top = Agent::builder(top.with_card(card()))
        .agent("middle", "Counts.", middle)
        .runtime(runtime);
    let agent = top.limits(Limits::new().tokens(100_000)).build().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let count_asks = move |event: &Event| {
        counter.fetch_add(
            usize::from(matches!(event.kind, EventKind::Asked(_))),
            Ordering::SeqCst,
        );
    };
    let run = agent.run("Count").id("r").park().on_event(count_asks);
    let (end, ()) = tokio::join!(run.into_future(), async {
        while asked.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        world.advance(Duration::from_secs(60));
    });
    assert_eq!(end.unwrap().text(), "2");
    let spent = journal
        .records(&"r".into())
        .into_iter()
        .find_map(|record| match record.entry {
            levity::core::Entry::Finished { spent, .. } => spent,
            _ => None,
        });
    assert_eq!(
        spent.unwrap().tokens,
        2_000,
        "one call of the child and one of the grandchild"
    );
}

/// A model that sends each request twice. The first attempt fails after the provider has charged
/// for it.
struct SendsTwice(ModelCard, AtomicUsize);

#[async_trait]
impl Model for SendsTwice {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        CostBound::of(&self.0, request).with_sends(2)
    }

    async fn stream(&self, _: Request) -> Result<Deltas, ModelError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Err(ModelError::new(
            ModelErrorKind::RateLimited { retry_after: None },
            "try again later",
        ))
    }
}

#[tokio::test]
async fn reservation_is_kept_when_repeated_request_is_rate_limited() {
    let (runtime, journal) = runtime();
    let leaf = Agent::builder(SendsTwice(card(), AtomicUsize::new(0)))
        .build()
        .unwrap();
    let delegation = Turn::new()
        .call("helper", json!({"task": "Count"}))
        .usage(10, 1);
    let model = ScriptedModel::new()
        .turn(delegation)
        .turn(Turn::new().text("2").usage(10, 1));
    let agent = Agent::builder(model.with_card(card()))
        .agent("helper", "Counts.", leaf)
        .runtime(runtime);
    let agent = agent
        .limits(Limits::new().money(dollars(1.0)))
        .build()
        .unwrap();
    agent.run("Count").id("r").await.unwrap();
    let spent = journal
        .records(&"r".into())
        .into_iter()
        .find_map(|record| match record.entry {
            levity::core::Entry::Finished { spent, .. } => spent,
            _ => None,
        });
    assert!(
        spent.unwrap().tokens > 2_000,
        "the first attempt may have cost the maximum: {spent:?}"
    );
}

/// A tool source that grows once the cost bound of a request was computed.
#[derive(Clone, Default)]
struct GrowingTools(Arc<AtomicUsize>);

impl levity::core::ToolSource for GrowingTools {
    fn name(&self) -> &str {
        "growing"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let description = "Does a lot. ".repeat(1 + 1_000 * self.0.load(Ordering::SeqCst).min(1));
        let tool = RecordingTool::new("more", |_| Ok(ToolOutput::text("2")));
        vec![Arc::new(tool.with_input(
            json!({"type": "object", "description": description}),
        ))]
    }

    fn version(&self) -> u64 {
        self.0.load(Ordering::SeqCst).min(1) as u64
    }
}

struct GrowsToolsOnCostBound(Provider, GrowingTools);

#[async_trait]
impl Model for GrowsToolsOnCostBound {
    fn card(&self) -> &ModelCard {
        self.0.card()
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        if !request.tools.is_empty() {
            self.1.0.fetch_add(1, Ordering::SeqCst);
        }
        self.0.cost_bound(request)
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        self.0.stream(request).await
    }
}

#[tokio::test]
async fn tools_added_after_reservation_do_not_exceed_it() {
    let (ledger, tools) = (Ledger::default(), GrowingTools::default());
    let model = GrowsToolsOnCostBound(Provider::new(&ledger, Billing::Greedy), tools.clone());
    let limits = Limits::new().money(dollars(0.03));
    let agent = Agent::builder(model)
        .source(tools)
        .limits(limits)
        .build()
        .unwrap();
    let end = agent.run("Count").await;
    assert!(
        ledger.charged() <= dollars(0.03),
        "{} charged",
        ledger.charged()
    );
    assert_ended(&end, "growing");
}

/// A model with a small window that forwards long requests to a model with a large window.
struct ForwardsLongRequests(Provider);

#[async_trait]
impl Model for ForwardsLongRequests {
    fn card(&self) -> &ModelCard {
        &self.0.card
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        CostBound::of(&card().with_price(provider_price()), request)
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let mut large = self.0.clone();
        large.card.window = None;
        large.stream(request).await
    }
}

#[tokio::test]
async fn custom_cost_bound_is_not_capped_by_window_of_card() {
    let ledger = Ledger::default();
    let mut model = Provider::new(&ledger, Billing::Greedy).calling("add", 1, 1);
    model.card.window = Some(1_000);
    let limits = Limits::new().money(dollars(0.04));
    let agent = Agent::builder(ForwardsLongRequests(model))
        .tool(add)
        .instructions("Count well. ".repeat(1_000));
    let _ = agent.limits(limits).build().unwrap().run("Count").await;
    assert!(
        ledger.charged() <= dollars(0.04),
        "{} charged",
        ledger.charged()
    );
}

#[tokio::test]
async fn reservation_is_kept_after_partial_reply() {
    for watched in [false, true] {
        let (runtime, journal) = runtime();
        let kind = ModelErrorKind::RateLimited { retry_after: None };
        let half = Turn::new()
            .text("So ")
            .break_off(ModelError::new(kind, "too much"));
        let leaf = Agent::builder(ScriptedModel::new().turn(half).with_card(card()))
            .build()
            .unwrap();
        let delegation = Turn::new()
            .call("helper", json!({"task": "Count"}))
            .usage(10, 1);
        let model = ScriptedModel::new()
            .turn(delegation)
            .turn(Turn::new().text("2").usage(10, 1));
        let agent = Agent::builder(model.with_card(card()))
            .agent("helper", "Counts.", leaf)
            .runtime(runtime);
        let agent = agent
            .limits(Limits::new().money(dollars(1.0)))
            .build()
            .unwrap();
        let run = agent.run("Count").id("r");
        let _ = if watched {
            collect_events(run.start()).await.1
        } else {
            run.await
        };
        let spent =
            journal
                .records(&"r".into())
                .into_iter()
                .find_map(|record| match record.entry {
                    levity::core::Entry::Finished { spent, .. } => spent,
                    _ => None,
                });
        assert!(spent.unwrap().tokens > 1_000, "{watched}: {spent:?}");
    }
}
