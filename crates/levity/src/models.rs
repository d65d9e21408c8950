use std::sync::Arc;

use levity_core::{Embedder, Model, Reranker};
use levity_llm::ChosenModel;

use crate::{Error, Result};

/// Opens a model by its name, such as `gemini:gemini-3.8-flash`, with its key from the environment
/// or a `.env` file.
///
/// See [`levity_llm::model`] for the format of names.
///
/// # Errors
/// Returns an error if the name is invalid or unknown, its provider is not compiled in, or its key
/// is not set. The error includes the remedy.
///
/// ```no_run
/// use levity::Agent;
///
/// # #[tokio::main]
/// # async fn main() -> levity::Result<()> {
/// let agent = Agent::builder(levity::model("gemini:gemini-3.8-flash")?).build()?;
/// println!("{}", agent.run("Why is the sky blue?").await?.text());
/// # Ok(())
/// # }
/// ```
pub fn model(name: &str) -> Result<Arc<dyn Model>> {
    levity_llm::model(name).map_err(Error::from)
}

/// Opens the model that the environment or a `.env` file selects: the one that `LEVITY_MODEL`
/// names, or one of the first provider whose key is set. Display shows its name and the reason for
/// the choice.
///
/// # Errors
/// Returns an error that names the variables to set, if there is no such model.
///
/// ```no_run
/// # fn main() -> levity::Result<()> {
/// let model = levity::model_from_env()?;
/// println!("{model}"); // gemini:gemini-3.8-flash, since `GEMINI_API_KEY` is set
/// # Ok(())
/// # }
/// ```
pub fn model_from_env() -> Result<ChosenModel> {
    levity_llm::model_from_env().map_err(Error::from)
}

/// Opens an embedder by its name, such as `gemini:gemini-embedding-001`, with its key from the
/// environment or a `.env` file; for `Recall::with_embedder`.
///
/// # Errors
/// Returns the same errors as [`model`].
///
/// ```no_run
/// # fn main() -> levity::Result<()> {
/// let embedder = levity::embedder("ollama:nomic-embed-text")?;
/// # let _ = embedder;
/// # Ok(())
/// # }
/// ```
pub fn embedder(name: &str) -> Result<Arc<dyn Embedder>> {
    levity_llm::embedder(name).map_err(Error::from)
}

/// Opens a reranker by its name, such as `compatible:bge-reranker@http://127.0.0.1:8080/v1`, with
/// its key from the environment or a `.env` file; for `DocumentIndex::with_reranker`.
///
/// See [`levity_llm::reranker`] for the format of names.
///
/// # Errors
/// Returns the same errors as [`model`].
///
/// ```no_run
/// # fn main() -> levity::Result<()> {
/// let reranker = levity::reranker("compatible:bge-reranker@http://127.0.0.1:8080/v1")?;
/// # let _ = reranker;
/// # Ok(())
/// # }
/// ```
pub fn reranker(name: &str) -> Result<Arc<dyn Reranker>> {
    levity_llm::reranker(name).map_err(Error::from)
}
