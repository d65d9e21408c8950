//! Creates rerankers by their names.
//!
//! Names, addresses and keys follow the same rules as those of models.

use std::sync::Arc;

use levity_core::Reranker;

use super::list::Api;
use super::{Models, Name};
use crate::Error;

/// Creates a reranker by its name, with keys from the environment.
///
/// | name | reranker |
/// |---|---|
/// | `compatible:name@https://host/v1` | a reranker on any server with the path `/rerank` |
/// | `together:…` and others | rerankers on servers of the model list |
///
/// Addresses and keys work as for [`model`](crate::model). Cohere's address is
/// `https://api.cohere.com/v2`, and that of Jina is `https://api.jina.ai/v1`.
///
/// # Errors
/// Returns an error if the name is invalid or unknown, its provider has no rerankers, the feature
/// `compatible` is not compiled in, or its key is not set.
///
/// ```
/// let reranker = levity_llm::reranker("compatible:bge-reranker@http://127.0.0.1:8080/v1")?;
/// assert_eq!(reranker.card().id, "bge-reranker");
/// # Ok::<(), levity_llm::Error>(())
/// ```
pub fn reranker(name: &str) -> Result<Arc<dyn Reranker>, Error> {
    Models::from_env()?.reranker(name)
}

impl Models {
    /// Returns the reranker with this name; see [`reranker`] for the format of names.
    ///
    /// ```
    /// use levity_llm::{ErrorKind, Models};
    ///
    /// let models = Models::new();
    /// let reranker = models.reranker("compatible:bge-reranker@http://127.0.0.1:8080/v1")?;
    /// assert_eq!(reranker.card().id, "bge-reranker");
    /// let error = models.reranker("anthropic:claude-sonnet-5-5").err().unwrap();
    /// assert_eq!(error.kind(), ErrorKind::Name); // Anthropic has no rerankers
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`reranker`].
    pub fn reranker(&self, name: &str) -> Result<Arc<dyn Reranker>, Error> {
        let name = &Name::parse(name.trim())?;
        let location = self.location(name)?;
        if location.api != Api::Chat {
            return Err(Error::NoRerankers {
                provider: name.provider.to_owned(),
            });
        }
        super::build::is_built(location.api, name.provider)?;
        location.has_address(name)?;
        let key = self.key(name, &location)?;
        reranker_at(name, location.base_url.as_deref(), key)
    }
}

#[cfg(feature = "compatible")]
fn reranker_at(
    name: &Name<'_>,
    base_url: Option<&str>,
    key: Option<crate::Secret>,
) -> Result<Arc<dyn Reranker>, Error> {
    let base_url = super::build::versioned(base_url.unwrap_or_default());
    let reranker = crate::HttpReranker::new(base_url, name.id).of_provider(name.provider);
    Ok(match key {
        Some(key) => Arc::new(reranker.with_key(key)),
        None => Arc::new(reranker),
    })
}

/// Without the feature, the check of the API fails first.
#[cfg(not(feature = "compatible"))]
fn reranker_at(
    name: &Name<'_>,
    _: Option<&str>,
    _: Option<crate::Secret>,
) -> Result<Arc<dyn Reranker>, Error> {
    let provider = name.provider.to_owned();
    Err(Error::NoRerankers { provider })
}
