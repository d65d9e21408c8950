//! Which model the environment offers.

use super::{Chosen, Models};
use crate::Error;

/// What one thing that is set offers.
struct Offer {
    provider: String,
    why: String,
}

impl Models {
    /// The model that the variables offer: what `LEVITY_MODEL` names, or else the first provider whose key is set.
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
        if let Some(name) = self.variables.get("LEVITY_MODEL") {
            let name = name.expose().to_owned();
            let model = self.model(&name)?;
            return Ok(Chosen { model, name, why: "`LEVITY_MODEL` names it".to_owned() });
        }
        let mut offers = self.offers().into_iter();
        let mut away = None;
        for offer in offers.by_ref() {
            let name = format!("{}:{}", offer.provider, self.default_of(&offer.provider).unwrap_or_default());
            match self.model(&name) {
                Ok(model) => {
                    let others: Vec<_> = offers.map(|offer| offer.provider).collect();
                    return Ok(Chosen { model, name, why: reason(offer.why, &others) });
                }
                Err(error) => away = away.or(Some(error)),
            }
        }
        Err(away.unwrap_or_else(|| Error::Nothing { variables: self.wanted() }))
    }

    /// What is set, in the order in which it is taken.
    fn offers(&self) -> Vec<Offer> {
        let mut offers = Vec::new();
        let mut offer = |provider: &str, variable: &str| {
            let why = format!("`{variable}` is set");
            offers.push(Offer { provider: provider.to_owned(), why });
        };
        for (provider, variables) in Self::KEYS {
            if let Some((variable, _)) = self.variables.first(variables) {
                offer(provider, variable);
            }
        }
        for (provider, server) in &self.list.servers {
            let set = server.key.as_deref().filter(|key| self.variables.get(key).is_some());
            if let (Some(variable), true) = (set, server.default.is_some()) {
                offer(provider, variable);
            }
        }
        offers
    }

    fn default_of(&self, provider: &str) -> Option<&str> {
        let family = if provider == "vertex" { "gemini" } else { provider };
        let of_server = || self.list.servers.get(provider)?.default.as_ref();
        self.list
            .defaults
            .get(provider)
            .or_else(|| self.list.defaults.get(family))
            .or_else(of_server)
            .map(|id| &**id)
    }

    /// The variables to set, in words.
    fn wanted(&self) -> String {
        let known = Self::KEYS.iter().filter(|(provider, _)| Self::is_built(provider));
        let names: Vec<_> =
            known.filter_map(|(_, names)| names.first()).map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "a provider's feature and its key".to_owned() } else { names.join(" or ") }
    }
}

fn reason(why: String, others: &[String]) -> String {
    if others.is_empty() {
        return why;
    }
    format!("{why} (there are also {}; `LEVITY_MODEL` chooses)", others.join(", "))
}
