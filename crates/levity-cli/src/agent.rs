//! The agent that the commands run.
//!
//! `AgentShape` and `Common` hold the options that define an agent; `run`, `chat`, `serve`,
//! `bridge` and `runs resume` build the same agent from them. Teams and swarms use `Common` alone,
//! since their agents have instructions of their own.
//!
//! Defaults: the instructions "Be brief.", 10 turns, the tools clock, `ask_user` and waiting up to
//! 30 days, retries around each model. Without any model in the environment a scripted model
//! demonstrates a tool call, so the first call of a new user works without a key.
//!
//! Notes about the agent go to a place that depends on the output: standard output carries an
//! answer, JSON or a protocol, and nothing may mix with the last two.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum};
use levity::agent::{AgentBuilder, ModelPlanner, ModelReflector, RuleReflector};
use levity::core::{Part, Response, Role, ToolCall};
use levity::llm::{Error as ModelsError, ModelExt as _, Models};
use levity::prelude::*;
use levity::test::{FunctionModel, ScriptedModel};
use levity::tools::{Policy, Rule};
use serde_json::json;

use crate::given::Given;
use crate::logs::LogArgs;
use crate::mcp::{McpArgs, McpServers};
use crate::memory;
use crate::options::{Layers, RunOptions, place_of};
use crate::recall::AnswerStore;
use crate::settings;
use crate::terminal::{chain, note, print_text, read_text};
use crate::tools::ToolArgs;

/// The longest time that the model may wait in one call.
///
/// A longer wait would outlive most processes; with `--park` the run lies in its journal meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 86_400);

/// The options for an agent and its output.
#[derive(Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    pub(crate) shape: AgentShape,
    /// SQLite file (`*.db`) in which answers are stored, and found again for later goals.
    #[arg(long, value_name = "FILE")]
    pub(crate) recall: Option<PathBuf>,
    /// Park the run in its journal when it only waits for a person or a time.
    #[arg(long)]
    pub(crate) park: bool,
    /// Print every event as one JSON object per line, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only the answer.
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

/// The options that define the agent.
#[derive(Args)]
pub(crate) struct AgentShape {
    /// Instructions for the model, placed before everything else [default: Be brief.].
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// Store conversations in this folder, SQLite file (`*.db`) or JSON file (`*.json`, one
    /// conversation).
    #[arg(long, value_name = "PATH")]
    pub(crate) memory: Option<PathBuf>,
    /// Let the agent plan before it acts: `model` asks its model for a list of steps first
    /// [default: off].
    #[arg(long, value_enum, value_name = "HOW")]
    planner: Option<PlannerName>,
    /// Let the agent review each turn: `model` asks its model what is missing, and `rules` adds
    /// advice when a built-in tool fails [default: off].
    #[arg(long, value_enum, value_name = "HOW")]
    reflector: Option<ReflectorName>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The ways in which an agent plans.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlannerName {
    /// The model writes a list of steps, in one more call.
    Model,
    /// The goal is not planned.
    Off,
}

/// The ways in which an agent reviews its turns.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReflectorName {
    /// The model reviews each turn, in one more call.
    Model,
    /// Rules add advice when a built-in tool fails, without a call.
    Rules,
    /// Turns are not reviewed.
    Off,
}

/// The advice of `--reflector rules`: a tool, and the note for the model when it fails.
const ADVICE: [(&str, &str); 5] = [
    (
        "edit_file",
        "Read the file again before the next edit: its text differs from what you expect.",
    ),
    (
        "read_file",
        "List or search the files before you guess another path.",
    ),
    (
        "run_command",
        "Read the error of the command; change the command before you repeat it.",
    ),
    (
        "run_python",
        "Read the error of the code; change the code before you run it again.",
    ),
    ("web_fetch", "Use another address, or search for one."),
];

/// Returns a reflector with rules for the built-in tools.
fn rules() -> RuleReflector {
    let rules = RuleReflector::new();
    ADVICE
        .iter()
        .fold(rules, |rules, (tool, note)| rules.when_fails(*tool, *note))
}

/// The options for one agent alone and for the agents of a team or a swarm.
#[derive(Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) tools: ToolArgs,
    #[command(flatten)]
    pub(crate) mcp: McpArgs,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
    /// Ask for approval before any agent calls this tool; may be given more than once.
    #[arg(long, value_name = "TOOL")]
    pub(crate) ask: Vec<String>,
    /// Maximum number of turns that an agent may take for its task; the last turn has no tools
    /// [default: 10; in a team 15; in a swarm 20, its coder 40].
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_turns: Option<u64>,
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

impl Common {
    /// Returns the rules of `--ask`.
    ///
    /// The rules add to the hints and policies of the tools, and never allow a call.
    pub(crate) fn approval_rules(&self) -> impl Iterator<Item = Rule> {
        self.ask
            .iter()
            .map(|tool| Rule::tool(tool.clone()).ask("`--ask` requires approval"))
    }
}

/// The destination of notes about an agent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoteOutput {
    /// The standard output, together with other output.
    Stdout,
    /// Nowhere, except for warnings: the standard output carries only the answer.
    Quiet,
    /// Nowhere, except for warnings and text that the workspace adds to the prompt: the standard
    /// output carries JSON.
    Json,
    /// The standard error: the standard output belongs to a protocol or to the log of a server.
    Stderr,
}

impl NoteOutput {
    /// Prints a note that a user may miss without harm.
    fn write(self, text: &str) {
        match self {
            Self::Stdout => print_text(&format!("({text})\n")),
            Self::Quiet | Self::Json => {}
            Self::Stderr => note(text),
        }
    }

    /// Prints a warning that something is missing.
    fn warn(self, text: &str) {
        match self {
            Self::Stdout => self.write(text),
            Self::Quiet | Self::Json | Self::Stderr => note(text),
        }
    }
}

/// The choice of a model.
#[derive(Args)]
pub(crate) struct ModelArgs {
    /// Model to use, as `provider:model`, `provider:model@URL` or a profile; by default, the model
    /// that the environment offers.
    #[arg(long, value_name = "SPEC", conflicts_with = "script")]
    model: Option<String>,
    /// JSON file of replies for a scripted model. Without a script and without a model, levity runs
    /// a short demonstration.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Describe the tools in the prompt, and read the calls from the text of the replies; for
    /// models and servers without tool calls of their own.
    #[arg(long, help_heading = "Models")]
    text_tools: bool,
}

/// Adds two numbers and returns their sum.
#[tool(read_only)]
async fn add(
    /** left */
    a: f64,
    /** right */
    b: f64,
) -> f64 {
    a + b
}

impl AgentArgs {
    /// Builds the agent with this runtime, and returns it with the MCP servers that run beside it.
    ///
    /// # Errors
    /// The model, a tool, an MCP config or the memory cannot be opened, or the parts contradict
    /// each other. Commands report each as a wrong call.
    pub(crate) async fn build(
        &self,
        runtime: Runtime,
        extras: &Extras,
    ) -> Result<(Agent, McpServers), String> {
        let (agent, mcp_servers) = self.builder(runtime, extras).await?;
        mcp_servers.beside(extras.finish(agent)).await
    }

    /// Opens the file of `--recall`.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn extras(&self, given: Given) -> Result<Extras, String> {
        let recall = AnswerStore::open(self.recall.as_deref())?;
        Ok(Extras { given, recall })
    }

    /// Returns the agent before it is built.
    pub(crate) async fn builder(
        &self,
        runtime: Runtime,
        extras: &Extras,
    ) -> Result<(AgentBuilder, McpServers), String> {
        let notes = match (self.quiet, self.json) {
            (true, _) => NoteOutput::Quiet,
            (_, true) => NoteOutput::Json,
            _ => NoteOutput::Stdout,
        };
        let (mut agent, mcp_servers) = self.shape.builder(runtime, notes).await?;
        if let Some((recall, scope)) = extras.recall.as_ref().map(AnswerStore::parts) {
            agent = agent.recall(recall, [scope]);
        }
        if let Some(tool) = extras.given.tool(|text| notes.warn(text)) {
            agent = agent.tools(vec![tool]);
        }
        Ok((agent, mcp_servers))
    }
}

/// The parts of an agent beside the options that define it: the images and files of its goal, and
/// the answers of earlier goals.
pub(crate) struct Extras {
    pub(crate) given: Given,
    pub(crate) recall: Option<AnswerStore>,
}

impl Extras {
    /// Builds the agent.
    ///
    /// # Errors
    /// The parts of the agent contradict each other, or its model does not accept the images.
    pub(crate) fn finish(&self, agent: AgentBuilder) -> Result<Agent, String> {
        let agent = agent.build().map_err(|error| chain(&error))?;
        self.given.check(agent.card())?;
        Ok(agent)
    }
}

impl AgentShape {
    /// Returns the names of the given options that only a single agent has.
    ///
    /// Teams and swarms refuse these options, since they would have no effect on them.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        let instructions = self.instructions.as_ref().map(|_| "--instructions");
        let memory = self.memory.as_ref().map(|_| "--memory");
        let planner = self.planner.map(|_| "--planner");
        let reflector = self.reflector.map(|_| "--reflector");
        [instructions, memory, planner, reflector]
            .into_iter()
            .flatten()
    }

    /// Returns the agent before it is built. Without `--memory` the agent has no memory, because a
    /// run of a conversation must not resume as if the conversation were empty.
    ///
    /// # Errors
    /// Returns an error if no model can be opened, if the store of `--memory`, the workspace or a
    /// folder of tools cannot be opened, or if the config of MCP servers names none that can start.
    pub(crate) async fn builder(
        &self,
        runtime: Runtime,
        notes: NoteOutput,
    ) -> Result<(AgentBuilder, McpServers), String> {
        let mut is_demo = self.common.model.script.is_some();
        let model = self.common.model.open(
            &self.common.options,
            |text| notes.write(text),
            || {
                is_demo = true;
                Arc::new(demonstration())
            },
        )?;
        let (agent, mcp_servers) = self.with_model(model, runtime, notes).await?;
        // A tool that scripts and the demonstration can call on every system.
        Ok((if is_demo { agent.tool(add) } else { agent }, mcp_servers))
    }

    /// Returns the agent with `model` instead of the model that the options name.
    ///
    /// MCP servers are started last, when every other option has been checked.
    pub(crate) async fn with_model(
        &self,
        model: Arc<dyn Model>,
        runtime: Runtime,
        notes: NoteOutput,
    ) -> Result<(AgentBuilder, McpServers), String> {
        let common = &self.common;
        let mut agent = common
            .options
            .add_to(Agent::builder(model.clone()), &model)
            .instructions(self.instructions.as_deref().unwrap_or("Be brief."))
            .allow_wait(LONGEST_WAIT)
            .ask_user()
            .policy(common.approval_rules().fold(Policy::new(), Policy::rule))
            .max_turns(common.max_turns.unwrap_or(10));
        if let Some(path) = &self.memory {
            agent = agent.conversations(memory::conversations(memory::open(path)?, &runtime));
        }
        if self.planner == Some(PlannerName::Model) {
            agent = agent.planner(ModelPlanner::new());
        }
        agent = match self.reflector {
            Some(ReflectorName::Model) => agent.reflector(ModelReflector::new()),
            Some(ReflectorName::Rules) => agent.reflector(rules()),
            Some(ReflectorName::Off) | None => agent,
        };
        let quiet = notes == NoteOutput::Quiet;
        let agent = common
            .tools
            .add_to(agent.runtime(runtime), quiet, |text| notes.warn(text))?;
        let mcp_servers = common.mcp.start(|text| notes.warn(text)).await?;
        Ok((mcp_servers.add_to(agent), mcp_servers))
    }
}

impl ModelArgs {
    /// Opens the model inside its layers. `report` receives its name if the options do not name it,
    /// and `fallback` makes the model if none is configured.
    ///
    /// The order is fixed: a script, a named model, the model of the environment, the fallback. A
    /// scripted model finds its position by the history, so a resumed run continues where it
    /// stopped.
    pub(crate) fn open(
        &self,
        options: &RunOptions,
        report: impl Fn(&str),
        fallback: impl FnOnce() -> Arc<dyn Model>,
    ) -> Result<Arc<dyn Model>, String> {
        // A resumed run continues the script at its own position.
        let model = match self.scripted()? {
            Some(script) => (
                Arc::new(script.by_history()) as Arc<dyn Model>,
                String::new(),
            ),
            None => self.choose(&report, fallback)?,
        };
        self.around(model, options, report)
    }

    /// Opens a model that many agents call: its script has one reply for each call, not for each
    /// turn of an agent.
    pub(crate) fn open_shared(
        &self,
        options: &RunOptions,
        report: impl Fn(&str),
        fallback: impl FnOnce() -> Arc<dyn Model>,
    ) -> Result<Arc<dyn Model>, String> {
        let model = match self.scripted()? {
            Some(script) => (Arc::new(script) as Arc<dyn Model>, String::new()),
            None => self.choose(&report, fallback)?,
        };
        self.around(model, options, report)
    }

    /// Chooses the model, and identifies its server.
    ///
    /// A missing model is the only error that leads to the demonstration; an invalid key or file is
    /// reported.
    fn choose(
        &self,
        report: impl Fn(&str),
        fallback: impl FnOnce() -> Arc<dyn Model>,
    ) -> Result<(Arc<dyn Model>, String), String> {
        let models = crate::models::from_env()?;
        if let Some(name) = &self.model {
            let found = find(&models, name).map_err(name_settings)?;
            warn_of_settings(name);
            return Ok(found);
        }
        match models.choose() {
            Ok(chosen) => {
                report(&chosen.to_string());
                warn(chosen.address_from_file());
                let place = place_of("", chosen.address_from_file());
                Ok((with_retries(chosen.into_model()), place))
            }
            Err(ModelsError::NoModel { .. }) => {
                report("no model is configured: a scripted model gives a demonstration");
                Ok((fallback(), String::new()))
            }
            Err(error) => Err(chain(&error)),
        }
    }
}

impl ModelArgs {
    /// Opens another model by its name, inside the same layers.
    #[cfg(feature = "serve")]
    pub(crate) fn open_other(
        &self,
        name: &str,
        options: &RunOptions,
        report: impl Fn(&str),
    ) -> Result<Arc<dyn Model>, String> {
        let found = find(&crate::models::from_env()?, name)?;
        self.around(found, options, report)
    }

    /// Wraps a model in the layers that the options request.
    ///
    /// Checks the price for `--limit-cost` first, before the folder of the cache is created.
    fn around(
        &self,
        (model, place): (Arc<dyn Model>, String),
        options: &RunOptions,
        report: impl Fn(&str),
    ) -> Result<Arc<dyn Model>, String> {
        options.check_price(&*model)?;
        let layers = self.layers(options)?;
        if let Some(text) = layers.note(&*model) {
            report(&text);
        }
        Ok(layers.around(model, &place))
    }

    /// Returns the layers for models, with that of `--text-tools`.
    ///
    /// # Errors
    /// A folder for the layers cannot be created.
    pub(crate) fn layers(&self, options: &RunOptions) -> Result<Layers, String> {
        Ok(options.layers()?.text_tools(self.text_tools))
    }

    /// Reads the script, if one is given; its replies are used in the order of the calls.
    ///
    /// # Errors
    /// Returns an error that names the file if it cannot be read or is not a script.
    fn scripted(&self) -> Result<Option<ScriptedModel>, String> {
        let Some(path) = &self.script else {
            return Ok(None);
        };
        let text = settings::control_text("script", path).unwrap_or_else(|| read_text(path))?;
        let model = ScriptedModel::from_json(&text);
        let model = model.map_err(|error| format!("`{}`: {}", path.display(), chain(&error)))?;
        // A script answers any goal, also one with images.
        let mut card = model.card().clone();
        card.capabilities.images = true;
        Ok(Some(model.with_card(card)))
    }
}

/// Returns a model by its name, and identifies its server.
fn find(models: &Models, name: &str) -> Result<(Arc<dyn Model>, String), String> {
    let model = models.model(name).map_err(|error| chain(&error))?;
    let address = models.address_from_file(name);
    warn(address.as_deref());
    Ok((with_retries(model), place_of(name, address.as_deref())))
}

/// Prints the address of a model if a file sets it, once and even with `--quiet`: that server sees
/// the conversation.
pub(crate) fn warn(address: Option<&str>) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(address) = address else { return };
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.insert(address.to_owned()) {
        note(&format!("the model is {address}"));
    }
}

/// Prints the model if `levity.toml` sets it, for the same reason.
pub(crate) fn warn_of_settings(name: &str) {
    if settings::is_supplied("model") {
        warn(Some(&format!(
            "`{name}`, set by `model` in `{}`",
            settings::FILE
        )));
    }
}

/// Adds the line that is at fault if `levity.toml` sets the model.
fn name_settings(problem: String) -> String {
    match settings::is_supplied("model") {
        true => format!("{problem} (set by `model` in `{}`)", settings::FILE),
        false => problem,
    }
}

/// The library's default retries; scripted models and demonstrations have none.
pub(crate) fn with_retries(model: Arc<dyn Model>) -> Arc<dyn Model> {
    Arc::new(model.retry())
}

/// Makes a model that calls `add` once for any input, and then explains that it is scripted.
///
/// It looks only at the messages since the last prompt, so it works for every prompt of a
/// conversation.
fn demonstration() -> FunctionModel {
    FunctionModel::new(|request| {
        let since = request
            .history
            .messages()
            .iter()
            .rev()
            .take_while(|message| message.role != Role::User);
        let called = since.into_iter().any(|message| message.role == Role::Tool);
        let text = "A scripted model cannot answer this. It only called `add` to show a tool call.";
        let call = || Part::ToolCall(ToolCall::new("", "add", json!({"a": 2, "b": 5})));
        Ok(Response::new(match called {
            true => Message::assistant(text),
            false => Message::new(Role::Assistant, [call()]),
        }))
    })
}
