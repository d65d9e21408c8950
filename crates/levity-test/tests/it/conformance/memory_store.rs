use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Lease,
    LoadedConversation, MemoryError, MemoryErrorKind, MemoryStore, Message, Summary, Timestamp,
};
use levity_test::conformance;

use crate::{block_on, refuses};

#[derive(Clone, Copy, Default, PartialEq)]
enum Flaw {
    #[default]
    None,
    UnknownIsError,
    MakesEmpty,
    Reverses,
    DropsRepeats,
    LosesFloats,
    OldestFirst,
    PagesFromOne,
    SavesAgain,
    RevertsSummary,
    RefusesAgain,
    AppendsAnywhere,
    TakesAnyMessages,
    Tears,
    MixesCase,
    KeepsFirstSummary,
    SummaryClears,
    LoadsSummarised,
    SummaryAhead,
    FindsNothing,
    FindsElsewhere,
    FindsTooMuch,
    TrimsOneMore,
    TrimMovesEnd,
    TrimsNothing,
    ListsByName,
    ListsAll,
    ListBeginsAnew,
    ClockGoesBack,
    HoldsTwice,
    HoldsForEver,
    HoldsAll,
    ForgetsHeld,
    ForgetsMessagesOnly,
    ForgetsAll,
    ExpiresAll,
}

/// A store in memory, with an optional flaw.
#[derive(Clone, Default)]
struct Store {
    flaw: Flaw,
    conversations: Arc<Mutex<HashMap<ConversationId, Conversation>>>,
    held: Arc<Mutex<HashSet<ConversationId>>>,
}

#[derive(Clone, Default)]
struct Conversation {
    messages: Vec<Arc<Message>>,
    /// The number of messages that were trimmed.
    first: u64,
    summary: Option<Summary>,
    changed: Timestamp,
}

impl Conversation {
    fn end(&self) -> u64 {
        self.messages.len() as u64
    }

    fn placed(&self) -> impl Iterator<Item = (u64, Arc<Message>)> {
        (0..).zip(self.messages.clone()).skip(self.first as usize)
    }

    fn has(&self, flaw: Flaw, change: &ConversationChange) -> bool {
        let same = |(at, message): (u64, &Arc<Message>)| {
            at < self.first || self.messages[at as usize] == *message
        };
        let upto = self.summary.as_ref().map(|summary| summary.upto);
        flaw != Flaw::RefusesAgain
            && change.end() <= self.end()
            && (change.messages.is_empty() || change.end() > self.first)
            && change
                .summary
                .as_ref()
                .is_none_or(|summary| upto.is_some_and(|upto| upto >= summary.upto))
            && (flaw == Flaw::TakesAnyMessages || (change.at..).zip(&change.messages).all(same))
    }
}

impl Store {
    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn key(&self, id: &ConversationId) -> ConversationId {
        if self.is(Flaw::MixesCase) {
            id.as_str().to_lowercase().into()
        } else {
            id.clone()
        }
    }

    fn copy(&self, id: &ConversationId) -> Conversation {
        self.conversations
            .lock()
            .unwrap()
            .get(&self.key(id))
            .cloned()
            .unwrap_or_default()
    }

    fn put(&self, id: &ConversationId, conversation: Conversation) {
        self.conversations
            .lock()
            .unwrap()
            .insert(self.key(id), conversation);
    }

    fn push(&self, kept: &mut Conversation, message: &Arc<Message>) {
        if self.is(Flaw::DropsRepeats) && kept.messages.contains(message) {
            return;
        }
        let rounded = || {
            serde_json::from_str(
                &serde_json::to_string(message)
                    .unwrap()
                    .replace("0.1", "0.125"),
            )
        };
        kept.messages.push(if self.is(Flaw::LosesFloats) {
            rounded().unwrap()
        } else {
            message.clone()
        });
    }

    fn set_summary(&self, kept: &mut Conversation, summary: &Summary) {
        if !self.is(Flaw::KeepsFirstSummary) || kept.summary.is_none() {
            kept.summary = Some(summary.clone());
        }
        if self.is(Flaw::SummaryClears) {
            kept.messages.clear();
        }
    }

    fn may_remove(&self, id: &ConversationId) -> Result<(), MemoryError> {
        let held = self.held.lock().unwrap().contains(id) && !self.is(Flaw::ForgetsHeld);
        if held {
            Err(MemoryError::busy(id))
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl MemoryStore for Store {
    async fn load(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<LoadedConversation, MemoryError> {
        if self.is(Flaw::UnknownIsError) && !self.conversations.lock().unwrap().contains_key(id) {
            return Err(MemoryError::busy(id));
        }
        let kept = self.copy(id);
        let upto = kept.summary.as_ref().map_or(0, |summary| summary.upto);
        let fresh = |at: &u64| *at >= upto || self.is(Flaw::LoadsSummarised);
        let mut messages: Vec<_> = kept
            .placed()
            .filter(|(at, _)| fresh(at))
            .map(|(_, message)| message)
            .collect();
        match self.flaw {
            Flaw::Reverses => messages.reverse(),
            Flaw::OldestFirst => messages.truncate(limit),
            _ => {}
        }
        let messages = messages.split_off(messages.len().saturating_sub(limit));
        let end = if self.is(Flaw::TrimMovesEnd) {
            kept.end() - kept.first
        } else {
            kept.end()
        };
        Ok(LoadedConversation::new(kept.summary, messages, end)
            .with_first(kept.first)
            .with_changed(kept.changed))
    }

    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let from = if self.is(Flaw::PagesFromOne) {
            from.max(1)
        } else {
            from
        };
        Ok(self
            .copy(id)
            .placed()
            .filter(|(at, _)| *at >= from)
            .take(limit)
            .collect())
    }

    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        let mut kept = self.copy(id);
        let moved = || Err(MemoryError::moved(id, change.at, kept.end()));
        let ahead = change
            .summary
            .as_ref()
            .is_some_and(|summary| summary.upto > change.end());
        if ahead && !self.is(Flaw::SummaryAhead) {
            return Err(MemoryError::new(
                MemoryErrorKind::Refused,
                "the summary is ahead",
            ));
        }
        if change.is_empty() && change.at <= kept.end() {
            if self.is(Flaw::MakesEmpty) {
                self.put(id, kept);
            }
            return Ok(());
        }
        let end = kept.end();
        let again = change.at < end && kept.has(self.flaw, change) && !self.is(Flaw::SavesAgain);
        if again {
            if let Some(summary) = change
                .summary
                .clone()
                .filter(|_| self.is(Flaw::RevertsSummary))
            {
                kept.summary = Some(summary);
                self.put(id, kept);
            }
            return Ok(());
        }
        if change.at != end && !self.is(Flaw::AppendsAnywhere) && !self.is(Flaw::SavesAgain) {
            return moved();
        }
        for message in &change.messages {
            self.push(&mut kept, message);
            if self.is(Flaw::Tears) {
                self.put(id, kept.clone());
                tokio::task::yield_now().await;
            }
        }
        if let Some(summary) = &change.summary {
            self.set_summary(&mut kept, summary);
        }
        kept.changed = if self.is(Flaw::ClockGoesBack) {
            change.when
        } else {
            kept.changed.max(change.when)
        };
        self.put(id, kept);
        Ok(())
    }

    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let limit = if self.is(Flaw::FindsTooMuch) {
            usize::MAX
        } else {
            limit
        };
        let mut found: Vec<_> = self.copy(id).placed().collect();
        if self.is(Flaw::FindsElsewhere) {
            let all = self.conversations.lock().unwrap();
            found.extend(all.values().flat_map(Conversation::placed));
        }
        let query = query.to_lowercase();
        let words: Vec<_> = query
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| word.len() > 1)
            .collect();
        let wanted = |text: String| words.iter().any(|word| text.contains(word)) || query == "a";
        found.retain(|(_, message)| {
            wanted(message.text().to_lowercase()) && !self.is(Flaw::FindsNothing)
        });
        found.truncate(limit);
        Ok(found)
    }

    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        let mut kept = self.copy(id);
        let before = if self.is(Flaw::TrimsOneMore) {
            before.saturating_add(1)
        } else {
            before
        };
        kept.first = before.clamp(kept.first, kept.end());
        if self.conversations.lock().unwrap().contains_key(id) && !self.is(Flaw::TrimsNothing) {
            self.put(id, kept);
        }
        Ok(())
    }

    async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        self.may_remove(id)?;
        let there = self
            .conversations
            .lock()
            .unwrap()
            .contains_key(&self.key(id));
        match self.flaw {
            Flaw::ForgetsMessagesOnly if there => {
                let mut kept = self.copy(id);
                kept.messages.clear();
                self.put(id, kept);
            }
            Flaw::ForgetsAll => self.conversations.lock().unwrap().clear(),
            _ => drop(self.conversations.lock().unwrap().remove(&self.key(id))),
        }
        Ok(there)
    }

    async fn expire(
        &self,
        id: &ConversationId,
        unchanged_since: Timestamp,
    ) -> Result<bool, MemoryError> {
        self.may_remove(id)?;
        let mut all = self.conversations.lock().unwrap();
        let old = |kept: &Conversation| kept.changed < unchanged_since || self.is(Flaw::ExpiresAll);
        Ok(all.get(&self.key(id)).is_some_and(old) && all.remove(&self.key(id)).is_some())
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError> {
        let all = self.conversations.lock().unwrap();
        let infos = all.iter().map(|(id, kept)| {
            ConversationInfo::new(id.clone(), kept.changed, kept.first, kept.end())
        });
        let mut infos: Vec<_> = infos.collect();
        infos.sort_by_key(|info| (info.changed, info.id.clone()));
        if self.is(Flaw::ListsByName) {
            infos.sort_by_key(|info| info.id.clone());
        }
        if let Some(moment) = query.unchanged_since.filter(|_| !self.is(Flaw::ListsAll)) {
            infos.retain(|info| info.changed < moment);
        }
        if let Some(after) = query
            .after
            .clone()
            .filter(|_| !self.is(Flaw::ListBeginsAnew))
        {
            infos.retain(|info| (info.changed, info.id.clone()) > after);
        }
        infos.truncate(query.limit.unwrap_or(usize::MAX));
        Ok(infos)
    }

    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
        let mut held = self.held.lock().unwrap();
        let busy = if self.is(Flaw::HoldsAll) {
            !held.is_empty()
        } else {
            held.contains(id)
        };
        if busy && !self.is(Flaw::HoldsTwice) {
            return Err(MemoryError::busy(id));
        }
        held.insert(id.clone());
        Ok(Lease::new(Held(self.clone(), id.clone())))
    }
}

struct Held(Store, ConversationId);

impl Drop for Held {
    fn drop(&mut self) {
        if !self.0.is(Flaw::HoldsForEver) {
            self.0.held.lock().unwrap().remove(&self.1);
        }
    }
}

#[test]
fn memory_store_suite_accepts_correct_store() {
    block_on(conformance::memory_store(async || Store::default()));
}

#[test]
fn memory_store_suite_rejects_every_flaw() {
    let check = |flaw, promise: &str| {
        let promise = format!("memory store: {promise}");
        refuses(
            conformance::memory_store(async || Store {
                flaw,
                ..Store::default()
            }),
            &promise,
        );
    };
    let order = "messages are returned as they were saved, and in that order";
    check(
        Flaw::UnknownIsError,
        "an unknown conversation is an empty one",
    );
    check(Flaw::MakesEmpty, "an empty change creates no conversation");
    check(Flaw::Reverses, order);
    check(Flaw::DropsRepeats, order);
    check(Flaw::LosesFloats, order);
    check(
        Flaw::OldestFirst,
        "`load` returns the last messages, oldest first",
    );
    check(
        Flaw::PagesFromOne,
        "`read` pages through a conversation by positions",
    );
    let again = "repeating a save changes nothing";
    check(Flaw::SavesAgain, again);
    check(Flaw::RevertsSummary, again);
    check(Flaw::RefusesAgain, again);
    let moved = "a save at another position than the end is rejected as moved";
    check(Flaw::AppendsAnywhere, moved);
    check(Flaw::TakesAnyMessages, moved);
    check(Flaw::Tears, "a save is all or nothing");
    check(Flaw::MixesCase, "conversations are separate");
    check(Flaw::KeepsFirstSummary, again);
    check(
        Flaw::SummaryClears,
        "`read` pages through a conversation by positions",
    );
    check(Flaw::LoadsSummarised, "summarised messages are not loaded");
    check(
        Flaw::SummaryAhead,
        "a summary covers only existing messages",
    );
}

#[test]
fn memory_store_suite_rejects_flaws_beside_messages() {
    let check = |flaw, promise: &str| {
        let promise = format!("memory store: {promise}");
        refuses(
            conformance::memory_store(async || Store {
                flaw,
                ..Store::default()
            }),
            &promise,
        );
    };
    check(
        Flaw::FindsNothing,
        "`search` finds a message by one of its words",
    );
    check(Flaw::FindsElsewhere, "`search` stays in its conversation");
    check(
        Flaw::FindsTooMuch,
        "`search` returns no more than requested, whatever the query",
    );
    let trim = "`trim` removes the messages before a position, and nothing else";
    check(Flaw::TrimsOneMore, trim);
    check(Flaw::TrimMovesEnd, trim);
    check(Flaw::TrimsNothing, trim);
    let list = "`list` has the conversation that was unchanged for longest first";
    check(Flaw::ListsByName, list);
    check(Flaw::ClockGoesBack, list);
    check(Flaw::ListsAll, "`list` returns the requested conversations");
    check(
        Flaw::ListBeginsAnew,
        "`list` continues after any conversation",
    );
    check(Flaw::HoldsTwice, "a leased conversation is busy for others");
    check(Flaw::HoldsForEver, "a released conversation is free");
    check(
        Flaw::HoldsAll,
        "a lease does not affect other conversations",
    );
    check(
        Flaw::ForgetsHeld,
        "a leased conversation is busy for others",
    );
    check(Flaw::ForgetsMessagesOnly, "`forget` leaves nothing behind");
    check(
        Flaw::ForgetsAll,
        "`forget` does not affect other conversations",
    );
    check(
        Flaw::ExpiresAll,
        "`expire` removes only unchanged conversations",
    );
}
