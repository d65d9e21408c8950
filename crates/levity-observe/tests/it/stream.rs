//! Handwritten event streams.

use levity_core::{Ending, Event, EventKind, MachineKind, Money, RunId, Status, Timestamp, Usage};
use levity_dag::{Plan, PlanNotice, Step, StepId};
use serde_json::{Value, json};

/// The events of a run, each with its time.
pub(crate) struct Stream {
    pub(crate) run: RunId,
    pub(crate) now: u64,
    pub(crate) events: Vec<Event>,
}

/// 2026-03-04T05:06:07Z.
pub(crate) const BEGIN: u64 = 1_772_600_767_000;

impl Stream {
    pub(crate) fn new(run: &str, goal: &str) -> Self {
        let mut stream = Self {
            run: run.into(),
            now: BEGIN,
            events: Vec::new(),
        };
        stream.event_of_run(EventKind::RunStarted { machine: machine() });
        stream.event_of_run(EventKind::Goal {
            text: goal.to_owned(),
        });
        stream
    }

    /// Advances the time.
    pub(crate) fn wait(&mut self, millis: u64) -> &mut Self {
        self.now += millis;
        self
    }

    /// Adds an event of the run.
    pub(crate) fn event_of_run(&mut self, kind: EventKind) -> &mut Self {
        self.event(self.run.clone(), kind)
    }

    /// Adds an event of a child run.
    pub(crate) fn event_of_child(&mut self, run: &str, kind: EventKind) -> &mut Self {
        self.event(format!("{}.{run}", self.run).into(), kind)
    }

    fn event(&mut self, run: RunId, kind: EventKind) -> &mut Self {
        let seq = self.events.len() as u64;
        self.events
            .push(Event::new(run, seq, Timestamp::from_millis(self.now), kind));
        self
    }

    /// Adds a notice of the run.
    pub(crate) fn notice(&mut self, data: Value) -> &mut Self {
        let kind = EventKind::Custom {
            name: PlanNotice::NAME.to_owned(),
            data,
        };
        assert!(PlanNotice::of(&kind).is_some(), "no notice: {kind:?}");
        self.event_of_run(kind)
    }

    pub(crate) fn planned(&mut self, plan: &Plan, edges: &[(&str, &str)]) -> &mut Self {
        self.notice(json!({"notice": "planned", "plan": plan, "edges": edges}))
    }

    pub(crate) fn started(&mut self, step: &str, effect: u64) -> &mut Self {
        self.notice(
            json!({"notice": "step_started", "step": step, "effect": effect, "attempt": 1,
            "round": 1}),
        )
    }

    /// Adds the completion of a step that wrote these variables.
    pub(crate) fn completed(&mut self, step: &str, writes: Value) -> &mut Self {
        let Value::Object(output) = writes else {
            panic!("what is written has names")
        };
        let written = output
            .iter()
            .map(|(name, value)| json!({"name": name, "by": "output", "value": value}));
        let written: Vec<Value> = written.collect();
        let spent = json!({"attempts": 1, "usage": usage(1_000, 50, 2_500_000),
            "stats": {"model_calls": 1}});
        self.notice(
            json!({"notice": "step_completed", "step": step, "writes": written,
            "output": output, "spent": spent}),
        )
    }

    pub(crate) fn failed(&mut self, step: &str, error: &str) -> &mut Self {
        self.notice(
            json!({"notice": "step_failed", "step": step, "error": error,
            "spent": {"attempts": 1}}),
        )
    }

    pub(crate) fn ended(&mut self, status: Status) -> &mut Self {
        self.event_of_run(EventKind::RunEnded(Box::new(Ending::new(status))))
    }
}

pub(crate) fn machine() -> MachineKind {
    MachineKind::new("graph", 1)
}

pub(crate) fn usage(input: u64, output: u64, nanos: u64) -> Usage {
    let mut usage = Usage::new(input, output);
    usage.cost = Some(Money::from_nanos(nanos));
    usage
}

/// Returns a plan that fetches two pages, compares them, and writes down the comparison.
pub(crate) fn pages() -> (Plan, Vec<(&'static str, &'static str)>) {
    let plan = Plan::new()
        .step(
            Step::new("fetch_a", "Retriever")
                .description("fetch the first page")
                .writes(["a"]),
        )
        .step(
            Step::new("fetch_b", "Retriever")
                .description("fetch the second page")
                .writes(["b"]),
        )
        .step(
            Step::new("compare", "Thinker")
                .prompt("Compare them.")
                .reads(["a", "b", "style"])
                .writes(["verdict"]),
        )
        .step(
            Step::new("report", "Formatter")
                .reads(["verdict"])
                .writes(["report"])
                .after("compare"),
        )
        .given("style", "short");
    (
        plan,
        vec![
            ("fetch_a", "compare"),
            ("fetch_b", "compare"),
            ("compare", "report"),
        ],
    )
}

pub(crate) fn id(id: &str) -> StepId {
    id.into()
}
