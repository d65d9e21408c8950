//! Models by name in a build without providers: errors that name the feature to add.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    CostBound, Deltas, Embedder, Model, ModelCard, ModelError, Request, Reranker, Response,
};

use crate::{Error, Result};

/// The features that add a provider each.
const FEATURES: [&str; 5] = ["gemini", "openai", "anthropic", "ollama", "compatible"];

/// Opens a model by its name, such as `gemini:gemini-3.8-flash`. This build has no provider.
///
/// # Errors
/// Always returns an error that names the feature for the model.
///
/// ```
/// let error = levity::model("openai:gpt-6.1-terra").err().unwrap().to_string();
/// assert!(error.contains("`openai`"), "{error}");
/// assert!(error.contains("cargo add levity --features openai"), "{error}");
/// ```
pub fn model(name: &str) -> Result<Arc<dyn Model>> {
    Err(missing(name))
}

/// Opens the model that the environment selects. This build has no provider.
///
/// # Errors
/// Always returns an error that names the features with providers, and the variable that each of
/// them requires.
///
/// ```
/// let error = levity::model_from_env().err().unwrap().to_string();
/// assert!(error.contains("`anthropic` (`ANTHROPIC_API_KEY`)"), "{error}");
/// ```
pub fn model_from_env() -> Result<Chosen> {
    let message = "no provider is compiled in; add one of levity's features `gemini` \
        (`GEMINI_API_KEY`), `openai` (`OPENAI_API_KEY`), `anthropic` (`ANTHROPIC_API_KEY`), \
        `ollama` (`OLLAMA_HOST`) or `compatible` (a server by its address), as in \
        `cargo add levity --features openai`";
    Err(Error::config(message))
}

/// Opens an embedder by its name, such as `gemini:gemini-embedding-001`. This build has no
/// provider.
///
/// # Errors
/// Always returns an error that names the feature for the embedder.
pub fn embedder(name: &str) -> Result<Arc<dyn Embedder>> {
    Err(missing(name))
}

/// Opens a reranker by its name, such as `compatible:bge-reranker@http://127.0.0.1:8080/v1`. This
/// build has no provider.
///
/// # Errors
/// Always returns an error that names the feature for the reranker.
pub fn reranker(name: &str) -> Result<Arc<dyn Reranker>> {
    Err(missing(name))
}

fn missing(name: &str) -> Error {
    let provider = name.split_once(':').map(|(provider, _)| provider.trim());
    let feature = match provider {
        Some("vertex") => Some("gemini"),
        Some("openai-chat") => Some("openai"),
        Some(provider) if FEATURES.contains(&provider) => Some(provider),
        // The listed servers use the protocol of OpenAI.
        Some(provider) if !provider.is_empty() => Some("compatible"),
        _ => None,
    };
    let message = match (provider, feature) {
        (Some(provider), Some(feature)) => format!(
            "`{provider}` is not compiled in; add levity's feature `{feature}`: `cargo add levity \
                --features {feature}`"
        ),
        _ => format!(
            "no provider is compiled in; add one of levity's features `{}`, as in `cargo add \
                levity --features openai`",
            FEATURES.join("`, `")
        ),
    };
    Error::config(message)
}

/// A model that the environment selects. This build has no provider, so no value of this type
/// exists. Programs that use one still compile, and report at their start what is missing.
#[derive(Clone, Copy, Debug)]
pub enum Chosen {}

impl Chosen {
    /// Returns the name of the model.
    pub fn name(&self) -> &str {
        match *self {}
    }

    /// Returns the reason for the choice.
    pub fn why(&self) -> &str {
        match *self {}
    }

    /// Returns the address of the model, if a file sets it.
    pub fn address_from_file(&self) -> Option<&str> {
        match *self {}
    }

    /// Returns the model itself.
    pub fn into_model(self) -> Arc<dyn Model> {
        match self {}
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Model for Chosen {
    fn card(&self) -> &ModelCard {
        match *self {}
    }

    async fn stream(&self, _: Request) -> Result<Deltas, ModelError> {
        match *self {}
    }

    async fn complete(&self, _: Request) -> Result<Response, ModelError> {
        match *self {}
    }

    fn cost_bound(&self, _: &Request) -> CostBound {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_without_providers_names_the_feature_to_add() {
        for (name, feature) in [
            (
                "openai:gpt-6.1-terra",
                "`cargo add levity --features openai`",
            ),
            (
                "openai-chat:gpt-5.4",
                "`cargo add levity --features openai`",
            ),
            (
                "gemini:gemini-3.8-flash",
                "`cargo add levity --features gemini`",
            ),
            (
                "vertex:gemini-3.1-pro-preview",
                "`cargo add levity --features gemini`",
            ),
            (
                "anthropic:claude-sonnet-5-5",
                "`cargo add levity --features anthropic`",
            ),
            ("ollama:qwen3", "`cargo add levity --features ollama`"),
            (
                "compatible:m@http://127.0.0.1:1/v1",
                "`cargo add levity --features compatible`",
            ),
            ("groq:llama", "`cargo add levity --features compatible`"),
            (
                "fast",
                "features `gemini`, `openai`, `anthropic`, `ollama`, `compatible`",
            ),
            ("", "features `gemini`"),
        ] {
            let errors = [
                model(name).err(),
                embedder(name).err(),
                reranker(name).err(),
            ];
            for error in errors
                .into_iter()
                .flatten()
                .map(|error| levity_core::text::chain(&error))
            {
                assert!(error.contains(feature), "{name}: {error}");
            }
        }
    }
}
