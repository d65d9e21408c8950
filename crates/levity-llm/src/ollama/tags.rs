//! Lists the available models.

use levity_core::{ModelError, ModelErrorKind};
use serde::Deserialize;

use super::errors::explain;
use crate::http::{Endpoint, error_from_reply};

/// The maximum size of a list in bytes.
const MAX_BYTES: usize = 16 << 20;

/// A model that an Ollama server has.
///
/// The method [`OllamaModel::list`](crate::OllamaModel::list) returns one for each model. It can be
/// read from JSON, and other fields of the server's reply are ignored:
///
/// ```
/// use levity_llm::OllamaEntry;
///
/// let json = r#"{"name": "qwen3:4b", "size": 2600000000, "digest": "sha256:1"}"#;
/// let entry: OllamaEntry = serde_json::from_str(json)?;
/// assert_eq!((&*entry.name, entry.size), ("qwen3:4b", 2_600_000_000));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct OllamaEntry {
    /// The name with its tag, such as `qwen3:4b`.
    pub name: String,
    /// The size on disk in bytes; a cloud model uses almost none.
    #[serde(default)]
    pub size: u64,
}

/// The reply of the server.
#[derive(Deserialize)]
struct Tags {
    models: Vec<OllamaEntry>,
}

/// Requests the list, of at most 16 MiB.
///
/// # Errors
/// Returns an error with advice if no server responds, and `Malformed` if the reply is not a list.
pub(super) async fn list(endpoint: &Endpoint) -> Result<Vec<OllamaEntry>, ModelError> {
    let asked = endpoint.get("/api/tags", &[]).await;
    let mut reply = asked.map_err(|error| explain(error, None, endpoint))?;
    if reply.status() != 200 {
        return Err(explain(
            error_from_reply(&mut reply, endpoint, &[]).await,
            None,
            endpoint,
        ));
    }
    let body = reply.rest(MAX_BYTES).await?;
    let tags: Tags = serde_json::from_slice(&body).map_err(|error| {
        ModelError::new(
            ModelErrorKind::Malformed,
            "the reply is not a list of models",
        )
        .with_source(error)
    })?;
    Ok(tags.models)
}
