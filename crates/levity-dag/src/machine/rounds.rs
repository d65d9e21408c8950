//! Interprets the output of a step: variables, code to run, another round, or a verdict.
//!
//! The order of interpretation is fixed: code in the answer runs first, then `call_self` starts
//! another round, then a judge's verdict is read, then variables are extracted. An agent whose
//! output is unusable gets at most two complaints in an attempt; each one is a round and counts
//! against its turns.
//!
//! The output of an agent is untrusted. A field is code only if its name is `code` or
//! `code_variants`, the team can run code, the runner permits it, and the step does not write a
//! variable of that name.

use levity_core::text::{chain, fenced, head};
use levity_core::{MachineOutput, Outcome, Status};
use levity_tools::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::perform::names;
use super::phase::StepEffect;
use super::{GraphMachine, Place};
use crate::constraints::{StepRunner, StepRunnerKind};
use crate::extract::{EXECUTION, extract};
use crate::notice::{PlanNotice, StepStatus};
use crate::schedule::Scheduler;
use crate::step::{Step, StepId};
use crate::task::clipped;

/// The maximum number of complaints to an agent about its output.
const MAX_COMPLAINTS: u32 = 2;
/// The maximum size of a failure reason, in bytes.
const MAX_REASON_BYTES: usize = 4_000;

/// The reason why an attempt failed.
#[derive(Debug)]
pub(super) struct StepFailure {
    pub(super) reason: String,
    /// `true` if another attempt may succeed.
    pub(super) retryable: bool,
    /// The rejection, if a judge sent back the work of other steps.
    pub(super) rejection: Option<Box<Rejection>>,
}

/// The steps that a judge sends back, with the issues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Rejection {
    pub(super) steps: Vec<StepId>,
    pub(super) issues: Vec<String>,
}

impl Rejection {
    /// Adds the rejection of another judge.
    pub(super) fn add(&mut self, more: Self) {
        let new: Vec<_> = more
            .steps
            .into_iter()
            .filter(|step| !self.steps.contains(step))
            .collect();
        self.steps.extend(new);
        self.issues.extend(more.issues);
    }
}

impl StepFailure {
    /// Creates a failure that another attempt may resolve.
    pub(super) fn transient(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            reason: head(&reason, MAX_REASON_BYTES).to_owned(),
            retryable: true,
            rejection: None,
        }
    }

    /// Creates a failure that another attempt would repeat.
    pub(super) fn permanent(reason: impl Into<String>) -> Self {
        Self {
            retryable: false,
            ..Self::transient(reason)
        }
    }
}

/// Returns the reason why a child run has no answer, with its causes.
pub(super) fn failure_reason(status: &Status) -> String {
    match status {
        Status::Failed(failure) => chain(failure),
        other => other.to_string(),
    }
}

/// Returns the reason why an outcome is not of the expected kind.
pub(super) fn outcome_reason(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(limit) => format!("the limit on {limit} was reached"),
        Outcome::Denied { reason } => format!("the call was denied: {reason}"),
        Outcome::Unknown => {
            "the process ended during the call, so its result is unknown".to_owned()
        }
        _ => "the call returned no result".to_owned(),
    }
}

/// Returns an agent's answer as a value: the object in it, a list if the answer is one, or the
/// text.
///
/// For example, `Here it is: {"a": 1}` is the object, `[1, 2]` is the list, and `It rose [1].`
/// stays a text.
pub(super) fn read_output(text: String) -> Value {
    match levity_llm::json::parse(&text) {
        Ok(value @ Value::Object(_)) => value,
        // A text may contain a list, such as `[1]` for a source.
        Ok(value @ Value::Array(_)) if text.trim_start().starts_with(['[', '`']) => value,
        _ => Value::String(text),
    }
}

impl GraphMachine {
    /// Interprets the output of an attempt.
    pub(super) fn take_output(&mut self, place: Place, output: Value, out: &mut MachineOutput) {
        let Some(step) = self.step(place.at) else {
            return;
        };
        if !step.variants().is_empty() {
            return self.extract(place, &step, json!({EXECUTION: output}), out);
        }
        let runner = self
            .rules
            .known
            .runner(&step.agent)
            .map(|(_, runner)| runner);
        let Some(runner) = runner.filter(|runner| is_agent(runner)) else {
            return self.extract(place, &step, output, out);
        };
        let runs_code = self.rules.code.is_some() && runner.code;
        if runs_code
            && let Some(variants) = output.as_object().and_then(|object| code_in(object, &step))
        {
            return self.run_code(place, &step, &variants, output, out);
        }
        self.end_round(place, &step, output, out);
    }

    /// Starts another round if the agent requests one; otherwise handles the output as an answer.
    fn end_round(&mut self, place: Place, step: &Step, output: Value, out: &mut MachineOutput) {
        let runner = self
            .rules
            .known
            .runner(&step.agent)
            .map(|(_, runner)| runner);
        if runner.is_some_and(is_agent) && output.get("call_self").is_some_and(is_true) {
            return self.next_round(place, step, output, out);
        }
        self.take_answer(place, step, output, out);
    }

    /// Applies a judge's verdict, then extracts the variables of the step.
    fn take_answer(&mut self, place: Place, step: &Step, output: Value, out: &mut MachineOutput) {
        let runner = self
            .rules
            .known
            .runner(&step.agent)
            .map(|(_, runner)| runner);
        if runner.is_some_and(|runner| is_agent(runner) && runner.judges) {
            match self.judge(place, step, &output, out) {
                JudgeResult::Passed => {}
                JudgeResult::SentBack(failed) => return self.handle_failure(place, failed, out),
                JudgeResult::Unclear => {
                    let reason = "the answer has no readable verdict";
                    let next = format!(
                        "{reason}. Answer again with one JSON object in which `verdict` \
                            is \"pass\" \
                            or \"revise\"."
                    );
                    return self.complain(place, output, next, reason, out);
                }
            }
        }
        self.extract(place, step, output, out);
    }

    /// Runs the code that an agent wrote, with its inputs and its output as variables.
    fn run_code(
        &mut self,
        place: Place,
        step: &Step,
        variants: &[String],
        output: Value,
        out: &mut MachineOutput,
    ) {
        let mut inputs = self.inputs(step, place);
        if let Value::Object(object) = &output {
            let own = object
                .iter()
                .filter(|(name, _)| !CODE.contains(&name.as_str()));
            let own = own
                .filter(|(name, _)| !inputs.contains_key(*name))
                .map(|(n, v)| (n.clone(), v.clone()));
            let own: Vec<_> = own.collect();
            inputs.extend(own);
        }
        let author = self
            .rules
            .known
            .runner(&step.agent)
            .map(|(name, _)| name.clone());
        match self.code_effect(step, place, (variants, author), &inputs) {
            Ok(effect) => {
                self.request_for(place, StepEffect::Code(output), effect, out);
            }
            Err(failed) => self.handle_failure(place, failed, out),
        }
    }

    /// Handles the result of an agent's code. If the code failed, the agent gets a complaint.
    pub(super) fn handle_code_result(
        &mut self,
        place: Place,
        mut output: Value,
        outcome: Outcome,
        out: &mut MachineOutput,
    ) {
        let result = match outcome {
            Outcome::Child(ending) => {
                self.spend(place, ending.usage, &ending.stats);
                match ending.value {
                    Some(value) if ending.status.is_answer() => Ok(value),
                    _ if ending.status.is_answer() => Ok(json!({"result": ending.text})),
                    _ => Err(failure_reason(&ending.status)),
                }
            }
            other => Err(outcome_reason(&other)),
        };
        match result {
            Ok(result) => {
                if let Value::Object(object) = &mut output {
                    object.insert(EXECUTION.to_owned(), result);
                }
                if let Some(step) = self.step(place.at) {
                    self.end_round(place, &step, output, out);
                }
            }
            Err(reason) => {
                let error = fenced(head(&reason, MAX_REASON_BYTES));
                let next = format!(
                    "The code failed:\n{error}\nAnswer again, with code that \
                    works."
                );
                self.complain(place, output, next, &reason, out);
            }
        }
    }

    /// Starts the round that the agent requested.
    fn next_round(&mut self, place: Place, step: &Step, output: Value, out: &mut MachineOutput) {
        let next = output
            .get("next_instruction")
            .or_else(|| output.get("iteration_context"));
        let next = next.map_or_else(
            || "Continue from there, and finish.".to_owned(),
            |next| clipped(next, 20_000),
        );
        let (near, turns) = (self.now.near_limit.is_some(), self.start.settings.turns);
        let Some(attempt) = self.attempt(place) else {
            return;
        };
        // Each round counts as at least one turn, even if the agent does not report its turns.
        let rounds = u64::from(attempt.round).max(attempt.stats.turns);
        if rounds >= turns || near {
            // The attempt has no rounds left, so its last output counts.
            return self.take_answer(place, step, output, out);
        }
        let remaining = turns - rounds;
        let warning = if remaining == 1 {
            "\nThis is your last turn: give what you have."
        } else {
            ""
        };
        attempt.before = Some(Box::new((output, format!("{next}{warning}"))));
        self.perform(place, out);
    }

    /// Extracts the variables that a step writes from its output.
    fn extract(&mut self, place: Place, step: &Step, output: Value, out: &mut MachineOutput) {
        match extract(step, &output, |name| self.schema(name)) {
            Ok(written) => self.handle_success(place, written, output, out),
            Err(problem) => {
                let keys = names(&step.writes);
                let next = format!(
                    "{problem}. Answer again with one JSON object that has the keys {keys}."
                );
                self.complain(place, output, next, &problem, out);
            }
        }
    }

    pub(super) fn schema(&self, name: &str) -> Option<&Schema> {
        self.phase.running()?.schemas.get(name)
    }

    /// Sends an agent a complaint about its output; a step without an agent fails.
    fn complain(
        &mut self,
        place: Place,
        output: Value,
        next: String,
        reason: &str,
        out: &mut MachineOutput,
    ) {
        let step = self.step(place.at);
        let runner = step.and_then(|step| {
            self.rules
                .known
                .runner(&step.agent)
                .map(|(_, runner)| runner)
        });
        let is_agent = runner.is_some_and(is_agent);
        let (near, turns) = (self.now.near_limit.is_some(), self.start.settings.turns);
        let Some(attempt) = self.attempt(place) else {
            return;
        };
        let may_complain = attempt.complaints < MAX_COMPLAINTS
            && u64::from(attempt.round).max(attempt.stats.turns) < turns;
        if !is_agent || !may_complain || near {
            return self.handle_failure(place, StepFailure::transient(reason), out);
        }
        attempt.complaints += 1;
        attempt.before = Some(Box::new((output, next)));
        self.perform(place, out);
    }

    /// Reads the verdict of a judge.
    fn judge(
        &mut self,
        place: Place,
        step: &Step,
        output: &Value,
        out: &mut MachineOutput,
    ) -> JudgeResult {
        let Some((passed, details)) = verdict(output, step) else {
            return JudgeResult::Unclear;
        };
        let issues = texts(details.get("issues").or_else(|| output.get("issues")));
        let id = step.id.clone();
        Self::notify(out, || PlanNotice::Verdict {
            step: id,
            passed,
            issues: issues.clone(),
        });
        if passed {
            return JudgeResult::Passed;
        }
        let steps = self.sent_back(
            place.at,
            &texts(details.get("steps").or_else(|| output.get("steps"))),
        );
        let reason = match &*issues {
            [] => "the work was sent back".to_owned(),
            issues => format!("the work was sent back: {}", issues.join("; ")),
        };
        let rejection = Some(Box::new(Rejection { steps, issues }));
        JudgeResult::SentBack(StepFailure {
            rejection,
            ..StepFailure::permanent(reason)
        })
    }

    /// Returns the steps to repeat: those that the judge names, or its direct predecessors.
    fn sent_back(&self, at: u32, named: &[String]) -> Vec<StepId> {
        let Some(steps) = self.phase.steps() else {
            return Vec::new();
        };
        let is_done = |at: u32| {
            steps
                .node(at)
                .is_some_and(|node| node.status == StepStatus::Completed)
        };
        let found = named
            .iter()
            .filter_map(|id| steps.graph().find(id))
            .filter(|at| is_done(*at));
        let found: Vec<u32> = found.collect();
        let before = steps
            .graph()
            .before(at)
            .map(|(before, _)| before)
            .filter(|at| is_done(*at));
        let chosen: Vec<u32> = if found.is_empty() {
            before.collect()
        } else {
            found
        };
        chosen.into_iter().map(|at| self.id(at)).collect()
    }

    /// Returns the rejection of a judge, if this failed step is one.
    pub(super) fn rejection(
        &self,
        steps: &Scheduler,
        id: &StepId,
    ) -> Option<(StepId, Vec<StepId>, Vec<String>)> {
        steps.graph().find(id.as_str())?;
        let rejection = self.phase.running()?.rejections.get(id)?;
        Some((
            id.clone(),
            rejection.steps.clone(),
            rejection.issues.clone(),
        ))
    }
}

/// The keys of an agent's output that contain code.
const CODE: [&str; 2] = ["code", "code_variants"];

/// The result of a judge's answer.
enum JudgeResult {
    Passed,
    SentBack(StepFailure),
    Unclear,
}

fn is_agent(runner: &StepRunner) -> bool {
    runner.kind == StepRunnerKind::Agent
}

/// Returns the Python variants in an agent's output. A variable that the step writes is never code
/// to run, regardless of its name.
fn code_in(output: &Map<String, Value>, step: &Step) -> Option<Vec<String>> {
    let keys = CODE
        .iter()
        .filter(|key| !step.writes.iter().any(|name| &**name == **key));
    let code = keys.into_iter().find_map(|key| output.get(*key))?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let variants: Option<Vec<String>> = match code {
        Value::String(code) => Some(vec![code.clone()]),
        Value::Array(all) => all.iter().map(text).collect(),
        Value::Object(all) => all.values().map(text).collect(),
        _ => None,
    };
    variants.filter(|variants| variants.iter().any(|code| !code.trim().is_empty()))
}

fn is_true(value: &Value) -> bool {
    value == &Value::Bool(true)
        || value
            .as_str()
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// Returns whether a judge accepts the work, and the object with the verdict, or `None` if no
/// verdict is readable. The verdict is at the top, in `output` or in a variable that the step
/// writes.
fn verdict<'a>(output: &'a Value, step: &Step) -> Option<(bool, &'a Value)> {
    let below = step
        .writes
        .iter()
        .map(|name| &**name)
        .chain(["output"])
        .filter_map(|key| output.get(key));
    let mut places = std::iter::once(output).chain(below);
    places.find_map(|place| {
        let verdict = place
            .get("verdict")
            .or_else(|| place.get("passed"))
            .unwrap_or(place);
        Some((passes(verdict)?, place))
    })
}

/// Models write verdicts in many forms: `"Pass."`, `**approved**` and `true` all accept the work.
/// Other words are not a verdict, and the judge is asked again, because a guess could accept bad
/// work.
fn passes(verdict: &Value) -> Option<bool> {
    let verdict = match verdict {
        Value::Bool(passed) => return Some(*passed),
        verdict => verdict
            .as_str()?
            .trim()
            .trim_matches(['"', '.', '!', '*'])
            .to_ascii_lowercase(),
    };
    match &*verdict {
        "pass" | "passed" | "passes" | "ok" | "okay" | "approve" | "approved" | "accept"
        | "accepted" => Some(true),
        "revise" | "revised" | "revision" | "fail" | "failed" | "reject" | "rejected" | "redo" => {
            Some(false)
        }
        _ => None,
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(all)) => all.iter().map(|value| clipped(value, 2_000)).collect(),
        Some(Value::Null) | None => Vec::new(),
        Some(value) => vec![clipped(value, 2_000)],
    }
}
