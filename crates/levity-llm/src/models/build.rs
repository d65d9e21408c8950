//! How a name becomes a model.

#[cfg(feature = "gemini")]
use std::path::Path;
use std::sync::Arc;

use levity_core::text::nearest;
use levity_core::{Model, ModelCard};

use super::list::Api;
use super::place::Place;
#[cfg(feature = "gemini")]
use super::variables::Found;
use super::{KeptModes, Models, Name, server_of};
use crate::layers::AdaptTools;
use crate::{Endpoint, Error, Secret};

impl Models {
    /// What shows that a provider can be used, in the order in which providers are chosen.
    pub(super) const KEYS: [(&'static str, &'static [&'static str]); 5] = [
        ("gemini", &["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
        ("openai", &["OPENAI_API_KEY"]),
        ("anthropic", &["ANTHROPIC_API_KEY"]),
        ("vertex", &["GOOGLE_CLOUD_PROJECT"]),
        ("ollama", &["OLLAMA_HOST"]),
    ];

    /// All providers, beside the servers of the list.
    pub(super) const PROVIDERS: [&'static str; 7] = [
        "gemini",
        "vertex",
        "openai",
        "openai-chat",
        "anthropic",
        "ollama",
        "compatible",
    ];

    /// The variables that may hold a provider's key.
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

    /// # Errors
    /// When there is no such provider.
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
            near,
        })
    }

    /// A model that finds out how tools reach it, where servers differ in that.
    pub(super) fn adapted(&self, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        let (model, place) = self.build(name)?;
        if !matches!(place.api, Api::Chat | Api::Ollama) {
            return Ok(model);
        }
        let mut model = AdaptTools::new(model);
        if place.api == Api::Ollama {
            // It counts only what is not in its cache, and says by itself which models take no
            // tools.
            model = model.ignore_counts();
        }
        if let Some(KeptModes(modes)) = self.modes.clone() {
            let server = server_of(name, place.base_url.as_deref());
            if let Some(mode) = modes.get(&server) {
                model = model.with_mode(mode);
            }
            model = model.on_learned(move |mode| modes.set(&server, mode));
        }
        Ok(Arc::new(model))
    }

    pub(super) fn build<'a>(
        &'a self,
        name: &'a Name<'a>,
    ) -> Result<(Arc<dyn Model>, Place<'a>), Error> {
        self.build_where(name, is_built)
    }

    /// The same; `has` fails for an API that is not compiled in.
    fn build_where<'a>(
        &'a self,
        name: &'a Name<'a>,
        has: impl Fn(Api, &str) -> Result<(), Error>,
    ) -> Result<(Arc<dyn Model>, Place<'a>), Error> {
        let place = self.place(name)?;
        has(place.api, name.provider)?;
        place.has_address(name)?;
        let key = match place.api {
            // Its tokens run out.
            Api::Vertex => None,
            _ => self.key(name, &place)?,
        };
        Ok((self.at(&place, name, key)?, place))
    }
}

/// What else a provider is called.
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

/// The feature that a model behind this API needs, and whether it is on.
pub(super) fn feature(api: Api) -> (&'static str, bool) {
    match api {
        Api::Chat => ("compatible", cfg!(feature = "compatible")),
        Api::Responses | Api::OpenAiChat => ("openai", cfg!(feature = "openai")),
        Api::Messages => ("anthropic", cfg!(feature = "anthropic")),
        Api::Gemini | Api::Vertex => ("gemini", cfg!(feature = "gemini")),
        Api::Ollama => ("ollama", cfg!(feature = "ollama")),
    }
}

/// # Errors
/// When the program was built without what this API needs.
pub(super) fn is_built(api: Api, provider: &str) -> Result<(), Error> {
    match feature(api) {
        (_, true) => Ok(()),
        (feature, false) => Err(Error::Feature {
            provider: provider.to_owned(),
            feature,
        }),
    }
}

/// A model, streaming or not.
#[cfg(any(
    feature = "openai",
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "compatible"
))]
macro_rules! made {
    ($models:expr, $place:expr, $name:expr, $model:expr) => {{
        let model = $model;
        let mut card = levity_core::Model::card(&model).clone();
        card.provider = $name.provider.to_owned();
        let model = model.with_card($models.facts(card, $place.foreign.is_some()));
        Arc::new(if $models.streams {
            model
        } else {
            model.without_streaming()
        })
    }};
}

/// What stands in for a key that a server does not want.
#[cfg(any(
    feature = "openai",
    feature = "compatible",
    feature = "anthropic",
    feature = "gemini"
))]
pub(super) fn or_none(key: Option<Secret>) -> Secret {
    key.unwrap_or_else(|| Secret::new("none"))
}

impl Models {
    /// A card with what the lists say of its model. A list that a file names does not say what is
    /// paid with the user's own key: limits on money go by it.
    #[allow(dead_code, reason = "only providers use it")]
    fn facts(&self, card: ModelCard, foreign: bool) -> ModelCard {
        let own = self.own.complete(card.clone());
        let mut card = self.list.complete(card);
        if !foreign {
            card.price = own.price;
        }
        card
    }

    /// A model behind this API.
    #[allow(unused_variables, reason = "which are used depends on the features")]
    fn at(
        &self,
        place: &Place<'_>,
        name: &Name<'_>,
        key: Option<Secret>,
    ) -> Result<Arc<dyn Model>, Error> {
        let base_url = place.base_url.as_deref();
        let there = moved(base_url);
        match place.api {
            #[cfg(feature = "compatible")]
            Api::Chat => {
                let model =
                    crate::ChatModel::compatible(versioned(base_url.unwrap_or_default()), name.id);
                let model = key.map_or_else(|| model.clone(), |key| model.clone().with_key(key));
                Ok(made!(self, place, name, model))
            }
            #[cfg(feature = "openai")]
            Api::Responses => {
                // Others speak the same, and have not all that OpenAI has.
                let model = match name.provider {
                    "openai" => crate::OpenAiModel::new(or_none(key), name.id),
                    _ => {
                        let model = crate::OpenAiModel::compatible("", name.id);
                        key.map_or_else(|| model.clone(), |key| model.clone().with_key(key))
                    }
                };
                let base_url = base_url.map(versioned);
                Ok(made!(
                    self,
                    place,
                    name,
                    model.with_endpoint(moved(base_url.as_deref()))
                ))
            }
            #[cfg(feature = "openai")]
            Api::OpenAiChat => {
                let base_url = base_url.map(versioned);
                let model = crate::ChatModel::openai(or_none(key), name.id);
                Ok(made!(
                    self,
                    place,
                    name,
                    model.with_endpoint(moved(base_url.as_deref()))
                ))
            }
            #[cfg(feature = "anthropic")]
            Api::Messages => {
                let model = crate::AnthropicModel::new(or_none(key), name.id);
                Ok(made!(self, place, name, model.with_endpoint(there)))
            }
            #[cfg(feature = "gemini")]
            Api::Gemini => {
                let model = crate::GeminiModel::new(or_none(key), name.id);
                Ok(made!(self, place, name, model.with_endpoint(there)))
            }
            #[cfg(feature = "gemini")]
            Api::Vertex => self.vertex(place, name),
            #[cfg(feature = "ollama")]
            Api::Ollama => {
                let model = crate::OllamaModel::new(name.id);
                let model = key.map_or_else(|| model.clone(), |key| model.clone().with_key(key));
                Ok(made!(self, place, name, model.with_endpoint(there)))
            }
            #[allow(
                unreachable_patterns,
                reason = "with all features there is nothing to refuse"
            )]
            api => Err(Error::Feature {
                provider: name.provider.to_owned(),
                feature: feature(api).0,
            }),
        }
    }

    #[cfg(feature = "gemini")]
    fn vertex(&self, place: &Place<'_>, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        let project = self
            .variables
            .first(&["GOOGLE_CLOUD_PROJECT"])
            .ok_or_else(|| Error::Missing {
                provider: name.provider.to_owned(),
                what: "a project",
                variables: "`GOOGLE_CLOUD_PROJECT`".to_owned(),
            })?;
        let region = self
            .variables
            .first(&["GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"]);
        let region = region.map_or("global", |found| found.value.expose());
        let model = crate::GeminiModel::vertex(
            project.value.expose(),
            region,
            self.tokens(place, name)?,
            name.id,
        );
        let model = model.with_endpoint(moved(place.base_url.as_deref()));
        Ok(made!(self, place, name, model))
    }

    /// Where access tokens come from: a variable, or a file that a variable names, or gcloud's own
    /// file. A file that names the address has to hold the token itself: any other file that it
    /// names may be the user's.
    #[cfg(feature = "gemini")]
    fn tokens(&self, place: &Place<'_>, name: &Name<'_>) -> Result<crate::AccessTokens, Error> {
        const TOKEN: &str = "GOOGLE_ACCESS_TOKEN";
        const CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
        if let Some(foreign) = &place.foreign {
            let token = self.key_beside(foreign, &[TOKEN]);
            return match token {
                Some(token) => Ok(crate::AccessTokens::fixed(token.clone())),
                None => Err(place.refused_credentials(name, foreign)),
            };
        }
        let found = self.variables.first(&[TOKEN, CREDENTIALS]);
        // A project says who gets what is asked, as an address does.
        let project = self
            .variables
            .first(&["GOOGLE_CLOUD_PROJECT"])
            .filter(|_| name.project().is_none());
        if let Some(project) = project
            && let Some(file) = project.origin.file()
        {
            let beside = |found: &Found<'_, '_>| {
                let is_own =
                    found.name == TOKEN || is_in_folder_of(file, Path::new(found.value.expose()));
                found.origin.file() == Some(file) && is_own
            };
            if !found.as_ref().is_some_and(beside) {
                let foreign = super::place::Foreign::variable("GOOGLE_CLOUD_PROJECT", file);
                return Err(place.refused_project(project.value.expose(), &foreign));
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

/// Whether a path leads into the folder of a file: such a file may name any file of the user's, and
/// only those beside it are its own.
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

/// Moves an endpoint to another address, if there is one.
pub(super) fn moved(base_url: Option<&str>) -> impl FnOnce(Endpoint) -> Endpoint + '_ {
    move |endpoint| match base_url {
        Some(base_url) => endpoint.with_base(base_url),
        None => endpoint,
    }
}

/// An address without a path means the first version of the API there. What stands behind the path
/// stays behind it.
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(super) fn versioned(base_url: &str) -> String {
    let end = base_url.find(['?', '#']).unwrap_or(base_url.len());
    let (place, behind) = base_url.split_at(end);
    let place = place.trim_end_matches('/');
    let host = place.split_once("://").map_or(place, |(_, host)| host);
    if host.contains('/') {
        format!("{place}{behind}")
    } else {
        format!("{place}/v1{behind}")
    }
}

/// Ollama's own variable may hold a host alone, and the address that the server listens on.
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
    // A port is only customary where the server speaks plain HTTP.
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
    fn feature_that_a_build_lacks_is_named_before_a_missing_key_or_address() {
        let lacks = |api: Api, provider: &str| {
            Err(Error::Feature {
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
            let way = format!("`cargo add levity --features {feature}`");
            assert!(
                error.as_ref().is_some_and(|error| error.contains(&way)),
                "{name}: {error:?}"
            );
        }
    }

    #[cfg(feature = "compatible")]
    #[test]
    fn an_address_without_a_path_gets_a_version() {
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
    fn ollamas_own_variable_is_understood() {
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
