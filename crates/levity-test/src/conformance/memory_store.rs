//! The suite for stores of conversations. Its modules check positions, lists and leases.
//!
//! A conversation is a list of messages with fixed positions. Most checks save by position and
//! compare everything that the store then returns.

use std::sync::Arc;

use levity_core::{
    ConversationChange, ConversationId, LoadedConversation, MemoryError, MemoryErrorKind,
    MemoryStore, Message, Summary,
};

use super::check::{abandon, both, expect_ok, same};
use super::samples::{ODD_IDS, messages};

mod leases;
mod lists;
mod positions;

/// Checks a [`MemoryStore`] against its contract.
///
/// `make` returns an empty store.
///
/// The suite checks:
/// - an unknown conversation is an empty one, and can be forgotten;
/// - messages are returned as they were saved and in that order, including provider data and media,
///   deep values and long texts;
/// - `load` returns the last ones, oldest first, no more than requested, and none that are in the
///   summary;
/// - `read` pages through a conversation by positions, which never change;
/// - repeating a save changes nothing, and a save at another position is rejected as moved;
/// - a change without messages and summary creates no conversation;
/// - a save is all or nothing: dropped half-way, or beside another;
/// - conversations are separate, whatever their ids; an id may be rejected, but not confused with
///   another;
/// - a summary can be set and replaced, does not touch the messages, and covers only existing
///   messages;
/// - `search` finds a message by one of its words, in its own conversation only, and no more than
///   requested;
/// - `trim` removes the messages before a position, and nothing else;
/// - `list` has every conversation once, the one unchanged for longest first, and continues after
///   any;
/// - a leased conversation is busy for others, can be saved, and is free when it is released;
/// - `forget` and `expire` leave nothing behind, and do not affect the others.
///
/// Not checked: the quality of a search, the cost of calls, durability beyond the process, and
/// leases across processes.
///
/// ```no_run
/// # use levity_core::MemoryStore;
/// # async fn test<S: MemoryStore>(new_in_empty_folder: impl AsyncFn() -> S) {
/// use levity_test::conformance;
///
/// conformance::memory_store(new_in_empty_folder).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn memory_store<S: MemoryStore>(make: impl AsyncFn() -> S) {
    check_unknown(&make().await).await;
    check_order(&make().await).await;
    positions::check_pages(&make().await).await;
    positions::check_again(&make().await).await;
    positions::check_moved(&make().await).await;
    check_whole(&make().await).await;
    check_apart(&make().await).await;
    check_summary(&make().await).await;
    check_search(&make().await).await;
    positions::check_trim(&make().await).await;
    lists::check_list(&make().await).await;
    leases::check_leases(&make().await).await;
    check_forget(&make().await).await;
    lists::check_expire(&make().await).await;
}

const UNKNOWN: &str = "memory store: an unknown conversation is an empty one";
const ORDER: &str = "memory store: messages are returned as they were saved, and in that order";
const WHOLE: &str = "memory store: a save is all or nothing";
const FORGET: &str = "memory store: `forget` leaves nothing behind";

/// Saves messages at the end of the conversation.
async fn append(
    store: &impl MemoryStore,
    id: &ConversationId,
    messages: &[Arc<Message>],
) -> Result<(), MemoryError> {
    let end = store.load(id, 0).await?.end;
    store
        .save(
            id,
            &ConversationChange::at(end).with_messages(messages.iter().cloned()),
        )
        .await
}

async fn recent(
    store: &impl MemoryStore,
    id: &ConversationId,
    limit: usize,
) -> Result<Vec<Arc<Message>>, MemoryError> {
    Ok(store.load(id, limit).await?.messages)
}

async fn summary_of(
    store: &impl MemoryStore,
    id: &ConversationId,
    promise: &str,
) -> Option<(String, u64)> {
    let summary = expect_ok(store.load(id, 0).await, promise).summary;
    summary.map(|summary| (summary.text.as_ref().to_owned(), summary.upto))
}

async fn set_summary(
    store: &impl MemoryStore,
    id: &ConversationId,
    text: &str,
    upto: u64,
) -> Result<(), MemoryError> {
    let end = store.load(id, 0).await?.end;
    store
        .save(
            id,
            &ConversationChange::at(end).with_summary(Summary::new(text, upto)),
        )
        .await
}

/// Checks that a call was rejected for this reason.
#[track_caller]
fn refused<T>(result: Result<T, MemoryError>, kind: MemoryErrorKind, promise: &str) {
    let found = result.err().map(|error| error.kind());
    assert!(
        found == Some(kind),
        "{promise}\n   found: {found:?}\nexpected: {kind:?}"
    );
}

async fn check_unknown(store: &impl MemoryStore) {
    let id = ConversationId::new("unknown");
    for _ in 0..2 {
        check_empty(store, &id, UNKNOWN).await;
        same(
            &expect_ok(store.forget(&id).await, UNKNOWN),
            &false,
            UNKNOWN,
        );
        expect_ok(store.trim(&id, 3).await, UNKNOWN);
    }
    let promise = "memory store: an empty change creates no conversation";
    expect_ok(store.save(&id, &ConversationChange::at(0)).await, promise);
    same(
        &lists::names(store, promise).await,
        &Vec::<String>::new(),
        promise,
    );
}

async fn check_empty(store: &impl MemoryStore, id: &ConversationId, promise: &str) {
    same(
        &expect_ok(store.load(id, 10).await, promise),
        &LoadedConversation::default(),
        promise,
    );
    same(
        &expect_ok(store.read(id, 0, 10).await, promise),
        &Vec::new(),
        promise,
    );
    same(
        &expect_ok(store.search(id, "sum", 10).await, promise),
        &Vec::new(),
        promise,
    );
}

async fn all(store: &impl MemoryStore, id: &ConversationId, promise: &str) -> Vec<Arc<Message>> {
    expect_ok(recent(store, id, usize::MAX).await, promise)
}

async fn check_order(store: &impl MemoryStore) {
    let id = ConversationId::new("order");
    let sent = [messages(), hard()].concat();
    let (first, rest) = sent.split_at(1);
    expect_ok(append(store, &id, first).await, ORDER);
    expect_ok(
        append(store, &id, &[]).await,
        "memory store: an empty change changes nothing",
    );
    expect_ok(append(store, &id, rest).await, ORDER);
    expect_ok(append(store, &id, first).await, ORDER);
    let expected: Vec<_> = sent.iter().chain(first).cloned().collect();
    same(&all(store, &id, ORDER).await, &expected, ORDER);
    let bytes = |messages: &Vec<Arc<Message>>| expect_ok(serde_json::to_string(messages), ORDER);
    same(
        &bytes(&all(store, &id, ORDER).await),
        &bytes(&expected),
        ORDER,
    );
    for limit in [0, 1, 3, expected.len(), expected.len() + 1] {
        let promise = "memory store: `load` returns the last messages, oldest first";
        let last = expected[expected.len().saturating_sub(limit)..].to_vec();
        same(
            &expect_ok(recent(store, &id, limit).await, promise),
            &last,
            promise,
        );
    }
}

/// Returns messages that are hard to store: deep, long, with numbers at the edge and text that
/// looks like an escape.
fn hard() -> Vec<Arc<Message>> {
    let deep = (0..64).fold(serde_json::json!({"\\ud800": "\\ud800"}), |inner, _| {
        serde_json::json!([inner])
    });
    let call = levity_core::ToolCall::new("deep", "deep", deep);
    let numbers = serde_json::json!([
        u64::MAX,
        i64::MIN,
        0.1,
        1e308,
        -0.0,
        5e-324,
        123_456_789.123_456_79
    ]);
    let mut part = levity_core::Part::text("\u{feff}\u{0}\u{2029}");
    part.set_opaque(levity_core::ProviderState::new("test", numbers));
    let nothing = levity_core::ToolOutput::value(serde_json::Value::Null);
    let result = levity_core::ToolResult::new(&call, Ok(nothing));
    [
        Message::new(
            levity_core::Role::Assistant,
            [part, levity_core::Part::ToolCall(call)],
        ),
        Message::new(
            levity_core::Role::Tool,
            [levity_core::Part::ToolResult(result)],
        ),
        Message::user("long ".repeat(50_000)),
        Message::user(""),
    ]
    .map(Arc::new)
    .into()
}

fn batch(name: &str) -> Vec<Arc<Message>> {
    (0..4)
        .map(|n| Arc::new(Message::user(format!("{name} {n}"))))
        .collect()
}

async fn check_whole(store: &impl MemoryStore) {
    let id = ConversationId::new("dropped");
    let (a, b) = (batch("a"), batch("b"));
    let save = |messages: &[Arc<Message>]| {
        ConversationChange::at(0).with_messages(messages.iter().cloned())
    };
    drop(abandon(store.save(&id, &save(&a))));
    // A remote store may take its time; whichever save is first, the other has moved.
    let second = store.save(&id, &save(&b)).await;
    let found = all(store, &id, WHOLE).await;
    same(&found, if second.is_ok() { &b } else { &a }, WHOLE);

    let id = ConversationId::new("beside");
    let (at_a, at_b) = (save(&a), save(&b));
    let (first, second) = both(store.save(&id, &at_a), store.save(&id, &at_b)).await;
    assert!(
        first.is_ok() != second.is_ok(),
        "{WHOLE}\nfound: {first:?} and {second:?}"
    );
    let (found, expected) = (
        all(store, &id, WHOLE).await,
        if first.is_ok() { &a } else { &b },
    );
    same(&found, expected, WHOLE);
    refused(first.and(second), MemoryErrorKind::Moved, WHOLE);
}

async fn check_apart(store: &impl MemoryStore) {
    let promise = "memory store: conversations are separate";
    let mut taken = Vec::new();
    for id in ODD_IDS.map(ConversationId::new) {
        if append(store, &id, &batch(id.as_str())).await.is_ok() {
            expect_ok(set_summary(store, &id, id.as_str(), 0).await, promise);
            taken.push(id);
        }
    }
    assert!(
        !taken.is_empty(),
        "memory store: some conversations can be stored"
    );
    for id in &taken {
        same(&all(store, id, promise).await, &batch(id.as_str()), promise);
        same(
            &summary_of(store, id, promise).await,
            &Some((id.to_string(), 0)),
            promise,
        );
    }
    let mut names: Vec<_> = taken.iter().map(ToString::to_string).collect();
    names.sort();
    same(&lists::names(store, promise).await, &names, promise);
}

async fn check_summary(store: &impl MemoryStore) {
    let promise = "memory store: a summary can be set and replaced";
    let id = ConversationId::new("summary");
    for summary in ["They met.", "They met and parted.\n\"Twice\" ü", ""] {
        expect_ok(set_summary(store, &id, summary, 0).await, promise);
        same(
            &summary_of(store, &id, promise).await,
            &Some((summary.to_owned(), 0)),
            promise,
        );
    }
    let promise = "memory store: a summary does not touch the messages";
    same(&all(store, &id, promise).await, &Vec::new(), promise);
    expect_ok(append(store, &id, &messages()).await, promise);
    expect_ok(set_summary(store, &id, "Shorter.", 0).await, promise);
    same(&all(store, &id, promise).await, &messages(), promise);

    let promise = "memory store: summarised messages are not loaded";
    expect_ok(set_summary(store, &id, "Longer.", 3).await, promise);
    same(
        &all(store, &id, promise).await,
        &messages()[3..].to_vec(),
        promise,
    );
    same(
        &expect_ok(recent(store, &id, 2).await, promise),
        &messages()[5..].to_vec(),
        promise,
    );
    expect_ok(append(store, &id, &batch("more")).await, promise);
    same(
        &summary_of(store, &id, promise).await,
        &Some(("Longer.".to_owned(), 3)),
        promise,
    );

    let promise = "memory store: a summary covers only existing messages";
    refused(
        set_summary(store, &id, "All of it.", 12).await,
        MemoryErrorKind::Refused,
        promise,
    );
    let whole = ConversationChange::at(11)
        .with_messages(batch("last"))
        .with_summary(Summary::new("All of it.", 15));
    expect_ok(store.save(&id, &whole).await, promise);
    same(
        &summary_of(store, &id, promise).await,
        &Some(("All of it.".to_owned(), 15)),
        promise,
    );
}

async fn search(
    store: &impl MemoryStore,
    id: &ConversationId,
    query: &str,
    limit: usize,
) -> Result<Vec<Arc<Message>>, MemoryError> {
    Ok(store
        .search(id, query, limit)
        .await?
        .into_iter()
        .map(|(_, message)| message)
        .collect())
}

async fn check_search(store: &impl MemoryStore) {
    let promise = "memory store: `search` finds a message by one of its words";
    let (id, other) = (ConversationId::new("here"), ConversationId::new("there"));
    let wanted = Arc::new(Message::user("The kingfisher is blue."));
    expect_ok(append(store, &id, &batch("a")).await, promise);
    expect_ok(
        append(store, &id, std::slice::from_ref(&wanted)).await,
        promise,
    );
    expect_ok(
        append(
            store,
            &other,
            &[Arc::new(Message::user("A kingfisher, elsewhere."))],
        )
        .await,
        promise,
    );
    for query in ["kingfisher", "KingFisher", "Is the \"kingfisher*\" (blue)?"] {
        let found = expect_ok(store.search(&id, query, 10).await, promise);
        same(&found.first(), &Some(&(4, wanted.clone())), promise);
    }
    let found = expect_ok(search(store, &id, "kingfisher", 10).await, promise);
    let stored = all(store, &id, promise).await;
    let own = found.iter().all(|message| stored.contains(message));
    assert!(
        own,
        "memory store: `search` stays in its conversation\nfound: {found:?}"
    );
    let odd = [
        "a",
        "",
        "\" OR * --%_'",
        "NEAR(a b)",
        "text:a",
        "^a",
        "\u{0}",
        "a AND NOT",
        "{",
        "𝔸",
    ];
    for (query, limit) in [("kingfisher", 0), ("kingfisher", 1)]
        .into_iter()
        .chain(odd.map(|odd| (odd, 2)))
    {
        let promise = "memory store: `search` returns no more than requested, whatever the query";
        let found = expect_ok(search(store, &id, query, limit).await, promise);
        assert!(
            found.len() <= limit,
            "{promise}\nfound {} for {query:?}",
            found.len()
        );
    }
}

async fn check_forget(store: &impl MemoryStore) {
    let (id, other) = (ConversationId::new("gone"), ConversationId::new("stays"));
    for id in [&id, &other] {
        expect_ok(append(store, id, &messages()).await, FORGET);
        expect_ok(set_summary(store, id, "They met.", 0).await, FORGET);
    }
    same(&expect_ok(store.forget(&id).await, FORGET), &true, FORGET);
    check_empty(store, &id, FORGET).await;
    let promise = "memory store: `forget` does not affect other conversations";
    same(&all(store, &other, promise).await, &messages(), promise);
    same(
        &summary_of(store, &other, promise).await,
        &Some(("They met.".to_owned(), 0)),
        promise,
    );
    same(
        &lists::names(store, promise).await,
        &vec!["stays".to_owned()],
        promise,
    );
    expect_ok(append(store, &id, &batch("new")).await, FORGET);
    same(&all(store, &id, FORGET).await, &batch("new"), FORGET);
}
