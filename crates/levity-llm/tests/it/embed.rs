//! Embedders: their requests and replies.

use std::sync::Arc;

use levity_core::{Embedder, Embeddings, ModelError, Purpose};
use levity_llm::{Endpoint, GeminiEmbedder, OllamaEmbedder, OpenAiEmbedder};
use levity_test::{WordEmbedder, conformance};
use serde_json::{Value, json};

use crate::server::{Answer, Seen, Server};

mod local;
mod names;
mod replies;
mod requests;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn openai(server: &Server) -> OpenAiEmbedder {
    OpenAiEmbedder::compatible(server.url(), "small")
}

fn ollama(server: &Server) -> OllamaEmbedder {
    OllamaEmbedder::new("small").with_endpoint(|_| Endpoint::new(server.url()))
}

fn gemini(server: &Server) -> GeminiEmbedder {
    gemini_model(server, "gemini-embedding-001")
}

fn gemini_model(server: &Server, model: &str) -> GeminiEmbedder {
    GeminiEmbedder::new("key-12345678", model).with_endpoint(|_| Endpoint::new(server.url()))
}

/// Returns all three embedders on one server.
fn all(server: &Server) -> Vec<Arc<dyn Embedder>> {
    vec![
        Arc::new(openai(server)),
        Arc::new(ollama(server)),
        Arc::new(gemini(server)),
    ]
}

/// Returns the texts of a request of any embedder.
fn requested_texts(seen: &Seen) -> Vec<String> {
    let strings = |list: &Value| -> Vec<String> {
        list.as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    match seen.body["requests"].as_array() {
        Some(requests) => {
            let text = |request: &Value| {
                request["content"]["parts"][0]["text"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            };
            requests.iter().map(text).collect()
        }
        None => strings(&seen.body["input"]),
    }
}

/// Returns a reply in the format of the request.
fn reply(seen: &Seen, vectors: &[Vec<f32>]) -> Value {
    if seen.line.ends_with(":batchEmbedContents") {
        let embeddings: Vec<_> = vectors
            .iter()
            .map(|values| json!({"values": values}))
            .collect();
        return json!({"embeddings": embeddings, "usageMetadata": {"promptTokenCount": 7}});
    }
    if seen.line.ends_with("/api/embed") {
        return json!({"model": "small", "embeddings": vectors, "prompt_eval_count": 7});
    }
    let data: Vec<_> = (0..)
        .zip(vectors)
        .map(|(index, vector): (usize, _)| {
            json!({"object": "embedding", "index": index,
                "embedding": vector})
        })
        .collect();
    json!({"object": "list", "data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}})
}

/// Starts a server that embeds by words, with vectors of length 3.
async fn embedding() -> Server {
    Server::with(|_, seen| {
        let embedded = futures_util::FutureExt::now_or_never(async {
            WordEmbedder::new()
                .embed(&requested_texts(seen), Purpose::Document)
                .await
        });
        let mut vectors = embedded.unwrap().unwrap().vectors;
        vectors.iter_mut().flatten().for_each(|part| *part *= 3.0);
        Answer::json(200, reply(seen, &vectors).to_string())
    })
    .await
}

/// Returns the result of an embedder for two texts.
async fn read(embedder: &dyn Embedder) -> Result<Embeddings, ModelError> {
    embedder
        .embed(&texts(&["one", "two"]), Purpose::Document)
        .await
}

#[tokio::test]
async fn all_embedders_conform() {
    let server = embedding().await;
    conformance::embedder(|| openai(&server)).await;
    conformance::embedder(|| openai(&server).with_dimensions(256).with_batch(7)).await;
    conformance::embedder(|| ollama(&server)).await;
    conformance::embedder(|| gemini(&server)).await;
    conformance::embedder(|| gemini_model(&server, "gemini-embedding-2").with_dimensions(256))
        .await;
}

#[tokio::test]
async fn vectors_are_normalized_and_tokens_counted() {
    let server = Server::with(|_, seen| {
        Answer::json(
            200,
            reply(seen, &[vec![3.0, 4.0], vec![0.0, -2.0]]).to_string(),
        )
    })
    .await;
    for embedder in all(&server) {
        let embedded = read(&*embedder).await.unwrap();
        assert_eq!(embedded.vectors, [[0.6, 0.8], [0.0, -1.0]]);
        assert_eq!(
            (embedded.usage.input, embedded.usage.output),
            (Some(7), None)
        );
    }
}

#[tokio::test]
async fn blank_texts_are_not_sent() {
    let server = embedding().await;
    for embedder in all(&server) {
        let mixed = texts(&["", "tea", " \n"]);
        let vectors = embedder
            .embed(&mixed, Purpose::Document)
            .await
            .unwrap()
            .vectors;
        assert_eq!(requested_texts(&server.last()), ["tea"]);
        assert!(
            vectors[0]
                .iter()
                .chain(&vectors[2])
                .all(|part| *part == 0.0)
        );
        assert_eq!((vectors[0].len(), vectors[1].len()), (256, 256));
        let nothing = embedder
            .embed(&texts(&["", ""]), Purpose::Document)
            .await
            .unwrap()
            .vectors;
        assert_eq!(nothing, vec![vec![0.0; 256]; 2]);
        let before = server.seen().len();
        assert_eq!(
            embedder
                .embed(&[], Purpose::Query)
                .await
                .unwrap()
                .vectors
                .len(),
            0
        );
        assert_eq!(server.seen().len(), before);
    }
}

#[tokio::test]
async fn unpolled_future_sends_nothing() {
    let server = embedding().await;
    for embedder in all(&server) {
        drop(embedder.embed(&texts(&["tea"]), Purpose::Query));
    }
    assert_eq!(server.seen().len(), 0);
}
