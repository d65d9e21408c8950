//! Signals: calls by which the model notifies the caller of the run.
//!
//! A signal is a call that only the host reacts to, such as a handoff in a swarm. It is validated
//! and recorded like a tool call but has no effect, so neither policy nor approver sees it.

use levity_core::{
    Exchange, MachineOutput, Signal, Status, ToolCall, ToolError, ToolErrorKind, ToolOutput,
    ToolResult,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::control_tools;

use super::AgentMachine;

/// The maximum number of signals in a run.
const MAX_SIGNALS: usize = 256;
/// The maximum size of their arguments together, in bytes of JSON.
const MAX_SIGNAL_BYTES: usize = 256 << 10;

/// The signals of a run.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct SignalLog {
    pub(super) signals: Vec<Signal>,
    /// The size of their arguments in bytes.
    bytes: usize,
}

impl AgentMachine {
    pub(super) fn is_signal(&self, call: &ToolCall) -> bool {
        self.spec.signals.contains_key(&call.name)
    }

    /// Records the signal that ends a run, if it is the only call. Returns the text beside it.
    pub(super) fn take_last(&mut self, exchange: &mut Exchange) -> Option<String> {
        if self.has_pending_messages() {
            return None;
        }
        let calls: Vec<ToolCall> = exchange.unanswered().take(2).cloned().collect();
        let [call] = &*calls else { return None };
        if !self.is_last(call) {
            return None;
        }
        let (args, bytes) = self.signal_args(call).ok()?;
        self.note_signal(call, args, bytes);
        let _ = exchange.answer(ToolResult::new(
            call,
            Ok(ToolOutput::text(control_tools::RECORDED)),
        ));
        Some(exchange.reply().text().into_owned())
    }

    /// Ends the run with a signal.
    pub(super) fn end_with_signal(
        &mut self,
        exchange: Exchange,
        text: String,
        step: &mut MachineOutput,
    ) {
        self.state.tally.count_calls(1, 0);
        self.close(exchange, &ToolError::failed("the call was not answered"));
        self.end(Status::Complete, text, None, step);
    }

    /// Records a signal that does not end the run, or answers with the reason for not recording it.
    pub(super) fn signal(&mut self, call: &ToolCall, step: &mut MachineOutput) {
        let outcome = match self.signal_args(call) {
            Ok(_) if self.is_last(call) => Err(self.rejected_ending(call)),
            Ok((args, bytes)) => {
                self.note_signal(call, args, bytes);
                Ok(ToolOutput::text(control_tools::RECORDED))
            }
            Err(error) => Err(error),
        };
        self.answered(ToolResult::new(call, outcome), step);
    }

    /// Returns `true` if a call is a signal that ends the run.
    fn is_last(&self, call: &ToolCall) -> bool {
        self.spec
            .signals
            .get(&call.name)
            .is_some_and(|tool| tool.is_last)
    }

    /// Returns the error for a valid ending signal that does not end the run.
    fn rejected_ending(&self, call: &ToolCall) -> ToolError {
        let open = self.state.phase.exchange();
        let reason = match open.and_then(|open| open.reply().calls().nth(1)) {
            Some(_) => control_tools::not_alone_text(&call.name),
            None => control_tools::MESSAGE_PENDING.to_owned(),
        };
        ToolError::new(ToolErrorKind::Denied, reason)
    }

    /// Returns the arguments of a signal and their size in bytes, if they are valid and there is
    /// room for them.
    fn signal_args(&self, call: &ToolCall) -> Result<(Value, usize), ToolError> {
        let Some(tool) = self.spec.signals.get(&call.name) else {
            return Err(ToolError::failed("this tool is not a signal"));
        };
        let args = tool.arguments.of(call)?.into_owned();
        let bytes = args.to_string().len();
        match self.no_room(&call.name, bytes) {
            Some(reason) => Err(ToolError::new(ToolErrorKind::Denied, reason)),
            None => Ok((args, bytes)),
        }
    }

    fn no_room(&self, name: &str, bytes: usize) -> Option<String> {
        let (count, used) = self
            .state
            .tally
            .noted
            .as_ref()
            .map_or((0, 0), |noted| (noted.signals.len(), noted.bytes));
        if count >= MAX_SIGNALS {
            return Some(format!(
                "`{name}` was not taken: a run has room for {MAX_SIGNALS} such calls; go on \
                 without it"
            ));
        }
        let kib = MAX_SIGNAL_BYTES >> 10;
        (used.saturating_add(bytes) > MAX_SIGNAL_BYTES).then(|| {
            format!("`{name}` was not taken: a run has room for {kib} KiB of such calls; say less")
        })
    }

    fn note_signal(&mut self, call: &ToolCall, args: Value, bytes: usize) {
        let noted = self.state.tally.noted.get_or_insert_default();
        noted.bytes = noted.bytes.saturating_add(bytes);
        noted.signals.push(Signal::new(&*call.name, args));
    }
}

#[cfg(test)]
mod tests;
