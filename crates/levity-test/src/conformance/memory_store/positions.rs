//! Checks of the positions of messages.

use levity_core::{
    ConversationChange, ConversationId, MemoryErrorKind, MemoryStore, Summary, Timestamp,
};

use super::super::check::{expect_ok, same};
use super::{all, append, batch, refused, set_summary, summary_of};

pub(super) async fn check_pages(store: &impl MemoryStore) {
    let promise = "memory store: `read` pages through a conversation by positions";
    let id = ConversationId::new("pages");
    let sent = [batch("a"), batch("b"), batch("c")].concat();
    for part in sent.chunks(5) {
        expect_ok(append(store, &id, part).await, promise);
    }
    expect_ok(
        set_summary(store, &id, "All but the last.", 11).await,
        promise,
    );
    same(
        &expect_ok(store.load(&id, 0).await, promise).end,
        &12,
        promise,
    );
    let placed: Vec<_> = (0..).zip(sent).collect();
    for from in [0, 1, 7, 11, 12, 13, u64::MAX] {
        for limit in [0, 1, 5, 12, usize::MAX] {
            let expected: Vec<_> = placed
                .iter()
                .filter(|(at, _)| *at >= from)
                .take(limit)
                .cloned()
                .collect();
            same(
                &expect_ok(store.read(&id, from, limit).await, promise),
                &expected,
                promise,
            );
        }
    }
}

pub(super) async fn check_again(store: &impl MemoryStore) {
    let promise = "memory store: repeating a save changes nothing";
    let id = ConversationId::new("again");
    let first = ConversationChange::at(0)
        .with_messages(batch("a"))
        .with_summary(Summary::new("They met.", 1))
        .when(Timestamp::from_millis(1_000));
    let second = ConversationChange::at(4)
        .with_messages(batch("b"))
        .when(Timestamp::from_millis(2_000));
    let third = ConversationChange::at(8)
        .with_summary(Summary::new("They parted.", 4))
        .when(Timestamp::from_millis(3_000));
    let changes = [first, second, third];
    for upto in 0..changes.len() {
        expect_ok(store.save(&id, &changes[upto]).await, promise);
        let before = expect_ok(store.load(&id, usize::MAX).await, promise);
        for made in &changes[..=upto] {
            expect_ok(store.save(&id, made).await, promise);
            same(
                &expect_ok(store.load(&id, usize::MAX).await, promise),
                &before,
                promise,
            );
        }
    }
    same(
        &summary_of(store, &id, promise).await,
        &Some(("They parted.".to_owned(), 4)),
        promise,
    );
    let part = ConversationChange::at(5).with_messages(batch("b")[1..3].iter().cloned());
    expect_ok(store.save(&id, &part).await, promise);
    same(
        &expect_ok(store.load(&id, 0).await, promise).end,
        &8,
        promise,
    );
}

pub(super) async fn check_moved(store: &impl MemoryStore) {
    let promise = "memory store: a save at another position than the end is rejected as moved";
    let id = ConversationId::new("moved");
    let save = |at| ConversationChange::at(at).with_messages(batch("a"));
    refused(
        store.save(&id, &save(1)).await,
        MemoryErrorKind::Moved,
        promise,
    );
    expect_ok(store.save(&id, &save(0)).await, promise);
    let before = expect_ok(store.load(&id, usize::MAX).await, promise);
    let elsewhere = [
        ConversationChange::at(0).with_messages(batch("b")),
        save(1),
        save(2),
        save(5),
        save(u64::MAX),
        ConversationChange::at(9),
        ConversationChange::at(0).with_messages([batch("a"), batch("a")].concat()),
        ConversationChange::at(2).with_summary(Summary::new("They met.", 2)),
        ConversationChange::at(5).with_summary(Summary::new("They met.", 2)),
        save(0).with_summary(Summary::new("They met.", 2)),
    ];
    for change in elsewhere {
        refused(
            store.save(&id, &change).await,
            MemoryErrorKind::Moved,
            promise,
        );
        same(
            &expect_ok(store.load(&id, usize::MAX).await, promise),
            &before,
            promise,
        );
    }
    expect_ok(store.save(&id, &save(4)).await, promise);
}

pub(super) async fn check_trim(store: &impl MemoryStore) {
    let promise = "memory store: `trim` removes the messages before a position, and nothing else";
    let (id, other) = (ConversationId::new("trimmed"), ConversationId::new("whole"));
    for id in [&id, &other] {
        expect_ok(append(store, id, &batch("early")).await, promise);
        expect_ok(append(store, id, &batch("late")).await, promise);
    }
    expect_ok(set_summary(store, &id, "They met.", 2).await, promise);
    expect_ok(store.trim(&id, 5).await, promise);
    expect_ok(store.trim(&id, 3).await, promise);
    let placed: Vec<_> = (4..).zip(batch("late")).skip(1).collect();
    same(
        &expect_ok(store.read(&id, 0, 10).await, promise),
        &placed,
        promise,
    );
    same(
        &all(store, &id, promise).await,
        &batch("late")[1..].to_vec(),
        promise,
    );
    let found = expect_ok(store.load(&id, 0).await, promise);
    same(&(found.first, found.end), &(5, 8), promise);
    same(
        &summary_of(store, &id, promise).await,
        &Some(("They met.".to_owned(), 2)),
        promise,
    );
    let found = expect_ok(store.search(&id, "early", 10).await, promise);
    assert!(
        found.iter().all(|(at, _)| *at >= 5),
        "{promise}\nfound: {found:?}"
    );
    same(
        &all(store, &other, promise).await,
        &[batch("early"), batch("late")].concat(),
        promise,
    );

    let again = ConversationChange::at(4).with_messages(batch("late"));
    expect_ok(
        store.save(&id, &again).await,
        "memory store: repeating a save changes nothing",
    );
    let gone = ConversationChange::at(0).with_messages(batch("early"));
    refused(
        store.save(&id, &gone).await,
        MemoryErrorKind::Moved,
        promise,
    );

    expect_ok(store.trim(&id, u64::MAX).await, promise);
    same(
        &expect_ok(store.read(&id, 0, 10).await, promise),
        &Vec::new(),
        promise,
    );
    same(
        &expect_ok(store.load(&id, 10).await, promise).end,
        &8,
        promise,
    );
    expect_ok(append(store, &id, &batch("new")).await, promise);
    let placed: Vec<_> = (8..).zip(batch("new")).collect();
    same(
        &expect_ok(store.read(&id, 0, 10).await, promise),
        &placed,
        promise,
    );
}
