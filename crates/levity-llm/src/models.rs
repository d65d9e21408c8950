//! Models by name.

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
mod place;
mod profile;
mod variables;

pub use embedders::embedder;
pub use list::ModelList;
use place::Foreign;
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
/// Any name may end with `@` and an address, which is where its server is then looked for. Keys are
/// looked for in the variables that are customary for each provider (`docs/models.md`), in the
/// environment and in a `.env` in the working directory. A file named in `LEVITY_MODELS` adds to
/// the list of models. An address from a `.env` only gets keys from that `.env`
/// (`docs/untrusted-folders.md`).
///
/// # Errors
/// When the name is none or unknown, its provider is not compiled in, its key is not set, or the
/// key may not go there.
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
/// What `LEVITY_MODEL` names comes first, then the first provider whose key is set. What was chosen
/// and why is in the [`Chosen`], which is a model itself.
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
    /// The list without what is from files that may be a stranger's.
    own: Arc<ModelList>,
    variables: Variables,
    streams: bool,
    modes: Option<KeptModes>,
}

/// Keeps what was learned of servers.
#[derive(Clone)]
struct KeptModes(Arc<dyn ToolModes>);

impl fmt::Debug for KeptModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolModes")
    }
}

/// Keeps the [`ToolMode`]s that were learned of servers, for the next program that uses them.
///
/// A server is told by a text such as `ollama:gemma3@http://127.0.0.1:11434`, without keys.
pub trait ToolModes: Send + Sync {
    /// The mode that was learned of a server, if that is still to be believed.
    fn get(&self, server: &str) -> Option<ToolMode>;

    /// Keeps the mode of a server.
    fn set(&self, server: &str, mode: ToolMode);
}

impl Default for Models {
    fn default() -> Self {
        Self::new()
    }
}

impl Models {
    /// The list that comes with levity, and no keys.
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

    /// What the environment, a `.env` in the working directory and a file named in `LEVITY_MODELS`
    /// say.
    ///
    /// Addresses that the `.env` sets only get keys from the same `.env`, and addresses in a list
    /// that it names get none; see [`with_env_file`](Self::with_env_file).
    ///
    /// # Errors
    /// When one of the files is there and cannot be read, or is wrong.
    pub fn from_env() -> Result<Self, Error> {
        let mut models = Self::new();
        models.variables = Variables::from_env();
        models.with_env_file(".env")
    }

    /// Adds the variables of a file in the form of a `.env`, where there is one, and the list that
    /// its `LEVITY_MODELS` names. What the environment or the program sets counts before it.
    ///
    /// The file may be a stranger's: an address that it names only gets keys that stand in the same
    /// file. A list is another file, so that its addresses get no key. A model that would need
    /// another key is refused, with [`Error::ForeignAddress`]. A link to a file outside of the
    /// folder is refused, with [`Error::Link`].
    ///
    /// ```
    /// # use levity_llm::Models;
    /// # let folder = tempfile::tempdir()?;
    /// let file = folder.path().join(".env");
    /// std::fs::write(&file, "OPENAI_BASE_URL=https://elsewhere.example/v1")?;
    /// let models = Models::new().with_variable("OPENAI_API_KEY", "sk-123").with_env_file(&file)?;
    /// # #[cfg(feature = "openai")]
    /// assert!(models.model("openai:gpt-6.1-terra").err().unwrap().to_string().contains("is not sent"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When one of the files is there and cannot be read, or is wrong.
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

    /// Adds to the list of models, and replaces what is in both.
    #[must_use]
    pub fn with_list(mut self, list: ModelList) -> Self {
        self.own = Arc::new(ModelList::clone(&self.own).with(list.clone()));
        self.with_foreign_list(list)
    }

    fn with_foreign_list(mut self, list: ModelList) -> Self {
        self.list = Arc::new(ModelList::clone(&self.list).with(list));
        self
    }

    /// Asks models of providers for replies in one piece.
    #[must_use]
    pub fn without_streaming(mut self) -> Self {
        self.streams = false;
        self
    }

    /// Begins with what `modes` knows of servers, and has it keep what is learned; see
    /// [`AdaptTools`](crate::layers::AdaptTools).
    #[must_use]
    pub fn with_tool_modes(mut self, modes: Arc<dyn ToolModes>) -> Self {
        self.modes = Some(KeptModes(modes));
        self
    }

    /// What finds the values of all variables that are named like secrets: those of the
    /// environment, the program and the `.env`. Logs and guards leave them out with it.
    ///
    /// ```
    /// # use levity_llm::Models;
    /// let models = Models::new().with_variable("HOUSE_API_KEY", "correct horse");
    /// assert_eq!(models.secrets().redact("say correct horse"), "say [secret: known]");
    /// ```
    pub fn secrets(&self) -> levity_core::Secrets {
        self.variables.secrets()
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
        self.resolve(name.trim(), None, 0)
    }

    /// The model of this name without any layer, to [check](crate::check_tools) what its server
    /// does, and the text by which [`ToolModes`] tell the server. For a profile, this is its first
    /// model.
    ///
    /// # Errors
    /// As for [`model`].
    pub fn bare_model(&self, name: &str) -> Result<(Arc<dyn Model>, String), Error> {
        let (name, foreign) = self.first_model(name.trim())?;
        let parsed = Name::parse(name).map_err(|error| self.not_a_model(name, error))?;
        let parsed = Name {
            foreign: foreign.cloned(),
            ..parsed
        };
        let place = self.place(&parsed)?;
        Ok((
            self.build(&parsed)?.0,
            server_of(&parsed, place.base_url.as_deref()),
        ))
    }

    /// The model of a name that a file says, such as the config of an agent. The file may be a
    /// stranger's: an address in the name gets no key.
    ///
    /// # Errors
    /// As for [`model`], and [`Error::ForeignAddress`] when a key would go to an address in the
    /// name.
    pub fn model_named_in(
        &self,
        file: impl AsRef<Path>,
        name: &str,
    ) -> Result<Arc<dyn Model>, Error> {
        self.resolve(
            name.trim(),
            Some(&Arc::new(Foreign::file(file.as_ref()))),
            0,
        )
    }

    /// Says where the model of a name is that a file says, if a file decides that; as
    /// [`address_from_file`](Self::address_from_file), for
    /// [`model_named_in`](Self::model_named_in).
    pub fn address_named_in(&self, file: impl AsRef<Path>, name: &str) -> Option<String> {
        self.remark(name, Some(&Arc::new(Foreign::file(file.as_ref()))))
    }

    /// What is known of the model of this name, without making it.
    ///
    /// # Errors
    /// When the name is none, or there is no such provider.
    pub fn card(&self, name: &str) -> Result<ModelCard, Error> {
        let name =
            Name::parse(name.trim()).map_err(|error| self.not_a_model(name.trim(), error))?;
        self.known(name.provider)?;
        Ok(self.list.card(name.provider, name.id))
    }

    /// `foreign` is the file that says the name, unless it is the user's own word.
    fn resolve(
        &self,
        name: &str,
        foreign: Option<&Arc<Foreign>>,
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
                    foreign: foreign.cloned(),
                    ..parsed
                })
            }
        }
    }

    /// A name without a colon may be meant as a profile, or as a model of the list.
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
            return Error::Name {
                name: bare_model_name(name),
                near,
            };
        }
        let meant = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        let known = format!(
            "{meant}there are {}, and models are written `provider:model`",
            known.join(", ")
        );
        Error::UnknownProfile {
            profile: bare_model_name(name),
            known,
        }
    }
}

/// A model's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name<'a> {
    provider: &'a str,
    id: &'a str,
    base_url: Option<&'a str>,
    /// The file that says the name, unless it is the user's own word.
    foreign: Option<Arc<Foreign>>,
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Result<Self, Error> {
        let wrong = || Error::Name {
            name: bare_model_name(name),
            near: None,
        };
        let (model, base_url) = match split_model_address(name) {
            Some((model, base_url)) => (model, Some(base_url)),
            None => (name, None),
        };
        let (provider, id) = model.split_once(':').ok_or_else(wrong)?;
        // An id of which a part must not be shown is an address, and none that can be reached.
        let is_id = !model.contains(char::is_whitespace) && bare_model_name(model) == model;
        if provider.is_empty() || id.is_empty() || !is_id {
            return Err(wrong());
        }
        if let Some(address) = base_url.filter(|address| !is_web_address(address)) {
            return Err(Error::Address {
                model: model.to_owned(),
                address: bare_url(address),
            });
        }
        Ok(Self {
            provider,
            id,
            base_url,
            foreign: None,
        })
    }

    /// The project of Google Cloud that the id begins with, if it does: `projects/mine`.
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

/// The text by which a server and its model are told.
fn server_of(name: &Name<'_>, base_url: Option<&str>) -> String {
    format!(
        "{}:{}@{}",
        name.provider,
        name.id,
        bare_url(base_url.unwrap_or_default())
    )
}

/// Whether a text is an address of a web server that everybody reads in the same way.
fn is_web_address(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let web = ["http", "https"]
        .iter()
        .any(|name| scheme.eq_ignore_ascii_case(name));
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
    web && !rest.contains(odd) && bare_url(text) != format!("{scheme}://***")
}

/// A model that was chosen from what the environment offers; shown, it says which and why.
#[derive(Clone)]
pub struct Chosen {
    model: Arc<dyn Model>,
    name: String,
    why: String,
    remark: Option<String>,
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

    /// Which model it is, where it is and whose key it is asked with, as far as a file decides
    /// that; as [`Models::address_from_file`].
    pub fn address_from_file(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// The model itself.
    pub fn into_model(self) -> Arc<dyn Model> {
        self.model
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, since {}", bare_model_name(&self.name), self.why)
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen")
            .field("name", &bare_model_name(&self.name))
            .field("why", &self.why)
            .finish_non_exhaustive()
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

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.model.cost_bound(request)
    }
}
