//! Facts found by their meaning, with reliable and failing embedders.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ContextRequest, ContextSource as _, Embedder, EmbedderCard, Embeddings, ModelError,
    ModelErrorKind, Purpose,
};
use levity_memory::{Recall, Scope};
use levity_test::{ManualWorld, WordEmbedder, conformance};

use super::{texts, user};

fn embedder() -> WordEmbedder {
    WordEmbedder::new()
        .synonyms(["car", "automobile", "vehicle"])
        .synonyms(["doctor", "physician"])
        .synonyms(["tea", "beverage", "drink", "drinks"])
}

fn recall_with(embedder: &WordEmbedder) -> (Recall, ManualWorld) {
    let world = ManualWorld::new();
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(world.clone()));
    (recall.with_embedder(embedder.clone()), world)
}

fn unavailable() -> ModelError {
    ModelError::new(ModelErrorKind::Transport, "the server cannot be reached")
}

const FACTS: [&str; 4] = [
    "Owns an old automobile.",
    "The physician said no sugar.",
    "Green tea in the morning.",
    "Lives near the harbour.",
];

async fn save_all(recall: &Recall) {
    for fact in FACTS {
        recall.remember(&user(), fact, "test").await.unwrap();
    }
}

#[tokio::test]
async fn synonyms_find_fact_by_meaning() {
    let (recall, _) = recall_with(&embedder());
    save_all(&recall).await;
    for (question, fact) in [
        ("car", 0),
        ("doctor", 1),
        ("Which drink?", 2),
        ("harbour", 3),
        ("the harbour car", 3),
    ] {
        let found = recall.recall(&[user()], question, 4).await.unwrap();
        assert_eq!(found.facts[0].text, FACTS[fact], "{question}");
        assert_eq!(found.embedding_error, None);
    }
    let by_words = Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(ManualWorld::new()));
    save_all(&by_words).await;
    assert_eq!(
        by_words.recall(&[user()], "car", 4).await.unwrap().facts,
        []
    );
}

#[tokio::test]
async fn facts_found_by_both_methods_rank_first() {
    let (recall, _) = recall_with(&embedder());
    recall
        .remember(&user(), "A vehicle.", "test")
        .await
        .unwrap();
    recall
        .remember(
            &user(),
            "The car is red and stands in the garage behind the house.",
            "test",
        )
        .await
        .unwrap();
    recall.remember(&user(), "A car.", "test").await.unwrap();
    let found = recall.recall(&[user()], "a car", 9).await.unwrap();
    assert_eq!(found.facts[0].text, "A car.");
    assert_eq!(found.facts[0].score, 1.0);
    assert_eq!(found.facts.len(), 3);
    assert!(
        found
            .facts
            .windows(2)
            .all(|two| two[0].score >= two[1].score)
    );
}

#[tokio::test]
async fn search_by_meaning_respects_scopes() {
    let (recall, _) = recall_with(&embedder());
    recall
        .remember(&Scope::user("u-18"), FACTS[0], "test")
        .await
        .unwrap();
    recall
        .remember(&Scope::project("u-17"), FACTS[0], "test")
        .await
        .unwrap();
    recall.remember(&user(), FACTS[3], "test").await.unwrap();
    let found = recall.recall(&[user()], "car harbour", 9).await.unwrap();
    assert_eq!(texts(&found), [FACTS[3]]);
    let both = recall
        .recall(&[user(), Scope::project("u-17")], "car harbour", 9)
        .await
        .unwrap();
    assert_eq!(both.facts.len(), 2);
}

#[tokio::test]
async fn unavailable_embedder_falls_back_to_words() {
    let embedder = embedder();
    let (recall, world) = recall_with(&embedder);
    embedder.fail(unavailable());
    let saved = recall.remember(&user(), FACTS[0], "test").await.unwrap();
    assert_eq!(saved.embedding_error, Some(unavailable()));
    let found = recall.recall(&[user()], "automobile", 4).await.unwrap();
    assert_eq!(
        (texts(&found), found.embedding_error.clone()),
        (vec![FACTS[0]], Some(unavailable()))
    );
    // The embedder is not called for a while, and the result reports it.
    assert_eq!(embedder.calls().len(), 1);
    embedder.fail(None);
    let found = recall.recall(&[user()], "car", 4).await.unwrap();
    assert_eq!(
        (found.facts.len(), found.embedding_error),
        (0, Some(unavailable()))
    );
    world.advance(Duration::from_secs(30));
    let found = recall.recall(&[user()], "car", 4).await.unwrap();
    assert_eq!(
        (texts(&found), found.embedding_error.clone()),
        (vec![FACTS[0]], None)
    );
    assert_eq!(found.usage.input, Some(1 + 4));
}

#[tokio::test]
async fn earlier_facts_get_vectors_later() {
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(ManualWorld::new()));
    for n in 0..150 {
        recall
            .remember(&user(), &format!("Fact number {n}."), "test")
            .await
            .unwrap();
    }
    recall
        .remember(&Scope::project("p"), FACTS[0], "test")
        .await
        .unwrap();
    assert_eq!(recall.embed_missing().await.unwrap().facts, 0);
    let embedder = embedder();
    let recall = recall.with_embedder(embedder.clone());
    let filled = recall.embed_missing().await.unwrap();
    assert_eq!((filled.facts, filled.error), (151, None));
    assert_eq!(filled.usage.input, Some(150 * 3 + 4));
    assert_eq!(
        embedder
            .calls()
            .iter()
            .map(|(texts, _)| texts.len())
            .collect::<Vec<_>>(),
        [64, 64, 23]
    );
    assert_eq!(recall.embed_missing().await.unwrap().facts, 0);
    let found = recall
        .recall(&[Scope::project("p")], "car", 4)
        .await
        .unwrap();
    assert_eq!(texts(&found), [FACTS[0]]);
}

#[tokio::test]
async fn each_embedder_has_separate_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let first = super::open(&path).with_embedder(embedder());
    save_all(&first).await;
    drop(first);
    let other = embedder().named("others");
    let recall = super::open(&path).with_embedder(other.clone());
    let found = recall.recall(&[user()], "car", 1).await.unwrap();
    assert_eq!(texts(&found), [FACTS[0]]);
    let documents: Vec<_> = other
        .calls()
        .into_iter()
        .filter(|(_, purpose)| *purpose == Purpose::Document)
        .collect();
    assert_eq!(documents.len(), 1);
    assert_eq!(documents[0].0.len(), 4);
    recall.recall(&[user()], "car", 1).await.unwrap();
    assert_eq!(other.calls().len(), 3, "nothing is embedded twice");
}

#[tokio::test]
async fn changed_summary_gets_new_vector() {
    let (recall, _) = recall_with(&embedder());
    let id = "c1".into();
    recall
        .remember_session(&user(), &id, "They spoke of an automobile.")
        .await
        .unwrap();
    recall
        .remember_session(&user(), &id, "They spoke of a physician.")
        .await
        .unwrap();
    assert_eq!(
        texts(&recall.recall(&[user()], "doctor", 4).await.unwrap()),
        ["They spoke of a physician."]
    );
    let recall = recall.with_min_cosine(0.3);
    assert_eq!(recall.recall(&[user()], "car", 4).await.unwrap().facts, []);
}

#[tokio::test]
async fn min_cosine_excludes_distant_facts() {
    let (recall, _) = recall_with(&embedder());
    save_all(&recall).await;
    let recall = recall.with_min_cosine(0.4);
    assert_eq!(
        texts(&recall.recall(&[user()], "old car", 4).await.unwrap()),
        [FACTS[0]]
    );
    assert_eq!(
        recall
            .recall(&[user()], "submarine", 4)
            .await
            .unwrap()
            .facts,
        []
    );
}

/// Rejects every text with `poison` in it, as a provider may.
struct Picky(WordEmbedder);

#[async_trait]
impl Embedder for Picky {
    fn card(&self) -> &EmbedderCard {
        self.0.card()
    }

    async fn embed(&self, texts: &[String], purpose: Purpose) -> Result<Embeddings, ModelError> {
        if texts.iter().any(|text| text.contains("poison")) {
            return Err(ModelError::new(ModelErrorKind::BadRequest, "no"));
        }
        self.0.embed(texts, purpose).await
    }
}

#[tokio::test]
async fn rejected_text_does_not_block_vectors_of_others() {
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(ManualWorld::new()));
    recall.remember(&user(), "A poison.", "test").await.unwrap();
    save_all(&recall).await;
    let words = embedder();
    let recall = recall.with_embedder(Picky(words.clone()));
    let filled = recall.embed_missing().await.unwrap();
    assert_eq!(
        (filled.facts, filled.error.map(|error| error.kind())),
        (4, Some(ModelErrorKind::BadRequest))
    );
    assert_eq!(
        texts(&recall.recall(&[user()], "car", 1).await.unwrap()),
        [FACTS[0]]
    );
    // The fact is found by its words, and its embedding is not retried.
    let before = words.calls().len();
    let found = recall.recall(&[user()], "which poison", 9).await.unwrap();
    assert!(texts(&found).contains(&"A poison."), "{found:?}");
    assert_eq!(
        words.calls().len(),
        before,
        "a question that it does not take is looked for by words"
    );
    assert!(found.embedding_error.is_some());
    assert_eq!(recall.embed_missing().await.unwrap().error, None);
}

/// A rejected text does not count as a failure of the embedder, even if it is the only one.
#[tokio::test]
async fn single_rejected_text_does_not_disable_embedder() {
    let words = embedder();
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(ManualWorld::new()))
        .with_embedder(Picky(words.clone()));
    save_all(&recall).await;
    let saved = recall.remember(&user(), "A poison.", "test").await.unwrap();
    assert_eq!(
        saved.embedding_error.map(|error| error.kind()),
        Some(ModelErrorKind::BadRequest)
    );
    for _ in 0..2 {
        let found = recall.recall(&[user()], "car", 1).await.unwrap();
        assert_eq!(
            (texts(&found), found.embedding_error.clone()),
            (vec![FACTS[0]], None)
        );
    }
    assert!(
        recall
            .recall(&[user()], "poison", 1)
            .await
            .unwrap()
            .embedding_error
            .is_some()
    );
    let found = recall.recall(&[user()], "car", 1).await.unwrap();
    assert_eq!(found.embedding_error, None, "nor does a question");
    let asked = words.calls();
    assert!(
        asked
            .iter()
            .flat_map(|(texts, _)| texts)
            .all(|text| !text.contains("poison")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn long_question_is_truncated_before_embedding() {
    let embedder = embedder();
    let (recall, _) = recall_with(&embedder);
    save_all(&recall).await;
    recall
        .recall(&[user()], &"automobile ü ".repeat(100_000), 1)
        .await
        .unwrap();
    let (asked, _) = embedder.calls().pop().unwrap();
    assert!(asked[0].len() <= 8 << 10, "{}", asked[0].len());
}

/// Moves the file away while it works, so that writes fail.
struct Thief(WordEmbedder, std::path::PathBuf);

#[async_trait]
impl Embedder for Thief {
    fn card(&self) -> &EmbedderCard {
        self.0.card()
    }

    async fn embed(&self, texts: &[String], purpose: Purpose) -> Result<Embeddings, ModelError> {
        let _ = std::fs::rename(&self.1, self.1.with_extension("gone"));
        self.0.embed(texts, purpose).await
    }
}

#[tokio::test]
async fn remember_succeeds_when_vector_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.db");
    let recall = super::open(&path);
    recall.remember(&user(), FACTS[0], "test").await.unwrap();
    let recall = recall.with_embedder(Thief(embedder(), path.clone()));
    assert_eq!(
        texts(&recall.recall(&[user()], "automobile", 1).await.unwrap()),
        [FACTS[0]]
    );
    std::fs::rename(path.with_extension("gone"), &path).unwrap();
    let saved = recall.remember(&user(), FACTS[1], "test").await.unwrap();
    assert!(saved.new && saved.embedding_error.is_some(), "{saved:?}");
}

/// Breaks the contract of embedders.
struct Broken(EmbedderCard, Vec<Vec<f32>>);

#[async_trait]
impl Embedder for Broken {
    fn card(&self) -> &EmbedderCard {
        &self.0
    }

    async fn embed(&self, _: &[String], _: Purpose) -> Result<Embeddings, ModelError> {
        Ok(Embeddings::new(self.1.clone()))
    }
}

#[tokio::test]
async fn invalid_vectors_are_rejected() {
    for vectors in [
        vec![],
        vec![vec![]],
        vec![vec![f32::NAN]],
        vec![vec![1.0]; 2],
        vec![vec![1.0; 20_000]],
    ] {
        let broken = Broken(EmbedderCard::new("test", "broken"), vectors);
        let recall = Recall::in_memory()
            .unwrap()
            .with_world(Arc::new(ManualWorld::new()))
            .with_embedder(broken);
        let saved = recall.remember(&user(), FACTS[0], "test").await.unwrap();
        assert_eq!(
            saved.embedding_error.map(|error| error.kind()),
            Some(ModelErrorKind::Malformed)
        );
        assert_eq!(
            recall
                .recall(&[user()], "automobile", 4)
                .await
                .unwrap()
                .facts
                .len(),
            1
        );
    }
    let zero = Broken(EmbedderCard::new("test", "zero"), vec![vec![0.0; 4]]);
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(ManualWorld::new()))
        .with_embedder(zero);
    assert_eq!(
        recall
            .remember(&user(), FACTS[0], "test")
            .await
            .unwrap()
            .embedding_error,
        None
    );
    assert_eq!(
        recall
            .recall(&[user()], "automobile", 4)
            .await
            .unwrap()
            .facts
            .len(),
        1
    );
}

/// Never returns an answer.
struct Stuck(EmbedderCard);

#[async_trait]
impl Embedder for Stuck {
    fn card(&self) -> &EmbedderCard {
        &self.0
    }

    async fn embed(&self, _: &[String], _: Purpose) -> Result<Embeddings, ModelError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn hanging_embedder_times_out() {
    let world = ManualWorld::new();
    let stuck = Stuck(EmbedderCard::new("test", "stuck"));
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(world.clone()))
        .with_embedder(stuck);
    let scope = user();
    let wait = async {
        world.until_sleeping(1).await;
        world.advance(Duration::from_secs(20));
    };
    let (saved, ()) = tokio::join!(recall.remember(&scope, FACTS[0], "test"), wait);
    assert_eq!(
        saved.unwrap().embedding_error.map(|error| error.kind()),
        Some(ModelErrorKind::Timeout)
    );
    assert_eq!(recall.list(&scope, None, 9).await.unwrap().len(), 1);
}

/// Takes some seconds to reject every request.
struct Slow(EmbedderCard, ManualWorld, std::sync::atomic::AtomicUsize);

#[async_trait]
impl Embedder for Slow {
    fn card(&self) -> &EmbedderCard {
        &self.0
    }

    async fn embed(&self, _: &[String], _: Purpose) -> Result<Embeddings, ModelError> {
        self.2.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.1.advance(Duration::from_secs(8));
        Err(ModelError::new(ModelErrorKind::BadRequest, "no"))
    }
}

#[tokio::test]
async fn slowly_rejecting_embedder_times_out() {
    let world = ManualWorld::new();
    let recall = Recall::in_memory()
        .unwrap()
        .with_world(Arc::new(world.clone()));
    for n in 0..30 {
        recall
            .remember(&user(), &format!("Fact {n}."), "test")
            .await
            .unwrap();
    }
    let slow = Arc::new(Slow(
        EmbedderCard::new("test", "slow"),
        world,
        Default::default(),
    ));
    let saved = recall
        .with_embedder(slow.clone())
        .remember(&user(), FACTS[0], "test")
        .await
        .unwrap();
    assert_eq!(
        saved.embedding_error.map(|error| error.kind()),
        Some(ModelErrorKind::Timeout)
    );
    assert_eq!(
        slow.2.load(std::sync::atomic::Ordering::Relaxed),
        4,
        "all together, and three alone"
    );
}

#[tokio::test]
async fn context_includes_facts_found_by_meaning() {
    let (recall, _) = recall_with(&embedder());
    save_all(&recall).await;
    let source = recall.context([user()]);
    let blocks = source
        .blocks(&ContextRequest::new(1_000).for_goal("Sell the car"))
        .await
        .unwrap();
    assert!(blocks[0].text.contains(FACTS[0]));
    conformance::context_source_for("Sell the car", || recall.context([user()])).await;
}
