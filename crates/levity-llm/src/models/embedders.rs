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
/// When the name is none or unknown, its provider has no embedders or is not compiled in, or its key is not set.
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
        self.known(name.provider)?;
        let variable = |base: &str| name.base_url.or_else(|| self.variables.get(base).map(Secret::expose));
        match (name.provider, self.list.servers.get(name.provider)) {
            // A server of one's own may bear any name.
            (_, Some(server)) => {
                let key = server.key.as_ref().map_or(Ok(None), |variable| self.key(name, &[variable]))?;
                embedder_at(server.api, name, Some(name.base_url.unwrap_or(&server.base_url)), key)
            }
            ("compatible", _) => {
                let base_url = Some(super::build::address(name)?);
                embedder_at(Api::Chat, name, base_url, self.variables.get("COMPATIBLE_API_KEY").cloned())
            }
            ("openai" | "openai-chat", _) => {
                let key = self.key(name, &["OPENAI_API_KEY"])?;
                embedder_at(Api::Responses, name, variable("OPENAI_BASE_URL"), key)
            }
            ("gemini", _) => {
                let key = self.key(name, &["GEMINI_API_KEY", "GOOGLE_API_KEY"])?;
                embedder_at(Api::Gemini, name, variable("GEMINI_BASE_URL"), key)
            }
            ("ollama", _) => {
                let host =
                    self.variables.get("OLLAMA_HOST").map(|host| super::build::ollama_host(host.expose()));
                let key = self.variables.get("OLLAMA_API_KEY").cloned();
                embedder_at(Api::Ollama, name, name.base_url.or(host.as_deref()), key)
            }
            _ => embedder_at(Api::Messages, name, None, None),
        }
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
    let feature = match api {
        Api::Messages => return Err(Error::NoEmbedders { provider: name.provider.to_owned() }),
        #[cfg(any(feature = "openai", feature = "compatible"))]
        Api::Chat | Api::Responses => {
            let made = match (api, name.provider) {
                (Api::Responses, "openai" | "openai-chat") => {
                    crate::OpenAiEmbedder::new(super::build::or_none(key), name.id).with_endpoint(there)
                }
                _ => {
                    let base_url = super::build::versioned(base_url.unwrap_or_default());
                    let made = crate::OpenAiEmbedder::compatible(base_url, name.id);
                    key.map_or_else(|| made.clone(), |key| made.clone().with_key(key))
                }
            };
            return Ok(Arc::new(made.of_provider(name.provider)));
        }
        #[cfg(feature = "gemini")]
        Api::Gemini => {
            let made = crate::GeminiEmbedder::new(super::build::or_none(key), name.id);
            return Ok(Arc::new(made.with_endpoint(there).of_provider(name.provider)));
        }
        #[cfg(feature = "ollama")]
        Api::Ollama => {
            let made = crate::OllamaEmbedder::new(name.id).with_endpoint(there);
            let made = key.map_or_else(|| made.clone(), |key| made.clone().with_key(key));
            return Ok(Arc::new(made.of_provider(name.provider)));
        }
        #[cfg(not(any(feature = "openai", feature = "compatible")))]
        Api::Chat => "compatible",
        #[cfg(not(any(feature = "openai", feature = "compatible")))]
        Api::Responses => "openai",
        #[cfg(not(feature = "gemini"))]
        Api::Gemini => "gemini",
        #[cfg(not(feature = "ollama"))]
        Api::Ollama => "ollama",
    };
    #[allow(unreachable_code, reason = "with all features there is an embedder behind every API")]
    Err(Error::Feature { provider: name.provider.to_owned(), feature })
}
