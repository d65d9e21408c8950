//! What was said goes into its conversation, turn by turn.

use std::collections::BTreeSet;

use levity_core::{
    ConversationChange, ConversationId, Effect, EffectId, Ending, Failure, MachineOutput,
    MemoryError, MemoryErrorKind, Outcome, Save, Status, Summary, TalkEnd,
};
use serde::{Deserialize, Serialize};

use super::AgentMachine;
use super::conversation::Conversation;
use super::phase::Phase;

/// How often a last save is tried again.
const LAST_TRIES: u32 = 2;
/// So many messages without a summary by a model are brought back by the next run; beyond that, a
/// digest has to do.
const OWED: usize = 128;

/// The conversation that a run is part of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Talk {
    id: ConversationId,
    /// The position of the first message of the history.
    base: u64,
    /// How much of the history is saved.
    saved: usize,
    /// Up to where messages are in the summary that is saved.
    upto: u64,
    saving: Option<Saving>,
    tries: u32,
    /// Whether nothing more is saved.
    pub(super) off: bool,
    /// Whether the run was forked from another: it saves only as long as the conversation has not
    /// gone on without it.
    forked: bool,
}

/// A save that is not known to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Saving {
    /// It may have been made although it failed, so it is made again as it was, whatever came
    /// since.
    save: Save,
    /// How much of the history is saved with it.
    to: usize,
    /// The effect by which it is made, while that is under way.
    effect: Option<EffectId>,
}

impl Talk {
    /// Goes on with a conversation whose last `loaded` messages are the history.
    pub(crate) fn new(id: ConversationId, end: u64, loaded: usize, upto: u64) -> Self {
        let base = end.saturating_sub(loaded as u64);
        Self {
            id,
            base,
            saved: loaded,
            upto,
            saving: None,
            tries: 0,
            off: false,
            forked: false,
        }
    }

    /// Whether more is saved than the history has.
    pub(super) fn is_beyond(&self, len: usize) -> bool {
        self.saving
            .as_ref()
            .map_or(self.saved, |saving| saving.to.max(self.saved))
            > len
    }

    pub(crate) fn id(&self) -> &ConversationId {
        &self.id
    }

    pub(crate) fn forked(mut self: Box<Self>) -> Box<Self> {
        self.forked = true;
        self
    }

    /// Where a message of the history stands in the conversation; notes are not in it.
    fn position(&self, at: usize, notes: &BTreeSet<usize>) -> u64 {
        let notes = notes.range(..at).count();
        self.base.saturating_add(at.saturating_sub(notes) as u64)
    }
}

impl Conversation {
    /// How a run leaves it.
    pub(super) fn talk_end(&self) -> Option<TalkEnd> {
        let mut end = TalkEnd::new(self.talk.as_ref()?.id.clone(), self.session());
        end.unsaved = self.unsaved();
        Some(end)
    }

    /// What it is about, in a few words.
    pub(super) fn session(&self) -> String {
        let recent = self.said_between(self.shown.view.start(), self.history.len(), |_| true);
        let window = self.shown.window.clone().unwrap_or_default();
        window.digest(self.shown.view.summary().map(|summary| &**summary), &recent)
    }

    /// What was said and is not known to be saved. What was being saved comes first, as it was: it
    /// may be there.
    pub(super) fn unsaved(&self) -> Vec<Save> {
        let Some(talk) = self.talk.as_ref().filter(|talk| !talk.off) else {
            return Vec::new();
        };
        let from = talk.saving.as_ref().map_or(talk.saved, |saving| saving.to);
        let saving = talk.saving.as_ref().map(|saving| saving.save.clone());
        saving
            .into_iter()
            .chain(self.change(talk, from, self.history.len()))
            .collect()
    }

    /// What was said between two places of the history, and the summary.
    fn change(&self, talk: &Talk, from: usize, to: usize) -> Option<Save> {
        let new = self.said_between(from, to, |_| true);
        let mut change =
            ConversationChange::at(talk.position(from, &self.notes)).with_messages(new);
        change.summary = self
            .summary(talk)
            .filter(|summary| summary.upto <= change.end());
        (!change.is_empty()).then(|| Save::new(talk.id.clone(), change))
    }

    /// The summary, if it is another than the one that is saved.
    fn summary(&self, talk: &Talk) -> Option<Summary> {
        let view = &self.shown.view;
        let (text, start) = match &self.shown.owed {
            Some(owed) if view.start().saturating_sub(owed.from) < OWED => {
                (owed.summary.as_ref()?, owed.from)
            }
            _ => (view.summary()?, view.start()),
        };
        let upto = talk.position(start, &self.notes);
        // Before the first message, it is what the run began with.
        (start > 0 && upto > talk.upto).then(|| Summary::new(text.clone(), upto))
    }

    /// The effect by which something is being saved.
    pub(super) fn saving(&self) -> Option<EffectId> {
        self.talk.as_ref()?.saving.as_ref()?.effect
    }

    /// What is to be saved next, by an effect.
    fn next_save(&mut self, effect: EffectId) -> Option<Save> {
        let talk = self.talk.as_ref().filter(|talk| !talk.off)?;
        let saving = match &talk.saving {
            Some(Saving {
                effect: Some(_), ..
            }) => return None,
            Some(saving) => Saving {
                effect: Some(effect),
                ..saving.clone()
            },
            None => {
                let to = self.history.len();
                Saving {
                    save: self.change(talk, talk.saved, to)?,
                    to,
                    effect: Some(effect),
                }
            }
        };
        let save = saving.save.clone();
        self.talk.as_mut()?.saving = Some(saving);
        Some(save)
    }
}

impl AgentMachine {
    /// The conversation it is part of, by its id.
    pub(crate) fn conversation(&self) -> Option<&ConversationId> {
        self.state.conversation.talk.as_deref().map(Talk::id)
    }

    /// Saves what is new, unless something is being saved: then the next save has it.
    pub(super) fn save(&mut self, step: &mut MachineOutput) {
        if let Some(save) = self.state.conversation.next_save(self.state.next) {
            let effect = self.next_effect();
            step.want(effect, Effect::Save(save));
        }
    }

    pub(super) fn saved(&mut self, outcome: Outcome, step: &mut MachineOutput) {
        let done = match outcome {
            Outcome::Saved(done) => done,
            _ => Err(MemoryError::new(
                MemoryErrorKind::Io,
                "nobody knows whether it was saved",
            )),
        };
        let Some(talk) = &mut self.state.conversation.talk else {
            return;
        };
        let Some(mut saving) = talk.saving.take() else {
            return;
        };
        match done {
            Ok(()) => {
                let upto = saving
                    .save
                    .change
                    .summary
                    .as_ref()
                    .map_or(talk.upto, |summary| summary.upto);
                (talk.saved, talk.upto, talk.tries) = (saving.to, upto, 0);
            }
            Err(_) if talk.forked => talk.off = true,
            Err(error) if error.is_retryable() && talk.tries < LAST_TRIES => {
                talk.tries += 1;
                saving.effect = None;
                talk.saving = Some(saving);
            }
            Err(error) => {
                talk.off = true;
                return self.not_saved(error, step);
            }
        }
        self.leave(step);
    }

    /// The conversation cannot be saved: it went on elsewhere, or the store is broken.
    fn not_saved(&mut self, error: MemoryError, step: &mut MachineOutput) {
        let failed = Status::Failed(Failure::Memory(error));
        let Some(mut ending) = self.state.phase.take_ending() else {
            return self.stop(failed, step);
        };
        if ending.status.is_answer() {
            ending.status = failed;
        }
        self.has_ended(ending);
    }

    /// Ends once all is saved.
    pub(super) fn end_saved(&mut self, ending: Ending, step: &mut MachineOutput) {
        self.state.phase = Phase::Leaving(Box::new(ending));
        self.leave(step);
    }

    /// Saves what is left if the run is about to end, and ends it when all is saved.
    fn leave(&mut self, step: &mut MachineOutput) {
        if !matches!(self.state.phase, Phase::Leaving(_)) {
            return;
        }
        self.save(step);
        if self
            .state
            .conversation
            .talk
            .as_ref()
            .is_some_and(|talk| talk.saving.is_some())
        {
            return;
        }
        if let Some(ending) = self.state.phase.take_ending() {
            self.has_ended(ending);
        }
    }
}
