//! The agent that the commands run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use levity::agent::AgentBuilder;
use levity::core::{Part, Response, Role, ToolCall};
use levity::llm::{Error as ModelsError, ModelExt as _};
use levity::prelude::*;
use levity::test::{FunctionModel, ScriptedModel};
use levity::tools::{Policy, Rule};
use serde_json::json;

use crate::logs::LogArgs;
use crate::mcp::{McpArgs, Offered};
use crate::memory;
use crate::options::{RunOptions, place_of};
use crate::terminal::{chain, note, read_text, say};
use crate::tools::ToolArgs;

/// How long the model may wait at a time.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 86_400);

/// What the agent is made of, and how it is shown.
#[derive(Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    pub(crate) made: Made,
    /// Leave the run in its journal when all it does is wait, for a person or a time.
    #[arg(long)]
    pub(crate) park: bool,
    /// Print every event as one JSON object on a line of its own, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the answer alone.
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

/// What the agent is made of.
#[derive(Args)]
pub(crate) struct Made {
    /// Instructions for the model, before everything else [default: Be brief.].
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// Keep conversations in this folder, SQLite file (`*.db`) or JSON file (`*.json`, one
    /// conversation).
    #[arg(long, value_name = "PATH")]
    pub(crate) memory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The parts of agents, whether one works alone or several work in a team or a swarm.
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
    /// Ask before this tool is called, whoever calls it; may be given more than once.
    #[arg(long, value_name = "TOOL")]
    pub(crate) ask: Vec<String>,
    /// The most turns an agent may take for its task; the last one has no tools [default: 10; in a
    /// team 15; in a swarm 20, its coder 40].
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_turns: Option<u64>,
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

impl Common {
    /// The rules of `--ask`.
    pub(crate) fn asked(&self) -> impl Iterator<Item = Rule> {
        self.ask
            .iter()
            .map(|tool| Rule::tool(tool.clone()).ask("it is asked about by `--ask`"))
    }
}

/// Where what is worth knowing about an agent is said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    /// With what is printed.
    Aloud,
    /// Nowhere, unless something is missing: what is printed is the answer alone.
    Quiet,
    /// The same, but for what the workspace adds to what the model is told: what is printed is
    /// JSON.
    Json,
    /// Beside what is printed, which belongs to a protocol or to whoever watches a server.
    Aside,
}

impl Voice {
    fn tell(self, text: &str) {
        match self {
            Self::Aloud => say(&format!("({text})\n")),
            Self::Quiet | Self::Json => {}
            Self::Aside => note(text),
        }
    }

    /// Says what is missing.
    fn warn(self, text: &str) {
        match self {
            Self::Aloud => self.tell(text),
            Self::Quiet | Self::Json | Self::Aside => note(text),
        }
    }
}

/// Which model is asked.
#[derive(Args)]
pub(crate) struct ModelArgs {
    /// The model, as `provider:model` or `provider:model@URL`, or a profile; by default, what the
    /// environment offers.
    #[arg(long, value_name = "SPEC", conflicts_with = "script")]
    model: Option<String>,
    /// A JSON file of replies that a scripted model gives; without it and without a model, a short
    /// demonstration stands in.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

/// Adds two numbers.
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
    /// The agent, driven by this runtime, and the servers that run beside it.
    pub(crate) async fn build(&self, runtime: Runtime) -> Result<(Agent, Offered), String> {
        let (agent, offered) = self.builder(runtime).await?;
        Ok((agent.build().map_err(|error| chain(&error))?, offered))
    }

    /// The agent before it is built.
    pub(crate) async fn builder(
        &self,
        runtime: Runtime,
    ) -> Result<(AgentBuilder, Offered), String> {
        let voice = match (self.quiet, self.json) {
            (true, _) => Voice::Quiet,
            (_, true) => Voice::Json,
            _ => Voice::Aloud,
        };
        self.made.builder(runtime, voice).await
    }
}

impl Made {
    /// An option that only an agent alone has, if one was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let instructions = self.instructions.as_ref().map(|_| "--instructions");
        instructions.or(self.memory.as_ref().map(|_| "--memory"))
    }

    /// The agent before it is built. Without a memory it has none: a run of a conversation must not
    /// go on as if that were empty.
    pub(crate) async fn builder(
        &self,
        runtime: Runtime,
        voice: Voice,
    ) -> Result<(AgentBuilder, Offered), String> {
        let mut is_demo = self.common.model.script.is_some();
        let model = self.common.model.open(
            &self.common.options,
            |text| voice.tell(text),
            || {
                is_demo = true;
                Arc::new(demonstration())
            },
        )?;
        let (agent, offered) = self.with_model(model, runtime, voice).await?;
        // Something that scripts and the demonstration can call wherever they run.
        Ok((if is_demo { agent.tool(add) } else { agent }, offered))
    }

    /// The agent with another model than the one that is named.
    pub(crate) async fn with_model(
        &self,
        model: Arc<dyn Model>,
        runtime: Runtime,
        voice: Voice,
    ) -> Result<(AgentBuilder, Offered), String> {
        let common = &self.common;
        let mut agent = common
            .options
            .add_to(Agent::builder(model.clone()), &model)
            .instructions(self.instructions.as_deref().unwrap_or("Be brief."))
            .waits(LONGEST_WAIT)
            .ask_user()
            .policy(common.asked().fold(Policy::new(), Policy::rule))
            .max_turns(common.max_turns.unwrap_or(10));
        if let Some(path) = &self.memory {
            agent = agent.conversations(memory::conversations(memory::open(path)?, &runtime));
        }
        let quiet = voice == Voice::Quiet;
        let agent = common
            .tools
            .add_to(agent.runtime(runtime), quiet, |text| voice.tell(text))?;
        let offered = common.mcp.start(|text| voice.warn(text)).await?;
        Ok((offered.add_to(agent), offered))
    }
}

impl ModelArgs {
    /// The model with what stands around it; `tell` says which it is when nobody named it, and
    /// `stand_in` stands in when there is none.
    pub(crate) fn open(
        &self,
        options: &RunOptions,
        tell: impl Fn(&str),
        stand_in: impl FnOnce() -> Arc<dyn Model>,
    ) -> Result<Arc<dyn Model>, String> {
        // A run that is gone on with takes up the script where it was.
        let model = match self.scripted()? {
            Some(script) => (
                Arc::new(script.by_history()) as Arc<dyn Model>,
                String::new(),
            ),
            None => self.choose(&tell, stand_in)?,
        };
        around(model, options, tell)
    }

    /// The same, where many agents call the model: a script has a reply for each call and not for
    /// each turn of an agent.
    pub(crate) fn open_shared(
        &self,
        options: &RunOptions,
        tell: impl Fn(&str),
        stand_in: impl FnOnce() -> Arc<dyn Model>,
    ) -> Result<Arc<dyn Model>, String> {
        let model = match self.scripted()? {
            Some(script) => (Arc::new(script) as Arc<dyn Model>, String::new()),
            None => self.choose(&tell, stand_in)?,
        };
        around(model, options, tell)
    }

    /// The model, and where it is.
    fn choose(
        &self,
        tell: impl Fn(&str),
        stand_in: impl FnOnce() -> Arc<dyn Model>,
    ) -> Result<(Arc<dyn Model>, String), String> {
        let models = crate::models::from_env()?;
        if let Some(name) = &self.model {
            let model = models
                .model(name)
                .map(retried)
                .map_err(|error| chain(&error))?;
            let address = models.address_from_file(name);
            warn(address.as_deref());
            return Ok((model, place_of(name, address.as_deref())));
        }
        match models.choose() {
            Ok(chosen) => {
                tell(&chosen.to_string());
                warn(chosen.address_from_file());
                let place = place_of("", chosen.address_from_file());
                Ok((retried(chosen.into_model()), place))
            }
            Err(ModelsError::Nothing { .. }) => {
                tell("no model is configured: a scripted stand-in gives a demonstration");
                Ok((stand_in(), String::new()))
            }
            Err(error) => Err(chain(&error)),
        }
    }
}

/// A model with what the options put around it.
fn around(
    (model, place): (Arc<dyn Model>, String),
    options: &RunOptions,
    tell: impl Fn(&str),
) -> Result<Arc<dyn Model>, String> {
    options.check_price(&*model)?;
    let layers = options.layers()?;
    if let Some(text) = layers.note(&*model) {
        tell(&text);
    }
    Ok(layers.around(model, &place))
}

impl ModelArgs {
    /// The script, if there is one; its replies are given in the order of the calls.
    fn scripted(&self) -> Result<Option<ScriptedModel>, String> {
        let Some(path) = &self.script else {
            return Ok(None);
        };
        let text = read_text(path)?;
        let model = ScriptedModel::from_json(&text);
        model
            .map(Some)
            .map_err(|error| format!("`{}`: {}", path.display(), chain(&error)))
    }
}

/// Says where a model is if a file decides that, once and however quiet the command is: that server
/// sees the conversation.
pub(crate) fn warn(address: Option<&str>) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(address) = address else { return };
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(address.to_owned()) {
        note(&format!("the model is {address}"));
    }
}

pub(crate) fn retried(model: Arc<dyn Model>) -> Arc<dyn Model> {
    Arc::new(model.retry())
}

/// A model that calls `add` once for whatever it is told, and then says what it is.
fn demonstration() -> FunctionModel {
    FunctionModel::new(|request| {
        let since = request
            .history
            .messages()
            .iter()
            .rev()
            .take_while(|message| message.role != Role::User);
        let called = since.into_iter().any(|message| message.role == Role::Tool);
        let words = "A scripted stand-in cannot know. It only called `add` to show how that looks.";
        let call = || Part::ToolCall(ToolCall::new("", "add", json!({"a": 2, "b": 5})));
        Ok(Response::new(match called {
            true => Message::assistant(words),
            false => Message::new(Role::Assistant, [call()]),
        }))
    })
}
