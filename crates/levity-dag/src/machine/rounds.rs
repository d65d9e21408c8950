//! What is made of what a step gave: variables, code to run, another round, a verdict.

use std::error::Error as _;

use levity_core::{Outcome, Status, Step as Wants};
use serde_json::{Map, Value, json};

use super::perform::names;
use super::{Doing, GraphMachine, Place};
use crate::extract::{EXECUTION, extract};
use crate::notice::{Notice, StepStatus};
use crate::schedule::Scheduler;
use crate::step::{Step, StepId};
use crate::task::{clipped, head};

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
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rejection {
    pub(super) steps: Vec<StepId>,
    pub(super) issues: Vec<String>,
}

impl Rejection {
    /// Adds what another judge sends back.
    pub(super) fn add(&mut self, more: Self) {
        let new: Vec<_> = more.steps.into_iter().filter(|step| !self.steps.contains(step)).collect();
        self.steps.extend(new);
        self.issues.extend(more.issues);
    }
}

impl Failed {
    /// Another attempt may help.
    pub(super) fn once(why: impl Into<String>) -> Self {
        let why = why.into();
        Self { why: head(&why, MOST_WHY).to_owned(), again: true, rejection: None }
    }

    /// Another attempt would fail in the same way.
    pub(super) fn for_good(why: impl Into<String>) -> Self {
        Self { again: false, ..Self::once(why) }
    }
}

/// Why a run below has no answer, with what it came from.
pub(super) fn why_of(status: &Status) -> String {
    let mut why = status.to_string();
    if let Status::Failed(failure) = status {
        let mut source = failure.source();
        while let Some(next) = source {
            why = format!("{why}: {next}");
            source = next.source();
        }
    }
    why
}

/// Why there is no outcome of the kind that was wanted.
pub(super) fn why_not(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(limit) => format!("the limit on {limit} was reached"),
        Outcome::Denied { reason } => format!("it is not allowed: {reason}"),
        Outcome::Unknown => "the process ended while it ran, and nobody knows what came of it".to_owned(),
        _ => "it came to nothing".to_owned(),
    }
}

/// What an agent said, as a value: the object in it or, without one, the words.
pub(super) fn read_output(text: String) -> Value {
    match levity_llm::json::parse(&text) {
        Ok(value @ Value::Object(_)) => value,
        _ => Value::String(text),
    }
}

impl GraphMachine {
    /// Makes the most of what an attempt gave.
    pub(super) fn take_output(&mut self, place: Place, output: Value, wants: &mut Wants) {
        let Some(step) = self.steps.as_ref().and_then(|steps| steps.step(place.at)).cloned() else { return };
        if !step.variants().is_empty() {
            return self.extract(place, &step, json!({EXECUTION: output}), wants);
        }
        let performer = self.rules.known.performer(&step.agent).map(|(_, who)| who);
        let is_agent = performer.is_some_and(|who| who.kind == crate::known::PerformerKind::Agent);
        let judges = performer.is_some_and(|who| who.judges);
        if is_agent && let Value::Object(object) = &output {
            let code =
                code_in(object).filter(|_| self.rules.code.is_some() && !object.contains_key(EXECUTION));
            if let Some(variants) = code {
                return self.run_code(place, &step, &variants, output, wants);
            }
            if object.get("call_self").is_some_and(is_true) {
                return self.next_round(place, &step, output, wants);
            }
            if judges && let Some((verdict, said)) = verdict_in(object, &step) {
                let Some(passed) = passes(verdict) else {
                    let why = "the verdict is neither `pass` nor `revise`";
                    let next = format!("{why}. Answer again, with one of them as `verdict`.");
                    return self.complain(place, output, next, why, wants);
                };
                if let Some(failed) = self.judge(place, passed, said, wants) {
                    return self.failed(place, failed, wants);
                }
            }
        }
        self.extract(place, &step, output, wants);
    }

    /// Runs the code that an agent wrote, with what it was given and what it gave as variables.
    fn run_code(&mut self, place: Place, step: &Step, variants: &[String], output: Value, wants: &mut Wants) {
        let mut inputs = self.inputs(step, place);
        if let Value::Object(object) = &output {
            let own = object.iter().filter(|(name, _)| !CODE.contains(&name.as_str()));
            let own =
                own.filter(|(name, _)| !inputs.contains_key(*name)).map(|(n, v)| (n.clone(), v.clone()));
            let own: Vec<_> = own.collect();
            inputs.extend(own);
        }
        match self.code_effect(step, place, variants, &inputs) {
            Ok(effect) => {
                self.running += 1;
                self.want(effect, Doing::Code(place, output), wants);
            }
            Err(failed) => self.failed(place, failed, wants),
        }
    }

    /// Takes in what came of an agent's code; when it failed, the agent is told.
    pub(super) fn ran_code(&mut self, place: Place, mut output: Value, outcome: Outcome, wants: &mut Wants) {
        self.running -= 1;
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
                self.take_output(place, output, wants);
            }
            Err(why) => {
                let next = format!(
                    "The code failed:\n{}\nAnswer again, with code that works.",
                    head(&why, MOST_WHY)
                );
                self.complain(place, output, next, &why, wants);
            }
        }
    }

    /// The agent asks for another round.
    fn next_round(&mut self, place: Place, step: &Step, output: Value, wants: &mut Wants) {
        let next = output.get("next_instruction").or_else(|| output.get("iteration_context"));
        let next =
            next.map_or_else(|| "Go on from there, and finish.".to_owned(), |next| clipped(next, 20_000));
        let (near, turns) = (self.near.is_some(), self.start.settings.turns);
        let Some(attempt) = self.attempt(place) else { return };
        // Each round takes a turn at least, also of an agent that does not say how many it took.
        let rounds = u64::from(attempt.round).max(attempt.stats.turns);
        if rounds >= turns || near {
            // It had its rounds: what it gave last counts.
            return self.extract(place, step, output, wants);
        }
        let left = turns - rounds;
        let warning = if left == 1 { "\nThis is your last turn: give what you have." } else { "" };
        attempt.before = Some(Box::new((output, format!("{next}{warning}"))));
        self.perform(place, wants);
    }

    /// Finds the variables that a step writes in what it gave.
    fn extract(&mut self, place: Place, step: &Step, output: Value, wants: &mut Wants) {
        match extract(step, &output, |name| self.schemas.get(name)) {
            Ok(written) => self.done(place, written, output, wants),
            Err(problem) => {
                let keys = names(&step.writes);
                let next = format!("{problem}. Answer again with one JSON object that has the keys {keys}.");
                self.complain(place, output, next, &problem, wants);
            }
        }
    }

    /// Tells an agent what is wrong with what it gave; what is not an agent's has failed.
    fn complain(&mut self, place: Place, output: Value, next: String, why: &str, wants: &mut Wants) {
        let step = self.steps.as_ref().and_then(|steps| steps.step(place.at)).cloned();
        let is_agent = step.is_some_and(|step| {
            let who = self.rules.known.performer(&step.agent).map(|(_, who)| who);
            who.is_some_and(|who| who.kind == crate::known::PerformerKind::Agent)
        });
        let (near, turns) = (self.near.is_some(), self.start.settings.turns);
        let Some(attempt) = self.attempt(place) else { return };
        let left =
            attempt.complaints < MOST_COMPLAINTS && u64::from(attempt.round).max(attempt.stats.turns) < turns;
        if !is_agent || !left || near {
            return self.failed(place, Failed::once(why), wants);
        }
        attempt.complaints += 1;
        attempt.before = Some(Box::new((output, next)));
        self.perform(place, wants);
    }

    /// Takes in a verdict and what was said with it; a failure when the work is sent back.
    fn judge(
        &mut self,
        place: Place,
        passed: bool,
        said: &Map<String, Value>,
        wants: &mut Wants,
    ) -> Option<Failed> {
        let issues = texts(said.get("issues"));
        let step = self.id(place.at);
        Self::tell(wants, || Notice::Verdict { step, passed, issues: issues.clone() });
        if passed {
            return None;
        }
        let steps = self.sent_back(place.at, &texts(said.get("steps")));
        let why = match &*issues {
            [] => "the work was sent back".to_owned(),
            issues => format!("the work was sent back: {}", issues.join("; ")),
        };
        Some(Failed { rejection: Some(Box::new(Rejection { steps, issues })), ..Failed::for_good(why) })
    }

    /// The steps to do again: those that the judge names, or those right before it.
    fn sent_back(&self, at: u32, named: &[String]) -> Vec<StepId> {
        let Some(steps) = &self.steps else { return Vec::new() };
        let is_done = |at: u32| steps.node(at).is_some_and(|node| node.status == StepStatus::Completed);
        let found = named.iter().filter_map(|id| steps.graph().find(id)).filter(|at| is_done(*at));
        let found: Vec<u32> = found.collect();
        let before = steps.graph().before(at).map(|(before, _)| before).filter(|at| is_done(*at));
        let chosen: Vec<u32> = if found.is_empty() { before.collect() } else { found };
        chosen.into_iter().map(|at| self.id(at)).collect()
    }

    /// What a judge has sent back, if this failed step is one.
    pub(super) fn rejection(
        &self,
        steps: &Scheduler,
        id: &StepId,
    ) -> Option<(StepId, Vec<StepId>, Vec<String>)> {
        steps.graph().find(id.as_str())?;
        let rejection = self.rejections.get(id)?;
        Some((id.clone(), rejection.steps.clone(), rejection.issues.clone()))
    }
}

/// The keys under which an agent gives code.
const CODE: [&str; 2] = ["code", "code_variants"];

/// The Python variants in what an agent gave.
fn code_in(output: &Map<String, Value>) -> Option<Vec<String>> {
    let code = CODE.iter().find_map(|key| output.get(*key))?;
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
    value == &Value::Bool(true) || value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// The verdict in what a judge gave, and the object that it stands in: the answer itself, its `output`, or a variable that
/// the step writes.
fn verdict_in<'a>(
    output: &'a Map<String, Value>,
    step: &Step,
) -> Option<(&'a Value, &'a Map<String, Value>)> {
    let written = || step.writes.iter().filter_map(|name| output.get(&**name));
    let within = output.get("output").into_iter().chain(written()).filter_map(Value::as_object);
    let named = std::iter::once(output).chain(within).find_map(|object| {
        let verdict = object.get("verdict").or_else(|| object.get("passed"))?;
        Some((verdict, object)).filter(|_| !verdict.is_null())
    });
    named.or_else(|| Some((written().find(|value| passes(value).is_some())?, output)))
}

/// Whether a verdict lets the work pass; nothing when it does not say.
fn passes(verdict: &Value) -> Option<bool> {
    if let Some(passed) = verdict.as_bool() {
        return Some(passed);
    }
    let verdict = verdict.as_str()?.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
    match &*verdict {
        "pass" | "passed" | "passes" | "ok" | "accept" | "accepted" | "approve" | "approved" => Some(true),
        "revise" | "fail" | "failed" | "fails" | "reject" | "rejected" | "redo" => Some(false),
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
