//! Which models there are.

use levity_core::{ModelError, ModelErrorKind};
use serde::Deserialize;

use super::errors::explain;
use crate::http::{Endpoint, refused};

/// The longest list that is read.
const LONGEST: usize = 16 << 20;

/// A model that an Ollama has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct OllamaEntry {
    /// Its name, with the tag: `qwen3:4b`.
    pub name: String,
    /// How many bytes it takes on disk; a model in the cloud takes next to none.
    #[serde(default)]
    pub size: u64,
}

#[derive(Deserialize)]
struct Tags {
    models: Vec<OllamaEntry>,
}

pub(super) async fn list(endpoint: &Endpoint) -> Result<Vec<OllamaEntry>, ModelError> {
    let asked = endpoint.get("/api/tags", &[]).await;
    let mut reply = asked.map_err(|error| explain(error, None, endpoint))?;
    if reply.status() != 200 {
        return Err(explain(
            refused(&mut reply, endpoint, &[]).await,
            None,
            endpoint,
        ));
    }
    let body = reply.rest(LONGEST).await?;
    let tags: Tags = serde_json::from_slice(&body).map_err(|error| {
        ModelError::new(ModelErrorKind::Malformed, "the reply is no list of models")
            .with_source(error)
    })?;
    Ok(tags.models)
}
