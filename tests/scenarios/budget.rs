//! Budgets: a run and its children never spend more than their limit, however the models behave.

mod low_budget;
mod reservation;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity::agent::AgentBuilder;
use levity::core::{
    CostBound, Deltas, Event, EventKind, Finish, Limit, ModelCard, ModelError, ModelErrorKind,
    Money, Part, Price, Request, Response, Role, ToolCall, Usage,
};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::{FaultyJournal, ManualWorld, ScriptedModel, Turn};
use serde_json::json;

use crate::support::{add, collect_events, drop_at, runtime};

fn price() -> Price {
    Price::new(3.0, 15.0)
}

fn card() -> ModelCard {
    ModelCard::new("test", "dear")
        .with_price(price())
        .with_max_output(1_000)
}

fn dollars(dollars: f64) -> Money {
    Money::from_dollars(dollars)
}

/// The way in which a provider charges and reports usage.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Billing {
    /// Charges the maximum and reports it.
    Greedy,
    /// Charges the maximum and reports no usage.
    Silent,
    /// Charges the maximum and reports the input tokens only.
    InputOnly,
    /// Charges little and reports it.
    Modest,
    /// Charges the maximum and fails at every third call.
    Flaky,
}

const BILLINGS: [Billing; 5] = [
    Billing::Greedy,
    Billing::Silent,
    Billing::InputOnly,
    Billing::Modest,
    Billing::Flaky,
];

/// The charges of a provider, as the provider counts them.
#[derive(Clone, Default)]
struct Ledger {
    charged: Arc<Mutex<Money>>,
    tokens: Arc<AtomicU64>,
    calls: Arc<AtomicUsize>,
    in_flight: Arc<AtomicUsize>,
    max_in_flight: Arc<AtomicUsize>,
}

impl Ledger {
    fn charged(&self) -> Money {
        *self.charged.lock().unwrap()
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// The price of the provider, which writes all input to its cache.
fn provider_price() -> Price {
    price().with_cached(0.3).with_cache_write(3.75)
}

/// A provider that charges when a request arrives, even if the caller drops the reply.
#[derive(Clone)]
struct Provider {
    card: ModelCard,
    ledger: Ledger,
    billing: Billing,
    /// The tools that each reply calls while tools are offered.
    calls: Vec<(&'static str, usize)>,
    /// The number of turns with calls.
    turns: usize,
}

impl Provider {
    fn new(ledger: &Ledger, billing: Billing) -> Self {
        Self {
            card: card().with_price(provider_price()),
            ledger: ledger.clone(),
            billing,
            calls: vec![("add", 1)],
            turns: usize::MAX,
        }
    }

    fn calling(mut self, name: &'static str, times: usize, turns: usize) -> Self {
        (self.calls, self.turns) = (vec![(name, times)], turns);
        self
    }

    fn message(&self, request: &Request) -> levity::core::Message {
        let turns = request
            .history
            .messages()
            .iter()
            .filter(|message| message.role == Role::Tool)
            .count();
        if request.tools.is_empty() || turns >= self.turns {
            return Message::assistant("So much I know.");
        }
        let calls = self
            .calls
            .iter()
            .flat_map(|(name, times)| (0..*times).map(move |n| (n, *name)));
        let args = |name: &str| match name {
            "add" => json!({"a": 1, "b": 1}),
            _ => json!({"task": "Count"}),
        };
        let part = |(n, name): (usize, &str)| {
            Part::ToolCall(ToolCall::new(format!("c{turns}-{n}"), name, args(name)))
        };
        Message::new(Role::Assistant, calls.map(part))
    }

    fn charge(&self, request: &Request) -> (u64, u64) {
        let max_input = CostBound::of(&self.card, request).input;
        let allowed = request
            .options
            .max_tokens
            .expect("a budget clamps the reply");
        let (input, output) = match self.billing {
            Billing::Modest => (max_input / 4, allowed.min(20)),
            _ => (max_input, allowed),
        };
        *self.ledger.charged.lock().unwrap() += provider_price().max_cost(input, output);
        self.ledger
            .tokens
            .fetch_add(input + output, Ordering::SeqCst);
        (input, output)
    }
}

#[async_trait]
impl Model for Provider {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let nth = self.ledger.calls.fetch_add(1, Ordering::SeqCst);
        let (input, output) = self.charge(&request);
        let in_flight_now = self.ledger.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.ledger
            .max_in_flight
            .fetch_max(in_flight_now, Ordering::SeqCst);
        for _ in 0..nth % 5 {
            tokio::task::yield_now().await;
        }
        self.ledger.in_flight.fetch_sub(1, Ordering::SeqCst);
        let mut usage = Usage::new(input, output);
        match self.billing {
            Billing::Flaky if nth % 3 == 2 => {
                return Err(ModelError::new(ModelErrorKind::Transport, "the line broke"));
            }
            Billing::Silent => usage = Usage::default(),
            Billing::InputOnly => usage.output = None,
            Billing::Greedy | Billing::Modest | Billing::Flaky => usage.cache_written = Some(input),
        }
        let response = Response::new(self.message(&request))
            .with_usage(usage)
            .with_finish(Finish::Stop);
        Ok(Deltas::from_response(&response))
    }
}

/// Builds an agent that delegates to `wide` agents at once, each of which delegates to `deep`
/// others.
fn tree(ledger: &Ledger, billing: Billing, wide: usize, deep: usize) -> AgentBuilder {
    let leaf = Agent::builder(Provider::new(ledger, billing))
        .tool(add)
        .max_turns(4)
        .build()
        .unwrap();
    let helper = match deep {
        0 => leaf,
        deep => {
            let model = Provider::new(ledger, billing).calling("leaf", deep, 1);
            Agent::builder(model)
                .agent("leaf", "Counts.", leaf)
                .build()
                .unwrap()
        }
    };
    Agent::builder(Provider::new(ledger, billing).calling("helper", wide, 1))
        .agent("helper", "Counts.", helper)
}

/// Asserts that the run has an answer, or fails with the money limit or a model error.
#[track_caller]
fn assert_ended(end: &levity::Result<Answer>, when: &str) {
    match end {
        Ok(answer) => assert!(answer.status().is_answer(), "{when}: {}", answer.status()),
        Err(
            levity::Error::Limit {
                limit: Limit::Money,
                ..
            }
            | levity::Error::Model { .. },
        ) => {}
        Err(error) => panic!("{when}: {error}"),
    }
}

async fn check_money_limit(wide: usize, deep: usize, at: f64, billing: Billing) -> Ledger {
    let ledger = Ledger::default();
    let limits = Limits::new().money(dollars(at));
    let agent = tree(&ledger, billing, wide, deep)
        .limits(limits)
        .build()
        .unwrap();
    let when = format!("{wide} wide, {deep} deep, ${at}, {billing:?}");
    let end = agent.run("Count").await;
    assert!(
        ledger.charged() <= dollars(at),
        "{when}: {} charged in {} calls",
        ledger.charged(),
        ledger.calls()
    );
    assert_ended(&end, &when);
    if let Ok(answer) = &end {
        let reported = answer.usage().cost.unwrap();
        assert!(reported <= dollars(at), "{when}: {reported} reported");
    }
    ledger
}

#[tokio::test]
async fn parallel_children_never_exceed_money_limit() {
    for billing in BILLINGS {
        for at in [0.0, 0.01, 0.05, 0.3, 1.5, 20.0] {
            check_money_limit(64, 0, at, billing).await;
        }
    }
    let ledger = check_money_limit(64, 0, 20.0, Billing::Modest).await;
    assert!(
        ledger.calls() > 128,
        "only {} calls with plenty of money",
        ledger.calls()
    );
    assert!(
        ledger.max_in_flight.load(Ordering::SeqCst) > 16,
        "children run in parallel while the budget allows it"
    );
    let ledger = check_money_limit(64, 0, 1.5, Billing::Greedy).await;
    assert!(
        ledger.charged() > dollars(1.3),
        "only {} of $1.50 was used",
        ledger.charged()
    );
}

#[tokio::test]
async fn run_and_children_never_exceed_token_limit() {
    for billing in BILLINGS {
        for limit in [500, 20_000, 100_000, 1_000_000] {
            let ledger = Ledger::default();
            let agent = tree(&ledger, billing, 8, 8)
                .limits(Limits::new().tokens(limit))
                .build()
                .unwrap();
            let end = agent.run("Count").await;
            let tokens = ledger.tokens.load(Ordering::SeqCst);
            assert!(tokens <= limit, "{billing:?}: {tokens} of {limit}");
            let typed = matches!(
                end,
                Ok(_)
                    | Err(levity::Error::Limit {
                        limit: Limit::Tokens,
                        ..
                    } | levity::Error::Model { .. })
            );
            assert!(typed, "{billing:?}, {limit}: {}", end.unwrap_err());
        }
    }
}

#[tokio::test]
async fn grandchildren_never_exceed_money_limit() {
    for billing in BILLINGS {
        for at in [0.05, 0.5, 3.0] {
            check_money_limit(8, 8, at, billing).await;
        }
    }
}

/// Crashes and resumes a run until it ends, and checks the sum of all charges.
async fn crash_and_resume(billing: Billing, at: f64, records: usize) -> (Ledger, usize) {
    let (ledger, journal) = (Ledger::default(), MemoryJournal::new());
    let limits = Limits::new().money(dollars(at));
    let mut crashes = 0;
    loop {
        let crashing = FaultyJournal::new(journal.clone()).stop_after_records(records + crashes);
        let runtime = Runtime::new()
            .with_journal(crashing)
            .with_world(ManualWorld::auto());
        let agent = tree(&ledger, billing, 6, 2)
            .limits(limits)
            .runtime(runtime)
            .build()
            .unwrap();
        let end = if crashes == 0 || journal.records(&"r".into()).is_empty() {
            agent.run("Count").id("r").await
        } else {
            agent.resume("r").await
        };
        let when = format!("{billing:?}, ${at}, {records} records, {crashes} deaths");
        assert!(
            ledger.charged() <= dollars(at),
            "{when}: {} charged",
            ledger.charged()
        );
        if !matches!(end, Err(levity::Error::Runtime { .. })) {
            assert_ended(&end, &when);
            return (ledger, crashes);
        }
        crashes += 1;
        assert!(crashes < 1_000, "{when}: the run never ends");
    }
}

#[tokio::test]
async fn repeatedly_crashing_run_never_exceeds_limit() {
    for billing in BILLINGS {
        for at in [0.1, 0.6, 4.0] {
            for records in [3, 20, 90] {
                let (_, crashes) = crash_and_resume(billing, at, records).await;
                assert!(crashes > 0 || records > 3, "the run never crashed");
            }
        }
    }
}

#[tokio::test]
async fn run_crashing_after_any_record_never_exceeds_limit() {
    for records in 1..120 {
        let (ledger, journal) = (Ledger::default(), MemoryJournal::new());
        let agent = |journal: FaultyJournal| {
            let runtime = Runtime::new()
                .with_journal(journal)
                .with_world(ManualWorld::auto());
            let limits = Limits::new().money(dollars(0.6));
            tree(&ledger, Billing::Greedy, 6, 2)
                .limits(limits)
                .runtime(runtime)
                .build()
                .unwrap()
        };
        let crashing = FaultyJournal::new(journal.clone()).stop_after_records(records);
        let _ = agent(crashing).run("Count").id("r").await;
        let end = agent(FaultyJournal::new(journal.clone())).resume("r").await;
        assert!(
            ledger.charged() <= dollars(0.6),
            "{records} records: {} charged",
            ledger.charged()
        );
        assert!(
            !matches!(end, Err(levity::Error::Runtime { .. })),
            "{}",
            end.unwrap_err()
        );
    }
}

fn hanging_model() -> ScriptedModel {
    ScriptedModel::new().with_card(card()).hang()
}

#[tokio::test]
async fn model_call_in_progress_at_crash_counts_in_full() {
    let journal = MemoryJournal::new();
    let build = |model: ScriptedModel| {
        let runtime = Runtime::new().with_journal(journal.clone());
        // The limit allows two calls of 1,000 tokens, but not three.
        let limits = Limits::new().money(dollars(0.045));
        Agent::builder(model)
            .limits(limits)
            .runtime(runtime)
            .build()
            .unwrap()
    };
    let called = |event: &Event| matches!(event.kind, EventKind::ModelStarted { .. });
    drop_at(build(hanging_model()).run("Count").id("r").start(), called).await;
    drop_at(build(hanging_model()).resume("r").start(), called).await;
    let model = ScriptedModel::new()
        .with_card(card())
        .turn(Turn::new().text("7").usage(10, 1));
    let answer = build(model.clone()).resume("r").await.unwrap();
    let remaining = model.requests()[0].options.max_tokens.unwrap();
    assert!(
        remaining < 1_000,
        "{remaining} tokens remained for the reply"
    );
    assert_eq!(answer.text(), "7");
}

#[tokio::test]
async fn usage_of_stopped_child_counts_before_siblings_resume() {
    let journal = MemoryJournal::new();
    let ledger = Ledger::default();
    let build = |billing| {
        let runtime = Runtime::new().with_journal(journal.clone());
        let limits = Limits::new().money(dollars(0.5));
        tree(&ledger, billing, 16, 0)
            .limits(limits)
            .runtime(runtime)
            .build()
            .unwrap()
    };
    let mut run = build(Billing::Greedy).run("Count").id("r").start();
    let mut events = run.events();
    while ledger.charged() < dollars(0.35) {
        events.next().await.unwrap();
    }
    run.stop().await;
    let before = ledger.charged();
    let _ = build(Billing::Greedy).resume("r").await;
    assert!(
        ledger.charged() <= dollars(0.5),
        "{} after {before}",
        ledger.charged()
    );
}

#[tokio::test]
async fn unpriced_model_is_refused_under_money_limit() {
    let model = ScriptedModel::new().reply("7");
    let agent = Agent::builder(model.clone())
        .limits(Limits::new().money(dollars(5.0)))
        .build()
        .unwrap();
    let error = agent.run("Count").await.unwrap_err();
    let levity::Error::Model { source, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(source.kind(), ModelErrorKind::Unpriced);
    assert!(
        source.to_string().contains("`Limits::assumed_price`"),
        "{source}"
    );
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn unpriced_model_is_charged_at_assumed_price() {
    let model = ScriptedModel::looping(Turn::new().text("7").usage(1_000_000, 100));
    let limits = Limits::new().money(dollars(5.0)).assumed_price(price());
    let agent = Agent::builder(model).limits(limits).build().unwrap();
    let answer = agent.run("Count").await.unwrap();
    assert_eq!(answer.usage().cost, Some(dollars(3.0015)));
}

#[tokio::test]
async fn cost_is_reported_without_any_limit() {
    let turn = || {
        Turn::new()
            .call("add", json!({"a": 1, "b": 1}))
            .usage(1_000, 100)
    };
    let model = ScriptedModel::new()
        .turn(turn())
        .turn(Turn::new().text("2").usage(2_000, 10));
    let agent = Agent::builder(model.with_card(card()))
        .tool(add)
        .build()
        .unwrap();
    let (events, answer) = collect_events(agent.start("Count")).await;
    let costs: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ModelFinished { usage, .. } => Some(usage.cost.unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(costs, [dollars(0.0045), dollars(0.00615)]);
    let usage = answer.unwrap().usage();
    assert_eq!(usage.to_string(), "3000 tokens in, 110 out, $0.01065");
}

/// Creates a model that never stops calling a tool.
fn endless_model(card: ModelCard) -> ScriptedModel {
    let turn = Turn::new()
        .text("One more.")
        .call("add", json!({"a": 1, "b": 1}))
        .usage(2_000, 100);
    ScriptedModel::looping(turn).with_card(card)
}

#[tokio::test]
async fn idempotent_call_over_limit_after_crash_is_reported_unknown() {
    let (runtime, _) = runtime();
    let build = |model: ScriptedModel, tool: levity::test::FaultyTool| {
        let hints = levity::core::Hints::new()
            .idempotent()
            .timeout(Duration::from_secs(1 << 30));
        let limits = Limits::new().tool_calls(1);
        let agent = Agent::builder(model)
            .tool(tool.named("put").with_hints(hints))
            .limits(limits);
        agent
            .runtime(runtime.clone().with_world(ManualWorld::new()))
            .build()
            .unwrap()
    };
    let hanging_tool = levity::test::FaultyTool::hangs;
    let calls = ScriptedModel::new().call("put", json!({}));
    let called = |event: &Event| matches!(event.kind, EventKind::ToolStarted { .. });
    drop_at(
        build(calls, hanging_tool()).run("Put").id("r").start(),
        called,
    )
    .await;
    let model = ScriptedModel::new().reply("Done.");
    let answer = build(model, hanging_tool()).resume("r").await.unwrap();
    let (_, result) = answer.history().calls().next().unwrap();
    assert_eq!(
        result.error,
        Some(levity::core::ToolErrorKind::Unknown),
        "{}",
        result.text()
    );
}
