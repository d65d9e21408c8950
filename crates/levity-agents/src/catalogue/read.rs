//! Parsing of agent settings in a config.
//!
//! A config is parsed into [`Patch`]es, not into entries: a setting that is absent must not reset
//! the one of the default agent. Unknown settings are errors with a suggestion. A null value counts
//! as absent, so a setting can be commented out below its name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use levity_core::Money;
use levity_dag::__private::{near, short};
use levity_dag::Budget;

use super::entry::{CatalogueEntry, NamedPart, Requirement};
use super::error::{CatalogueError, ConfigLocation};
use super::node::{ConfigError, Key, Node, Value};

/// All settings of an agent, in the order in which errors list them.
const KEYS: [&str; 14] = [
    "prompt_file",
    "prompt",
    "model",
    "mcp_servers",
    "tools",
    "description",
    "max_turns",
    "budget",
    "timeout",
    "ask_user",
    "judges",
    "code",
    "text_tools",
    "enabled",
];
/// All settings of a budget.
const BUDGET: [&str; 4] = ["tokens", "money", "model_calls", "tool_calls"];

/// The settings of one agent in a config; all others stay unchanged.
#[derive(Debug)]
pub(super) struct Patch {
    pub(super) name: Arc<str>,
    pub(super) line: Option<usize>,
    pub(super) prompt: Option<Prompt>,
    changes: Vec<Change>,
}

/// The location of an agent's prompt.
#[derive(Debug, PartialEq)]
pub(super) enum Prompt {
    Inline(Arc<str>),
    File { path: String, line: Option<usize> },
}

/// One setting with its new value.
#[derive(Debug)]
enum Change {
    Models(Vec<Arc<str>>),
    Servers(Vec<NamedPart>),
    Tools(Vec<NamedPart>),
    Description(Arc<str>),
    MaxTurns(u64),
    Budget(Budget),
    Timeout(Duration),
    AskUser(bool),
    Judges(bool),
    Code(Option<Requirement>),
    TextTools(bool),
    Enabled(bool),
}

impl Patch {
    /// Applies the settings to an entry.
    pub(super) fn apply(self, entry: &mut CatalogueEntry) {
        for change in self.changes {
            match change {
                Change::Models(models) => entry.models = models,
                Change::Servers(servers) => entry.servers = servers,
                Change::Tools(tools) => entry.tools = tools,
                Change::Description(text) => entry.description = text,
                Change::MaxTurns(turns) => entry.max_turns = turns,
                Change::Budget(budget) => entry.budget = Some(budget),
                Change::Timeout(time) => entry.timeout = Some(time),
                Change::AskUser(asks) => entry.ask_user = asks,
                Change::Judges(judges) => entry.judges = judges,
                Change::Code(code) => entry.code = code,
                Change::TextTools(text) => entry.text_tools = text,
                Change::Enabled(enabled) => entry.enabled = enabled,
            }
        }
    }
}

/// Parses the agents of a config.
///
/// The agents are at the top level, or below a single key `agents`.
///
/// # Errors
/// Returns [`CatalogueError::Config`] if the document has another shape, and
/// [`CatalogueError::Entry`] for an invalid setting.
pub(super) fn patches(root: Node, file: Option<&Path>) -> Result<Vec<Patch>, CatalogueError> {
    let config = |line, problem: String| CatalogueError::Config {
        at: ConfigLocation::of(file).line(line),
        problem,
    };
    let (line, what) = (root.line, root.value.kind());
    let Value::Map(mut map) = root.value else {
        return Err(config(
            line,
            format!("the config is {what}, not a map; write `Name:` and its settings below it"),
        ));
    };
    if let Some(at) = map.iter().position(|(key, _)| key.text == "agents") {
        let (key, agents) = map.swap_remove(at);
        if let Some((other, _)) = map.first() {
            let problem = format!(
                "the key `{}` is next to `agents`; move it below `agents`",
                short(&other.text)
            );
            return Err(config(other.line, problem));
        }
        let what = agents.value.kind();
        let Value::Map(inner) = agents.value else {
            return Err(config(
                key.line,
                format!("`agents` is {what}, not a map; write `Name:` and its settings below it"),
            ));
        };
        map = inner;
    }
    map.into_iter()
        .map(|(key, node)| patch(&key, node, file))
        .collect()
}

/// Parses one agent. An agent without any settings is valid: it may exist already.
fn patch(key: &Key, node: Node, file: Option<&Path>) -> Result<Patch, CatalogueError> {
    let name: Arc<str> = short(&key.text).into();
    let position = |line: Option<usize>| {
        ConfigLocation::of(file)
            .line(line.or(key.line))
            .agent(name.clone())
    };
    let wrong = |wrong: ConfigError| CatalogueError::Entry {
        at: position(wrong.line),
        problem: wrong.problem,
    };
    check_name(&key.text).map_err(|problem| wrong(ConfigError::new(key.line, problem)))?;
    let mut patch = Patch {
        name: key.text.as_str().into(),
        line: key.line,
        prompt: None,
        changes: Vec::new(),
    };
    let fields = match node.value {
        Value::Map(fields) => fields,
        Value::Null => Vec::new(),
        other => {
            let problem = format!(
                "it is {}, not a map; write `prompt_file: ..` below its name",
                other.kind()
            );
            return Err(wrong(ConfigError::new(node.line, problem)));
        }
    };
    for (field, node) in fields {
        patch.field(&field, node).map_err(wrong)?;
    }
    Ok(patch)
}

/// Names appear in plans, prompts and file names, so they have letters, digits, `_` and `-` only.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.chars().count() > 64 || !name.chars().all(plain) {
        return Err(
            "its name must have 1 to 64 letters, digits, `_` and `-`; rename it".to_owned(),
        );
    }
    Ok(())
}

impl Patch {
    /// Parses one setting and adds it to the changes.
    fn field(&mut self, key: &Key, node: Node) -> Result<(), ConfigError> {
        if node.value == Value::Null && KEYS.contains(&&*key.text) {
            return Ok(());
        }
        let at = Field {
            name: &key.text,
            line: node.line.or(key.line),
        };
        let change = match &*key.text {
            "prompt_file" => {
                return self.set_prompt(
                    &at,
                    Prompt::File {
                        path: at.text(node)?,
                        line: at.line,
                    },
                );
            }
            "prompt" => return self.set_prompt(&at, Prompt::Inline(at.text(node)?.into())),
            "model" => Change::Models(at.names(node)?),
            "mcp_servers" => Change::Servers(at.named_parts(node)?),
            "tools" => Change::Tools(at.named_parts(node)?),
            "description" => Change::Description(at.text(node)?.trim().into()),
            "max_turns" => Change::MaxTurns(at.count(node, 1)?),
            "budget" => Change::Budget(budget(&at, node)?),
            "timeout" => Change::Timeout(at.seconds(node)?),
            "ask_user" => Change::AskUser(at.flag(node)?),
            "judges" => Change::Judges(at.flag(node)?),
            "code" => Change::Code(at.code(node)?),
            "text_tools" => Change::TextTools(at.flag(node)?),
            "enabled" => Change::Enabled(at.flag(node)?),
            other => return Err(unknown(other, key.line, &KEYS)),
        };
        self.changes.push(change);
        Ok(())
    }

    /// An agent has one prompt, inline or in a file.
    fn set_prompt(&mut self, at: &Field<'_>, prompt: Prompt) -> Result<(), ConfigError> {
        if self.prompt.is_some() {
            return Err(ConfigError::new(
                at.line,
                "it has `prompt` and `prompt_file`; keep one",
            ));
        }
        self.prompt = Some(prompt);
        Ok(())
    }
}

/// Returns the error for an unknown setting, with the nearest known one or all of them.
fn unknown(key: &str, line: Option<usize>, keys: &[&str]) -> ConfigError {
    let near = near(key, keys.iter().copied());
    let hint = match near.first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("available: `{}`", keys.join("`, `")),
    };
    ConfigError::new(line, format!("unknown setting `{}`; {hint}", short(key)))
}

/// Parses the limits of a budget; money is in dollars.
fn budget(at: &Field<'_>, node: Node) -> Result<Budget, ConfigError> {
    let what = node.value.kind();
    let Value::Map(fields) = node.value else {
        return Err(at.wrong(format!(
            "is {what}, not a map; write `budget: {{tokens: 50000}}`"
        )));
    };
    let mut budget = Budget::new();
    for (key, node) in fields {
        let name = format!("budget.{}", short(&key.text));
        let at = Field {
            name: &name,
            line: node.line.or(key.line),
        };
        match &*key.text {
            "tokens" => budget = budget.tokens(at.count(node, 0)?),
            "money" => budget = budget.money(Money::from_dollars(at.number(node)?)),
            "model_calls" => budget = budget.model_calls(at.count(node, 0)?),
            "tool_calls" => budget = budget.tool_calls(at.count(node, 0)?),
            other => return Err(unknown(other, key.line, &BUDGET)),
        }
    }
    Ok(budget)
}

/// The setting that is being parsed.
struct Field<'a> {
    name: &'a str,
    line: Option<usize>,
}

impl Field<'_> {
    /// Returns an error that names the setting: `` `timeout` is a text; write a number ``.
    fn wrong(&self, problem: impl AsRef<str>) -> ConfigError {
        ConfigError::new(self.line, format!("`{}` {}", self.name, problem.as_ref()))
    }

    /// Numbers and booleans are not converted: `prompt: true` is more likely a mistake.
    fn text(&self, node: Node) -> Result<String, ConfigError> {
        match node.value {
            Value::Text(text) if !text.trim().is_empty() => Ok(text),
            Value::Text(_) => Err(self.wrong("is empty; fill it or remove it")),
            other => Err(self.wrong(format!(
                "is {}, not a text; put it in quotes if it is one",
                other.kind()
            ))),
        }
    }

    fn flag(&self, node: Node) -> Result<bool, ConfigError> {
        match node.value {
            Value::Bool(value) => Ok(value),
            other => Err(self.wrong(format!("is {}; write `true` or `false`", other.kind()))),
        }
    }

    /// `true` requires Python, `optional` uses it if there is a program.
    fn code(&self, node: Node) -> Result<Option<Requirement>, ConfigError> {
        match node.value {
            Value::Bool(value) => Ok(value.then_some(Requirement::Required)),
            Value::Text(text) if text == "optional" => Ok(Some(Requirement::Optional)),
            other => Err(self.wrong(format!(
                "is {}; write `true`, `false` or `optional`",
                other.kind()
            ))),
        }
    }

    fn number(&self, node: Node) -> Result<f64, ConfigError> {
        match node.value {
            Value::Number(number) if number.is_finite() && (0.0..=1e15).contains(&number) => {
                Ok(number)
            }
            Value::Number(_) => Err(self.wrong("is not between 0 and 1e15; write another number")),
            other => Err(self.wrong(format!("is {}; write a number", other.kind()))),
        }
    }

    /// All numbers are floating point in the document, so a fraction is rejected here.
    fn count(&self, node: Node, min: u64) -> Result<u64, ConfigError> {
        let number = self.number(node)?;
        if number.fract() != 0.0 || number < min as f64 {
            return Err(self.wrong(format!(
                "is not a whole number of at least {min}; write one"
            )));
        }
        Ok(number as u64)
    }

    /// Fractions of a second are allowed; zero is not.
    fn seconds(&self, node: Node) -> Result<Duration, ConfigError> {
        let seconds = self.number(node)?;
        Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|time| !time.is_zero())
            .ok_or_else(|| self.wrong("is not a duration; write a number of seconds above 0"))
    }

    /// Parses a name or a list of names.
    fn names(&self, node: Node) -> Result<Vec<Arc<str>>, ConfigError> {
        let list = match node.value {
            Value::List(list) => list,
            _ => vec![node],
        };
        let name = |node: Node| {
            let at = Field {
                name: self.name,
                line: node.line.or(self.line),
            };
            at.text(node).map(|name| name.trim().into())
        };
        list.into_iter().map(name).collect()
    }

    /// A name may occur once, and `*` only as a whole pattern: `web_*` would silently match
    /// nothing.
    fn named_parts(&self, node: Node) -> Result<Vec<NamedPart>, ConfigError> {
        let names = self.names(node)?;
        let mut all: Vec<NamedPart> = Vec::with_capacity(names.len());
        for wanted in names.iter().map(|name| NamedPart::new(name)) {
            if wanted.name.is_empty() {
                return Err(self.wrong("names nothing; write a name before the `?`"));
            }
            if wanted.name.contains('*') && !wanted.is_pattern() {
                let name = short(&wanted.name);
                let (all, reading) = (NamedPart::ALL, NamedPart::READ_ONLY);
                return Err(self.wrong(format!(
                    "has `{name}`; write a complete name, `{all}` for all, or `{reading}` \
                        for all with the read-only hint"
                )));
            }
            if all.iter().any(|other| other.name == wanted.name) {
                return Err(self.wrong(format!("names `{}` twice; keep one", short(&wanted.name))));
            }
            all.push(wanted);
        }
        Ok(all)
    }
}
