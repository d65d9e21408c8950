//! What is made of replies.

use levity_core::{Embedder, ModelErrorKind};
use levity_llm::OpenAiEmbedder;
use serde_json::{Value, json};

use super::{all, gemini, ollama, openai, read, reply};
use crate::server::{Answer, Server};

async fn openai_reads(body: &Value) -> Result<Vec<Vec<f32>>, ModelErrorKind> {
    let server = Server::saying(Answer::json(200, body.to_string())).await;
    read(&openai(&server))
        .await
        .map(|embedded| embedded.vectors)
        .map_err(|error| error.kind())
}

#[tokio::test]
async fn vectors_are_put_in_the_order_of_the_texts() {
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
async fn vectors_may_come_as_bytes() {
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
async fn what_is_no_set_of_vectors_is_malformed() {
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
async fn what_is_no_reply_is_malformed() {
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
        let server = Server::saying(Answer::json(200, body)).await;
        for embedder in all(&server) {
            let error = read(&*embedder).await.unwrap_err();
            assert_eq!(error.kind(), ModelErrorKind::Malformed, "{body}: {error}");
        }
    }
    let huge = r#"{"data":[{"embedding":[1e39]},{"embedding":[1.0]}],"embeddings":[[1e39],[1.0]]}"#;
    let server = Server::saying(Answer::json(200, huge)).await;
    for embedder in all(&server) {
        assert_eq!(
            read(&*embedder).await.unwrap_err().kind(),
            ModelErrorKind::Malformed
        );
    }
}

#[tokio::test]
async fn a_reply_without_end_is_given_up() {
    let server = Server::saying(Answer::json(200, "[").then_repeat(vec![b' '; 1 << 20], 80)).await;
    let error = read(&openai(&server)).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Malformed, "{error}");
    assert!(error.to_string().contains("larger"), "{error}");
}

#[tokio::test]
async fn another_number_of_components_than_asked_for_is_malformed() {
    let server =
        Server::with(|_, seen| Answer::json(200, reply(seen, &vec![vec![1.0; 8]; 2]).to_string()))
            .await;
    let error = read(&ollama(&server).with_dimensions(4)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a vector has 8 components, not 4; leave the number to the model, or ask for one that it \
            has"
    );
    assert!(read(&ollama(&server).with_dimensions(8)).await.is_ok());
}

#[tokio::test]
async fn errors_are_those_of_models() {
    let check = async |status: u16, body: &str, kind: ModelErrorKind| {
        let server = Server::saying(Answer::json(status, body)).await;
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
    // Some say so with a status that means the opposite.
    check(
        200,
        r#"{"error": {"message": "slow down", "code": 429}}"#,
        ModelErrorKind::RateLimited { retry_after: None },
    )
    .await;
}

#[tokio::test]
async fn errors_show_no_key_and_say_what_to_do() {
    let server = Server::saying(Answer::json(
        401,
        r#"{"error": {"message": "bad key key-12345678"}}"#,
    ))
    .await;
    let error = read(&gemini(&server)).await.unwrap_err();
    assert_eq!(error.message(), "bad key ***");
    // Also where the status says that all is well.
    let server = Server::saying(Answer::json(
        200,
        r#"{"error": {"message": "bad key key-12345678"}}"#,
    ))
    .await;
    let error = read(&gemini(&server)).await.unwrap_err();
    assert_eq!(error.message(), "bad key ***");
    let server = Server::saying(Answer::json(
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
