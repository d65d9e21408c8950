//! Which model the environment offers.

use std::sync::Arc;

use super::build::feature;
use super::list::Api;
use super::place::{Foreign, foreign};
use super::variables::Found;
use super::{Chosen, Models, Name};
use crate::Error;

/// What one thing that is set offers.
struct Offer {
    provider: String,
    why: String,
}

impl Models {
    /// The model that the variables offer: what `LEVITY_MODEL` names, or else the first provider
    /// whose key is set.
    ///
    /// # Errors
    /// When there is none; the error names the variables to set.
    ///
    /// ```
    /// # use levity_llm::Models;
    /// let models = Models::new().with_variable("LEVITY_MODEL", "compatible:qwen3@http://127.0.0.1:8080/v1");
    /// assert_eq!(models.choose()?.why(), "`LEVITY_MODEL` names it");
    /// assert!(Models::new().choose().is_err());
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
    pub fn choose(&self) -> Result<Chosen, Error> {
        if let Some((name, origin)) = self.variables.get("LEVITY_MODEL") {
            let (name, foreign) = (name.expose().to_owned(), foreign("LEVITY_MODEL", origin));
            let model = self.resolve(name.trim(), foreign.as_ref(), 0)?;
            let place = origin
                .file()
                .map_or_else(String::new, |_| format!(" {origin}"));
            let why = format!("`LEVITY_MODEL`{place} names it");
            let remark = self.remark_chosen(&name, foreign.as_ref());
            return Ok(Chosen {
                model,
                name,
                why: with_remark(why, remark.as_ref()),
                remark,
            });
        }
        let mut offers = self.offers().into_iter();
        let mut away = None;
        for offer in offers.by_ref() {
            let (id, foreign) = self.default_of(&offer.provider);
            let name = format!("{}:{id}", offer.provider);
            match self.resolve(&name, foreign.as_ref(), 0) {
                Ok(model) => {
                    let others: Vec<_> = offers.map(|offer| offer.provider).collect();
                    let remark = self.remark_chosen(&name, foreign.as_ref());
                    let why = reason(with_remark(offer.why, remark.as_ref()), &others);
                    return Ok(Chosen {
                        model,
                        name,
                        why,
                        remark,
                    });
                }
                // Another provider in its place would hide what a file does.
                Err(error) if foreign.is_some() || self.fails_by_file(&name, &error) => {
                    return Err(error);
                }
                Err(error) => away = away.or(Some(error)),
            }
        }
        Err(away.unwrap_or_else(|| Error::Nothing {
            variables: self.wanted(|api| feature(api).1),
        }))
    }

    /// Says where the model of this name is and whose key it is asked with, as far as a file
    /// decides that: a `.env`, or a list that it names. `None` if both are your own word. For a
    /// profile, it says so of each model behind it.
    ///
    /// Show it to whoever starts the program: whoever owns the address, the project or the account
    /// may see the conversation.
    ///
    /// ```
    /// # use levity_llm::Models;
    /// # let folder = tempfile::tempdir()?;
    /// # let file = folder.path().join(".env");
    /// std::fs::write(&file, "OLLAMA_HOST=http://elsewhere.example:11434")?;
    /// let models = Models::new().with_env_file(&file)?;
    /// assert!(models.address_from_file("ollama:qwen3").unwrap().starts_with("at `http://elsewhere.example:11434`"));
    /// assert_eq!(models.address_from_file("ollama:qwen3@http://127.0.0.1:11434"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn address_from_file(&self, name: &str) -> Option<String> {
        self.remark(name, None)
    }

    pub(super) fn remark(&self, name: &str, foreign: Option<&Arc<Foreign>>) -> Option<String> {
        let mut remarks: Vec<String> = Vec::new();
        let mut see = |name: &str, foreign: Option<&Arc<Foreign>>| {
            let found = match self.list.profiles.contains_key(name) {
                true => foreign.map(|list| list.remark()).into_iter().collect(),
                false => self.place_remarks(name, foreign),
            };
            for remark in found {
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
        };
        // Names that lead to too many models lead to none.
        let _ = self.visit(name.trim(), foreign, &mut see);
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    /// Returns whether a file may be why there is no model of this name.
    fn fails_by_file(&self, name: &str, error: &Error) -> bool {
        let lacks = matches!(
            error,
            Error::Feature { .. } | Error::Missing { .. } | Error::Model(_)
        );
        let place = Name::parse(name).and_then(|name| Ok(self.place(&name)?.foreign.is_some()));
        let account = matches!(error, Error::Model(_)) && self.remark(name, None).is_some();
        !lacks || account || place.unwrap_or(true)
    }

    /// The same of a model that nobody named: a file may have chosen it.
    fn remark_chosen(&self, name: &str, foreign: Option<&Arc<Foreign>>) -> Option<String> {
        let choice = foreign.map(|foreign| foreign.remark_choice(name));
        let all: Vec<String> = choice
            .into_iter()
            .chain(self.remark(name, foreign))
            .collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What is set, in the order in which it is taken.
    fn offers(&self) -> Vec<Offer> {
        let mut offers = Vec::new();
        let mut offer = |provider: &str, found: Found<'_, '_>| {
            let place = found
                .origin
                .file()
                .map_or_else(String::new, |_| format!(" {}", found.origin));
            let why = format!("`{}` is set{place}", found.name);
            offers.push(Offer {
                provider: provider.to_owned(),
                why,
            });
        };
        for (provider, variables) in Self::KEYS {
            if let Some(found) = self.variables.first(variables) {
                offer(provider, found);
            }
        }
        for (provider, server) in &self.list.servers {
            let set = server
                .key
                .as_deref()
                .and_then(|key| self.variables.first(&[key]));
            if let (Some(found), true) = (set, server.default.is_some()) {
                offer(provider, found);
            }
        }
        offers
    }

    /// The model to take of a provider, and the file that says so unless it is the user's own word.
    fn default_of(&self, provider: &str) -> (&str, Option<Arc<Foreign>>) {
        let family = if provider == "vertex" {
            "gemini"
        } else {
            provider
        };
        let list = &self.list;
        if let Some(known) = list
            .defaults
            .get(provider)
            .or_else(|| list.defaults.get(family))
        {
            return (&known.id, known.foreign.clone());
        }
        match list.servers.get(provider) {
            Some(server) => (
                server.default.as_deref().unwrap_or_default(),
                server.foreign.clone(),
            ),
            None => ("", None),
        }
    }

    /// The variables to set, in words: one for each provider that is compiled in, and the features
    /// of the others. `has` says whether an API is compiled in.
    fn wanted(&self, has: impl Fn(Api) -> bool) -> String {
        let providers = [
            ("gemini", Api::Gemini, "`GEMINI_API_KEY`"),
            ("openai", Api::Responses, "`OPENAI_API_KEY`"),
            ("anthropic", Api::Messages, "`ANTHROPIC_API_KEY`"),
            ("vertex", Api::Vertex, "`GOOGLE_CLOUD_PROJECT`"),
            ("ollama", Api::Ollama, "`OLLAMA_HOST`"),
        ];
        let (built, missing): (Vec<_>, Vec<_>) =
            providers.into_iter().partition(|(_, api, _)| has(*api));
        let mut wanted: Vec<String> = built
            .iter()
            .map(|(name, _, variable)| format!("{variable} for {name}"))
            .collect();
        let servers = self
            .list
            .servers
            .iter()
            .filter(|(_, server)| server.default.is_some());
        let servers = servers.filter(|(_, server)| has(server.api));
        wanted.extend(
            servers.filter_map(|(name, server)| {
                Some(format!("`{}` for {name}", server.key.as_ref()?))
            }),
        );
        let missing = missing
            .iter()
            .map(|(_, api, _)| *api)
            .chain((!has(Api::Chat)).then_some(Api::Chat));
        let mut features: Vec<&str> = Vec::new();
        for name in missing.map(|api| feature(api).0) {
            if !features.contains(&name) {
                features.push(name);
            }
        }
        let features: Vec<_> = features
            .into_iter()
            .map(|feature| format!("`{feature}`"))
            .collect();
        match (wanted.is_empty(), features.is_empty()) {
            (_, true) => wanted.join(", "),
            (true, false) => format!(
                "a key after switching on one of levity's features {}: no provider is compiled in",
                features.join(", ")
            ),
            (false, false) => {
                format!(
                    "{} (not compiled in: levity's features {})",
                    wanted.join(", "),
                    features.join(", ")
                )
            }
        }
    }
}

fn with_remark(why: String, remark: Option<&String>) -> String {
    match remark {
        Some(remark) => format!("{why}, {remark}"),
        None => why,
    }
}

fn reason(why: String, others: &[String]) -> String {
    if others.is_empty() {
        return why;
    }
    format!(
        "{why} (there are also {}; `LEVITY_MODEL` chooses)",
        others.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_without_a_model_names_the_features_that_a_build_lacks() {
        let models = Models::new();
        let none = models.wanted(|_| false);
        let all = "features `gemini`, `openai`, `anthropic`, `ollama`, `compatible`: no provider \
            is compiled in";
        assert!(none.contains(all) && !none.contains("_API_KEY"), "{none}");
        let one = models.wanted(|api| matches!(api, Api::Messages));
        assert!(
            one.starts_with("`ANTHROPIC_API_KEY` for anthropic (not compiled in:"),
            "{one}"
        );
        assert!(
            one.contains("features `gemini`, `openai`, `ollama`, `compatible`)"),
            "{one}"
        );
        let every = models.wanted(|_| true);
        assert!(
            every.contains("`GROQ_API_KEY` for groq") && !every.contains("compiled in"),
            "{every}"
        );
    }
}
