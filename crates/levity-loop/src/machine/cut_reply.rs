//! Retries replies that a limit cut, and makes room for replies that had none.

use levity_core::{MachineOutput, Message, Role};

use crate::notes;

use super::AgentMachine;
use super::phase::{Question, Turn};

/// The factor by which the limit on a reply is raised, up to [`MAX_RAISED_LIMIT`] tokens.
const RAISE_FACTOR: u64 = 4;
const MAX_RAISED_LIMIT: u64 = 16_384;

/// A cut reply below this many tokens, although more were allowed, had no room in the model's
/// window.
const CUT_BY_WINDOW: u64 = 512;

/// A request below this many tokens fits every model.
const ALWAYS_FITS: u64 = 1_024;

impl AgentMachine {
    /// Retries a cut reply if that can help, and returns `true` if it does.
    ///
    /// It raises the limit if the limit cut a call, and shrinks the request if the model's window
    /// was full.
    pub(super) fn ask_for_cut_reply(
        &mut self,
        turn: Turn,
        message: &Message,
        length: Option<u64>,
        step: &mut MachineOutput,
    ) -> bool {
        if self.state.task.rules < 3 {
            return false;
        }
        let limit = self.max_reply();
        let cut_call = turn.offered && message.calls().any(|call| call.raw.is_some());
        match limit {
            Some(limit)
                if cut_call
                    && self.state.corrections.max_reply.is_none()
                    && limit < MAX_RAISED_LIMIT =>
            {
                let raised = limit.saturating_mul(RAISE_FACTOR).min(MAX_RAISED_LIMIT);
                self.state.corrections.max_reply = Some(raised);
                self.note(notes::cut_call(limit, raised), step);
            }
            limit => {
                let length = length.unwrap_or(u64::MAX);
                let had_no_room =
                    length < CUT_BY_WINDOW && limit.is_none_or(|limit| length < limit);
                if !had_no_room || !self.make_smaller() {
                    return false;
                }
                self.note(notes::CUT.to_owned(), step);
            }
        }
        self.ask(Question::Reply(turn), step);
        true
    }

    /// Returns the limit on the tokens of a reply.
    pub(super) fn max_reply(&self) -> Option<u64> {
        self.state
            .corrections
            .max_reply
            .or(self.spec.options.max_tokens)
    }

    /// Makes requests smaller from now on, if the model's window is unknown and there are results
    /// to shorten. This happens once in a run.
    pub(super) fn make_smaller(&mut self) -> bool {
        let conversation = &mut self.state.conversation;
        let sent = conversation.sent_tokens();
        let has_results = conversation
            .history
            .messages()
            .iter()
            .any(|message| message.role == Role::Tool);
        if self.state.task.rules < 3 || sent < ALWAYS_FITS || !has_results {
            return false;
        }
        let window = &mut conversation.shown.window;
        let is_unknown = window
            .as_ref()
            .is_some_and(|window| window.max_tokens().is_none());
        if is_unknown {
            *window = window.take().map(|window| window.tokens(sent / 4 * 3));
        }
        is_unknown
    }
}
