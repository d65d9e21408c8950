//! Requests as they are sent.

use levity_core::{Embedder as _, Purpose};
use levity_llm::{Endpoint, OpenAiEmbedder};
use serde_json::json;

use super::{embedding, gemini, gemini_model, ollama, openai, requested_texts, texts};
use crate::server::{Answer, Server};

#[tokio::test]
async fn openai_request_has_expected_format() {
    let server = embedding().await;
    let two = texts(&["one", "two \"quoted\""]);
    openai(&server)
        .embed(&two, Purpose::Document)
        .await
        .unwrap();
    let seen = server.last();
    assert_eq!(
        (&*seen.line, seen.header("authorization")),
        ("POST /embeddings", "")
    );
    assert_eq!(seen.body, json!({"model": "small", "input": two}));

    let own = OpenAiEmbedder::new("sk-123", "text-embedding-3-small")
        .with_endpoint(|endpoint| {
            endpoint
                .with_base(format!("{}/v1", server.url()))
                .with_field("user", "u-17")
        })
        .with_dimensions(256);
    own.embed(&two, Purpose::Query).await.unwrap();
    let seen = server.last();
    assert_eq!(
        (&*seen.line, seen.header("authorization")),
        ("POST /v1/embeddings", "Bearer sk-123")
    );
    assert_eq!(
        seen.body,
        json!({"user": "u-17", "model": "text-embedding-3-small", "input": two, "dimensions": 256,
            "encoding_format": "base64"})
    );
    let azure = OpenAiEmbedder::azure(server.url(), "az-1", "mine");
    azure.embed(&two, Purpose::Query).await.unwrap();
    let seen = server.last();
    assert_eq!(
        (&*seen.line, seen.header("api-key")),
        ("POST /openai/v1/embeddings", "az-1")
    );
}

#[tokio::test]
async fn ollama_request_has_expected_format() {
    let server = embedding().await;
    let embedder = ollama(&server)
        .with_key("k-1")
        .with_dimensions(256)
        .with_prefixes("doc: ", "query: ");
    embedder
        .embed(&texts(&["one"]), Purpose::Document)
        .await
        .unwrap();
    let seen = server.last();
    assert_eq!(
        (&*seen.line, seen.header("authorization")),
        ("POST /api/embed", "Bearer k-1")
    );
    assert_eq!(
        seen.body,
        json!({"model": "small", "input": ["doc: one"], "dimensions": 256})
    );
    embedder
        .embed(&texts(&["one"]), Purpose::Query)
        .await
        .unwrap();
    assert_eq!(server.last().body["input"], json!(["query: one"]));
}

#[tokio::test]
async fn gemini_request_has_expected_format() {
    let server = embedding().await;
    gemini(&server)
        .with_dimensions(256)
        .embed(&texts(&["one", "two"]), Purpose::Document)
        .await
        .unwrap();
    let seen = server.last();
    assert_eq!(
        seen.line,
        "POST /v1beta/models/gemini-embedding-001:batchEmbedContents"
    );
    assert_eq!(seen.header("x-goog-api-key"), "key-12345678");
    let request = |text: &str| {
        json!({
            "model": "models/gemini-embedding-001",
            "content": {"parts": [{"text": text}]},
            "taskType": "RETRIEVAL_DOCUMENT",
            "outputDimensionality": 256,
        })
    };
    assert_eq!(
        seen.body,
        json!({"requests": [request("one"), request("two")]})
    );
    gemini(&server)
        .embed(&texts(&["one"]), Purpose::Query)
        .await
        .unwrap();
    assert_eq!(
        server.last().body["requests"][0]["taskType"],
        "RETRIEVAL_QUERY"
    );
}

#[tokio::test]
async fn newer_gemini_models_get_task_as_text() {
    let server = embedding().await;
    let embedder = gemini_model(&server, "models/gemini-embedding-2");
    embedder
        .embed(&texts(&["one"]), Purpose::Query)
        .await
        .unwrap();
    let seen = server.last();
    assert_eq!(
        seen.line,
        "POST /v1beta/models/gemini-embedding-2:batchEmbedContents"
    );
    assert_eq!(
        seen.body["requests"][0],
        json!({
            "model": "models/gemini-embedding-2",
            "content": {"parts": [{"text": "task: search result | query: one"}]},
        })
    );
    embedder
        .embed(&texts(&["one"]), Purpose::Document)
        .await
        .unwrap();
    assert_eq!(requested_texts(&server.last()), ["title: none | text: one"]);
}

#[tokio::test]
async fn many_texts_are_sent_in_batches() {
    let sizes = async |server: &Server, embedder: &dyn levity_core::Embedder, texts: &[String]| {
        let before = server.seen().len();
        let embedded = embedder.embed(texts, Purpose::Document).await.unwrap();
        assert_eq!(embedded.vectors.len(), texts.len());
        let sizes: Vec<_> = server.seen()[before..]
            .iter()
            .map(|seen| requested_texts(seen).len())
            .collect();
        assert_eq!(embedded.usage.input, Some(7 * sizes.len() as u64));
        sizes
    };
    let server = embedding().await;
    let many: Vec<String> = (0..250).map(|n| format!("text {n}")).collect();
    assert_eq!(
        sizes(&server, &gemini(&server), &many).await,
        [100, 100, 50]
    );
    assert_eq!(
        sizes(&server, &ollama(&server), &many[..70]).await,
        [32, 32, 6]
    );
    assert_eq!(
        sizes(&server, &openai(&server).with_batch(10), &many[..25]).await,
        [10, 10, 5]
    );
    let long: Vec<String> = (0..5).map(|n| format!("{n} ").repeat(50_000)).collect();
    assert_eq!(sizes(&server, &openai(&server), &long).await, [2, 2, 1]);
    let longer = vec!["word ".repeat(100_000), "short".to_owned()];
    assert_eq!(sizes(&server, &openai(&server), &longer).await, [1, 1]);
}

#[tokio::test]
async fn failure_after_first_batch_may_have_cost() {
    let limited =
        Answer::json(429, r#"{"error": {"message": "slow down"}}"#).header("retry-after", "3");
    let server = Server::with(move |at, seen| match at {
        0 => Answer::json(200, super::reply(seen, &[vec![1.0]]).to_string()),
        _ => limited.clone(),
    })
    .await;
    let embedder = openai(&server).with_batch(1);
    let error = embedder
        .embed(&texts(&["one", "two"]), Purpose::Document)
        .await
        .unwrap_err();
    assert!(error.is_retryable() && error.may_cost());
    assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(3)));
    let error = embedder
        .embed(&texts(&["one"]), Purpose::Document)
        .await
        .unwrap_err();
    assert!(!error.may_cost());
}

#[tokio::test]
async fn debug_hides_key() {
    let embedder = OpenAiEmbedder::new("sk-12345678", "m")
        .with_endpoint(|_| Endpoint::new("http://h?key=abc"));
    let shown = format!("{embedder:?}");
    assert!(
        !shown.contains("12345678") && !shown.contains("abc"),
        "{shown}"
    );
}
