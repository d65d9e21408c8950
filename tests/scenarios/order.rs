use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity::core::{EventKind, Hints, ToolSpec};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::{Value, json};

/// Writes down when it begins and ends, and lets others go first in between.
#[derive(Clone)]
struct Traced {
    spec: ToolSpec,
    log: Arc<Mutex<Vec<String>>>,
}

impl Traced {
    fn new(name: &str, hints: Hints, log: &Arc<Mutex<Vec<String>>>) -> Self {
        let spec = ToolSpec::new(name, "Traced.").with_input(json!({"type": "object"})).with_hints(hints);
        Self { spec, log: log.clone() }
    }

    fn note(&self, what: &str, args: &Value) {
        self.log.lock().unwrap().push(format!("{what}{}{}", self.spec.name, args["n"]));
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

/// What begins and ends when, for the calls of one turn.
async fn order(calls: &[(&str, u64)], policy: Policy) -> String {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let turn = calls.iter().fold(Turn::new(), |turn, (name, n)| turn.call(*name, json!({"n": n})));
    let agent = Agent::builder(ScriptedModel::new().turn(turn).reply("done"))
        .tool(Traced::new("r", Hints::new().read_only(), &log))
        .tool(Traced::new("w", Hints::new(), &log))
        .tool(Traced::new("p", Hints::new().parallel(), &log))
        .policy(policy)
        .build()
        .unwrap();
    let mut run = agent.start("go");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            run.approve(&ask).await.unwrap();
        }
    }
    run.await.unwrap();
    let lines = log.lock().unwrap();
    lines.join(" ")
}

/// All begin before one ends; which ends first is nobody's promise.
#[tokio::test]
async fn read_only_calls_run_side_by_side() {
    let side_by_side = |log: String, begun: &str| assert!(log.starts_with(begun), "{log}");
    side_by_side(order(&[("r", 1), ("r", 2)], Policy::allow_all()).await, "+r1 +r2 -");
    side_by_side(order(&[("p", 1), ("r", 2)], Policy::allow_all()).await, "+p1 +r2 -");
}

#[tokio::test]
async fn other_calls_run_alone_and_in_order() {
    let calls = [("r", 1), ("w", 2), ("w", 3), ("r", 4), ("r", 5)];
    let log = order(&calls, Policy::allow_all()).await;
    assert!(log.starts_with("+r1 -r1 +w2 -w2 +w3 -w3 +r4 +r5 -"), "{log}");
}

#[tokio::test]
async fn a_call_that_waits_for_a_decision_is_not_overtaken() {
    let policy = || {
        Policy::new().rule(Rule::tool("w").arg("/n", levity::tools::ArgMatch::equals(json!(1))).ask("first"))
    };
    let calls = [("w", 1), ("w", 2), ("r", 3)];
    assert_eq!(order(&calls, policy()).await, "+w1 -w1 +w2 -w2 +r3 -r3");
}
