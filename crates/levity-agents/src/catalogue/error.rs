use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why agents cannot be had from a catalogue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// A folder or file cannot be read.
    #[error("`{}` cannot be read", .path.display())]
    Read {
        /// The folder or the file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no config in the folder.
    #[error(
        "there is no `agent_config.yaml` in `{}`; write one, or have the default agents written \
            there by \
         `Catalogue::write_defaults`", .dir.display()
    )]
    NoConfig {
        /// The folder.
        dir: PathBuf,
    },
    /// The config is no YAML or JSON, is too large, or is no map of agents.
    #[error("{at}{problem}")]
    Config {
        /// Where.
        at: Place,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// Something is wrong with an entry.
    #[error("{at}{problem}")]
    Entry {
        /// Where.
        at: Place,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// An agent's prompt cannot be had.
    #[error("{at}{problem}")]
    Prompt {
        /// Where.
        at: Place,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// There is no agent of this name.
    #[error("there is no agent `{name}`{near}")]
    Unknown {
        /// The name.
        name: String,
        /// What was perhaps meant, as a clause.
        near: String,
    },
    /// The agent is switched off.
    #[error("the agent `{name}` is switched off; remove its `enabled: false`")]
    Disabled {
        /// The agent.
        name: Arc<str>,
    },
    /// A server, a tool or the code program that an agent needs is not there.
    #[error("the agent `{}` needs {}, and there is none{near}", .missing.agent, .missing.part)]
    Missing {
        /// What is not there.
        missing: Missing,
        /// What was perhaps meant, and the way out, as a clause.
        near: String,
    },
    /// None of an agent's models can be had.
    #[error("none of the models of the agent `{agent}` can be had: {problem}")]
    Model {
        /// The agent.
        agent: Arc<str>,
        /// Why, model by model, and the way out.
        problem: String,
    },
    /// The agent cannot be put together.
    #[error("the agent `{agent}` cannot be put together")]
    Build {
        /// The agent.
        agent: Arc<str>,
        /// Why.
        #[source]
        source: Box<levity_loop::Error>,
    },
    /// The defaults cannot be written.
    #[error("`{}` cannot be written", .path.display())]
    Write {
        /// The folder or the file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl CatalogueError {
    /// Whether trying again may help: never, as long as the files and the parts stay as they are.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Where in a config something is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The file, where it is in one.
    pub file: Option<PathBuf>,
    /// The line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// The agent, where it belongs to one.
    pub agent: Option<Arc<str>>,
}

impl Place {
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

/// The beginning of a message: `agents/agent_config.yaml, line 3: agent `Coder`: `.
impl fmt::Display for Place {
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

/// Something that an agent names and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The agent.
    pub agent: Arc<str>,
    /// What is not there.
    pub part: AgentPart,
    /// Whether the agent cannot be built without it; otherwise it does without, and its prompt says
    /// so.
    pub needed: bool,
}

/// What an agent is built of, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AgentPart {
    /// An MCP server.
    Server(Arc<str>),
    /// A tool.
    Tool(Arc<str>),
    /// One of its models.
    Model(Arc<str>),
    /// What runs Python.
    Code,
}

impl fmt::Display for AgentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(name) => write!(f, "the MCP server `{name}`"),
            Self::Tool(name) => write!(f, "the tool `{name}`"),
            Self::Model(name) => write!(f, "the model `{name}`"),
            Self::Code => f.write_str("something that runs Python"),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.needed {
            "cannot be built without"
        } else {
            "does without"
        };
        write!(f, "`{}` {what} {}", self.agent, self.part)
    }
}

impl From<CatalogueError> for levity_core::Error {
    fn from(error: CatalogueError) -> Self {
        Self::config(error)
    }
}
