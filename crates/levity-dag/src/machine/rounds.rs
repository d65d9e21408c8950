//! What is made of what a step gave: variables, code to run, another round, a verdict.

use levity_core::text::{chain, fenced, head};
use levity_core::{MachineOutput, Outcome, Status};
use levity_tools::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::perform::names;
use super::phase::Doing;
use super::{GraphMachine, Place};
use crate::extract::{EXECUTION, extract};
use crate::known::{StepRunner, StepRunnerKind};
use crate::notice::{PlanNotice, StepStatus};
use crate::schedule::Scheduler;
use crate::step::{Step, StepId};
use crate::task::clipped;

/// How often an agent is told that something is missing in what it gave.
const MOST_COMPLAINTS: u32 = 2;
/// How long the words about a failure may be, in bytes.
const MOST_WHY: usize = 4_000;

/// Why an attempt failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) why: String,
    /// Whether another attempt may help.
    pub(super) again: bool,
    /// The work of others was sent back.
    pub(super) rejection: Option<Box<Rejection>>,
}

/// What a judge sends back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Rejection {
    pub(super) steps: Vec<StepId>,
    pub(super) issues: Vec<String>,
}

impl Rejection {
    /// Adds what another judge sends back.
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

impl Failed {
    /// Another attempt may help.
    pub(super) fn once(why: impl Into<String>) -> Self {
        let why = why.into();
        Self {
            why: head(&why, MOST_WHY).to_owned(),
            again: true,
            rejection: None,
        }
    }

    /// Another attempt would fail in the same way.
    pub(super) fn for_good(why: impl Into<String>) -> Self {
        Self {
            again: false,
            ..Self::once(why)
        }
    }
}

/// Why a run below has no answer, with what it came from.
pub(super) fn why_of(status: &Status) -> String {
    match status {
        Status::Failed(failure) => chain(failure),
        other => other.to_string(),
    }
}

/// Why there is no outcome of the kind that was wanted.
pub(super) fn why_not(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(limit) => format!("the limit on {limit} was reached"),
        Outcome::Denied { reason } => format!("it is not allowed: {reason}"),
        Outcome::Unknown => {
            "the process ended while it ran, and nobody knows what came of it".to_owned()
        }
        _ => "it came to nothing".to_owned(),
    }
}

/// What an agent said, as a value: the object in it, the list that it is or, without either, the
/// words.
pub(super) fn read_output(text: String) -> Value {
    match levity_llm::json::parse(&text) {
        Ok(value @ Value::Object(_)) => value,
        // Words may have a list in them, such as `[1]` for a source.
        Ok(value @ Value::Array(_)) if text.trim_start().starts_with(['[', '`']) => value,
        _ => Value::String(text),
    }
}

impl GraphMachine {
    /// Makes the most of what an attempt gave.
    pub(super) fn take_output(&mut self, place: Place, output: Value, wants: &mut MachineOutput) {
        let Some(step) = self.step(place.at) else {
            return;
        };
        if !step.variants().is_empty() {
            return self.extract(place, &step, json!({EXECUTION: output}), wants);
        }
        let who = self.rules.known.performer(&step.agent).map(|(_, who)| who);
        let Some(who) = who.filter(|who| is_agent(who)) else {
            return self.extract(place, &step, output, wants);
        };
        let runs_code = self.rules.code.is_some() && who.code;
        if runs_code
            && let Some(variants) = output.as_object().and_then(|object| code_in(object, &step))
        {
            return self.run_code(place, &step, &variants, output, wants);
        }
        self.end_round(place, &step, output, wants);
    }

    /// An agent has another round, if it asks for one; all else is taken for what it is.
    fn end_round(&mut self, place: Place, step: &Step, output: Value, wants: &mut MachineOutput) {
        let who = self.rules.known.performer(&step.agent).map(|(_, who)| who);
        if who.is_some_and(is_agent) && output.get("call_self").is_some_and(is_true) {
            return self.next_round(place, step, output, wants);
        }
        self.take_answer(place, step, output, wants);
    }

    /// A judge's verdict counts, and then what the step wrote.
    fn take_answer(&mut self, place: Place, step: &Step, output: Value, wants: &mut MachineOutput) {
        let who = self.rules.known.performer(&step.agent).map(|(_, who)| who);
        if who.is_some_and(|who| is_agent(who) && who.judges) {
            match self.judge(place, step, &output, wants) {
                Judged::Passed => {}
                Judged::SentBack(failed) => return self.failed(place, failed, wants),
                Judged::Unclear => {
                    let why = "there is no verdict that can be read";
                    let next = format!(
                        "{why}. Answer again with one JSON object in which `verdict` is \"pass\" \
                            or \"revise\"."
                    );
                    return self.complain(place, output, next, why, wants);
                }
            }
        }
        self.extract(place, step, output, wants);
    }

    /// Runs the code that an agent wrote, with what it was given and what it gave as variables.
    fn run_code(
        &mut self,
        place: Place,
        step: &Step,
        variants: &[String],
        output: Value,
        wants: &mut MachineOutput,
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
            .performer(&step.agent)
            .map(|(name, _)| name.clone());
        match self.code_effect(step, place, (variants, author), &inputs) {
            Ok(effect) => {
                self.want_for(place, Doing::Code(output), effect, wants);
            }
            Err(failed) => self.failed(place, failed, wants),
        }
    }

    /// Takes in what came of an agent's code; when it failed, the agent is told.
    pub(super) fn ran_code(
        &mut self,
        place: Place,
        mut output: Value,
        outcome: Outcome,
        wants: &mut MachineOutput,
    ) {
        let result = match outcome {
            Outcome::Child(ending) => {
                self.spend(place, ending.usage, &ending.stats);
                match ending.value {
                    Some(value) if ending.status.is_answer() => Ok(value),
                    _ if ending.status.is_answer() => Ok(json!({"result": ending.text})),
                    _ => Err(why_of(&ending.status)),
                }
            }
            other => Err(why_not(&other)),
        };
        match result {
            Ok(result) => {
                if let Value::Object(object) = &mut output {
                    object.insert(EXECUTION.to_owned(), result);
                }
                if let Some(step) = self.step(place.at) {
                    self.end_round(place, &step, output, wants);
                }
            }
            Err(why) => {
                let said = fenced(head(&why, MOST_WHY));
                let next = format!("The code failed:\n{said}\nAnswer again, with code that works.");
                self.complain(place, output, next, &why, wants);
            }
        }
    }

    /// The agent asks for another round.
    fn next_round(&mut self, place: Place, step: &Step, output: Value, wants: &mut MachineOutput) {
        let next = output
            .get("next_instruction")
            .or_else(|| output.get("iteration_context"));
        let next = next.map_or_else(
            || "Go on from there, and finish.".to_owned(),
            |next| clipped(next, 20_000),
        );
        let (near, turns) = (self.now.near.is_some(), self.start.settings.turns);
        let Some(attempt) = self.attempt(place) else {
            return;
        };
        // Each round takes a turn at least, also of an agent that does not say how many it took.
        let rounds = u64::from(attempt.round).max(attempt.stats.turns);
        if rounds >= turns || near {
            // It had its rounds: what it gave last counts.
            return self.take_answer(place, step, output, wants);
        }
        let left = turns - rounds;
        let warning = if left == 1 {
            "\nThis is your last turn: give what you have."
        } else {
            ""
        };
        attempt.before = Some(Box::new((output, format!("{next}{warning}"))));
        self.perform(place, wants);
    }

    /// Finds the variables that a step writes in what it gave.
    fn extract(&mut self, place: Place, step: &Step, output: Value, wants: &mut MachineOutput) {
        match extract(step, &output, |name| self.schema(name)) {
            Ok(written) => self.done(place, written, output, wants),
            Err(problem) => {
                let keys = names(&step.writes);
                let next = format!(
                    "{problem}. Answer again with one JSON object that has the keys {keys}."
                );
                self.complain(place, output, next, &problem, wants);
            }
        }
    }

    pub(super) fn schema(&self, name: &str) -> Option<&Schema> {
        self.phase.running()?.schemas.get(name)
    }

    /// Tells an agent what is wrong with what it gave; what is not an agent's has failed.
    fn complain(
        &mut self,
        place: Place,
        output: Value,
        next: String,
        why: &str,
        wants: &mut MachineOutput,
    ) {
        let step = self.step(place.at);
        let who = step.and_then(|step| self.rules.known.performer(&step.agent).map(|(_, who)| who));
        let is_agent = who.is_some_and(is_agent);
        let (near, turns) = (self.now.near.is_some(), self.start.settings.turns);
        let Some(attempt) = self.attempt(place) else {
            return;
        };
        let left = attempt.complaints < MOST_COMPLAINTS
            && u64::from(attempt.round).max(attempt.stats.turns) < turns;
        if !is_agent || !left || near {
            return self.failed(place, Failed::once(why), wants);
        }
        attempt.complaints += 1;
        attempt.before = Some(Box::new((output, next)));
        self.perform(place, wants);
    }

    /// Reads a verdict.
    fn judge(
        &mut self,
        place: Place,
        step: &Step,
        output: &Value,
        wants: &mut MachineOutput,
    ) -> Judged {
        let Some((passed, said)) = verdict(output, step) else {
            return Judged::Unclear;
        };
        let issues = texts(said.get("issues").or_else(|| output.get("issues")));
        let id = step.id.clone();
        Self::tell(wants, || PlanNotice::Verdict {
            step: id,
            passed,
            issues: issues.clone(),
        });
        if passed {
            return Judged::Passed;
        }
        let steps = self.sent_back(
            place.at,
            &texts(said.get("steps").or_else(|| output.get("steps"))),
        );
        let why = match &*issues {
            [] => "the work was sent back".to_owned(),
            issues => format!("the work was sent back: {}", issues.join("; ")),
        };
        let rejection = Some(Box::new(Rejection { steps, issues }));
        Judged::SentBack(Failed {
            rejection,
            ..Failed::for_good(why)
        })
    }

    /// The steps to do again: those that the judge names, or those right before it.
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

    /// What a judge has sent back, if this failed step is one.
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

/// The keys under which an agent gives code.
const CODE: [&str; 2] = ["code", "code_variants"];

/// What came of a judge's answer.
enum Judged {
    Passed,
    SentBack(Failed),
    Unclear,
}

fn is_agent(who: &StepRunner) -> bool {
    who.kind == StepRunnerKind::Agent
}

/// The Python variants in what an agent gave. What the step is to write is no code to run, whatever
/// its name.
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

/// Whether a judge lets the work pass, and the object that says so; nothing when neither can be
/// read out of it. It stands at the top, in `output` or in what the step is to write.
fn verdict<'a>(output: &'a Value, step: &Step) -> Option<(bool, &'a Value)> {
    let below = step
        .writes
        .iter()
        .map(|name| &**name)
        .chain(["output"])
        .filter_map(|key| output.get(key));
    let mut places = std::iter::once(output).chain(below);
    places.find_map(|place| {
        let said = place
            .get("verdict")
            .or_else(|| place.get("passed"))
            .unwrap_or(place);
        Some((passes(said)?, place))
    })
}

fn passes(said: &Value) -> Option<bool> {
    let said = match said {
        Value::Bool(passed) => return Some(*passed),
        said => said
            .as_str()?
            .trim()
            .trim_matches(['"', '.', '!', '*'])
            .to_ascii_lowercase(),
    };
    match &*said {
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
