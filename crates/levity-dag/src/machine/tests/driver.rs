//! Drives a machine, and checks every output.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use levity_core::{
    Decision, Effect, EffectId, Ending, EventKind, Failure, Input, Machine as _, MachineOutput,
    Outcome, RunId, Status, ToolCall, ToolError, ToolOutput, ToolResult,
};
use serde_json::{Map, Value, json};

use super::generated_plan::GeneratedPlan;
use super::reference::{Sequential, is_agent};
use super::seeded_outcomes::{Attempt, AttemptOutcome, SeededOutcomes, SeededRng};
use crate::machine::{CARRY_OUT, GraphMachine, PLAN, Rules, Settings, Start};
use crate::notice::{PlanNotice, StepStatus};
use crate::plan::Plan;
use crate::step::{Step, StepId};

/// A machine in progress, and its state as seen from outside.
pub(super) struct Driver {
    pub(super) machine: GraphMachine,
    pub(super) outcomes: SeededOutcomes,
    pub(super) plan: GeneratedPlan,
    /// The requested effects that are not finished.
    pub(super) open: Vec<(EffectId, Effect)>,
    /// All inputs, and the trace of each.
    pub(super) inputs: Vec<Input>,
    pub(super) trace: Vec<String>,
    pub(super) notices: Vec<PlanNotice>,
    pub(super) status: HashMap<StepId, StepStatus>,
    /// The failed steps that a replan has handled.
    pub(super) handled: BTreeSet<StepId>,
    steps: HashMap<StepId, Arc<Step>>,
    parallel: usize,
    last: Option<EffectId>,
    started_effects: HashMap<EffectId, (Attempt, u32)>,
    started_rounds: HashSet<(Attempt, u32)>,
    attempts: HashMap<StepId, u32>,
    /// The failed steps that the current replan is for.
    pub(super) replanned_steps: Vec<StepId>,
    /// The steps that must be settled before each step starts.
    before: HashMap<StepId, Vec<StepId>>,
    traced: bool,
    /// `true` if no more attempts may start.
    closing: bool,
}

pub(super) fn start(generated: &GeneratedPlan, settings: Settings) -> Start {
    Start {
        goal: "Go.".to_owned(),
        plan: Some(Arc::new(generated.plan.clone())),
        settings,
        ..Start::default()
    }
}

impl Driver {
    pub(super) fn new(
        rules: &Arc<Rules>,
        generated: &GeneratedPlan,
        settings: Settings,
        outcomes: SeededOutcomes,
    ) -> Self {
        Self {
            machine: GraphMachine::new(rules.clone(), start(generated, settings)),
            outcomes,
            plan: generated.clone(),
            open: Vec::new(),
            inputs: Vec::new(),
            trace: Vec::new(),
            notices: Vec::new(),
            status: HashMap::new(),
            handled: BTreeSet::new(),
            steps: by_id(&generated.plan),
            parallel: settings.parallel,
            last: None,
            started_effects: HashMap::new(),
            started_rounds: HashSet::new(),
            attempts: HashMap::new(),
            replanned_steps: Vec::new(),
            before: before(generated),
            traced: generated.order.len() < 50,
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
        let mut out = MachineOutput::new();
        self.machine.apply(input, &mut out);
        let ending = self.machine.ending();
        if self.traced {
            self.trace
                .push(format!("{:?} {:?} {ending:?}", out.effects, out.events));
        }
        assert!(
            ending.is_none() || out.effects.is_empty(),
            "after its ending it requests {:?}",
            out.effects
        );
        assert!(
            !had_ended || out.events.is_empty(),
            "after its ending it emits {:?}",
            out.events
        );
        for (id, _) in &out.effects {
            assert!(
                self.last.is_none_or(|last| last < *id),
                "{id} follows {:?}",
                self.last
            );
            self.last = Some(*id);
        }
        let notices: Vec<PlanNotice> = out.events.iter().filter_map(PlanNotice::of).collect();
        notices.into_iter().for_each(|notice| self.notice(notice));
        self.check_calls(&out);
        self.open.append(&mut out.effects);
        self.check_parallel();
        if ending_of(&self.machine).is_some() {
            self.open.clear();
        }
    }

    /// Checks that no more step effects than allowed run at once.
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
            "{running} at once, but {} are allowed",
            self.parallel
        );
    }

    /// Checks that each call belongs to the step that was reported as started.
    fn check_calls(&self, out: &MachineOutput) {
        for (id, effect) in &out.effects {
            if let (Effect::Tool(run), Some((attempt, _))) = (effect, self.started_effects.get(id))
            {
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
            PlanNotice::Replanning { steps, .. } => self.replanned_steps.clone_from(steps),
            PlanNotice::Replanned { plan, .. } => {
                self.handled
                    .extend(std::mem::take(&mut self.replanned_steps));
                self.adopt_plan(plan);
            }
            _ => {}
        }
        self.notices.push(notice);
    }

    /// Adopts a changed plan: a fallback follows its step directly, and other new steps are
    /// appended.
    fn adopt_plan(&mut self, plan: &Plan) {
        let order = &mut self.plan.order;
        order.retain(|id| plan.steps.iter().any(|step| step.id == *id));
        for step in &plan.steps {
            if !order.contains(&step.id) {
                let source = step
                    .fallback_for()
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
            assert_eq!(before, None, "`{step}` had started and was skipped");
        }
    }

    fn started(&mut self, attempt: &Attempt, effect: EffectId, round: u32) {
        let step = &attempt.step;
        assert!(
            self.started_rounds.insert((attempt.clone(), round)),
            "{attempt:?} started twice in round {round}"
        );
        assert!(!self.closing, "{attempt:?} started after the end");
        let status = self
            .status
            .entry(step.clone())
            .or_insert(StepStatus::Running);
        assert_eq!(
            *status,
            StepStatus::Running,
            "{attempt:?} started although `{step}` is settled"
        );
        let same = |(other, _): &(Attempt, u32)| other.step == *step && other.item == attempt.item;
        let open = self
            .open
            .iter()
            .filter_map(|(id, _)| self.started_effects.get(id))
            .find(|other| same(other));
        assert!(
            open.is_none_or(|(other, _)| other == attempt),
            "{attempt:?} started during {open:?}"
        );
        if attempt.number > 1 && round == 1 {
            let before = Attempt {
                number: attempt.number - 1,
                ..attempt.clone()
            };
            assert!(
                self.started_rounds.contains(&(before, 1)),
                "{attempt:?} has no earlier attempt"
            );
        }
        self.check_inputs(step);
        self.attempts.insert(step.clone(), attempt.number);
        self.started_effects
            .insert(effect, (attempt.clone(), round));
    }

    /// Checks that all predecessors of a step are settled when it starts.
    fn check_inputs(&self, id: &StepId) {
        if self.attempts.contains_key(id) {
            return;
        }
        for before in &self.before[id] {
            let status = self.status.get(before).copied().unwrap_or_default();
            assert!(
                status.is_settled(),
                "`{id}` started while `{before}` is {status:?}"
            );
        }
    }

    pub(super) fn step(&self, id: &StepId) -> Arc<Step> {
        self.steps[id].clone()
    }

    /// Finishes one of the pending effects, by its index.
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
            Effect::Ask(ask) => Outcome::Decision(match self.outcomes.approval(&me(&ask.call)) {
                Some(false) => Decision::deny("no"),
                _ => Decision::Allow,
            }),
            Effect::Tool(run) => self.tool(id, &run.call, run.approved),
            Effect::Child(_) => self.agent(id),
            other => panic!("unexpected effect {other:?}"),
        }
    }

    fn tool(&self, id: EffectId, call: &ToolCall, approved: bool) -> Outcome {
        let step = self.step(&me(call));
        let started_effects = self
            .started_effects
            .get(&id)
            .map(|(attempt, _)| attempt.clone());
        // A call that was approved after a question runs as another effect.
        let attempt = started_effects.unwrap_or_else(|| Attempt {
            step: step.id.clone(),
            item: None,
            number: self.attempts[&step.id],
        });
        if !approved && attempt.item.is_none() && self.outcomes.approval(&step.id).is_some() {
            return Outcome::NeedsApproval {
                reason: "it is a test".to_owned(),
            };
        }
        let args = call.args.as_object().unwrap();
        let output = || Value::Object(self.outcomes.output(&step, attempt.item, args));
        match self.outcomes.attempt_outcome(&attempt) {
            AttemptOutcome::Good => {
                Outcome::Tool(ToolResult::new(call, Ok(ToolOutput::value(output()))))
            }
            AttemptOutcome::Bad => {
                Outcome::Tool(ToolResult::new(call, Err(ToolError::failed("it broke"))))
            }
            AttemptOutcome::Lost => Outcome::Unknown,
        }
    }

    fn agent(&self, id: EffectId) -> Outcome {
        let (attempt, round) = &self.started_effects[&id];
        let step = self.step(&attempt.step);
        assert!(is_agent(&step));
        let value = match self.outcomes.attempt_outcome(attempt) {
            AttemptOutcome::Lost => return Outcome::Unknown,
            AttemptOutcome::Bad => {
                let status = Status::Failed(Failure::Behaviour("it broke".to_owned()));
                return Outcome::Child(Box::new(Ending::new(status)));
            }
            // Omits a variable at first, or requests another round.
            AttemptOutcome::Good if *round < self.outcomes.rounds(&step.id) => {
                match step.writes.is_empty() || *round > 1 {
                    true => json!({"call_self": true, "next_instruction": "Go on."}),
                    false => json!({"forgotten": true}),
                }
            }
            AttemptOutcome::Good => {
                Value::Object(self.outcomes.output(&step, attempt.item, &Map::new()))
            }
        };
        let mut ending = Ending::new(Status::Complete);
        ending.value = Some(value);
        Outcome::Child(Box::new(ending))
    }

    /// Returns the status of each step as the machine reports it.
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

/// Returns for each step its predecessors and all fallbacks for them.
fn before(generated: &GeneratedPlan) -> HashMap<StepId, Vec<StepId>> {
    let sequential = Sequential::new(generated, SeededOutcomes { seed: 0, fails: 0 });
    let of = |step: &Arc<Step>| {
        let before: Vec<&StepId> = sequential
            .before(step)
            .into_iter()
            .map(|(before, _)| before)
            .collect();
        let fallbacks = before
            .iter()
            .flat_map(|before| sequential.all_fallbacks(before));
        let all = before
            .iter()
            .copied()
            .chain(fallbacks)
            .chain(sequential.sources(&step.id).iter().copied());
        // A fallback for two steps, of which one needs the other, follows both.
        (
            step.id.clone(),
            all.filter(|before| sequential.place[*before] < sequential.place[&step.id])
                .cloned()
                .collect(),
        )
    };
    generated.plan.steps.iter().map(of).collect()
}

fn me(call: &ToolCall) -> StepId {
    StepId::new(call.args["me"].as_str().unwrap())
}

/// Returns the trace of a machine for these inputs.
pub(super) fn trace_of(mut machine: GraphMachine, inputs: &[Input]) -> Vec<String> {
    feed(&mut machine, inputs)
}

/// Applies these inputs to a machine and returns the trace.
pub(super) fn feed(machine: &mut GraphMachine, inputs: &[Input]) -> Vec<String> {
    let mut trace = Vec::new();
    for input in inputs {
        let mut out = MachineOutput::new();
        machine.apply(input.clone(), &mut out);
        let events: &[EventKind] = &out.events;
        trace.push(format!(
            "{:?} {events:?} {:?}",
            out.effects,
            machine.ending()
        ));
    }
    trace
}

/// Returns the index of the pending effect that finishes next.
pub(super) fn next(rng: &mut SeededRng, policy: u64, open: usize) -> usize {
    match policy % 4 {
        0 => 0,
        1 => open - 1,
        _ => rng.below(open),
    }
}
