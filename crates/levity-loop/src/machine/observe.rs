//! Observe and reflect: what the tools answered, and what to make of it.

use levity_core::{Content, Digest, MachineOutput, Phase, ToolCall, ToolError, ToolResult};
use serde_json::Value;

use crate::notes;
use crate::strategy::{Reflection, TurnSummary};

use super::{AgentMachine, Failed, Waiting};

impl AgentMachine {
    pub(super) fn answered(&mut self, mut result: ToolResult, step: &mut MachineOutput) {
        if let Some(args) = self.state.edited.remove(&result.call) {
            tell_edited(&mut result, &args);
        }
        // It was told, and is not part of what was said.
        result.guarded = Vec::new();
        if result.is_error() {
            self.state.stats.failed_calls = self.state.stats.failed_calls.saturating_add(1);
        }
        let Some(exchange) = &mut self.state.exchange else { return };
        let is_long = result.whole.is_some();
        // A second answer to a call is of no use.
        let _ = exchange.answer(result);
        let is_complete = exchange.is_complete();
        if is_long {
            self.may_read();
            self.bound_kept();
        }
        if is_complete {
            self.observe(step);
        }
    }

    pub(super) fn observe(&mut self, step: &mut MachineOutput) {
        let Some(exchange) = self.state.exchange.take() else { return };
        self.enter(Phase::Observe, step);
        let reply = exchange.reply().clone();
        self.close(exchange, &ToolError::failed("the call was not answered"));
        self.enter(Phase::Reflect, step);
        let answer = self.state.history.messages().last().cloned();
        let results = answer.iter().flat_map(|answer| answer.results());
        let calls: Vec<(&ToolCall, &ToolResult)> = reply.calls().zip(results).collect();
        for (call, result) in &calls {
            if let Some(times) = self.repeated_failure(call, result) {
                self.note(notes::repeated(&call.name, times), step);
            }
        }
        if calls.iter().all(|(_, result)| result.is_error()) {
            self.note(notes::ALL_FAILED.to_owned(), step);
        }
        let goal = self.state.goal.clone();
        let turn = TurnSummary {
            number: self.state.stats.turns,
            goal: &goal,
            plan: &self.state.plan,
            calls: &calls,
        };
        match self.spec.reflector.reflect(&turn) {
            Reflection::GoOn => self.act(step),
            Reflection::Note(text) => {
                self.note(text, step);
                self.act(step);
            }
            Reflection::Finish => {
                self.state.enough = true;
                self.act(step);
            }
            // A call that is the last one left belongs to the answer.
            Reflection::Ask(_) if self.state.wrap.is_some() => self.act(step),
            Reflection::Ask(prompt) => self.consult(Waiting::Reflection, "reflector", prompt, step),
        }
    }

    /// How often this call has failed like this in a row, once it is more than once.
    fn repeated_failure(&mut self, call: &ToolCall, result: &ToolResult) -> Option<u32> {
        if !result.is_error() && self.state.failures.is_empty() {
            return None;
        }
        let key = Digest::of(&call.name).with_json(&call.args).with_json(&call.raw).to_string();
        if !result.is_error() {
            self.state.failures.remove(&key);
            return None;
        }
        let how = Digest::of(&result.text());
        let failed = self.state.failures.entry(key).or_insert(Failed { how, times: 0 });
        let times = if failed.how == how { failed.times.saturating_add(1) } else { 1 };
        *failed = Failed { how, times };
        (times > 1).then_some(times)
    }
}

/// Tells the model that its call was made with other arguments.
fn tell_edited(result: &mut ToolResult, args: &Value) {
    if result.content.is_empty() {
        result.content.extend(result.value.as_ref().map(|value| Content::Text(value.to_string())));
    }
    let note = format!("(A person changed the arguments of this call to {args}.)\n");
    result.content.insert(0, Content::Text(note));
}
