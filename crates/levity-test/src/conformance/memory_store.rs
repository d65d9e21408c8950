use std::sync::Arc;

use levity_core::{ConversationId, MemoryStore, Message};

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

async fn check_unknown(store: &impl MemoryStore) {
    let id = ConversationId::new("unknown");
    for _ in 0..2 {
        check_empty(store, &id, UNKNOWN).await;
        kept(store.forget(&id).await, UNKNOWN);
    }
}

async fn check_empty(store: &impl MemoryStore, id: &ConversationId, promise: &str) {
    same(&kept(store.recent(id, 10).await, promise), &Vec::new(), promise);
    same(&kept(store.summary(id).await, promise), &None, promise);
    same(&kept(store.search(id, "sum", 10).await, promise), &Vec::new(), promise);
}

async fn all(store: &impl MemoryStore, id: &ConversationId, promise: &str) -> Vec<Arc<Message>> {
    kept(store.recent(id, usize::MAX).await, promise)
}

async fn check_order(store: &impl MemoryStore) {
    let id = ConversationId::new("order");
    let sent = messages();
    let (first, rest) = sent.split_at(1);
    kept(store.append(&id, first).await, ORDER);
    kept(store.append(&id, &[]).await, "memory store: an empty append changes nothing");
    kept(store.append(&id, rest).await, ORDER);
    kept(store.append(&id, first).await, ORDER);
    let expected: Vec<_> = sent.iter().chain(first).cloned().collect();
    same(&all(store, &id, ORDER).await, &expected, ORDER);
    for limit in [0, 1, 3, expected.len(), expected.len() + 1] {
        let promise = "memory store: `recent` returns the last messages, oldest first";
        let last = expected[expected.len().saturating_sub(limit)..].to_vec();
        same(&kept(store.recent(&id, limit).await, promise), &last, promise);
    }
}

fn batch(name: &str) -> Vec<Arc<Message>> {
    (0..4).map(|n| Arc::new(Message::user(format!("{name} {n}")))).collect()
}

async fn check_whole(store: &impl MemoryStore) {
    let id = ConversationId::new("dropped");
    drop(abandon(store.append(&id, &batch("a"))));
    // A store that works elsewhere may take its time; what it appends later must stand before this.
    kept(store.append(&id, &batch("b")).await, WHOLE);
    let found = all(store, &id, WHOLE).await;
    let expected = [batch("a"), batch("b")].concat();
    assert!(found == expected || found == batch("b"), "{WHOLE}\nfound: {found:?}");

    let id = ConversationId::new("beside");
    let (a, b) = (batch("a"), batch("b"));
    let (first, second) = both(store.append(&id, &a), store.append(&id, &b)).await;
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
        if store.append(&id, &batch(id.as_str())).await.is_ok() {
            kept(store.set_summary(&id, id.as_str()).await, promise);
            taken.push(id);
        }
    }
    assert!(!taken.is_empty(), "memory store: some conversations can be kept");
    for id in taken {
        same(&all(store, &id, promise).await, &batch(id.as_str()), promise);
        same(&kept(store.summary(&id).await, promise), &Some(id.as_str().to_owned()), promise);
    }
}

async fn check_summary(store: &impl MemoryStore) {
    let promise = "memory store: a summary can be set and replaced";
    let id = ConversationId::new("summary");
    for summary in ["They met.", "They met and parted.\n\"Twice\" ü"] {
        kept(store.set_summary(&id, summary).await, promise);
        same(&kept(store.summary(&id).await, promise), &Some(summary.to_owned()), promise);
    }
    let promise = "memory store: a summary does not touch the messages";
    same(&all(store, &id, promise).await, &Vec::new(), promise);
    kept(store.append(&id, &messages()).await, promise);
    kept(store.set_summary(&id, "Shorter.").await, promise);
    same(&all(store, &id, promise).await, &messages(), promise);
}

async fn check_search(store: &impl MemoryStore) {
    let promise = "memory store: `search` finds a message by a word of it";
    let (id, other) = (ConversationId::new("here"), ConversationId::new("there"));
    let wanted = Arc::new(Message::user("The kingfisher is blue."));
    kept(store.append(&id, &batch("a")).await, promise);
    kept(store.append(&id, std::slice::from_ref(&wanted)).await, promise);
    kept(store.append(&other, &[Arc::new(Message::user("A kingfisher, elsewhere."))]).await, promise);
    let found = kept(store.search(&id, "kingfisher", 10).await, promise);
    same(&found.first(), &Some(&wanted), promise);
    let stored = all(store, &id, promise).await;
    let own = found.iter().all(|message| stored.contains(message));
    assert!(own, "memory store: `search` stays in its conversation\nfound: {found:?}");
    for (query, limit) in [("kingfisher", 0), ("kingfisher", 1), ("a", 2), ("", 3), ("\" OR * --%_'", 3)] {
        let promise = "memory store: `search` returns no more than asked for, whatever the query";
        let found = kept(store.search(&id, query, limit).await, promise);
        assert!(found.len() <= limit, "{promise}\nfound {} for {query:?}", found.len());
    }
}

async fn check_forget(store: &impl MemoryStore) {
    let (id, other) = (ConversationId::new("gone"), ConversationId::new("stays"));
    for id in [&id, &other] {
        kept(store.append(id, &messages()).await, FORGET);
        kept(store.set_summary(id, "They met.").await, FORGET);
    }
    kept(store.forget(&id).await, FORGET);
    check_empty(store, &id, FORGET).await;
    let promise = "memory store: `forget` leaves other conversations alone";
    same(&all(store, &other, promise).await, &messages(), promise);
    same(&kept(store.summary(&other).await, promise), &Some("They met.".to_owned()), promise);
    kept(store.append(&id, &batch("new")).await, FORGET);
    same(&all(store, &id, FORGET).await, &batch("new"), FORGET);
}
