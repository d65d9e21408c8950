//! Creates embedders by their names.
//!
//! Names, addresses and keys follow the same rules as those of models. Embedders have no profiles
//! and no layers, and the model list holds no facts about them.

use std::sync::Arc;

use levity_core::Embedder;

use super::list::Api;
use super::{Models, Name};
use crate::{Error, Secret};

/// Creates an embedder by its name, with keys from the environment.
///
/// | name | embedder |
/// |---|---|
/// | `gemini:gemini-embedding-001` | an embedder from Google's AI Studio |
/// | `openai:text-embedding-3-small` | an OpenAI embedder |
/// | `ollama:nomic-embed-text` | an embedder on an Ollama server |
/// | `compatible:name@https://host/v1` | an embedder on any OpenAI-compatible server |
/// | `mistral:…`, `together:…` and others | embedders on servers of the model list |
///
/// Addresses and keys work as for [`model`](crate::model).
///
/// # Errors
/// Returns an error if the name is invalid or unknown, its provider has no embedders or is not
/// compiled in, or its key is not set.
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
    /// Returns the embedder with this name; see [`embedder`] for the format of names.
    ///
    /// ```
    /// use levity_llm::{ErrorKind, Models};
    ///
    /// let models = Models::new();
    /// let embedder = models.embedder("compatible:bge-m3@http://127.0.0.1:8080/v1")?;
    /// assert_eq!(embedder.card().id, "bge-m3");
    /// let error = models.embedder("anthropic:claude-sonnet-5-5").err().unwrap();
    /// assert_eq!(error.kind(), ErrorKind::Name); // Anthropic has no embedders
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`embedder`].
    pub fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, Error> {
        let name = &Name::parse(name.trim())?;
        let location = self.location(name)?;
        embedder_is_built(location.api, name)?;
        location.has_address(name)?;
        let key = self.key(name, &location)?;
        embedder_at(location.api, name, location.base_url.as_deref(), key)
    }
}

/// Checks that embedders of this API are available.
///
/// The embedder of Chat Completions servers needs one of two features, unlike their models.
///
/// # Errors
/// Returns an error if this API has no embedders or is not compiled in.
fn embedder_is_built(api: Api, name: &Name<'_>) -> Result<(), Error> {
    let chat = cfg!(any(feature = "openai", feature = "compatible"));
    match api {
        // Vertex offers embedders through a different API.
        Api::Messages | Api::Vertex => Err(Error::NoEmbedders {
            provider: name.provider.to_owned(),
        }),
        Api::Chat | Api::Responses | Api::OpenAiChat if chat => Ok(()),
        api => super::build::is_built(api, name.provider),
    }
}

/// Creates an embedder that uses this API.
#[allow(unused_variables, reason = "which are used depends on the features")]
fn embedder_at(
    api: Api,
    name: &Name<'_>,
    base_url: Option<&str>,
    key: Option<Secret>,
) -> Result<Arc<dyn Embedder>, Error> {
    let set_address = super::build::with_address(base_url);
    match api {
        #[cfg(any(feature = "openai", feature = "compatible"))]
        Api::Chat | Api::Responses | Api::OpenAiChat => {
            let embedder = match (api, name.provider) {
                (Api::Responses | Api::OpenAiChat, "openai" | "openai-chat") => {
                    let base_url = base_url.map(super::build::versioned);
                    let set_address = super::build::with_address(base_url.as_deref());
                    crate::OpenAiEmbedder::new(super::build::or_placeholder(key), name.id)
                        .with_endpoint(set_address)
                }
                _ => {
                    let base_url = super::build::versioned(base_url.unwrap_or_default());
                    let embedder = crate::OpenAiEmbedder::compatible(base_url, name.id);
                    key.map_or_else(|| embedder.clone(), |key| embedder.clone().with_key(key))
                }
            };
            Ok(Arc::new(embedder.of_provider(name.provider)))
        }
        #[cfg(feature = "gemini")]
        Api::Gemini => {
            let embedder = crate::GeminiEmbedder::new(super::build::or_placeholder(key), name.id);
            Ok(Arc::new(
                embedder
                    .with_endpoint(set_address)
                    .of_provider(name.provider),
            ))
        }
        #[cfg(feature = "ollama")]
        Api::Ollama => {
            let embedder = crate::OllamaEmbedder::new(name.id).with_endpoint(set_address);
            let embedder =
                key.map_or_else(|| embedder.clone(), |key| embedder.clone().with_key(key));
            Ok(Arc::new(embedder.of_provider(name.provider)))
        }
        api => Err(embedder_is_built(api, name)
            .err()
            .unwrap_or_else(|| Error::NoEmbedders {
                provider: name.provider.to_owned(),
            })),
    }
}
