//! Signals: what the model tells whoever runs it.

use levity_core::{
    Exchange, Signal, Status, Step, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolResult,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::asked;
use crate::spec::SignalTool;

use super::AgentMachine;

/// How many signals a run takes in.
const MOST: usize = 256;
/// How many bytes their arguments may have together, as JSON.
const MOST_BYTES: usize = 256 << 10;

/// The signals of a run.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Noted {
    signals: Vec<Signal>,
    /// How many bytes their arguments have.
    bytes: usize,
}

impl AgentMachine {
    /// What the model has told whoever runs it.
    pub(crate) fn signals(&self) -> &[Signal] {
        self.state.noted.as_ref().map_or(&[], |noted| &noted.signals)
    }

    pub(super) fn is_signal(&self, call: &ToolCall) -> bool {
        self.spec.signals.contains_key(&call.name)
    }

    /// Takes in the signal that a run ends with, if that is all that is called for. Returns the words beside it.
    pub(super) fn take_last(&mut self, exchange: &mut Exchange) -> Option<String> {
        if !self.state.said.is_empty() && self.closing().is_none() {
            return None;
        }
        let calls: Vec<ToolCall> = exchange.unanswered().cloned().collect();
        let [call] = &*calls else { return None };
        let is_last = self.spec.signals.get(&call.name).is_some_and(|tool| tool.is_last);
        let args = self.signal_args(call).ok().filter(|_| is_last)?;
        self.note_signal(call, args).ok()?;
        let _ = exchange.answer(ToolResult::new(call, Ok(ToolOutput::text(asked::NOTED))));
        Some(exchange.reply().text().into_owned())
    }

    /// The run ends with a signal.
    pub(super) fn end_with_signal(&mut self, exchange: Exchange, text: String, step: &mut Step) {
        self.state.stats.tool_calls = self.state.stats.tool_calls.saturating_add(1);
        self.close(exchange, &ToolError::failed("the call was not answered"));
        self.end(Status::Complete, text, None, step);
    }

    /// Takes in a signal after which the run goes on, or says why not.
    pub(super) fn signal(&mut self, call: &ToolCall, step: &mut Step) {
        let outcome = self.signal_args(call).and_then(|args| {
            self.may_go_on(call)?;
            self.note_signal(call, args)
        });
        let outcome = outcome.map(|()| ToolOutput::text(asked::NOTED));
        self.answered(ToolResult::new(call, outcome), step);
    }

    fn signal_args(&self, call: &ToolCall) -> Result<Value, ToolError> {
        let Some(SignalTool { arguments, .. }) = self.spec.signals.get(&call.name) else {
            return Err(ToolError::failed("this is no signal"));
        };
        arguments.of(call).map(std::borrow::Cow::into_owned)
    }

    /// A signal that ends the run has its place in `take_last`; it comes here when there is something else to look at.
    fn may_go_on(&self, call: &ToolCall) -> Result<(), ToolError> {
        if !self.spec.signals.get(&call.name).is_some_and(|tool| tool.is_last) {
            return Ok(());
        }
        let alone = self.state.exchange.as_ref().is_some_and(|open| open.reply().calls().nth(1).is_none());
        self.has_room(call, 0)?;
        let why = if alone { asked::SPOKEN.to_owned() } else { asked::not_alone(&call.name) };
        Err(ToolError::new(ToolErrorKind::Denied, why))
    }

    fn note_signal(&mut self, call: &ToolCall, args: Value) -> Result<(), ToolError> {
        let bytes = args.to_string().len();
        self.has_room(call, bytes)?;
        let noted = self.state.noted.get_or_insert_default();
        noted.bytes = noted.bytes.saturating_add(bytes);
        noted.signals.push(Signal::new(&*call.name, args));
        Ok(())
    }

    fn has_room(&self, call: &ToolCall, bytes: usize) -> Result<(), ToolError> {
        let (count, used) =
            self.state.noted.as_ref().map_or((0, 0), |noted| (noted.signals.len(), noted.bytes));
        let name = &call.name;
        let full = if count >= MOST {
            format!("`{name}` was not taken: a run has room for {MOST} such calls; go on without it")
        } else if used.saturating_add(bytes) > MOST_BYTES {
            let most = MOST_BYTES >> 10;
            format!(
                "`{name}` was not taken: such calls have room for {most} KiB in a run, all together; say less"
            )
        } else {
            return Ok(());
        };
        Err(ToolError::new(ToolErrorKind::Denied, full))
    }
}
