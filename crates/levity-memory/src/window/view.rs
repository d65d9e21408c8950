//! A view: which part of a conversation is shown, and how.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{History, Message, Part, Role, ToolError};
use serde::{Deserialize, Serialize};

use super::cut;

/// The part of a conversation that is shown, as a few numbers regardless of its length.
///
/// [`Window::fit`](crate::Window::fit) returns one that fits; later messages are shown unchanged.
///
/// ```
/// use levity_core::Message;
/// use levity_memory::WindowView;
///
/// let messages: Vec<_> = (1..=3).map(|n| Message::user(format!("message {n}")).into()).collect();
/// let view = WindowView::new(Some("They counted.".into()));
/// let history = view.history(&messages, &[], "");
/// assert_eq!((view.start(), history.len()), (0, 4)); // the summary and three messages
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowView {
    /// The first message that is shown.
    pub(super) start: usize,
    /// The summary of all messages before it.
    pub(super) summary: Option<Arc<str>>,
    /// The indices of shortened messages, with the token limit of their results or text; 0 for a
    /// step that is replaced by a placeholder.
    pub(super) limits: BTreeMap<usize, u64>,
    /// The token limit of the summary and of each pinned message, if any.
    pub(super) header: Option<u64>,
}

impl WindowView {
    /// Creates a view of all messages, after a summary of older ones.
    pub fn new(summary: Option<Arc<str>>) -> Self {
        Self {
            summary,
            ..Self::default()
        }
    }

    /// Returns how many of the oldest messages are not shown.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Returns the number of shortened messages.
    pub fn shortened(&self) -> usize {
        self.limits.len()
    }

    /// Returns the summary of the messages that are not shown.
    pub fn summary(&self) -> Option<&Arc<str>> {
        self.summary.as_ref()
    }

    /// Sets the summary of the messages that are not shown.
    #[must_use]
    pub fn with_summary(mut self, summary: Option<Arc<str>>) -> Self {
        self.summary = summary;
        self
    }

    /// Returns the visible history. Messages of `pins` that are no longer in view come before the
    /// summary. `reader` is the tool that reads shortened results, or empty.
    pub fn history(&self, messages: &[Arc<Message>], pins: &[usize], reader: &str) -> History {
        let mut shown = History::new();
        for message in self.head(messages, pins) {
            // A message that cannot appear alone is not pinned.
            let _ = shown.push(message);
        }
        let mut at = self.start.min(messages.len());
        while let Some(message) = messages.get(at) {
            at += self.push(&mut shown, message, messages.get(at + 1), at, reader);
        }
        shown
    }

    /// Returns the messages before the visible end of the conversation.
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

    /// Adds a message and the results that follow it; returns the number of consumed messages.
    fn push(
        &self,
        shown: &mut History,
        message: &Arc<Message>,
        next: Option<&Arc<Message>>,
        at: usize,
        reader: &str,
    ) -> usize {
        if message.role == Role::Tool {
            // Its calls are not shown, so the results cannot be shown either.
            return 1;
        }
        let answer =
            next.filter(|next| next.role == Role::Tool && message.calls().next().is_some());
        let Some(answer) = answer else {
            let _ = shown.push(self.text(message, at));
            return 1;
        };
        if self.limits.get(&at) == Some(&0) {
            let _ = shown.push(cut::placeholder(message, cut::NOTE_TOKENS));
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

    /// Returns a message as it is shown at its index.
    pub(super) fn shown_message(&self, message: &Arc<Message>, at: usize) -> Arc<Message> {
        match message.role {
            // The longest name that the reading tool can have.
            Role::Tool => self.results(message, at, "levity_read_result"),
            _ => self.text(message, at),
        }
    }

    fn text(&self, message: &Arc<Message>, at: usize) -> Arc<Message> {
        match self.limits.get(&at) {
            // The reasoning of a model must stay unchanged, so its message is shown whole or not at
            // all.
            Some(_) if message.role == Role::Assistant => {
                cut::placeholder(message, cut::NOTE_TOKENS)
            }
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
