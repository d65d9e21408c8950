//! How a step is begun, tried again and settled.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Ask, CallId, ChildRun, Decision, Effect, EffectId, MachineOutput, Money, Outcome, Stats,
    ToolCall, ToolRun, Usage, Wait,
};
use levity_graph::{Next, Remedy, after_failure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fan::Fan;
use super::phase::Doing;
use super::rounds::{Failed, why_not, why_of};
use super::{GraphMachine, Place};
use crate::known::StepRunnerKind;
use crate::notice::{PlanNotice, StepSpent, StepStatus, WrittenVariable};
use crate::schedule::Scheduler;
use crate::step::{Budget, OnFailure, Retry, Step, StepId};
use crate::task::Task;

/// The key by which an executor is told how long a function or a tool may take, in seconds. It is
/// taken out of the arguments.
pub(crate) const TIMEOUT: &str = "$timeout";

/// The key by which an executor is told which agent wrote the code that is to be run.
pub(crate) const AUTHOR: &str = "author";

/// How many steps a judge is told of.
const MOST_JUDGED: usize = 50;

/// A step under way.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) spent: StepSpent,
    /// How the attempt goes, when the step is not run for a list.
    pub(super) solo: Attempt,
    pub(super) fan: Option<Box<Fan>>,
}

/// One attempt at a step, or at one element.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Attempt {
    /// Which, from 1.
    pub(super) number: u32,
    /// Which round of it, from 1.
    pub(super) round: u32,
    /// How often the agent was told that something is missing.
    pub(super) complaints: u32,
    /// What the rounds before have used and done, code included.
    pub(super) usage: Usage,
    pub(super) stats: Stats,
    /// What the agent gave in the round before, and what it is to do now.
    pub(super) before: Option<Box<(Value, String)>>,
    /// Why the attempt before failed.
    pub(super) failed: Option<Box<str>>,
    /// The call that a person is asked about.
    pub(super) call: Option<Box<ToolCall>>,
}

impl GraphMachine {
    /// Begins a step whose inputs are ready, or one more element of its list.
    pub(super) fn begin_step(&mut self, at: u32, wants: &mut MachineOutput) {
        let Some(step) = self.step(at) else { return };
        if let Some(fan_out) = step.fan_out() {
            return self.begin_item(at, &step, fan_out, wants);
        }
        self.begin_work(at);
        self.perform(Place { at, item: None }, wants);
    }

    pub(super) fn begin_work(&mut self, at: u32) {
        if let Some(running) = self.phase.running_mut() {
            running.steps.mark_running(at);
            running.works.insert(at, Box::default());
        }
    }

    pub(super) fn work(&mut self, at: u32) -> Option<&mut Work> {
        self.phase
            .running_mut()?
            .works
            .get_mut(&at)
            .map(|work| &mut **work)
    }

    /// Ends the work at a step, and returns what it took.
    fn end_work(&mut self, at: u32) -> StepSpent {
        let work = self
            .phase
            .running_mut()
            .and_then(|running| running.works.remove(&at));
        work.map(|work| work.spent).unwrap_or_default()
    }

    pub(super) fn fan(&mut self, at: u32) -> Option<&mut Fan> {
        self.work(at)?.fan.as_deref_mut()
    }

    pub(super) fn attempt(&mut self, place: Place) -> Option<&mut Attempt> {
        let work = self.work(place.at)?;
        match (place.item, &mut work.fan) {
            (Some(item), Some(fan)) => Some(fan.attempt(item)),
            _ => Some(&mut work.solo),
        }
    }

    /// Begins an attempt, or the next round of one.
    pub(super) fn perform(&mut self, place: Place, wants: &mut MachineOutput) {
        let Some(step) = self.step(place.at) else {
            return;
        };
        let inputs = self.inputs(&step, place);
        let Some(attempt) = self.attempt(place) else {
            return;
        };
        if attempt.round == 0 {
            attempt.number = attempt.number.saturating_add(1);
        }
        attempt.round = attempt.round.saturating_add(1);
        let (number, round) = (attempt.number, attempt.round);
        let effect = self.effect(&step, place, inputs);
        let effect = match effect {
            Ok(effect) => effect,
            Err(failed) => return self.failed(place, failed, wants),
        };
        let effect = self.want_for(place, Doing::Perform, effect, wants);
        Self::tell(wants, || PlanNotice::StepStarted {
            step: step.id.clone(),
            effect,
            attempt: number,
            round,
            item: place.item,
        });
    }

    /// What a step is given: fixed inputs, the variables that it reads and, for an element of a
    /// list, that.
    pub(super) fn inputs(&self, step: &Step, place: Place) -> Map<String, Value> {
        let mut inputs = step
            .more
            .as_ref()
            .map(|more| more.inputs.clone())
            .unwrap_or_default();
        let Some(running) = self.phase.running() else {
            return inputs;
        };
        for name in &step.reads {
            inputs.insert(
                name.to_string(),
                running.steps.read(name, Some(place.at)).unwrap_or_default(),
            );
        }
        let fan = running
            .works
            .get(&place.at)
            .and_then(|work| work.fan.as_deref());
        if let (Some(fan), Some(item), Some(fan_out)) = (fan, place.item, step.fan_out()) {
            inputs.insert(fan_out.name.to_string(), fan.element(item));
        }
        inputs
    }

    fn effect(
        &mut self,
        step: &Step,
        place: Place,
        inputs: Map<String, Value>,
    ) -> Result<Effect, Failed> {
        if !step.variants().is_empty() {
            return self.code_effect(step, place, (step.variants(), None), &inputs);
        }
        let rules = self.rules.clone();
        match rules.known.performer(&step.agent) {
            Some((name, who)) if who.kind == StepRunnerKind::Agent => {
                self.agent_effect(step, name, place, &inputs)
            }
            Some((name, who)) => {
                let call = self.call(step, name, inputs, true);
                let run = match who.kind {
                    StepRunnerKind::Function => ToolRun::approved(call),
                    _ => ToolRun::new(call),
                };
                Ok(Effect::Tool(run.unordered()))
            }
            None => Err(Failed::for_good(format!(
                "there is no `{}` to do it",
                step.agent
            ))),
        }
    }

    /// The call of a function or a tool; with the time that it has, where it is to be made and not
    /// only asked about.
    fn call(
        &self,
        step: &Step,
        name: &str,
        mut inputs: Map<String, Value>,
        timed: bool,
    ) -> ToolCall {
        if let Some(time) = step
            .more
            .as_ref()
            .and_then(|more| more.timeout)
            .filter(|_| timed)
        {
            inputs.insert(TIMEOUT.to_owned(), time.as_secs_f64().into());
        }
        ToolCall::new(self.call_id(step), name, Value::Object(inputs))
    }

    /// Names a call: by the step, of which there is one at a time, or else by the number of the
    /// effect.
    fn call_id(&self, step: &Step) -> CallId {
        match step.fan_out() {
            None => CallId::new(step.id.to_arc()),
            Some(_) => EffectId::new(self.now.next).to_string().into(),
        }
    }

    pub(super) fn code_effect(
        &mut self,
        step: &Step,
        place: Place,
        (variants, author): (&[String], Option<Arc<str>>),
        inputs: &Map<String, Value>,
    ) -> Result<Effect, Failed> {
        let Some(program) = self.rules.code.clone() else {
            return Err(Failed::for_good("there is nothing that runs code"));
        };
        let args = match variants {
            [code] => json!({"code": code, "inputs": inputs}),
            variants => json!({"variants": variants, "inputs": inputs}),
        };
        let Some(attempt) = self.attempt(place) else {
            return Err(Failed::for_good("it is not there"));
        };
        let budget = share(budget_of(step), attempt)?;
        let mut input = json!({"args": args});
        if let Some(author) = author.filter(|_| self.start.settings.own_tools) {
            input[AUTHOR] = Value::from(&*author);
        }
        Ok(Effect::Child(ChildRun::new(
            program,
            bounded(input, step, budget),
        )))
    }

    fn agent_effect(
        &mut self,
        step: &Step,
        name: &Arc<str>,
        place: Place,
        inputs: &Map<String, Value>,
    ) -> Result<Effect, Failed> {
        let turns = self.start.settings.turns;
        let (goal, said) = (self.start.goal.clone(), self.now.said.clone());
        let judges = self
            .rules
            .known
            .performer(name)
            .is_some_and(|(_, who)| who.judges);
        let judged = if judges {
            self.judged(step)
        } else {
            Vec::new()
        };
        let Some(attempt) = self.attempt(place) else {
            return Err(Failed::for_good("it is not there"));
        };
        let task = Task {
            goal: &goal,
            step,
            inputs,
            said: &said,
            before: attempt
                .before
                .as_deref()
                .map(|(output, next)| (output, next.as_str())),
            failed: attempt.failed.as_deref(),
            judged: judged.iter().map(|(id, name)| (id, &**name)).collect(),
        };
        let input = json!({"task": task.text()});
        let budget = left(budget_of(step), attempt, turns)?;
        Ok(Effect::Child(ChildRun::new(
            name.clone(),
            bounded(input, step, budget),
        )))
    }

    /// The steps whose work a judge looks at, with what each wrote.
    fn judged(&self, step: &Step) -> Vec<(StepId, Arc<str>)> {
        let Some(steps) = self.phase.steps() else {
            return Vec::new();
        };
        let is_done = |at: &u32| {
            steps
                .node(*at)
                .is_some_and(|node| node.status == StepStatus::Completed)
        };
        let writers = step.reads.iter().flat_map(|name| {
            let writers = steps.graph().writers(name).iter().copied().filter(is_done);
            writers.map(move |at| (self.id(at), name.clone()))
        });
        writers.take(MOST_JUDGED).collect()
    }

    /// Takes in what came of a step's effect.
    pub(super) fn performed(&mut self, place: Place, outcome: Outcome, wants: &mut MachineOutput) {
        match self.gave(place, outcome) {
            Ok(Some(output)) => self.take_output(place, output, wants),
            Ok(None) => self.ask_permission(place, wants),
            Err(failed) => self.failed(place, failed, wants),
        }
    }

    /// What a step gave; nothing when a person must be asked first.
    fn gave(&mut self, place: Place, outcome: Outcome) -> Result<Option<Value>, Failed> {
        match outcome {
            Outcome::Child(ending) => {
                self.spend(place, ending.usage, &ending.stats);
                match (&ending.status, ending.value) {
                    (status, _) if !status.is_answer() => Err(Failed::once(why_of(status))),
                    (_, Some(value)) => Ok(Some(value)),
                    _ => Ok(Some(super::rounds::read_output(ending.text))),
                }
            }
            Outcome::Tool(result) => {
                let stats = &mut self.now.stats;
                stats.tool_calls = stats.tool_calls.saturating_add(1);
                if result.error.is_some() {
                    stats.failed_calls = stats.failed_calls.saturating_add(1);
                    return Err(Failed::once(result.text().into_owned()));
                }
                Ok(Some(match (result.value, result.whole) {
                    (Some(value), _) => value,
                    // What is too long to be shown is a value, as JSON, or a text.
                    (None, Some(whole)) => serde_json::from_str(&whole)
                        .unwrap_or_else(|_| Value::String(whole.to_string())),
                    (None, None) => Value::String(text_of(&result.content)),
                }))
            }
            Outcome::NeedsApproval { reason } => {
                let Some(attempt) = self.attempt(place) else {
                    return Ok(None);
                };
                attempt.failed = Some(reason.into());
                Ok(None)
            }
            other => Err(Failed::for_good(why_not(&other))),
        }
    }

    pub(super) fn spend(&mut self, place: Place, usage: Usage, stats: &Stats) {
        self.add_up(usage, stats);
        if let Some(attempt) = self.attempt(place) {
            attempt.usage += usage;
            attempt.stats += *stats;
        }
        if let Some(work) = self.work(place.at) {
            work.spent.usage += usage;
            work.spent.stats += *stats;
        }
    }

    /// Asks a person whether a step's tool may be called.
    fn ask_permission(&mut self, place: Place, wants: &mut MachineOutput) {
        let Some(step) = self.step(place.at) else {
            return;
        };
        let name = self
            .rules
            .known
            .performer(&step.agent)
            .map_or(&step.agent, |(name, _)| name);
        let call = self.call(&step, name, self.inputs(&step, place), false);
        let Some(attempt) = self.attempt(place) else {
            return;
        };
        let reason = attempt.failed.take().unwrap_or_default();
        attempt.call = Some(Box::new(call.clone()));
        let ask = Ask::new(
            self.now.run.clone(),
            EffectId::new(self.now.next),
            call,
            reason,
        );
        let effect = self.want_for(place, Doing::Permit, Effect::Ask(ask), wants);
        Self::tell(wants, || PlanNotice::StepAsked {
            step: step.id.clone(),
            effect,
        });
    }

    pub(super) fn permitted(&mut self, place: Place, outcome: Outcome, wants: &mut MachineOutput) {
        let Some(mut call) = self.attempt(place).and_then(|attempt| attempt.call.take()) else {
            return;
        };
        match outcome {
            Outcome::Decision(Decision::Allow) => {}
            Outcome::Decision(Decision::Edit { args }) => call.args = args,
            Outcome::Decision(Decision::Answer { text }) => {
                return self.take_output(place, Value::String(text), wants);
            }
            Outcome::Decision(Decision::Deny { reason }) => {
                return self.failed(
                    place,
                    Failed::for_good(format!("it was not allowed: {reason}")),
                    wants,
                );
            }
            other => return self.failed(place, Failed::for_good(why_not(&other)), wants),
        }
        call.id = EffectId::new(self.now.next).to_string().into();
        let time = self
            .step(place.at)
            .and_then(|step| step.more.as_ref()?.timeout);
        if let (Some(time), Value::Object(args)) = (time, &mut call.args) {
            args.insert(TIMEOUT.to_owned(), time.as_secs_f64().into());
        }
        let run = ToolRun::approved(*call).unordered();
        self.want_for(place, Doing::Perform, Effect::Tool(run), wants);
    }

    /// An attempt failed: another follows, or the step has failed.
    pub(super) fn failed(&mut self, place: Place, failed: Failed, wants: &mut MachineOutput) {
        let Some(step) = self.step(place.at) else {
            return;
        };
        let retry = step.tries();
        let near = self.now.near.is_some();
        let Some(attempt) = self.attempt(place) else {
            return;
        };
        let remedy = if failed.again && !near {
            Remedy::Retry
        } else {
            Remedy::Nothing
        };
        // Who stands in for a step is a step of its own.
        let next = after_failure::<StepId>(
            remedy,
            attempt.number,
            retry.attempts.saturating_sub(1),
            None,
            &[],
        );
        if next == Next::Retry {
            let number = attempt.number;
            let why = failed.why.clone();
            *attempt = Attempt {
                number,
                failed: Some(failed.why.into()),
                ..Attempt::default()
            };
            self.want_for(
                place,
                Doing::Pause,
                Effect::Wait(Wait::new(pause(retry, number))),
                wants,
            );
            Self::tell(wants, || PlanNotice::StepRetried {
                step: step.id.clone(),
                attempt: number,
                error: why,
            });
            return;
        }
        self.count_attempts(place);
        match place.item {
            Some(item) => self.item_failed(place.at, item, failed, wants),
            None => self.step_failed(place.at, failed, wants),
        }
    }

    fn count_attempts(&mut self, place: Place) {
        let number = self.attempt(place).map_or(0, |attempt| attempt.number);
        if let Some(work) = self.work(place.at) {
            work.spent.attempts = work.spent.attempts.saturating_add(number);
        }
    }

    /// A step has failed for good.
    pub(super) fn step_failed(&mut self, at: u32, failed: Failed, wants: &mut MachineOutput) {
        let spent = self.end_work(at);
        let id = self.id(at);
        Self::tell(wants, || PlanNotice::StepFailed {
            step: id.clone(),
            error: failed.why.clone(),
            spent,
        });
        let other_way = self.rules.planner.is_some() || failed.rejection.is_some();
        let may_replan = self.may_replan() && other_way;
        let Some(running) = self.phase.running_mut() else {
            return;
        };
        if let Some(rejection) = failed.rejection {
            running.rejections.insert(id, *rejection);
        }
        let steps = &mut running.steps;
        if let Some(node) = steps.node_mut(at) {
            node.error = Some(failed.why.into());
            node.spent = Some(Box::new(spent));
        }
        let fails = steps
            .step(at)
            .is_some_and(|step| step.on_failure == OnFailure::Fail);
        let stood_in = steps.stand_ins(at).next().is_some();
        if fails && !stood_in && may_replan {
            steps.hold(at);
            return self.replan_if_needed(wants);
        }
        let skipped = steps.settle(at, StepStatus::Failed);
        self.tell_skipped(&skipped, wants);
    }

    /// An attempt succeeded.
    pub(super) fn done(
        &mut self,
        place: Place,
        written: Vec<WrittenVariable>,
        output: Value,
        wants: &mut MachineOutput,
    ) {
        self.count_attempts(place);
        match place.item {
            Some(item) => self.item_done(place.at, item, written, wants),
            None => self.step_done(place.at, written, output, wants),
        }
    }

    /// A step is done.
    pub(super) fn step_done(
        &mut self,
        at: u32,
        written: Vec<WrittenVariable>,
        output: Value,
        wants: &mut MachineOutput,
    ) {
        let spent = self.end_work(at);
        let Some(steps) = self.phase.running_mut().map(|running| &mut running.steps) else {
            return;
        };
        if wants.is_watched()
            && let Some(step) = steps.step(at)
        {
            let (step, writes, output) = (step.id.clone(), written.clone(), output.clone());
            wants.tell(
                PlanNotice::StepCompleted {
                    step,
                    writes,
                    output,
                    spent,
                }
                .into_event(),
            );
        }
        let skipped = complete(steps, at, written, output, spent);
        if !skipped.is_empty() {
            self.tell_skipped(&skipped, wants);
        }
    }
}

fn complete(
    steps: &mut Scheduler,
    at: u32,
    written: Vec<WrittenVariable>,
    output: Value,
    spent: StepSpent,
) -> Vec<crate::schedule::Skipped> {
    if let Some(node) = steps.node_mut(at) {
        node.output = (written.is_empty() && !output.is_null()).then(|| Box::new(output));
        node.values = written.into_iter().map(|written| written.value).collect();
        // What cost nothing needs no room to say so.
        let free = spent.attempts <= 1 && spent.usage == Usage::default();
        node.spent = (!free).then(|| Box::new(spent));
    }
    steps.settle(at, StepStatus::Completed)
}

fn text_of(content: &[levity_core::Content]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        levity_core::Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The pause before the next attempt: it doubles each time.
fn pause(retry: Retry, number: u32) -> Duration {
    let times = 2_u32.saturating_pow(number.saturating_sub(1));
    retry.pause.saturating_mul(times).min(Retry::LONGEST_PAUSE)
}

fn budget_of(step: &Step) -> Budget {
    step.more
        .as_ref()
        .and_then(|more| more.budget)
        .unwrap_or_default()
}

/// What a run below is given, with what it may use and how long it may take.
fn bounded(mut input: Value, step: &Step, budget: Budget) -> Value {
    if let Some(object) = input.as_object_mut() {
        if budget != Budget::new() {
            object.insert(
                "budget".to_owned(),
                serde_json::to_value(budget).unwrap_or_default(),
            );
        }
        if let Some(time) = step.more.as_ref().and_then(|more| more.timeout) {
            object.insert("timeout".to_owned(), time.as_secs_f64().into());
        }
    }
    input
}

/// What is left of a budget after the rounds before. Without calls of tools there can still be an
/// answer.
fn share(mut budget: Budget, attempt: &Attempt) -> Result<Budget, Failed> {
    let used = || Failed::once("what it may use was used up before it was done");
    let (usage, stats) = (&attempt.usage, &attempt.stats);
    let counts = [
        (&mut budget.tokens, usage.total()),
        (&mut budget.model_calls, stats.model_calls),
    ];
    for (left, gone) in counts.into_iter().filter(|(_, gone)| *gone > 0) {
        if let Some(left) = left {
            *left = left
                .checked_sub(gone)
                .filter(|left| *left > 0)
                .ok_or_else(used)?;
        }
    }
    let money = usage.cost.unwrap_or_default();
    if let Some(left) = budget.money.as_mut().filter(|_| money > Money::ZERO) {
        *left = Some(left.saturating_sub(money))
            .filter(|left| *left > Money::ZERO)
            .ok_or_else(used)?;
    }
    budget.tool_calls = budget
        .tool_calls
        .map(|left| left.saturating_sub(stats.tool_calls));
    Ok(budget)
}

/// What is left for the next round of an attempt.
fn left(budget: Budget, attempt: &Attempt, turns: u64) -> Result<Budget, Failed> {
    let mut budget = share(budget, attempt)?;
    if attempt.round <= 1 {
        return Ok(budget);
    }
    let calls = turns.saturating_sub(attempt.stats.turns);
    if calls == 0 {
        return Err(Failed::once(format!(
            "it was not done within {turns} turns"
        )));
    }
    budget.model_calls = Some(budget.model_calls.map_or(calls, |most| most.min(calls)));
    Ok(budget)
}

/// The names of a step's variables, for a message.
pub(super) fn names(names: &[Arc<str>]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
