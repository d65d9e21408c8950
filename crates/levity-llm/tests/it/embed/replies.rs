//! Parsing of replies.

use levity_core::{Embedder, ModelErrorKind};
use levity_llm::OpenAiEmbedder;
use serde_json::{Value, json};

use super::{all, gemini, ollama, openai, read, reply};
use crate::server::{Answer, Server};

async fn openai_reads(body: &Value) -> Result<Vec<Vec<f32>>, ModelErrorKind> {
    let server = Server::with_answer(Answer::json(200, body.to_string())).await;
    read(&openai(&server))
        .await
        .map(|embedded| embedded.vectors)
        .map_err(|error| error.kind())
}

#[tokio::test]
async fn vectors_are_sorted_in_order_of_texts() {
    let entry = |index: u32, vector: [f32; 2]| json!({"index": index, "embedding": vector});
    let data = json!({"data": [entry(1, [0.0, 1.0]), entry(0, [1.0, 0.0])]});
    assert_eq!(
        openai_reads(&data).await,
        Ok(vec![vec![1.0, 0.0], vec![0.0, 1.0]])
    );
    let bare = json!({"data": [{"embedding": [1.0, 0.0]}, {"embedding": [0.0, 1.0]}]});
    assert_eq!(
        openai_reads(&bare).await,
        Ok(vec![vec![1.0, 0.0], vec![0.0, 1.0]])
    );
    for wrong in [[0, 0], [1, 2], [7, 0]] {
        let data = json!({"data": [entry(wrong[0], [1.0, 0.0]), entry(wrong[1], [1.0, 0.0])]});
        assert_eq!(
            openai_reads(&data).await,
            Err(ModelErrorKind::Malformed),
            "{wrong:?}"
        );
    }
}

#[tokio::test]
async fn base64_vectors_are_parsed() {
    let entry = |text: &str| json!({"data": [{"embedding": text}, {"embedding": "AACAPwAAAAA="}]});
    assert_eq!(
        openai_reads(&entry("AAAAAAAAgL8=")).await,
        Ok(vec![vec![0.0, -1.0], vec![1.0, 0.0]])
    );
    for wrong in ["AAAA", "!", "AADAfwAAgL8=", "AACAfwAAgL8="] {
        assert_eq!(
            openai_reads(&entry(wrong)).await,
            Err(ModelErrorKind::Malformed),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn invalid_vectors_are_malformed() {
    let wrong = |vectors: Vec<Vec<f32>>| async move {
        let server =
            Server::with(move |_, seen| Answer::json(200, reply(seen, &vectors).to_string())).await;
        for embedder in all(&server) {
            let error = read(&*embedder).await.unwrap_err();
            assert_eq!(error.kind(), ModelErrorKind::Malformed, "{error}");
            assert!(!error.is_retryable());
        }
    };
    wrong(vec![]).await;
    wrong(vec![vec![1.0]]).await;
    wrong(vec![vec![1.0]; 3]).await;
    wrong(vec![vec![1.0], vec![1.0, 0.0]]).await;
    wrong(vec![vec![], vec![]]).await;
    wrong(vec![vec![0.0, 0.0], vec![1.0, 0.0]]).await;
    wrong(vec![vec![1.0; 70_000]; 2]).await;
}

#[tokio::test]
async fn invalid_reply_is_malformed() {
    for body in [
        "",
        "{}",
        "[]",
        "null",
        "not json",
        r#"{"data": 7}"#,
        r#"{"embeddings": [[1e400]]}"#,
        "{\"data\": [{",
    ] {
        let server = Server::with_answer(Answer::json(200, body)).await;
        for embedder in all(&server) {
            let error = read(&*embedder).await.unwrap_err();
            assert_eq!(error.kind(), ModelErrorKind::Malformed, "{body}: {error}");
        }
    }
    let huge = r#"{"data":[{"embedding":[1e39]},{"embedding":[1.0]}],"embeddings":[[1e39],[1.0]]}"#;
    let server = Server::with_answer(Answer::json(200, huge)).await;
    for embedder in all(&server) {
        assert_eq!(
            read(&*embedder).await.unwrap_err().kind(),
            ModelErrorKind::Malformed
        );
    }
}

#[tokio::test]
async fn endless_reply_is_aborted() {
    let server =
        Server::with_answer(Answer::json(200, "[").then_repeat(vec![b' '; 1 << 20], 80)).await;
    let error = read(&openai(&server)).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed, "{error}");
    assert!(error.to_string().contains("larger"), "{error}");
}

#[tokio::test]
async fn unexpected_dimensions_are_malformed() {
    let server =
        Server::with(|_, seen| Answer::json(200, reply(seen, &vec![vec![1.0; 8]; 2]).to_string()))
            .await;
    let error = read(&ollama(&server).with_dimensions(4)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a vector has 8 components instead of 4; omit the number or use one that the model supports"
    );
    assert!(read(&ollama(&server).with_dimensions(8)).await.is_ok());
}

#[tokio::test]
async fn errors_have_kinds_of_model_errors() {
    let check = async |status: u16, body: &str, kind: ModelErrorKind| {
        let server = Server::with_answer(Answer::json(status, body)).await;
        for embedder in all(&server) {
            let error = read(&*embedder).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{body}: {error}");
        }
    };
    let said = r#"{"error": {"message": "no"}}"#;
    check(401, said, ModelErrorKind::Auth).await;
    check(429, said, ModelErrorKind::RateLimited { retry_after: None }).await;
    check(503, said, ModelErrorKind::Overloaded).await;
    check(
        400,
        r#"{"error": {"message": "input exceeds the maximum context length"}}"#,
        ModelErrorKind::ContextTooLong,
    )
    .await;
    // Some servers report this with a misleading status.
    check(
        200,
        r#"{"error": {"message": "slow down", "code": 429}}"#,
        ModelErrorKind::RateLimited { retry_after: None },
    )
    .await;
}

#[tokio::test]
async fn errors_hide_key_and_suggest_next_step() {
    let server = Server::with_answer(Answer::json(
        401,
        r#"{"error": {"message": "bad key key-12345678"}}"#,
    ))
    .await;
    let error = read(&gemini(&server)).await.unwrap_err();
    assert_eq!(error.message(), "bad key ***");
    // The same holds with a success status.
    let server = Server::with_answer(Answer::json(
        200,
        r#"{"error": {"message": "bad key key-12345678"}}"#,
    ))
    .await;
    let error = read(&gemini(&server)).await.unwrap_err();
    assert_eq!(error.message(), "bad key ***");
    let server = Server::with_answer(Answer::json(
        404,
        r#"{"error": "model \"small\" not found"}"#,
    ))
    .await;
    let error = read(&ollama(&server)).await.unwrap_err();
    assert!(error.to_string().contains("ollama pull small"), "{error}");
    let gone = OpenAiEmbedder::compatible("http://127.0.0.1:1", "m");
    let error = read(&gone as &dyn Embedder).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Transport);
}
