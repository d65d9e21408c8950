//! What a conversation is, and what saving does to it: the same in every store.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, MemoryError,
    MemoryErrorKind, Message, Remembered, Summary, Timestamp,
};

use crate::words::{Words, searchable};

/// A conversation that is in memory as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kept {
    pub(crate) summary: Option<Summary>,
    pub(crate) messages: VecDeque<Arc<Message>>,
    /// The position of the first of the messages.
    pub(crate) first: u64,
    pub(crate) changed: Timestamp,
}

impl Kept {
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(self.messages.len() as u64)
    }

    /// The index of a position; that of the first message, when the position was trimmed.
    fn index(&self, position: u64) -> usize {
        let index = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX);
        index.min(self.messages.len())
    }

    pub(crate) fn load(&self, limit: usize) -> Remembered {
        let fresh = self.index(self.summary.as_ref().map_or(0, |summary| summary.upto));
        let start = fresh.max(self.messages.len().saturating_sub(limit));
        let messages = self.messages.range(start..).cloned().collect();
        Remembered::new(self.summary.clone(), messages, self.end())
            .with_first(self.first)
            .with_changed(self.changed)
    }

    pub(crate) fn read(&self, from: u64, limit: usize) -> Vec<(u64, Arc<Message>)> {
        let start = self.index(from);
        let messages = self.messages.range(start..).take(limit).cloned();
        (self.first + start as u64..).zip(messages).collect()
    }

    /// Saves, and says whether that changed anything.
    pub(crate) fn save(
        &mut self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<bool, MemoryError> {
        let upto = self.summary.as_ref().map(|summary| summary.upto);
        match judge(id, self.end(), upto, change)? {
            Verdict::Nothing => return Ok(false),
            Verdict::Compare if self.has(change) => return Ok(false),
            Verdict::Compare => return Err(MemoryError::moved(id, change.at, self.end())),
            Verdict::Write => {}
        }
        self.messages.extend(change.messages.iter().cloned());
        if let Some(summary) = &change.summary {
            self.summary = Some(summary.clone());
        }
        self.changed = self.changed.max(change.when);
        Ok(true)
    }

    /// Whether the messages of a change stand in their places, as far as they were not trimmed.
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
        let words = Words::of(query);
        let scored = (self.first..).zip(&self.messages).map(|(at, message)| {
            let score = words.count_in(&searchable(message));
            (score, at, message)
        });
        let mut found: Vec<_> = scored.filter(|(score, ..)| *score > 0).collect();
        // Of two that are as good, the newer one.
        found.sort_by_key(|(score, at, _)| Reverse((*score, *at)));
        found
            .into_iter()
            .take(limit)
            .map(|(_, at, message)| (at, message.clone()))
            .collect()
    }

    /// Trims, and says whether that changed anything.
    pub(crate) fn trim(&mut self, before: u64) -> bool {
        let gone = self.index(before);
        self.messages.drain(..gone);
        self.first += gone as u64;
        gone > 0
    }

    pub(crate) fn info(&self, id: &ConversationId) -> ConversationInfo {
        ConversationInfo::new(id.clone(), self.changed, self.first, self.end())
    }
}

/// What is to be done with a change.
pub(crate) enum Verdict {
    /// It changes nothing.
    Nothing,
    /// It goes on where the conversation ends.
    Write,
    /// It was made before, if its messages stand in their places.
    Compare,
}

/// Looks at a change without looking at messages. `upto` says how far the summary goes, where there
/// is one.
pub(crate) fn judge(
    id: &ConversationId,
    end: u64,
    upto: Option<u64>,
    change: &ConversationChange,
) -> Result<Verdict, MemoryError> {
    let aim = change.summary.as_ref().map(|summary| summary.upto);
    if aim.is_some_and(|aim| aim > change.end()) {
        let message =
            format!("a summary for conversation `{id}` stands for messages that are not there yet");
        return Err(MemoryError::new(MemoryErrorKind::Refused, message));
    }
    let summarised = aim.is_none_or(|aim| upto.is_some_and(|upto| upto >= aim));
    match () {
        () if change.at > end => Err(MemoryError::moved(id, change.at, end)),
        () if change.is_empty() => Ok(Verdict::Nothing),
        () if change.at == end => Ok(Verdict::Write),
        () if change.end() > end || !summarised => Err(MemoryError::moved(id, change.at, end)),
        () if change.messages.is_empty() => Ok(Verdict::Nothing),
        () => Ok(Verdict::Compare),
    }
}

/// Those of many conversations that are asked for, in their order.
pub(crate) fn select(
    infos: impl Iterator<Item = ConversationInfo>,
    query: &ConversationQuery,
) -> Vec<ConversationInfo> {
    let key = |info: &ConversationInfo| (info.changed, info.id.clone());
    let asked = |info: &ConversationInfo| {
        query
            .unchanged_since
            .is_none_or(|moment| info.changed < moment)
            && query.after.as_ref().is_none_or(|after| key(info) > *after)
    };
    let mut found: Vec<_> = infos.filter(asked).collect();
    found.sort_by(|a, b| (a.changed, &a.id).cmp(&(b.changed, &b.id)));
    found.truncate(query.limit.unwrap_or(usize::MAX));
    found
}

/// Drops the answers to calls that were left out: no provider takes an answer without its call.
pub(crate) fn align(messages: &mut Vec<Arc<Message>>) {
    let orphan = |message: &Arc<Message>| message.results().next().is_some();
    let start = messages
        .iter()
        .take_while(|message| orphan(message))
        .count();
    messages.drain(..start);
}
