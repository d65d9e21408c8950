use std::sync::Arc;

use levity_core::{Embedder, Model};
use levity_llm::Chosen;

use crate::{Error, Result};

/// A model by its name, such as `gemini:gemini-3.8-flash`, with its key from the environment or a
/// `.env`.
///
/// [`levity_llm::model`] says how names look.
///
/// # Errors
/// When the name is none or unknown, its provider is not compiled in, or its key is not set; the
/// error says what to do.
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

/// The model that the environment or a `.env` offers: what `LEVITY_MODEL` names, or the first
/// provider whose key is set. Shown, it says which and why.
///
/// # Errors
/// When nothing is offered; the error names the variables to set.
///
/// ```no_run
/// # fn main() -> levity::Result<()> {
/// let model = levity::model_from_env()?;
/// println!("{model}"); // gemini:gemini-3.8-flash, since `GEMINI_API_KEY` is set
/// # Ok(())
/// # }
/// ```
pub fn model_from_env() -> Result<Chosen> {
    levity_llm::model_from_env().map_err(Error::from)
}

/// An embedder by its name, such as `gemini:gemini-embedding-001`, with its key from the
/// environment or a `.env`; for `Recall::with_embedder`.
///
/// # Errors
/// As [`model`].
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
