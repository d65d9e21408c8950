use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{History, Message, Part, Role, ToolError};
use serde::{Deserialize, Serialize};

use super::cut;

/// Which part of a conversation is shown, and how: a few numbers, whatever the length.
///
/// [`Window::fit`](crate::Window::fit) makes one that fits; messages that come later are shown as
/// they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowView {
    /// The first message that is shown as it is.
    pub(super) start: usize,
    /// What stands for all before it.
    pub(super) summary: Option<Arc<str>>,
    /// The messages that are shown shorter, and how many tokens their results or their text may
    /// have; 0 for a step that something else stands for.
    pub(super) limits: BTreeMap<usize, u64>,
    /// How many tokens the summary and a pinned message may have each, where that is limited.
    pub(super) header: Option<u64>,
}

impl WindowView {
    /// Everything, after a summary of what was before.
    pub fn new(summary: Option<Arc<str>>) -> Self {
        Self {
            summary,
            ..Self::default()
        }
    }

    /// How many of the oldest messages are not shown.
    pub fn start(&self) -> usize {
        self.start
    }

    /// How many messages are shown shorter than they are.
    pub fn shortened(&self) -> usize {
        self.limits.len()
    }

    /// What stands for the messages that are not shown.
    pub fn summary(&self) -> Option<&Arc<str>> {
        self.summary.as_ref()
    }

    /// Sets what stands for the messages that are not shown.
    #[must_use]
    pub fn with_summary(mut self, summary: Option<Arc<str>>) -> Self {
        self.summary = summary;
        self
    }

    /// What is shown. Those of `pins` that have left are shown before the summary; `reader` is the
    /// tool by which the model can read results that are shown shorter, if there is one.
    pub fn show(&self, messages: &[Arc<Message>], pins: &[usize], reader: &str) -> History {
        let mut shown = History::new();
        for message in self.head(messages, pins) {
            // What may not stand alone is not pinned.
            let _ = shown.say(message);
        }
        let mut at = self.start.min(messages.len());
        while let Some(message) = messages.get(at) {
            at += self.push(&mut shown, message, messages.get(at + 1), at, reader);
        }
        shown
    }

    /// What is shown before the last messages.
    pub(super) fn head(&self, messages: &[Arc<Message>], pins: &[usize]) -> Vec<Arc<Message>> {
        let pinned = pins
            .iter()
            .filter(|pin| **pin < self.start)
            .filter_map(|pin| messages.get(*pin));
        let mut head: Vec<Arc<Message>> = pinned.map(|message| self.capped(message)).collect();
        let summary = match (&self.summary, self.start) {
            (Some(summary), _) => Some(format!("Previous Summary: {summary}")),
            (None, 0) => None,
            (None, start) => Some(format!("[{start} earlier messages are left out here.]")),
        };
        head.extend(summary.map(|text| self.capped(&Arc::new(Message::user(text)))));
        head
    }

    fn capped(&self, message: &Arc<Message>) -> Arc<Message> {
        self.header
            .and_then(|tokens| cut::text(message, tokens))
            .unwrap_or_else(|| message.clone())
    }

    /// Shows a message, and the results that follow it; returns how many messages that were.
    fn push(
        &self,
        shown: &mut History,
        message: &Arc<Message>,
        next: Option<&Arc<Message>>,
        at: usize,
        reader: &str,
    ) -> usize {
        if message.role == Role::Tool {
            // Its calls are not shown, so it cannot be.
            return 1;
        }
        let answer =
            next.filter(|next| next.role == Role::Tool && message.calls().next().is_some());
        let Some(answer) = answer else {
            let _ = shown.say(self.text(message, at));
            return 1;
        };
        if self.limits.get(&at) == Some(&0) {
            let _ = shown.say(cut::stand_in(message, cut::NOTE));
            return 2;
        }
        let Ok(mut exchange) = shown.open(message.clone()) else {
            return 2;
        };
        let answer = self.results(answer, at + 1, reader);
        for part in &answer.parts {
            if let Part::ToolResult(result) = part {
                let _ = exchange.answer(result.clone());
            }
        }
        shown.close(exchange, &ToolError::failed("the call was not answered"));
        2
    }

    /// A message as it is shown, by its place.
    pub(super) fn shown_message(&self, message: &Arc<Message>, at: usize) -> Arc<Message> {
        match message.role {
            // The longest name that the tool can have.
            Role::Tool => self.results(message, at, "levity_read_result"),
            _ => self.text(message, at),
        }
    }

    fn text(&self, message: &Arc<Message>, at: usize) -> Arc<Message> {
        match self.limits.get(&at) {
            // What a model thought must stay as it is, so its message is shown whole or not at all.
            Some(_) if message.role == Role::Assistant => cut::stand_in(message, cut::NOTE),
            Some(tokens) => cut::text(message, *tokens).unwrap_or_else(|| message.clone()),
            None => message.clone(),
        }
    }

    fn results(&self, message: &Arc<Message>, at: usize, reader: &str) -> Arc<Message> {
        let limit = self.limits.get(&at);
        limit
            .and_then(|tokens| cut::results(message, *tokens, reader))
            .unwrap_or_else(|| message.clone())
    }
}
