//! The error of creating models and embedders.
//!
//! Calls of a model have their own error, [`ModelError`]. This one is about settings: each message
//! names the setting and the next step, because it is usually the last line that a new user sees.
//! Addresses in it never contain a password or a query.

use std::fmt;
use std::path::PathBuf;

use levity_core::text::chain;
use levity_core::{ModelError, ModelErrorKind};

/// An error that prevents levity from creating a model.
///
/// Its `Debug` output is one line: the `Display` text, followed by any causes that the text lacks.
///
/// ```
/// use levity_llm::{ErrorKind, Models};
///
/// let error = Models::new().model("opnai:gpt-6.1-terra").err().unwrap();
/// assert_eq!(error.kind(), ErrorKind::Name);
/// assert!(error.to_string().contains("did you mean `openai`?"));
///
/// // As the error of a model, it says that no retry helps.
/// let error = levity_core::ModelError::from(error);
/// assert!(!error.is_retryable());
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a valid model name.
    #[error("`{name}` is not a model name; {}write `provider:model`, such as \
        `gemini:gemini-3.8-flash`", did_you_mean(suggestion.as_ref()))]
    InvalidName {
        /// The requested name, without any secret parts of an address.
        name: String,
        /// A similar name that the user probably meant.
        suggestion: Option<String>,
    },
    /// The address of the model's server is not valid.
    #[error(
        "`{address}` is not a valid server address for `{model}`; write `http://HOST:PORT/v1` \
            or `https://HOST/v1`, and `%40` for an `@` in a password"
    )]
    InvalidAddress {
        /// The model that the address belongs to.
        model: String,
        /// The address, without any secret parts.
        address: String,
    },
    /// No provider has this name.
    #[error("there is no provider `{provider}`; {}the known providers are \
        {known}", did_you_mean(suggestion.as_ref()))]
    UnknownProvider {
        /// The requested provider name.
        provider: String,
        /// The known providers, as a list in words.
        known: String,
        /// A similar name that the user probably meant.
        suggestion: Option<String>,
    },
    /// No profile has this name.
    #[error("there is no profile `{profile}`; {known}")]
    UnknownProfile {
        /// The requested profile name.
        profile: String,
        /// The known profiles, as a phrase.
        known: String,
    },
    /// Profiles refer to each other in a cycle, or their chain is too long.
    #[error(
        "the profile `{profile}` refers back to itself or its chain is too long; remove a \
        reference"
    )]
    ProfileCycle {
        /// The name of one profile in the cycle.
        profile: String,
    },
    /// A profile resolves to too many models.
    #[error("the profile `{profile}` resolves to more than {limit} models; name fewer")]
    TooManyModels {
        /// The name of the profile.
        profile: String,
        /// The maximum number of models.
        limit: usize,
    },
    /// The provider is not compiled in.
    #[error(
        "`{provider}` is not compiled in; add levity's feature `{feature}`: `cargo add levity \
            --features {feature}`"
    )]
    MissingFeature {
        /// The name of the provider.
        provider: String,
        /// The Cargo feature that enables the provider.
        feature: &'static str,
    },
    /// The provider has models but no embedders.
    #[error("`{provider}` has no embedders; use `gemini`, `openai`, `ollama` or `compatible`")]
    NoEmbedders {
        /// The name of the provider.
        provider: String,
    },
    /// The provider has models but no rerankers.
    #[error("`{provider}` has no rerankers; use `compatible` or a server of the model list")]
    NoRerankers {
        /// The name of the provider.
        provider: String,
    },
    /// A setting that the provider needs is missing.
    #[error("`{provider}` needs {setting}; set {variables}")]
    MissingSetting {
        /// The name of the provider.
        provider: String,
        /// The missing setting, such as a key.
        setting: &'static str,
        /// The environment variables that levity checks.
        variables: String,
    },
    /// A file sets the model's address, but the key does not come from that file.
    #[error(
        "{key}, set {set}, is not sent to `{address}`, since that address is from {by}; {remedy}"
    )]
    UntrustedAddress {
        /// The variable that holds the key, or a description of the other secret.
        key: String,
        /// A phrase that names the place where the key is set.
        set: String,
        /// The address, without any secret parts.
        address: String,
        /// A phrase that names the file with the address.
        by: String,
        /// A phrase with the next step for the user.
        remedy: String,
    },
    /// A model list in a folder gives a server the name of a built-in provider.
    #[error("the server `{name}` of {by} has the name of a built-in provider; rename the server")]
    UntrustedServer {
        /// The name of the server.
        name: String,
        /// A phrase that names the list.
        by: String,
    },
    /// A profile in a file sends extra fields to a provider that charges the user. Such fields may
    /// make the provider call third-party servers.
    #[error(
        "the profile `{profile}`, from {by}, sends extra fields (`extra`) with {key}; {remedy}, \
            or leave `extra` out"
    )]
    UntrustedFields {
        /// The name of the profile.
        profile: String,
        /// A phrase that names the key and the place where it is set.
        key: String,
        /// A phrase that names the file with the profile.
        by: String,
        /// A phrase with the next step for the user.
        remedy: String,
    },
    /// A `.env` file is a link to a file outside its folder.
    #[error(
        "`{}` is a link to a file outside its folder and is not read, because a third party may \
            have chosen that file; copy the file there, or set its variables in the environment",
        path.display()
    )]
    ExternalLink {
        /// The path of the link.
        path: PathBuf,
    },
    /// The environment configures no model.
    #[error("the environment configures no model; set {variables}, or name one in `LEVITY_MODEL`")]
    NoModel {
        /// The variables that the user can set.
        variables: String,
    },
    /// A file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },
    /// An embedding table or its tokenizer is invalid.
    #[error("`{}` cannot be used: {problem}", path.display())]
    InvalidTable {
        /// The path of the file.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// A model list is invalid.
    #[error("{place}: {problem}")]
    InvalidList {
        /// The file and the position in it.
        place: String,
        /// A description of the problem and its fix.
        problem: String,
    },
    /// The provider's model could not be created.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// The category of an [`Error`].
///
/// ```
/// use levity_llm::{ErrorKind, Models};
///
/// let kind = |name: &str| Models::new().model(name).err().map(|error| error.kind());
/// assert_eq!(kind("no colon"), Some(ErrorKind::Name));
/// assert_eq!(kind("groq:openai/gpt-oss-120b"), Some(ErrorKind::Missing)); // no key
/// assert_eq!(kind("compatible:qwen3@http://127.0.0.1:8080/v1"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The name is invalid or unknown.
    Name,
    /// A key, a project or another required setting is missing.
    Missing,
    /// The program was built without the required feature.
    Feature,
    /// A file is invalid or cannot be read.
    File,
    /// A file that may come from a third party sets the address or extra fields that a key would be
    /// sent with.
    Untrusted,
}

/// Returns the suggestion with a space behind it, or nothing.
fn did_you_mean(near: Option<&String>) -> String {
    near.map_or_else(String::new, |near| format!("did you mean `{near}`? "))
}

impl Error {
    /// Returns the category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidName { .. }
            | Self::InvalidAddress { .. }
            | Self::UnknownProvider { .. }
            | Self::UnknownProfile { .. }
            | Self::NoEmbedders { .. }
            | Self::NoRerankers { .. } => ErrorKind::Name,
            Self::MissingSetting { .. } | Self::NoModel { .. } | Self::Model(_) => {
                ErrorKind::Missing
            }
            Self::MissingFeature { .. } => ErrorKind::Feature,
            Self::UntrustedAddress { .. }
            | Self::UntrustedServer { .. }
            | Self::UntrustedFields { .. }
            | Self::ExternalLink { .. } => ErrorKind::Untrusted,
            Self::File { .. }
            | Self::InvalidTable { .. }
            | Self::InvalidList { .. }
            | Self::ProfileCycle { .. }
            | Self::TooManyModels { .. } => ErrorKind::File,
        }
    }

    /// Returns `true` if a retry may succeed: always `false`, because a setting must change first.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}

impl From<Error> for ModelError {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Missing | ErrorKind::Untrusted => ModelErrorKind::Auth,
            _ => ModelErrorKind::BadRequest,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

impl From<Error> for levity_core::Error {
    fn from(error: Error) -> Self {
        Self::config(error)
    }
}
