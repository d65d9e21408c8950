//! Saves the messages to their conversation, turn by turn.
//!
//! A save has a position, so repeating it is safe. While one is in progress, new messages wait for
//! the next one. The run ends only after the last save, and a failed last save turns an answer into
//! [`Failure::Memory`], with the answer still in the ending.

use std::collections::BTreeSet;

use levity_core::{
    ConversationChange, ConversationEnd, ConversationId, Effect, EffectId, Ending, Failure,
    MachineOutput, MemoryError, MemoryErrorKind, Outcome, Save, Status, Summary,
};
use serde::{Deserialize, Serialize};

use super::AgentMachine;
use super::conversation::Conversation;
use super::phase::Phase;

/// The number of retries of the last save.
const LAST_SAVE_RETRIES: u32 = 2;
/// The number of messages without a model's summary that the next run loads; beyond that, a digest
/// replaces them.
const MAX_UNSUMMARISED: usize = 128;

/// The conversation that a run is part of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConversationState {
    id: ConversationId,
    /// The position of the first message of the history.
    base: u64,
    /// The number of messages of the history that are saved.
    saved: usize,
    /// The position up to which the saved summary covers the messages.
    upto: u64,
    saving: Option<PendingSave>,
    tries: u32,
    /// `true` once nothing more is saved.
    pub(super) off: bool,
    /// `true` if the run was forked: it saves only as long as no other run has continued the
    /// conversation.
    forked: bool,
}

/// A save that is not confirmed yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PendingSave {
    /// It may have succeeded although it reported a failure, so it is repeated unchanged.
    save: Save,
    /// The number of messages of the history that are saved with it.
    to: usize,
    /// The effect of the save while it is in progress.
    effect: Option<EffectId>,
}

impl ConversationState {
    /// Continues a conversation whose last `loaded` messages are the history.
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

    /// Returns `true` if more is saved than the history has.
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

    /// Returns the position of a message of the history in the conversation, which has no notes.
    fn position(&self, at: usize, notes: &BTreeSet<usize>) -> u64 {
        let notes = notes.range(..at).count();
        self.base.saturating_add(at.saturating_sub(notes) as u64)
    }
}

impl Conversation {
    /// Returns the state in which a run leaves its conversation.
    pub(super) fn talk_end(&self) -> Option<ConversationEnd> {
        let mut end = ConversationEnd::new(self.talk.as_ref()?.id.clone(), self.session());
        end.unsaved = self.unsaved();
        Some(end)
    }

    /// Returns the topic of the conversation, in a few words.
    pub(super) fn session(&self) -> String {
        let recent = self.messages_between(self.shown.view.start(), self.history.len(), |_| true);
        let window = self.shown.window.clone().unwrap_or_default();
        window.digest(self.shown.view.summary().map(|summary| &**summary), &recent)
    }

    /// Returns the messages that are not known to be saved. A save in progress comes first,
    /// unchanged: it may have succeeded.
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

    /// Returns the messages between two indexes of the history, and the summary.
    fn change(&self, talk: &ConversationState, from: usize, to: usize) -> Option<Save> {
        let new = self.messages_between(from, to, |_| true);
        let mut change =
            ConversationChange::at(talk.position(from, &self.notes)).with_messages(new);
        change.summary = self
            .summary(talk)
            .filter(|summary| summary.upto <= change.end());
        (!change.is_empty()).then(|| Save::new(talk.id.clone(), change))
    }

    /// Returns the summary if it differs from the saved one.
    fn summary(&self, talk: &ConversationState) -> Option<Summary> {
        let view = &self.shown.view;
        let (text, start) = match &self.shown.owed {
            Some(owed) if view.start().saturating_sub(owed.from) < MAX_UNSUMMARISED => {
                (owed.summary.as_ref()?, owed.from)
            }
            _ => (view.summary()?, view.start()),
        };
        let upto = talk.position(start, &self.notes);
        // Before the first message, the summary is the one that the run began with.
        (start > 0 && upto > talk.upto).then(|| Summary::new(text.clone(), upto))
    }

    /// Returns the effect of the save in progress.
    pub(super) fn saving(&self) -> Option<EffectId> {
        self.talk.as_ref()?.saving.as_ref()?.effect
    }

    /// Returns the next save, to be made by this effect.
    fn next_save(&mut self, effect: EffectId) -> Option<Save> {
        let talk = self.talk.as_ref().filter(|talk| !talk.off)?;
        let saving = match &talk.saving {
            Some(PendingSave {
                effect: Some(_), ..
            }) => return None,
            Some(saving) => PendingSave {
                effect: Some(effect),
                ..saving.clone()
            },
            None => {
                let to = self.history.len();
                PendingSave {
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
    /// Returns the id of the conversation that the run is part of.
    pub(crate) fn conversation(&self) -> Option<&ConversationId> {
        self.state
            .conversation
            .talk
            .as_deref()
            .map(ConversationState::id)
    }

    /// Saves new messages, unless a save is in progress: then the next save includes them.
    pub(super) fn save(&mut self, step: &mut MachineOutput) {
        if let Some(save) = self.state.conversation.next_save(self.state.next) {
            let effect = self.next_effect();
            step.request(effect, Effect::Save(save));
        }
    }

    pub(super) fn saved(&mut self, outcome: Outcome, step: &mut MachineOutput) {
        let done = match outcome {
            Outcome::Saved(done) => done,
            _ => Err(MemoryError::new(
                MemoryErrorKind::Io,
                "the outcome of the save is unknown",
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
            Err(error) if error.is_retryable() && talk.tries < LAST_SAVE_RETRIES => {
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

    /// Handles a conversation that cannot be saved: another run continued it, or the store failed.
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

    /// Ends the run once everything is saved.
    pub(super) fn end_saved(&mut self, ending: Ending, step: &mut MachineOutput) {
        self.state.phase = Phase::Leaving(Box::new(ending));
        self.leave(step);
    }

    /// Saves the rest if the run is about to end, and ends it when everything is saved.
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
