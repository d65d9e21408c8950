//! The content of a conversation and the effect of a save, identical in every store.
//!
//! [`classify`] decides for all stores if a change is written, was written before, or comes too
//! late. So a repeated save after a crash has the same effect everywhere.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, LoadedConversation,
    MemoryError, MemoryErrorKind, Message, Summary, Timestamp,
};

use crate::query_words::{QueryWords, searchable};

/// A whole conversation held in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredConversation {
    pub(crate) summary: Option<Summary>,
    pub(crate) messages: VecDeque<Arc<Message>>,
    /// The position of the first message.
    pub(crate) first: u64,
    pub(crate) changed: Timestamp,
}

impl StoredConversation {
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(self.messages.len() as u64)
    }

    /// Returns the index of a position, or that of the first message if the position was trimmed.
    fn index(&self, position: u64) -> usize {
        let index = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX);
        index.min(self.messages.len())
    }

    pub(crate) fn load(&self, limit: usize) -> LoadedConversation {
        let fresh = self.index(self.summary.as_ref().map_or(0, |summary| summary.upto));
        let start = fresh.max(self.messages.len().saturating_sub(limit));
        let messages = self.messages.range(start..).cloned().collect();
        LoadedConversation::new(self.summary.clone(), messages, self.end())
            .with_first(self.first)
            .with_changed(self.changed)
    }

    pub(crate) fn read(&self, from: u64, limit: usize) -> Vec<(u64, Arc<Message>)> {
        let start = self.index(from);
        let messages = self.messages.range(start..).take(limit).cloned();
        (self.first + start as u64..).zip(messages).collect()
    }

    /// Applies a change, and returns `true` if the conversation changed.
    pub(crate) fn save(
        &mut self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<bool, MemoryError> {
        let upto = self.summary.as_ref().map(|summary| summary.upto);
        match classify(id, self.end(), upto, change)? {
            SaveAction::Nothing => return Ok(false),
            SaveAction::Compare if self.has(change) => return Ok(false),
            SaveAction::Compare => return Err(MemoryError::moved(id, change.at, self.end())),
            SaveAction::Write => {}
        }
        self.messages.extend(change.messages.iter().cloned());
        if let Some(summary) = &change.summary {
            self.summary = Some(summary.clone());
        }
        self.changed = self.changed.max(change.when);
        Ok(true)
    }

    /// Returns `true` if the change's messages, except trimmed ones, are already at their
    /// positions.
    pub(crate) fn has(&self, change: &ConversationChange) -> bool {
        let start = change.at.max(self.first);
        let skipped = usize::try_from(start - change.at).unwrap_or(usize::MAX);
        let rest = change.messages.get(skipped..).unwrap_or_default();
        !rest.is_empty()
            && self
                .messages
                .range(self.index(start)..)
                .take(rest.len())
                .eq(rest)
    }

    pub(crate) fn search(&self, query: &str, limit: usize) -> Vec<(u64, Arc<Message>)> {
        let words = QueryWords::of(query);
        let scored = (self.first..).zip(&self.messages).map(|(at, message)| {
            let score = words.count_in(&searchable(message));
            (score, at, message)
        });
        let mut found: Vec<_> = scored.filter(|(score, ..)| *score > 0).collect();
        // Of two equal scores, the newer message comes first.
        found.sort_by_key(|(score, at, _)| Reverse((*score, *at)));
        found
            .into_iter()
            .take(limit)
            .map(|(_, at, message)| (at, message.clone()))
            .collect()
    }

    /// Removes messages before a position, and returns `true` if the conversation changed.
    pub(crate) fn trim(&mut self, before: u64) -> bool {
        let trimmed = self.index(before);
        self.messages.drain(..trimmed);
        self.first += trimmed as u64;
        trimmed > 0
    }

    pub(crate) fn info(&self, id: &ConversationId) -> ConversationInfo {
        ConversationInfo::new(id.clone(), self.changed, self.first, self.end())
    }
}

/// The action that a store takes for a change.
pub(crate) enum SaveAction {
    /// The change has no effect.
    Nothing,
    /// The change continues at the end of the conversation.
    Write,
    /// The change was already saved, if its messages are at their positions.
    Compare,
}

/// Classifies a change without reading messages. `upto` is the end of the current summary, if there
/// is one.
///
/// | the change | result |
/// |---|---|
/// | begins at the end | it is written |
/// | lies before the end, with the same messages | nothing: it was saved before |
/// | begins elsewhere, or has other messages | [`Moved`](MemoryErrorKind::Moved) |
/// | has a summary beyond its own end | [`Refused`](MemoryErrorKind::Refused) |
pub(crate) fn classify(
    id: &ConversationId,
    end: u64,
    upto: Option<u64>,
    change: &ConversationChange,
) -> Result<SaveAction, MemoryError> {
    let new_upto = change.summary.as_ref().map(|summary| summary.upto);
    if new_upto.is_some_and(|new_upto| new_upto > change.end()) {
        let message =
            format!("the summary of conversation `{id}` covers messages that are not stored yet");
        return Err(MemoryError::new(MemoryErrorKind::Refused, message));
    }
    let summarised = new_upto.is_none_or(|new_upto| upto.is_some_and(|upto| upto >= new_upto));
    match () {
        () if change.at > end => Err(MemoryError::moved(id, change.at, end)),
        () if change.is_empty() => Ok(SaveAction::Nothing),
        () if change.at == end => Ok(SaveAction::Write),
        () if change.end() > end || !summarised => Err(MemoryError::moved(id, change.at, end)),
        () if change.messages.is_empty() => Ok(SaveAction::Nothing),
        () => Ok(SaveAction::Compare),
    }
}

/// Returns the conversations that match a query, in its order.
pub(crate) fn select(
    infos: impl Iterator<Item = ConversationInfo>,
    query: &ConversationQuery,
) -> Vec<ConversationInfo> {
    let key = |info: &ConversationInfo| (info.changed, info.id.clone());
    let matches = |info: &ConversationInfo| {
        query
            .unchanged_since
            .is_none_or(|moment| info.changed < moment)
            && query.after.as_ref().is_none_or(|after| key(info) > *after)
    };
    let mut found: Vec<_> = infos.filter(matches).collect();
    found.sort_by(|a, b| (a.changed, &a.id).cmp(&(b.changed, &b.id)));
    found.truncate(query.limit.unwrap_or(usize::MAX));
    found
}

/// Drops leading tool results whose calls were left out: providers reject a result without its
/// call.
pub(crate) fn align(messages: &mut Vec<Arc<Message>>) {
    let is_result = |message: &Arc<Message>| message.results().next().is_some();
    let start = messages
        .iter()
        .take_while(|message| is_result(message))
        .count();
    messages.drain(..start);
}
