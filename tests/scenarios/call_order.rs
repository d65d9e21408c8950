//! The order in which the calls of one turn run.

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

/// A tool that logs its start and end, and yields in between.
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

    fn log_step(&self, mark: &str, args: &Value) {
        self.log
            .lock()
            .unwrap()
            .push(format!("{mark}{}{}", self.spec.name, args["n"]));
    }
}

#[async_trait]
impl Tool for Traced {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.log_step("+", &args);
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.log_step("-", &args);
        Ok(ToolOutput::text("ok"))
    }
}

/// Builds an agent that makes these calls in one turn. Its helper calls `c` with 0.
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

/// Returns the order in which the calls of one turn start and end. Every question is approved at
/// once.
async fn order(calls: &[(&str, u64)], policy: Policy) -> String {
    let log = Log::default();
    approve_all(agent(calls, policy, &log).start("go"))
        .await
        .unwrap();
    let lines = log.lock().unwrap();
    lines.join(" ")
}

/// All calls start before the first one ends. The order of the ends is not defined.
#[tokio::test]
async fn read_only_calls_run_in_parallel() {
    let assert_parallel = |log: String, start: &str| assert!(log.starts_with(start), "{log}");
    assert_parallel(
        order(&[("r", 1), ("r", 2)], Policy::allow_all()).await,
        "+r1 +r2 -",
    );
    assert_parallel(
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
async fn calls_wait_for_earlier_call_with_pending_decision() {
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
async fn exclusive_call_waits_for_earlier_undecided_call() {
    assert_eq!(
        order(&[("r", 1), ("w", 2)], Policy::ask_all()).await,
        "+r1 -r1 +w2 -w2"
    );
}

#[tokio::test]
async fn allowed_call_waits_for_earlier_undecided_call() {
    let policy = Policy::new().rule(Rule::tool("r").ask("first"));
    assert_eq!(
        order(&[("r", 1), ("w", 2)], policy).await,
        "+r1 -r1 +w2 -w2"
    );
}

#[tokio::test]
async fn child_run_waits_for_earlier_exclusive_call() {
    assert_eq!(
        order(&[("w", 1), ("helper", 2)], Policy::new()).await,
        "+w1 -w1 +c0 -c0"
    );
}

#[tokio::test]
async fn approved_call_does_not_wait_for_later_decision() {
    let log = Log::default();
    let mut run = agent(&[("r", 1), ("w", 2)], Policy::ask_all(), &log).start("go");
    let mut events = run.events();
    let mut asks = VecDeque::new();
    let mut in_progress = false;
    // The host decides on a call only after the previous one has finished.
    let decide = async {
        while let Some(event) = events.next().await {
            match event.kind {
                EventKind::Asked(ask) => asks.push_back(ask),
                EventKind::ToolFinished { .. } => in_progress = false,
                _ => {}
            }
            if !in_progress && let Some(ask) = asks.pop_front() {
                run.approve(&ask).await.unwrap();
                in_progress = true;
            }
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(2), decide).await;
    done.expect("the approved call waits for the undecided one");
    assert_eq!(log.lock().unwrap().join(" "), "+r1 -r1 +w2 -w2");
}
