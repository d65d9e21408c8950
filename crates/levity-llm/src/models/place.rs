//! Where a model's server is, who says so, and which keys may go there.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use levity_core::text::{bare_model_name, bare_url};

use super::list::{Api, ModelList};
use super::variables::{Found, Origin};
use super::{Models, Name, is_web_address};
use crate::{Error, Secret};

/// A file that says where requests go: a `.env`, a list that a `.env` names, the config of an
/// agent.
///
/// Such a file may come with a folder that somebody else wrote. Keys of the environment and of the
/// program never follow it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    /// The file whose keys may go there: this one, if it is a `.env`. Other files hold no keys.
    keys: Option<Arc<Path>>,
    /// What says it, in words: `` `OPENAI_BASE_URL` in `.env` ``.
    what: String,
    /// How to say it oneself, in words.
    way: String,
}

impl Foreign {
    /// A variable in a file.
    pub(super) fn variable(name: &str, file: &Arc<Path>) -> Self {
        Self {
            keys: Some(file.clone()),
            what: format!("`{name}` in `{}`", file.display()),
            way: format!("set `{name}` in the environment yourself if you trust that address"),
        }
    }

    /// A list of models that a `.env` names, or that lies wherever the program is started.
    fn list(path: &str, origin: &Origin) -> Self {
        let what = match origin.file() {
            Some(file) => format!("the list `{path}`, which `{}` names", file.display()),
            None => format!("the list `{path}` in the working directory"),
        };
        let way = "name that list in `LEVITY_MODELS` yourself, in the environment and by its \
            absolute path, if you trust it";
        Self {
            keys: None,
            what,
            way: way.to_owned(),
        }
    }

    /// The error for an account of Google Cloud that is not this file's own.
    #[cfg(feature = "gemini")]
    fn refused_account(&self, address: String, more: &str) -> Error {
        let beside = self.keys.as_ref().map(|file| {
            format!(
                ", or put a token into `{}` as `GOOGLE_ACCESS_TOKEN`",
                file.display()
            )
        });
        Error::ForeignAddress {
            key: "an access token of Google Cloud".to_owned(),
            set: "by other means".to_owned(),
            address,
            by: self.what.clone(),
            way: format!("{}{}{more}", self.way, beside.unwrap_or_default()),
        }
    }

    pub(super) fn refused_fields(&self, profile: &str, key: String) -> Error {
        let (by, way) = (self.what.clone(), self.way.clone());
        Error::ForeignFields {
            profile: profile.to_owned(),
            key,
            by,
            way,
        }
    }

    /// What a user should know of a profile: that a file has it.
    pub(super) fn remark(&self) -> String {
        format!("a profile of {}", self.what)
    }

    /// A remark on a choice that a file made.
    pub(super) fn remark_choice(&self, name: &str) -> String {
        format!("`{}`, by {}", bare_model_name(name), self.what)
    }

    /// A file that names models, such as the config of an agent.
    pub(super) fn file(path: &Path) -> Self {
        let way = "leave the address out, or make it a server of a list that `LEVITY_MODELS` \
            names, if you trust it";
        Self {
            keys: None,
            what: format!("`{}`", path.display()),
            way: way.to_owned(),
        }
    }
}

/// Where a model's server is.
pub(super) struct Place<'a> {
    pub(super) api: Api,
    pub(super) base_url: Option<Cow<'a, str>>,
    /// The file that says so, unless it is the user's own word.
    pub(super) foreign: Option<Arc<Foreign>>,
    /// The variables that may hold its key.
    keys: Vec<&'a str>,
    /// Whether it is of no use without one.
    wants_key: bool,
}

impl Place<'_> {
    /// What a user should know of the address: that a file chose it.
    fn remark(&self) -> Option<String> {
        let foreign = self.foreign.as_ref()?;
        let address = self.base_url.as_ref()?;
        Some(format!("at `{}`, by {}", bare_url(address), foreign.what))
    }

    /// The variables that may hold what it is asked with.
    fn key_names(&self) -> &[&str] {
        match self.api {
            Api::Vertex => &["GOOGLE_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"],
            _ => &self.keys,
        }
    }

    fn address(&self) -> String {
        bare_url(self.base_url.as_deref().unwrap_or_default())
    }

    /// # Errors
    /// When a server that has no customary address has no other.
    pub(super) fn has_address(&self, name: &Name<'_>) -> Result<(), Error> {
        if self.api != Api::Chat || self.base_url.is_some() {
            return Ok(());
        }
        Err(Error::Missing {
            provider: name.provider.to_owned(),
            what: "an address",
            variables: format!(
                "it behind the name: `compatible:{}@http://127.0.0.1:8080/v1`",
                name.id
            ),
        })
    }
}

impl Models {
    /// Where the model of this name is. Whether its provider is compiled in is not asked.
    ///
    /// # Errors
    /// When there is no such provider, or no address.
    pub(super) fn place<'a>(&'a self, name: &Name<'a>) -> Result<Place<'a>, Error> {
        let place = self.place_as_said(name)?;
        match place
            .base_url
            .as_deref()
            .filter(|address| !is_web_address(address.trim()))
        {
            Some(address) => {
                let model = format!("{}:{}", name.provider, name.id);
                Err(Error::Address {
                    model,
                    address: bare_url(address),
                })
            }
            None => Ok(place),
        }
    }

    /// The same; the address may be none that everybody reads in the same way.
    fn place_as_said<'a>(&'a self, name: &Name<'a>) -> Result<Place<'a>, Error> {
        self.known(name.provider)?;
        let named = || {
            name.base_url
                .map(|url| (Cow::from(url), name.foreign.clone()))
        };
        // A server of one's own may bear any name.
        if let Some(server) = self.list.servers.get(name.provider) {
            let (base_url, foreign) = named().unwrap_or_else(|| ((&*server.base_url).into(), None));
            // Whoever names the variable decides what is sent, so that it counts also where the
            // address is another.
            let foreign = server.foreign.clone().or(foreign);
            let keys: Vec<&str> = server.key.as_deref().into_iter().collect();
            let (base_url, wants_key) = (Some(base_url), server.key.is_some());
            return Ok(Place {
                api: server.api,
                base_url,
                foreign,
                keys,
                wants_key,
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
        let (base_url, foreign) = match named().or_else(|| self.by_variable(variable?)) {
            Some((base_url, foreign)) => (Some(base_url), foreign),
            None => (None, None),
        };
        // A project in a name says who gets what is asked, as an address does.
        let foreign = foreign.or_else(|| {
            name.foreign
                .clone()
                .filter(|_| api == Api::Vertex && name.project().is_some())
        });
        let keys = Self::keys_of(name.provider).to_vec();
        let wants_key = !matches!(name.provider, "compatible" | "ollama" | "vertex");
        Ok(Place {
            api,
            base_url,
            foreign,
            keys,
            wants_key,
        })
    }

    /// The address that a variable holds.
    fn by_variable(&self, variable: &str) -> Option<(Cow<'_, str>, Option<Arc<Foreign>>)> {
        let (value, origin) = self.variables.get(variable)?;
        let url = match variable {
            "OLLAMA_HOST" => super::build::ollama_host(value.expose()).into(),
            _ => value.expose().into(),
        };
        Some((url, foreign(variable, origin)))
    }

    /// The key for a place, or an error that says where it was looked for. A server whose address
    /// is in the name may want none. A key never goes to an address that a file names unless it is
    /// from that same file.
    pub(super) fn key(&self, name: &Name<'_>, place: &Place<'_>) -> Result<Option<Secret>, Error> {
        let own = || self.variables.first(&place.keys);
        let found = match &place.foreign {
            None => own().map(|found| found.value.clone()),
            Some(foreign) => match self.key_beside(foreign, &place.keys) {
                Some(key) => Some(key.clone()),
                None => match own() {
                    Some(found) => return Err(place.refused(foreign, &found)),
                    None => None,
                },
            },
        };
        match found {
            Some(key) => Ok(Some(key)),
            None if name.base_url.is_some() || !place.wants_key => Ok(None),
            None => Err(Error::Missing {
                provider: name.provider.to_owned(),
                what: "a key",
                variables: place
                    .keys
                    .iter()
                    .map(|name| format!("`{name}`"))
                    .collect::<Vec<_>>()
                    .join(" or "),
            }),
        }
    }

    /// The key that the model of a name is asked with, in words, if there is one.
    pub(super) fn key_in_words(&self, name: &str, by: Option<&Arc<Foreign>>) -> Option<String> {
        let name = Name {
            foreign: by.cloned(),
            ..Name::parse(name).ok()?
        };
        let place = self.place(&name).ok()?;
        let keys = place.key_names();
        if let Some(foreign) = &place.foreign {
            let file = foreign.keys.as_deref()?;
            let name = keys
                .iter()
                .find(|name| self.variables.first_in(file, &[name]).is_some())?;
            return Some(format!("`{name}`, set in `{}`", file.display()));
        }
        match self.variables.first(keys) {
            Some(found) => Some(format!("`{}`, set {}", found.name, found.origin)),
            None => (place.api == Api::Vertex).then(|| "your account of Google Cloud".to_owned()),
        }
    }

    /// What a user should know of where a model is, and of whose account it is asked with: what of
    /// it a file decides.
    pub(super) fn place_remarks(&self, name: &str, by: Option<&Arc<Foreign>>) -> Vec<String> {
        let parsed = Name::parse(name).map(|name| Name {
            foreign: by.cloned(),
            ..name
        });
        let Ok((name, place)) = parsed.and_then(|name| Ok((name.clone(), self.place(&name)?)))
        else {
            return Vec::new();
        };
        let mut remarks: Vec<String> = place.remark().into_iter().collect();
        let said = |found: &Found<'_, '_>| {
            Some(format!(
                "`{}` in `{}`",
                found.name,
                found.origin.file()?.display()
            ))
        };
        if place.api == Api::Vertex {
            let project = self
                .variables
                .first(&["GOOGLE_CLOUD_PROJECT"])
                .filter(|_| name.project().is_none());
            let region = self
                .variables
                .first(&["GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"]);
            for (what, found) in [("project", project), ("region", region)] {
                let Some(found) = found else { continue };
                let by = said(&found);
                remarks.extend(
                    by.map(|by| format!("in the {what} `{}`, by {by}", found.value.expose())),
                );
            }
            let project = name.project().zip(place.foreign.as_ref());
            remarks.extend(project.map(|(project, by)| format!("in `{project}`, by {}", by.what)));
        }
        // The file that names an address brings the key for it.
        let found = self
            .variables
            .first(place.key_names())
            .filter(|_| place.foreign.is_none());
        let file = |found: &Found<'_, '_>| match found.name {
            "GOOGLE_APPLICATION_CREDENTIALS" => {
                format!("the account in `{}`, by ", found.value.expose())
            }
            _ => String::new(),
        };
        remarks.extend(
            found.and_then(|found| Some(format!("asked with {}{}", file(&found), said(&found)?))),
        );
        remarks
    }

    /// The key that the file beside an address holds.
    pub(super) fn key_beside(&self, foreign: &Foreign, names: &[&str]) -> Option<&Secret> {
        self.variables.first_in(foreign.keys.as_deref()?, names)
    }

    /// Adds the list that `LEVITY_MODELS` names.
    pub(super) fn with_named_list(self) -> Result<Self, Error> {
        let Some((path, origin)) = self.variables.get("LEVITY_MODELS") else {
            return Ok(self);
        };
        let path = path.expose().to_owned();
        let list = ModelList::read(&path)?;
        // A relative path means another file in every folder.
        if *origin == Origin::Code
            || *origin == Origin::Environment && Path::new(&path).is_absolute()
        {
            return Ok(self.with_list(list));
        }
        let foreign = Arc::new(Foreign::list(&path, origin));
        // A user who names `openai` means OpenAI.
        let builtin = |name: &&String| {
            Self::PROVIDERS.contains(&name.as_str())
                || ModelList::builtin().servers.contains_key(*name)
        };
        if let Some(name) = list.servers.keys().find(builtin) {
            return Err(Error::ForeignServer {
                name: name.clone(),
                by: foreign.what.clone(),
            });
        }
        Ok(self.with_foreign_list(list.of(&foreign)))
    }
}

impl Place<'_> {
    fn refused(&self, foreign: &Foreign, found: &Found<'_, '_>) -> Error {
        let beside = foreign
            .keys
            .as_ref()
            .map(|file| format!(", or put the key into `{}`", file.display()));
        Error::ForeignAddress {
            key: format!("`{}`", found.name),
            set: found.origin.to_string(),
            address: self.address(),
            by: foreign.what.clone(),
            way: format!("{}{}", foreign.way, beside.unwrap_or_default()),
        }
    }

    /// The error for credentials that are in no variable.
    #[cfg(feature = "gemini")]
    pub(super) fn refused_credentials(&self, name: &Name<'_>, foreign: &Foreign) -> Error {
        let address = match (&self.base_url, name.project()) {
            (None, Some(project)) => project,
            _ => self.address(),
        };
        foreign.refused_account(address, "")
    }

    /// The error for an account that is not the one of the file which names the project.
    #[cfg(feature = "gemini")]
    pub(super) fn refused_project(&self, project: &str, foreign: &Foreign) -> Error {
        let address = if self.base_url.is_some() {
            self.address()
        } else {
            format!("projects/{project}")
        };
        foreign.refused_account(
            address,
            ", or keep the file of its account in the same folder",
        )
    }
}

/// The file that set a variable, unless it was the environment or the program.
pub(super) fn foreign(variable: &str, origin: &Origin) -> Option<Arc<Foreign>> {
    origin
        .file()
        .map(|file| Arc::new(Foreign::variable(variable, file)))
}
