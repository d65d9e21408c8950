//! Fingerprints of the inputs of effects, which a replay compares with the recorded ones.
//!
//! They detect a program that has changed since the run: another system prompt, other arguments,
//! another history.

use std::sync::Arc;

use levity_core::{Digest, Effect, History, Message};

/// The one input that not every model call has.
pub(crate) const OUTPUT_SCHEMA: &str = "output schema";

/// Computes fingerprints of the inputs of effects.
///
/// A history usually only grows, so its fingerprint continues from the last one: the cost depends
/// on the new messages. Full texts of long results are not part of a call, may be dropped later,
/// and are not included.
#[derive(Debug, Default)]
pub(crate) struct Fingerprint {
    seen: Vec<Arc<Message>>,
    history: Option<Digest>,
}

impl Fingerprint {
    pub(crate) fn inputs(&mut self, effect: &Effect) -> Vec<(String, Digest)> {
        let named = |name: &str, digest| (name.to_owned(), digest);
        match effect {
            Effect::Model(call) => {
                let request = &call.request;
                let mut inputs = vec![
                    named("system", Digest::of(&request.system)),
                    named("history", self.history(&request.history)),
                    named(
                        "options",
                        Digest::of(&request.options).with_json(&request.tool_choice),
                    ),
                ];
                if let Some(output) = &request.output {
                    inputs.push(named(OUTPUT_SCHEMA, Digest::of(output)));
                }
                inputs
            }
            Effect::Tool(run) => vec![named("arguments", Digest::of(&run.call.args))],
            Effect::Ask(ask) => vec![named("arguments", Digest::of(&ask.call.args))],
            Effect::Wait(wait) => vec![named("time", Digest::of(&wait.time))],
            // The messages are in the fingerprint of the next model call.
            Effect::Save(save) => vec![named(
                "place",
                Digest::of(&(save.change.at, save.change.end())),
            )],
            Effect::Child(child) => {
                let mut inputs = vec![named("input", Digest::of(&child.input))];
                if !child.media.is_empty() {
                    inputs.push(named("media", Digest::of(&child.media)));
                }
                inputs
            }
            _ => Vec::new(),
        }
    }

    /// Messages are compared by address. A history that was rebuilt has other addresses and is
    /// hashed from the start, with the same result.
    fn history(&mut self, history: &History) -> Digest {
        let messages = history.messages();
        let known = messages.get(..self.seen.len());
        let grown = known.is_some_and(|now| {
            now.iter()
                .zip(&self.seen)
                .all(|(now, then)| Arc::ptr_eq(now, then))
        });
        if !grown {
            *self = Self::default();
        }
        let start = self.history.unwrap_or(Digest::EMPTY);
        let new = messages.iter().skip(self.seen.len());
        let digest = new
            .clone()
            .fold(start, |digest, message| digest.with_json(&message.shown()));
        self.seen.extend(new.cloned());
        self.history = Some(digest);
        digest
    }
}
