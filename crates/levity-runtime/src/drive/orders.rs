//! What a run is told while it is driven: by the holder of its handle, or by another process.

use levity_core::{Command, ControlError, Decision, EffectId, Entry, Machine, Outcome, Post};

use super::{Ack, Driver, MAX_SAID};
use crate::control::{Order, What};

impl<M: Machine + 'static> Driver<M> {
    pub(super) fn take_order(&mut self, order: Order) -> (Vec<Entry>, Vec<Ack>) {
        let obeyed = match order.what {
            What::Command(command) => self.command(command),
            What::Decide(effect, decision) => self.decide(effect, decision),
            What::Resolve(effect, resolution) => {
                let not_lost = ControlError::NotAsked { run: self.state.run.clone(), effect };
                self.resolved(effect, resolution).ok_or(not_lost)
            }
            What::Asks(answer) => {
                let _ =
                    answer.send(self.questions.iter().map(|(_, question)| question.ask.clone()).collect());
                return (Vec::new(), vec![order.done]);
            }
        };
        match obeyed {
            Ok(entry) => (vec![entry], vec![order.done]),
            Err(error) => {
                let _ = order.done.send(Err(error));
                (Vec::new(), Vec::new())
            }
        }
    }

    /// The entries for what others have left for the run. What makes no sense any more is left aside: whoever
    /// left it could not know.
    pub(super) fn take_posts(&mut self, posts: Vec<Post>) -> Vec<Entry> {
        let mut room = MAX_SAID.saturating_sub(self.state.said);
        let entry = |post| match post {
            Post::Command(Command::Say { .. }) if room == 0 => None,
            Post::Command(command) => {
                room -= usize::from(matches!(command, Command::Say { .. }));
                self.command(command).ok()
            }
            Post::Decide { effect, decision } => self.decide(effect, decision).ok(),
            Post::Resolve { effect, resolution } => self.resolved(effect, resolution),
            _ => None,
        };
        posts.into_iter().filter_map(entry).collect()
    }

    fn command(&self, command: Command) -> Result<Entry, ControlError> {
        match command {
            Command::Say { .. } if self.state.said >= MAX_SAID => {
                Err(ControlError::Full(self.state.run.clone()))
            }
            command => Ok(Entry::Commanded(command)),
        }
    }

    fn decide(&mut self, effect: EffectId, decision: Decision) -> Result<Entry, ControlError> {
        match self.questions.remove(effect) {
            // Somebody has answered, so the approver need not.
            Some(question) => {
                if let Some(approver) = question.approver {
                    approver.abort();
                }
            }
            // What an earlier process has asked need not be asked again.
            None if self.state.left_question(effect).is_some() => {}
            None => return Err(ControlError::NotAsked { run: self.state.run.clone(), effect }),
        }
        Ok(Entry::finished(effect, Outcome::Decision(decision)))
    }
}
