//! The state machine of a program: segments of code, and the tool calls between them.
//!
//! The machine alternates between two phases: a segment runs, or calls of the last segment are
//! open. Both are effects, so the journal holds the state of the code at each pause, and a resumed
//! run continues there. Variants are tried in order; each starts with the original variables and
//! empty output.
//!
//! Calls of segments have ids `stretch-0`, `stretch-3` and so on, and tool calls `call-1`,
//! `call-2`: journals contain these names, so they must not change.

use std::collections::BTreeMap;
use std::time::Duration;

use levity_core::{
    Effect, EffectId, Ending, EventKind, Failure, Input, Machine, MachineKind, MachineOutput,
    Outcome, RunId, Status, ToolCall, ToolError, ToolErrorKind, ToolResult, ToolRun,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{Answer, End, FILE, Job, JobStart, Segment};
use crate::fault::{ProgramFault, ProgramFaultKind};
use crate::function::Function;
use crate::limits::ProgramLimits;
use crate::output::PrintedText;

mod calls;
mod end;

const KIND: &str = "python";
const VERSION: u32 = 1;

/// Decides the next step of a program: run the next segment, or call tools.
#[derive(Debug)]
pub(crate) struct PythonMachine {
    state: State,
}

/// The complete state of a program in progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    setup: Setup,
    run: Option<RunId>,
    next: EffectId,
    waiting: BTreeMap<EffectId, Waiting>,
    /// The index of the running variant.
    variant: usize,
    /// The faults of the variants before it.
    failed: Vec<ProgramFault>,
    paused: Option<Paused>,
    printed: PrintedText,
    time: Duration,
    calls: usize,
    failed_calls: u64,
    ending: Option<Ending>,
}

impl State {
    /// Returns an inconsistency that no saved state can have, if there is one.
    fn inconsistency(&self) -> Option<&'static str> {
        let calls = self.paused.as_ref().map_or(0, |paused| paused.calls.len());
        let is_open = |waiting: &Waiting| match waiting {
            Waiting::Segment => self.paused.is_none(),
            Waiting::Tool(at) | Waiting::Decision(at) => *at < calls,
        };
        match () {
            () if self.waiting.keys().any(|id| *id >= self.next) => {
                Some("an effect is in progress that was not requested")
            }
            () if !self.waiting.values().all(is_open) => {
                Some("a call is in progress that the code did not make")
            }
            () if self.variant > self.setup.variants.len() => {
                Some("a variant runs that does not exist")
            }
            () => None,
        }
    }
}

/// The configuration of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The name of the tool, under which segments are performed.
    pub(crate) name: String,
    /// The code, and the alternatives that are tried if it fails.
    pub(crate) variants: Vec<String>,
    pub(crate) inputs: Map<String, Value>,
    pub(crate) functions: Vec<Function>,
    pub(crate) limits: ProgramLimits,
    /// The problem with the arguments of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// The purpose of an effect in progress.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Waiting {
    #[serde(rename = "stretch")]
    Segment,
    Tool(usize),
    Decision(usize),
}

/// A program that waits for calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Paused {
    state: String,
    awaits: bool,
    calls: Vec<Pending>,
}

/// One open call: the interpreter's number, the call itself, and its answer once there is one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pending {
    id: u32,
    call: ToolCall,
    answer: Option<Answer>,
}

impl PythonMachine {
    pub(crate) fn new(setup: Setup) -> Self {
        let state = State {
            setup,
            run: None,
            next: EffectId::new(0),
            waiting: BTreeMap::new(),
            variant: 0,
            failed: Vec::new(),
            paused: None,
            printed: PrintedText::default(),
            time: Duration::ZERO,
            calls: 0,
            failed_calls: 0,
            ending: None,
        };
        Self { state }
    }

    /// Returns the name under which segments are performed.
    pub(crate) fn name(&self) -> &str {
        &self.state.setup.name
    }

    pub(crate) fn restore(saved: &Value) -> Result<Self, String> {
        let state = State::deserialize(saved)
            .map_err(|_| "this version cannot read the state of the code".to_owned())?;
        match state.inconsistency() {
            Some(what) => Err(format!("the state of the code is inconsistent: {what}")),
            None => Ok(Self { state }),
        }
    }

    /// Numbers an effect, remembers its purpose and requests it.
    fn request_effect(
        &mut self,
        waiting: Waiting,
        effect: impl FnOnce(EffectId) -> Effect,
        step: &mut MachineOutput,
    ) {
        let id = self.state.next;
        self.state.next = id.next();
        self.state.waiting.insert(id, waiting);
        step.request(id, effect(id));
    }

    fn begin(&mut self, run: RunId, step: &mut MachineOutput) {
        self.state.run = Some(run);
        match self.state.setup.problem.clone() {
            Some(problem) => self.fail(ToolError::new(ToolErrorKind::InvalidArgs, problem)),
            None => self.start(step),
        }
    }

    /// Starts the current variant.
    fn start(&mut self, step: &mut MachineOutput) {
        let setup = &self.state.setup;
        let Some(code) = setup.variants.get(self.state.variant).cloned() else {
            return self.all_failed();
        };
        let from = JobStart::Source {
            file: FILE.to_owned(),
            code,
            inputs: setup.inputs.clone(),
        };
        self.state.printed = PrintedText::default();
        self.run_segment(from, step);
    }

    fn run_segment(&mut self, from: JobStart, step: &mut MachineOutput) {
        let (setup, printed) = (&self.state.setup, self.state.printed.clone());
        let calls_left = setup.limits.calls.saturating_sub(self.state.calls);
        let job = Job {
            from,
            functions: setup.functions.clone(),
            limits: setup.limits,
            calls_left,
            printed,
        };
        let (name, args) = (
            setup.name.clone(),
            serde_json::to_value(job).unwrap_or_default(),
        );
        let call = |id: EffectId| ToolCall::new(format!("stretch-{id}"), name, args);
        self.request_effect(
            Waiting::Segment,
            |id| Effect::Tool(ToolRun::approved(call(id))),
            step,
        );
    }

    fn finished(&mut self, effect: EffectId, outcome: Outcome, step: &mut MachineOutput) {
        let Some(waiting) = self.state.waiting.remove(&effect) else {
            return;
        };
        match (waiting, outcome) {
            (Waiting::Segment, Outcome::Tool(result)) => self.segment_finished(&result, step),
            (Waiting::Segment, Outcome::Refused(limit)) => self.end(Status::Partial(limit)),
            (Waiting::Tool(at), Outcome::Tool(result)) => {
                let answer = self.answer(&result);
                self.answered(at, answer, step);
            }
            (Waiting::Tool(at), Outcome::NeedsApproval { reason }) => self.ask(at, reason, step),
            (Waiting::Tool(at), Outcome::Denied { reason }) => {
                self.answered(
                    at,
                    Answer::Error(format!("this call is not allowed: {reason}")),
                    step,
                );
            }
            (Waiting::Tool(at), Outcome::Refused(limit)) => {
                self.answered(
                    at,
                    Answer::Error(format!("the limit on {limit} is reached")),
                    step,
                );
            }
            (Waiting::Tool(at), Outcome::Unknown) => {
                let message = "the process ended while the tool ran; the tool may or may not have \
                    taken effect";
                self.answered(at, Answer::Error(message.to_owned()), step);
            }
            (Waiting::Decision(at), Outcome::Decision(decision)) => {
                self.decided(at, decision, step);
            }
            _ => {
                let what = format!("effect {effect} has an outcome of another kind");
                self.end(Status::Failed(Failure::Internal(what)));
            }
        }
    }

    /// Returns the answer of a tool for the code: its value, or else its text. It is complete, even
    /// if a model would see only a part.
    fn answer(&self, result: &ToolResult) -> Answer {
        if result.is_error() {
            return Answer::Error(result.text().into_owned());
        }
        let whole = result.whole.as_deref().filter(|whole| !whole.is_empty());
        let text = || whole.map_or_else(|| result.text().into_owned(), str::to_owned);
        let json = self
            .state
            .setup
            .functions
            .iter()
            .any(|function| function.tool == result.name && function.json);
        let value = || whole.filter(|_| json).and_then(first_value);
        Answer::Value(
            result
                .value
                .clone()
                .or_else(value)
                .unwrap_or_else(|| Value::String(text())),
        )
    }

    /// Handles the end of a segment.
    fn segment_finished(&mut self, result: &ToolResult, step: &mut MachineOutput) {
        if result.is_error() {
            let kind = result.error.unwrap_or(ToolErrorKind::Failed);
            return self.fail(ToolError::new(kind, result.text()));
        }
        let segment = result
            .value
            .as_ref()
            .and_then(|value| Segment::deserialize(value).ok());
        let Some(segment) = segment else {
            let what = "cannot read the outcome of a segment of code".to_owned();
            return self.end(Status::Failed(Failure::Internal(what)));
        };
        self.state.printed = segment.printed;
        self.state.time = self.state.time.saturating_add(segment.time);
        match segment.end {
            End::Done { result, .. } => self.done(result),
            End::Failed(fault) => self.variant_failed(fault, step),
            // Nothing would ever resume it.
            End::Paused { calls, .. } if calls.is_empty() => {
                let message = "the program awaits something that is not a tool call";
                self.variant_failed(ProgramFault::new(ProgramFaultKind::Raised, message), step);
            }
            End::Paused {
                state,
                awaits,
                calls,
            } => {
                let pending = |(at, call): (usize, crate::engine::PendingCall)| Pending {
                    id: call.id,
                    call: ToolCall::new(
                        format!("call-{}", self.state.calls.saturating_add(at + 1)),
                        call.tool,
                        Value::Object(call.args),
                    ),
                    answer: None,
                };
                let calls: Vec<Pending> = calls.into_iter().enumerate().map(pending).collect();
                self.state.calls = self.state.calls.saturating_add(calls.len());
                let runs: Vec<ToolRun> = calls
                    .iter()
                    .map(|pending| ToolRun::new(pending.call.clone()))
                    .collect();
                self.state.paused = Some(Paused {
                    state,
                    awaits,
                    calls,
                });
                for (at, run) in runs.into_iter().enumerate() {
                    self.request_effect(Waiting::Tool(at), |_| Effect::Tool(run), step);
                }
            }
        }
    }

    /// Starts the next variant, or reports all faults after the last one.
    fn variant_failed(&mut self, fault: ProgramFault, step: &mut MachineOutput) {
        if self.state.variant + 1 < self.state.setup.variants.len() {
            let text = format!(
                "variant {} failed: {}",
                self.state.variant + 1,
                fault.message
            );
            step.emit(EventKind::Note { text });
        }
        self.state.failed.push(fault);
        self.state.variant += 1;
        self.start(step);
    }
}

impl Machine for PythonMachine {
    fn kind(&self) -> MachineKind {
        MachineKind::new(KIND, VERSION)
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.state).unwrap_or_default()
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        if self.state.ending.is_some() {
            return;
        }
        match input {
            Input::Begin { run, .. } if self.state.run.is_none() => self.begin(run, step),
            Input::Finished { effect, outcome } => self.finished(effect, outcome, step),
            Input::Stop(limit) => self.stop(limit),
            Input::Cancel { reason } => self.end(Status::Cancelled { reason }),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.state.ending.as_ref()
    }
}

/// Returns the first JSON value of a text, if it is complete.
fn first_value(text: &str) -> Option<Value> {
    serde_json::Deserializer::from_str(text)
        .into_iter()
        .next()?
        .ok()
}

#[cfg(test)]
mod tests;
