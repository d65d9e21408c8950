//! Checks of leases on conversations.

use levity_core::{ConversationId, MemoryErrorKind, MemoryStore};

use super::super::check::{abandon, expect_ok, same};
use super::{all, append, batch, lists, refused};

pub(super) async fn check_leases(store: &impl MemoryStore) {
    let promise = "memory store: a leased conversation is busy for others";
    let (id, other) = (ConversationId::new("held"), ConversationId::new("free"));
    let hold = expect_ok(store.hold(&id).await, promise);
    refused(store.hold(&id).await, MemoryErrorKind::Busy, promise);
    refused(store.forget(&id).await, MemoryErrorKind::Busy, promise);
    same(
        &lists::names(store, promise).await,
        &Vec::<String>::new(),
        "memory store: a lease creates no conversation",
    );

    let promise = "memory store: a leased conversation can be saved and read";
    expect_ok(append(store, &id, &batch("a")).await, promise);
    expect_ok(store.trim(&id, 1).await, promise);
    same(
        &all(store, &id, promise).await,
        &batch("a")[1..].to_vec(),
        promise,
    );
    refused(store.forget(&id).await, MemoryErrorKind::Busy, promise);

    let promise = "memory store: a lease does not affect other conversations";
    let second = expect_ok(store.hold(&other).await, promise);
    drop(hold);
    refused(store.hold(&other).await, MemoryErrorKind::Busy, promise);

    let promise = "memory store: a released conversation is free";
    drop(abandon(store.hold(&id)));
    drop(expect_ok(store.hold(&id).await, promise));
    drop(second);
    drop(expect_ok(store.hold(&other).await, promise));
    same(&expect_ok(store.forget(&id).await, promise), &true, promise);
}
