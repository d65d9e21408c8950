//! Rerankers, several questions, and queries that a model writes.

use async_trait::async_trait;
use levity_core::{
    Message, ModelError, ModelErrorKind, Reranker, RerankerCard, Reranking, Response, Usage,
};
use levity_docs::{Document, DocumentIndex, QueryRewriter, SearchOptions, SearchResult};
use levity_test::{FunctionModel, ManualWorld, ScriptedModel, WordEmbedder, WordReranker};

use crate::names;

/// An index in which the search prefers `long.md`, and the reranker `short.md`.
async fn tides() -> DocumentIndex {
    let index = DocumentIndex::in_memory().unwrap();
    for (name, text) in [
        ("short.md", "# Harbour\n\nTide at noon."),
        (
            "long.md",
            "The tide, the tide and the tide: high tide of May and low tide of June.",
        ),
        ("ferry.md", "The ferry waits for high tide."),
        ("tea.md", "Tea is served at four."),
    ] {
        index.add(Document::new(name, text)).await.unwrap();
    }
    index
}

async fn search(index: &DocumentIndex, question: &str) -> SearchResult {
    let options = SearchOptions::new();
    index.search(question, &options).await.unwrap()
}

fn check_scores(result: &SearchResult) {
    let scores: Vec<f32> = result
        .passages
        .iter()
        .map(|passage| passage.score)
        .collect();
    assert!(
        scores.iter().all(|score| (0.0..=1.0).contains(score)),
        "{scores:?}"
    );
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
}

#[tokio::test]
async fn reranker_orders_the_best_passages_again() {
    let index = tides().await;
    let before = search(&index, "tide").await;
    assert_eq!(names(&before.passages)[0], "long.md");

    let reranker = WordReranker::new();
    let index = index
        .with_embedder(WordEmbedder::new())
        .with_reranker(reranker.clone());
    index.embed_missing().await.unwrap();
    let after = search(&index, "tide").await;
    assert_eq!(names(&after.passages)[..2], ["long.md", "short.md"]);
    let after = search(&index, "harbour tide noon").await;
    assert_eq!(names(&after.passages)[0], "short.md");
    assert!(after.reranking_error.is_none());
    check_scores(&after);

    let (question, texts) = reranker.calls().pop().unwrap();
    assert_eq!(question, "harbour tide noon");
    let text = "Harbour\n# Harbour\n\nTide at noon.".to_owned();
    assert!(texts.contains(&text), "a text has its headings: {texts:?}");
    let own = reranker
        .rerank(&question, &texts)
        .await
        .unwrap()
        .usage
        .input
        .unwrap();
    let total = after.usage.input.unwrap();
    assert_eq!(total, own + 3, "the embedder counted three words");
}

#[tokio::test]
async fn only_the_best_passages_are_reranked() {
    let index = DocumentIndex::in_memory().unwrap();
    let documents = (0..60).map(|n| {
        let more = "and so on ".repeat(n);
        Document::new(format!("{n:02}.txt"), format!("The tide {more}"))
    });
    index.add_all(documents.collect()).await.unwrap();
    let options = SearchOptions::new().limit(60);
    let before = index.search("tide", &options).await.unwrap();
    /// Prefers the text that the search liked least.
    struct Backwards(RerankerCard);
    #[async_trait]
    impl Reranker for Backwards {
        fn card(&self) -> &RerankerCard {
            &self.0
        }
        async fn rerank(&self, _: &str, texts: &[String]) -> Result<Reranking, ModelError> {
            Ok(Reranking::new(
                (0..texts.len()).map(|at| at as f32 * 1e30).collect(),
            ))
        }
    }
    let index = index.with_reranker(Backwards(RerankerCard::new("test", "backwards")));
    for (number, expected) in [(None, 30), (Some(5), 5), (Some(0), 0), (Some(1_000), 60)] {
        let mut options = options.clone();
        if let Some(number) = number {
            options = options.reranked(number);
        }
        let after = index.search("tide", &options).await.unwrap();
        let mut names = names(&after.passages);
        names[..expected].reverse();
        assert_eq!(names, crate::names(&before.passages), "{number:?}");
        check_scores(&after);
    }
    // More passages are reranked than are returned.
    let first = index
        .search("tide", &SearchOptions::new().limit(1))
        .await
        .unwrap();
    assert_eq!(names(&first.passages), [names(&before.passages)[29]]);
}

#[tokio::test]
async fn failing_reranker_leaves_the_order_of_the_search() {
    let (world, reranker) = (ManualWorld::new(), WordReranker::new());
    let index = tides()
        .await
        .with_world(world.clone())
        .with_reranker(reranker.clone());
    reranker.fail(ModelError::new(ModelErrorKind::Transport, "no server"));
    for calls in [1, 1] {
        let found = search(&index, "tide").await;
        assert_eq!(found.passages.len(), 3);
        assert_eq!(found.reranking_error.unwrap().message(), "no server");
        assert_eq!(
            reranker.calls().len(),
            calls,
            "no call for 30 seconds after a failure"
        );
    }
    reranker.fail(None);
    world.advance(std::time::Duration::from_secs(31));
    assert!(search(&index, "tide").await.reranking_error.is_none());

    /// Returns scores that break the contract.
    struct Wrong(RerankerCard, Vec<f32>);
    #[async_trait]
    impl Reranker for Wrong {
        fn card(&self) -> &RerankerCard {
            &self.0
        }
        async fn rerank(&self, _: &str, _: &[String]) -> Result<Reranking, ModelError> {
            Ok(Reranking::new(self.1.clone()))
        }
    }
    let plain = search(&tides().await, "tide").await;
    for scores in [
        vec![],
        vec![1.0; 2],
        vec![1.0, f32::NAN, 2.0],
        vec![f32::INFINITY; 3],
    ] {
        let wrong = Wrong(RerankerCard::new("test", "wrong"), scores);
        let found = search(&tides().await.with_reranker(wrong), "tide").await;
        assert_eq!(names(&found.passages), names(&plain.passages));
        assert_eq!(
            found.reranking_error.unwrap().kind(),
            ModelErrorKind::Malformed
        );
    }
}

#[tokio::test]
async fn endless_reranker_times_out() {
    struct Endless(RerankerCard);
    #[async_trait]
    impl Reranker for Endless {
        fn card(&self) -> &RerankerCard {
            &self.0
        }
        async fn rerank(&self, _: &str, _: &[String]) -> Result<Reranking, ModelError> {
            std::future::pending().await
        }
    }
    let index = tides().await.with_world(ManualWorld::auto());
    let index = index.with_reranker(Endless(RerankerCard::new("test", "endless")));
    let found = search(&index, "tide").await;
    assert_eq!(found.passages.len(), 3);
    assert_eq!(
        found.reranking_error.unwrap().kind(),
        ModelErrorKind::Timeout
    );
}

#[tokio::test]
async fn several_questions_are_merged() {
    for index in [
        tides().await,
        tides().await.with_embedder(WordEmbedder::new()),
    ] {
        index.embed_missing().await.unwrap();
        let options = SearchOptions::new();
        let found = index
            .search_many(&["ferry", "tea", " ", "tea"], &options)
            .await
            .unwrap();
        let mut first = names(&found.passages)[..2].to_vec();
        first.sort_unstable();
        assert_eq!(first, ["ferry.md", "tea.md"]);
        check_scores(&found);
        // A passage that is good for both questions comes first.
        let found = index
            .search_many(&["ferry", "high tide"], &options)
            .await
            .unwrap();
        assert_eq!(names(&found.passages)[0], "ferry.md");
        // One question alone is an ordinary search.
        let one = index.search_many(&["high tide"], &options).await.unwrap();
        let same = index.search("high tide", &options).await.unwrap();
        assert_eq!(one.passages, same.passages);
        for none in [&[][..], &["", "?!"]] {
            let found = index.search_many(none, &options).await.unwrap();
            assert!(found.passages.is_empty());
        }
        let mut many = vec!["tide"; 1];
        let other = ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"];
        many.extend(other);
        many.push("tea");
        let found = index
            .search_many(&many, &options.clone().limit(1))
            .await
            .unwrap();
        assert_ne!(
            names(&found.passages)[0],
            "tea.md",
            "only nine questions count"
        );
    }
}

#[tokio::test]
async fn rewriter_adds_queries_to_the_question() {
    let model = FunctionModel::new(|request| {
        let message = request.history.messages()[0].text().into_owned();
        assert_eq!(message, r#"{"question":"When is it?"}"#);
        assert!(request.output.is_some());
        let answer = r#"Here: {"queries": ["tea", "TEA", " ferry ", "", "When is it?"]}"#;
        Ok(Response::new(Message::assistant(answer)).with_usage(Usage::new(40, 8)))
    });
    let index = tides().await.with_rewriter(QueryRewriter::new(model));
    let found = search(&index, "When is it?").await;
    assert_eq!(found.added_queries, ["tea", "ferry"]);
    assert_eq!(found.passages.len(), 2);
    assert!(found.rewriting_error.is_none());
    assert_eq!(found.usage, Usage::new(40, 8));
}

#[tokio::test]
async fn failing_rewriter_leaves_the_question_alone() {
    let plain = search(&tides().await, "tide").await;
    for answer in [
        "",
        "I cannot.",
        "{}",
        r#"{"queries": "tea"}"#,
        r#"{"queries": [1]}"#,
        "[",
    ] {
        let rewriter = QueryRewriter::new(ScriptedModel::new().reply(answer));
        let found = search(&tides().await.with_rewriter(rewriter), "tide").await;
        assert_eq!(found.passages, plain.passages, "{answer}");
        let error = found.rewriting_error.unwrap();
        assert_eq!(error.kind(), ModelErrorKind::Malformed, "{answer}");
        assert!(error.may_cost() && found.added_queries.is_empty());
    }
    let busy = FunctionModel::new(|_| Err(ModelError::new(ModelErrorKind::Overloaded, "busy")));
    let index = tides().await.with_rewriter(QueryRewriter::new(busy));
    let found = search(&index, "tide").await;
    assert_eq!(found.passages, plain.passages);
    assert_eq!(found.rewriting_error.unwrap().message(), "busy");
}

#[tokio::test]
async fn rewritten_queries_are_bounded() {
    let many = FunctionModel::new(|request| {
        let size = request.history.messages()[0].text().len();
        assert!(size < 10_000, "{size}");
        let mut queries: Vec<String> = (0..1_000).map(|n| format!("query {n}")).collect();
        queries.insert(0, "long ".repeat(1_000));
        let answer = serde_json::json!({"queries": queries}).to_string();
        Ok(Response::new(Message::assistant(answer)))
    });
    for (limit, expected) in [(None, 3), (Some(5), 5), (Some(100), 8), (Some(0), 0)] {
        let mut rewriter = QueryRewriter::new(many.clone());
        if let Some(limit) = limit {
            rewriter = rewriter.queries(limit);
        }
        let (queries, _) = rewriter.rewrite(&"größe ".repeat(10_000)).await.unwrap();
        assert_eq!(queries.len(), expected);
        assert!(queries.iter().all(|query| query.starts_with("query ")));
    }
}
