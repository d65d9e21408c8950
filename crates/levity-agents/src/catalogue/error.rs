//! Errors of a catalogue. Each names the place, the problem and the way out, because the reader is
//! often the author of a config and not the programmer.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why a catalogue cannot provide agents.
///
/// ```
/// use levity_agents::{AgentParts, Catalogue, CatalogueError};
/// use levity_test::ScriptedModel;
///
/// let parts = AgentParts::new(ScriptedModel::new());
/// let error = Catalogue::defaults().build("Codr", &parts).err().unwrap();
/// assert!(matches!(error, CatalogueError::Unknown { .. }));
/// assert_eq!(error.to_string(), "no agent is named `Codr`; perhaps you meant `Coder`");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// A folder or file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The path of the folder or file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The folder contains no config.
    #[error(
        "no `agent_config.yaml` in `{}`; write one, or create the default agents \
            with \
         `Catalogue::write_defaults`", .dir.display()
    )]
    NoConfig {
        /// The path of the folder.
        dir: PathBuf,
    },
    /// The config is not YAML or JSON, is too large, or is not a map of agents.
    #[error("{at}{problem}")]
    Config {
        /// The place in the config.
        at: ConfigLocation,
        /// The problem and how to fix it.
        problem: String,
    },
    /// A setting of an entry is invalid.
    #[error("{at}{problem}")]
    Entry {
        /// The place in the config.
        at: ConfigLocation,
        /// The problem and how to fix it.
        problem: String,
    },
    /// The prompt of an agent is not available.
    #[error("{at}{problem}")]
    Prompt {
        /// The place in the config.
        at: ConfigLocation,
        /// The problem and how to fix it.
        problem: String,
    },
    /// No agent has this name.
    #[error("no agent is named `{name}`{suggestion}")]
    Unknown {
        /// The requested name, which no agent has.
        name: String,
        /// A clause with similar names.
        suggestion: String,
    },
    /// The agent is disabled.
    #[error("the agent `{name}` is disabled; remove its `enabled: false`")]
    Disabled {
        /// The name of the agent.
        name: Arc<str>,
    },
    /// A server, tool or Python program that an agent requires is missing.
    #[error("the agent `{}` requires {}, which is \
        missing{suggestion}", .missing.agent, .missing.part)]
    Missing {
        /// The missing part, and the agent that requires it.
        missing: MissingPart,
        /// A clause with similar names and how to fix the problem.
        suggestion: String,
    },
    /// None of an agent's models is available.
    #[error("no model of the agent `{agent}` is available: {problem}")]
    Model {
        /// The name of the agent.
        agent: Arc<str>,
        /// The reason for each model, and how to fix the problem.
        problem: String,
    },
    /// The agent cannot be built.
    #[error("cannot build the agent `{agent}`")]
    Build {
        /// The name of the agent.
        agent: Arc<str>,
        /// The cause of the failure.
        #[source]
        source: Box<levity_loop::Error>,
    },
    /// The default agents cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The path of the folder or file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl CatalogueError {
    /// Returns `false`: a retry does not help until the files or parts change.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// A place in a config.
///
/// ```
/// let location = levity_agents::ConfigLocation::default();
/// assert_eq!(location.to_string(), ""); // unknown parts are left out
/// ```
///
/// A JSON config has a line only for syntax errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigLocation {
    /// The file, if the config comes from one.
    pub file: Option<PathBuf>,
    /// The line, counted from 1, if it is known.
    pub line: Option<usize>,
    /// The agent, if the place belongs to one.
    pub agent: Option<Arc<str>>,
}

impl ConfigLocation {
    pub(super) fn of(file: Option<&Path>) -> Self {
        Self {
            file: file.map(Path::to_path_buf),
            ..Self::default()
        }
    }

    pub(super) fn line(mut self, line: Option<usize>) -> Self {
        self.line = line;
        self
    }

    pub(super) fn agent(mut self, name: impl Into<Arc<str>>) -> Self {
        self.agent = Some(name.into());
        self
    }
}

/// Formats the start of a message: `agents/agent_config.yaml, line 3: agent `Coder`: `.
impl fmt::Display for ConfigLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "`{}`, line {line}: ", file.display())?,
            (Some(file), None) => write!(f, "`{}`: ", file.display())?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        match &self.agent {
            Some(agent) => write!(f, "agent `{agent}`: "),
            None => Ok(()),
        }
    }
}

/// A part that an agent names and that is missing.
///
/// ```
/// use levity_agents::{AgentParts, Catalogue, CatalogueEntry};
/// use levity_test::ScriptedModel;
///
/// let entry = CatalogueEntry::new("Reader", "Read.").servers(["browser?"]);
/// let missing = Catalogue::empty().with(entry).missing(&AgentParts::new(ScriptedModel::new()));
/// assert_eq!(missing[0].to_string(), "`Reader` works without the MCP server `browser`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingPart {
    /// The name of the agent.
    pub agent: Arc<str>,
    /// The part that the agent names but that is missing.
    pub part: AgentPart,
    /// Set if the agent requires the part. Otherwise the agent works without it, and its prompt
    /// mentions that.
    pub required: bool,
}

/// A part of an agent, by name.
///
/// ```
/// use levity_agents::AgentPart;
///
/// assert_eq!(AgentPart::Tool("search".into()).to_string(), "the tool `search`");
/// assert_eq!(AgentPart::Code.to_string(), "a program that runs Python");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AgentPart {
    /// An MCP server by name.
    Server(Arc<str>),
    /// A tool by name.
    Tool(Arc<str>),
    /// A model of the agent, by name.
    Model(Arc<str>),
    /// The program that runs Python.
    Code,
}

impl fmt::Display for AgentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(name) => write!(f, "the MCP server `{name}`"),
            Self::Tool(name) => write!(f, "the tool `{name}`"),
            Self::Model(name) => write!(f, "the model `{name}`"),
            Self::Code => f.write_str("a program that runs Python"),
        }
    }
}

impl fmt::Display for MissingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.required {
            "cannot be built without"
        } else {
            "works without"
        };
        write!(f, "`{}` {what} {}", self.agent, self.part)
    }
}

impl From<CatalogueError> for levity_core::Error {
    fn from(error: CatalogueError) -> Self {
        Self::config(error)
    }
}
