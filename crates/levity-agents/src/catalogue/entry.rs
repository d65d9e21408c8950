//! The entry of an agent: its settings as plain data, without models and tools themselves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levity_core::text::bare_model_name;
use levity_dag::Budget;

use super::error::AgentPart;

/// The entry of an agent in a catalogue.
///
/// ```
/// use levity_agents::{Catalogue, CatalogueEntry};
///
/// let prompt = "Translate the text into the language that the task names.";
/// let translator = CatalogueEntry::new("Translator", prompt)
///     .description("Translates texts")
///     .max_turns(3);
/// let agents = Catalogue::defaults().with(translator);
/// assert_eq!(agents.find("translator").map(|entry| entry.max_turns), Some(3));
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct CatalogueEntry {
    /// The name of the agent.
    pub name: Arc<str>,
    /// The description of its purpose, for the planner.
    pub description: Arc<str>,
    /// The system prompt of the agent.
    pub prompt: Arc<str>,
    /// The names of its models, cheapest first. The first available one is used; if the list is
    /// empty, the default model.
    pub models: Vec<Arc<str>>,
    /// The MCP servers whose tools it gets; see [`NamedPart::ALL`] and [`NamedPart::READ_ONLY`] for
    /// patterns.
    pub servers: Vec<NamedPart>,
    /// The other tools that it gets, with the same patterns.
    pub tools: Vec<NamedPart>,
    /// The maximum number of turns in a run; [`MAX_TURNS`](Self::MAX_TURNS) by default.
    pub max_turns: u64,
    /// The budget of a run; unset limits are those of all agents.
    pub budget: Option<Budget>,
    /// The time limit of a run; unlimited by default.
    pub timeout: Option<Duration>,
    /// Set if it may ask the user.
    pub ask_user: bool,
    /// Set if its results are verdicts on the work of others.
    pub judges: bool,
    /// The permission to run Python, and whether it is required.
    pub code: Option<Requirement>,
    /// Set if tool calls written as text are parsed; the default.
    pub text_tools: bool,
    /// Set if the agent is enabled; the default.
    pub enabled: bool,
}

/// The need of an agent for a part.
///
/// ```
/// use levity_agents::{AgentParts, Catalogue, CatalogueEntry, Requirement};
/// use levity_test::ScriptedModel;
///
/// let parts = AgentParts::new(ScriptedModel::new()); // without a program that runs Python
/// let counter = |need| {
///     Catalogue::empty().with(CatalogueEntry::new("Counter", "Count.").code(need))
/// };
/// assert!(counter(Requirement::Optional).build("Counter", &parts).is_ok());
/// assert!(counter(Requirement::Required).build("Counter", &parts).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// The agent cannot be built without it.
    Required,
    /// The agent uses the part if it is available, and works without it otherwise.
    Optional,
}

/// A server or tool that an agent names.
///
/// ```
/// use levity_agents::{NamedPart, Requirement};
///
/// let browser = NamedPart::new("browser?");
/// assert_eq!((&*browser.name, browser.requirement), ("browser", Requirement::Optional));
/// assert_eq!(NamedPart::new("browser").requirement, Requirement::Required);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedPart {
    /// The name of the part.
    pub name: Arc<str>,
    /// The need of the agent for the part.
    pub requirement: Requirement,
}

impl NamedPart {
    /// A pattern in place of a name: all parts.
    pub const ALL: &'static str = "*";
    /// A pattern in place of a name: all tools with the read-only hint, of any server.
    pub const READ_ONLY: &'static str = "*:read_only";

    /// Returns `true` for a pattern, which is never missing.
    pub(super) fn is_pattern(&self) -> bool {
        matches!(&*self.name, Self::ALL | Self::READ_ONLY)
    }

    /// Parses a name as written in a config: a trailing `?` makes the part optional.
    pub fn new(name: &str) -> Self {
        match name.strip_suffix('?') {
            Some(name) => Self {
                name: name.trim_end().into(),
                requirement: Requirement::Optional,
            },
            None => Self {
                name: name.into(),
                requirement: Requirement::Required,
            },
        }
    }
}

impl CatalogueEntry {
    /// The default number of turns in a run.
    pub const MAX_TURNS: u64 = 15;

    /// Creates an agent with the default model and no tools. The first line of the prompt is the
    /// default description.
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

    /// Sets the description of its purpose, for the planner.
    #[must_use]
    pub fn description(mut self, text: impl Into<Arc<str>>) -> Self {
        self.description = text.into();
        self
    }

    /// Sets the names of its models, cheapest first.
    ///
    /// The first available model is used for the whole run; the others are no fallbacks for failed
    /// calls.
    #[must_use]
    pub fn models<N: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.models = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the MCP servers whose tools it gets. A trailing `?` makes a server optional. `*` is all
    /// servers, and `*:read_only` all of their tools with the read-only hint.
    #[must_use]
    pub fn servers<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.servers = names
            .into_iter()
            .map(|name| NamedPart::new(name.as_ref()))
            .collect();
        self
    }

    /// Sets the tools that it gets. A trailing `?` makes a tool optional. `*` is all tools, and
    /// `*:read_only` those with the read-only hint.
    ///
    /// ```
    /// use levity_agents::{AgentParts, Catalogue, CatalogueEntry};
    /// use levity_test::ScriptedModel;
    ///
    /// let entry = CatalogueEntry::new("Reader", "Read.").tools(["search", "fetch?"]);
    /// let parts = AgentParts::new(ScriptedModel::new());
    /// let missing = Catalogue::empty().with(entry).missing(&parts);
    /// let required: Vec<bool> = missing.iter().map(|missing| missing.required).collect();
    /// assert_eq!(required, [true, false]);
    /// ```
    #[must_use]
    pub fn tools<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.tools = names
            .into_iter()
            .map(|name| NamedPart::new(name.as_ref()))
            .collect();
        self
    }

    /// Sets the maximum number of turns in a run.
    #[must_use]
    pub fn max_turns(mut self, turns: u64) -> Self {
        self.max_turns = turns;
        self
    }

    /// Sets the budget of a run.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Sets the time limit of a run.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Allows the agent to ask the user.
    #[must_use]
    pub fn ask_user(mut self) -> Self {
        self.ask_user = true;
        self
    }

    /// Marks its results as verdicts on the work of others.
    ///
    /// After a negative verdict, a team repeats the judged work or changes its plan.
    #[must_use]
    pub fn judges(mut self) -> Self {
        self.judges = true;
        self
    }

    /// Allows the agent to run Python.
    #[must_use]
    pub fn code(mut self, need: Requirement) -> Self {
        self.code = Some(need);
        self
    }

    /// Accepts only native tool calls, not calls written as text.
    #[must_use]
    pub fn without_text_tools(mut self) -> Self {
        self.text_tools = false;
        self
    }

    /// Iterates over the parts that the entry names, and whether each is required. Models are not
    /// included, because one of them is enough.
    pub(super) fn named_parts(&self) -> impl Iterator<Item = (AgentPart, Requirement)> + '_ {
        let named = |list: &'_ [NamedPart]| {
            list.iter()
                .filter(|named_parts| !named_parts.is_pattern())
                .cloned()
                .collect::<Vec<_>>()
        };
        let servers = named(&self.servers)
            .into_iter()
            .map(|named_parts| (AgentPart::Server(named_parts.name), named_parts.requirement));
        let tools = named(&self.tools)
            .into_iter()
            .map(|named_parts| (AgentPart::Tool(named_parts.name), named_parts.requirement));
        servers
            .chain(tools)
            .chain(self.code.map(|need| (AgentPart::Code, need)))
    }
}

/// Formats the entry without its prompt.
impl fmt::Debug for CatalogueEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models: Vec<_> = self
            .models
            .iter()
            .map(|name| bare_model_name(name))
            .collect();
        f.debug_struct("CatalogueEntry")
            .field("name", &self.name)
            .field("models", &models)
            .field("servers", &self.servers)
            .field("tools", &self.tools)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// Returns the first non-empty line of a prompt.
///
/// Heading marks are removed, and the line is cut after 200 characters.
fn first_line(prompt: &str) -> Arc<str> {
    const MAX_LENGTH: usize = 200;
    let lines = prompt
        .lines()
        .map(|line| line.trim_start_matches('#').trim());
    let line = lines
        .into_iter()
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    line.chars().take(MAX_LENGTH).collect::<String>().into()
}
