//! Rerankers: their requests and replies.

use levity_core::{ModelError, ModelErrorKind, Reranker, Reranking};
use levity_llm::{Endpoint, ErrorKind, HttpReranker, ModelList, Models};
use levity_test::{WordReranker, conformance};
use serde_json::{Value, json};

use crate::server::{Answer, Seen, Server};

mod judge;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns the texts of a request.
fn documents(seen: &Seen) -> Vec<String> {
    serde_json::from_value(seen.body["documents"].clone()).unwrap()
}

/// Starts a server that ranks by words and sends the best text first, as servers do.
async fn ranking() -> Server {
    Server::with(|_, seen| {
        let (query, texts) = (seen.body["query"].as_str().unwrap(), documents(seen));
        let ranked = futures_util::FutureExt::now_or_never(async {
            WordReranker::new().rerank(query, &texts).await.unwrap()
        });
        let ranked = ranked.unwrap();
        let result = |at: usize| json!({"index": at, "relevance_score": ranked.scores[at]});
        let results: Vec<Value> = ranked.order().into_iter().map(result).collect();
        let usage = json!({"prompt_tokens": 7, "total_tokens": 7});
        Answer::json(200, json!({"results": results, "usage": usage}).to_string())
    })
    .await
}

/// Returns the result for two texts from a server with this reply.
async fn read(reply: impl AsRef<[u8]>) -> Result<Reranking, ModelError> {
    let server = Server::with_answer(Answer::json(200, reply)).await;
    let reranker = HttpReranker::new(server.url(), "small");
    reranker.rerank("tea", &texts(&["one", "two"])).await
}

#[tokio::test]
async fn http_reranker_conforms() {
    let server = ranking().await;
    conformance::reranker(|| HttpReranker::new(server.url(), "small")).await;
    conformance::reranker(|| HttpReranker::new(server.url(), "small").with_batch(7)).await;
}

#[tokio::test]
async fn request_has_expected_format() {
    let server = ranking().await;
    let reranker = HttpReranker::new("http://127.0.0.1:1", "small")
        .with_key("k-1")
        .with_endpoint(|_| {
            let base = format!("{}/v2", server.url());
            Endpoint::new(base).with_field("priority", 3)
        })
        .with_text_bytes(5);
    let found = reranker
        .rerank("green \"tea\"", &texts(&["one", "größer", ""]))
        .await
        .unwrap();
    assert_eq!(found.scores.len(), 3);
    let seen = server.last();
    let (line, key) = (&*seen.line, seen.header("authorization"));
    assert_eq!((line, key), ("POST /v2/rerank", "Bearer k-1"));
    // Long texts end at a character, and blank ones are not sent.
    let documents = ["one", "grö"];
    let body = json!({"priority": 3, "model": "small", "query": "green", "documents": documents});
    assert_eq!(seen.body, body);
}

#[tokio::test]
async fn documented_replies_are_parsed() {
    let llama_cpp = r#"{"model": "small", "object": "list",
        "usage": {"prompt_tokens": 12, "total_tokens": 13},
        "results": [{"index": 0, "relevance_score": -7.5}, {"index": 1, "relevance_score": 2}]}"#;
    let jina = r#"{"model": "jina-reranker-v2", "usage": {"total_tokens": 12}, "results": [
        {"index": 1, "document": {"text": "two"}, "relevance_score": 2},
        {"index": 0, "document": {"text": "one"}, "relevance_score": -7.5}]}"#;
    let voyage = r#"{"object": "list", "model": "rerank-2", "usage": {"total_tokens": 12}, "data": [
        {"relevance_score": 2, "index": 1}, {"relevance_score": -7.5, "index": 0}]}"#;
    for reply in [llama_cpp, jina, voyage] {
        let found = read(reply).await.unwrap();
        assert_eq!(found.scores, [-7.5, 2.0], "{reply}");
        assert_eq!(found.usage.input, Some(12), "{reply}");
    }
    let cohere = r#"{"id": "0-1", "results": [{"index": 1, "relevance_score": 0.9},
        {"index": 0, "relevance_score": 0.1}], "meta": {"api_version": {"version": "2"},
        "billed_units": {"search_units": 1}}}"#;
    let found = read(cohere).await.unwrap();
    assert_eq!((found.scores, found.usage.input), (vec![0.1, 0.9], None));
}

#[tokio::test]
async fn hostile_replies_are_malformed() {
    let results = |results: &str| format!("{{\"results\": [{results}]}}");
    let first = r#"{"index": 0, "relevance_score": 1}"#;
    for (reply, part) in [
        (results(first), "1 scores for 2 texts"),
        (
            results(&format!("{first}, {first}")),
            "two scores for text 0",
        ),
        (
            results(&format!(r#"{first}, {{"index": 2, "relevance_score": 1}}"#)),
            "text 2 of 2",
        ),
        (
            results(&format!(
                r#"{first}, {{"index": -1, "relevance_score": 1}}"#
            )),
            "no scores",
        ),
        (
            results(&format!(
                r#"{first}, {{"index": 1, "relevance_score": NaN}}"#
            )),
            "no scores",
        ),
        (
            results(&format!(
                r#"{first}, {{"index": 1, "relevance_score": null}}"#
            )),
            "no scores",
        ),
        (
            results(&format!(
                r#"{first}, {{"index": 1, "relevance_score": 1e39}}"#
            )),
            "no scores",
        ),
        (
            results(&format!(
                r#"{first}, {{"index": 1, "relevance_score": 1e400}}"#
            )),
            "no scores",
        ),
        (results(""), "0 scores"),
        ("{}".to_owned(), "no scores"),
        ("[]".to_owned(), "no scores"),
        ("".to_owned(), ""),
        ("{\"results\": [{".to_owned(), ""),
    ] {
        let error = read(&reply).await.unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Malformed, "{reply}: {error}");
        assert!(
            !error.is_retryable() && error.to_string().contains(part),
            "{reply}: {error}"
        );
    }
}

#[tokio::test]
async fn web_page_and_endless_reply_are_errors() {
    let page = Answer::new(200, "text/html", "<html><body>Sign in</body></html>");
    let server = Server::with_answer(page).await;
    let reranker = HttpReranker::new(server.url(), "small");
    let error = reranker.rerank("tea", &texts(&["one"])).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");

    let endless = Answer::json(200, "[").then_repeat(vec![b' '; 1 << 20], 80);
    let server = Server::with_answer(endless).await;
    let reranker = HttpReranker::new(server.url(), "small");
    let error = reranker.rerank("tea", &texts(&["one"])).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed, "{error}");
    assert!(error.to_string().contains("larger"), "{error}");
}

#[tokio::test]
async fn errors_have_kinds_and_hide_key() {
    for (status, body, kind) in [
        (
            401,
            r#"{"error": {"message": "bad key key-12345678"}}"#,
            ModelErrorKind::Auth,
        ),
        (
            429,
            r#"{"detail": "slow down"}"#,
            ModelErrorKind::RateLimited { retry_after: None },
        ),
        (503, r#"{"message": "no"}"#, ModelErrorKind::Overloaded),
        (
            200,
            r#"{"error": {"message": "key-12345678 is slow", "code": 429}}"#,
            ModelErrorKind::RateLimited { retry_after: None },
        ),
    ] {
        let server = Server::with_answer(Answer::json(status, body)).await;
        let reranker = HttpReranker::new(server.url(), "small").with_key("key-12345678");
        let error = reranker.rerank("tea", &texts(&["one"])).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{body}: {error}");
        assert!(
            !format!("{error} {error:?} {reranker:?}").contains("12345678"),
            "{error:?}"
        );
    }
    let gone = HttpReranker::new("http://127.0.0.1:1", "m");
    let error = gone.rerank("tea", &texts(&["one"])).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Transport);
}

#[tokio::test]
async fn texts_are_sent_in_batches_and_later_failure_may_have_cost() {
    let server = ranking().await;
    let reranker = HttpReranker::new(server.url(), "small").with_batch(2);
    let many = texts(&["tea", "a", "b", "green tea", "c"]);
    let found = reranker.rerank("tea", &many).await.unwrap();
    assert_eq!(found.order()[..2], [0, 3]);
    assert_eq!(found.usage.input, Some(21));
    let sizes: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| documents(seen).len())
        .collect();
    assert_eq!(sizes, [2, 2, 1]);

    let server = Server::start([
        Answer::json(200, r#"{"results": [{"index": 0, "relevance_score": 1}]}"#),
        Answer::json(429, r#"{"error": {"message": "slow down"}}"#),
    ])
    .await;
    let reranker = HttpReranker::new(server.url(), "small").with_batch(1);
    let error = reranker.rerank("tea", &many).await.unwrap_err();
    assert!(error.is_retryable() && error.may_cost());
    let error = reranker.rerank("tea", &many).await.unwrap_err();
    assert!(!error.may_cost());
}

#[tokio::test]
async fn unpolled_future_and_empty_input_send_nothing() {
    let server = ranking().await;
    let reranker = HttpReranker::new(server.url(), "small");
    drop(reranker.rerank("tea", &texts(&["tea"])));
    assert!(reranker.rerank("tea", &[]).await.unwrap().scores.is_empty());
    let blank = reranker.rerank("tea", &texts(&["", " \n"])).await.unwrap();
    assert_eq!(blank.scores, [0.0, 0.0]);
    let found = reranker.rerank(" ", &texts(&["tea"])).await.unwrap();
    assert_eq!((found.scores, server.seen().len()), (vec![0.0], 0));
}

#[tokio::test]
async fn name_selects_reranker() {
    let server = ranking().await;
    let list = format!(
        r#"{{"servers": {{"house": {{"base_url": "{0}/v1", "key": "HOUSE_KEY"}},
            "shed": {{"base_url": "{0}", "api": "ollama"}}}}}}"#,
        server.url()
    );
    let models = Models::new()
        .with_list(ModelList::parse(&list).unwrap())
        .with_variable("HOUSE_KEY", "h-1");
    for (name, key) in [
        ("house:bge".to_owned(), "Bearer h-1"),
        (format!("compatible:bge@{}", server.url()), ""),
    ] {
        let reranker = models.reranker(&name).unwrap();
        assert_eq!(reranker.card().provider, name.split(':').next().unwrap());
        reranker.rerank("tea", &texts(&["tea"])).await.unwrap();
        let seen = server.last();
        let found = (&*seen.line, seen.header("authorization"));
        assert_eq!(found, ("POST /v1/rerank", key), "{name}");
    }
    for (name, kind, part) in [
        ("shed:bge", ErrorKind::Name, "`shed` has no rerankers"),
        ("openai:x", ErrorKind::Name, "`openai` has no rerankers"),
        ("vertex:x", ErrorKind::Name, "`vertex` has no rerankers"),
        ("nobody:x", ErrorKind::Name, "`nobody`"),
        ("compatible:x", ErrorKind::Missing, "an address"),
    ] {
        let Err(error) = models.reranker(name) else {
            panic!("`{name}` is a reranker")
        };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}
