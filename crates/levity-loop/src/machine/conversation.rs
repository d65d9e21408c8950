//! What is said in a run, by everyone.

use std::collections::BTreeSet;
use std::sync::Arc;

use levity_core::{Exchange, History, Message, Role, ToolError, estimate_tokens};
use serde::{Deserialize, Serialize};

use crate::notes;
use crate::reads::MOST_KEPT;
use crate::spec::AgentSpec;

use super::Past;
use super::save::Talk;
use super::window::Shown;

/// How many results an answer shows that is made of results alone.
const SHOWN_RESULTS: usize = 8;

/// The messages of a run, what the model is shown of them, and where they are saved.
#[derive(Serialize, Deserialize)]
pub(super) struct Conversation {
    pub(super) history: History,
    /// In a box, as is `talk`: a run that needs neither should not have room for them.
    #[serde(default)]
    pub(super) shown: Box<Shown>,
    /// The messages of the history that are this run's alone: what the model is told on the side.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) notes: BTreeSet<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) talk: Option<Box<Talk>>,
    /// What was said meanwhile; the next turn takes it in.
    pub(super) said: Vec<Arc<Message>>,
}

impl Conversation {
    pub(super) fn new(spec: &AgentSpec, system: Option<&str>, mut past: Past) -> Self {
        past.history.keep_wholes(MOST_KEPT);
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
            shown: Box::new(Shown::new(
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

    /// What cannot be in a conversation that a machine saved, if there is something.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let len = self.history.len();
        match () {
            () if self.notes.last().is_some_and(|at| *at >= len) || self.shown.is_beyond(len) => {
                Some("it points to messages that are not there")
            }
            () if self.talk.as_ref().is_some_and(|talk| talk.is_beyond(len)) => {
                Some("more of the conversation is saved than there is")
            }
            () => None,
        }
    }

    /// Adds a message that has been rid of calls and results, so it always has its place.
    pub(super) fn add(&mut self, message: impl Into<Arc<Message>>, reader: &str) {
        let from = self.history.len();
        let added = self.history.say(message);
        debug_assert!(
            added.is_ok(),
            "a message with calls or results must go through an exchange"
        );
        self.show_more(from, reader);
    }

    /// Adds a message that is for this run only.
    pub(super) fn add_note(&mut self, message: Message, reader: &str) {
        self.notes.insert(self.history.len());
        self.add(message, reader);
    }

    /// Adds what was said meanwhile.
    pub(super) fn take_in_said(&mut self, reader: &str) {
        for message in std::mem::take(&mut self.said) {
            self.add(message, reader);
        }
    }

    /// Adds an exchange; calls without an answer are answered with `unanswered`. Returns the
    /// messages that are new.
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

    /// The messages of this run.
    pub(super) fn own(&self) -> &[Arc<Message>] {
        self.history
            .messages()
            .get(self.shown.task..)
            .unwrap_or_default()
    }

    /// The messages of this run, without what the model was told on the side.
    pub(super) fn own_said(&self) -> Vec<Arc<Message>> {
        self.said_between(self.shown.task, self.history.len(), |_| true)
    }

    /// The messages between two places, without those of the run's own that `left_out` says.
    pub(super) fn said_between(
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

    /// The last thing the model said in words in this run; what it said before is no part of it.
    pub(super) fn last_words(&self) -> String {
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

    /// What the last tools returned that returned something in this run, in words that say so.
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

    /// What the model said in the last messages.
    pub(super) fn text_of_last(&self, count: u32) -> String {
        let messages = self.history.messages();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let last = messages.iter().skip(messages.len().saturating_sub(count));
        last.filter(|message| message.role == Role::Assistant)
            .map(|message| message.text())
            .collect()
    }
}
