//! Starts, retries and settles steps.
//!
//! An attempt consists of rounds. The first round performs the step; an agent gets another one if
//! it requests it, or if its output lacks variables. A failed attempt is followed by a pause and a
//! new attempt that knows the error, up to the retry policy. `Place` identifies either a step or
//! one element of its list, so both paths share this code.
//!
//! A step without a runner fails permanently instead of panicking: a run may be resumed by a team
//! that has lost a member.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Ask, CallId, ChildRun, Decision, Effect, EffectId, MachineOutput, Money, Outcome, Stats,
    ToolCall, ToolRun, Usage, Wait,
};
use levity_graph::{Next, Remedy, after_failure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fan_out::FanOutState;
use super::phase::StepEffect;
use super::rounds::{StepFailure, failure_reason, outcome_reason};
use super::{GraphMachine, Place};
use crate::constraints::StepRunnerKind;
use crate::notice::{PlanNotice, StepStatus, StepUsage, WrittenVariable};
use crate::schedule::Scheduler;
use crate::step::{Budget, OnFailure, Retry, Step, StepId};
use crate::task::Task;

/// The argument key for the timeout of a function or a tool, in seconds. The executor removes it
/// from the arguments.
pub(crate) const TIMEOUT: &str = "$timeout";

/// The input key for the name of the agent that wrote the code to run.
pub(crate) const AUTHOR: &str = "author";

/// The maximum number of steps that a judge is asked to judge.
const MAX_JUDGED: usize = 50;

/// A step in progress.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RunningStep {
    pub(super) spent: StepUsage,
    /// The current attempt, for a step without a fan-out.
    pub(super) solo: Attempt,
    pub(super) fan: Option<Box<FanOutState>>,
}

/// An attempt at a step, or at one element of its list.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Attempt {
    /// The number of the attempt, from 1.
    pub(super) number: u32,
    /// The round within the attempt, from 1.
    pub(super) round: u32,
    /// The number of complaints sent to the agent.
    pub(super) complaints: u32,
    /// The usage of the earlier rounds, including code.
    pub(super) usage: Usage,
    pub(super) stats: Stats,
    /// The agent's output of the previous round, and the instructions for this one.
    pub(super) before: Option<Box<(Value, String)>>,
    /// The error of the previous attempt.
    pub(super) failed: Option<Box<str>>,
    /// The call that awaits human approval.
    pub(super) call: Option<Box<ToolCall>>,
}

impl GraphMachine {
    /// Starts a step whose inputs are ready, or the next element of its list.
    pub(super) fn begin_step(&mut self, at: u32, out: &mut MachineOutput) {
        let Some(step) = self.step(at) else { return };
        if let Some(fan_out) = step.fan_out() {
            return self.begin_item(at, &step, fan_out, out);
        }
        self.begin_work(at);
        self.perform(Place { at, item: None }, out);
    }

    pub(super) fn begin_work(&mut self, at: u32) {
        if let Some(running) = self.phase.running_mut() {
            running.steps.mark_running(at);
            running.works.insert(at, Box::default());
        }
    }

    pub(super) fn work(&mut self, at: u32) -> Option<&mut RunningStep> {
        self.phase
            .running_mut()?
            .works
            .get_mut(&at)
            .map(|work| &mut **work)
    }

    /// Ends the work on a step and returns its usage.
    fn end_work(&mut self, at: u32) -> StepUsage {
        let work = self
            .phase
            .running_mut()
            .and_then(|running| running.works.remove(&at));
        work.map(|work| work.spent).unwrap_or_default()
    }

    pub(super) fn fan(&mut self, at: u32) -> Option<&mut FanOutState> {
        self.work(at)?.fan.as_deref_mut()
    }

    pub(super) fn attempt(&mut self, place: Place) -> Option<&mut Attempt> {
        let work = self.work(place.at)?;
        match (place.item, &mut work.fan) {
            (Some(item), Some(fan)) => Some(fan.attempt(item)),
            _ => Some(&mut work.solo),
        }
    }

    /// Starts an attempt, or its next round.
    pub(super) fn perform(&mut self, place: Place, out: &mut MachineOutput) {
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
            Err(failed) => return self.handle_failure(place, failed, out),
        };
        let effect = self.request_for(place, StepEffect::Perform, effect, out);
        Self::notify(out, || PlanNotice::StepStarted {
            step: step.id.clone(),
            effect,
            attempt: number,
            round,
            item: place.item,
        });
    }

    /// Returns the inputs of a step: fixed inputs, the variables that it reads and, in a fan-out,
    /// the element.
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
    ) -> Result<Effect, StepFailure> {
        if !step.variants().is_empty() {
            return self.code_effect(step, place, (step.variants(), None), &inputs);
        }
        let rules = self.rules.clone();
        match rules.known.runner(&step.agent) {
            Some((name, runner)) if runner.kind == StepRunnerKind::Agent => {
                self.agent_effect(step, name, place, &inputs)
            }
            Some((name, runner)) => {
                let call = self.call(step, name, inputs, true);
                let run = match runner.kind {
                    StepRunnerKind::Function => ToolRun::approved(call),
                    _ => ToolRun::new(call),
                };
                Ok(Effect::Tool(run.unordered()))
            }
            None => Err(StepFailure::permanent(format!(
                "the team has no agent, function or tool `{}`",
                step.agent
            ))),
        }
    }

    /// Creates the call of a function or a tool. It includes the timeout unless the call is only
    /// shown for approval.
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

    /// Returns the id of a call: the step's id, or the number of the effect if the step runs
    /// several times at once.
    fn call_id(&self, step: &Step) -> CallId {
        match step.fan_out() {
            None => CallId::new(step.id.to_arc()),
            Some(_) => EffectId::new(self.now.next).to_string().into(),
        }
    }

    /// The inputs are the variables of the code. `author` is set for code that an agent wrote: such
    /// code calls the tools of that agent, and not those of the team.
    pub(super) fn code_effect(
        &mut self,
        step: &Step,
        place: Place,
        (variants, author): (&[String], Option<Arc<str>>),
        inputs: &Map<String, Value>,
    ) -> Result<Effect, StepFailure> {
        let Some(program) = self.rules.code.clone() else {
            return Err(StepFailure::permanent(
                "the team cannot run code; set a program with `code(..)`",
            ));
        };
        let args = match variants {
            [code] => json!({"code": code, "inputs": inputs}),
            variants => json!({"variants": variants, "inputs": inputs}),
        };
        let Some(attempt) = self.attempt(place) else {
            return Err(StepFailure::permanent("the step is not in progress"));
        };
        let budget = remaining_budget(budget_of(step), attempt)?;
        let mut input = json!({"args": args});
        if let Some(author) = author.filter(|_| self.start.settings.own_tools) {
            input[AUTHOR] = Value::from(&*author);
        }
        Ok(Effect::Child(ChildRun::new(
            program,
            with_bounds(input, step, budget),
        )))
    }

    fn agent_effect(
        &mut self,
        step: &Step,
        name: &Arc<str>,
        place: Place,
        inputs: &Map<String, Value>,
    ) -> Result<Effect, StepFailure> {
        let turns = self.start.settings.turns;
        let (goal, messages) = (self.start.goal.clone(), self.now.messages.clone());
        let judges = self
            .rules
            .known
            .runner(name)
            .is_some_and(|(_, runner)| runner.judges);
        let judged = if judges {
            self.judged(step)
        } else {
            Vec::new()
        };
        let media = self.start.media.len();
        let Some(attempt) = self.attempt(place) else {
            return Err(StepFailure::permanent("the step is not in progress"));
        };
        let task = Task {
            goal: &goal,
            media,
            step,
            inputs,
            messages: &messages,
            before: attempt
                .before
                .as_deref()
                .map(|(output, next)| (output, next.as_str())),
            failed: attempt.failed.as_deref(),
            judged: judged.iter().map(|(id, name)| (id, &**name)).collect(),
        };
        let input = json!({"task": task.text()});
        let budget = round_budget(budget_of(step), attempt, turns)?;
        Ok(Effect::Child(
            ChildRun::new(name.clone(), with_bounds(input, step, budget))
                .with_label(format!("{name} {}", step.id))
                .with_media(self.start.media.clone()),
        ))
    }

    /// Returns the steps whose work a judge judges, each with a variable that it wrote.
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
        writers.take(MAX_JUDGED).collect()
    }

    /// Handles the outcome of a step effect.
    pub(super) fn handle_step_outcome(
        &mut self,
        place: Place,
        outcome: Outcome,
        out: &mut MachineOutput,
    ) {
        match self.output_of(place, outcome) {
            Ok(Some(output)) => self.take_output(place, output, out),
            Ok(None) => self.ask_permission(place, out),
            Err(failed) => self.handle_failure(place, failed, out),
        }
    }

    /// Returns the output of a step, or `None` if a person must approve it first.
    fn output_of(&mut self, place: Place, outcome: Outcome) -> Result<Option<Value>, StepFailure> {
        match outcome {
            Outcome::Child(ending) => {
                self.spend(place, ending.usage, &ending.stats);
                match (&ending.status, ending.value) {
                    (status, _) if !status.is_answer() => {
                        Err(StepFailure::transient(failure_reason(status)))
                    }
                    (_, Some(value)) => Ok(Some(value)),
                    _ => Ok(Some(super::rounds::read_output(ending.text))),
                }
            }
            Outcome::Tool(result) => {
                let stats = &mut self.now.stats;
                stats.tool_calls = stats.tool_calls.saturating_add(1);
                if result.error.is_some() {
                    stats.failed_calls = stats.failed_calls.saturating_add(1);
                    return Err(StepFailure::transient(result.text().into_owned()));
                }
                Ok(Some(match (result.value, result.whole) {
                    (Some(value), _) => value,
                    // An output that is too long to show is a value in JSON, or a text.
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
            other => Err(StepFailure::permanent(outcome_reason(&other))),
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

    /// Asks a person whether the tool of a step may be called.
    fn ask_permission(&mut self, place: Place, out: &mut MachineOutput) {
        let Some(step) = self.step(place.at) else {
            return;
        };
        let name = self
            .rules
            .known
            .runner(&step.agent)
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
        let effect = self.request_for(place, StepEffect::Permit, Effect::Ask(ask), out);
        Self::notify(out, || PlanNotice::StepAsked {
            step: step.id.clone(),
            effect,
        });
    }

    pub(super) fn handle_permission(
        &mut self,
        place: Place,
        outcome: Outcome,
        out: &mut MachineOutput,
    ) {
        let Some(mut call) = self.attempt(place).and_then(|attempt| attempt.call.take()) else {
            return;
        };
        match outcome {
            Outcome::Decision(Decision::Allow) => {}
            Outcome::Decision(Decision::Edit { args }) => call.args = args,
            Outcome::Decision(Decision::Answer { text }) => {
                return self.take_output(place, Value::String(text), out);
            }
            Outcome::Decision(Decision::Deny { reason }) => {
                return self.handle_failure(
                    place,
                    StepFailure::permanent(format!("the call was denied: {reason}")),
                    out,
                );
            }
            other => {
                return self.handle_failure(
                    place,
                    StepFailure::permanent(outcome_reason(&other)),
                    out,
                );
            }
        }
        call.id = EffectId::new(self.now.next).to_string().into();
        let time = self
            .step(place.at)
            .and_then(|step| step.more.as_ref()?.timeout);
        if let (Some(time), Value::Object(args)) = (time, &mut call.args) {
            args.insert(TIMEOUT.to_owned(), time.as_secs_f64().into());
        }
        let run = ToolRun::approved(*call).unordered();
        self.request_for(place, StepEffect::Perform, Effect::Tool(run), out);
    }

    /// Handles a failed attempt: starts another one, or fails the step.
    pub(super) fn handle_failure(
        &mut self,
        place: Place,
        failed: StepFailure,
        out: &mut MachineOutput,
    ) {
        let Some(step) = self.step(place.at) else {
            return;
        };
        let retry = step.retry_policy();
        let near = self.now.near_limit.is_some();
        let Some(attempt) = self.attempt(place) else {
            return;
        };
        let remedy = if failed.retryable && !near {
            Remedy::Retry
        } else {
            Remedy::Nothing
        };
        // A fallback is a separate step.
        let next = after_failure::<StepId>(
            remedy,
            attempt.number,
            retry.attempts.saturating_sub(1),
            None,
            &[],
        );
        if next == Next::Retry {
            let number = attempt.number;
            let reason = failed.reason.clone();
            *attempt = Attempt {
                number,
                failed: Some(failed.reason.into()),
                ..Attempt::default()
            };
            self.request_for(
                place,
                StepEffect::Pause,
                Effect::Wait(Wait::new(pause(retry, number))),
                out,
            );
            Self::notify(out, || PlanNotice::StepRetried {
                step: step.id.clone(),
                attempt: number,
                error: reason,
            });
            return;
        }
        self.count_attempts(place);
        match place.item {
            Some(item) => self.item_failed(place.at, item, failed, out),
            None => self.step_failed(place.at, failed, out),
        }
    }

    fn count_attempts(&mut self, place: Place) {
        let number = self.attempt(place).map_or(0, |attempt| attempt.number);
        if let Some(work) = self.work(place.at) {
            work.spent.attempts = work.spent.attempts.saturating_add(number);
        }
    }

    /// Fails a step after its last attempt.
    pub(super) fn step_failed(&mut self, at: u32, failed: StepFailure, out: &mut MachineOutput) {
        let spent = self.end_work(at);
        let id = self.id(at);
        Self::notify(out, || PlanNotice::StepFailed {
            step: id.clone(),
            error: failed.reason.clone(),
            spent,
        });
        let has_remedy = self.rules.planner.is_some() || failed.rejection.is_some();
        let may_replan = self.may_replan() && has_remedy;
        let Some(running) = self.phase.running_mut() else {
            return;
        };
        if let Some(rejection) = failed.rejection {
            running.rejections.insert(id, *rejection);
        }
        let steps = &mut running.steps;
        if let Some(node) = steps.node_mut(at) {
            node.error = Some(failed.reason.into());
            node.spent = Some(Box::new(spent));
        }
        let fails = steps
            .step(at)
            .is_some_and(|step| step.on_failure == OnFailure::Fail);
        let has_fallback = steps.fallbacks(at).next().is_some();
        if fails && !has_fallback && may_replan {
            steps.hold(at);
            return self.replan_if_needed(out);
        }
        let skipped = steps.settle(at, StepStatus::Failed);
        self.notify_skipped(&skipped, out);
    }

    /// Handles a successful attempt.
    pub(super) fn handle_success(
        &mut self,
        place: Place,
        written: Vec<WrittenVariable>,
        output: Value,
        out: &mut MachineOutput,
    ) {
        self.count_attempts(place);
        match place.item {
            Some(item) => self.item_done(place.at, item, written, out),
            None => self.step_done(place.at, written, output, out),
        }
    }

    /// Completes a step with the variables that it wrote and its output.
    pub(super) fn step_done(
        &mut self,
        at: u32,
        written: Vec<WrittenVariable>,
        output: Value,
        out: &mut MachineOutput,
    ) {
        let spent = self.end_work(at);
        let Some(steps) = self.phase.running_mut().map(|running| &mut running.steps) else {
            return;
        };
        if out.is_watched()
            && let Some(step) = steps.step(at)
        {
            let (step, writes, output) = (step.id.clone(), written.clone(), output.clone());
            out.emit(
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
            self.notify_skipped(&skipped, out);
        }
    }
}

/// A step that writes variables stores its values only, and its complete output is dropped: outputs
/// of 20,000 steps must fit into memory and into each snapshot.
fn complete(
    steps: &mut Scheduler,
    at: u32,
    written: Vec<WrittenVariable>,
    output: Value,
    spent: StepUsage,
) -> Vec<crate::schedule::SkippedStep> {
    if let Some(node) = steps.node_mut(at) {
        node.output = (written.is_empty() && !output.is_null()).then(|| Box::new(output));
        node.values = written.into_iter().map(|written| written.value).collect();
        // A step without cost needs no stored usage.
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

/// Returns the pause before the next attempt, which doubles each time.
///
/// With a pause of 1 s, the attempts 2, 3 and 4 follow after 1 s, 2 s and 4 s.
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

/// Adds the budget and the timeout of the step to the input of a child run.
fn with_bounds(mut input: Value, step: &Step, budget: Budget) -> Value {
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

/// Returns the budget that remains after earlier rounds. An attempt without remaining tool calls
/// can still answer.
///
/// For example, a budget of 1,000 tokens leaves 400 after a round that used 600. A limit of zero
/// would let a child run start that can do nothing, so an exhausted budget is a failure here.
fn remaining_budget(mut budget: Budget, attempt: &Attempt) -> Result<Budget, StepFailure> {
    let exhausted = || {
        StepFailure::transient(
            "the budget of the step was used up before it completed; raise \
        `budget`",
        )
    };
    let (usage, stats) = (&attempt.usage, &attempt.stats);
    let counts = [
        (&mut budget.tokens, usage.total()),
        (&mut budget.model_calls, stats.model_calls),
    ];
    for (limit, used) in counts.into_iter().filter(|(_, used)| *used > 0) {
        if let Some(limit) = limit {
            *limit = limit
                .checked_sub(used)
                .filter(|limit| *limit > 0)
                .ok_or_else(exhausted)?;
        }
    }
    let money = usage.cost.unwrap_or_default();
    if let Some(limit) = budget.money.as_mut().filter(|_| money > Money::ZERO) {
        *limit = Some(limit.saturating_sub(money))
            .filter(|limit| *limit > Money::ZERO)
            .ok_or_else(exhausted)?;
    }
    budget.tool_calls = budget
        .tool_calls
        .map(|limit| limit.saturating_sub(stats.tool_calls));
    Ok(budget)
}

/// Returns the budget for the next round of an attempt.
fn round_budget(budget: Budget, attempt: &Attempt, turns: u64) -> Result<Budget, StepFailure> {
    let mut budget = remaining_budget(budget, attempt)?;
    if attempt.round <= 1 {
        return Ok(budget);
    }
    let calls = turns.saturating_sub(attempt.stats.turns);
    if calls == 0 {
        return Err(StepFailure::transient(format!(
            "the step did not complete within {turns} turns; raise `max_turns`"
        )));
    }
    budget.model_calls = Some(budget.model_calls.map_or(calls, |limit| limit.min(calls)));
    Ok(budget)
}

/// Formats the names of variables for a message.
pub(super) fn names(names: &[Arc<str>]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
