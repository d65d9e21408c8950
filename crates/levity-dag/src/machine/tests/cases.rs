//! Single cases, driven by hand.

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

/// A machine, and what it wants.
struct Hand {
    machine: GraphMachine,
    open: Vec<(EffectId, Effect)>,
    notices: Vec<PlanNotice>,
}

impl Hand {
    fn new(rules: &Arc<Rules>, plan: Plan, settings: Settings) -> Self {
        let start = Start {
            plan: Some(Arc::new(plan)),
            settings,
            ..Start::default()
        };
        let machine = GraphMachine::new(rules.clone(), start);
        let mut hand = Self {
            machine,
            open: Vec::new(),
            notices: Vec::new(),
        };
        hand.apply(Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        });
        hand
    }

    fn apply(&mut self, input: Input) {
        let mut wants = MachineOutput::new();
        self.machine.apply(input, &mut wants);
        self.notices
            .extend(wants.events.iter().filter_map(PlanNotice::of));
        self.open.append(&mut wants.effects);
    }

    /// The names of what is wanted: steps by their ids, other things by what they are.
    fn wanted(&self) -> Vec<&str> {
        self.open.iter().map(|(_, effect)| name(effect)).collect()
    }

    fn args(&self, step: &str) -> &Value {
        let find = self.open.iter().find(|(_, effect)| name(effect) == step);
        match find.unwrap_or_else(|| panic!("no `{step}` in {:?}", self.wanted())) {
            (_, Effect::Tool(run)) => &run.call.args,
            (_, other) => panic!("{other:?}"),
        }
    }

    fn end(&mut self, wanted: &str, outcome: impl FnOnce(&Effect) -> Outcome) {
        let at = self
            .open
            .iter()
            .position(|(_, effect)| name(effect) == wanted);
        let at = at.unwrap_or_else(|| panic!("no `{wanted}` in {:?}", self.wanted()));
        let (effect, what) = self.open.remove(at);
        let outcome = outcome(&what);
        self.apply(Input::Finished { effect, outcome });
    }

    fn gives(&mut self, step: &str, value: impl Into<Value>) {
        let value = value.into();
        self.end(step, |effect| tool(effect, Ok(ToolOutput::value(value))));
    }

    fn fails(&mut self, step: &str) {
        self.end(step, |effect| {
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
            .unwrap_or_else(|| panic!("it wants {:?}", self.wanted()))
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

fn carry_out(steps: impl IntoIterator<Item = Step>) -> Hand {
    Hand::new(&rules(false), plan(steps), Settings::default())
}

fn with_planner(plan: Plan, settings: Settings) -> Hand {
    Hand::new(&rules(true), plan, settings)
}

#[test]
fn a_list_goes_on_when_the_plan_is_changed() {
    let plan =
        plan([step("bad"), step("list").map(FanOut::over("all"))]).given("all", json!([1, 2, 3]));
    let mut hand = with_planner(
        plan,
        Settings {
            parallel: 2,
            ..Settings::default()
        },
    );
    hand.fails("bad");
    assert_eq!(hand.wanted(), ["list", PLAN, "list"]);
    hand.gives(
        PLAN,
        json!({"add": [{"id": "other", "agent": "f", "inputs": {"me": "other"}}]}),
    );
    hand.gives("list", 10);
    hand.gives("list", 20);
    hand.gives("list", 30);
    hand.gives("other", 0);
    assert_eq!(hand.ended(), &Status::Complete);
    assert_eq!(hand.machine.values()["list"], json!([10, 20, 30]));
}

#[test]
fn what_a_change_adds_does_not_change_what_a_begun_step_is_given() {
    let retry = Retry::attempts(2);
    let plan = plan([step("reader").reads(["x"]).retry(retry), step("bad")]).given("x", "old");
    let mut hand = with_planner(plan, Settings::default());
    assert_eq!(hand.args("reader")["x"], "old");
    hand.fails("reader");
    hand.fails("bad");
    let writer = json!({"id": "new", "agent": "f", "inputs": {"me": "new"}, "writes": ["x"]});
    hand.gives(PLAN, json!({"add": [writer]}));
    hand.gives("new", "new");
    hand.end("wait", |_| Outcome::Woken);
    assert_eq!(hand.args("reader")["x"], "old");
}

#[test]
fn a_change_that_is_approved_too_late_is_checked_again() {
    let plan = plan([step("first"), step("second").after("first"), step("bad")]);
    let mut hand = with_planner(
        plan,
        Settings {
            approve: true,
            ..Settings::default()
        },
    );
    hand.end(CARRY_OUT, |_| Outcome::Decision(Decision::Allow));
    hand.fails("bad");
    hand.gives(PLAN, json!({"remove": ["second"]}));
    assert_eq!(hand.wanted(), ["first", CARRY_OUT]);
    hand.gives("first", 1);
    assert_eq!(
        hand.wanted(),
        [CARRY_OUT, "second"],
        "nothing waits for the person"
    );
    hand.end(CARRY_OUT, |_| Outcome::Decision(Decision::Allow));
    assert!(
        hand.notices
            .iter()
            .any(|notice| matches!(notice, PlanNotice::Rejected { .. }))
    );
    hand.gives(PLAN, json!({"give_up": "it is too late"}));
    hand.gives("second", 2);
    assert!(matches!(hand.ended(), Status::Failed(_)));
    assert_eq!(hand.machine.values()["second"], 2);
    assert_eq!(hand.machine.replans(), 1, "it was asked for once");
}

#[test]
fn one_step_stands_in_for_several() {
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
    let mut hand = carry_out(steps());
    hand.gives("a", 1);
    hand.gives("b", 2);
    assert_eq!(
        hand.wanted(),
        ["after_a", "after_b"],
        "nobody is needed, and nobody is skipped for it"
    );
    assert_eq!(hand.status()["shared"], StepStatus::Skipped);
    let mut hand = carry_out(steps());
    hand.fails("a");
    assert_eq!(hand.wanted(), ["b"]);
    hand.gives("b", 2);
    assert_eq!(hand.wanted(), ["shared"], "one of them has failed");
    hand.gives("shared", json!({"a": 5, "b": 6}));
    assert_eq!(hand.wanted(), ["after_a", "after_b"]);
    hand.gives("after_a", 0);
    hand.gives("after_b", 0);
    assert_eq!(hand.ended(), &Status::Complete);
}

#[test]
fn a_step_that_nobody_did_is_missing() {
    let never = Condition::parse("x > 1").unwrap();
    let plan = plan([
        step("s").on_failure(OnFailure::Fallback("other".into())),
        Step::new("other", "f")
            .input("me", "other")
            .writes(["s"])
            .when(never),
    ]);
    let mut hand = Hand::new(&rules(false), plan.given("x", 0), Settings::default());
    hand.fails("s");
    let why = "step `s` failed: it broke".to_owned();
    assert_eq!(hand.ended(), &Status::Failed(Failure::Unreached(why)));
}

#[test]
fn a_way_with_a_condition_is_not_taken_because_a_step_failed() {
    let good = Condition::parse("s > 1").unwrap();
    let steps = [
        step("s").on_failure(OnFailure::Continue),
        step("good").after_if("s", good),
        step("always").after("s"),
        step("either").after("good").after("always").join(Join::Any),
    ];
    let mut hand = carry_out(steps);
    hand.fails("s");
    assert_eq!(hand.wanted(), ["always"]);
    hand.gives("always", 1);
    hand.gives("either", 1);
    assert_eq!(hand.ended(), &Status::Complete);
}

#[test]
fn what_very_many_write_is_put_together_once() {
    let mut plan = Plan::new().variable("all", Variable::new().reducer(Reducer::List));
    for n in 0..10_000 {
        plan = plan.step(
            Step::new(format!("s{n}"), "f")
                .input("me", format!("s{n}"))
                .writes(["all"]),
        );
    }
    let mut hand = Hand::new(
        &rules(false),
        plan,
        Settings {
            parallel: 20_000,
            ..Settings::default()
        },
    );
    for (n, (effect, what)) in std::mem::take(&mut hand.open).into_iter().enumerate() {
        let mut wants = MachineOutput::new();
        wants.set_quiet(true);
        let outcome = tool(&what, Ok(ToolOutput::value(json!(n))));
        hand.machine
            .apply(Input::Finished { effect, outcome }, &mut wants);
    }
    assert_eq!(hand.ended(), &Status::Complete);
    assert_eq!(
        hand.machine.values()["all"].as_array().map(Vec::len),
        Some(10_000)
    );
}

#[test]
fn stand_ins_of_stand_ins_are_looked_at_once() {
    // Two stand in for each `a`, and the next `a` for both of them: 2^30 ways lead to the last.
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
    let mut hand = carry_out(steps);
    while let Some(next) = hand.wanted().first().map(|name| (*name).to_owned()) {
        hand.fails(&next);
    }
    assert_eq!(hand.status()["last"], StepStatus::Skipped);
}

/// Lets all that is wanted succeed or fail until the end.
fn drain(hand: &mut Hand, good: impl Fn(usize) -> bool) -> usize {
    let mut done = 0;
    while let Some((effect, what)) = hand.open.pop() {
        let mut wants = MachineOutput::new();
        wants.set_quiet(true);
        let outcome = match &what {
            Effect::Wait(_) => Outcome::Woken,
            _ if good(done) => tool(&what, Ok(ToolOutput::value(json!(done)))),
            _ => tool(&what, Err(ToolError::failed("it broke"))),
        };
        done += 1;
        hand.machine
            .apply(Input::Finished { effect, outcome }, &mut wants);
        hand.open.append(&mut wants.effects);
    }
    done
}

#[test]
fn a_list_of_a_hundred_thousand() {
    let many = FanOut::MAX_MOST;
    let list = |map: FanOut, attempts: u32| {
        let step = step("list")
            .map(map.most(many))
            .retry(Retry::attempts(attempts));
        let plan = plan([step]).given("all", json!((0..many).collect::<Vec<_>>()));
        Hand::new(&rules(false), plan, Settings::default())
    };
    let mut hand = list(FanOut::over("all"), 1);
    assert_eq!(drain(&mut hand, |_| true), many);
    assert_eq!(
        hand.machine.values()["list"].as_array().map(Vec::len),
        Some(many)
    );
    // All fail, and it is not clear before the last that too few are left.
    let mut hand = list(FanOut::over("all").quorum(1), 1);
    assert_eq!(drain(&mut hand, |_| false), many);
    assert!(matches!(hand.ended(), Status::Failed(_)));
}

#[test]
fn a_list_that_is_too_long_begins_nothing() {
    let plan = plan([step("list").map(FanOut::over("made")), step("made")]);
    let mut hand = Hand::new(&rules(false), plan, Settings::default());
    hand.gives("made", json!({"made": vec![0; 100_001]}));
    assert!(matches!(hand.ended(), Status::Failed(_)));
}
