//! The suite for vector stores.
//!
//! A store may search approximately, so the suite checks only matches that are far ahead of all
//! others.

use std::collections::BTreeSet;

use levity_core::{
    Timestamp, VectorEntry, VectorFilter, VectorMatch, VectorStore, VectorStoreError,
    VectorStoreErrorKind,
};

use super::check::{abandon, both, expect_ok, no_panic, same};

/// The namespaces of the suite.
const ONE: &str = "levity-conformance-one";
const OTHER: &str = "levity-conformance-other";

/// The number of components of the vectors.
const SIZE: usize = 16;

/// The number of vectors in the larger checks: more than one request usually contains.
const MANY: i64 = 1_205;

/// The tolerance for cosines.
const SLACK: f32 = 1e-2;

/// Names of documents that a careless query language would interpret.
const NAMES: [&str; 6] = [
    "docs/a.md",
    "it's \"quoted\".md",
    "$in",
    "a*[b]?.md",
    "東京/café.md",
    "'; DROP TABLE x; --",
];

/// Checks a [`VectorStore`] against its contract.
///
/// `make` returns a store in which no one else uses namespaces that begin with
/// `levity-conformance-`. The suite removes its vectors at the end.
///
/// The suite checks:
/// - a namespace without vectors is empty, and removing from it succeeds;
/// - `upsert` adds and replaces, also more vectors than one request contains, and may be repeated;
/// - `get`, `keys` and `count` agree, also for the largest keys;
/// - `nearest` orders by the cosine, whatever the length of the vectors, returns each key once and
///   no more than requested;
/// - each filter, and filters together, also with unusual names;
/// - `remove` and `remove_all` remove nothing else, and may be repeated;
/// - vectors of other sizes and vectors with infinite components are rejected;
/// - dropping a call is harmless, and calls may run at the same time.
///
/// Not checked: how many of the nearest vectors a search finds, that a change survives the end of
/// the process, time limits, and replies of a faulty server.
///
/// ```
/// use levity_test::{InMemoryVectors, conformance};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// conformance::vector_store(InMemoryVectors::new).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn vector_store<S: VectorStore>(make: impl Fn() -> S) {
    let store = make();
    clear(&store).await;
    check_empty(&store, ONE).await;
    check_upsert_and_lists(&store).await;
    check_order(&store).await;
    check_filters(&store).await;
    check_namespaces_and_removal(&store).await;
    check_rejections(&store).await;
    check_concurrency(&store).await;
    clear(&store).await;
}

async fn clear(store: &impl VectorStore) {
    let promise = "vector store: `remove_all` may be repeated";
    for namespace in [ONE, OTHER, ONE] {
        ok(store.remove_all(namespace), promise).await;
    }
}

/// Waits for a call that must succeed.
async fn ok<T>(call: impl Future<Output = Result<T, VectorStoreError>>, promise: &str) -> T {
    expect_ok(no_panic(call, promise).await, promise)
}

/// A vector of length 1 that differs clearly from those of other keys.
fn vector(key: i64) -> Vec<f32> {
    let mut state = key.cast_unsigned();
    let part = |_| crate::manual::splitmix(&mut state) as f32 / u64::MAX as f32 - 0.5;
    let parts: Vec<f32> = (0..SIZE).map(part).collect();
    let length = dot(&parts, &parts).sqrt();
    parts.iter().map(|part| part / length).collect()
}

fn entry(key: i64) -> VectorEntry {
    VectorEntry::new(key, vector(key))
        .document("docs/a.md")
        .kind("markdown")
        .changed(Timestamp::from_millis(1_000))
}

fn dot(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

async fn check_empty(store: &impl VectorStore, namespace: &str) {
    let promise = "vector store: a namespace without vectors is empty";
    same(&ok(store.count(namespace), promise).await, &0, promise);
    same(&all_keys(store, namespace).await, &vec![], promise);
    same(
        &ok(store.get(namespace, &[1, 2]), promise).await,
        &vec![],
        promise,
    );
    let found = search(store, namespace, &vector(1), &VectorFilter::new(), 5).await;
    same(&found, &vec![], promise);
    ok(
        store.remove(namespace, &[1, 2]),
        "vector store: removing from nothing succeeds",
    )
    .await;
    ok(
        store.upsert(namespace, &[]),
        "vector store: an empty list is no error",
    )
    .await;
    ok(
        store.remove(namespace, &[]),
        "vector store: an empty list is no error",
    )
    .await;
    same(
        &ok(store.get(namespace, &[]), promise).await,
        &vec![],
        promise,
    );
}

/// Returns all keys in increasing order.
async fn all_keys(store: &impl VectorStore, namespace: &str) -> Vec<i64> {
    let promise = "vector store: `keys` returns each key, and ends";
    let (mut keys, mut after, mut parts) = (BTreeSet::new(), None, 0);
    loop {
        let part = ok(store.keys(namespace, after.as_deref()), promise).await;
        assert!(
            part.keys.len() <= 10_000,
            "{promise}, at most 10,000 in a part"
        );
        keys.extend(part.keys);
        parts += 1;
        assert!(parts <= 10 * MANY, "{promise}; it did not end");
        match part.next {
            Some(next) => after = Some(next),
            None => return keys.into_iter().collect(),
        }
    }
}

async fn search(
    store: &impl VectorStore,
    namespace: &str,
    vector: &[f32],
    filter: &VectorFilter,
    limit: usize,
) -> Vec<VectorMatch> {
    let promise = "vector store: `nearest` finds vectors";
    let found = ok(store.nearest(namespace, vector, filter, limit), promise).await;
    assert!(
        found.len() <= limit,
        "vector store: `nearest` returns no more than requested\nfound: {} instead of {limit}",
        found.len()
    );
    let keys: BTreeSet<_> = found.iter().map(|found| found.key).collect();
    let promise = "vector store: `nearest` returns each key once";
    same(&keys.len(), &found.len(), promise);
    assert!(
        found.is_sorted_by(|a, b| a.cosine >= b.cosine - SLACK),
        "vector store: `nearest` returns the best match first\nfound: {found:?}"
    );
    let bounded = found.iter().all(|found| found.cosine.abs() <= 1.0 + SLACK);
    assert!(
        bounded,
        "vector store: a cosine is at most 1\nfound: {found:?}"
    );
    found
}

async fn check_upsert_and_lists(store: &impl VectorStore) {
    let promise = "vector store: `upsert` adds vectors, and may be repeated";
    // The largest numbers of 53 and of 63 bits, and those after them.
    let large = [(1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MAX];
    let keys: Vec<i64> = (0..MANY).chain(large).collect();
    let entries: Vec<_> = keys.iter().map(|key| entry(*key)).collect();
    for _ in 0..2 {
        ok(store.upsert(ONE, &entries), promise).await;
        let count = ok(store.count(ONE), promise).await;
        same(&count, &(keys.len() as u64), promise);
    }
    same(
        &all_keys(store, ONE).await,
        &keys,
        "vector store: `keys` returns each key",
    );
    let promise = "vector store: `get` returns the vectors of the keys that exist";
    let wanted: Vec<i64> = keys.iter().copied().chain([MANY + 7]).collect();
    let mut found = ok(store.get(ONE, &wanted), promise).await;
    found.sort_by_key(|(key, _)| *key);
    let found_keys: Vec<_> = found.iter().map(|(key, _)| *key).collect();
    same(&found_keys, &keys, promise);
    for (key, found) in &found {
        same(&found.len(), &SIZE, promise);
        let cosine = dot(found, &vector(*key)) / dot(found, found).sqrt();
        assert!(
            cosine > 1.0 - SLACK,
            "{promise}\nfound another vector for {key}"
        );
    }
    for key in [7, MANY - 1, i64::MAX] {
        let found = search(store, ONE, &vector(key), &VectorFilter::new(), 10).await;
        let promise = "vector store: `nearest` finds an equal vector first";
        same(&found.first().map(|found| found.key), &Some(key), promise);
        same(
            &found.len(),
            &10,
            "vector store: `nearest` returns as many as requested",
        );
    }
    let none = search(store, ONE, &vector(1), &VectorFilter::new(), 0).await;
    same(&none, &vec![], "vector store: a limit of 0 finds nothing");

    let promise = "vector store: `upsert` replaces the vector and the properties of a key";
    let new = VectorEntry::new(7, vector(-7))
        .document("new.md")
        .kind("prose");
    ok(store.upsert(ONE, &[new]), promise).await;
    same(
        &ok(store.count(ONE), promise).await,
        &(keys.len() as u64),
        promise,
    );
    let filter = VectorFilter::new().documents(["new.md"]).kind("prose");
    let found = search(store, ONE, &vector(-7), &filter, 5).await;
    let keys: Vec<_> = found.iter().map(|found| found.key).collect();
    same(&keys, &vec![7], promise);
    ok(store.remove_all(ONE), "vector store: `remove_all` succeeds").await;
}

async fn check_order(store: &impl VectorStore) {
    let promise = "vector store: `nearest` orders by the cosine and not by the distance";
    let axis = |first: f32, second: f32| {
        let mut vector = vec![0.0; SIZE];
        (vector[0], vector[1]) = (first, second);
        vector
    };
    let entries = [
        VectorEntry::new(1, axis(1.0, 0.0)),
        VectorEntry::new(2, axis(30.0, 3.0)),
        VectorEntry::new(3, axis(0.0, 1.0)),
        VectorEntry::new(4, axis(-1.0, 0.0)),
    ];
    ok(store.upsert(ONE, &entries), promise).await;
    let found = search(store, ONE, &axis(0.5, 0.0), &VectorFilter::new(), 4).await;
    let keys: Vec<_> = found.iter().map(|found| found.key).collect();
    same(&keys, &vec![1, 2, 3, 4], promise);
    for (found, expected) in found.iter().zip([1.0, 0.995, 0.0, -1.0]) {
        assert!(
            (found.cosine - expected).abs() < SLACK,
            "vector store: a match has its cosine\nfound: {found:?}\nexpected: {expected}"
        );
    }
    ok(store.remove_all(ONE), "vector store: `remove_all` succeeds").await;
}

async fn check_filters(store: &impl VectorStore) {
    let promise = "vector store: a filter allows the vectors with its properties, and no others";
    let kinds = ["markdown", "code"];
    let entries: Vec<_> = (0..60_usize)
        .map(|n| {
            let key = i64::try_from(n).unwrap_or(0);
            VectorEntry::new(key, vector(key))
                .document(NAMES[n % NAMES.len()])
                .kind(kinds[n % kinds.len()])
                // As long ago as 1970, and as far ahead as the year 2112.
                .changed(Timestamp::from_millis((n as u64) << 36))
        })
        .collect();
    ok(store.upsert(ONE, &entries), promise).await;
    let no_names: [&str; 0] = [];
    let thousand = (0..999)
        .map(|n| format!("missing/{n}.md"))
        .chain([NAMES[1].to_owned()]);
    let mut filters: Vec<_> = NAMES
        .map(|name| VectorFilter::new().documents([name]))
        .into();
    filters.extend([
        VectorFilter::new(),
        VectorFilter::new().documents(no_names),
        VectorFilter::new().documents(thousand),
        VectorFilter::new().documents([NAMES[2], NAMES[3], "missing"]),
        VectorFilter::new().kind("code"),
        VectorFilter::new().kind("missing"),
        VectorFilter::new().changed_after(Timestamp::from_millis(30 << 36)),
        VectorFilter::new().changed_after(Timestamp::from_millis(u64::MAX)),
        VectorFilter::new()
            .documents([NAMES[1], NAMES[2]])
            .kind("code"),
        VectorFilter::new()
            .documents(NAMES)
            .kind("markdown")
            .changed_after(Timestamp::from_millis(9 << 36)),
    ]);
    for filter in filters {
        let found = search(store, ONE, &vector(1), &filter, 100).await;
        let mut keys: Vec<_> = found.iter().map(|found| found.key).collect();
        keys.sort_unstable();
        let allowed = entries.iter().filter(|entry| filter.allows(entry));
        let expected: Vec<_> = allowed.map(|entry| entry.key).collect();
        same(&keys, &expected, &format!("{promise}: {filter:?}"));
    }
    ok(store.remove_all(ONE), "vector store: `remove_all` succeeds").await;
}

async fn check_namespaces_and_removal(store: &impl VectorStore) {
    let promise = "vector store: namespaces do not affect each other";
    let entries: Vec<_> = (0..20).map(entry).collect();
    ok(store.upsert(ONE, &entries), promise).await;
    // The same key, with a vector of another size.
    let other = VectorEntry::new(3, vec![0.6, 0.8]);
    ok(store.upsert(OTHER, &[other]), promise).await;
    same(&ok(store.count(ONE), promise).await, &20, promise);
    let found = search(store, OTHER, &[0.0, 1.0], &VectorFilter::new(), 5).await;
    same(&found.len(), &1, promise);

    let promise = "vector store: `remove` removes the named keys, and may be repeated";
    for _ in 0..2 {
        ok(store.remove(ONE, &[3, 4, 777]), promise).await;
        same(&ok(store.count(ONE), promise).await, &18, promise);
    }
    same(
        &ok(store.get(ONE, &[3, 4]), promise).await,
        &vec![],
        promise,
    );
    let found = search(store, ONE, &vector(3), &VectorFilter::new(), 20).await;
    let gone = found.iter().all(|found| ![3, 4].contains(&found.key));
    assert!(gone, "{promise}\nfound: {found:?}");
    same(&ok(store.count(OTHER), promise).await, &1, promise);

    let promise = "vector store: `remove_all` removes one namespace, which can be used again";
    ok(store.remove_all(ONE), promise).await;
    check_empty(store, ONE).await;
    same(&ok(store.count(OTHER), promise).await, &1, promise);
    ok(
        store.upsert(ONE, &[VectorEntry::new(1, vec![1.0, 0.0, 0.0])]),
        promise,
    )
    .await;
    same(&ok(store.count(ONE), promise).await, &1, promise);
    clear(store).await;
}

async fn check_rejections(store: &impl VectorStore) {
    let promise = "vector store: an invalid vector is rejected, and changes nothing";
    ok(store.upsert(ONE, &[entry(1)]), promise).await;
    let infinite = vec![f32::INFINITY; SIZE];
    let not_a_number = vec![f32::NAN; SIZE];
    for vector in [
        vec![1.0; SIZE + 1],
        vec![1.0; SIZE - 1],
        vec![],
        infinite,
        not_a_number,
    ] {
        let invalid = [VectorEntry::new(2, vector.clone())];
        let added = no_panic(store.upsert(ONE, &invalid), promise).await;
        let filter = VectorFilter::new();
        let found = no_panic(store.nearest(ONE, &vector, &filter, 3), promise).await;
        for error in [added.err(), found.err()] {
            let kind = error.map(|error| error.kind());
            same(&kind, &Some(VectorStoreErrorKind::Rejected), promise);
        }
    }
    same(&all_keys(store, ONE).await, &vec![1], promise);
    let promise = "vector store: an invalid position is an error";
    let position = no_panic(store.keys(ONE, Some("no \0 position")), promise).await;
    assert!(position.is_err(), "{promise}");
    clear(store).await;
}

async fn check_concurrency(store: &impl VectorStore) {
    let promise = "vector store: dropping a call is harmless";
    let (low, high): (Vec<_>, Vec<_>) = (0..300).map(entry).partition(|entry| entry.key < 150);
    drop(store.upsert(ONE, &low));
    no_panic(async { drop(abandon(store.upsert(ONE, &low))) }, promise).await;
    let promise = "vector store: calls may run at the same time";
    let (one, other) = both(store.upsert(ONE, &low), store.upsert(ONE, &high)).await;
    expect_ok(one, promise);
    expect_ok(other, promise);
    same(&ok(store.count(ONE), promise).await, &300, promise);
    let (removed, found) = both(
        store.remove(ONE, &[1]),
        store.nearest(ONE, &vector(2), &VectorFilter::new(), 3),
    )
    .await;
    expect_ok(removed, promise);
    expect_ok(found, promise);
    same(&ok(store.count(ONE), promise).await, &299, promise);
}
