//! Signals: what the model tells whoever runs it.

use levity_core::{
    Exchange, MachineOutput, Signal, Status, ToolCall, ToolError, ToolErrorKind, ToolOutput,
    ToolResult,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::asked;

use super::AgentMachine;

/// How many signals a run takes in.
const MOST: usize = 256;
/// How many bytes their arguments may have together, as JSON.
const MOST_BYTES: usize = 256 << 10;

/// The signals of a run.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) signals: Vec<Signal>,
    /// How many bytes their arguments have.
    bytes: usize,
}

impl AgentMachine {
    pub(super) fn is_signal(&self, call: &ToolCall) -> bool {
        self.spec.signals.contains_key(&call.name)
    }

    /// Takes in the signal that a run ends with, if that is all that is called for. Returns the
    /// words beside it.
    pub(super) fn take_last(&mut self, exchange: &mut Exchange) -> Option<String> {
        if self.has_more_to_hear() {
            return None;
        }
        let calls: Vec<ToolCall> = exchange.unanswered().take(2).cloned().collect();
        let [call] = &*calls else { return None };
        if !self.is_last(call) {
            return None;
        }
        let (args, bytes) = self.signal_args(call).ok()?;
        self.note_signal(call, args, bytes);
        let _ = exchange.answer(ToolResult::new(call, Ok(ToolOutput::text(asked::NOTED))));
        Some(exchange.reply().text().into_owned())
    }

    /// The run ends with a signal.
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

    /// Takes in a signal after which the run goes on, or says why not.
    pub(super) fn signal(&mut self, call: &ToolCall, step: &mut MachineOutput) {
        let outcome = match self.signal_args(call) {
            Ok(_) if self.is_last(call) => Err(self.put_off(call)),
            Ok((args, bytes)) => {
                self.note_signal(call, args, bytes);
                Ok(ToolOutput::text(asked::NOTED))
            }
            Err(error) => Err(error),
        };
        self.answered(ToolResult::new(call, outcome), step);
    }

    /// Whether a call is a signal that the run ends with.
    fn is_last(&self, call: &ToolCall) -> bool {
        self.spec
            .signals
            .get(&call.name)
            .is_some_and(|tool| tool.is_last)
    }

    /// Why a signal that ends the run, and with which nothing else is wrong, does not end it.
    fn put_off(&self, call: &ToolCall) -> ToolError {
        let open = self.state.phase.exchange();
        let why = match open.and_then(|open| open.reply().calls().nth(1)) {
            Some(_) => asked::not_alone(&call.name),
            None => asked::SPOKEN.to_owned(),
        };
        ToolError::new(ToolErrorKind::Denied, why)
    }

    /// The arguments of a signal and how many bytes they are, if they are right and there is room
    /// for them.
    fn signal_args(&self, call: &ToolCall) -> Result<(Value, usize), ToolError> {
        let Some(tool) = self.spec.signals.get(&call.name) else {
            return Err(ToolError::failed("this is no signal"));
        };
        let args = tool.arguments.of(call)?.into_owned();
        let bytes = args.to_string().len();
        match self.no_room(&call.name, bytes) {
            Some(why) => Err(ToolError::new(ToolErrorKind::Denied, why)),
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
        if count >= MOST {
            return Some(format!(
                "`{name}` was not taken: a run has room for {MOST} such calls; go on without it"
            ));
        }
        let kib = MOST_BYTES >> 10;
        (used.saturating_add(bytes) > MOST_BYTES).then(|| {
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
