//! How a name becomes a model.

use std::sync::Arc;

use levity_core::Model;

use super::list::Api;
use super::{Models, Name};
use crate::{Endpoint, Error, Secret};

impl Models {
    /// Where providers' keys are customarily found, in the order in which providers are chosen.
    pub(super) const KEYS: [(&'static str, &'static [&'static str]); 5] = [
        ("gemini", &["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
        ("openai", &["OPENAI_API_KEY"]),
        ("anthropic", &["ANTHROPIC_API_KEY"]),
        ("vertex", &["GOOGLE_CLOUD_PROJECT"]),
        ("ollama", &["OLLAMA_HOST"]),
    ];

    /// All providers, beside the servers of the list.
    const PROVIDERS: [&'static str; 7] =
        ["gemini", "vertex", "openai", "openai-chat", "anthropic", "ollama", "compatible"];

    /// Whether the program was built with a provider.
    pub(super) fn is_built(provider: &str) -> bool {
        let built = [
            ("gemini", cfg!(feature = "gemini")),
            ("vertex", cfg!(feature = "gemini")),
            ("openai", cfg!(feature = "openai")),
            ("anthropic", cfg!(feature = "anthropic")),
            ("ollama", cfg!(feature = "ollama")),
        ];
        built.contains(&(provider, true))
    }

    /// # Errors
    /// When there is no such provider.
    pub(super) fn known(&self, provider: &str) -> Result<(), Error> {
        if Self::PROVIDERS.contains(&provider) || self.list.servers.contains_key(provider) {
            return Ok(());
        }
        let servers = self.list.servers.keys().map(String::as_str);
        let known: Vec<_> =
            Self::PROVIDERS.into_iter().chain(servers).map(|name| format!("`{name}`")).collect();
        Err(Error::UnknownProvider { provider: provider.to_owned(), known: known.join(", ") })
    }

    pub(super) fn build(&self, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        self.known(name.provider)?;
        match (name.provider, self.list.servers.get(name.provider)) {
            // A server of one's own may bear any name.
            (_, Some(server)) => {
                let base_url = name.base_url.unwrap_or(&server.base_url);
                // Servers at home have no keys.
                let key = match &server.key {
                    Some(variable) => self.key(name, &[variable])?,
                    None => None,
                };
                self.at(server.api, name, Some(base_url), key)
            }
            ("compatible", _) => {
                let key = self.variables.get("COMPATIBLE_API_KEY").cloned();
                self.at(Api::Chat, name, Some(address(name)?), key)
            }
            ("openai-chat", _) => self.openai_chat(name),
            ("openai", _) => self.provider(Api::Responses, name, "openai", "OPENAI_BASE_URL"),
            ("anthropic", _) => self.provider(Api::Messages, name, "anthropic", "ANTHROPIC_BASE_URL"),
            ("gemini", _) => self.provider(Api::Gemini, name, "gemini", "GEMINI_BASE_URL"),
            ("ollama", _) => self.ollama(name),
            _ => self.vertex(name),
        }
    }

    /// A provider whose key is in its customary variable, and its address in another.
    fn provider(&self, api: Api, name: &Name<'_>, keys: &str, base: &str) -> Result<Arc<dyn Model>, Error> {
        let keys =
            Self::KEYS.iter().find(|(provider, _)| *provider == keys).map_or(&[][..], |(_, keys)| keys);
        let key = self.key(name, keys)?;
        let base_url = name.base_url.or_else(|| self.variables.get(base).map(Secret::expose));
        self.at(api, name, base_url, key)
    }

    /// The key, or an error that says where it was looked for. A server whose address is in the name may
    /// want none.
    pub(super) fn key(&self, name: &Name<'_>, names: &[&str]) -> Result<Option<Secret>, Error> {
        match self.variables.first(names) {
            Some((_, key)) => Ok(Some(key.clone())),
            None if name.base_url.is_some() => Ok(None),
            None => Err(Error::Missing {
                provider: name.provider.to_owned(),
                what: "a key",
                variables: names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or "),
            }),
        }
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
    ($models:expr, $name:expr, $model:expr) => {{
        let model = $model;
        let mut card = levity_core::Model::card(&model).clone();
        card.provider = $name.provider.to_owned();
        let model = model.with_card($models.list.complete(card));
        Arc::new(if $models.streams { model } else { model.without_streaming() })
    }};
}

/// What stands in for a key that a server does not want.
#[cfg(any(feature = "openai", feature = "compatible", feature = "anthropic", feature = "gemini"))]
pub(super) fn or_none(key: Option<Secret>) -> Secret {
    key.unwrap_or_else(|| Secret::new("none"))
}

impl Models {
    /// A model behind this API.
    #[allow(unused_variables, reason = "which are used depends on the features")]
    fn at(
        &self,
        api: Api,
        name: &Name<'_>,
        base_url: Option<&str>,
        key: Option<Secret>,
    ) -> Result<Arc<dyn Model>, Error> {
        let there = moved(base_url);
        let feature = match api {
            #[cfg(feature = "compatible")]
            Api::Chat => {
                let model = crate::ChatModel::compatible(versioned(base_url.unwrap_or_default()), name.id);
                let model = key.map_or_else(|| model.clone(), |key| model.clone().with_key(key));
                return Ok(made!(self, name, model));
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
                return Ok(made!(self, name, model.with_endpoint(there)));
            }
            #[cfg(feature = "anthropic")]
            Api::Messages => {
                let model = crate::AnthropicModel::new(or_none(key), name.id);
                return Ok(made!(self, name, model.with_endpoint(there)));
            }
            #[cfg(feature = "gemini")]
            Api::Gemini => {
                let model = crate::GeminiModel::new(or_none(key), name.id);
                return Ok(made!(self, name, model.with_endpoint(there)));
            }
            #[cfg(feature = "ollama")]
            Api::Ollama => {
                let model = crate::OllamaModel::new(name.id);
                let model = key.map_or_else(|| model.clone(), |key| model.clone().with_key(key));
                return Ok(made!(self, name, model.with_endpoint(there)));
            }
            #[cfg(not(feature = "compatible"))]
            Api::Chat => "compatible",
            #[cfg(not(feature = "openai"))]
            Api::Responses => "openai",
            #[cfg(not(feature = "anthropic"))]
            Api::Messages => "anthropic",
            #[cfg(not(feature = "gemini"))]
            Api::Gemini => "gemini",
            #[cfg(not(feature = "ollama"))]
            Api::Ollama => "ollama",
        };
        #[allow(unreachable_code, reason = "with all features there is nothing to refuse")]
        Err(Error::Feature { provider: name.provider.to_owned(), feature })
    }

    #[cfg(feature = "openai")]
    fn openai_chat(&self, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        let key = or_none(self.key(name, &["OPENAI_API_KEY"])?);
        let base_url = name.base_url.or_else(|| self.variables.get("OPENAI_BASE_URL").map(Secret::expose));
        let model = crate::ChatModel::openai(key, name.id).with_endpoint(moved(base_url));
        Ok(made!(self, name, model))
    }

    #[cfg(not(feature = "openai"))]
    #[expect(clippy::unused_self, reason = "it is one of two")]
    fn openai_chat(&self, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        Err(Error::Feature { provider: name.provider.to_owned(), feature: "openai" })
    }

    fn ollama(&self, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        let host = self.variables.get("OLLAMA_HOST").map(|host| ollama_host(host.expose()));
        let key = self.variables.get("OLLAMA_API_KEY").cloned();
        self.at(Api::Ollama, name, name.base_url.or(host.as_deref()), key)
    }

    #[cfg(feature = "gemini")]
    fn vertex(&self, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        let (_, project) = self.variables.first(&["GOOGLE_CLOUD_PROJECT"]).ok_or_else(|| Error::Missing {
            provider: name.provider.to_owned(),
            what: "a project",
            variables: "`GOOGLE_CLOUD_PROJECT`".to_owned(),
        })?;
        let region = self.variables.first(&["GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"]);
        let region = region.map_or("global", |(_, region)| region.expose());
        let model = crate::GeminiModel::vertex(project.expose(), region, self.tokens()?, name.id);
        let model = model.with_endpoint(moved(name.base_url));
        Ok(made!(self, name, model))
    }

    /// Where access tokens come from: a variable, or a file that a variable names, or gcloud's own file.
    #[cfg(feature = "gemini")]
    fn tokens(&self) -> Result<crate::AccessTokens, Error> {
        if let Some(token) = self.variables.get("GOOGLE_ACCESS_TOKEN") {
            return Ok(crate::AccessTokens::fixed(token.clone()));
        }
        match self.variables.get("GOOGLE_APPLICATION_CREDENTIALS") {
            Some(path) => Ok(crate::AccessTokens::from_file(path.expose())?),
            None => Ok(crate::AccessTokens::from_env()?),
        }
    }

    #[cfg(not(feature = "gemini"))]
    #[expect(clippy::unused_self, reason = "it is one of two")]
    fn vertex(&self, name: &Name<'_>) -> Result<Arc<dyn Model>, Error> {
        Err(Error::Feature { provider: name.provider.to_owned(), feature: "gemini" })
    }
}

/// The address in the name of a server that has no other.
pub(super) fn address<'a>(name: &Name<'a>) -> Result<&'a str, Error> {
    name.base_url.ok_or_else(|| Error::Missing {
        provider: name.provider.to_owned(),
        what: "an address",
        variables: format!("it behind the name: `compatible:{}@http://127.0.0.1:8080/v1`", name.id),
    })
}

/// Moves an endpoint to another address, if there is one.
pub(super) fn moved(base_url: Option<&str>) -> impl FnOnce(Endpoint) -> Endpoint + '_ {
    move |endpoint| match base_url {
        Some(base_url) => endpoint.with_base(base_url),
        None => endpoint,
    }
}

/// An address without a path means the first version of the API there.
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(super) fn versioned(base_url: &str) -> String {
    let trimmed = base_url.trim_end_matches('/');
    let host = trimmed.split_once("://").map_or(trimmed, |(_, host)| host);
    if host.contains('/') { trimmed.to_owned() } else { format!("{trimmed}/v1") }
}

/// Ollama's own variable may hold a host alone, and the address that the server listens on.
pub(super) fn ollama_host(host: &str) -> String {
    let url = if host.contains("://") { host.to_owned() } else { format!("http://{host}") };
    let url = url.trim_end_matches('/').replace("://0.0.0.0", "://127.0.0.1");
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", &url));
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    // A port is only customary where the server speaks plain HTTP.
    if has_port || rest.contains('/') || scheme == "https" { url } else { format!("{url}:11434") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "compatible")]
    #[test]
    fn an_address_without_a_path_gets_a_version() {
        assert_eq!(versioned("http://127.0.0.1:8080"), "http://127.0.0.1:8080/v1");
        assert_eq!(versioned("http://127.0.0.1:8080/"), "http://127.0.0.1:8080/v1");
        assert_eq!(versioned("https://host/api/v3/"), "https://host/api/v3");
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
