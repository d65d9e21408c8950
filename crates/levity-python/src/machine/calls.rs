//! Tool calls, from the request of the code to the answer.
//!
//! Denied calls, failed tools and exceeded limits are exceptions in the code, which it can catch.
//! Only the end of the run itself stops the code.

use levity_core::{Ask, Decision, Effect, MachineOutput, ToolCall, ToolRun};

use crate::engine::{Answer, JobStart};

use super::{Paused, PythonMachine, Waiting};

impl PythonMachine {
    fn call(&self, at: usize) -> Option<ToolCall> {
        Some(self.state.paused.as_ref()?.calls.get(at)?.call.clone())
    }

    /// Asks a person about a call that needs approval.
    pub(super) fn ask(&mut self, at: usize, reason: String, step: &mut MachineOutput) {
        let (Some(run), Some(call)) = (self.state.run.clone(), self.call(at)) else {
            return;
        };
        self.request_effect(
            Waiting::Decision(at),
            |effect| Effect::Ask(Ask::new(run, effect, call, reason)),
            step,
        );
    }

    /// Applies a decision: the call is made, perhaps with other arguments, or answered without
    /// being made.
    pub(super) fn decided(&mut self, at: usize, decision: Decision, step: &mut MachineOutput) {
        let Some(mut call) = self.call(at) else {
            return;
        };
        match decision {
            Decision::Allow => {}
            Decision::Edit { args } => (call.args, call.raw) = (args, None),
            Decision::Answer { text } => {
                return self.answered(at, Answer::Value(text.into()), step);
            }
            Decision::Deny { reason } => {
                return self.answered(
                    at,
                    Answer::Error(format!("the call was denied: {reason}")),
                    step,
                );
            }
            _ => {
                let message = "the kind of decision is unknown".to_owned();
                return self.answered(at, Answer::Error(message), step);
            }
        }
        self.request_effect(
            Waiting::Tool(at),
            |_| Effect::Tool(ToolRun::approved(call)),
            step,
        );
    }

    /// Stores the answer to a call; after the last answer, the program resumes.
    pub(super) fn answered(&mut self, at: usize, answer: Answer, step: &mut MachineOutput) {
        if matches!(answer, Answer::Error(_)) {
            self.state.failed_calls = self.state.failed_calls.saturating_add(1);
        }
        let Some(paused) = &mut self.state.paused else {
            return;
        };
        if let Some(pending) = paused.calls.get_mut(at) {
            pending.answer.get_or_insert(answer);
        }
        if paused.calls.iter().any(|pending| pending.answer.is_none()) {
            return;
        }
        let Some(Paused {
            state,
            awaits,
            calls,
        }) = self.state.paused.take()
        else {
            return;
        };
        let answers = calls
            .into_iter()
            .filter_map(|call| Some((call.id, call.answer?)))
            .collect();
        self.run_segment(
            JobStart::Snapshot {
                state,
                awaits,
                answers,
            },
            step,
        );
    }
}
