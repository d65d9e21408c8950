//! Embedders by name.

use std::sync::Arc;

use levity_core::Embedder;

use super::list::Api;
use super::{Models, Name};
use crate::{Error, Secret};

/// Makes the embedder of a name, with keys from the environment.
///
/// | name | what it is |
/// |---|---|
/// | `gemini:gemini-embedding-001` | an embedder of Google's AI Studio |
/// | `openai:text-embedding-3-small` | an embedder of OpenAI's |
/// | `ollama:nomic-embed-text` | an embedder of an Ollama server's |
/// | `compatible:name@https://host/v1` | an embedder of any server that speaks as OpenAI's does |
/// | `mistral:…`, `together:…` and others | servers of the list |
///
/// Addresses and keys are those of [`model`](crate::model).
///
/// # Errors
/// When the name is none or unknown, its provider has no embedders or is not compiled in, or its
/// key is not set.
///
/// ```
/// let embedder = levity_llm::embedder("compatible:bge-m3@http://127.0.0.1:8080/v1")?;
/// assert_eq!(embedder.card().id, "bge-m3");
/// # Ok::<(), levity_llm::Error>(())
/// ```
pub fn embedder(name: &str) -> Result<Arc<dyn Embedder>, Error> {
    Models::from_env()?.embedder(name)
}

impl Models {
    /// The embedder of this name; see [`embedder`] for how names look.
    ///
    /// # Errors
    /// As for [`embedder`].
    pub fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, Error> {
        let name = &Name::parse(name.trim())?;
        let place = self.place(name)?;
        embedder_is_built(place.api, name)?;
        place.has_address(name)?;
        let key = self.key(name, &place)?;
        embedder_at(place.api, name, place.base_url.as_deref(), key)
    }
}

/// # Errors
/// When there are no embedders behind this API, or they are not compiled in.
fn embedder_is_built(api: Api, name: &Name<'_>) -> Result<(), Error> {
    let chat = cfg!(any(feature = "openai", feature = "compatible"));
    match api {
        // Vertex has them under an API of its own.
        Api::Messages | Api::Vertex => Err(Error::NoEmbedders {
            provider: name.provider.to_owned(),
        }),
        Api::Chat | Api::Responses | Api::OpenAiChat if chat => Ok(()),
        api => super::build::is_built(api, name.provider),
    }
}

/// An embedder behind this API.
#[allow(unused_variables, reason = "which are used depends on the features")]
fn embedder_at(
    api: Api,
    name: &Name<'_>,
    base_url: Option<&str>,
    key: Option<Secret>,
) -> Result<Arc<dyn Embedder>, Error> {
    let there = super::build::moved(base_url);
    match api {
        #[cfg(any(feature = "openai", feature = "compatible"))]
        Api::Chat | Api::Responses | Api::OpenAiChat => {
            let made = match (api, name.provider) {
                (Api::Responses | Api::OpenAiChat, "openai" | "openai-chat") => {
                    let base_url = base_url.map(super::build::versioned);
                    let there = super::build::moved(base_url.as_deref());
                    crate::OpenAiEmbedder::new(super::build::or_none(key), name.id)
                        .with_endpoint(there)
                }
                _ => {
                    let base_url = super::build::versioned(base_url.unwrap_or_default());
                    let made = crate::OpenAiEmbedder::compatible(base_url, name.id);
                    key.map_or_else(|| made.clone(), |key| made.clone().with_key(key))
                }
            };
            Ok(Arc::new(made.of_provider(name.provider)))
        }
        #[cfg(feature = "gemini")]
        Api::Gemini => {
            let made = crate::GeminiEmbedder::new(super::build::or_none(key), name.id);
            Ok(Arc::new(
                made.with_endpoint(there).of_provider(name.provider),
            ))
        }
        #[cfg(feature = "ollama")]
        Api::Ollama => {
            let made = crate::OllamaEmbedder::new(name.id).with_endpoint(there);
            let made = key.map_or_else(|| made.clone(), |key| made.clone().with_key(key));
            Ok(Arc::new(made.of_provider(name.provider)))
        }
        api => Err(embedder_is_built(api, name)
            .err()
            .unwrap_or_else(|| Error::NoEmbedders {
                provider: name.provider.to_owned(),
            })),
    }
}
