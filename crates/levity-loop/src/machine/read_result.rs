//! Reads earlier results in pieces.

use std::borrow::Cow;

use levity_core::{CallId, Exchange, MachineOutput, ToolCall, ToolError, ToolOutput, ToolResult};

use crate::result_reader::{MAX_RETAINED, RESERVED_NAME, ReadRequest};

use super::AgentMachine;
use super::phase::Phase;

impl AgentMachine {
    /// Returns `true` if a call reads an earlier result. The tool belongs to the loop only once it
    /// is offered.
    pub(super) fn reads(&self, call: &ToolCall) -> bool {
        self.state.tools.reads && (call.name == self.spec.reader || call.name == RESERVED_NAME)
    }

    /// Returns `true` if there is any tool that the model can call.
    pub(super) fn has_tools(&self) -> bool {
        self.spec.has_tools || self.state.tools.reads
    }

    pub(super) fn read(&mut self, call: &ToolCall, step: &mut MachineOutput) {
        let outcome = ReadRequest::of(call).and_then(|wanted| self.piece(&wanted));
        self.answered(ToolResult::new(call, outcome), step);
    }

    fn piece(&self, wanted: &ReadRequest) -> Result<ToolOutput, ToolError> {
        let Some(result) = self.result(&wanted.id) else {
            let is_open = self
                .state
                .phase
                .exchange()
                .is_some_and(|open| open.call(&wanted.id).is_some());
            return Err(if is_open {
                wanted.too_early()
            } else {
                wanted.unknown()
            });
        };
        let text = match &result.whole {
            Some(whole) if whole.is_empty() => return Err(wanted.dropped()),
            Some(whole) => Cow::Borrowed(&**whole),
            None => result.text(),
        };
        Ok(wanted.piece(
            &text,
            self.state.task.max_piece.unwrap_or(self.spec.max_piece),
        ))
    }

    /// Returns the result of a call, in the open exchange or before it.
    fn result(&self, id: &CallId) -> Option<&ToolResult> {
        let open = self.state.phase.exchange().and_then(|open| open.result(id));
        open.or_else(|| self.state.conversation.history.result(id))
    }

    /// Drops the oldest retained parts of long results when they exceed the limit.
    pub(super) fn bound_retained(&mut self) {
        let conversation = &mut self.state.conversation;
        let open = self.state.phase.exchange().map_or(0, Exchange::kept);
        let before = conversation.history.retained_bytes();
        conversation
            .history
            .limit_retained_bytes(MAX_RETAINED.saturating_sub(open));
        // The sent history shares its messages with the full history and is derived from it.
        if conversation.history.retained_bytes() < before {
            conversation.show_summary(self.spec.reader);
        }
        if let Phase::Calling(calls) = &mut self.state.phase {
            calls.exchange.keep_wholes(MAX_RETAINED);
        }
    }
}
