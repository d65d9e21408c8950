//! Checks of lists and of the expiry of conversations.

use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, MemoryErrorKind,
    MemoryStore, Timestamp,
};

use super::super::check::{expect_ok, same};
use super::{batch, check_empty, refused};

/// Returns the names of all conversations, sorted.
pub(super) async fn names(store: &impl MemoryStore, promise: &str) -> Vec<String> {
    let infos = expect_ok(store.list(&ConversationQuery::new()).await, promise);
    let mut names: Vec<_> = infos.iter().map(|info| info.id.to_string()).collect();
    names.sort();
    names
}

fn change(at: u64, millis: u64) -> ConversationChange {
    ConversationChange::at(at)
        .with_messages(batch("a"))
        .when(Timestamp::from_millis(millis))
}

pub(super) async fn check_list(store: &impl MemoryStore) {
    let promise = "memory store: `list` has the conversation that was unchanged for longest first";
    for (id, millis) in [
        ("c", 3_000),
        ("e", 1_000),
        ("a", 3_000),
        ("b", 2_000),
        ("d", 3_000),
    ] {
        expect_ok(
            store
                .save(&ConversationId::new(id), &change(0, millis))
                .await,
            promise,
        );
    }
    expect_ok(
        store
            .save(&ConversationId::new("e"), &change(4, 4_000))
            .await,
        promise,
    );
    expect_ok(
        store.save(&ConversationId::new("c"), &change(4, 500)).await,
        promise,
    );
    expect_ok(store.trim(&ConversationId::new("c"), 3).await, promise);
    let info = |id: &str, millis, first, end| {
        ConversationInfo::new(id.into(), Timestamp::from_millis(millis), first, end)
    };
    let expected = [
        info("b", 2_000, 0, 4),
        info("a", 3_000, 0, 4),
        info("c", 3_000, 3, 8),
        info("d", 3_000, 0, 4),
        info("e", 4_000, 0, 8),
    ];
    same(
        &expect_ok(store.list(&ConversationQuery::new()).await, promise),
        &expected.to_vec(),
        promise,
    );
    let loaded = expect_ok(store.load(&"c".into(), 1).await, promise);
    same(
        &(loaded.changed, loaded.first),
        &(Timestamp::from_millis(3_000), 3),
        promise,
    );

    let promise = "memory store: `list` returns the requested conversations";
    let early = ConversationQuery::new().unchanged_since(Timestamp::from_millis(3_000));
    same(
        &expect_ok(store.list(&early).await, promise),
        &expected[..1].to_vec(),
        promise,
    );
    for limit in [0, 1, 3, 9] {
        let query = ConversationQuery::new().limit(limit);
        let first = expected[..limit.min(5)].to_vec();
        same(
            &expect_ok(store.list(&query).await, promise),
            &first,
            promise,
        );
    }
    let promise = "memory store: `list` continues after any conversation";
    for (place, last) in expected.iter().enumerate() {
        let query = ConversationQuery::new().after(last).limit(2);
        let rest = &expected[place + 1..];
        same(
            &expect_ok(store.list(&query).await, promise),
            &rest[..rest.len().min(2)].to_vec(),
            promise,
        );
    }
}

pub(super) async fn check_expire(store: &impl MemoryStore) {
    let promise = "memory store: `expire` removes only unchanged conversations";
    let (id, other) = (ConversationId::new("old"), ConversationId::new("new"));
    let moment = Timestamp::from_millis;
    for (id, millis) in [(&id, 1_000), (&other, 2_000)] {
        expect_ok(store.save(id, &change(0, millis)).await, promise);
        same(
            &expect_ok(store.expire(id, moment(1_000)).await, promise),
            &false,
            promise,
        );
    }
    same(
        &expect_ok(
            store.expire(&"unknown".into(), moment(9_000)).await,
            promise,
        ),
        &false,
        promise,
    );
    let hold = expect_ok(store.hold(&id).await, promise);
    refused(
        store.expire(&id, moment(1_001)).await,
        MemoryErrorKind::Busy,
        promise,
    );
    drop(hold);
    same(
        &expect_ok(store.expire(&id, moment(1_001)).await, promise),
        &true,
        promise,
    );
    same(
        &expect_ok(store.expire(&other, moment(1_001)).await, promise),
        &false,
        promise,
    );
    check_empty(store, &id, promise).await;
    same(
        &names(store, promise).await,
        &vec!["new".to_owned()],
        promise,
    );
}
