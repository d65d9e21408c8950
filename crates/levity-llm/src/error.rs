use std::fmt;
use std::path::PathBuf;

use levity_core::text::chain;
use levity_core::{ModelError, ModelErrorKind};

/// Why there is no model of a name.
///
/// Its `Debug` is one line: what `Display` says, and whatever causes are not in it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is none.
    #[error("`{name}` names no model; {}write `provider:model`, such as \
        `gemini:gemini-3.8-flash`", meant(near.as_ref()))]
    Name {
        /// What was asked for, without what may be secret in an address.
        name: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// The address behind a name is none.
    #[error(
        "`{address}` behind `{model}` is no address of a server; write `http://HOST:PORT/v1` or \
            `https://HOST/v1`, and `%40` for an `@` in a password"
    )]
    Address {
        /// The name before the address.
        model: String,
        /// The address, without what may be secret in it.
        address: String,
    },
    /// Nobody has a provider of this name.
    #[error("there is no provider `{provider}`; {}there are {known}", meant(near.as_ref()))]
    UnknownProvider {
        /// What was asked for.
        provider: String,
        /// Those there are.
        known: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// There is no profile of this name.
    #[error("there is no profile `{profile}`; {known}")]
    UnknownProfile {
        /// What was asked for.
        profile: String,
        /// Those there are, in words.
        known: String,
    },
    /// Profiles name each other in a circle, or too many one after the other.
    #[error("the profile `{profile}` leads back to itself")]
    Circle {
        /// One of them.
        profile: String,
    },
    /// A profile leads to too many models.
    #[error("the profile `{profile}` leads to more than {most} models; name fewer")]
    TooMany {
        /// The profile.
        profile: String,
        /// How many it may lead to.
        most: usize,
    },
    /// The provider is not compiled in.
    #[error(
        "`{provider}` is not compiled in; add levity's feature `{feature}`: `cargo add levity \
            --features {feature}`"
    )]
    Feature {
        /// The provider.
        provider: String,
        /// The feature.
        feature: &'static str,
    },
    /// The provider has models, but nothing that makes vectors of texts.
    #[error("`{provider}` has no embedders; take `gemini`, `openai`, `ollama` or `compatible`")]
    NoEmbedders {
        /// The provider.
        provider: String,
    },
    /// Something that the provider needs is not set.
    #[error("`{provider}` needs {what}; set {variables}")]
    Missing {
        /// The provider.
        provider: String,
        /// What it needs.
        what: &'static str,
        /// Where it is looked for.
        variables: String,
    },
    /// A file says where the model is, and the key that it needs is not from that file.
    #[error("{key}, set {set}, is not sent to `{address}`, since that address is from {by}; {way}")]
    ForeignAddress {
        /// The variable that holds the key, or what else would be sent.
        key: String,
        /// Where the key is set, in words.
        set: String,
        /// The address, without what may be secret in it.
        address: String,
        /// The file that names the address, in words.
        by: String,
        /// What to do, in words.
        way: String,
    },
    /// A list of a folder gives a server the name of a provider that levity knows.
    #[error(
        "the server `{name}` of {by} has the name of a provider that levity knows; rename the \
            server"
    )]
    ForeignServer {
        /// The name of the server.
        name: String,
        /// The list, in words.
        by: String,
    },
    /// A profile of a file sends fields of its own to a provider whom the user pays: they may make
    /// it call others' servers.
    #[error(
        "the profile `{profile}`, from {by}, sends fields of its own (`extra`) with {key}; {way}, \
            or leave `extra` out"
    )]
    ForeignFields {
        /// The profile.
        profile: String,
        /// The key that they would be sent with, and where it is set, in words.
        key: String,
        /// The file that has the profile, in words.
        by: String,
        /// What to do, in words.
        way: String,
    },
    /// A `.env` is a link to a file outside of its folder.
    #[error(
        "`{}` is a link out of its folder and is not read: somebody else may have chosen that \
            file; copy the file there, or set its variables in the environment",
        path.display()
    )]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// The environment offers no model.
    #[error("the environment offers no model; set {variables}, or name one in `LEVITY_MODEL`")]
    Nothing {
        /// What may be set.
        variables: String,
    },
    /// A file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A table of vectors, or its tokeniser, is wrong.
    #[error("`{}` cannot be used: {problem}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A list of models is wrong.
    #[error("{place}: {problem}")]
    List {
        /// The file, and where in it.
        place: String,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// The provider's model could not be made.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The name is none, or nobody has it.
    Name,
    /// A key, a project or the like is not set.
    Missing,
    /// The program was built without it.
    Feature,
    /// A file is wrong or cannot be read.
    File,
    /// A key would go to an address that a file names, or with fields that it names, and the file
    /// may be a stranger's.
    Untrusted,
}

fn meant(near: Option<&String>) -> String {
    near.map_or_else(String::new, |near| format!("did you mean `{near}`? "))
}

impl Error {
    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. }
            | Self::Address { .. }
            | Self::UnknownProvider { .. }
            | Self::UnknownProfile { .. }
            | Self::NoEmbedders { .. } => ErrorKind::Name,
            Self::Missing { .. } | Self::Nothing { .. } | Self::Model(_) => ErrorKind::Missing,
            Self::Feature { .. } => ErrorKind::Feature,
            Self::ForeignAddress { .. }
            | Self::ForeignServer { .. }
            | Self::ForeignFields { .. }
            | Self::Link { .. } => ErrorKind::Untrusted,
            Self::File { .. }
            | Self::Table { .. }
            | Self::List { .. }
            | Self::Circle { .. }
            | Self::TooMany { .. } => ErrorKind::File,
        }
    }

    /// Whether the same may succeed later: never, as long as nothing is changed.
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
