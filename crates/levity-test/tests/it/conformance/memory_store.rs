use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{ConversationId, MemoryError, MemoryStore, Message};
use levity_test::conformance;

use crate::{block_on, refuses};

#[derive(Clone, Copy, Default, PartialEq)]
enum Flaw {
    #[default]
    None,
    UnknownIsError,
    Reverses,
    DropsRepeats,
    OldestFirst,
    Tears,
    MixesCase,
    KeepsFirstSummary,
    SummaryClears,
    FindsNothing,
    FindsElsewhere,
    FindsTooMuch,
    ForgetsMessagesOnly,
    ForgetsAll,
}

/// A store in memory, with a flaw if one is wanted.
#[derive(Default)]
struct Store {
    flaw: Flaw,
    conversations: Mutex<HashMap<ConversationId, Conversation>>,
}

#[derive(Clone, Default)]
struct Conversation {
    messages: Vec<Arc<Message>>,
    summary: Option<String>,
}

impl Store {
    fn key(&self, id: &ConversationId) -> ConversationId {
        if self.flaw == Flaw::MixesCase { id.as_str().to_lowercase().into() } else { id.clone() }
    }

    fn with<T>(&self, id: &ConversationId, work: impl FnOnce(&mut Conversation) -> T) -> T {
        work(self.conversations.lock().unwrap().entry(self.key(id)).or_default())
    }

    fn push(&self, id: &ConversationId, message: &Arc<Message>) {
        self.with(id, |kept| {
            if self.flaw != Flaw::DropsRepeats || !kept.messages.contains(message) {
                kept.messages.push(message.clone());
            }
        });
    }
}

#[async_trait]
impl MemoryStore for Store {
    async fn append(&self, id: &ConversationId, messages: &[Arc<Message>]) -> Result<(), MemoryError> {
        for message in messages {
            self.push(id, message);
            if self.flaw == Flaw::Tears {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn recent(&self, id: &ConversationId, limit: usize) -> Result<Vec<Arc<Message>>, MemoryError> {
        if self.flaw == Flaw::UnknownIsError && !self.conversations.lock().unwrap().contains_key(id) {
            return Err(MemoryError::Busy);
        }
        let mut messages = self.with(id, |kept| kept.messages.clone());
        match self.flaw {
            Flaw::Reverses => messages.reverse(),
            Flaw::OldestFirst => messages.truncate(limit),
            _ => {}
        }
        Ok(messages.split_off(messages.len().saturating_sub(limit)))
    }

    async fn summary(&self, id: &ConversationId) -> Result<Option<String>, MemoryError> {
        Ok(self.with(id, |kept| kept.summary.clone()))
    }

    async fn set_summary(&self, id: &ConversationId, summary: &str) -> Result<(), MemoryError> {
        self.with(id, |kept| {
            if self.flaw != Flaw::KeepsFirstSummary || kept.summary.is_none() {
                kept.summary = Some(summary.to_owned());
            }
            if self.flaw == Flaw::SummaryClears {
                kept.messages.clear();
            }
        });
        Ok(())
    }

    async fn forget(&self, id: &ConversationId) -> Result<(), MemoryError> {
        match self.flaw {
            Flaw::ForgetsMessagesOnly => self.with(id, |kept| kept.messages.clear()),
            Flaw::ForgetsAll => self.conversations.lock().unwrap().clear(),
            _ => drop(self.conversations.lock().unwrap().remove(&self.key(id))),
        }
        Ok(())
    }

    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Message>>, MemoryError> {
        let limit = if self.flaw == Flaw::FindsTooMuch { usize::MAX } else { limit };
        let mut found = self.with(id, |kept| kept.messages.clone());
        if self.flaw == Flaw::FindsElsewhere {
            let all = self.conversations.lock().unwrap();
            found.extend(all.values().flat_map(|kept| kept.messages.clone()));
        }
        found.retain(|message| message.text().contains(query) && self.flaw != Flaw::FindsNothing);
        found.truncate(limit);
        Ok(found)
    }
}

#[test]
fn passes_what_is_right() {
    block_on(conformance::memory_store(async || Store::default()));
}

#[test]
fn refuses_flaws() {
    let check = |flaw, promise| {
        refuses(conformance::memory_store(async || Store { flaw, ..Store::default() }), promise);
    };
    let order = "memory store: messages come back as they were appended, and in that order";
    check(Flaw::UnknownIsError, "memory store: an unknown conversation is an empty one");
    check(Flaw::Reverses, order);
    check(Flaw::DropsRepeats, order);
    check(Flaw::OldestFirst, "memory store: `recent` returns the last messages, oldest first");
    check(Flaw::Tears, "memory store: an append is whole or not at all");
    check(Flaw::MixesCase, "memory store: conversations are kept apart");
    check(Flaw::KeepsFirstSummary, "memory store: a summary can be set and replaced");
    check(Flaw::SummaryClears, "memory store: conversations are kept apart");
    check(Flaw::FindsNothing, "memory store: `search` finds a message by a word of it");
    check(Flaw::FindsElsewhere, "memory store: `search` stays in its conversation");
    check(Flaw::FindsTooMuch, "memory store: `search` returns no more than asked for, whatever the query");
    check(Flaw::ForgetsMessagesOnly, "memory store: `forget` leaves nothing behind");
    check(Flaw::ForgetsAll, "memory store: `forget` leaves other conversations alone");
}
