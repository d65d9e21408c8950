//! Drives a machine, and looks at everything that it wants.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use levity_core::{
    Decision, Effect, EffectId, Ending, EventKind, Failure, Input, Machine as _, MachineOutput,
    Outcome, RunId, Status, ToolCall, ToolError, ToolOutput, ToolResult,
};
use serde_json::{Map, Value, json};

use super::fate::{Attempt, Dice, Fate, Luck};
use super::made::Made;
use super::reference::{Sequential, is_agent};
use crate::machine::{CARRY_OUT, GraphMachine, PLAN, Rules, Settings, Start};
use crate::notice::{PlanNotice, StepStatus};
use crate::plan::Plan;
use crate::step::{Step, StepId};

/// A machine under way, and what is known of it from outside.
pub(super) struct Driver {
    pub(super) machine: GraphMachine,
    pub(super) fate: Fate,
    pub(super) plan: Made,
    /// What is wanted and not finished.
    pub(super) open: Vec<(EffectId, Effect)>,
    /// All inputs, and what came of each.
    pub(super) inputs: Vec<Input>,
    pub(super) trace: Vec<String>,
    pub(super) notices: Vec<PlanNotice>,
    pub(super) status: HashMap<StepId, StepStatus>,
    /// The steps for which another way was found.
    pub(super) handled: BTreeSet<StepId>,
    steps: HashMap<StepId, Arc<Step>>,
    parallel: usize,
    last: Option<EffectId>,
    began: HashMap<EffectId, (Attempt, u32)>,
    begun: HashSet<(Attempt, u32)>,
    attempts: HashMap<StepId, u32>,
    /// The failed steps for which another way is looked for.
    pub(super) asked_for: Vec<StepId>,
    /// What must be settled before each step begins.
    before: HashMap<StepId, Vec<StepId>>,
    traced: bool,
    /// No more attempts may begin.
    closing: bool,
}

pub(super) fn start(made: &Made, settings: Settings) -> Start {
    Start {
        goal: "Go.".to_owned(),
        plan: Some(Arc::new(made.plan.clone())),
        settings,
        ..Start::default()
    }
}

impl Driver {
    pub(super) fn new(rules: &Arc<Rules>, made: &Made, settings: Settings, fate: Fate) -> Self {
        Self {
            machine: GraphMachine::new(rules.clone(), start(made, settings)),
            fate,
            plan: made.clone(),
            open: Vec::new(),
            inputs: Vec::new(),
            trace: Vec::new(),
            notices: Vec::new(),
            status: HashMap::new(),
            handled: BTreeSet::new(),
            steps: by_id(&made.plan),
            parallel: settings.parallel,
            last: None,
            began: HashMap::new(),
            begun: HashSet::new(),
            attempts: HashMap::new(),
            asked_for: Vec::new(),
            before: before(made),
            traced: made.order.len() < 50,
            closing: false,
        }
    }

    pub(super) fn begin(&mut self) {
        self.apply(Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        });
    }

    pub(super) fn apply(&mut self, input: Input) {
        self.inputs.push(input.clone());
        self.closing |= matches!(input, Input::Stop(_) | Input::Cancel { .. });
        let had_ended = self.machine.ending().is_some();
        let mut wants = MachineOutput::new();
        self.machine.apply(input, &mut wants);
        let ending = self.machine.ending();
        if self.traced {
            self.trace
                .push(format!("{:?} {:?} {ending:?}", wants.effects, wants.events));
        }
        assert!(
            ending.is_none() || wants.effects.is_empty(),
            "after its ending it wants {:?}",
            wants.effects
        );
        assert!(
            !had_ended || wants.events.is_empty(),
            "after its ending it tells {:?}",
            wants.events
        );
        for (id, _) in &wants.effects {
            assert!(
                self.last.is_none_or(|last| last < *id),
                "{id} comes after {:?}",
                self.last
            );
            self.last = Some(*id);
        }
        let notices: Vec<PlanNotice> = wants.events.iter().filter_map(PlanNotice::of).collect();
        notices.into_iter().for_each(|notice| self.notice(notice));
        self.check_calls(&wants);
        self.open.append(&mut wants.effects);
        self.check_parallel();
        if ending_of(&self.machine).is_some() {
            self.open.clear();
        }
    }

    /// Never more effects of steps at once than are allowed.
    fn check_parallel(&self) {
        let is_step = |effect: &Effect| match effect {
            Effect::Tool(run) => run.call.name != PLAN,
            Effect::Ask(ask) => ask.call.name != CARRY_OUT,
            Effect::Wait(_) => false,
            _ => true,
        };
        let running = self
            .open
            .iter()
            .filter(|(_, effect)| is_step(effect))
            .count();
        assert!(
            running <= self.parallel,
            "{running} at once, {} are allowed",
            self.parallel
        );
    }

    /// What is called is what was said to begin.
    fn check_calls(&self, wants: &MachineOutput) {
        for (id, effect) in &wants.effects {
            if let (Effect::Tool(run), Some((attempt, _))) = (effect, self.began.get(id)) {
                assert_eq!(run.call.args["me"], json!(attempt.step.as_str()));
            }
        }
    }

    fn notice(&mut self, notice: PlanNotice) {
        match &notice {
            PlanNotice::StepStarted {
                step,
                effect,
                attempt,
                round,
                item,
            } => {
                let attempt = Attempt {
                    step: step.clone(),
                    item: *item,
                    number: *attempt,
                };
                self.started(&attempt, *effect, *round);
            }
            PlanNotice::StepCompleted { step, .. } => self.settled(step, StepStatus::Completed),
            PlanNotice::StepFailed { step, .. } => self.settled(step, StepStatus::Failed),
            PlanNotice::StepSkipped { step, .. } => self.settled(step, StepStatus::Skipped),
            PlanNotice::Replanning { steps, .. } => self.asked_for.clone_from(steps),
            PlanNotice::Replanned { plan, .. } => {
                self.handled.extend(std::mem::take(&mut self.asked_for));
                self.take_on(plan);
            }
            _ => {}
        }
        self.notices.push(notice);
    }

    /// Goes by a changed plan: whoever stands in for a step comes right after it, and what else is
    /// new at the end.
    fn take_on(&mut self, plan: &Plan) {
        let order = &mut self.plan.order;
        order.retain(|id| plan.steps.iter().any(|step| step.id == *id));
        for step in &plan.steps {
            if !order.contains(&step.id) {
                let source = step
                    .stands_in_for()
                    .and_then(|source| order.iter().position(|id| id == source));
                order.insert(source.map_or(order.len(), |at| at + 1), step.id.clone());
            }
        }
        self.plan.plan = plan.clone();
        self.steps = by_id(plan);
        self.before = before(&self.plan);
    }

    fn settled(&mut self, step: &StepId, status: StepStatus) {
        let before = self.status.insert(step.clone(), status);
        assert!(
            before.is_none_or(|before| !before.is_settled()),
            "`{step}` was settled before: {before:?}"
        );
        if status == StepStatus::Skipped {
            assert_eq!(before, None, "`{step}` had begun, and was skipped");
        }
    }

    fn started(&mut self, attempt: &Attempt, effect: EffectId, round: u32) {
        let step = &attempt.step;
        assert!(
            self.begun.insert((attempt.clone(), round)),
            "{attempt:?} began twice in round {round}"
        );
        assert!(!self.closing, "{attempt:?} began after the end");
        let status = self
            .status
            .entry(step.clone())
            .or_insert(StepStatus::Running);
        assert_eq!(
            *status,
            StepStatus::Running,
            "{attempt:?} began though `{step}` is settled"
        );
        let same = |(other, _): &(Attempt, u32)| other.step == *step && other.item == attempt.item;
        let open = self
            .open
            .iter()
            .filter_map(|(id, _)| self.began.get(id))
            .find(|other| same(other));
        assert!(
            open.is_none_or(|(other, _)| other == attempt),
            "{attempt:?} began during {open:?}"
        );
        if attempt.number > 1 && round == 1 {
            let before = Attempt {
                number: attempt.number - 1,
                ..attempt.clone()
            };
            assert!(
                self.begun.contains(&(before, 1)),
                "{attempt:?} is the first"
            );
        }
        self.check_inputs(step);
        self.attempts.insert(step.clone(), attempt.number);
        self.began.insert(effect, (attempt.clone(), round));
    }

    /// All that a step comes after is settled when it begins.
    fn check_inputs(&self, id: &StepId) {
        if self.attempts.contains_key(id) {
            return;
        }
        for before in &self.before[id] {
            let status = self.status.get(before).copied().unwrap_or_default();
            assert!(
                status.is_settled(),
                "`{id}` began, and `{before}` is {status:?}"
            );
        }
    }

    pub(super) fn step(&self, id: &StepId) -> Arc<Step> {
        self.steps[id].clone()
    }

    /// Finishes one of the open effects, by its place.
    pub(super) fn finish(&mut self, at: usize, planner: &mut dyn FnMut(&Self) -> Value) {
        let (effect, what) = self.open[at].clone();
        let outcome = match &what {
            Effect::Tool(run) if run.call.name == PLAN => {
                let plan = planner(self);
                Outcome::Tool(ToolResult::new(&run.call, Ok(ToolOutput::value(plan))))
            }
            _ => self.outcome(effect, &what),
        };
        self.open.swap_remove(at);
        self.apply(Input::Finished { effect, outcome });
    }

    fn outcome(&self, id: EffectId, effect: &Effect) -> Outcome {
        match effect {
            Effect::Wait(_) => Outcome::Woken,
            Effect::Ask(ask) if ask.call.name == CARRY_OUT => Outcome::Decision(Decision::Allow),
            Effect::Ask(ask) => Outcome::Decision(match self.fate.asks(&me(&ask.call)) {
                Some(false) => Decision::deny("no"),
                _ => Decision::Allow,
            }),
            Effect::Tool(run) => self.tool(id, &run.call, run.approved),
            Effect::Child(_) => self.agent(id),
            other => panic!("nobody asked for {other:?}"),
        }
    }

    fn tool(&self, id: EffectId, call: &ToolCall, approved: bool) -> Outcome {
        let step = self.step(&me(call));
        let began = self.began.get(&id).map(|(attempt, _)| attempt.clone());
        // A call that was allowed after a question began as another effect.
        let attempt = began.unwrap_or_else(|| Attempt {
            step: step.id.clone(),
            item: None,
            number: self.attempts[&step.id],
        });
        if !approved && attempt.item.is_none() && self.fate.asks(&step.id).is_some() {
            return Outcome::NeedsApproval {
                reason: "it is a test".to_owned(),
            };
        }
        let args = call.args.as_object().unwrap();
        let output = || Value::Object(self.fate.output(&step, attempt.item, args));
        match self.fate.luck(&attempt) {
            Luck::Good => Outcome::Tool(ToolResult::new(call, Ok(ToolOutput::value(output())))),
            Luck::Bad => Outcome::Tool(ToolResult::new(call, Err(ToolError::failed("it broke")))),
            Luck::Lost => Outcome::Unknown,
        }
    }

    fn agent(&self, id: EffectId) -> Outcome {
        let (attempt, round) = &self.began[&id];
        let step = self.step(&attempt.step);
        assert!(is_agent(&step));
        let value = match self.fate.luck(attempt) {
            Luck::Lost => return Outcome::Unknown,
            Luck::Bad => {
                let status = Status::Failed(Failure::Behaviour("it broke".to_owned()));
                return Outcome::Child(Box::new(Ending::new(status)));
            }
            // Forgets something at first, or asks for another round.
            Luck::Good if *round < self.fate.rounds(&step.id) => {
                match step.writes.is_empty() || *round > 1 {
                    true => json!({"call_self": true, "next_instruction": "Go on."}),
                    false => json!({"forgotten": true}),
                }
            }
            Luck::Good => Value::Object(self.fate.output(&step, attempt.item, &Map::new())),
        };
        let mut ending = Ending::new(Status::Complete);
        ending.value = Some(value);
        Outcome::Child(Box::new(ending))
    }

    /// Where each step stands by the machine's own account.
    pub(super) fn reports(&self) -> HashMap<StepId, StepStatus> {
        self.machine
            .reports()
            .map(|(id, status, ..)| (id, status))
            .collect()
    }
}

fn ending_of(machine: &GraphMachine) -> Option<&Ending> {
    levity_core::Machine::ending(machine)
}

fn by_id(plan: &Plan) -> HashMap<StepId, Arc<Step>> {
    plan.steps
        .iter()
        .map(|step| (step.id.clone(), step.clone()))
        .collect()
}

/// For each step those that it comes after, and all who stand in for them.
fn before(made: &Made) -> HashMap<StepId, Vec<StepId>> {
    let sequential = Sequential::new(made, Fate { seed: 0, fails: 0 });
    let of = |step: &Arc<Step>| {
        let before: Vec<&StepId> = sequential
            .before(step)
            .into_iter()
            .map(|(before, _)| before)
            .collect();
        let stand_ins = before
            .iter()
            .flat_map(|before| sequential.all_stand_ins(before));
        let all = before
            .iter()
            .copied()
            .chain(stand_ins)
            .chain(sequential.sources(&step.id).iter().copied());
        // Who stands in for two of which one needs the other comes after both.
        (
            step.id.clone(),
            all.filter(|before| sequential.place[*before] < sequential.place[&step.id])
                .cloned()
                .collect(),
        )
    };
    made.plan.steps.iter().map(of).collect()
}

fn me(call: &ToolCall) -> StepId {
    StepId::new(call.args["me"].as_str().unwrap())
}

/// The events of a machine that is fed the same once more.
pub(super) fn fed(mut machine: GraphMachine, inputs: &[Input]) -> Vec<String> {
    fed_more(&mut machine, inputs)
}

/// The events of a machine that goes on.
pub(super) fn fed_more(machine: &mut GraphMachine, inputs: &[Input]) -> Vec<String> {
    let mut trace = Vec::new();
    for input in inputs {
        let mut wants = MachineOutput::new();
        machine.apply(input.clone(), &mut wants);
        let events: &[EventKind] = &wants.events;
        trace.push(format!(
            "{:?} {events:?} {:?}",
            wants.effects,
            machine.ending()
        ));
    }
    trace
}

/// Which of the open effects finishes next.
pub(super) fn next(dice: &mut Dice, way: u64, open: usize) -> usize {
    match way % 4 {
        0 => 0,
        1 => open - 1,
        _ => dice.below(open),
    }
}
