//! Execution of a program up to its next tool calls, on the calling thread.
//!
//! A program runs in segments. A segment ends when the program completes, fails, or waits for
//! tools; in the last case, the interpreter's state is serialized and the next segment starts from
//! it, perhaps in another process. A program without `await` pauses at every call. A program with
//! `await` collects calls until it awaits, so that tools run in parallel.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use levity_core::CancelToken;
use monty::{Dump, FunctionCall, MontyRun, NameLookup, OsCall, RunProgress, Session, SessionRef};
use monty_types::{
    CompileOptions, ExcType, ExtFunctionResult, MontyException, MontyObject, NameLookupResult,
    PrintWriter, ResourceLimits, ResourceTracker,
};
use serde_json::{Map, Value};

use crate::fault::{ProgramFault, ProgramFaultKind};
use crate::limits::ProgramLimits;
use crate::output::floor;
use crate::values;

mod awaits;
mod job;
pub(crate) mod watch;
mod writer;

pub(crate) use job::{Answer, End, Job, JobStart, PendingCall, Segment};
use writer::Writer;

/// The file name of a program in tracebacks.
pub(crate) const FILE: &str = "program.py";

/// Runs a segment. A panic of the interpreter is a fault like any other.
pub(crate) fn run(job: &Job, cancel: &CancelToken) -> Segment {
    let began = now();
    let limits = job.limits;
    let mut writer = Writer {
        printed: job.printed.clone(),
        max: limits.output,
        cancel,
    };
    let end = {
        let segment = AssertUnwindSafe(|| {
            watch::watched(limits, || Run::new(job, &mut writer).run_to_pause())
        });
        catch_unwind(segment).unwrap_or_else(|_| {
            Err(ProgramFault::new(
                ProgramFaultKind::Crashed,
                "the interpreter panicked: write the program differently",
            ))
        })
    };
    let end = if cancel.is_cancelled() {
        Err(ProgramFault::cancelled())
    } else {
        end
    };
    writer.printed.settle(limits.output);
    Segment {
        end: end.unwrap_or_else(End::Failed),
        printed: writer.printed,
        time: now().duration_since(began),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the run time of a program is measured with the real clock"
)]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// A segment in progress.
struct Run<'a, 'w> {
    job: &'a Job,
    writer: &'a mut Writer<'w>,
    /// The calls that the program has made and not awaited yet.
    pending_calls: Vec<PendingCall>,
    awaits: bool,
}

type Step = Result<RunProgress, MontyException>;

impl<'a, 'w> Run<'a, 'w> {
    fn new(job: &'a Job, writer: &'a mut Writer<'w>) -> Self {
        Self {
            job,
            writer,
            pending_calls: Vec::new(),
            awaits: false,
        }
    }

    /// Runs the interpreter step by step, and answers everything that it asks for except tool
    /// calls.
    fn run_to_pause(&mut self) -> Result<End, ProgramFault> {
        let mut progress = match &self.job.from {
            JobStart::Source { file, code, inputs } => self.start(file, code, inputs),
            JobStart::Snapshot {
                state,
                awaits,
                answers,
            } => self.resume(state, *awaits, answers),
        }?;
        loop {
            progress = match progress {
                RunProgress::Complete(value) => return Ok(self.done(&value)),
                RunProgress::NameLookup(lookup) => self.look_up(lookup),
                RunProgress::OsCall(call) => self.refuse(call),
                RunProgress::FunctionCall(call) if call.object_id.is_some() => {
                    let none = MontyException::new(
                        ExcType::AttributeError,
                        Some("no such method".to_owned()),
                    );
                    call.resume(ExtFunctionResult::Error(none), self.print())
                }
                RunProgress::FunctionCall(call) => match self.call(call)? {
                    CallOutcome::Resume(step) => *step,
                    CallOutcome::Paused(end) => return Ok(end),
                },
                RunProgress::ResolveFutures(ref waiting) => {
                    let pending = waiting.pending_call_ids().to_vec();
                    let pending_calls = std::mem::take(&mut self.pending_calls);
                    let calls = pending_calls
                        .into_iter()
                        .filter(|call| pending.contains(&call.id))
                        .collect();
                    return self.pause(&progress, calls);
                }
            }
            .map_err(|exception| ProgramFault::raised(&exception))?;
        }
    }

    /// Compiles the source and runs it up to the first question of the interpreter.
    fn start(
        &mut self,
        file: &str,
        code: &str,
        inputs: &Map<String, Value>,
    ) -> Result<RunProgress, ProgramFault> {
        let limits = self.job.limits;
        if code.len() > limits.source {
            let message = format!(
                "the source has {} bytes, and the limit is {}",
                code.len(),
                limits.source
            );
            return Err(ProgramFault::new(ProgramFaultKind::Size, message));
        }
        self.awaits = awaits::uses_await(code);
        let (names, values): (Vec<_>, Vec<_>) = inputs
            .iter()
            .map(|(name, value)| (name.clone(), values::to_python(value)))
            .unzip();
        let resources = ResourceLimits::default()
            .max_duration(limits.time)
            .max_memory(limits.memory)
            .max_recursion_depth(limits.recursion.min(ProgramLimits::MAX_RECURSION));
        MontyRun::new(code.to_owned(), file, names, CompileOptions::default())
            .and_then(|program| {
                program.start(values, ResourceTracker::new(resources), self.print())
            })
            .map_err(|exception| ProgramFault::raised(&exception))
    }

    /// Restores a paused program, and passes the answers to its calls. The state comes from the
    /// journal and is checked.
    fn resume(
        &mut self,
        state: &str,
        awaits: bool,
        answers: &[(u32, Answer)],
    ) -> Result<RunProgress, ProgramFault> {
        let broken = |what: &str| {
            ProgramFault::new(
                ProgramFaultKind::Crashed,
                format!("cannot read the paused program: {what}"),
            )
        };
        let bytes = BASE64_STANDARD
            .decode(state)
            .map_err(|_| broken("its state is not base64"))?;
        let dump = Dump::load(&bytes).map_err(|error| broken(&error.to_string()))?;
        let Session::Running(progress) = dump.state else {
            return Err(broken("it is not paused"));
        };
        self.awaits = awaits;
        let mut answers = answers
            .iter()
            .map(|(id, answer)| (*id, answer_to_python(answer)));
        match *progress {
            RunProgress::FunctionCall(call) => {
                let (_, answer) = answers
                    .next()
                    .ok_or_else(|| broken("its call has no answer"))?;
                call.resume(answer, self.print())
            }
            RunProgress::ResolveFutures(waiting) => {
                let pending = waiting.pending_call_ids().to_vec();
                let answers = answers.filter(|(id, _)| pending.contains(id)).collect();
                waiting.resume(answers, self.print())
            }
            _ => return Err(broken("it waits for no call")),
        }
        .map_err(|exception| ProgramFault::raised(&exception))
    }

    fn print(&mut self) -> PrintWriter<'_> {
        PrintWriter::Callback(&mut *self.writer)
    }

    fn done(&self, value: &MontyObject) -> End {
        let (result, cut) = bounded(values::to_json(value), self.job.limits.result);
        End::Done { result, cut }
    }

    fn look_up(&mut self, lookup: NameLookup) -> Step {
        let known = lookup.object_id().is_none()
            && self.job.functions.iter().any(|f| f.name == lookup.name);
        let answer = match known {
            true => NameLookupResult::Value(MontyObject::Function {
                name: lookup.name.clone(),
                docstring: None,
            }),
            false => NameLookupResult::Undefined,
        };
        lookup.resume(answer, self.print())
    }

    /// Rejects access to files, the environment and the clock.
    fn refuse(&mut self, call: OsCall) -> Step {
        let name = call.function_call.name();
        let message = format!(
            "`{name}` is not available: this Python has no files, no environment and no clock; \
             use variables or the functions in the description"
        );
        let error = MontyException::new(ExcType::PermissionError, Some(message));
        call.resume(ExtFunctionResult::Error(error), self.print())
    }

    /// Handles a call of a tool. Unknown functions and wrong arguments raise exceptions in the
    /// program, which it can catch; the limit on calls ends it.
    fn call(&mut self, call: FunctionCall) -> Result<CallOutcome, ProgramFault> {
        let Some(function) = self
            .job
            .functions
            .iter()
            .find(|f| f.name == call.function_name)
        else {
            let missing = ExtFunctionResult::NotFound(call.function_name.clone());
            return Ok(CallOutcome::resume_with(call.resume(missing, self.print())));
        };
        let args = match function.bind(&call.args, &call.kwargs) {
            Ok(args) => args,
            Err(message) => {
                let error = MontyException::new(ExcType::TypeError, Some(message));
                return Ok(CallOutcome::resume_with(
                    call.resume(ExtFunctionResult::Error(error), self.print()),
                ));
            }
        };
        if self.pending_calls.len() >= self.job.calls_left {
            let message = format!("the limit is {} tool calls", self.job.limits.calls);
            let error = MontyException::new(ExcType::RuntimeError, Some(message));
            let fault = call
                .abort(error, self.print())
                .err()
                .map(|exception| ProgramFault::raised(&exception));
            let fault = fault.unwrap_or_else(|| {
                ProgramFault::new(ProgramFaultKind::Calls, "too many tool calls")
            });
            return Err(ProgramFault {
                kind: ProgramFaultKind::Calls,
                ..fault
            });
        }
        let pending = PendingCall {
            id: call.call_id,
            tool: function.tool.clone(),
            args,
        };
        if self.awaits {
            self.pending_calls.push(pending);
            return Ok(CallOutcome::resume_with(call.resume_pending(self.print())));
        }
        self.pause(&RunProgress::FunctionCall(call), vec![pending])
            .map(CallOutcome::Paused)
    }

    /// Serializes the program. A state beyond the limit is a fault, since every pause is stored in
    /// the journal.
    fn pause(&self, progress: &RunProgress, calls: Vec<PendingCall>) -> Result<End, ProgramFault> {
        let broken = |_| {
            ProgramFault::new(
                ProgramFaultKind::Crashed,
                "the program cannot be paused here",
            )
        };
        let dump = monty::dump(FILE, None, SessionRef::Running(progress)).map_err(broken)?;
        let max = self.job.limits.snapshot;
        if dump.len() > max {
            let message = format!(
                "the program's state has {} bytes while it waits for a tool, and the limit is \
                    {max}; \
                    store less in variables",
                dump.len()
            );
            return Err(ProgramFault::new(ProgramFaultKind::Size, message));
        }
        Ok(End::Paused {
            state: BASE64_STANDARD.encode(dump),
            awaits: self.awaits,
            calls,
        })
    }
}

/// The outcome of a call that the program made.
enum CallOutcome {
    Resume(Box<Step>),
    Paused(End),
}

impl CallOutcome {
    fn resume_with(step: Step) -> Self {
        Self::Resume(Box::new(step))
    }
}

fn answer_to_python(answer: &Answer) -> ExtFunctionResult {
    match answer {
        Answer::Value(value) => ExtFunctionResult::Return(values::to_python(value)),
        Answer::Error(message) => ExtFunctionResult::Error(MontyException::new(
            ExcType::RuntimeError,
            Some(message.clone()),
        )),
    }
}

/// Cuts a result of more than `max` bytes to the beginning of its JSON, as text. The flag is set
/// if the result was cut.
fn bounded(value: Value, max: usize) -> (Value, bool) {
    let text = value.to_string();
    if text.len() <= max {
        return (value, false);
    }
    let shown = &text[..floor(&text, max)];
    let shown = format!(
        "{shown}\n[.. cut: the result has {} bytes of JSON, and {max} are shown ..]",
        text.len()
    );
    (Value::String(shown), true)
}

#[cfg(test)]
mod tests;
