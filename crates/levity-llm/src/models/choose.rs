//! Chooses a model from the environment.
//!
//! `LEVITY_MODEL` wins. Otherwise the providers whose variable is set are tried in a fixed order,
//! and the first one that can be created is chosen. A provider that lacks a feature or a setting is
//! skipped; a failure that a file may have caused is returned, since skipping it would hide the
//! file's effect from the user.

use std::path::Path;
use std::sync::Arc;

use super::build::feature;
use super::list::Api;
use super::location::{UntrustedFile, untrusted_file};
use super::variables::Found;
use super::{ChosenModel, Models, Name};
use crate::Error;

/// A provider that a variable makes available.
struct Candidate {
    provider: String,
    reason: String,
}

impl Models {
    /// Chooses a model from the variables: the one that `LEVITY_MODEL` names, or the first provider
    /// whose key is set.
    ///
    /// The result is not fixed: it depends on the variables at the time of the call. Show
    /// [`ChosenModel::reason`] to the user, so that the choice is no surprise.
    ///
    /// # Errors
    /// Returns an error that names the variables to set if no model is configured.
    ///
    /// ```
    /// # use levity_llm::Models;
    /// let models = Models::new()
    ///     .with_variable("LEVITY_MODEL", "compatible:qwen3@http://127.0.0.1:8080/v1");
    /// assert_eq!(models.choose()?.reason(), "`LEVITY_MODEL` names it");
    /// assert!(Models::new().choose().is_err());
    /// # Ok::<(), levity_llm::Error>(())
    /// ```
    pub fn choose(&self) -> Result<ChosenModel, Error> {
        if let Some((name, origin)) = self.variables.get("LEVITY_MODEL") {
            let (name, untrusted) = (
                name.expose().to_owned(),
                untrusted_file("LEVITY_MODEL", origin),
            );
            let model = self.resolve(name.trim(), untrusted.as_ref(), 0)?;
            let location = origin
                .file()
                .map_or_else(String::new, |_| format!(" {origin}"));
            let reason = format!("`LEVITY_MODEL`{location} names it");
            let remark = self.remark_chosen(&name, untrusted.as_ref());
            return Ok(ChosenModel {
                model,
                name,
                reason: with_remark(reason, remark.as_ref()),
                remark,
            });
        }
        let mut candidates = self.candidates().into_iter();
        let mut first_error = None;
        for candidate in candidates.by_ref() {
            let (id, untrusted) = self.default_of(&candidate.provider);
            let name = format!("{}:{id}", candidate.provider);
            match self.resolve(&name, untrusted.as_ref(), 0) {
                Ok(model) => {
                    let others: Vec<_> = candidates.map(|candidate| candidate.provider).collect();
                    let remark = self.remark_chosen(&name, untrusted.as_ref());
                    let reason =
                        with_alternatives(with_remark(candidate.reason, remark.as_ref()), &others);
                    return Ok(ChosenModel {
                        model,
                        name,
                        reason,
                        remark,
                    });
                }
                // A silent switch to another provider would hide the effect of a file.
                Err(error) if untrusted.is_some() || self.may_fail_due_to_file(&name, &error) => {
                    return Err(error);
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| Error::NoModel {
            variables: self.variables_to_set(|api| feature(api).1),
        }))
    }

    /// Returns the file with Google credentials that `GOOGLE_APPLICATION_CREDENTIALS` names, in the
    /// environment or in a `.env` file.
    ///
    /// Deny tools access to this file: it holds a private key.
    ///
    /// ```
    /// # use std::path::Path;
    /// # use levity_llm::Models;
    /// let models = Models::new().with_variable("GOOGLE_APPLICATION_CREDENTIALS", "/keys/a.json");
    /// assert_eq!(models.credentials_file(), Some(Path::new("/keys/a.json")));
    /// ```
    pub fn credentials_file(&self) -> Option<&Path> {
        let (file, _) = self.variables.get("GOOGLE_APPLICATION_CREDENTIALS")?;
        Some(Path::new(file.expose()))
    }

    /// Describes the address and the key of the model with this name, as far as a file determines
    /// them. Such a file is a `.env` file, or a list that it names. Returns `None` if the user sets
    /// both. For a profile, the text covers each of its models.
    ///
    /// Show it to the user who starts the program: the owner of the address, the project or the
    /// account may see the conversation.
    ///
    /// ```
    /// # use levity_llm::Models;
    /// # let folder = tempfile::tempdir()?;
    /// # let file = folder.path().join(".env");
    /// std::fs::write(&file, "OLLAMA_HOST=http://elsewhere.example:11434")?;
    /// let models = Models::new().with_env_file(&file)?;
    /// assert!(
    ///     models
    ///         .address_from_file("ollama:qwen3")
    ///         .unwrap()
    ///         .starts_with("at `http://elsewhere.example:11434`")
    /// );
    /// assert_eq!(models.address_from_file("ollama:qwen3@http://127.0.0.1:11434"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn address_from_file(&self, name: &str) -> Option<String> {
        self.remark(name, None)
    }

    /// Each model of a profile contributes its remarks once, in the order of the chain.
    pub(super) fn remark(
        &self,
        name: &str,
        untrusted: Option<&Arc<UntrustedFile>>,
    ) -> Option<String> {
        let mut remarks: Vec<String> = Vec::new();
        let mut see = |name: &str, untrusted: Option<&Arc<UntrustedFile>>| {
            let found = match self.list.profiles.contains_key(name) {
                true => untrusted.map(|list| list.describe()).into_iter().collect(),
                false => self.describe_location(name, untrusted),
            };
            for remark in found {
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
        };
        // A name that refers to too many models cannot be used, so it needs no description.
        let _ = self.visit(name.trim(), untrusted, &mut see);
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    /// Returns `true` if a file may be the reason that this model is unavailable.
    ///
    /// A missing feature or setting is ordinary unless a file set the address. Any other error may
    /// be due to a file.
    fn may_fail_due_to_file(&self, name: &str, error: &Error) -> bool {
        let lacks = matches!(
            error,
            Error::MissingFeature { .. } | Error::MissingSetting { .. } | Error::Model(_)
        );
        let location =
            Name::parse(name).and_then(|name| Ok(self.location(&name)?.untrusted.is_some()));
        let account = matches!(error, Error::Model(_)) && self.remark(name, None).is_some();
        !lacks || account || location.unwrap_or(true)
    }

    /// Describes a model that was not named explicitly, because a file may have chosen it.
    fn remark_chosen(&self, name: &str, untrusted: Option<&Arc<UntrustedFile>>) -> Option<String> {
        let choice = untrusted.map(|untrusted| untrusted.describe_choice(name));
        let all: Vec<String> = choice
            .into_iter()
            .chain(self.remark(name, untrusted))
            .collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Returns the available providers in order of precedence.
    ///
    /// Built-in providers come first, then servers of the list that have a key and a default model.
    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let mut candidate = |provider: &str, found: Found<'_, '_>| {
            let location = found
                .origin
                .file()
                .map_or_else(String::new, |_| format!(" {}", found.origin));
            let reason = format!("`{}` is set{location}", found.name);
            candidates.push(Candidate {
                provider: provider.to_owned(),
                reason,
            });
        };
        for (provider, variables) in Self::KEYS {
            if let Some(found) = self.variables.first(variables) {
                candidate(provider, found);
            }
        }
        for (provider, server) in &self.list.servers {
            let set = server
                .key
                .as_deref()
                .and_then(|key| self.variables.first(&[key]));
            if let (Some(found), true) = (set, server.default.is_some()) {
                candidate(provider, found);
            }
        }
        candidates
    }

    /// Returns the default model of a provider and the untrusted file that sets it, if any.
    ///
    /// Vertex shares the default of Gemini.
    fn default_of(&self, provider: &str) -> (&str, Option<Arc<UntrustedFile>>) {
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
            return (&known.id, known.untrusted.clone());
        }
        match list.servers.get(provider) {
            Some(server) => (
                server.default.as_deref().unwrap_or_default(),
                server.untrusted.clone(),
            ),
            None => ("", None),
        }
    }

    /// Returns the variables to set as a phrase: one for each provider that is compiled in, plus
    /// the features of the others. `has` returns `true` if an API is compiled in.
    fn variables_to_set(&self, has: impl Fn(Api) -> bool) -> String {
        let providers = [
            ("gemini", Api::Gemini, "`GEMINI_API_KEY`"),
            ("openai", Api::Responses, "`OPENAI_API_KEY`"),
            ("anthropic", Api::Messages, "`ANTHROPIC_API_KEY`"),
            ("vertex", Api::Vertex, "`GOOGLE_CLOUD_PROJECT`"),
            ("ollama", Api::Ollama, "`OLLAMA_HOST`"),
        ];
        let (built, missing): (Vec<_>, Vec<_>) =
            providers.into_iter().partition(|(_, api, _)| has(*api));
        let mut variables_to_set: Vec<String> = built
            .iter()
            .map(|(name, _, variable)| format!("{variable} for {name}"))
            .collect();
        let servers = self
            .list
            .servers
            .iter()
            .filter(|(_, server)| server.default.is_some());
        let servers = servers.filter(|(_, server)| has(server.api));
        variables_to_set.extend(
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
        match (variables_to_set.is_empty(), features.is_empty()) {
            (_, true) => variables_to_set.join(", "),
            (true, false) => format!(
                "a key after enabling one of levity's features {}: no provider is compiled in",
                features.join(", ")
            ),
            (false, false) => {
                format!(
                    "{} (not compiled in: levity's features {})",
                    variables_to_set.join(", "),
                    features.join(", ")
                )
            }
        }
    }
}

/// Appends the remark about a file to the reason.
fn with_remark(reason: String, remark: Option<&String>) -> String {
    match remark {
        Some(remark) => format!("{reason}, {remark}"),
        None => reason,
    }
}

/// Appends the providers that were available as well, and the way to choose one of them.
fn with_alternatives(reason: String, others: &[String]) -> String {
    if others.is_empty() {
        return reason;
    }
    format!(
        "{reason} (also available: {}; set `LEVITY_MODEL` to choose)",
        others.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choose_without_model_names_missing_features() {
        let models = Models::new();
        let none = models.variables_to_set(|_| false);
        let all = "features `gemini`, `openai`, `anthropic`, `ollama`, `compatible`: no provider \
            is compiled in";
        assert!(none.contains(all) && !none.contains("_API_KEY"), "{none}");
        let one = models.variables_to_set(|api| matches!(api, Api::Messages));
        assert!(
            one.starts_with("`ANTHROPIC_API_KEY` for anthropic (not compiled in:"),
            "{one}"
        );
        assert!(
            one.contains("features `gemini`, `openai`, `ollama`, `compatible`)"),
            "{one}"
        );
        let every = models.variables_to_set(|_| true);
        assert!(
            every.contains("`GROQ_API_KEY` for groq") && !every.contains("compiled in"),
            "{every}"
        );
    }
}
