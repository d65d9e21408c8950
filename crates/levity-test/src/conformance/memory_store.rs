use std::sync::Arc;

use levity_core::{Change, ConversationId, MemoryError, MemoryStore, Message, Summary};

use super::check::{abandon, both, kept, same};
use super::samples::{ODD_IDS, messages};

/// Checks a [`MemoryStore`].
///
/// `make` returns a store that is empty.
///
/// What is checked:
/// - an unknown conversation is an empty one, and can be forgotten;
/// - messages come back as they were appended and in that order, provider data and media included;
/// - `recent` returns the last ones, oldest first, and no more than asked for;
/// - an empty append changes nothing;
/// - an append is whole or not at all: dropped half-way, or beside another;
/// - conversations are kept apart, whatever their ids; an id may be refused, but not mixed up;
/// - a summary can be set, replaced, and does not touch the messages;
/// - `search` finds a message by a word of it, in its own conversation only, and no more than asked for;
/// - `forget` leaves nothing behind, and leaves the others alone.
///
/// Not checked: how good a search is, and whether the store outlives the process.
///
/// # Panics
/// When a promise is broken.
pub async fn memory_store<S: MemoryStore>(make: impl AsyncFn() -> S) {
    check_unknown(&make().await).await;
    check_order(&make().await).await;
    check_whole(&make().await).await;
    check_apart(&make().await).await;
    check_summary(&make().await).await;
    check_search(&make().await).await;
    check_forget(&make().await).await;
}

const UNKNOWN: &str = "memory store: an unknown conversation is an empty one";
const ORDER: &str = "memory store: messages come back as they were appended, and in that order";
const WHOLE: &str = "memory store: an append is whole or not at all";
const FORGET: &str = "memory store: `forget` leaves nothing behind";

async fn append(
    store: &impl MemoryStore,
    id: &ConversationId,
    messages: &[Arc<Message>],
) -> Result<(), MemoryError> {
    let end = store.load(id, 0).await?.end;
    store.save(id, &Change::at(end).with_messages(messages.iter().cloned())).await
}

async fn recent(
    store: &impl MemoryStore,
    id: &ConversationId,
    limit: usize,
) -> Result<Vec<Arc<Message>>, MemoryError> {
    Ok(store.load(id, limit).await?.messages)
}

async fn summary_of(store: &impl MemoryStore, id: &ConversationId) -> Result<Option<String>, MemoryError> {
    Ok(store.load(id, 0).await?.summary.map(|summary| summary.text.as_ref().to_owned()))
}

async fn set_summary(store: &impl MemoryStore, id: &ConversationId, text: &str) -> Result<(), MemoryError> {
    let end = store.load(id, 0).await?.end;
    store.save(id, &Change::at(end).with_summary(Summary::new(text, 0))).await
}

async fn search(
    store: &impl MemoryStore,
    id: &ConversationId,
    query: &str,
    limit: usize,
) -> Result<Vec<Arc<Message>>, MemoryError> {
    Ok(store.search(id, query, limit).await?.into_iter().map(|(_, message)| message).collect())
}

async fn check_unknown(store: &impl MemoryStore) {
    let id = ConversationId::new("unknown");
    for _ in 0..2 {
        check_empty(store, &id, UNKNOWN).await;
        kept(store.forget(&id).await, UNKNOWN);
    }
}

async fn check_empty(store: &impl MemoryStore, id: &ConversationId, promise: &str) {
    same(&kept(recent(store, id, 10).await, promise), &Vec::new(), promise);
    same(&kept(summary_of(store, id).await, promise), &None, promise);
    same(&kept(search(store, id, "sum", 10).await, promise), &Vec::new(), promise);
}

async fn all(store: &impl MemoryStore, id: &ConversationId, promise: &str) -> Vec<Arc<Message>> {
    kept(recent(store, id, usize::MAX).await, promise)
}

async fn check_order(store: &impl MemoryStore) {
    let id = ConversationId::new("order");
    let sent = messages();
    let (first, rest) = sent.split_at(1);
    kept(append(store, &id, first).await, ORDER);
    kept(append(store, &id, &[]).await, "memory store: an empty append changes nothing");
    kept(append(store, &id, rest).await, ORDER);
    kept(append(store, &id, first).await, ORDER);
    let expected: Vec<_> = sent.iter().chain(first).cloned().collect();
    same(&all(store, &id, ORDER).await, &expected, ORDER);
    for limit in [0, 1, 3, expected.len(), expected.len() + 1] {
        let promise = "memory store: `recent` returns the last messages, oldest first";
        let last = expected[expected.len().saturating_sub(limit)..].to_vec();
        same(&kept(recent(store, &id, limit).await, promise), &last, promise);
    }
}

fn batch(name: &str) -> Vec<Arc<Message>> {
    (0..4).map(|n| Arc::new(Message::user(format!("{name} {n}")))).collect()
}

async fn check_whole(store: &impl MemoryStore) {
    let id = ConversationId::new("dropped");
    drop(abandon(append(store, &id, &batch("a"))));
    // A store that works elsewhere may take its time; what it appends later must stand before this.
    kept(append(store, &id, &batch("b")).await, WHOLE);
    let found = all(store, &id, WHOLE).await;
    let expected = [batch("a"), batch("b")].concat();
    assert!(found == expected || found == batch("b"), "{WHOLE}\nfound: {found:?}");

    let id = ConversationId::new("beside");
    let (a, b) = (batch("a"), batch("b"));
    let (first, second) = both(append(store, &id, &a), append(store, &id, &b)).await;
    kept(first, WHOLE);
    kept(second, WHOLE);
    let found = all(store, &id, WHOLE).await;
    let ordered = found == [a.clone(), b.clone()].concat() || found == [b, a].concat();
    assert!(ordered, "{WHOLE}\nfound: {found:?}");
}

async fn check_apart(store: &impl MemoryStore) {
    let promise = "memory store: conversations are kept apart";
    let mut taken = Vec::new();
    for id in ODD_IDS.map(ConversationId::new) {
        if append(store, &id, &batch(id.as_str())).await.is_ok() {
            kept(set_summary(store, &id, id.as_str()).await, promise);
            taken.push(id);
        }
    }
    assert!(!taken.is_empty(), "memory store: some conversations can be kept");
    for id in taken {
        same(&all(store, &id, promise).await, &batch(id.as_str()), promise);
        same(&kept(summary_of(store, &id).await, promise), &Some(id.as_str().to_owned()), promise);
    }
}

async fn check_summary(store: &impl MemoryStore) {
    let promise = "memory store: a summary can be set and replaced";
    let id = ConversationId::new("summary");
    for summary in ["They met.", "They met and parted.\n\"Twice\" ü"] {
        kept(set_summary(store, &id, summary).await, promise);
        same(&kept(summary_of(store, &id).await, promise), &Some(summary.to_owned()), promise);
    }
    let promise = "memory store: a summary does not touch the messages";
    same(&all(store, &id, promise).await, &Vec::new(), promise);
    kept(append(store, &id, &messages()).await, promise);
    kept(set_summary(store, &id, "Shorter.").await, promise);
    same(&all(store, &id, promise).await, &messages(), promise);
}

async fn check_search(store: &impl MemoryStore) {
    let promise = "memory store: `search` finds a message by a word of it";
    let (id, other) = (ConversationId::new("here"), ConversationId::new("there"));
    let wanted = Arc::new(Message::user("The kingfisher is blue."));
    kept(append(store, &id, &batch("a")).await, promise);
    kept(append(store, &id, std::slice::from_ref(&wanted)).await, promise);
    kept(append(store, &other, &[Arc::new(Message::user("A kingfisher, elsewhere."))]).await, promise);
    let found = kept(search(store, &id, "kingfisher", 10).await, promise);
    same(&found.first(), &Some(&wanted), promise);
    let stored = all(store, &id, promise).await;
    let own = found.iter().all(|message| stored.contains(message));
    assert!(own, "memory store: `search` stays in its conversation\nfound: {found:?}");
    for (query, limit) in [("kingfisher", 0), ("kingfisher", 1), ("a", 2), ("", 3), ("\" OR * --%_'", 3)] {
        let promise = "memory store: `search` returns no more than asked for, whatever the query";
        let found = kept(search(store, &id, query, limit).await, promise);
        assert!(found.len() <= limit, "{promise}\nfound {} for {query:?}", found.len());
    }
}

async fn check_forget(store: &impl MemoryStore) {
    let (id, other) = (ConversationId::new("gone"), ConversationId::new("stays"));
    for id in [&id, &other] {
        kept(append(store, id, &messages()).await, FORGET);
        kept(set_summary(store, id, "They met.").await, FORGET);
    }
    kept(store.forget(&id).await, FORGET);
    check_empty(store, &id, FORGET).await;
    let promise = "memory store: `forget` leaves other conversations alone";
    same(&all(store, &other, promise).await, &messages(), promise);
    same(&kept(summary_of(store, &other).await, promise), &Some("They met.".to_owned()), promise);
    kept(append(store, &id, &batch("new")).await, FORGET);
    same(&all(store, &id, FORGET).await, &batch("new"), FORGET);
}
