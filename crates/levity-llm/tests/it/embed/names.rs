//! Embedders by name.

use levity_core::Purpose;
use levity_llm::{ErrorKind, ModelList, Models};

use super::{embedding, texts};

#[tokio::test]
async fn name_selects_embedder() {
    let server = embedding().await;
    let list = format!(
        r#"{{"servers": {{"house": {{"base_url": "{0}/v1", "key": "HOUSE_KEY"}},
            "shed": {{"base_url": "{0}", "api": "ollama"}}}}}}"#,
        server.url()
    );
    let models = Models::new()
        .with_list(ModelList::parse(&list).unwrap())
        .with_variable("GEMINI_API_KEY", "g-1")
        .with_variable("GEMINI_BASE_URL", server.url())
        .with_variable("OPENAI_API_KEY", "o-1")
        .with_variable("OPENAI_BASE_URL", format!("{}/v1", server.url()))
        .with_variable("OLLAMA_HOST", server.url())
        .with_variable("HOUSE_KEY", "h-1");
    for (name, line, header, value) in [
        (
            "gemini:gemini-embedding-001",
            "POST /v1beta/models/gemini-embedding-001:batchEmbedContents",
            "x-goog-api-key",
            "g-1",
        ),
        (
            "openai:text-embedding-3-small",
            "POST /v1/embeddings",
            "authorization",
            "Bearer o-1",
        ),
        (
            "openai-chat:text-embedding-3-small",
            "POST /v1/embeddings",
            "authorization",
            "Bearer o-1",
        ),
        (
            "ollama:nomic-embed-text",
            "POST /api/embed",
            "authorization",
            "",
        ),
        (
            "house:bge",
            "POST /v1/embeddings",
            "authorization",
            "Bearer h-1",
        ),
        ("shed:bge", "POST /api/embed", "authorization", ""),
        (
            &format!("compatible:bge@{}", server.url()),
            "POST /v1/embeddings",
            "authorization",
            "",
        ),
    ] {
        let embedder = models.embedder(name).unwrap();
        assert_eq!(embedder.card().provider, name.split(':').next().unwrap());
        embedder
            .embed(&texts(&["tea"]), Purpose::Query)
            .await
            .unwrap();
        let seen = server.last();
        assert_eq!((&*seen.line, seen.header(header)), (line, value), "{name}");
    }
}

#[test]
fn invalid_embedder_name_is_rejected_with_reason() {
    for (name, kind, part) in [
        (
            "anthropic:claude",
            ErrorKind::Name,
            "`anthropic` has no embedders",
        ),
        ("vertex:x", ErrorKind::Name, "`vertex` has no embedders"),
        ("nobody:x", ErrorKind::Name, "`nobody`"),
        ("x", ErrorKind::Name, "provider:model"),
        ("gemini:x", ErrorKind::Missing, "`GEMINI_API_KEY`"),
        ("openai:x", ErrorKind::Missing, "`OPENAI_API_KEY`"),
        ("compatible:x", ErrorKind::Missing, "an address"),
    ] {
        let Err(error) = Models::new().embedder(name) else {
            panic!("`{name}` is an embedder")
        };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}
