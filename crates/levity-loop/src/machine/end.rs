//! The end: the answer is checked, or the run stops without one.

use std::sync::Arc;

use levity_core::{Ending, Failure, MachineOutput, Message, Phase, Status, ToolError, ToolErrorKind};
use serde_json::Value;

use crate::notes;

use super::{AgentMachine, Closing, Waiting};

impl AgentMachine {
    pub(super) fn answer(&mut self, message: Arc<Message>, step: &mut MachineOutput) {
        let text = self.paused_text() + &message.text();
        self.state.paused = 0;
        self.add(message);
        if !self.state.said.is_empty() && self.closing().is_none() {
            return self.act(step);
        }
        let status = match self.closing() {
            Some(Closing::Limit(limit)) if self.has_tools() && !self.state.offered => {
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
            Err(complaint) if self.state.wrong_answers < self.spec.output_retries => {
                self.state.wrong_answers = self.state.wrong_answers.saturating_add(1);
                self.note(notes::wrong_shape(&complaint), step);
                self.act(step);
            }
            Err(complaint) => self.stop(Status::Failed(Failure::Output(complaint)), step),
        }
    }

    /// Ends without an answer: open calls are closed, and the last words stand in.
    pub(super) fn stop(&mut self, status: Status, step: &mut MachineOutput) {
        let text = self.close_open();
        self.end(status, text, None, step);
    }

    /// Ends without an answer and without waiting for what is being saved.
    pub(super) fn stop_now(&mut self, status: Status, step: &mut MachineOutput) {
        let ending = match self.state.leaving.take() {
            // There is an end already.
            Some(ending) => *ending,
            None => {
                let text = self.close_open();
                self.conclude(status, text, None, step)
            }
        };
        self.state.waiting.clear();
        self.has_ended(ending);
    }

    /// Nothing more comes.
    pub(super) fn has_ended(&mut self, mut ending: Ending) {
        if self.state.tells_said {
            ending.said = self.said_between(self.task(), self.state.history.len(), |_| true);
        }
        ending.talk = self.talk_end().map(Box::new);
        self.state.ending = Some(ending);
    }

    /// Closes what is open, and returns the last words.
    fn close_open(&mut self) -> String {
        if let Some(exchange) = self.state.exchange.take() {
            let message = "the run ended before the call was answered; it may have taken effect in part";
            let error = ToolError::new(ToolErrorKind::Cancelled, message);
            self.close(exchange, &error);
        }
        self.last_words()
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
        // What came too late to be taken in is kept for whoever goes on from here.
        for message in std::mem::take(&mut self.state.said) {
            self.add(message);
        }
        self.enter(Phase::End, step);
        self.state.waiting.retain(|_, waiting| *waiting == Waiting::Save);
        let mut ending = Ending::new(status);
        (ending.text, ending.value) = (text, value);
        ending.finish = self.state.finish.clone();
        (ending.usage, ending.stats) = (self.state.usage, self.state.stats);
        ending.signals = self.signals().to_vec();
        ending
    }
}
