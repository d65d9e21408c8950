//! Creates models by their names.
//!
//! A name goes through these steps: a profile expands to the models that it names (`profile`), a
//! name splits into provider, id and address ([`Name`]), the location of its server is found
//! (`location`), the key for that location is found or refused, and a provider's type is created
//! (`build`). The list (`list`) completes the card of the model.
//!
//! Trust decides on the keys. The environment and the program are the user's own; a `.env` file, a
//! list that it names, and an agent's configuration may come with a cloned folder. Such a file may
//! choose an address, but no key from elsewhere is sent there.

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
mod rerankers;
mod variables;

pub use embedders::embedder;
pub use list::ModelList;
use location::UntrustedFile;
pub use rerankers::reranker;
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
///
/// The factory is cheap to clone and reads files only in [`from_env`](Self::from_env) and
/// [`with_env_file`](Self::with_env_file). Creating a model sends nothing.
#[derive(Clone, Debug)]
pub struct Models {
    list: Arc<ModelList>,
    /// The model list without entries from untrusted files.
    own: Arc<ModelList>,
    /// The variables of the program, the environment and files, in this order of precedence.
    variables: Variables,
    /// True if providers are asked to stream their replies.
    streams: bool,
    /// The store for detected tool modes, if the program has one.
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
///
/// # Contract
/// - [`get`](Self::get) returns the mode that was last set for the same text, or `None`.
/// - Both methods return quickly. They are called while a model is created and during its calls.
/// - A failure of the store is not an error: the layer detects the mode again.
///
/// ```
/// use levity_llm::layers::ToolMode;
/// use levity_llm::{Models, ToolModes};
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
///
/// #[derive(Default)]
/// struct InMemory(Mutex<HashMap<String, ToolMode>>);
///
/// impl ToolModes for InMemory {
///     fn get(&self, server: &str) -> Option<ToolMode> {
///         self.0.lock().unwrap().get(server).copied()
///     }
///     fn set(&self, server: &str, mode: ToolMode) {
///         self.0.lock().unwrap().insert(server.to_owned(), mode);
///     }
/// }
///
/// let modes = Arc::new(InMemory::default());
/// let models = Models::new().with_tool_modes(modes.clone());
/// let name = "compatible:gemma3@http://127.0.0.1:8080/v1";
/// let (_, server) = models.bare_model(name)?;
/// modes.set(&server, ToolMode::Text);
/// let model = models.model(name)?; // starts in the text mode
/// assert!(model.card().capabilities.tools);
/// # Ok::<(), levity_llm::Error>(())
/// ```
pub trait ToolModes: Send + Sync {
    /// Returns the mode that was detected for a server, if it is still valid.
    ///
    /// A store may let entries expire, for example after an update of the server.
    fn get(&self, server: &str) -> Option<ToolMode>;

    /// Stores the mode of a server.
    ///
    /// The layer calls it once for each change, not for each reply.
    fn set(&self, server: &str, mode: ToolMode);
}

impl Default for Models {
    fn default() -> Self {
        Self::new()
    }
}

impl Models {
    /// Creates a factory with the built-in list and no keys.
    ///
    /// It reads neither the environment nor any file. Models that need no key work at once:
    ///
    /// ```
    /// let models = levity_llm::Models::new();
    /// assert!(models.model("compatible:qwen3@http://127.0.0.1:8080/v1").is_ok());
    /// let error = models.model("groq:openai/gpt-oss-120b").err().unwrap();
    /// assert_eq!(error.to_string(), "`groq` needs a key; set `GROQ_API_KEY`");
    /// ```
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
    /// Addresses that the `.env` file sets receive only keys from the same file. If the `.env` file
    /// names a list of models, the addresses in that list receive no keys; see
    /// [`with_env_file`](Self::with_env_file).
    ///
    /// An empty variable counts as not set. The environment of the process is never changed.
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
    /// another key fails with [`Error::UntrustedAddress`]. A link to a file outside the folder
    /// fails with [`Error::ExternalLink`].
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
    ///
    /// Variables that the program sets take precedence over the environment and over files. An
    /// empty value is ignored.
    ///
    /// ```
    /// use levity_llm::Models;
    ///
    /// let models = Models::new().with_variable("GROQ_API_KEY", "gsk-123");
    /// assert_eq!(models.model("groq:openai/gpt-oss-120b")?.card().provider, "groq");
    /// assert!(!format!("{models:?}").contains("gsk-123"));
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.variables.set(name, value);
        self
    }

    /// Adds entries to the model list, replacing those that exist in both.
    ///
    /// The program vouches for the list: its addresses receive keys from the environment, and its
    /// prices count for budgets.
    ///
    /// ```
    /// use levity_llm::{ModelList, Models};
    ///
    /// let list = ModelList::parse(
    ///     r#"{
    ///         "servers": {"house": {"base_url": "http://127.0.0.1:8080/v1"}},
    ///         "profiles": {"fast": {"model": "house:small", "fallback": ["house:large"]}}
    ///     }"#,
    /// )?;
    /// let model = Models::new().with_list(list).model("fast")?;
    /// assert_eq!(model.card().id, "small");
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
    #[must_use]
    pub fn with_list(mut self, list: ModelList) -> Self {
        self.own = Arc::new(ModelList::clone(&self.own).with(list.clone()));
        self.with_untrusted_list(list)
    }

    /// Adds a list whose entries are marked as untrusted; the user's own list stays as it is.
    fn with_untrusted_list(mut self, list: ModelList) -> Self {
        self.list = Arc::new(ModelList::clone(&self.list).with(list));
        self
    }

    /// Requests replies from providers without streaming.
    ///
    /// Use it for servers and proxies that break streams. A reply then arrives as one piece.
    #[must_use]
    pub fn without_streaming(mut self) -> Self {
        self.streams = false;
        self
    }

    /// Starts with the modes that `modes` has stored for servers, and stores newly detected ones in
    /// it; see [`AdaptTools`](crate::layers::AdaptTools).
    ///
    /// Only models of Ollama and of Chat Completions servers use the store.
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
    ///
    /// It contains the built-in entries and all that were added:
    ///
    /// ```
    /// let models = levity_llm::Models::new();
    /// assert!(models.list().names().any(|name| name == "gemini:gemini-3.8-flash"));
    /// ```
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
    /// ```
    /// let models = levity_llm::Models::new();
    /// let (model, server) = models.bare_model("compatible:qwen3@http://127.0.0.1:8080/v1")?;
    /// assert_eq!(model.card().id, "qwen3");
    /// assert_eq!(server, "compatible:qwen3@http://127.0.0.1:8080/v1");
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
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
    /// ```
    /// use levity_llm::{ErrorKind, Models};
    ///
    /// let models = Models::new().with_variable("COMPATIBLE_API_KEY", "sk-123");
    /// let name = "compatible:qwen3@https://elsewhere.example/v1";
    /// assert!(models.model(name).is_ok()); // the program chose the address
    /// let error = models.model_named_in("agents/helper.toml", name).err().unwrap();
    /// assert_eq!(error.kind(), ErrorKind::Untrusted);
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
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
    ///
    /// ```
    /// let models = levity_llm::Models::new();
    /// let name = "compatible:qwen3@https://elsewhere.example/v1";
    /// let remark = models.address_named_in("helper.toml", name).unwrap();
    /// assert_eq!(remark, "at `https://elsewhere.example/v1`, set by `helper.toml`");
    /// assert_eq!(models.address_named_in("helper.toml", "ollama:qwen3"), None);
    /// ```
    pub fn address_named_in(&self, file: impl AsRef<Path>, name: &str) -> Option<String> {
        self.remark(name, Some(&Arc::new(UntrustedFile::file(file.as_ref()))))
    }

    /// Returns the card of the model with this name, without creating the model.
    ///
    /// No key is needed, and the provider need not be compiled in. The card of a model that the
    /// list does not contain has no window and no price.
    ///
    /// ```
    /// let models = levity_llm::Models::new();
    /// assert!(models.card("anthropic:claude-sonnet-5-5")?.price.is_some());
    /// assert!(models.card("anthropic:unheard-of")?.price.is_none());
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
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
    ///
    /// `depth` counts the profiles on the way, against cycles. The size of the whole expansion is
    /// checked once, at the outermost name, before anything is created.
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
///
/// `anthropic:qwen@http://127.0.0.1:8080` has the provider `anthropic`, the id `qwen` and an
/// address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name<'a> {
    provider: &'a str,
    id: &'a str,
    base_url: Option<&'a str>,
    /// The untrusted file that contains the name, if any.
    untrusted: Option<Arc<UntrustedFile>>,
}

impl<'a> Name<'a> {
    /// The id may contain colons and slashes: `ollama:qwen3:4b`, `groq:openai/gpt-oss-120b`. Errors
    /// never show the secret parts of an address.
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
    ///
    /// Empty and dotted steps are skipped, as a server would skip them, so that `./projects/x`
    /// cannot hide a project.
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
///
/// The address appears without user, password and query, because the text is stored.
fn server_of(name: &Name<'_>, base_url: Option<&str>) -> String {
    format!(
        "{}:{}@{}",
        name.provider,
        name.id,
        bare_url(base_url.unwrap_or_default())
    )
}

/// Returns `true` if a text is an unambiguous address of a web server.
///
/// Spaces, control characters and backslashes are rejected, because programs disagree on the host
/// of such an address. An address that [`bare_url`] cannot split is rejected too.
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
///
/// ```
/// use levity_llm::Models;
///
/// let models = Models::new().with_variable("GROQ_API_KEY", "gsk-123");
/// let chosen = models.choose()?;
/// assert_eq!(chosen.to_string(), "groq:openai/gpt-oss-120b, since `GROQ_API_KEY` is set");
/// assert_eq!(chosen.address_from_file(), None); // no file had a part in it
/// # Ok::<(), levity_llm::Error>(())
/// ```
#[derive(Clone)]
pub struct ChosenModel {
    model: Arc<dyn Model>,
    name: String,
    reason: String,
    remark: Option<String>,
}

impl ChosenModel {
    /// Returns the model's name, in the format of [`model`].
    ///
    /// The name may contain an address with secrets, if `LEVITY_MODEL` does. `Display` and `Debug`
    /// leave those out.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the reason for the choice.
    ///
    /// It names the variable, the file that sets it if there is one, and the providers that are
    /// available as well.
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
