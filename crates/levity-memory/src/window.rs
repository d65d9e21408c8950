//! Context windows: the part of a conversation that a model receives, so that it always fits.
//!
//! A window never changes a conversation. It computes a [`WindowView`], which is a few numbers, and
//! the view produces the history to send. Views move forward only: text that a provider has cached
//! stays the same as long as possible.

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

/// The limits on how much of a conversation a model receives.
///
/// The contents always fit: pinned messages, the summary of older messages, and the last messages.
/// A tool call and its result stay together, and the contents form a history that every provider
/// accepts.
///
/// ```
/// use levity_core::{History, Message};
/// use levity_memory::{Counter, Window};
///
/// let message = |n| Message::user(format!("message {n}")).into();
/// let messages: Vec<_> = (1..=40).map(message).collect();
/// let window = Window::new().messages(10);
/// let shown = window.contents(&messages, Some("They counted."), &Counter::new());
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
    /// The default number of past messages: 10.
    pub const DEFAULT_MESSAGES: usize = 10;
    /// The default maximum number of words in a summary: 120.
    pub const DEFAULT_SUMMARY_WORDS: usize = 120;
    /// The minimum token limit of a window: 512.
    pub const MIN_TOKENS: u64 = 512;

    /// Creates a window of the last 10 messages, regardless of their length.
    pub fn new() -> Self {
        Self {
            tokens: None,
            messages: Some(Self::DEFAULT_MESSAGES),
            summary_words: Self::DEFAULT_SUMMARY_WORDS,
        }
    }

    /// Sets the maximum number of tokens, including everything sent beside the messages:
    /// instructions and tools. In an agent, the default is the context size of its model.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Sets the maximum number of messages. In an agent, only messages of earlier runs count, so
    /// that a run always sees its own work.
    #[must_use]
    pub fn messages(mut self, messages: usize) -> Self {
        self.messages = Some(messages);
        self
    }

    /// Removes the limit on the number of messages; only the tokens limit the window.
    ///
    /// ```
    /// use levity_core::Message;
    /// use levity_memory::{Counter, Window};
    ///
    /// let message = |n| Message::user(format!("message {n}")).into();
    /// let messages: Vec<_> = (1..=40).map(message).collect();
    /// let shown = Window::new().all_messages().tokens(8_000);
    /// assert_eq!(shown.contents(&messages, None, &Counter::new()).left_out, 0);
    /// ```
    #[must_use]
    pub fn all_messages(mut self) -> Self {
        self.messages = None;
        self
    }

    /// Sets the maximum number of words in a summary.
    #[must_use]
    pub fn summary_words(mut self, words: usize) -> Self {
        self.summary_words = words;
        self
    }

    /// Returns the token limit, if there is one.
    ///
    /// A limit below [`MIN_TOKENS`](Self::MIN_TOKENS) counts as that minimum.
    ///
    /// ```
    /// # use levity_memory::Window;
    /// assert_eq!(Window::new().max_tokens(), None);
    /// assert_eq!(Window::new().tokens(8_000).max_tokens(), Some(8_000));
    /// assert_eq!(Window::new().tokens(1).max_tokens(), Some(Window::MIN_TOKENS));
    /// ```
    pub fn max_tokens(&self) -> Option<u64> {
        self.tokens.map(|tokens| tokens.max(Self::MIN_TOKENS))
    }

    /// Returns `true` if the contents exceed the limits: `estimate` is the estimated number of
    /// tokens, and `past` the number of messages from before the current run.
    ///
    /// ```
    /// use levity_memory::{Counter, Window};
    ///
    /// let window = Window::new().tokens(8_000).messages(20);
    /// assert!(!window.exceeds_limits(3_000, 12, &Counter::new()));
    /// assert!(window.exceeds_limits(3_000, 21, &Counter::new()));
    /// assert!(window.exceeds_limits(9_000, 12, &Counter::new()));
    /// ```
    pub fn exceeds_limits(&self, estimate: u64, past: usize, counter: &Counter) -> bool {
        let too_long = self
            .max_tokens()
            .is_some_and(|tokens| counter.count(estimate) > tokens);
        too_long || self.messages.is_some_and(|limit| past > limit)
    }

    /// Returns the end of a conversation, as much as fits. The cost depends on what the window
    /// shows, not on the length of the conversation.
    pub fn contents(
        &self,
        messages: &[Arc<Message>],
        summary: Option<&str>,
        counter: &Counter,
    ) -> WindowContents {
        self.contents_with_pins(messages, &[], summary, counter)
    }

    /// Returns the same, and always includes the messages at the indices `pins`. A message that
    /// calls tools or answers a call cannot be pinned.
    ///
    /// ```
    /// use levity_core::Message;
    /// use levity_memory::{Counter, Window};
    ///
    /// let message = |n| Message::user(format!("message {n}")).into();
    /// let messages: Vec<_> = (1..=40).map(message).collect();
    /// let window = Window::new().messages(2);
    /// let shown = window.contents_with_pins(&messages, &[0], None, &Counter::new());
    /// let texts: Vec<_> = shown.history.messages().iter().map(|message| message.text()).collect();
    /// assert_eq!(texts[0], "message 1"); // pinned, for example the goal
    /// assert_eq!(texts[2..], ["message 39", "message 40"]);
    /// ```
    pub fn contents_with_pins(
        &self,
        messages: &[Arc<Message>],
        pins: &[usize],
        summary: Option<&str>,
        counter: &Counter,
    ) -> WindowContents {
        let before = WindowView::new(summary.map(Into::into));
        let fit = self.fit_to(messages, messages.len(), pins, &before, counter, false);
        let (view, fits) = fit.map_or((before, true), |fit| (fit.view, fit.fits));
        let history = view.history(messages, pins, "");
        WindowContents {
            left_out: view.start(),
            shortened: view.shortened(),
            tokens: counter.count(history.tokens()),
            fits,
            history,
        }
    }
}

/// The visible part of a conversation, and the number of omitted messages.
///
/// ```
/// use levity_core::Message;
/// use levity_memory::{Counter, Window};
///
/// let long = vec![Message::user("word ".repeat(10_000)).into()];
/// let shown = Window::new().tokens(1_000).contents(&long, None, &Counter::new());
/// assert!(shown.fits && shown.tokens <= 1_000);
/// assert_eq!((shown.left_out, shown.shortened), (0, 1));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WindowContents {
    /// The history for the model.
    pub history: History,
    /// The number of oldest messages that are left out.
    pub left_out: usize,
    /// The number of messages that are shortened.
    pub shortened: usize,
    /// The approximate number of tokens, including everything sent beside the messages.
    pub tokens: u64,
    /// `true` if the contents are within the token limit. It is `false` only if what is sent beside
    /// the messages is too long.
    pub fits: bool,
}

#[cfg(test)]
mod tests;
