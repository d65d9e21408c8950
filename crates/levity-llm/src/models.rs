//! Models by name.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{Deltas, Model, ModelCard, ModelError, Request, Response, Worst};

use crate::{Error, Secret};

mod build;
mod choose;
mod embedders;
mod list;
mod profile;
mod variables;

pub use embedders::embedder;
pub use list::ModelList;
use variables::Variables;

/// Makes models by their names, with keys from the environment.
///
/// | name | what it is |
/// |---|---|
/// | `gemini:gemini-3.8-flash` | a model of Google's AI Studio |
/// | `vertex:gemini-3.1-pro-preview` | a model of Google's Vertex AI |
/// | `openai:gpt-6.1-terra` | a model of OpenAI's, by Responses |
/// | `openai-chat:gpt-5.4` | a model of OpenAI's, by Chat Completions |
/// | `anthropic:claude-sonnet-5-5` | a model of Anthropic's |
/// | `ollama:qwen3` | a model of an Ollama server's |
/// | `compatible:name@https://host/v1` | a model of any server that speaks Chat Completions |
/// | `groq:…`, `mistral:…`, `openrouter:…` and others | servers of the list |
/// | `fast` | a profile of the list |
///
/// Any name may end with `@` and an address, which is where its server is then looked for. Keys are looked for
/// in the variables that are customary for each provider (`docs/models.md`), in the environment and in a `.env`
/// in the working directory. A file named in `LEVITY_MODELS` adds to the list of models.
///
/// # Errors
/// When the name is none or unknown, its provider is not compiled in, or its key is not set.
///
/// ```
/// let model = levity_llm::model("compatible:qwen3@http://127.0.0.1:8080/v1")?;
/// assert_eq!(model.card().id, "qwen3");
/// # Ok::<(), levity_llm::Error>(())
/// ```
pub fn model(name: &str) -> Result<Arc<dyn Model>, Error> {
    Models::from_env()?.model(name)
}

/// The model that the environment offers.
///
/// What `LEVITY_MODEL` names comes first, then the first provider whose key is set. What was chosen and why is in
/// the [`Chosen`], which is a model itself.
///
/// # Errors
/// When it offers none; the error names the variables to set.
///
/// ```no_run
/// let model = levity_llm::model_from_env()?;
/// println!("{model}"); // gemini:gemini-3.8-flash, since `GEMINI_API_KEY` is set
/// # Ok::<(), levity_llm::Error>(())
/// ```
pub fn model_from_env() -> Result<Chosen, Error> {
    Models::from_env()?.choose()
}

/// Where models come from: keys and addresses, and the list of models.
///
/// ```
/// use levity_llm::Models;
///
/// let models = Models::new().with_variable("COMPATIBLE_API_KEY", "sk-123");
/// let model = models.model("compatible:qwen3@https://llm.example/v1")?;
/// assert_eq!(model.card().provider, "compatible");
/// # Ok::<(), levity_llm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Models {
    list: Arc<ModelList>,
    variables: Variables,
    streams: bool,
}

impl Default for Models {
    fn default() -> Self {
        Self::new()
    }
}

impl Models {
    /// The list that comes with levity, and no keys.
    pub fn new() -> Self {
        Self { list: ModelList::builtin().clone(), variables: Variables::default(), streams: true }
    }

    /// What the environment, a `.env` in the working directory and a file named in `LEVITY_MODELS` say.
    ///
    /// # Errors
    /// When one of the files is there and cannot be read, or is wrong.
    pub fn from_env() -> Result<Self, Error> {
        let mut models = Self::new();
        models.variables = Variables::from_env()?;
        match models.variables.get("LEVITY_MODELS").map(|path| path.expose().to_owned()) {
            Some(path) => Ok(models.with_list(ModelList::read(path)?)),
            None => Ok(models),
        }
    }

    /// Sets a variable, such as a key.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.variables.set(name, value);
        self
    }

    /// Adds to the list of models, and replaces what is in both.
    #[must_use]
    pub fn with_list(mut self, list: ModelList) -> Self {
        self.list = Arc::new(ModelList::clone(&self.list).with(list));
        self
    }

    /// Asks models of providers for replies in one piece.
    #[must_use]
    pub fn without_streaming(mut self) -> Self {
        self.streams = false;
        self
    }

    /// The list of models.
    pub fn list(&self) -> &ModelList {
        &self.list
    }

    /// The model of this name; see [`model`] for how names look.
    ///
    /// # Errors
    /// As for [`model`].
    pub fn model(&self, name: &str) -> Result<Arc<dyn Model>, Error> {
        self.resolve(name.trim(), 0)
    }

    /// What is known of the model of this name, without making it.
    ///
    /// # Errors
    /// When the name is none, or there is no such provider.
    pub fn card(&self, name: &str) -> Result<ModelCard, Error> {
        let name = Name::parse(name.trim())?;
        self.known(name.provider)?;
        Ok(self.list.card(name.provider, name.id))
    }

    fn resolve(&self, name: &str, depth: usize) -> Result<Arc<dyn Model>, Error> {
        match self.list.profiles.get(name) {
            Some(profile) => self.profile(name, profile, depth),
            None => self.build(&Name::parse(name).map_err(|error| self.no_profile(name, error))?),
        }
    }

    /// A name without a colon may be meant as a profile.
    fn no_profile(&self, name: &str, error: Error) -> Error {
        let known: Vec<_> = self.list.profiles().map(|name| format!("`{name}`")).collect();
        if name.is_empty() || name.contains(':') || known.is_empty() {
            return error;
        }
        let known = format!("there are {}, and models are written `provider:model`", known.join(", "));
        Error::UnknownProfile { profile: name.to_owned(), known }
    }
}

/// A model's name, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name<'a> {
    provider: &'a str,
    id: &'a str,
    base_url: Option<&'a str>,
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Result<Self, Error> {
        let wrong = || Error::Name { name: name.to_owned() };
        let (provider, rest) = name.split_once(':').ok_or_else(wrong)?;
        let at = ["@http://", "@https://"].iter().find_map(|mark| rest.find(mark));
        let (id, base_url) = match at {
            Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at + 1..)),
            None => (rest, None),
        };
        if provider.is_empty() || id.is_empty() || name.contains(char::is_whitespace) {
            return Err(wrong());
        }
        Ok(Self { provider, id, base_url })
    }
}

/// A model that was chosen from what the environment offers; shown, it says which and why.
#[derive(Clone)]
pub struct Chosen {
    model: Arc<dyn Model>,
    name: String,
    why: String,
}

impl Chosen {
    /// The model's name, as [`model`] takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why it was chosen.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The model itself.
    pub fn into_model(self) -> Arc<dyn Model> {
        self.model
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, since {}", self.name, self.why)
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("name", &self.name).field("why", &self.why).finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Model for Chosen {
    fn card(&self) -> &ModelCard {
        self.model.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        self.model.stream(request).await
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        self.model.complete(request).await
    }

    fn worst(&self, request: &Request) -> Worst {
        self.model.worst(request)
    }
}
