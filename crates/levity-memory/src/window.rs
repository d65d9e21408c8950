//! What a model is shown of a conversation, so that it always fits.

use std::sync::Arc;

use levity_core::{History, Message};
use serde::{Deserialize, Serialize};

mod count;
mod cut;
mod fit;
mod summary;
mod view;

pub use count::Counter;
pub use fit::WindowFit;
pub use view::WindowView;

/// How much of a conversation a model is shown.
///
/// What is shown is built so that it fits: pinned messages, the summary of what has left, and the
/// last messages. A call and its result are never parted, and what is shown is a history that a
/// provider accepts.
///
/// ```
/// use levity_core::{History, Message};
/// use levity_memory::{Counter, Window};
///
/// let messages: Vec<_> = (1..=40).map(|n| Message::user(format!("message {n}")).into()).collect();
/// let shown = Window::new().messages(10).show(&messages, Some("They counted."), &Counter::new());
/// assert_eq!(shown.left_out, 30);
/// assert_eq!(shown.history.messages()[0].text(), "Previous Summary: They counted.");
/// assert_eq!(shown.history.messages()[1].text(), "message 31");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Window {
    tokens: Option<u64>,
    messages: Option<usize>,
    summary_words: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self::new()
    }
}

impl Window {
    /// How many messages of the past are shown: 10.
    pub const DEFAULT_MESSAGES: usize = 10;
    /// How many words a summary may have: 120.
    pub const DEFAULT_SUMMARY_WORDS: usize = 120;
    /// The smallest number of tokens that a window can be held to: 512.
    pub const LEAST_TOKENS: u64 = 512;

    /// The last 10 messages, however long they are.
    pub fn new() -> Self {
        Self {
            tokens: None,
            messages: Some(Self::DEFAULT_MESSAGES),
            summary_words: Self::DEFAULT_SUMMARY_WORDS,
        }
    }

    /// So many tokens at most, with all that is sent beside the messages: instructions, tools. In
    /// an agent it is what its model has room for, by default.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// So many messages at most. In an agent only those of earlier runs count, so that no run
    /// forgets what it is doing.
    #[must_use]
    pub fn messages(mut self, messages: usize) -> Self {
        self.messages = Some(messages);
        self
    }

    /// Any number of messages that fits the tokens.
    #[must_use]
    pub fn all_messages(mut self) -> Self {
        self.messages = None;
        self
    }

    /// So many words at most in a summary.
    #[must_use]
    pub fn summary_words(mut self, words: usize) -> Self {
        self.summary_words = words;
        self
    }

    /// How many tokens there is room for, where that was said.
    pub fn max_tokens(&self) -> Option<u64> {
        self.tokens.map(|tokens| tokens.max(Self::LEAST_TOKENS))
    }

    /// Whether more is shown than there is room for: messages estimated at so many tokens, so many
    /// of them from before the present run.
    pub fn is_over(&self, estimate: u64, past: usize, counter: &Counter) -> bool {
        let too_long = self
            .max_tokens()
            .is_some_and(|tokens| counter.count(estimate) > tokens);
        too_long || self.messages.is_some_and(|most| past > most)
    }

    /// Shows the end of a conversation, as much as there is room for; costs what is shown, not what
    /// the conversation holds.
    pub fn show(
        &self,
        messages: &[Arc<Message>],
        summary: Option<&str>,
        counter: &Counter,
    ) -> WindowContents {
        self.show_pinned(messages, &[], summary, counter)
    }

    /// The same, with those messages in any case that stand at the places `pins`; one that calls
    /// tools or answers a call cannot be pinned.
    pub fn show_pinned(
        &self,
        messages: &[Arc<Message>],
        pins: &[usize],
        summary: Option<&str>,
        counter: &Counter,
    ) -> WindowContents {
        let before = WindowView::new(summary.map(Into::into));
        let fit = self.fit_to(messages, messages.len(), pins, &before, counter, false);
        let (view, fits) = fit.map_or((before, true), |fit| (fit.view, fit.fits));
        let history = view.show(messages, pins, "");
        WindowContents {
            left_out: view.start(),
            shortened: view.shortened(),
            tokens: counter.count(history.tokens()),
            fits,
            history,
        }
    }
}

/// What is shown of a conversation, and what is not.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WindowContents {
    /// What a model is sent.
    pub history: History,
    /// How many of the oldest messages are not in it.
    pub left_out: usize,
    /// How many messages are shorter in it than they were.
    pub shortened: usize,
    /// About how many tokens it has, with all that is sent beside it.
    pub tokens: u64,
    /// Whether it has no more tokens than it may. Only what is sent beside the messages can be so
    /// long that it has.
    pub fits: bool,
}

#[cfg(test)]
mod tests;
