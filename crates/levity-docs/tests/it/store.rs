//! Vectors in an outside store: the same results as with vectors in the file, failures, repairs and
//! hostile results.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Timestamp, VectorEntry, VectorFilter, VectorKeys, VectorMatch, VectorStore, VectorStoreError,
    VectorStoreErrorKind,
};
use levity_docs::{Document, DocumentErrorKind, DocumentIndex, SearchOptions, TextKind};
use levity_test::{InMemoryVectors, ManualWorld, WordEmbedder};

use crate::found;

pub(crate) fn embedder() -> WordEmbedder {
    WordEmbedder::new().synonyms(["boat", "vessel", "ship"])
}

fn down() -> VectorStoreError {
    VectorStoreError::new(VectorStoreErrorKind::Unavailable, "the store is down")
}

/// Documents whose passages share words in different ways.
pub(crate) fn library() -> Vec<Document> {
    let words = [
        "harbour", "boat", "vessel", "tide", "anchor", "sail", "storm", "winter", "paint", "crew",
        "chart", "lamp", "net", "oyster", "rope", "engine", "fuel", "port",
    ];
    let word = |n: usize| words[n % words.len()];
    let document = |n: usize| {
        let text = format!(
            "# {} {n}\n\nThe {} needs a {} and a {}.\n\n## {}\n\nA {} with {} in {}.\n",
            word(n),
            word(n * 5 + 1),
            word(n * 7 + 2),
            word(n / 3),
            word(n * 11),
            word(n / 2 + 5),
            word(n * 3 + 4),
            word(n / 7),
        );
        let folder = ["docs", "src", "notes"][n % 3];
        let ending = ["md", "txt"][n % 2];
        Document::new(format!("{folder}/{n:03}.{ending}"), text)
            .changed(Timestamp::from_millis(n as u64 * 1_000))
    };
    (0..120).map(document).collect()
}

pub(crate) const QUESTIONS: [&str; 8] = [
    "Which boat needs paint?",
    "ship in a storm",
    "winter port",
    "oyster net and rope",
    "anchor of the vessel",
    "engine fuel",
    "Who has the chart of the harbour?",
    "lamp",
];

pub(crate) fn filters() -> Vec<SearchOptions> {
    let all = SearchOptions::new;
    vec![
        all(),
        all().limit(30),
        all().path("docs/*"),
        all().kind(TextKind::Markdown),
        all().changed_after(Timestamp::from_millis(60_000)),
        all()
            .path("src/*")
            .kind(TextKind::Prose)
            .changed_after(Timestamp::from_millis(9_000)),
        all().diversity(0.5),
    ]
}

/// Returns how many of the passages that one index finds the other one finds as well, and checks
/// that both find the same number.
pub(crate) async fn overlap(one: &DocumentIndex, other: &DocumentIndex) -> f64 {
    let (mut all, mut common) = (0, 0);
    for question in QUESTIONS {
        for options in filters() {
            let expected = one.search(question, &options).await.unwrap();
            let found = other.search(question, &options).await.unwrap();
            assert!(found.store_error.is_none(), "{:?}", found.store_error);
            assert_eq!(
                found.passages.len(),
                expected.passages.len(),
                "{question}, {options:?}"
            );
            let texts: BTreeSet<_> = expected
                .passages
                .iter()
                .map(|passage| (&passage.document, passage.number))
                .collect();
            all += texts.len();
            common += found
                .passages
                .iter()
                .filter(|passage| texts.contains(&(&passage.document, passage.number)))
                .count();
        }
    }
    common as f64 / all as f64
}

/// Checks that the store has exactly the vectors of the passages.
pub(crate) async fn check_complete(
    index: &DocumentIndex,
    store: &impl VectorStore,
    spaces: &[String],
) {
    let status = index.status().await.unwrap();
    assert_eq!(status.vectors, status.passages, "each passage is marked");
    let mut ids = BTreeSet::new();
    for document in index.documents("", 1_000).await.unwrap() {
        for passage in index.passages(&document.name, 0, 1_000).await.unwrap() {
            let id: i64 = passage
                .id
                .to_string()
                .trim_start_matches('p')
                .parse()
                .unwrap();
            ids.insert(id);
        }
    }
    let (mut keys, mut after) = (BTreeSet::new(), None);
    let [space] = spaces else {
        panic!("one namespace expected: {spaces:?}")
    };
    loop {
        let part = store.keys(space, after.as_deref()).await.unwrap();
        keys.extend(part.keys);
        match part.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(
        keys, ids,
        "the store has the vectors of the passages, and no others"
    );
}

fn index(store: impl VectorStore + 'static) -> DocumentIndex {
    DocumentIndex::in_memory()
        .unwrap()
        .with_embedder(embedder())
        .with_vector_store(store)
}

#[tokio::test]
async fn store_gives_the_same_passages_as_the_file() {
    let store = InMemoryVectors::new();
    let file = DocumentIndex::in_memory()
        .unwrap()
        .with_embedder(embedder());
    let outside = index(store.clone());
    for index in [&file, &outside] {
        assert_eq!(index.add_all(library()).await.unwrap().added, 120);
    }
    check_complete(&outside, &store, &store.namespaces()).await;
    assert_eq!(
        file.status().await.unwrap(),
        outside.status().await.unwrap()
    );
    let overlap = overlap(&file, &outside).await;
    assert!(overlap > 0.98, "{overlap}");
    // No word of the question is in a text, so the scale of the cosines alone decides.
    for options in [SearchOptions::new(), SearchOptions::new().path("docs/*")] {
        let expected = file.search("ship", &options).await.unwrap().passages;
        let found = outside.search("ship", &options).await.unwrap().passages;
        for (found, expected) in found.iter().zip(&expected) {
            let (found, expected) = (found.score, expected.score);
            assert!(
                (found - expected).abs() < 0.01,
                "{found} instead of {expected}"
            );
        }
    }
    assert_eq!(
        found(&outside, "ship", &SearchOptions::new()).await.len(),
        8
    );
}

#[tokio::test]
async fn changes_of_documents_reach_the_store() {
    let store = InMemoryVectors::new();
    let index = index(store.clone());
    index.add_all(library()).await.unwrap();
    let options = SearchOptions::new();
    index
        .add(Document::new("docs/000.md", "A zeppelin."))
        .await
        .unwrap();
    check_complete(&index, &store, &store.namespaces()).await;
    assert_eq!(found(&index, "zeppelin", &options).await[0], "docs/000.md");
    assert!(index.remove("docs/000.md").await.unwrap());
    assert_eq!(
        index
            .remove_all(vec!["src/001.txt".into(), "no".into()])
            .await
            .unwrap(),
        1
    );
    check_complete(&index, &store, &store.namespaces()).await;
    let unchanged = index.embed_missing().await.unwrap();
    assert_eq!((unchanged.passages, unchanged.store_error), (0, None));
}

#[tokio::test]
async fn failed_store_leaves_words_and_is_repaired() {
    let (store, world) = (InMemoryVectors::new(), Arc::new(ManualWorld::auto()));
    let index = index(store.clone()).with_world(world.clone());
    let options = SearchOptions::new();
    index
        .add(Document::new("a.txt", "The vessel is blue."))
        .await
        .unwrap();
    index
        .add(Document::new("b.txt", "The boat is red."))
        .await
        .unwrap();
    assert_eq!(found(&index, "ship", &options).await.len(), 2);

    store.fail(down());
    let result = index.search("blue", &options).await.unwrap();
    assert_eq!(result.passages[0].document, "a.txt");
    assert_eq!(
        result.store_error.unwrap().kind(),
        VectorStoreErrorKind::Unavailable
    );
    let report = index
        .add(Document::new("c.txt", "The ship is green."))
        .await
        .unwrap();
    assert_eq!((report.added, report.store_error), (1, Some(down())));
    // Directly after a failure, the store is not called, even if it works again.
    store.fail(None);
    assert!(
        index
            .search("ship", &options)
            .await
            .unwrap()
            .store_error
            .is_some()
    );
    store.fail(down());
    let error = index.remove("b.txt").await.unwrap_err();
    assert_eq!(error.kind(), DocumentErrorKind::VectorStore, "{error}");
    assert!(error.to_string().contains("embed_missing"), "{error}");
    assert_eq!(
        index.status().await.unwrap().documents,
        2,
        "the document is removed"
    );
    let report = index.embed_missing().await.unwrap();
    assert_eq!((report.passages, report.store_error), (0, Some(down())));

    store.fail(None);
    let report = index.embed_missing().await.unwrap();
    assert_eq!((report.passages, report.store_error), (1, None));
    check_complete(&index, &store, &store.namespaces()).await;
    let mut names = found(&index, "boat", &options).await;
    names.sort();
    assert_eq!(names, ["a.txt", "c.txt"]);

    store.fail(down());
    assert!(
        index
            .search("ship", &options)
            .await
            .unwrap()
            .store_error
            .is_some()
    );
    store.fail(None);
    world.advance(Duration::from_secs(31));
    assert!(
        index
            .search("ship", &options)
            .await
            .unwrap()
            .store_error
            .is_none()
    );
}

#[tokio::test]
async fn vectors_are_not_computed_for_a_store_that_rejects_them() {
    let (store, embedder) = (InMemoryVectors::new(), embedder());
    let index = DocumentIndex::in_memory().unwrap();
    let index = index
        .with_embedder(embedder.clone())
        .with_vector_store(store.clone());
    index
        .add(Document::new("a.txt", "The vessel is blue."))
        .await
        .unwrap();
    for kind in [VectorStoreErrorKind::Rejected, VectorStoreErrorKind::Auth] {
        let error = VectorStoreError::new(kind, "no such database");
        store.fail(error.clone());
        let calls = embedder.calls().len();
        for name in ["b.txt", "c.txt", "d.txt"] {
            let document = Document::new(name, format!("A {kind:?} boat in {name}."));
            let report = index.add(document).await.unwrap();
            assert_eq!(report.store_error, Some(error.clone()));
        }
        assert_eq!(embedder.calls().len(), calls + 1);
        store.fail(None);
        assert_eq!(index.embed_missing().await.unwrap().passages, 3);
    }
    check_complete(&index, &store, &store.namespaces()).await;
}

#[tokio::test]
async fn store_without_embedder_is_not_used() {
    let store = InMemoryVectors::new();
    store.fail(down());
    let index = DocumentIndex::in_memory()
        .unwrap()
        .with_vector_store(store.clone());
    let report = index
        .add(Document::new("a.txt", "The vessel is blue."))
        .await
        .unwrap();
    assert_eq!((report.added, report.store_error), (1, None));
    assert_eq!(
        found(&index, "vessel", &SearchOptions::new()).await,
        ["a.txt"]
    );
    assert!(index.remove("a.txt").await.unwrap());
    assert_eq!(index.embed_missing().await.unwrap().store_error, None);
}

#[tokio::test]
async fn lost_and_orphaned_vectors_are_repaired() {
    let store = InMemoryVectors::new();
    let embedder = embedder();
    let index = DocumentIndex::in_memory().unwrap();
    let index = index
        .with_embedder(embedder.clone())
        .with_vector_store(store.clone());
    index.add_all(library()).await.unwrap();
    let namespace = store.namespaces().remove(0);
    let orphan = |key| VectorEntry::new(key, vec![1.0; 256]);
    store
        .upsert(&namespace, &[orphan(i64::MAX), orphan(9_999)])
        .await
        .unwrap();
    store.remove(&namespace, &[1, 2, 3]).await.unwrap();
    let texts = || {
        embedder
            .calls()
            .iter()
            .map(|(texts, _)| texts.len())
            .sum::<usize>()
    };
    let before = texts();
    assert_eq!(index.embed_missing().await.unwrap().passages, 3);
    assert_eq!(
        texts() - before,
        3,
        "only the lost vectors are computed again"
    );
    check_complete(&index, &store, std::slice::from_ref(&namespace)).await;

    // As many orphans as lost vectors: the number alone shows nothing.
    store.remove(&namespace, &[5, 6]).await.unwrap();
    store
        .upsert(&namespace, &[orphan(i64::MAX), orphan(9_999)])
        .await
        .unwrap();
    assert_eq!(index.embed_missing().await.unwrap().passages, 0);
    let repair = index.repair_vectors().await.unwrap();
    assert_eq!((repair.removed, repair.missing), (2, 2));
    assert_eq!(index.embed_missing().await.unwrap().passages, 2);
    check_complete(&index, &store, std::slice::from_ref(&namespace)).await;

    // Everything is lost.
    store.remove_all(&namespace).await.unwrap();
    let status = index.status().await.unwrap();
    assert_eq!(
        index.embed_missing().await.unwrap().passages as u64,
        status.passages
    );
    check_complete(&index, &store, &[namespace]).await;
}

#[tokio::test]
async fn change_of_embedder_or_place_moves_vectors() {
    let store = InMemoryVectors::new();
    let folder = tempfile::tempdir().unwrap();
    let open = || DocumentIndex::open(folder.path().join("documents.db")).unwrap();
    let options = SearchOptions::new();
    let inside = open().with_embedder(embedder());
    inside.add_all(library()).await.unwrap();
    let passages = inside.status().await.unwrap().passages;

    let outside = open()
        .with_embedder(embedder())
        .with_vector_store(store.clone());
    assert_eq!(outside.status().await.unwrap().vectors, 0);
    assert!(
        outside
            .search("ship", &options)
            .await
            .unwrap()
            .passages
            .is_empty()
    );
    assert_eq!(
        outside.embed_missing().await.unwrap().passages as u64,
        passages
    );
    assert_eq!(found(&outside, "ship", &options).await.len(), 8);
    let first = store.namespaces();
    check_complete(&outside, &store, &first).await;

    let other = embedder().named("other");
    let outside = open().with_embedder(other).with_vector_store(store.clone());
    assert_eq!(
        outside.embed_missing().await.unwrap().passages as u64,
        passages
    );
    let second = store.namespaces();
    assert_ne!(
        first, second,
        "the vectors of the other embedder are removed"
    );
    check_complete(&outside, &store, &second).await;

    assert_eq!(inside.status().await.unwrap().vectors, 0);
    assert_eq!(
        inside.embed_missing().await.unwrap().passages as u64,
        passages
    );
    assert_eq!(found(&inside, "ship", &options).await.len(), 8);
}

#[tokio::test]
async fn copy_of_a_file_gets_its_own_namespace() {
    let store = InMemoryVectors::new();
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (
        folder.path().join("documents.db"),
        folder.path().join("copy.db"),
    );
    let open = |path| {
        let index = DocumentIndex::open(path).unwrap().with_embedder(embedder());
        index.with_vector_store(store.clone())
    };
    let original = open(&path);
    original.add_all(library()).await.unwrap();
    original.wipe().await.unwrap();
    std::fs::copy(&path, &copy).unwrap();
    let copied = open(&copy);
    copied.reset_vectors().await.unwrap();
    let first = store.namespaces();
    copied.embed_missing().await.unwrap();
    copied
        .add(Document::new("new.txt", "A zeppelin."))
        .await
        .unwrap();
    let both = store.namespaces();
    let second: Vec<_> = both
        .into_iter()
        .filter(|name| !first.contains(name))
        .collect();
    check_complete(&copied, &store, &second).await;
    check_complete(&original, &store, &first).await;
}

#[cfg(feature = "folder")]
#[tokio::test]
async fn folder_update_reports_a_failed_store() {
    use levity_docs::FolderUpdate;
    let (store, folder) = (InMemoryVectors::new(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("a.txt"), "The vessel is blue.").unwrap();
    std::fs::write(folder.path().join("b.txt"), "The boat is red.").unwrap();
    let workspace = levity_sandbox::Workspace::builder(folder.path())
        .read_only()
        .build()
        .unwrap();
    let index = index(store.clone());
    let update = async || FolderUpdate::new(&index, &workspace).run().await.unwrap();
    assert_eq!(update().await.store_error, None);
    store.fail(down());
    std::fs::remove_file(folder.path().join("b.txt")).unwrap();
    let report = update().await;
    assert_eq!((report.removed, report.store_error), (1, Some(down())));
    store.fail(None);
    index.embed_missing().await.unwrap();
    check_complete(&index, &store, &store.namespaces()).await;
}

/// Keys with their vectors.
type Vectors = Vec<(i64, Vec<f32>)>;

/// A store that misbehaves in some calls, and otherwise is the one inside.
#[derive(Default)]
struct Odd {
    inner: InMemoryVectors,
    /// The results of searches and of `get`, in place of correct ones.
    matches: Mutex<Option<Vec<VectorMatch>>>,
    vectors: Mutex<Option<Vectors>>,
    /// Lists that never end.
    endless: AtomicBool,
    /// Calls that never end.
    hangs: AtomicBool,
    /// The call that never ends: before or after its change of the store.
    stops: Mutex<Option<(Call, bool)>>,
    stopped: AtomicBool,
    /// An index that loses this document while vectors are added.
    during_upsert: Mutex<Option<(DocumentIndex, String)>>,
}

/// A change of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Upsert,
    Remove,
}

impl Odd {
    /// Never ends if this is the moment to stop.
    async fn pass(&self, call: Call, after: bool) {
        if *self.stops.lock().unwrap() == Some((call, after)) {
            self.stopped.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl VectorStore for Odd {
    async fn upsert(
        &self,
        namespace: &str,
        entries: &[VectorEntry],
    ) -> Result<(), VectorStoreError> {
        let removal = self.during_upsert.lock().unwrap().take();
        if let Some((index, name)) = removal {
            index.remove(&name).await.unwrap();
        }
        self.pass(Call::Upsert, false).await;
        self.inner.upsert(namespace, entries).await?;
        self.pass(Call::Upsert, true).await;
        Ok(())
    }

    async fn remove(&self, namespace: &str, keys: &[i64]) -> Result<(), VectorStoreError> {
        self.pass(Call::Remove, false).await;
        self.inner.remove(namespace, keys).await?;
        self.pass(Call::Remove, true).await;
        Ok(())
    }

    async fn remove_all(&self, namespace: &str) -> Result<(), VectorStoreError> {
        self.inner.remove_all(namespace).await
    }

    async fn nearest(
        &self,
        namespace: &str,
        vector: &[f32],
        filter: &VectorFilter,
        limit: usize,
    ) -> Result<Vec<VectorMatch>, VectorStoreError> {
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let odd = self.matches.lock().unwrap().clone();
        match odd {
            Some(odd) => Ok(odd),
            None => self.inner.nearest(namespace, vector, filter, limit).await,
        }
    }

    async fn get(
        &self,
        namespace: &str,
        keys: &[i64],
    ) -> Result<Vec<(i64, Vec<f32>)>, VectorStoreError> {
        let odd = self.vectors.lock().unwrap().clone();
        match odd {
            Some(odd) => Ok(odd),
            None => self.inner.get(namespace, keys).await,
        }
    }

    async fn keys(
        &self,
        namespace: &str,
        after: Option<&str>,
    ) -> Result<VectorKeys, VectorStoreError> {
        if self.endless.load(Ordering::Relaxed) {
            return Ok(VectorKeys::new(vec![]).with_next("again"));
        }
        self.inner.keys(namespace, after).await
    }

    async fn count(&self, namespace: &str) -> Result<u64, VectorStoreError> {
        self.inner.count(namespace).await
    }
}

#[tokio::test]
async fn hostile_matches_are_ignored() {
    let store = Arc::new(Odd::default());
    let index = index(store.clone());
    index.add_all(library()).await.unwrap();
    let odd = |key, cosine| VectorMatch::new(key, cosine);
    let matches = vec![
        odd(3, 0.9),
        odd(3, 0.8),
        odd(-1, 1.0),
        odd(0, 1.0),
        odd(i64::MIN, 1.0),
        odd(i64::MAX, 1.0),
        odd(4, f32::NAN),
        odd(5, f32::INFINITY),
        odd(6, f32::NEG_INFINITY),
        odd(7, 900.0),
        odd(8, -0.5),
    ];
    *store.vectors.lock().unwrap() = Some(vec![
        (3, vec![]),
        (4, vec![1.0; 3]),
        (5, vec![f32::NAN; 256]),
        (6, vec![0.0; 256]),
        (i64::MAX, vec![1.0; 256]),
        (9, vec![f32::MAX; 256]),
    ]);
    for diversity in [0.0, 0.5] {
        *store.matches.lock().unwrap() = Some(matches.clone());
        let options = SearchOptions::new().limit(1_000).diversity(diversity);
        let result = index.search("zeppelin", &options).await.unwrap();
        let ids: Vec<_> = result
            .passages
            .iter()
            .map(|passage| passage.id.to_string())
            .collect();
        assert_eq!(
            ids,
            ["p3"],
            "only the known key with a possible cosine counts, and once"
        );
        let result = index.search("boat", &options).await.unwrap();
        let possible = result
            .passages
            .iter()
            .all(|passage| (0.0..=1.0).contains(&passage.score));
        assert!(possible && result.passages.len() > 10);
        // A filter is checked in the file.
        let filtered = options.path("src/*");
        let found = found(&index, "boat", &filtered).await;
        assert!(!found.is_empty() && found.iter().all(|name| name.starts_with("src/")));
    }
    *store.matches.lock().unwrap() = Some((0..100_000).map(|key| odd(key, 0.7)).collect());
    let many = index
        .search("zeppelin", &SearchOptions::new().limit(3))
        .await
        .unwrap();
    assert_eq!(many.passages.len(), 3);
}

#[tokio::test]
async fn hanging_store_and_endless_list_end() {
    let (store, world) = (Arc::new(Odd::default()), Arc::new(ManualWorld::new()));
    let index = index(store.clone()).with_world(world.clone());
    index
        .add(Document::new("a.txt", "The vessel is blue."))
        .await
        .unwrap();
    store.hangs.store(true, Ordering::Relaxed);
    let (options, wait) = (SearchOptions::new(), async {
        world.until_sleeping(1).await;
        world.advance(Duration::from_secs(10));
    });
    let (result, ()) = tokio::join!(index.search("blue", &options), wait);
    let result = result.unwrap();
    assert_eq!(result.passages.len(), 1);
    assert_eq!(
        result.store_error.unwrap().kind(),
        VectorStoreErrorKind::Timeout
    );

    store.endless.store(true, Ordering::Relaxed);
    let error = index.repair_vectors().await.unwrap_err();
    assert_eq!(error.kind(), DocumentErrorKind::VectorStore, "{error}");
}

#[tokio::test]
async fn document_that_is_removed_during_its_upload_leaves_no_vector() {
    let store = Arc::new(Odd::default());
    let index = index(store.clone());
    index.add_all(library()).await.unwrap();
    *store.during_upsert.lock().unwrap() = Some((index.clone(), "new.txt".to_owned()));
    index
        .add(Document::new("new.txt", "A zeppelin."))
        .await
        .unwrap();
    assert!(
        found(&index, "zeppelin", &SearchOptions::new())
            .await
            .iter()
            .all(|name| name != "new.txt")
    );
    check_complete(&index, &store.inner, &store.inner.namespaces()).await;
}

#[tokio::test]
async fn change_that_stops_at_any_moment_is_completed() {
    for moment in [
        (Call::Upsert, false),
        (Call::Upsert, true),
        (Call::Remove, false),
        (Call::Remove, true),
    ] {
        let store = Arc::new(Odd::default());
        let index = index(store.clone());
        index.add_all(library()).await.unwrap();
        *store.stops.lock().unwrap() = Some(moment);
        let change = async {
            index
                .add(Document::new("new.txt", "A zeppelin."))
                .await
                .unwrap();
            index.remove("docs/000.md").await.unwrap();
        };
        let stopped = async {
            while !store.stopped.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
        };
        // The change is dropped, as if the process had ended.
        tokio::select! {
            () = change => panic!("{moment:?} was not reached"),
            () = stopped => {}
        }
        *store.stops.lock().unwrap() = None;
        let ghosts = found(&index, "zeppelin boat", &SearchOptions::new().limit(200)).await;
        let removed = moment.0 == Call::Remove;
        assert_eq!(
            ghosts.contains(&"docs/000.md".to_owned()),
            !removed,
            "{moment:?}"
        );
        assert_eq!(index.embed_missing().await.unwrap().store_error, None);
        check_complete(&index, &store.inner, &store.inner.namespaces()).await;
    }
}
