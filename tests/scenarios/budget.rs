//! Budgets: whatever models do within what they were allowed, no run and its children spend more
//! than they may.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity::agent::{AgentBuilder, Low};
use levity::core::{
    CostBound, Deltas, Event, EventKind, Finish, Limit, ModelCard, ModelError, ModelErrorKind,
    Money, Part, Price, Request, Response, Role, Status, ToolCall, ToolChoice, Usage,
};
use levity::prelude::*;
use levity::runtime::{MemoryJournal, replay};
use levity::test::{FaultyJournal, ManualWorld, RecordingTool, ScriptedModel, Turn};
use serde_json::json;

use crate::support::{add, drop_at, runtime, watch};

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

/// How a provider behaves towards those who pay.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    /// Takes all it may, and says so.
    Greedy,
    /// Takes all it may, and says nothing.
    Silent,
    /// Takes all it may, and tells half the truth: only what it sent.
    Halting,
    /// Takes a little, and says so.
    Modest,
    /// Takes all it may, and breaks off every third time.
    Breaking,
}

const MANNERS: [Manner; 5] = [
    Manner::Greedy,
    Manner::Silent,
    Manner::Halting,
    Manner::Modest,
    Manner::Breaking,
];

/// What a provider has charged, by its own books.
#[derive(Clone, Default)]
struct Till {
    charged: Arc<Mutex<Money>>,
    tokens: Arc<AtomicU64>,
    calls: Arc<AtomicUsize>,
    under_way: Arc<AtomicUsize>,
    most_at_once: Arc<AtomicUsize>,
}

impl Till {
    fn charged(&self) -> Money {
        *self.charged.lock().unwrap()
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// What the provider takes: all input goes into its cache.
fn till_price() -> Price {
    price().with_cached(0.3).with_cache_write(3.75)
}

/// A provider that charges when a request arrives, whether or not anybody waits for the reply.
#[derive(Clone)]
struct Provider {
    card: ModelCard,
    till: Till,
    manner: Manner,
    /// What each reply calls while tools are offered.
    calls: Vec<(&'static str, usize)>,
    /// How many turns it calls something.
    turns: usize,
}

impl Provider {
    fn new(till: &Till, manner: Manner) -> Self {
        Self {
            card: card().with_price(till_price()),
            till: till.clone(),
            manner,
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
        let most = CostBound::of(&self.card, request).input;
        let allowed = request
            .options
            .max_tokens
            .expect("a budget clamps the reply");
        let (input, output) = match self.manner {
            Manner::Modest => (most / 4, allowed.min(20)),
            _ => (most, allowed),
        };
        *self.till.charged.lock().unwrap() += till_price().most(input, output);
        self.till.tokens.fetch_add(input + output, Ordering::SeqCst);
        (input, output)
    }
}

#[async_trait]
impl Model for Provider {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let nth = self.till.calls.fetch_add(1, Ordering::SeqCst);
        let (input, output) = self.charge(&request);
        let at_once = self.till.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.till.most_at_once.fetch_max(at_once, Ordering::SeqCst);
        for _ in 0..nth % 5 {
            tokio::task::yield_now().await;
        }
        self.till.under_way.fetch_sub(1, Ordering::SeqCst);
        let mut usage = Usage::new(input, output);
        match self.manner {
            Manner::Breaking if nth % 3 == 2 => {
                return Err(ModelError::new(ModelErrorKind::Transport, "the line broke"));
            }
            Manner::Silent => usage = Usage::default(),
            Manner::Halting => usage.output = None,
            Manner::Greedy | Manner::Modest | Manner::Breaking => usage.cache_written = Some(input),
        }
        let response = Response::new(self.message(&request))
            .with_usage(usage)
            .with_finish(Finish::Stop);
        Ok(Deltas::from_response(&response))
    }
}

/// An agent that hands work to `wide` others at once, each of which hands it to `deep` others.
fn tree(till: &Till, manner: Manner, wide: usize, deep: usize) -> AgentBuilder {
    let leaf = Agent::builder(Provider::new(till, manner))
        .tool(add)
        .max_turns(4)
        .build()
        .unwrap();
    let helper = match deep {
        0 => leaf,
        deep => {
            let model = Provider::new(till, manner).calling("leaf", deep, 1);
            Agent::builder(model)
                .agent("leaf", "Counts.", leaf)
                .build()
                .unwrap()
        }
    };
    Agent::builder(Provider::new(till, manner).calling("helper", wide, 1))
        .agent("helper", "Counts.", helper)
}

/// The run has an answer, or says which limit or provider kept it from one.
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

async fn spends_no_more(wide: usize, deep: usize, at: f64, manner: Manner) -> Till {
    let till = Till::default();
    let limits = Limits::new().money(dollars(at));
    let agent = tree(&till, manner, wide, deep)
        .limits(limits)
        .build()
        .unwrap();
    let when = format!("{wide} wide, {deep} deep, ${at}, {manner:?}");
    let end = agent.run("Count").await;
    assert!(
        till.charged() <= dollars(at),
        "{when}: {} charged in {} calls",
        till.charged(),
        till.calls()
    );
    assert_ended(&end, &when);
    if let Ok(answer) = &end {
        let said = answer.usage().cost.unwrap();
        assert!(said <= dollars(at), "{when}: {said} told");
    }
    till
}

#[tokio::test]
async fn sixty_four_children_never_pass_one_limit_on_money() {
    for manner in MANNERS {
        for at in [0.0, 0.01, 0.05, 0.3, 1.5, 20.0] {
            spends_no_more(64, 0, at, manner).await;
        }
    }
    let till = spends_no_more(64, 0, 20.0, Manner::Modest).await;
    assert!(
        till.calls() > 128,
        "{} calls where there is plenty",
        till.calls()
    );
    assert!(
        till.most_at_once.load(Ordering::SeqCst) > 16,
        "they run side by side where there is room"
    );
    let till = spends_no_more(64, 0, 1.5, Manner::Greedy).await;
    assert!(
        till.charged() > dollars(1.3),
        "only {} of $1.50 was used",
        till.charged()
    );
}

#[tokio::test]
async fn tokens_are_kept_to_like_money() {
    for manner in MANNERS {
        for limit in [500, 20_000, 100_000, 1_000_000] {
            let till = Till::default();
            let agent = tree(&till, manner, 8, 8)
                .limits(Limits::new().tokens(limit))
                .build()
                .unwrap();
            let end = agent.run("Count").await;
            let tokens = till.tokens.load(Ordering::SeqCst);
            assert!(tokens <= limit, "{manner:?}: {tokens} of {limit}");
            let typed = matches!(
                end,
                Ok(_)
                    | Err(levity::Error::Limit {
                        limit: Limit::Tokens,
                        ..
                    } | levity::Error::Model { .. })
            );
            assert!(typed, "{manner:?}, {limit}: {}", end.unwrap_err());
        }
    }
}

#[tokio::test]
async fn children_of_children_never_pass_it_either() {
    for manner in MANNERS {
        for at in [0.05, 0.5, 3.0] {
            spends_no_more(8, 8, at, manner).await;
        }
    }
}

/// What every process of a run that keeps dying charges together.
async fn dies_and_goes_on(manner: Manner, at: f64, records: usize) -> (Till, usize) {
    let (till, journal) = (Till::default(), MemoryJournal::new());
    let limits = Limits::new().money(dollars(at));
    let mut deaths = 0;
    loop {
        let crashing = FaultyJournal::new(journal.clone()).stop_after_records(records + deaths);
        let runtime = Runtime::new()
            .with_journal(crashing)
            .with_world(ManualWorld::auto());
        let agent = tree(&till, manner, 6, 2)
            .limits(limits)
            .runtime(runtime)
            .build()
            .unwrap();
        let end = if deaths == 0 || journal.records(&"r".into()).is_empty() {
            agent.run("Count").id("r").await
        } else {
            agent.resume("r").await
        };
        let when = format!("{manner:?}, ${at}, {records} records, {deaths} deaths");
        assert!(
            till.charged() <= dollars(at),
            "{when}: {} charged",
            till.charged()
        );
        if !matches!(end, Err(levity::Error::Runtime { .. })) {
            assert_ended(&end, &when);
            return (till, deaths);
        }
        deaths += 1;
        assert!(deaths < 1_000, "{when}: it never ends");
    }
}

#[tokio::test]
async fn a_run_that_dies_again_and_again_never_passes_its_limit() {
    for manner in MANNERS {
        for at in [0.1, 0.6, 4.0] {
            for records in [3, 20, 90] {
                let (_, deaths) = dies_and_goes_on(manner, at, records).await;
                assert!(deaths > 0 || records > 3, "it never died");
            }
        }
    }
}

#[tokio::test]
async fn a_run_that_dies_once_after_any_record_never_passes_its_limit() {
    for records in 1..120 {
        let (till, journal) = (Till::default(), MemoryJournal::new());
        let agent = |journal: FaultyJournal| {
            let runtime = Runtime::new()
                .with_journal(journal)
                .with_world(ManualWorld::auto());
            let limits = Limits::new().money(dollars(0.6));
            tree(&till, Manner::Greedy, 6, 2)
                .limits(limits)
                .runtime(runtime)
                .build()
                .unwrap()
        };
        let crashing = FaultyJournal::new(journal.clone()).stop_after_records(records);
        let _ = agent(crashing).run("Count").id("r").await;
        let end = agent(FaultyJournal::new(journal.clone())).resume("r").await;
        assert!(
            till.charged() <= dollars(0.6),
            "{records} records: {} charged",
            till.charged()
        );
        assert!(
            !matches!(end, Err(levity::Error::Runtime { .. })),
            "{}",
            end.unwrap_err()
        );
    }
}

fn hanging() -> ScriptedModel {
    ScriptedModel::new().with_card(card()).hang()
}

#[tokio::test]
async fn a_call_under_way_when_the_process_dies_counts_in_full() {
    let journal = MemoryJournal::new();
    let build = |model: ScriptedModel| {
        let runtime = Runtime::new().with_journal(journal.clone());
        // Enough for two calls of 1,000 tokens, and not for three.
        let limits = Limits::new().money(dollars(0.045));
        Agent::builder(model)
            .limits(limits)
            .runtime(runtime)
            .build()
            .unwrap()
    };
    let called = |event: &Event| matches!(event.kind, EventKind::ModelStarted { .. });
    drop_at(build(hanging()).run("Count").id("r").start(), called).await;
    drop_at(build(hanging()).resume("r").start(), called).await;
    let model = ScriptedModel::new()
        .with_card(card())
        .turn(Turn::new().text("7").usage(10, 1));
    let answer = build(model.clone()).resume("r").await.unwrap();
    let left = model.requests()[0].options.max_tokens.unwrap();
    assert!(left < 1_000, "{left} tokens were left for the reply");
    assert_eq!(answer.text(), "7");
}

#[tokio::test]
async fn what_a_child_left_unfinished_used_counts_before_its_siblings_go_on() {
    let journal = MemoryJournal::new();
    let till = Till::default();
    let build = |manner| {
        let runtime = Runtime::new().with_journal(journal.clone());
        let limits = Limits::new().money(dollars(0.5));
        tree(&till, manner, 16, 0)
            .limits(limits)
            .runtime(runtime)
            .build()
            .unwrap()
    };
    let mut run = build(Manner::Greedy).run("Count").id("r").start();
    let mut events = run.events();
    while till.charged() < dollars(0.35) {
        events.next().await.unwrap();
    }
    run.stop().await;
    let before = till.charged();
    let _ = build(Manner::Greedy).resume("r").await;
    assert!(
        till.charged() <= dollars(0.5),
        "{} after {before}",
        till.charged()
    );
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_where_money_is_limited() {
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
async fn a_model_without_a_price_is_counted_by_rule() {
    let model = ScriptedModel::looping(Turn::new().text("7").usage(1_000_000, 100));
    let limits = Limits::new().money(dollars(5.0)).assumed_price(price());
    let agent = Agent::builder(model).limits(limits).build().unwrap();
    let answer = agent.run("Count").await.unwrap();
    assert_eq!(answer.usage().cost, Some(dollars(3.0015)));
}

#[tokio::test]
async fn what_each_call_and_the_run_cost_is_told_without_any_limit() {
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
    let (events, answer) = watch(agent.start("Count")).await;
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

/// A model that would call a tool for ever.
fn busy(card: ModelCard) -> ScriptedModel {
    let turn = Turn::new()
        .text("One more.")
        .call("add", json!({"a": 1, "b": 1}))
        .usage(2_000, 100);
    ScriptedModel::looping(turn).with_card(card)
}

#[tokio::test]
async fn once_little_is_left_the_cheap_model_takes_over_in_children_too() {
    let (runtime, journal) = runtime();
    let small = ModelCard::new("test", "small")
        .with_price(Price::new(0.1, 0.4))
        .with_max_output(1_000);
    let cheap =
        || ScriptedModel::looping(Turn::new().text("2").usage(2_000, 10)).with_card(small.clone());
    let (dear, child, own) = (busy(card()), cheap(), cheap());
    let helper = Agent::builder(busy(card())).tool(add);
    let helper = helper
        .when_low(Low::Switch)
        .model_for("cheap", child.clone())
        .build()
        .unwrap();
    let asks = Turn::new()
        .call("helper", json!({"task": "Count"}))
        .usage(2_000, 100);
    let model = ScriptedModel::new().turn(asks).with_card(card());
    let agent = Agent::builder(model)
        .agent("helper", "Counts.", helper)
        .when_low(Low::Switch)
        .model_for("cheap", own.clone())
        .limits(Limits::new().money(dollars(0.08)).low(70))
        .runtime(runtime)
        .build()
        .unwrap();
    let (events, answer) = watch(agent.run("Count").id("r").start()).await;
    let answer = answer.unwrap();
    assert_eq!(*answer.status(), Status::Complete);
    assert_eq!(
        (
            child.requests().len(),
            own.requests().len(),
            dear.requests().len()
        ),
        (1, 1, 0)
    );
    let low: Vec<_> = events
        .iter()
        .filter(|event| event.kind == EventKind::LimitLow(Limit::Money))
        .collect();
    assert_eq!(low.len(), 2, "each run is told once");

    let own: Vec<_> = events
        .into_iter()
        .filter(|e| e.run.as_str() == "r" && !e.kind.is_fleeting())
        .collect();
    let again = replay(answer.run(), &journal.records(answer.run()), |_, state| {
        agent.restore(state)
    })
    .unwrap();
    assert_eq!(again.events, own);
}

#[tokio::test]
async fn a_child_that_begins_when_little_is_left_begins_with_the_cheap_model() {
    let small = ModelCard::new("test", "small")
        .with_price(Price::new(0.1, 0.4))
        .with_max_output(1_000);
    let cheap = ScriptedModel::looping(Turn::new().text("2").usage(20, 10)).with_card(small);
    let dear = busy(card());
    let helper = Agent::builder(dear.clone())
        .tool(add)
        .when_low(Low::Switch)
        .model_for("cheap", cheap.clone());
    let asks = Turn::new()
        .call("helper", json!({"task": "Count"}))
        .usage(2_000, 100);
    let model = ScriptedModel::new()
        .turn(asks)
        .turn(Turn::new().text("2").usage(20, 10));
    let agent =
        Agent::builder(model.with_card(card())).agent("helper", "Counts.", helper.build().unwrap());
    let agent = agent
        .limits(Limits::new().money(dollars(0.1)).low(99))
        .build()
        .unwrap();
    agent.run("Count").await.unwrap();
    assert_eq!((dear.requests().len(), cheap.requests().len()), (0, 1));
}

#[tokio::test]
async fn once_little_is_left_the_agent_answers() {
    let model = busy(card());
    let limits = Limits::new().money(dollars(1.0)).low(98);
    let agent = Agent::builder(model.clone())
        .tool(add)
        .limits(limits)
        .build()
        .unwrap();
    let answer = agent.run("Count").await.unwrap();
    assert_eq!(*answer.status(), Status::BestEffort(Limit::Money));
    assert_eq!(
        model.requests().len(),
        4,
        "$0.0075 a call: the third leaves less than 98 %"
    );
    assert_eq!(model.requests()[3].tool_choice, ToolChoice::None);
}

#[tokio::test]
async fn near_its_limit_a_run_answers_with_what_there_is() {
    for at in [0.06, 0.08, 0.1, 0.12] {
        for limits in [
            Limits::new().money(dollars(at)),
            Limits::new().tokens((at * 200_000.0) as u64),
        ] {
            let model = busy(card());
            let agent = Agent::builder(model.clone())
                .tool(add)
                .max_turns(100)
                .limits(limits)
                .build()
                .unwrap();
            let answer = agent.run("Count").await.unwrap();
            assert!(answer.is_best_effort(), "{at}: {}", answer.status());
            assert!(
                model.requests().len() > 2,
                "{at}: {} calls",
                model.requests().len()
            );
        }
    }
}

#[tokio::test]
async fn what_is_too_dear_with_tools_is_asked_without_them() {
    let sums = RecordingTool::new("sums", |_| Ok(ToolOutput::text("2")));
    let sums =
        sums.with_input(json!({"type": "object", "description": "Adds numbers. ".repeat(2_000)}));
    let model = ScriptedModel::new()
        .with_card(card())
        .turn(Turn::new().text("2").usage(10, 1));
    let agent = Agent::builder(model.clone())
        .tool(sums)
        .limits(Limits::new().money(dollars(0.05)));
    let agent = agent.build().unwrap();
    let answer = agent.run("Count").await.unwrap();
    assert_eq!(*answer.status(), Status::BestEffort(Limit::Money));
    assert!(model.requests()[0].tools.is_empty());
}

#[tokio::test]
async fn tools_stay_beside_their_calls_also_where_money_is_limited() {
    let model = busy(card());
    let limits = Limits::new().money(dollars(1.0));
    let agent = Agent::builder(model.clone())
        .tool(add)
        .max_turns(2)
        .limits(limits)
        .build()
        .unwrap();
    agent.run("Count").await.unwrap();
    let last = &model.requests()[1];
    assert_eq!(
        (last.tools.len(), &last.tool_choice),
        (1, &ToolChoice::None)
    );
}

/// A run of which one child holds all the room there is, for ever, and others wait for it.
fn crowded(runtime: Runtime) -> Agent {
    let leaf = Agent::builder(ScriptedModel::new().with_card(card()).hang().hang().hang())
        .build()
        .unwrap();
    let asks = (0..3).fold(Turn::new(), |turn, _| {
        turn.call("helper", json!({"task": "Count"}))
    });
    let model = ScriptedModel::new()
        .turn(asks.usage(10, 1))
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
async fn who_finds_no_room_waits_for_those_under_way() {
    let till = Till::default();
    let leaf = Agent::builder(Provider::new(&till, Manner::Modest))
        .build()
        .unwrap();
    let asks = (0..8).fold(Turn::new(), |turn, _| {
        turn.call("helper", json!({"task": "Count"}))
    });
    let model = ScriptedModel::new()
        .turn(asks.usage(10, 1))
        .turn(Turn::new().text("2").usage(10, 1));
    let agent = Agent::builder(model.with_card(card())).agent("helper", "Counts.", leaf);
    // The worst case of one call, and a little.
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
        (till.calls(), till.most_at_once.load(Ordering::SeqCst)),
        (8, 1)
    );
}

#[tokio::test]
async fn who_waits_for_room_can_be_cancelled_and_paused() {
    let (runtime, _) = runtime();
    let mut run = crowded(runtime.with_world(ManualWorld::new()))
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
            "who waits is not refused"
        );
    }
    assert_eq!(calls, 0, "only one of three had room");
}

#[tokio::test]
async fn time_is_up_also_for_who_waits_for_room() {
    let (runtime, _) = runtime();
    let world = ManualWorld::new();
    let mut run = crowded(runtime.with_world(world.clone()))
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
async fn a_provider_that_ignores_its_bounds_is_counted_and_never_called_again() {
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

#[tokio::test]
async fn a_run_that_was_low_from_the_start_can_be_forked() {
    let (runtime, _) = runtime();
    let build = || {
        let cheap = ScriptedModel::looping(Turn::new().text("2").usage(20, 10)).with_card(card());
        Agent::builder(busy(card()))
            .tool(add)
            .when_low(Low::Switch)
            .model_for("cheap", cheap)
            .limits(Limits::new().money(dollars(1.0)).low(100))
            .runtime(runtime.clone())
            .build()
            .unwrap()
    };
    build().run("Count").id("old").await.unwrap();
    assert_eq!(
        build().fork("old").after(1).id("new").await.unwrap().text(),
        "2"
    );
}

/// A child of a child that waits for a person, beside a tool that takes too long for the child.
#[tokio::test]
async fn a_child_that_was_left_waiting_is_counted_once_when_the_run_above_it_ends() {
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
    let heard = asked.clone();
    let watcher = move |event: &Event| {
        heard.fetch_add(
            usize::from(matches!(event.kind, EventKind::Asked(_))),
            Ordering::SeqCst,
        );
    };
    let run = agent.run("Count").id("r").park().on_event(watcher);
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
        "one call of the child, and one of its child"
    );
}

/// Sends a request twice: the first breaks off after the provider has charged for it.
struct Twice(ModelCard, AtomicUsize);

#[async_trait]
impl Model for Twice {
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
            "come back later",
        ))
    }
}

#[tokio::test]
async fn what_is_sent_more_than_once_is_not_given_back_when_the_last_is_turned_down() {
    let (runtime, journal) = runtime();
    let leaf = Agent::builder(Twice(card(), AtomicUsize::new(0)))
        .build()
        .unwrap();
    let asks = Turn::new()
        .call("helper", json!({"task": "Count"}))
        .usage(10, 1);
    let model = ScriptedModel::new()
        .turn(asks)
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
        "the first may have cost all it was allowed: {spent:?}"
    );
}

#[tokio::test]
async fn what_is_too_dear_is_asked_of_the_cheap_model() {
    let small = ModelCard::new("test", "small")
        .with_price(Price::new(0.1, 0.4))
        .with_max_output(1_000);
    let cheap = ScriptedModel::looping(Turn::new().text("2").usage(2_000, 10)).with_card(small);
    for builder in [
        Agent::builder(busy(card())),
        Agent::builder(busy(card())).tool(add),
    ] {
        let agent = builder
            .instructions("Count well. ".repeat(500))
            .when_low(Low::Switch)
            .model_for("cheap", cheap.clone())
            .limits(Limits::new().money(dollars(0.01)).low(10))
            .build()
            .unwrap();
        let answer = agent.run("Count").await.unwrap();
        assert_eq!(answer.text(), "2");
    }
}

#[tokio::test]
async fn a_child_leaves_enough_for_the_answer_of_the_run_above_it() {
    for tokens in (40_000..60_000).step_by(1_000) {
        let helper = Agent::builder(busy(card()))
            .tool(add)
            .max_turns(100)
            .build()
            .unwrap();
        let asks = Turn::new()
            .call("helper", json!({"task": "Count"}))
            .usage(3_000, 100);
        let model = ScriptedModel::new()
            .turn(asks)
            .turn(Turn::new().text("2").usage(3_000, 10));
        let agent = Agent::builder(model.with_card(card()))
            .instructions("Count well. ".repeat(1_000))
            .agent("helper", "Counts.", helper)
            .limits(Limits::new().tokens(tokens))
            .build()
            .unwrap();
        let answer = agent.run("Count").await;
        assert!(answer.is_ok(), "{tokens}: {}", answer.unwrap_err());
    }
}

/// Tools that become more once somebody has asked what they can take.
#[derive(Clone, Default)]
struct Growing(Arc<AtomicUsize>);

impl levity::core::ToolSource for Growing {
    fn name(&self) -> &str {
        "growing"
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let words = "Does a lot. ".repeat(1 + 1_000 * self.0.load(Ordering::SeqCst).min(1));
        let tool = RecordingTool::new("more", |_| Ok(ToolOutput::text("2")));
        vec![Arc::new(
            tool.with_input(json!({"type": "object", "description": words})),
        )]
    }

    fn version(&self) -> u64 {
        self.0.load(Ordering::SeqCst).min(1) as u64
    }
}

struct Counting(Provider, Growing);

#[async_trait]
impl Model for Counting {
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
async fn tools_that_become_more_do_not_pass_what_was_reserved() {
    let (till, tools) = (Till::default(), Growing::default());
    let model = Counting(Provider::new(&till, Manner::Greedy), tools.clone());
    let limits = Limits::new().money(dollars(0.03));
    let agent = Agent::builder(model)
        .source(tools)
        .limits(limits)
        .build()
        .unwrap();
    let end = agent.run("Count").await;
    assert!(
        till.charged() <= dollars(0.03),
        "{} charged",
        till.charged()
    );
    assert_ended(&end, "growing");
}

/// A model with a small window that hands what is too long for it to one with a large window.
struct Overflow(Provider);

#[async_trait]
impl Model for Overflow {
    fn card(&self) -> &ModelCard {
        &self.0.card
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        CostBound::of(&card().with_price(till_price()), request)
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let mut large = self.0.clone();
        large.card.window = None;
        large.stream(request).await
    }
}

#[tokio::test]
async fn a_model_that_counts_by_itself_is_not_bound_to_the_window_of_its_card() {
    let till = Till::default();
    let mut model = Provider::new(&till, Manner::Greedy).calling("add", 1, 1);
    model.card.window = Some(1_000);
    let limits = Limits::new().money(dollars(0.04));
    let agent = Agent::builder(Overflow(model))
        .tool(add)
        .instructions("Count well. ".repeat(1_000));
    let _ = agent.limits(limits).build().unwrap().run("Count").await;
    assert!(
        till.charged() <= dollars(0.04),
        "{} charged",
        till.charged()
    );
}

#[tokio::test]
async fn a_reply_that_had_begun_is_not_given_back() {
    for watched in [false, true] {
        let (runtime, journal) = runtime();
        let kind = ModelErrorKind::RateLimited { retry_after: None };
        let half = Turn::new()
            .text("So ")
            .break_off(ModelError::new(kind, "too much"));
        let leaf = Agent::builder(ScriptedModel::new().turn(half).with_card(card()))
            .build()
            .unwrap();
        let asks = Turn::new()
            .call("helper", json!({"task": "Count"}))
            .usage(10, 1);
        let model = ScriptedModel::new()
            .turn(asks)
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
            watch(run.start()).await.1
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

#[tokio::test]
async fn what_may_have_been_done_is_not_told_as_refused_after_a_crash() {
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
    let hangs = levity::test::FaultyTool::hangs;
    let calls = ScriptedModel::new().call("put", json!({}));
    let called = |event: &Event| matches!(event.kind, EventKind::ToolStarted { .. });
    drop_at(build(calls, hangs()).run("Put").id("r").start(), called).await;
    let model = ScriptedModel::new().reply("Done.");
    let answer = build(model, hangs()).resume("r").await.unwrap();
    let (_, result) = answer.history().calls().next().unwrap();
    assert_eq!(
        result.error,
        Some(levity::core::ToolErrorKind::Unknown),
        "{}",
        result.text()
    );
}
