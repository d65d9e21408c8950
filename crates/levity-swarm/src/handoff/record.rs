//! A conversation with a size limit that is always valid to send.
//!
//! Providers reject a conversation in which a call has no result, or a result no call. A record
//! keeps that rule when it drops old messages, when a filter of the host removes some, and when it
//! is restored.

use std::collections::VecDeque;
use std::sync::Arc;

use levity_core::{
    Content, History, Media, MediaSource, Message, Part, Role, ToolErrorKind, ToolResult,
};
use serde::{Deserialize, Serialize};

use super::transfer::TRANSFER;

/// The messages, the oldest first; the oldest are dropped if there are too many.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    messages: VecDeque<Arc<Message>>,
    #[serde(skip)]
    bytes: usize,
    /// The number of dropped messages.
    left: u64,
}

impl Record {
    pub(super) const MAX_MESSAGES: usize = 2_000;
    pub(super) const MAX_BYTES: usize = 8 << 20;

    /// Creates a record of earlier messages. It reads the marker of messages that were dropped
    /// before.
    pub(super) fn of(messages: &[Arc<Message>]) -> Self {
        let mut record = Self::default();
        let marked = messages.first().and_then(|first| read_mark(first));
        record.left = marked.unwrap_or(0);
        record.extend(messages.iter().skip(usize::from(marked.is_some())));
        record
    }

    /// Recomputes the sizes after deserialization.
    pub(super) fn with_sizes(mut self) -> Self {
        self.bytes = self
            .messages
            .iter()
            .map(|message| message_size(message))
            .fold(0, usize::saturating_add);
        self
    }

    pub(super) fn extend<'a>(&mut self, messages: impl IntoIterator<Item = &'a Arc<Message>>) {
        messages
            .into_iter()
            .for_each(|message| self.push(message.clone()));
    }

    pub(super) fn push(&mut self, message: Arc<Message>) {
        // A long result is complete in its own run, where it can be read in parts.
        let message = match message.shown() {
            std::borrow::Cow::Borrowed(_) => message,
            std::borrow::Cow::Owned(shown) => Arc::new(shown),
        };
        self.bytes = self.bytes.saturating_add(message_size(&message));
        self.messages.push_back(message);
        while self.messages.len() > Self::MAX_MESSAGES || self.bytes > Self::MAX_BYTES {
            self.drop_oldest();
            // A result is dropped together with its call.
            while self
                .messages
                .front()
                .is_some_and(|message| message.role == Role::Tool)
            {
                self.drop_oldest();
            }
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.messages.pop_front() {
            self.bytes = self.bytes.saturating_sub(message_size(&oldest));
            self.left = self.left.saturating_add(1);
        }
    }

    /// Returns all messages in a valid form; a marker states how many were dropped.
    pub(super) fn all(&self) -> Vec<Arc<Message>> {
        let mark = (self.left > 0).then(|| Arc::new(mark(self.left)));
        let all: Vec<Arc<Message>> = mark
            .into_iter()
            .chain(self.messages.iter().cloned())
            .collect();
        valid_history(&all)
    }

    /// Returns the last message of the user.
    pub(super) fn last_of_user(&self) -> Option<&Arc<Message>> {
        self.messages
            .iter()
            .rev()
            .find(|message| message.role == Role::User)
    }
}

const MARK: &str = " earlier messages are left out]";

fn mark(count: u64) -> Message {
    Message::system(format!("[{count}{MARK}"))
}

fn read_mark(message: &Message) -> Option<u64> {
    let text = message.text();
    let count = text.strip_prefix('[')?.strip_suffix(MARK)?;
    if message.role == Role::System {
        count.parse().ok()
    } else {
        None
    }
}

/// Returns the size of a message in bytes: its text and its media.
fn message_size(message: &Message) -> usize {
    let parts = message.parts.iter().map(|part| match part {
        Part::Media(media) => media_bytes(media),
        Part::ToolResult(result) => result.content.iter().map(content_bytes).sum(),
        _ => 0,
    });
    parts.fold(message.size(), usize::saturating_add)
}

fn content_bytes(content: &Content) -> usize {
    match content {
        Content::Media(media) => media_bytes(media),
        _ => 0,
    }
}

fn media_bytes(media: &Media) -> usize {
    match &media.source {
        MediaSource::Bytes(bytes) => bytes.as_slice().len(),
        MediaSource::Url(url) => url.len(),
        _ => 0,
    }
}

/// Returns these messages as a valid history. A call without its result is reduced to its text.
pub(super) fn valid_history(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut kept = Vec::with_capacity(messages.len());
    let mut rest = messages.iter().peekable();
    while let Some(message) = rest.next() {
        let is_plain = message.calls().next().is_none() && message.results().next().is_none();
        match rest.next_if(|next| !is_plain && next.role == Role::Tool) {
            Some(answer) if is_history(&[message, answer]) => {
                kept.extend([message.clone(), answer.clone()]);
            }
            _ if is_plain && message.role != Role::Tool => kept.push(message.clone()),
            _ => kept.extend(text_only(message)),
        }
    }
    match History::renamed(kept.clone()) {
        Ok(_) => kept,
        Err(_) => kept.iter().filter_map(text_only).collect(),
    }
}

fn is_history(messages: &[&Arc<Message>]) -> bool {
    History::renamed(messages.iter().map(|message| (*message).clone()).collect()).is_ok()
}

/// Returns the text and media of a message, without calls, results and reasoning, or `None` if
/// nothing remains. Opaque provider data is removed, because it may refer to removed parts.
pub(super) fn text_only(message: &Arc<Message>) -> Option<Arc<Message>> {
    let is_word = |part: &Part| match part {
        Part::Text(text) => !text.text.is_empty(),
        Part::Media(_) => true,
        _ => false,
    };
    if message.role == Role::Tool || !message.parts.iter().any(is_word) {
        return None;
    }
    if message
        .parts
        .iter()
        .all(|part| is_word(part) && part.opaque().is_none())
    {
        return Some(message.clone());
    }
    let parts = message
        .parts
        .iter()
        .filter(|part| is_word(part))
        .cloned()
        .map(plain);
    Some(Arc::new(Message::new(message.role, parts)))
}

fn plain(mut part: Part) -> Part {
    match &mut part {
        Part::Text(text) => text.opaque = None,
        Part::Media(media) => media.opaque = None,
        _ => {}
    }
    part
}

/// Marks the result of the last transfer call as denied.
pub(super) fn deny_transfer(said: &mut [Arc<Message>], reason: &str) {
    let is_it = |part: &Part| matches!(part, Part::ToolResult(result) if result.name == TRANSFER);
    let Some(answer) = said
        .iter_mut()
        .rev()
        .find(|message| message.parts.iter().any(is_it))
    else {
        return;
    };
    for part in &mut Arc::make_mut(answer).parts {
        if let Part::ToolResult(result) = part
            && result.name == TRANSFER
        {
            deny(result, reason);
        }
    }
}

fn deny(result: &mut ToolResult, reason: &str) {
    result.content = vec![Content::Text(format!(
        "the conversation was not passed on: {reason}"
    ))];
    (result.value, result.error) = (None, Some(ToolErrorKind::Denied));
}
