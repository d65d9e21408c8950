//! A real server. `LEVITY_TEST_EMBEDDINGS_URL` names one with OpenAI's API, such as a llama.cpp
//! started with `--embeddings --pooling mean`; `LEVITY_TEST_EMBEDDER` names its model.

use levity_core::{Embedder as _, Purpose};
use levity_llm::OpenAiEmbedder;

use super::texts;

fn embedder() -> Option<OpenAiEmbedder> {
    let Ok(url) = std::env::var("LEVITY_TEST_EMBEDDINGS_URL") else {
        // This is visible even if the test runner captures output.
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            b"SKIPPED: no real embedder; LEVITY_TEST_EMBEDDINGS_URL names no server\n",
        );
        return None;
    };
    let model = std::env::var("LEVITY_TEST_EMBEDDER").unwrap_or_else(|_| "qwen".to_owned());
    Some(
        OpenAiEmbedder::compatible(format!("{}/v1", url.trim_end_matches('/')), model)
            .with_batch(2),
    )
}

#[tokio::test]
async fn real_server_embeds_texts() {
    let Some(embedder) = embedder() else { return };
    let three = texts(&[
        "The harbour is closed in winter.",
        "Grüner Tee",
        "fn main() {}",
    ]);
    let embedded = embedder.embed(&three, Purpose::Document).await.unwrap();
    assert!(embedded.usage.input.is_some_and(|tokens| tokens > 5));
    let again = embedder
        .embed(&three[2..], Purpose::Document)
        .await
        .unwrap();
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let close: Vec<f32> = embedded
        .vectors
        .iter()
        .map(|vector| dot(vector, &again.vectors[0]))
        .collect();
    assert!(
        close[2] > 0.99 && close[0] < close[2] && close[1] < close[2],
        "{close:?}"
    );
    for vector in &embedded.vectors {
        assert!((dot(vector, vector) - 1.0).abs() < 1e-3);
        assert_eq!(vector.len(), embedded.vectors[0].len());
    }
}
