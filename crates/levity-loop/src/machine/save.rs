//! What was said goes into its conversation, turn by turn.

use std::collections::BTreeSet;

use levity_core::{
    ConversationChange, ConversationId, Effect, Ending, Failure, MachineOutput, MemoryError, Save, Status,
    Summary, TalkEnd,
};
use serde::{Deserialize, Serialize};

use super::{AgentMachine, Waiting};

/// How often a last save is tried again.
const LAST_TRIES: u32 = 2;
/// So many messages without a summary by a model are brought back by the next run; beyond that, a digest has to do.
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
    /// Whether the run was forked from another: it saves only as long as the conversation has not gone on without it.
    forked: bool,
}

/// A save that is not known to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Saving {
    /// It may have been made although it failed, so it is made again as it was, whatever came since.
    save: Save,
    /// How much of the history is saved with it.
    to: usize,
    under_way: bool,
}

impl Talk {
    /// Goes on with a conversation whose last `loaded` messages are the history.
    pub(crate) fn new(id: ConversationId, end: u64, loaded: usize, upto: u64) -> Self {
        let base = end.saturating_sub(loaded as u64);
        Self { id, base, saved: loaded, upto, saving: None, tries: 0, off: false, forked: false }
    }

    /// Whether more is saved than the history has.
    pub(super) fn is_beyond(&self, len: usize) -> bool {
        self.saving.as_ref().map_or(self.saved, |saving| saving.to.max(self.saved)) > len
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

impl AgentMachine {
    /// The conversation it is part of, by its id.
    pub(crate) fn conversation(&self) -> Option<&ConversationId> {
        self.talk().map(Talk::id)
    }

    /// The conversation it is part of.
    pub(crate) fn talk(&self) -> Option<&Talk> {
        self.state.talk.as_deref()
    }

    /// How it leaves its conversation.
    pub(super) fn talk_end(&self) -> Option<TalkEnd> {
        let mut end = TalkEnd::new(self.conversation()?.clone(), self.session());
        end.unsaved = self.unsaved();
        Some(end)
    }

    /// What the conversation is about, in a few words.
    pub(super) fn session(&self) -> String {
        let shown = &self.state.shown;
        let recent = self.said_between(shown.view.start(), self.state.history.len(), |_| true);
        let window = shown.window.clone().unwrap_or_default();
        window.digest(shown.view.summary().map(|summary| &**summary), &recent)
    }

    /// What was said and is not known to be saved. What was being saved comes first, as it was: it may be there.
    pub(super) fn unsaved(&self) -> Vec<Save> {
        let Some(talk) = self.state.talk.as_ref().filter(|talk| !talk.off) else { return Vec::new() };
        let all = self.state.history.len();
        let mut saves = Vec::new();
        let from = talk.saving.as_ref().map_or(talk.saved, |saving| saving.to);
        saves.extend(talk.saving.as_ref().map(|saving| saving.save.clone()));
        saves.extend(self.change(talk, from, all));
        saves
    }

    /// What was said between two places of the history, and the summary.
    fn change(&self, talk: &Talk, from: usize, to: usize) -> Option<Save> {
        let new = self.said_between(from, to, |_| true);
        let mut change = ConversationChange::at(talk.position(from, &self.state.notes)).with_messages(new);
        change.summary = self.summary(talk).filter(|summary| summary.upto <= change.end());
        (!change.is_empty()).then(|| Save::new(talk.id.clone(), change))
    }

    /// The summary, if it is another than the one that is saved.
    fn summary(&self, talk: &Talk) -> Option<Summary> {
        let shown = &self.state.shown;
        let start = shown.view.start();
        let (text, start) = match &shown.owed {
            Some(owed) if start.saturating_sub(owed.from) < OWED => (owed.summary.as_ref()?, owed.from),
            _ => (shown.view.summary()?, start),
        };
        let upto = talk.position(start, &self.state.notes);
        // Before the first message, it is what the run began with.
        (start > 0 && upto > talk.upto).then(|| Summary::new(text.clone(), upto))
    }

    /// Saves what is new, unless something is being saved: then the next save has it.
    pub(super) fn save(&mut self, step: &mut MachineOutput) {
        let Some(saving) = self.to_save() else { return };
        let save = saving.save.clone();
        if let Some(talk) = &mut self.state.talk {
            talk.saving = Some(saving);
        }
        self.want(Waiting::Save, |_| Effect::Save(save), step);
    }

    fn to_save(&self) -> Option<Saving> {
        let talk = self.state.talk.as_ref().filter(|talk| !talk.off)?;
        match &talk.saving {
            Some(saving) => (!saving.under_way).then(|| Saving { under_way: true, ..saving.clone() }),
            None => {
                let to = self.state.history.len();
                let save = self.change(talk, talk.saved, to)?;
                Some(Saving { save, to, under_way: true })
            }
        }
    }

    pub(super) fn saved(&mut self, done: Result<(), MemoryError>, step: &mut MachineOutput) {
        let Some(talk) = &mut self.state.talk else { return };
        let Some(mut saving) = talk.saving.take() else { return };
        match done {
            Ok(()) => {
                let upto = saving.save.change.summary.as_ref().map_or(talk.upto, |summary| summary.upto);
                (talk.saved, talk.upto, talk.tries) = (saving.to, upto, 0);
            }
            Err(_) if talk.forked => talk.off = true,
            Err(error) if error.is_retryable() && talk.tries < LAST_TRIES => {
                talk.tries += 1;
                saving.under_way = false;
                talk.saving = Some(saving);
            }
            Err(error) => return self.not_saved(error, step),
        }
        if self.state.leaving.is_some() {
            self.leave(step);
        }
    }

    /// The conversation cannot be saved: it went on elsewhere, or the store is broken.
    fn not_saved(&mut self, error: MemoryError, step: &mut MachineOutput) {
        if let Some(talk) = &mut self.state.talk {
            talk.off = true;
        }
        let failed = Status::Failed(Failure::Memory(error));
        let Some(mut ending) = self.state.leaving.take() else { return self.stop(failed, step) };
        if ending.status.is_answer() {
            ending.status = failed;
        }
        self.has_ended(*ending);
    }

    /// Ends once all is saved.
    pub(super) fn end_saved(&mut self, ending: Ending, step: &mut MachineOutput) {
        self.state.leaving = Some(Box::new(ending));
        self.leave(step);
    }

    fn leave(&mut self, step: &mut MachineOutput) {
        self.save(step);
        let busy = self.state.talk.as_ref().is_some_and(|talk| talk.saving.is_some());
        if let Some(ending) = self.state.leaving.take_if(|_| !busy) {
            self.has_ended(*ending);
        }
    }
}
