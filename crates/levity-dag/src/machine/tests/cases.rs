//! Tests of single cases, driven by driver.

use std::collections::HashMap;
use std::sync::Arc;

use levity_core::{
    Decision, Effect, EffectId, Failure, Input, Machine as _, MachineOutput, Outcome, RunId,
    Status, ToolError, ToolOutput, ToolResult,
};
use serde_json::{Value, json};

use super::rules;
use crate::condition::Condition;
use crate::machine::{CARRY_OUT, GraphMachine, PLAN, Rules, Settings, Start};
use crate::notice::{PlanNotice, StepStatus};
use crate::plan::{Plan, Variable};
use crate::step::{FanOut, Join, OnFailure, Reducer, Retry, Step};

/// A machine and its pending effects.
struct ManualDriver {
    machine: GraphMachine,
    open: Vec<(EffectId, Effect)>,
    notices: Vec<PlanNotice>,
}

impl ManualDriver {
    fn new(rules: &Arc<Rules>, plan: Plan, settings: Settings) -> Self {
        let start = Start {
            plan: Some(Arc::new(plan)),
            settings,
            ..Start::default()
        };
        let machine = GraphMachine::new(rules.clone(), start);
        let mut driver = Self {
            machine,
            open: Vec::new(),
            notices: Vec::new(),
        };
        driver.apply(Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        });
        driver
    }

    fn apply(&mut self, input: Input) {
        let mut out = MachineOutput::new();
        self.machine.apply(input, &mut out);
        self.notices
            .extend(out.events.iter().filter_map(PlanNotice::of));
        self.open.append(&mut out.effects);
    }

    /// Returns the names of the pending effects: steps by their ids, others by their kind.
    fn pending_names(&self) -> Vec<&str> {
        self.open.iter().map(|(_, effect)| name(effect)).collect()
    }

    fn args(&self, step: &str) -> &Value {
        let find = self.open.iter().find(|(_, effect)| name(effect) == step);
        match find.unwrap_or_else(|| panic!("no `{step}` in {:?}", self.pending_names())) {
            (_, Effect::Tool(run)) => &run.call.args,
            (_, other) => panic!("{other:?}"),
        }
    }

    fn finish(&mut self, name_of_effect: &str, outcome: impl FnOnce(&Effect) -> Outcome) {
        let at = self
            .open
            .iter()
            .position(|(_, effect)| name(effect) == name_of_effect);
        let at =
            at.unwrap_or_else(|| panic!("no `{name_of_effect}` in {:?}", self.pending_names()));
        let (effect, what) = self.open.remove(at);
        let outcome = outcome(&what);
        self.apply(Input::Finished { effect, outcome });
    }

    fn complete(&mut self, step: &str, value: impl Into<Value>) {
        let value = value.into();
        self.finish(step, |effect| tool(effect, Ok(ToolOutput::value(value))));
    }

    fn fail(&mut self, step: &str) {
        self.finish(step, |effect| {
            tool(effect, Err(ToolError::failed("it broke")))
        });
    }

    fn status(&self) -> HashMap<String, StepStatus> {
        self.machine
            .reports()
            .map(|(id, status, ..)| (id.to_string(), status))
            .collect()
    }

    fn ended(&self) -> &Status {
        &self
            .machine
            .ending()
            .unwrap_or_else(|| panic!("it still waits for {:?}", self.pending_names()))
            .status
    }
}

fn tool(effect: &Effect, result: Result<ToolOutput, ToolError>) -> Outcome {
    let Effect::Tool(run) = effect else {
        panic!("{effect:?}")
    };
    Outcome::Tool(ToolResult::new(&run.call, result))
}

fn name(effect: &Effect) -> &str {
    match effect {
        Effect::Tool(run) => run.call.args["me"].as_str().unwrap_or(&run.call.name),
        Effect::Ask(ask) => &ask.call.name,
        Effect::Wait(_) => "wait",
        _ => "?",
    }
}

fn step(id: &str) -> Step {
    Step::new(id, "f").input("me", id).writes([id])
}

fn plan(steps: impl IntoIterator<Item = Step>) -> Plan {
    steps.into_iter().fold(Plan::new(), Plan::step)
}

fn start_plan(steps: impl IntoIterator<Item = Step>) -> ManualDriver {
    ManualDriver::new(&rules(false), plan(steps), Settings::default())
}

fn start_with_planner(plan: Plan, settings: Settings) -> ManualDriver {
    ManualDriver::new(&rules(true), plan, settings)
}

#[test]
fn fan_out_continues_after_plan_change() {
    let plan =
        plan([step("bad"), step("list").map(FanOut::over("all"))]).given("all", json!([1, 2, 3]));
    let mut driver = start_with_planner(
        plan,
        Settings {
            parallel: 2,
            ..Settings::default()
        },
    );
    driver.fail("bad");
    assert_eq!(driver.pending_names(), ["list", PLAN, "list"]);
    driver.complete(
        PLAN,
        json!({"add": [{"id": "other", "agent": "f", "inputs": {"me": "other"}}]}),
    );
    driver.complete("list", 10);
    driver.complete("list", 20);
    driver.complete("list", 30);
    driver.complete("other", 0);
    assert_eq!(driver.ended(), &Status::Complete);
    assert_eq!(driver.machine.values()["list"], json!([10, 20, 30]));
}

#[test]
fn added_writer_does_not_change_inputs_of_started_step() {
    let retry = Retry::attempts(2);
    let plan = plan([step("reader").reads(["x"]).retry(retry), step("bad")]).given("x", "old");
    let mut driver = start_with_planner(plan, Settings::default());
    assert_eq!(driver.args("reader")["x"], "old");
    driver.fail("reader");
    driver.fail("bad");
    let writer = json!({"id": "new", "agent": "f", "inputs": {"me": "new"}, "writes": ["x"]});
    driver.complete(PLAN, json!({"add": [writer]}));
    driver.complete("new", "new");
    driver.finish("wait", |_| Outcome::Woken);
    assert_eq!(driver.args("reader")["x"], "old");
}

#[test]
fn change_approved_late_is_validated_again() {
    let plan = plan([step("first"), step("second").after("first"), step("bad")]);
    let mut driver = start_with_planner(
        plan,
        Settings {
            approve: true,
            ..Settings::default()
        },
    );
    driver.finish(CARRY_OUT, |_| Outcome::Decision(Decision::Allow));
    driver.fail("bad");
    driver.complete(PLAN, json!({"remove": ["second"]}));
    assert_eq!(driver.pending_names(), ["first", CARRY_OUT]);
    driver.complete("first", 1);
    assert_eq!(
        driver.pending_names(),
        [CARRY_OUT, "second"],
        "no step waits for the person"
    );
    driver.finish(CARRY_OUT, |_| Outcome::Decision(Decision::Allow));
    assert!(
        driver
            .notices
            .iter()
            .any(|notice| matches!(notice, PlanNotice::Rejected { .. }))
    );
    driver.complete(PLAN, json!({"give_up": "it is too late"}));
    driver.complete("second", 2);
    assert!(matches!(driver.ended(), Status::Failed(_)));
    assert_eq!(driver.machine.values()["second"], 2);
    assert_eq!(driver.machine.replans(), 1, "there was one replan");
}

#[test]
fn one_step_is_fallback_for_several_steps() {
    let shared = || OnFailure::Fallback("shared".into());
    let steps = || {
        [
            step("a").on_failure(shared()),
            step("b").on_failure(shared()),
            Step::new("shared", "f")
                .input("me", "shared")
                .writes(["a", "b"]),
            step("after_a").after("a"),
            step("after_b").after("b"),
        ]
    };
    let mut driver = start_plan(steps());
    driver.complete("a", 1);
    driver.complete("b", 2);
    assert_eq!(
        driver.pending_names(),
        ["after_a", "after_b"],
        "the fallback is not needed, and no dependent is skipped"
    );
    assert_eq!(driver.status()["shared"], StepStatus::Skipped);
    let mut driver = start_plan(steps());
    driver.fail("a");
    assert_eq!(driver.pending_names(), ["b"]);
    driver.complete("b", 2);
    assert_eq!(driver.pending_names(), ["shared"], "one of them has failed");
    driver.complete("shared", json!({"a": 5, "b": 6}));
    assert_eq!(driver.pending_names(), ["after_a", "after_b"]);
    driver.complete("after_a", 0);
    driver.complete("after_b", 0);
    assert_eq!(driver.ended(), &Status::Complete);
}

#[test]
fn failed_step_with_skipped_fallback_is_reported() {
    let never = Condition::parse("x > 1").unwrap();
    let plan = plan([
        step("s").on_failure(OnFailure::Fallback("other".into())),
        Step::new("other", "f")
            .input("me", "other")
            .writes(["s"])
            .when(never),
    ]);
    let mut driver = ManualDriver::new(&rules(false), plan.given("x", 0), Settings::default());
    driver.fail("s");
    let reason = "step `s` failed: it broke".to_owned();
    assert_eq!(
        driver.ended(),
        &Status::Failed(Failure::GoalNotReached(reason))
    );
}

#[test]
fn conditional_edge_is_not_taken_after_tolerated_failure() {
    let good = Condition::parse("s > 1").unwrap();
    let steps = [
        step("s").on_failure(OnFailure::Continue),
        step("good").after_if("s", good),
        step("always").after("s"),
        step("either").after("good").after("always").join(Join::Any),
    ];
    let mut driver = start_plan(steps);
    driver.fail("s");
    assert_eq!(driver.pending_names(), ["always"]);
    driver.complete("always", 1);
    driver.complete("either", 1);
    assert_eq!(driver.ended(), &Status::Complete);
}

#[test]
fn values_of_many_writers_are_combined_once() {
    let mut plan = Plan::new().variable("all", Variable::new().reducer(Reducer::List));
    for n in 0..10_000 {
        plan = plan.step(
            Step::new(format!("s{n}"), "f")
                .input("me", format!("s{n}"))
                .writes(["all"]),
        );
    }
    let mut driver = ManualDriver::new(
        &rules(false),
        plan,
        Settings {
            parallel: 20_000,
            ..Settings::default()
        },
    );
    for (n, (effect, what)) in std::mem::take(&mut driver.open).into_iter().enumerate() {
        let mut out = MachineOutput::new();
        out.set_quiet(true);
        let outcome = tool(&what, Ok(ToolOutput::value(json!(n))));
        driver
            .machine
            .apply(Input::Finished { effect, outcome }, &mut out);
    }
    assert_eq!(driver.ended(), &Status::Complete);
    assert_eq!(
        driver.machine.values()["all"].as_array().map(Vec::len),
        Some(10_000)
    );
}

#[test]
fn nested_fallbacks_are_visited_once() {
    // Each `a` has two fallbacks, and the next `a` is the fallback of both: 2^30 paths lead to the
    // last.
    let plain = |id: String| Step::new(id.as_str(), "f").input("me", id.as_str());
    let falls_back = |step: Step, to: String| step.on_failure(OnFailure::Fallback(to.into()));
    let mut steps = vec![falls_back(plain("s".into()), "a0".into())];
    for n in 0..30 {
        steps.push(falls_back(plain(format!("a{n}")), format!("b{n}")));
        steps.push(falls_back(plain(format!("b{n}")), format!("a{}", n + 1)));
        let other = plain(format!("c{n}")).instead_of(format!("a{n}"));
        steps.push(falls_back(other, format!("a{}", n + 1)));
    }
    steps.push(plain("a30".into()));
    steps.push(step("last").after("s"));
    let mut driver = start_plan(steps);
    while let Some(next) = driver
        .pending_names()
        .first()
        .map(|name| (*name).to_owned())
    {
        driver.fail(&next);
    }
    assert_eq!(driver.status()["last"], StepStatus::Skipped);
}

/// Finishes all pending effects until the end; `good` decides about success.
fn drain(driver: &mut ManualDriver, good: impl Fn(usize) -> bool) -> usize {
    let mut done = 0;
    while let Some((effect, what)) = driver.open.pop() {
        let mut out = MachineOutput::new();
        out.set_quiet(true);
        let outcome = match &what {
            Effect::Wait(_) => Outcome::Woken,
            _ if good(done) => tool(&what, Ok(ToolOutput::value(json!(done)))),
            _ => tool(&what, Err(ToolError::failed("it broke"))),
        };
        done += 1;
        driver
            .machine
            .apply(Input::Finished { effect, outcome }, &mut out);
        driver.open.append(&mut out.effects);
    }
    done
}

#[test]
fn fan_out_over_hundred_thousand_elements_completes() {
    let many = FanOut::LARGEST_MAX_ITEMS;
    let list = |map: FanOut, attempts: u32| {
        let step = step("list")
            .map(map.max_items(many))
            .retry(Retry::attempts(attempts));
        let plan = plan([step]).given("all", json!((0..many).collect::<Vec<_>>()));
        ManualDriver::new(&rules(false), plan, Settings::default())
    };
    let mut driver = list(FanOut::over("all"), 1);
    assert_eq!(drain(&mut driver, |_| true), many);
    assert_eq!(
        driver.machine.values()["list"].as_array().map(Vec::len),
        Some(many)
    );
    // All elements fail, and only the last failure decides that the quorum is missed.
    let mut driver = list(FanOut::over("all").quorum(1), 1);
    assert_eq!(drain(&mut driver, |_| false), many);
    assert!(matches!(driver.ended(), Status::Failed(_)));
}

#[test]
fn fan_out_over_too_long_list_starts_nothing() {
    let plan = plan([
        step("list").map(FanOut::over("generated")),
        step("generated"),
    ]);
    let mut driver = ManualDriver::new(&rules(false), plan, Settings::default());
    driver.complete("generated", json!({"generated": vec![0; 100_001]}));
    assert!(matches!(driver.ended(), Status::Failed(_)));
}
