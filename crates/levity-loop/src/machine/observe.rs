//! Observe and reflect: processes the results of tools.

use levity_core::{
    Content, EventKind, MachineOutput, Phase as Told, ToolCall, ToolError, ToolResult,
};
use serde_json::Value;

use crate::notes;
use crate::strategy::{Reflection, TurnSummary};

use super::AgentMachine;
use super::phase::{Phase, Question};

impl AgentMachine {
    pub(super) fn answered(&mut self, mut result: ToolResult, step: &mut MachineOutput) {
        let Phase::Calling(calls) = &mut self.state.phase else {
            return;
        };
        if let Some(args) = calls.edited.remove(&result.call) {
            note_edited_args(&mut result, &args);
        }
        // These were already emitted, and are not part of the conversation.
        result.guarded = Vec::new();
        result.changes = Box::default();
        self.state
            .tally
            .count_calls(0, u64::from(result.is_error()));
        let is_long = result.whole.is_some();
        // A second answer to a call is ignored.
        let _ = calls.exchange.answer(result);
        let is_complete = calls.exchange.is_complete();
        if is_long {
            self.state.tools.offer_reader(&self.spec);
            self.bound_retained();
        }
        if is_complete {
            self.observe(step);
        }
    }

    pub(super) fn observe(&mut self, step: &mut MachineOutput) {
        let Some(exchange) = self.state.phase.take_exchange() else {
            return;
        };
        step.emit(EventKind::Phase(Told::Observe));
        let reply = exchange.reply().clone();
        self.close(exchange, &ToolError::failed("the call was not answered"));
        step.emit(EventKind::Phase(Told::Reflect));
        let answer = self.state.conversation.history.messages().last().cloned();
        let results = answer.iter().flat_map(|answer| answer.results());
        let calls: Vec<(&ToolCall, &ToolResult)> = reply.calls().zip(results).collect();
        for (call, result) in &calls {
            if let Some(times) = self.state.corrections.repeated_failure(call, result) {
                self.note(notes::repeated(&call.name, times), step);
            }
        }
        if calls.iter().all(|(_, result)| result.is_error()) {
            self.note(notes::ALL_FAILED.to_owned(), step);
        }
        let task = &self.state.task;
        let turn = TurnSummary {
            number: self.state.tally.stats.turns,
            goal: &task.goal,
            plan: &task.plan,
            calls: &calls,
        };
        match self.spec.reflector.reflect(&turn) {
            Reflection::Continue => {}
            Reflection::Note(text) => self.note(text, step),
            Reflection::Finish => self.state.budget.enough(),
            // The last remaining call belongs to the answer.
            Reflection::Ask(_) if self.state.budget.is_low() => {}
            Reflection::Ask(prompt) => return self.ask(Question::Reflection(prompt), step),
        }
        self.act(step);
    }

    /// Handles a model's reflection on the turn.
    pub(super) fn reflected(&mut self, text: &str, step: &mut MachineOutput) {
        if !text.trim().is_empty() {
            self.note(notes::reflection(text), step);
        }
        self.act(step);
    }
}

/// Notes in the result that the call was made with other arguments.
fn note_edited_args(result: &mut ToolResult, args: &Value) {
    if result.content.is_empty() {
        result.content.extend(
            result
                .value
                .as_ref()
                .map(|value| Content::Text(value.to_string())),
        );
    }
    let note = format!("(A person changed the arguments of this call to {args}.)\n");
    result.content.insert(0, Content::Text(note));
}
