use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::text::bare_model_name;
use levity_dag::Budget;

use super::error::AgentPart;

/// An agent as the catalogue knows it.
///
/// ```
/// use levity_agents::{Catalogue, CatalogEntry};
///
/// let translator = CatalogEntry::new("Translator", "Translate the text into the language that the task names.")
///     .description("Translates texts")
///     .max_turns(3);
/// let agents = Catalogue::defaults().with(translator);
/// assert_eq!(agents.find("translator").map(|entry| entry.max_turns), Some(3));
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct CatalogEntry {
    /// Its name.
    pub name: Arc<str>,
    /// What it is good for, for the planner.
    pub description: Arc<str>,
    /// What it is told before everything else.
    pub prompt: Arc<str>,
    /// Its models by name, cheapest first: the first that can be had is used. Empty means the
    /// default model.
    pub models: Vec<Arc<str>>,
    /// The MCP servers whose tools it has; see [`NamedPart::ALL`] and [`NamedPart::READ_ONLY`] for
    /// those that are not named.
    pub servers: Vec<NamedPart>,
    /// The tools that it has beside those, in the same way.
    pub tools: Vec<NamedPart>,
    /// How many turns a run of it may take; [`MAX_TURNS`](Self::MAX_TURNS) by default.
    pub max_turns: u64,
    /// What a run of it may use; what is not said is as for all.
    pub budget: Option<Budget>,
    /// How long a run of it may take; not limited by default.
    pub timeout: Option<Duration>,
    /// Whether it may ask the user.
    pub ask_user: bool,
    /// Whether its results are verdicts on the work of others.
    pub judges: bool,
    /// Whether it may run Python.
    pub code: Option<Requirement>,
    /// Whether calls of tools that it writes as text are understood; they are by default.
    pub text_tools: bool,
    /// Whether it takes part; by default.
    pub enabled: bool,
}

/// Whether an agent can be built without something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// It cannot.
    Must,
    /// It takes it when it is there, and does without otherwise.
    IfThere,
}

/// A server or a tool that an agent names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedPart {
    /// The name.
    pub name: Arc<str>,
    /// Whether the agent can be built without it.
    pub need: Requirement,
}

impl NamedPart {
    /// In place of a name: everything that there is.
    pub const ALL: &'static str = "*";
    /// In place of a name: every tool that is hinted read-only, or those of every server.
    pub const READ_ONLY: &'static str = "*:read_only";

    /// Whether it stands for whatever there is, which is never missing.
    pub(super) fn is_pattern(&self) -> bool {
        matches!(&*self.name, Self::ALL | Self::READ_ONLY)
    }

    /// As it is written in a config: a `?` at the end says that the agent can do without.
    pub fn new(name: &str) -> Self {
        match name.strip_suffix('?') {
            Some(name) => Self {
                name: name.trim_end().into(),
                need: Requirement::IfThere,
            },
            None => Self {
                name: name.into(),
                need: Requirement::Must,
            },
        }
    }
}

impl CatalogEntry {
    /// 15 turns.
    pub const MAX_TURNS: u64 = 15;

    /// An agent without tools, on the default model. Without a description, the first line of the
    /// prompt is one.
    pub fn new(name: impl Into<Arc<str>>, prompt: impl Into<Arc<str>>) -> Self {
        let prompt = prompt.into();
        Self {
            name: name.into(),
            description: first_line(&prompt),
            prompt,
            models: Vec::new(),
            servers: Vec::new(),
            tools: Vec::new(),
            max_turns: Self::MAX_TURNS,
            budget: None,
            timeout: None,
            ask_user: false,
            judges: false,
            code: None,
            text_tools: true,
            enabled: true,
        }
    }

    /// What it is good for, for the planner.
    #[must_use]
    pub fn description(mut self, text: impl Into<Arc<str>>) -> Self {
        self.description = text.into();
        self
    }

    /// Its models by name, cheapest first.
    #[must_use]
    pub fn models<N: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.models = names.into_iter().map(Into::into).collect();
        self
    }

    /// The MCP servers whose tools it has. A `?` at the end of a name says that it can do without;
    /// `*` is all there are, and `*:read_only` is what is hinted read-only of all.
    #[must_use]
    pub fn servers<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.servers = names
            .into_iter()
            .map(|name| NamedPart::new(name.as_ref()))
            .collect();
        self
    }

    /// The tools that it has. A `?` at the end of a name says that it can do without; `*` is all
    /// there are, and `*:read_only` those that are hinted read-only.
    #[must_use]
    pub fn tools<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.tools = names
            .into_iter()
            .map(|name| NamedPart::new(name.as_ref()))
            .collect();
        self
    }

    /// How many turns a run of it may take.
    #[must_use]
    pub fn max_turns(mut self, turns: u64) -> Self {
        self.max_turns = turns;
        self
    }

    /// What a run of it may use.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// How long a run of it may take.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Lets it ask the user.
    #[must_use]
    pub fn ask_user(mut self) -> Self {
        self.ask_user = true;
        self
    }

    /// Takes its results for verdicts on the work of others.
    #[must_use]
    pub fn judges(mut self) -> Self {
        self.judges = true;
        self
    }

    /// Lets it run Python.
    #[must_use]
    pub fn code(mut self, need: Requirement) -> Self {
        self.code = Some(need);
        self
    }

    /// Takes calls of tools only as the model's own, not as text.
    #[must_use]
    pub fn without_text_tools(mut self) -> Self {
        self.text_tools = false;
        self
    }

    /// All that it names, with whether it is needed. Models are not among it: one of them is
    /// enough.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (AgentPart, Requirement)> + '_ {
        let named = |list: &'_ [NamedPart]| {
            list.iter()
                .filter(|wanted| !wanted.is_pattern())
                .cloned()
                .collect::<Vec<_>>()
        };
        let servers = named(&self.servers)
            .into_iter()
            .map(|wanted| (AgentPart::Server(wanted.name), wanted.need));
        let tools = named(&self.tools)
            .into_iter()
            .map(|wanted| (AgentPart::Tool(wanted.name), wanted.need));
        servers
            .chain(tools)
            .chain(self.code.map(|need| (AgentPart::Code, need)))
    }
}

/// Shows what there is of it, and nothing of the prompt.
impl fmt::Debug for CatalogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models: Vec<_> = self
            .models
            .iter()
            .map(|name| bare_model_name(name))
            .collect();
        f.debug_struct("CatalogEntry")
            .field("name", &self.name)
            .field("models", &models)
            .field("servers", &self.servers)
            .field("tools", &self.tools)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// The first line of a prompt that says something.
fn first_line(prompt: &str) -> Arc<str> {
    const LONGEST: usize = 200;
    let lines = prompt
        .lines()
        .map(|line| line.trim_start_matches('#').trim());
    let line = lines
        .into_iter()
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    line.chars().take(LONGEST).collect::<String>().into()
}
