//! Matches effects of a journal with the tool calls that the model made.
//!
//! A record of an effect has the id and the name of its call, and a fingerprint of the arguments,
//! but not the arguments. Reports and approvals show the arguments, so they are taken from the
//! model's replies. A wrong match would show a person the arguments of another call. The
//! fingerprint therefore has to match whenever the record has one.

use std::sync::Arc;

use levity_core::{Digest, EffectKind, EffectNote, History, Message, ToolCall, ToolError};
use serde_json::Value;

/// The tool calls in the replies of a run, under the ids that the run uses for them.
///
/// A reply may use an id twice, or one that was used before. [`History`] renames such calls, and so
/// does this type.
#[derive(Debug, Default)]
pub struct RequestedCalls {
    calls: Vec<ToolCall>,
    history: History,
}

impl RequestedCalls {
    /// Adds the calls of a reply.
    pub fn add(&mut self, reply: &Message) {
        // A message without calls opens no exchange.
        let Ok(exchange) = self.history.open(Arc::new(reply.clone())) else {
            return;
        };
        self.calls.extend(exchange.reply().calls().cloned());
        self.history
            .close(exchange, &ToolError::failed("the answer is not needed"));
    }

    /// Replaces the arguments of the call of an effect, after a person edited them.
    pub fn edit(&mut self, note: &EffectNote, args: &Value) {
        if let Some(at) = self.place(note) {
            self.calls[at].args = args.clone();
        }
    }

    /// Returns the call that an effect performs, or asks approval for.
    ///
    /// Returns `None` if no call has the id, the name and the arguments of the effect: it must not
    /// be confused with another one.
    pub fn find(&self, note: &EffectNote) -> Option<&ToolCall> {
        self.calls.get(self.place(note)?)
    }

    /// The last matching call wins, because a later reply may use the id again.
    fn place(&self, note: &EffectNote) -> Option<usize> {
        let id = note.call.as_ref()?;
        let wanted = note
            .inputs
            .iter()
            .find(|(name, _)| name == "arguments")
            .map(|(_, digest)| *digest);
        let fits = |call: &ToolCall| {
            (note.kind == EffectKind::Child || *call.name == *note.name)
                && wanted.is_none_or(|wanted| wanted == Digest::of(&call.args))
        };
        let by_id = self
            .calls
            .iter()
            .rposition(|call| call.id == *id && fits(call));
        // The ids of a conversation before the run are not known here, and a call may have been
        // renamed because of them.
        by_id.or_else(|| {
            self.calls
                .iter()
                .rposition(|call| wanted.is_some() && fits(call))
        })
    }
}
