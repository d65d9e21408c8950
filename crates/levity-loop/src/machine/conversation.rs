//! The messages of a run.
//!
//! The history is complete and only grows. The model may see less of it: see `window`. Notes of the
//! loop are in the history, because the model has seen them, and are left out wherever messages are
//! saved or returned.

use std::collections::BTreeSet;
use std::sync::Arc;

use levity_core::{Exchange, History, Message, Role, ToolError, estimate_tokens};
use serde::{Deserialize, Serialize};

use crate::notes;
use crate::result_reader::MAX_RETAINED;
use crate::spec::AgentSpec;

use super::Past;
use super::save::ConversationState;
use super::window::ShownHistory;

/// The maximum number of results in an answer that consists of results only.
const SHOWN_RESULTS: usize = 8;

/// The messages of a run, the part that the model is shown, and their state of saving.
#[derive(Serialize, Deserialize)]
pub(super) struct Conversation {
    pub(super) history: History,
    /// Boxed, as is `talk`: a run that needs neither should not reserve room for them.
    #[serde(default)]
    pub(super) shown: Box<ShownHistory>,
    /// The indexes of messages that are only for this run: notes for the model.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) notes: BTreeSet<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) talk: Option<Box<ConversationState>>,
    /// The messages that arrived meanwhile; the next turn adds them.
    pub(super) said: Vec<Arc<Message>>,
}

impl Conversation {
    pub(super) fn new(spec: &AgentSpec, system: Option<&str>, mut past: Past) -> Self {
        past.history.limit_retained_bytes(MAX_RETAINED);
        let beside = system
            .map_or(0, estimate_tokens)
            .saturating_add(spec.tool_tokens);
        let window = if past.talk.is_some() {
            &spec.talk_window
        } else {
            &spec.window
        };
        let mut conversation = Self {
            history: past.history,
            shown: Box::new(ShownHistory::new(
                window.clone(),
                !spec.summaries,
                past.summary,
                beside,
            )),
            notes: BTreeSet::new(),
            talk: past.talk.map(Box::new),
            said: Vec::new(),
        };
        conversation.task_begins();
        conversation
    }

    /// Returns the first inconsistency of a saved conversation, if there is one.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let len = self.history.len();
        match () {
            () if self.notes.last().is_some_and(|at| *at >= len) || self.shown.is_beyond(len) => {
                Some("it points to messages that do not exist")
            }
            () if self.talk.as_ref().is_some_and(|talk| talk.is_beyond(len)) => {
                Some("more of the conversation is saved than there is")
            }
            () => None,
        }
    }

    /// Adds a message without calls and results, which a history always accepts.
    pub(super) fn add(&mut self, message: impl Into<Arc<Message>>, reader: &str) {
        let from = self.history.len();
        let added = self.history.push(message);
        debug_assert!(
            added.is_ok(),
            "a message with calls or results must go through an exchange"
        );
        self.show_more(from, reader);
    }

    /// Adds a note that is for this run only.
    pub(super) fn add_note(&mut self, message: Message, reader: &str) {
        self.notes.insert(self.history.len());
        self.add(message, reader);
    }

    /// Adds the messages that arrived meanwhile.
    pub(super) fn add_pending_messages(&mut self, reader: &str) {
        for message in std::mem::take(&mut self.said) {
            self.add(message, reader);
        }
    }

    /// Adds an exchange, and answers open calls with `unanswered`. Returns the new messages.
    pub(super) fn close(
        &mut self,
        exchange: Exchange,
        unanswered: &ToolError,
        reader: &str,
    ) -> &[Arc<Message>] {
        let from = self.history.len();
        self.history.close(exchange, unanswered);
        self.show_more(from, reader);
        self.history.messages().get(from..).unwrap_or_default()
    }

    /// Returns the messages of this run.
    pub(super) fn own(&self) -> &[Arc<Message>] {
        self.history
            .messages()
            .get(self.shown.task..)
            .unwrap_or_default()
    }

    /// Returns the messages of this run, without notes for the model.
    pub(super) fn own_without_notes(&self) -> Vec<Arc<Message>> {
        self.messages_between(self.shown.task, self.history.len(), |_| true)
    }

    /// Returns the messages between two indexes, without those of this run that `left_out` selects.
    pub(super) fn messages_between(
        &self,
        from: usize,
        to: usize,
        left_out: impl Fn(&Message) -> bool,
    ) -> Vec<Arc<Message>> {
        let messages = self
            .history
            .messages()
            .iter()
            .enumerate()
            .take(to)
            .skip(from);
        let said = messages.filter(|(at, message)| !(self.notes.contains(at) && left_out(message)));
        said.map(|(_, message)| message.clone()).collect()
    }

    /// Returns the last text of the model in this run, ignoring earlier runs.
    pub(super) fn last_text(&self) -> String {
        let replies = self
            .own()
            .iter()
            .rev()
            .filter(|message| message.role == Role::Assistant);
        let text = replies
            .map(|reply| reply.text())
            .find(|text| !text.trim().is_empty());
        text.map(Into::into).unwrap_or_default()
    }

    /// Returns the last tool results of this run as a text that names them as such.
    pub(super) fn last_results(&self) -> String {
        let found = |message: &Arc<Message>| {
            let results = message.results().filter(|result| !result.is_error());
            let texts: Vec<String> = results
                .take(SHOWN_RESULTS)
                .map(|result| notes::one_result(&result.name, &result.text()))
                .collect();
            (!texts.is_empty()).then(|| notes::only_results(&texts))
        };
        self.own().iter().rev().find_map(found).unwrap_or_default()
    }

    /// Returns the text of the model in the last messages.
    pub(super) fn text_of_last(&self, count: u32) -> String {
        let messages = self.history.messages();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let last = messages.iter().skip(messages.len().saturating_sub(count));
        last.filter(|message| message.role == Role::Assistant)
            .map(|message| message.text())
            .collect()
    }
}
