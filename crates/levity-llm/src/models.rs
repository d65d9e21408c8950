//! Creates models by their names.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::text::{bare_model_name, bare_url, nearest, split_model_address};
use levity_core::{CostBound, Deltas, Model, ModelCard, ModelError, Request, Response};

use crate::layers::ToolMode;
use crate::{Error, Secret};

mod build;
mod choose;
mod embedders;
mod list;
mod location;
mod profile;
mod variables;

pub use embedders::embedder;
pub use list::ModelList;
use location::UntrustedFile;
use variables::Variables;

/// Creates a model by its name, with keys from the environment.
///
/// | name | model |
/// |---|---|
/// | `gemini:gemini-3.8-flash` | a model from Google's AI Studio |
/// | `vertex:gemini-3.1-pro-preview` | a model from Google's Vertex AI |
/// | `openai:gpt-6.1-terra` | an OpenAI model, through the Responses API |
/// | `openai-chat:gpt-5.4` | an OpenAI model, through Chat Completions |
/// | `anthropic:claude-sonnet-5-5` | an Anthropic model |
/// | `ollama:qwen3` | a model on an Ollama server |
/// | `compatible:name@https://host/v1` | a model on any server that supports Chat Completions |
/// | `groq:…`, `mistral:…`, `openrouter:…` and others | models on servers of the model list |
/// | `fast` | a profile of the model list |
///
/// Any name may end with `@` and the address of its server. Keys come from the usual variables of
/// each provider (`docs/models.md`), in the environment or in a `.env` file in the working
/// directory. A file named in `LEVITY_MODELS` extends the model list. An address from a `.env` file
/// receives only keys from the same file (`docs/untrusted-folders.md`).
///
/// # Errors
/// Returns an error if the name is invalid or unknown, or its provider is not compiled in. It also
/// returns an error if the key is not set, or may not be sent to the address.
///
/// ```
/// let model = levity_llm::model("compatible:qwen3@http://127.0.0.1:8080/v1")?;
/// assert_eq!(model.card().id, "qwen3");
/// # Ok::<(), levity_llm::Error>(())
/// ```
pub fn model(name: &str) -> Result<Arc<dyn Model>, Error> {
    Models::from_env()?.model(name)
}

/// Returns the model that the environment configures.
///
/// The model named in `LEVITY_MODEL` takes precedence, then the first provider whose key is set.
/// The returned [`ChosenModel`] is a model itself and states the choice and its reason.
///
/// # Errors
/// Returns an error that names the variables to set if the environment configures no model.
///
/// ```no_run
/// let model = levity_llm::model_from_env()?;
/// println!("{model}"); // gemini:gemini-3.8-flash, since `GEMINI_API_KEY` is set
/// # Ok::<(), levity_llm::Error>(())
/// ```
pub fn model_from_env() -> Result<ChosenModel, Error> {
    Models::from_env()?.choose()
}

/// A factory for models, with keys, addresses and the model list.
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
    /// The model list without entries from untrusted files.
    own: Arc<ModelList>,
    variables: Variables,
    streams: bool,
    modes: Option<ModeStore>,
}

/// A store for the tool modes that were detected per server.
#[derive(Clone)]
struct ModeStore(Arc<dyn ToolModes>);

impl fmt::Debug for ModeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolModes")
    }
}

/// A store for the [`ToolMode`]s of servers, which the next program run reuses.
///
/// A text such as `ollama:gemma3@http://127.0.0.1:11434`, without keys, identifies a server.
pub trait ToolModes: Send + Sync {
    /// Returns the mode that was detected for a server, if it is still valid.
    fn get(&self, server: &str) -> Option<ToolMode>;

    /// Stores the mode of a server.
    fn set(&self, server: &str, mode: ToolMode);
}

impl Default for Models {
    fn default() -> Self {
        Self::new()
    }
}

impl Models {
    /// Creates a factory with the built-in list and no keys.
    pub fn new() -> Self {
        let list = ModelList::builtin().clone();
        Self {
            own: list.clone(),
            list,
            variables: Variables::default(),
            streams: true,
            modes: None,
        }
    }

    /// Reads the environment, a `.env` file in the working directory and the file named in
    /// `LEVITY_MODELS`.
    ///
    /// Addresses that the `.env` file sets receive only keys from the same file. Addresses in a
    /// list that it names receive none; see [`with_env_file`](Self::with_env_file).
    ///
    /// # Errors
    /// Returns an error if one of the files exists and cannot be read, or is invalid.
    pub fn from_env() -> Result<Self, Error> {
        let mut models = Self::new();
        models.variables = Variables::from_env();
        models.with_env_file(".env")
    }

    /// Adds the variables of a file in the `.env` format, if it exists, and the list that its
    /// `LEVITY_MODELS` names. Values that the environment or the program sets take precedence.
    ///
    /// The file may come from a third party, so an address in it receives only keys from the same
    /// file. A list is another file, so its addresses receive no key. A model that would need
    /// another key fails with [`Error::UntrustedAddress`]. A link to a file outside the folder fails
    /// with [`Error::ExternalLink`].
    ///
    /// ```
    /// # use levity_llm::Models;
    /// # let folder = tempfile::tempdir()?;
    /// let file = folder.path().join(".env");
    /// std::fs::write(&file, "OPENAI_BASE_URL=https://elsewhere.example/v1")?;
    /// let models = Models::new().with_variable("OPENAI_API_KEY", "sk-123").with_env_file(&file)?;
    /// # #[cfg(feature = "openai")]
    /// assert!(
    ///     models
    ///         .model("openai:gpt-6.1-terra")
    ///         .err()
    ///         .unwrap()
    ///         .to_string()
    ///         .contains("is not sent")
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if one of the files exists and cannot be read, or is invalid.
    pub fn with_env_file(mut self, path: impl AsRef<Path>) -> Result<Self, Error> {
        self.variables.read(path.as_ref())?;
        self.with_named_list()
    }

    /// Sets a variable, such as a key.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.variables.set(name, value);
        self
    }

    /// Adds entries to the model list, replacing those that exist in both.
    #[must_use]
    pub fn with_list(mut self, list: ModelList) -> Self {
        self.own = Arc::new(ModelList::clone(&self.own).with(list.clone()));
        self.with_untrusted_list(list)
    }

    fn with_untrusted_list(mut self, list: ModelList) -> Self {
        self.list = Arc::new(ModelList::clone(&self.list).with(list));
        self
    }

    /// Requests replies from providers without streaming.
    #[must_use]
    pub fn without_streaming(mut self) -> Self {
        self.streams = false;
        self
    }

    /// Starts with the modes that `modes` has stored for servers, and stores newly detected ones in
    /// it; see [`AdaptTools`](crate::layers::AdaptTools).
    #[must_use]
    pub fn with_tool_modes(mut self, modes: Arc<dyn ToolModes>) -> Self {
        self.modes = Some(ModeStore(modes));
        self
    }

    /// Returns a detector for the values of all variables with secret-like names, from the
    /// environment, the program and the `.env` file. Logs and guards use it to redact them.
    ///
    /// ```
    /// # use levity_llm::Models;
    /// let models = Models::new().with_variable("HOUSE_API_KEY", "correct horse");
    /// assert_eq!(models.secrets().redact("say correct horse"), "say [secret: known]");
    /// ```
    pub fn secrets(&self) -> levity_core::Secrets {
        self.variables.secrets()
    }

    /// Returns the list of models.
    pub fn list(&self) -> &ModelList {
        &self.list
    }

    /// Returns the model with this name; see [`model`] for the format of names.
    ///
    /// # Errors
    /// Returns the same errors as [`model`].
    pub fn model(&self, name: &str) -> Result<Arc<dyn Model>, Error> {
        self.resolve(name.trim(), None, 0)
    }

    /// Returns the model with this name without any layer, and the text that identifies its server
    /// in [`ToolModes`]. Use it to [check](crate::check_tools) the behaviour of the server. For a
    /// profile, this is its first model.
    ///
    /// # Errors
    /// Returns the same errors as [`model`].
    pub fn bare_model(&self, name: &str) -> Result<(Arc<dyn Model>, String), Error> {
        let (name, untrusted) = self.first_model(name.trim())?;
        let parsed = Name::parse(name).map_err(|error| self.not_a_model(name, error))?;
        let parsed = Name {
            untrusted: untrusted.cloned(),
            ..parsed
        };
        let location = self.location(&parsed)?;
        Ok((
            self.build(&parsed)?.0,
            server_of(&parsed, location.base_url.as_deref()),
        ))
    }

    /// Returns the model whose name comes from a file, such as an agent's configuration. The file
    /// may come from a third party, so an address in the name receives no key.
    ///
    /// # Errors
    /// Returns the same errors as [`model`], and [`Error::UntrustedAddress`] if a key would be sent
    /// to an address in the name.
    pub fn model_named_in(
        &self,
        file: impl AsRef<Path>,
        name: &str,
    ) -> Result<Arc<dyn Model>, Error> {
        self.resolve(
            name.trim(),
            Some(&Arc::new(UntrustedFile::file(file.as_ref()))),
            0,
        )
    }

    /// Describes the address of a model whose name comes from a file, if a file determines it. It
    /// corresponds to [`address_from_file`](Self::address_from_file) for
    /// [`model_named_in`](Self::model_named_in).
    pub fn address_named_in(&self, file: impl AsRef<Path>, name: &str) -> Option<String> {
        self.remark(name, Some(&Arc::new(UntrustedFile::file(file.as_ref()))))
    }

    /// Returns the card of the model with this name, without creating the model.
    ///
    /// # Errors
    /// Returns an error if the name is invalid or the provider is unknown.
    pub fn card(&self, name: &str) -> Result<ModelCard, Error> {
        let name =
            Name::parse(name.trim()).map_err(|error| self.not_a_model(name.trim(), error))?;
        self.known(name.provider)?;
        Ok(self.list.card(name.provider, name.id))
    }

    /// Resolves a name. `untrusted` is the untrusted file that contains the name, if any.
    fn resolve(
        &self,
        name: &str,
        untrusted: Option<&Arc<UntrustedFile>>,
        depth: usize,
    ) -> Result<Arc<dyn Model>, Error> {
        if depth == 0 {
            self.check_size(name)?;
        }
        match self.list.profiles.get(name) {
            Some(profile) => self.profile(name, profile, depth),
            None => {
                let parsed = Name::parse(name).map_err(|error| self.not_a_model(name, error))?;
                self.adapted(&Name {
                    untrusted: untrusted.cloned(),
                    ..parsed
                })
            }
        }
    }

    /// Refines the error for a name without a colon, which may refer to a profile or a listed
    /// model.
    fn not_a_model(&self, name: &str, error: Error) -> Error {
        if name.is_empty() || name.contains(':') {
            return error;
        }
        let profile = nearest(name, self.list.profiles());
        let model = || {
            self.list
                .names()
                .find(|known| known.split_once(':').is_some_and(|(_, id)| id == name))
        };
        let near = profile.or_else(model).map(str::to_owned);
        let known: Vec<_> = self
            .list
            .profiles()
            .map(|name| format!("`{name}`"))
            .collect();
        if known.is_empty() {
            return Error::InvalidName {
                name: bare_model_name(name),
                suggestion: near,
            };
        }
        let suggestion = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        let known = format!(
            "{suggestion}the profiles are {}, and models are written `provider:model`",
            known.join(", ")
        );
        Error::UnknownProfile {
            profile: bare_model_name(name),
            known,
        }
    }
}

/// A model's name, split into its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name<'a> {
    provider: &'a str,
    id: &'a str,
    base_url: Option<&'a str>,
    /// The untrusted file that contains the name, if any.
    untrusted: Option<Arc<UntrustedFile>>,
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Result<Self, Error> {
        let invalid = || Error::InvalidName {
            name: bare_model_name(name),
            suggestion: None,
        };
        let (model, base_url) = match split_model_address(name) {
            Some((model, base_url)) => (model, Some(base_url)),
            None => (name, None),
        };
        let (provider, id) = model.split_once(':').ok_or_else(invalid)?;
        // An id with a secret part is an address that cannot be used, not an id.
        let is_id = !model.contains(char::is_whitespace) && bare_model_name(model) == model;
        if provider.is_empty() || id.is_empty() || !is_id {
            return Err(invalid());
        }
        if let Some(address) = base_url.filter(|address| !is_web_address(address)) {
            return Err(Error::InvalidAddress {
                model: model.to_owned(),
                address: bare_url(address),
            });
        }
        Ok(Self {
            provider,
            id,
            base_url,
            untrusted: None,
        })
    }

    /// Returns the Google Cloud project at the start of the id, if any: `projects/mine`.
    fn project(&self) -> Option<String> {
        let mut steps = self
            .id
            .split('/')
            .filter(|step| !matches!(step.trim(), "" | "." | ".."));
        match (steps.next(), steps.next()) {
            (Some("projects"), project) => {
                Some(format!("projects/{}", project.unwrap_or_default()))
            }
            _ => None,
        }
    }
}

/// Returns the text that identifies a server and its model.
fn server_of(name: &Name<'_>, base_url: Option<&str>) -> String {
    format!(
        "{}:{}@{}",
        name.provider,
        name.id,
        bare_url(base_url.unwrap_or_default())
    )
}

/// Returns `true` if a text is an unambiguous address of a web server.
fn is_web_address(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let web = ["http", "https"]
        .iter()
        .any(|name| scheme.eq_ignore_ascii_case(name));
    let is_ambiguous = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
    web && !rest.contains(is_ambiguous) && bare_url(text) != format!("{scheme}://***")
}

/// A model chosen from the environment; its `Display` text states the choice and the reason.
#[derive(Clone)]
pub struct ChosenModel {
    model: Arc<dyn Model>,
    name: String,
    reason: String,
    remark: Option<String>,
}

impl ChosenModel {
    /// Returns the model's name, in the format of [`model`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the reason for the choice.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Describes the parts of the model, its address and its key that a file determines, as
    /// [`Models::address_from_file`] does.
    pub fn address_from_file(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Returns the model without the reason.
    pub fn into_model(self) -> Arc<dyn Model> {
        self.model
    }
}

impl fmt::Display for ChosenModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, since {}", bare_model_name(&self.name), self.reason)
    }
}

impl fmt::Debug for ChosenModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChosenModel")
            .field("name", &bare_model_name(&self.name))
            .field("why", &self.reason)
            .finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Model for ChosenModel {
    fn card(&self) -> &ModelCard {
        self.model.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        self.model.stream(request).await
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        self.model.complete(request).await
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.model.cost_bound(request)
    }
}
