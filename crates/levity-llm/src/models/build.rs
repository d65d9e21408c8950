//! Builds a model from its name.
//!
//! The module knows the built-in providers: their names, variables and features. It is the only
//! place that depends on which providers are compiled in. Names, locations and keys work without
//! them, so the error for a missing feature comes before any error about keys.

#[cfg(feature = "gemini")]
use std::path::Path;
use std::sync::Arc;

use levity_core::text::nearest;
use levity_core::{Model, ModelCard};

use super::list::Api;
use super::location::Location;
#[cfg(feature = "gemini")]
use super::variables::Found;
use super::{ModeStore, Models, Name, server_of};
use crate::layers::AdaptTools;
use crate::{Endpoint, Error, Secret};

impl Models {
    /// The variables that show that a provider is usable, in the order in which providers are
    /// chosen.
    pub(super) const KEYS: [(&'static str, &'static [&'static str]); 5] = [
        ("gemini", &["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
        ("openai", &["OPENAI_API_KEY"]),
        ("anthropic", &["ANTHROPIC_API_KEY"]),
        ("vertex", &["GOOGLE_CLOUD_PROJECT"]),
        ("ollama", &["OLLAMA_HOST"]),
    ];

    /// All built-in providers; the list may add servers.
    pub(super) const PROVIDERS: [&'static str; 7] = [
        "gemini",
        "vertex",
        "openai",
        "openai-chat",
        "anthropic",
        "ollama",
        "compatible",
    ];

    /// Returns the variables that may hold a provider's key.
    pub(super) fn keys_of(provider: &str) -> &'static [&'static str] {
        match provider {
            "gemini" => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            "openai" | "openai-chat" => &["OPENAI_API_KEY"],
            "anthropic" => &["ANTHROPIC_API_KEY"],
            "ollama" => &["OLLAMA_API_KEY"],
            "compatible" => &["COMPATIBLE_API_KEY"],
            _ => &[],
        }
    }

    /// Checks that a provider exists.
    ///
    /// # Errors
    /// Returns an error if there is no such provider.
    pub(super) fn known(&self, provider: &str) -> Result<(), Error> {
        if Self::PROVIDERS.contains(&provider) || self.list.servers.contains_key(provider) {
            return Ok(());
        }
        let servers = self.list.servers.keys().map(String::as_str);
        let all: Vec<&str> = Self::PROVIDERS.into_iter().chain(servers).collect();
        let near = alias(provider)
            .or_else(|| nearest(provider, all.iter().copied()))
            .map(str::to_owned);
        let known: Vec<_> = all.iter().map(|name| format!("`{name}`")).collect();
        Err(Error::UnknownProvider {
            provider: provider.to_owned(),
            known: known.join(", "),
            suggestion: near,
        })
    }

    /// Builds a model, with detection of the tool mode if servers of its API differ in that.
    ///
    /// OpenAI, Anthropic and Gemini support tools in one known way, so only servers of Chat
    /// Completions and Ollama are wrapped in [`AdaptTools`].
    pub(super) fn adapted(&self, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        let (model, location) = self.build(name)?;
        if !matches!(location.api, Api::Chat | Api::Ollama) {
            return Ok(model);
        }
        let mut model = AdaptTools::new(model);
        if location.api == Api::Ollama {
            // Ollama counts only tokens that are not in its cache, and reports which models do not
            // accept tools.
            model = model.ignore_token_counts();
        }
        if let Some(ModeStore(modes)) = self.modes.clone() {
            let server = server_of(name, location.base_url.as_deref());
            if let Some(mode) = modes.get(&server) {
                model = model.with_mode(mode);
            }
            model = model.on_mode_detected(move |mode| modes.set(&server, mode));
        }
        Ok(Arc::new(model))
    }

    /// Returns the bare model and its location.
    pub(super) fn build<'a>(
        &'a self,
        name: &'a Name<'a>,
    ) -> Result<(Arc<dyn Model>, Location<'a>), Error> {
        self.build_where(name, is_built)
    }

    /// Builds a model; `has` fails for an API that is not compiled in.
    ///
    /// The parameter `has` lets tests pretend that an API is missing.
    fn build_where<'a>(
        &'a self,
        name: &'a Name<'a>,
        has: impl Fn(Api, &str) -> Result<(), Error>,
    ) -> Result<(Arc<dyn Model>, Location<'a>), Error> {
        let location = self.location(name)?;
        has(location.api, name.provider)?;
        location.has_address(name)?;
        let key = match location.api {
            // Vertex uses access tokens, which expire.
            Api::Vertex => None,
            _ => self.key(name, &location)?,
        };
        Ok((self.create_model(&location, name, key)?, location))
    }
}

/// Returns the provider that another common name refers to.
///
/// The names are those of vendors, products and servers that users try first. They only produce a
/// suggestion.
fn alias(provider: &str) -> Option<&'static str> {
    match &*provider.to_lowercase() {
        "claude" => Some("anthropic"),
        "google" | "aistudio" | "google-ai" => Some("gemini"),
        "gpt" | "chatgpt" => Some("openai"),
        "vertexai" | "google-vertex" => Some("vertex"),
        "llama.cpp" | "llamacpp" | "vllm" | "lmstudio" | "local" => Some("compatible"),
        _ => None,
    }
}

/// Returns the feature that this API needs and `true` if it is enabled.
pub(super) fn feature(api: Api) -> (&'static str, bool) {
    match api {
        Api::Chat => ("compatible", cfg!(feature = "compatible")),
        Api::Responses | Api::OpenAiChat => ("openai", cfg!(feature = "openai")),
        Api::Messages => ("anthropic", cfg!(feature = "anthropic")),
        Api::Gemini | Api::Vertex => ("gemini", cfg!(feature = "gemini")),
        Api::Ollama => ("ollama", cfg!(feature = "ollama")),
    }
}

/// Checks that the program includes this API.
///
/// # Errors
/// Returns an error if the program was built without the feature.
pub(super) fn is_built(api: Api, provider: &str) -> Result<(), Error> {
    match feature(api) {
        (_, true) => Ok(()),
        (feature, false) => Err(Error::MissingFeature {
            provider: provider.to_owned(),
            feature,
        }),
    }
}

/// Finishes a model: sets its card and its streaming mode.
#[cfg(any(
    feature = "openai",
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "compatible"
))]
macro_rules! finish_model {
    ($models:expr, $location:expr, $name:expr, $model:expr) => {{
        let model = $model;
        let mut card = levity_core::Model::card(&model).clone();
        card.provider = $name.provider.to_owned();
        let model = model.with_card($models.with_list_facts(card, $location.untrusted.is_some()));
        Arc::new(if $models.streams {
            model
        } else {
            model.without_streaming()
        })
    }};
}

/// Returns a placeholder for the key of a server that needs none.
///
/// The constructors of these providers take a key in any case.
#[cfg(any(
    feature = "openai",
    feature = "compatible",
    feature = "anthropic",
    feature = "gemini"
))]
pub(super) fn or_placeholder(key: Option<Secret>) -> Secret {
    key.unwrap_or_else(|| Secret::new("none"))
}

impl Models {
    /// Completes a card with the facts of the model list. A list from an untrusted file does not
    /// set the price of calls with the user's own key, because cost limits depend on that price.
    ///
    /// Windows and capabilities of an untrusted list apply in any case.
    #[allow(dead_code, reason = "only providers use it")]
    fn with_list_facts(&self, card: ModelCard, untrusted: bool) -> ModelCard {
        let own = self.own.complete(card.clone());
        let mut card = self.list.complete(card);
        if !untrusted {
            card.price = own.price;
        }
        card
    }

    /// Creates a model that uses this API.
    ///
    /// Every arm ends in `finish_model!`, which completes the card. An API that is not compiled in
    /// reaches the last arm.
    #[allow(unused_variables, reason = "which are used depends on the features")]
    fn create_model(
        &self,
        location: &Location<'_>,
        name: &Name<'_>,
        key: Option<Secret>,
    ) -> Result<Arc<dyn Model>, Error> {
        let base_url = location.base_url.as_deref();
        let set_address = with_address(base_url);
        match location.api {
            #[cfg(feature = "compatible")]
            Api::Chat => {
                let model =
                    crate::ChatModel::compatible(versioned(base_url.unwrap_or_default()), name.id);
                let model = key.map_or_else(|| model.clone(), |key| model.clone().with_key(key));
                Ok(finish_model!(self, location, name, model))
            }
            #[cfg(feature = "openai")]
            Api::Responses => {
                // Other servers support the same API, but lack some features of OpenAI's.
                let model = match name.provider {
                    "openai" => crate::OpenAiModel::new(or_placeholder(key), name.id),
                    _ => {
                        let model = crate::OpenAiModel::compatible("", name.id);
                        key.map_or_else(|| model.clone(), |key| model.clone().with_key(key))
                    }
                };
                let base_url = base_url.map(versioned);
                Ok(finish_model!(
                    self,
                    location,
                    name,
                    model.with_endpoint(with_address(base_url.as_deref()))
                ))
            }
            #[cfg(feature = "openai")]
            Api::OpenAiChat => {
                let base_url = base_url.map(versioned);
                let model = crate::ChatModel::openai(or_placeholder(key), name.id);
                Ok(finish_model!(
                    self,
                    location,
                    name,
                    model.with_endpoint(with_address(base_url.as_deref()))
                ))
            }
            #[cfg(feature = "anthropic")]
            Api::Messages => {
                let model = crate::AnthropicModel::new(or_placeholder(key), name.id);
                Ok(finish_model!(
                    self,
                    location,
                    name,
                    model.with_endpoint(set_address)
                ))
            }
            #[cfg(feature = "gemini")]
            Api::Gemini => {
                let model = crate::GeminiModel::new(or_placeholder(key), name.id);
                Ok(finish_model!(
                    self,
                    location,
                    name,
                    model.with_endpoint(set_address)
                ))
            }
            #[cfg(feature = "gemini")]
            Api::Vertex => self.vertex(location, name),
            #[cfg(feature = "ollama")]
            Api::Ollama => {
                let model = crate::OllamaModel::new(name.id);
                let model = key.map_or_else(|| model.clone(), |key| model.clone().with_key(key));
                Ok(finish_model!(
                    self,
                    location,
                    name,
                    model.with_endpoint(set_address)
                ))
            }
            #[allow(
                unreachable_patterns,
                reason = "with all features there is nothing to refuse"
            )]
            api => Err(Error::MissingFeature {
                provider: name.provider.to_owned(),
                feature: feature(api).0,
            }),
        }
    }

    /// # Errors
    /// Returns [`Error::MissingSetting`] without a project, and the errors of the access tokens.
    #[cfg(feature = "gemini")]
    fn vertex(&self, location: &Location<'_>, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        let project = self
            .variables
            .first(&["GOOGLE_CLOUD_PROJECT"])
            .ok_or_else(|| Error::MissingSetting {
                provider: name.provider.to_owned(),
                setting: "a project",
                variables: "`GOOGLE_CLOUD_PROJECT`".to_owned(),
            })?;
        let region = self
            .variables
            .first(&["GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"]);
        let region = region.map_or("global", |found| found.value.expose());
        let model = crate::GeminiModel::vertex(
            project.value.expose(),
            region,
            self.tokens(location, name)?,
            name.id,
        );
        let model = model.with_endpoint(with_address(location.base_url.as_deref()));
        Ok(finish_model!(self, location, name, model))
    }

    /// Returns the source of access tokens: a variable, a file that a variable names, or gcloud's
    /// own file. A file that sets the address must contain the token itself, because any other file
    /// that it names may belong to the user.
    #[cfg(feature = "gemini")]
    fn tokens(
        &self,
        location: &Location<'_>,
        name: &Name<'_>,
    ) -> Result<crate::AccessTokens, Error> {
        const TOKEN: &str = "GOOGLE_ACCESS_TOKEN";
        const CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
        if let Some(untrusted) = &location.untrusted {
            let token = self.key_from_same_file(untrusted, &[TOKEN]);
            return match token {
                Some(token) => Ok(crate::AccessTokens::fixed(token.clone())),
                None => Err(location.refused_credentials(name, untrusted)),
            };
        }
        let found = self.variables.first(&[TOKEN, CREDENTIALS]);
        // A project determines who receives the request, just as an address does.
        let project = self
            .variables
            .first(&["GOOGLE_CLOUD_PROJECT"])
            .filter(|_| name.project().is_none());
        if let Some(project) = project
            && let Some(file) = project.origin.file()
        {
            let is_in_same_folder = |found: &Found<'_, '_>| {
                let is_own =
                    found.name == TOKEN || is_in_folder_of(file, Path::new(found.value.expose()));
                found.origin.file() == Some(file) && is_own
            };
            if !found.as_ref().is_some_and(is_in_same_folder) {
                let untrusted =
                    super::location::UntrustedFile::variable("GOOGLE_CLOUD_PROJECT", file);
                return Err(location.refused_project(project.value.expose(), &untrusted));
            }
        }
        match found {
            Some(found) if found.name == TOKEN => {
                Ok(crate::AccessTokens::fixed(found.value.clone()))
            }
            Some(found) => Ok(crate::AccessTokens::from_file(found.value.expose())?),
            None => Ok(crate::AccessTokens::from_env()?),
        }
    }
}

/// Returns `true` if a path leads into the folder of a file. An untrusted file may name any of the
/// user's files, but only those next to it belong to it.
#[cfg(feature = "gemini")]
fn is_in_folder_of(file: &Path, path: &Path) -> bool {
    let folder = file
        .canonicalize()
        .ok()
        .and_then(|file| Some(file.parent()?.to_owned()));
    folder
        .zip(path.canonicalize().ok())
        .is_some_and(|(folder, path)| path.starts_with(folder))
}

/// Changes the address of an endpoint, if one is given.
pub(super) fn with_address(base_url: Option<&str>) -> impl FnOnce(Endpoint) -> Endpoint + '_ {
    move |endpoint| match base_url {
        Some(base_url) => endpoint.with_base(base_url),
        None => endpoint,
    }
}

/// Adds the first API version to an address without a path. Text after the path stays there.
///
/// `http://host:8080` becomes `http://host:8080/v1`; `https://host/api` stays as it is.
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(super) fn versioned(base_url: &str) -> String {
    let end = base_url.find(['?', '#']).unwrap_or(base_url.len());
    let (location, behind) = base_url.split_at(end);
    let location = location.trim_end_matches('/');
    let host = location
        .split_once("://")
        .map_or(location, |(_, host)| host);
    if host.contains('/') {
        format!("{location}{behind}")
    } else {
        format!("{location}/v1{behind}")
    }
}

/// Converts `OLLAMA_HOST` to an address; it may be a bare host or the server's listening address.
///
/// `0.0.0.0` is the address on which a server listens and cannot be called everywhere, so it
/// becomes `127.0.0.1`. The default port is 11434: `box` becomes `http://box:11434`.
pub(super) fn ollama_host(host: &str) -> String {
    let url = if host.contains("://") {
        host.to_owned()
    } else {
        format!("http://{host}")
    };
    let url = url
        .trim_end_matches('/')
        .replace("://0.0.0.0", "://127.0.0.1");
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", &url));
    let has_port = rest
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    // The default port applies only to plain HTTP.
    if has_port || rest.contains('/') || scheme == "https" {
        url
    } else {
        format!("{url}:11434")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_feature_is_reported_before_missing_key_or_address() {
        let lacks = |api: Api, provider: &str| {
            Err(Error::MissingFeature {
                provider: provider.to_owned(),
                feature: feature(api).0,
            })
        };
        for (name, feature) in [
            ("openai:m", "openai"),
            ("openai-chat:m", "openai"),
            ("anthropic:m", "anthropic"),
            ("gemini:m", "gemini"),
            ("vertex:m", "gemini"),
            ("ollama:m", "ollama"),
            ("compatible:m", "compatible"),
            ("groq:m", "compatible"),
        ] {
            let parsed = Name::parse(name).unwrap_or_else(|error| panic!("{error}"));
            let error = Models::new()
                .build_where(&parsed, lacks)
                .err()
                .map(|error| error.to_string());
            let command = format!("`cargo add levity --features {feature}`");
            assert!(
                error.as_ref().is_some_and(|error| error.contains(&command)),
                "{name}: {error:?}"
            );
        }
    }

    #[cfg(feature = "compatible")]
    #[test]
    fn address_without_path_gets_version() {
        assert_eq!(
            versioned("http://127.0.0.1:8080"),
            "http://127.0.0.1:8080/v1"
        );
        assert_eq!(
            versioned("http://127.0.0.1:8080/"),
            "http://127.0.0.1:8080/v1"
        );
        assert_eq!(versioned("https://host/api/v3/"), "https://host/api/v3");
        assert_eq!(versioned("https://host?key=a/b"), "https://host/v1?key=a/b");
        assert_eq!(
            versioned("https://host/api/?key=1#x"),
            "https://host/api?key=1#x"
        );
    }

    #[test]
    fn ollama_host_accepts_host_and_listening_address() {
        for (host, expected) in [
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("127.0.0.1:11500", "http://127.0.0.1:11500"),
            ("http://box:11434/", "http://box:11434"),
            ("https://ollama.com", "https://ollama.com"),
        ] {
            assert_eq!(ollama_host(host), expected);
        }
    }
}
