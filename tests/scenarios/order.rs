use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity::core::{EventKind, Hints, ToolSpec};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use levity::tools::{Policy, Rule};
use serde_json::{Value, json};

use crate::support::approve_all;

type Log = Arc<Mutex<Vec<String>>>;

/// Writes down when it begins and ends, and lets others go first in between.
#[derive(Clone)]
struct Traced {
    spec: ToolSpec,
    log: Log,
}

impl Traced {
    fn new(name: &str, hints: Hints, log: &Log) -> Self {
        let spec = ToolSpec::new(name, "Traced.")
            .with_input(json!({"type": "object"}))
            .with_hints(hints);
        Self {
            spec,
            log: log.clone(),
        }
    }

    fn note(&self, what: &str, args: &Value) {
        self.log
            .lock()
            .unwrap()
            .push(format!("{what}{}{}", self.spec.name, args["n"]));
    }
}

#[async_trait]
impl Tool for Traced {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.note("+", &args);
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.note("-", &args);
        Ok(ToolOutput::text("ok"))
    }
}

/// An agent that makes these calls in one turn; handed work, its helper calls `c` with 0.
fn agent(calls: &[(&str, u64)], policy: Policy, log: &Log) -> Agent {
    let helper = Agent::builder(
        ScriptedModel::new()
            .call("c", json!({"n": 0}))
            .reply("done"),
    )
    .tool(Traced::new("c", Hints::new(), log))
    .build()
    .unwrap();
    let turn = calls
        .iter()
        .fold(Turn::new(), |turn, (name, n)| match *name {
            "helper" => turn.call("helper", json!({"task": format!("task {n}")})),
            name => turn.call(name, json!({"n": n})),
        });
    Agent::builder(ScriptedModel::new().turn(turn).reply("done"))
        .tool(Traced::new("r", Hints::new().read_only(), log))
        .tool(Traced::new("w", Hints::new(), log))
        .tool(Traced::new("p", Hints::new().parallel(), log))
        .agent("helper", "Helps.", helper)
        .policy(policy)
        .build()
        .unwrap()
}

/// What begins and ends when, for the calls of one turn; what is asked about is approved at once.
async fn order(calls: &[(&str, u64)], policy: Policy) -> String {
    let log = Log::default();
    approve_all(agent(calls, policy, &log).start("go"))
        .await
        .unwrap();
    let lines = log.lock().unwrap();
    lines.join(" ")
}

/// All begin before one ends; which ends first is nobody's promise.
#[tokio::test]
async fn read_only_calls_run_side_by_side() {
    let side_by_side = |log: String, begun: &str| assert!(log.starts_with(begun), "{log}");
    side_by_side(
        order(&[("r", 1), ("r", 2)], Policy::allow_all()).await,
        "+r1 +r2 -",
    );
    side_by_side(
        order(&[("p", 1), ("r", 2)], Policy::allow_all()).await,
        "+p1 +r2 -",
    );
}

#[tokio::test]
async fn other_calls_run_alone_and_in_order() {
    let calls = [("r", 1), ("w", 2), ("w", 3), ("r", 4), ("r", 5)];
    let log = order(&calls, Policy::allow_all()).await;
    assert!(
        log.starts_with("+r1 -r1 +w2 -w2 +w3 -w3 +r4 +r5 -"),
        "{log}"
    );
}

#[tokio::test]
async fn a_call_that_waits_for_a_decision_is_not_overtaken() {
    let policy = || {
        Policy::new().rule(
            Rule::tool("w")
                .arg("/n", levity::tools::ArgMatch::equals(json!(1)))
                .ask("first"),
        )
    };
    let calls = [("w", 1), ("w", 2), ("r", 3)];
    assert_eq!(order(&calls, policy()).await, "+w1 -w1 +w2 -w2 +r3 -r3");
}

#[tokio::test]
async fn a_call_that_runs_alone_does_not_overtake_an_earlier_one_that_is_asked_about() {
    assert_eq!(
        order(&[("r", 1), ("w", 2)], Policy::ask_all()).await,
        "+r1 -r1 +w2 -w2"
    );
}

#[tokio::test]
async fn a_call_that_needs_no_decision_does_not_overtake_one_that_does() {
    let policy = Policy::new().rule(Rule::tool("r").ask("first"));
    assert_eq!(
        order(&[("r", 1), ("w", 2)], policy).await,
        "+r1 -r1 +w2 -w2"
    );
}

#[tokio::test]
async fn a_delegate_does_not_overtake_a_call_that_runs_alone() {
    assert_eq!(
        order(&[("w", 1), ("helper", 2)], Policy::new()).await,
        "+w1 -w1 +c0 -c0"
    );
}

#[tokio::test]
async fn a_call_that_is_approved_does_not_wait_for_a_decision_on_a_later_one() {
    let log = Log::default();
    let mut run = agent(&[("r", 1), ("w", 2)], Policy::ask_all(), &log).start("go");
    let mut events = run.events();
    let mut asks = VecDeque::new();
    let mut under_way = false;
    // The host decides about a call only when the one before it is done.
    let decide = async {
        while let Some(event) = events.next().await {
            match event.kind {
                EventKind::Asked(ask) => asks.push_back(ask),
                EventKind::ToolFinished { .. } => under_way = false,
                _ => {}
            }
            if !under_way && let Some(ask) = asks.pop_front() {
                run.approve(&ask).await.unwrap();
                under_way = true;
            }
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(2), decide).await;
    done.expect("the approved call waits for the undecided one");
    assert_eq!(log.lock().unwrap().join(" "), "+r1 -r1 +w2 -w2");
}
