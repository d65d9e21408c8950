//! The end: validates the answer, or stops the run without one.

use std::sync::Arc;

use levity_core::{
    Ending, EventKind, Failure, MachineOutput, Message, Phase as Told, Status, ToolError,
    ToolErrorKind,
};
use serde_json::Value;

use crate::notes;

use super::AgentMachine;
use super::budget::Closing;
use super::phase::{Phase, Turn};

impl AgentMachine {
    pub(super) fn answer(&mut self, turn: Turn, message: Arc<Message>, step: &mut MachineOutput) {
        let text = self.state.conversation.text_of_last(turn.paused) + &message.text();
        self.add(message);
        if self.has_pending_messages() {
            return self.act(step);
        }
        let status = match self.closing() {
            Some(Closing::Limit(limit)) if self.has_tools() && !turn.offered => {
                Status::BestEffort(limit)
            }
            _ => Status::Complete,
        };
        self.check_answer(&text, status, step);
    }

    pub(super) fn check_answer(&mut self, text: &str, status: Status, step: &mut MachineOutput) {
        let Some(output) = &self.output else {
            return self.end(status, text.to_owned(), None, step);
        };
        match output.check(text) {
            Ok(value) => self.end(status, text.to_owned(), Some(value), step),
            Err(complaint) if self.state.corrections.wrong_answers < self.spec.output_retries => {
                self.state.corrections.wrong_answers =
                    self.state.corrections.wrong_answers.saturating_add(1);
                self.note(notes::wrong_shape(&complaint), step);
                self.act(step);
            }
            Err(complaint) => self.stop(Status::Failed(Failure::Output(complaint)), step),
        }
    }

    /// Ends without an answer: closes open calls, and uses the model's last text as the answer.
    pub(super) fn stop(&mut self, status: Status, step: &mut MachineOutput) {
        let text = self.close_open();
        self.end(status, text, None, step);
    }

    /// Ends without an answer, and without waiting for a save in progress.
    pub(super) fn stop_now(&mut self, status: Status, step: &mut MachineOutput) {
        // The run may already have an ending.
        let ending = self.state.phase.take_ending().unwrap_or_else(|| {
            let text = self.close_open();
            Box::new(self.conclude(status, text, None, step))
        });
        self.has_ended(ending);
    }

    /// Marks the run as ended, after which no more input is expected.
    pub(super) fn has_ended(&mut self, mut ending: Box<Ending>) {
        if self.state.task.tells_said {
            ending.messages = self.state.conversation.own_without_notes();
        }
        ending.conversation_end = self.state.conversation.talk_end().map(Box::new);
        self.state.phase = Phase::Ended(ending);
    }

    /// Closes the open calls, and returns the model's last text.
    fn close_open(&mut self) -> String {
        if let Some(exchange) = self.state.phase.take_exchange() {
            let message =
                "the run ended before the call was answered; it may have taken effect in part";
            let error = ToolError::new(ToolErrorKind::Cancelled, message);
            self.close(exchange, &error);
        }
        self.state.conversation.last_text()
    }

    pub(super) fn end(
        &mut self,
        status: Status,
        text: String,
        value: Option<Value>,
        step: &mut MachineOutput,
    ) {
        let ending = self.conclude(status, text, value, step);
        self.end_saved(ending, step);
    }

    fn conclude(
        &mut self,
        status: Status,
        text: String,
        value: Option<Value>,
        step: &mut MachineOutput,
    ) -> Ending {
        // Messages that arrived too late are retained for a run that continues from here.
        self.state
            .conversation
            .add_pending_messages(self.spec.reader);
        step.emit(EventKind::Phase(Told::End));
        let mut ending = self.state.tally.ending(status, text);
        (ending.value, ending.finish) = (value, self.state.tally.finish.clone());
        ending
    }
}
