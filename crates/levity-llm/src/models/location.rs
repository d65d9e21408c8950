//! The address of a model's server, the file that sets it, and the keys that may be sent there.
//!
//! The rule is simple: a key goes to an address only if both come from the user, or both from the
//! same file. The file that chooses an address, a Google Cloud project or the variable of a key is
//! recorded as an [`UntrustedFile`], and [`Models::key`] compares. Refusals name the file and the
//! way out, so that a user who trusts the file can confirm it.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use levity_core::text::{bare_model_name, bare_url};

use super::list::{Api, ModelList};
use super::variables::{Found, Origin};
use super::{Models, Name, is_web_address};
use crate::{Error, Secret};

/// A file that determines where requests go: a `.env` file, a list that it names, or an agent's
/// configuration.
///
/// Such a file may be part of a folder from a third party. Keys from the environment and the
/// program are never sent to addresses in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UntrustedFile {
    /// The file whose keys may be sent there: this one if it is a `.env` file. Other files have no
    /// keys.
    keys: Option<Arc<Path>>,
    /// A phrase that names the setting: `` `OPENAI_BASE_URL` in `.env` ``.
    description: String,
    /// A phrase that explains how the user can confirm the setting.
    remedy: String,
}

impl UntrustedFile {
    /// Describes a variable in a file.
    pub(super) fn variable(name: &str, file: &Arc<Path>) -> Self {
        Self {
            keys: Some(file.clone()),
            description: format!("`{name}` in `{}`", file.display()),
            remedy: format!("set `{name}` in the environment yourself if you trust that address"),
        }
    }

    /// Describes a model list that a `.env` file names or that is in the working directory.
    fn list(path: &str, origin: &Origin) -> Self {
        let description = match origin.file() {
            Some(file) => format!("the list `{path}`, which `{}` names", file.display()),
            None => format!("the list `{path}` in the working directory"),
        };
        let remedy = "name that list in `LEVITY_MODELS` yourself, in the environment and by its \
            absolute path, if you trust it";
        Self {
            keys: None,
            description,
            remedy: remedy.to_owned(),
        }
    }

    /// Returns the error for a Google Cloud account that does not come from this file.
    #[cfg(feature = "gemini")]
    fn refused_account(&self, address: String, more: &str) -> Error {
        let alternative = self.keys.as_ref().map(|file| {
            format!(
                ", or put a token into `{}` as `GOOGLE_ACCESS_TOKEN`",
                file.display()
            )
        });
        Error::UntrustedAddress {
            key: "a Google Cloud access token".to_owned(),
            set: "by other means".to_owned(),
            address,
            by: self.description.clone(),
            remedy: format!("{}{}{more}", self.remedy, alternative.unwrap_or_default()),
        }
    }

    /// Returns the error for a profile that sends extra fields along with a key.
    pub(super) fn refused_fields(&self, profile: &str, key: String) -> Error {
        let (by, way) = (self.description.clone(), self.remedy.clone());
        Error::UntrustedFields {
            profile: profile.to_owned(),
            key,
            by,
            remedy: way,
        }
    }

    /// Describes a profile that a file defines, for the user.
    pub(super) fn describe(&self) -> String {
        format!("a profile of {}", self.description)
    }

    /// Describes a choice that a file made.
    pub(super) fn describe_choice(&self, name: &str) -> String {
        format!("`{}`, set by {}", bare_model_name(name), self.description)
    }

    /// Describes a file that names models, such as an agent's configuration.
    pub(super) fn file(path: &Path) -> Self {
        let remedy = "leave the address out, or make it a server of a list that `LEVITY_MODELS` \
            names, if you trust it";
        Self {
            keys: None,
            description: format!("`{}`", path.display()),
            remedy: remedy.to_owned(),
        }
    }
}

/// The location of a model's server.
///
/// It exists for models that are not compiled in as well, so that errors and remarks about
/// addresses need no provider.
pub(super) struct Location<'a> {
    pub(super) api: Api,
    pub(super) base_url: Option<Cow<'a, str>>,
    /// The untrusted file that sets the address, if any.
    pub(super) untrusted: Option<Arc<UntrustedFile>>,
    /// The variables that may hold its key.
    keys: Vec<&'a str>,
    /// True if the server requires a key.
    needs_key: bool,
}

impl Location<'_> {
    /// Describes an address that a file chose, for the user.
    fn describe(&self) -> Option<String> {
        let untrusted = self.untrusted.as_ref()?;
        let address = self.base_url.as_ref()?;
        Some(format!(
            "at `{}`, set by {}",
            bare_url(address),
            untrusted.description
        ))
    }

    /// Returns the variables that may hold the credentials.
    fn key_names(&self) -> &[&str] {
        match self.api {
            Api::Vertex => &["GOOGLE_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"],
            _ => &self.keys,
        }
    }

    /// Returns the address without its secret parts, for errors.
    fn address(&self) -> String {
        bare_url(self.base_url.as_deref().unwrap_or_default())
    }

    /// Checks that the server has an address.
    ///
    /// # Errors
    /// Returns an error if no address is set for a server without a default address.
    pub(super) fn has_address(&self, name: &Name<'_>) -> Result<(), Error> {
        if self.api != Api::Chat || self.base_url.is_some() {
            return Ok(());
        }
        Err(Error::MissingSetting {
            provider: name.provider.to_owned(),
            setting: "an address",
            variables: format!(
                "it after the name: `compatible:{}@http://127.0.0.1:8080/v1`",
                name.id
            ),
        })
    }
}

impl Models {
    /// Returns the location of the model with this name, even if its provider is not compiled in.
    ///
    /// # Errors
    /// Returns an error if the provider does not exist or the address is invalid.
    pub(super) fn location<'a>(&'a self, name: &Name<'a>) -> Result<Location<'a>, Error> {
        let location = self.unchecked_location(name)?;
        match location
            .base_url
            .as_deref()
            .filter(|address| !is_web_address(address.trim()))
        {
            Some(address) => {
                let model = format!("{}:{}", name.provider, name.id);
                Err(Error::InvalidAddress {
                    model,
                    address: bare_url(address),
                })
            }
            None => Ok(location),
        }
    }

    /// Returns the location without validating its address.
    ///
    /// The address in the name wins, then the variable of the provider, then the provider's
    /// default, which is `None` here.
    fn unchecked_location<'a>(&'a self, name: &Name<'a>) -> Result<Location<'a>, Error> {
        self.known(name.provider)?;
        let named = || {
            name.base_url
                .map(|url| (Cow::from(url), name.untrusted.clone()))
        };
        // A server in the user's list may have any name.
        if let Some(server) = self.list.servers.get(name.provider) {
            let (base_url, untrusted) =
                named().unwrap_or_else(|| ((&*server.base_url).into(), None));
            // The file that names the key variable decides which key is sent, so it counts even if
            // the address comes from elsewhere.
            let untrusted = server.untrusted.clone().or(untrusted);
            let keys: Vec<&str> = server.key.as_deref().into_iter().collect();
            let (base_url, needs_key) = (Some(base_url), server.key.is_some());
            return Ok(Location {
                api: server.api,
                base_url,
                untrusted,
                keys,
                needs_key,
            });
        }
        let (api, variable) = match name.provider {
            "compatible" => (Api::Chat, None),
            "openai" => (Api::Responses, Some("OPENAI_BASE_URL")),
            "openai-chat" => (Api::OpenAiChat, Some("OPENAI_BASE_URL")),
            "anthropic" => (Api::Messages, Some("ANTHROPIC_BASE_URL")),
            "gemini" => (Api::Gemini, Some("GEMINI_BASE_URL")),
            "ollama" => (Api::Ollama, Some("OLLAMA_HOST")),
            _ => (Api::Vertex, None),
        };
        let (base_url, untrusted) = match named().or_else(|| self.address_from_variable(variable?))
        {
            Some((base_url, untrusted)) => (Some(base_url), untrusted),
            None => (None, None),
        };
        // A project in a name determines who receives the request, just as an address does.
        let untrusted = untrusted.or_else(|| {
            name.untrusted
                .clone()
                .filter(|_| api == Api::Vertex && name.project().is_some())
        });
        let keys = Self::keys_of(name.provider).to_vec();
        let needs_key = !matches!(name.provider, "compatible" | "ollama" | "vertex");
        Ok(Location {
            api,
            base_url,
            untrusted,
            keys,
            needs_key,
        })
    }

    /// Returns the address that a variable holds.
    fn address_from_variable(
        &self,
        variable: &str,
    ) -> Option<(Cow<'_, str>, Option<Arc<UntrustedFile>>)> {
        let (value, origin) = self.variables.get(variable)?;
        let url = match variable {
            "OLLAMA_HOST" => super::build::ollama_host(value.expose()).into(),
            _ => value.expose().into(),
        };
        Some((url, untrusted_file(variable, origin)))
    }

    /// Returns the key for a location, or an error that names the variables that were checked. A
    /// server whose address is part of the name may need no key. A key is sent to an address from a
    /// file only if it comes from the same file.
    ///
    /// # Errors
    /// Returns [`Error::UntrustedAddress`] if only a key from elsewhere exists, and
    /// [`Error::MissingSetting`] if a required key is not set.
    pub(super) fn key(
        &self,
        name: &Name<'_>,
        location: &Location<'_>,
    ) -> Result<Option<Secret>, Error> {
        let own = || self.variables.first(&location.keys);
        let found = match &location.untrusted {
            None => own().map(|found| found.value.clone()),
            Some(untrusted) => match self.key_from_same_file(untrusted, &location.keys) {
                Some(key) => Some(key.clone()),
                None => match own() {
                    Some(found) => return Err(location.key_refusal(untrusted, &found)),
                    None => None,
                },
            },
        };
        match found {
            Some(key) => Ok(Some(key)),
            None if name.base_url.is_some() || !location.needs_key => Ok(None),
            None => Err(Error::MissingSetting {
                provider: name.provider.to_owned(),
                setting: "a key",
                variables: location
                    .keys
                    .iter()
                    .map(|name| format!("`{name}`"))
                    .collect::<Vec<_>>()
                    .join(" or "),
            }),
        }
    }

    /// Describes the key that calls of this model use, if there is one.
    pub(super) fn describe_key(
        &self,
        name: &str,
        by: Option<&Arc<UntrustedFile>>,
    ) -> Option<String> {
        let name = Name {
            untrusted: by.cloned(),
            ..Name::parse(name).ok()?
        };
        let location = self.location(&name).ok()?;
        let keys = location.key_names();
        if let Some(untrusted) = &location.untrusted {
            let file = untrusted.keys.as_deref()?;
            let name = keys
                .iter()
                .find(|name| self.variables.first_in(file, &[name]).is_some())?;
            return Some(format!("`{name}`, set in `{}`", file.display()));
        }
        match self.variables.first(keys) {
            Some(found) => Some(format!("`{}`, set {}", found.name, found.origin)),
            None => (location.api == Api::Vertex).then(|| "your Google Cloud account".to_owned()),
        }
    }

    /// Describes which parts of a model's address and account a file determines.
    ///
    /// Examples: `` at `https://x.example`, set by `OPENAI_BASE_URL` in `.env` `` and `` in the
    /// project `p`, set by `GOOGLE_CLOUD_PROJECT` in `.env` ``.
    pub(super) fn describe_location(
        &self,
        name: &str,
        by: Option<&Arc<UntrustedFile>>,
    ) -> Vec<String> {
        let parsed = Name::parse(name).map(|name| Name {
            untrusted: by.cloned(),
            ..name
        });
        let Ok((name, location)) =
            parsed.and_then(|name| Ok((name.clone(), self.location(&name)?)))
        else {
            return Vec::new();
        };
        let mut remarks: Vec<String> = location.describe().into_iter().collect();
        let setting = |found: &Found<'_, '_>| {
            Some(format!(
                "`{}` in `{}`",
                found.name,
                found.origin.file()?.display()
            ))
        };
        if location.api == Api::Vertex {
            let project = self
                .variables
                .first(&["GOOGLE_CLOUD_PROJECT"])
                .filter(|_| name.project().is_none());
            let region = self
                .variables
                .first(&["GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"]);
            for (kind, found) in [("project", project), ("region", region)] {
                let Some(found) = found else { continue };
                let by = setting(&found);
                remarks.extend(
                    by.map(|by| format!("in the {kind} `{}`, set by {by}", found.value.expose())),
                );
            }
            let project = name.project().zip(location.untrusted.as_ref());
            remarks.extend(
                project.map(|(project, by)| format!("in `{project}`, set by {}", by.description)),
            );
        }
        // The file that sets an address also provides its key.
        let found = self
            .variables
            .first(location.key_names())
            .filter(|_| location.untrusted.is_none());
        let file = |found: &Found<'_, '_>| match found.name {
            "GOOGLE_APPLICATION_CREDENTIALS" => {
                format!("the account in `{}`, set by ", found.value.expose())
            }
            _ => String::new(),
        };
        remarks.extend(found.and_then(|found| {
            Some(format!(
                "authenticated with \
                {}{}",
                file(&found),
                setting(&found)?
            ))
        }));
        remarks
    }

    /// Returns the key from the same file as an address.
    pub(super) fn key_from_same_file(
        &self,
        untrusted: &UntrustedFile,
        names: &[&str],
    ) -> Option<&Secret> {
        self.variables.first_in(untrusted.keys.as_deref()?, names)
    }

    /// Adds the list that `LEVITY_MODELS` names.
    ///
    /// A list that the environment names by an absolute path, or that the program names, is
    /// trusted. Any other list must not redefine a built-in provider or server.
    ///
    /// # Errors
    /// Returns [`Error::UntrustedServer`] for such a name, and the errors of [`ModelList::read`].
    pub(super) fn with_named_list(self) -> Result<Self, Error> {
        let Some((path, origin)) = self.variables.get("LEVITY_MODELS") else {
            return Ok(self);
        };
        let path = path.expose().to_owned();
        let list = ModelList::read(&path)?;
        // A relative path refers to a different file in every folder.
        if *origin == Origin::Code
            || *origin == Origin::Environment && Path::new(&path).is_absolute()
        {
            return Ok(self.with_list(list));
        }
        let untrusted = Arc::new(UntrustedFile::list(&path, origin));
        // A user who writes `openai` means OpenAI.
        let builtin = |name: &&String| {
            Self::PROVIDERS.contains(&name.as_str())
                || ModelList::builtin().servers.contains_key(*name)
        };
        if let Some(name) = list.servers.keys().find(builtin) {
            return Err(Error::UntrustedServer {
                name: name.clone(),
                by: untrusted.description.clone(),
            });
        }
        Ok(self.with_untrusted_list(list.of(&untrusted)))
    }
}

impl Location<'_> {
    /// Returns the error for a key from elsewhere, with the way to confirm the address.
    fn key_refusal(&self, untrusted: &UntrustedFile, found: &Found<'_, '_>) -> Error {
        let alternative = untrusted
            .keys
            .as_ref()
            .map(|file| format!(", or put the key into `{}`", file.display()));
        Error::UntrustedAddress {
            key: format!("`{}`", found.name),
            set: found.origin.to_string(),
            address: self.address(),
            by: untrusted.description.clone(),
            remedy: format!("{}{}", untrusted.remedy, alternative.unwrap_or_default()),
        }
    }

    /// Returns the error for credentials that are not in a variable.
    #[cfg(feature = "gemini")]
    pub(super) fn refused_credentials(&self, name: &Name<'_>, untrusted: &UntrustedFile) -> Error {
        let address = match (&self.base_url, name.project()) {
            (None, Some(project)) => project,
            _ => self.address(),
        };
        untrusted.refused_account(address, "")
    }

    /// Returns the error for an account that is not from the file that names the project.
    #[cfg(feature = "gemini")]
    pub(super) fn refused_project(&self, project: &str, untrusted: &UntrustedFile) -> Error {
        let address = if self.base_url.is_some() {
            self.address()
        } else {
            format!("projects/{project}")
        };
        untrusted.refused_account(
            address,
            ", or put the file of its account into the same folder",
        )
    }
}

/// Returns the file that set a variable, unless the environment or the program set it.
pub(super) fn untrusted_file(variable: &str, origin: &Origin) -> Option<Arc<UntrustedFile>> {
    origin
        .file()
        .map(|file| Arc::new(UntrustedFile::variable(variable, file)))
}
