//! The team that carries out plans.
//!
//! A team consists of a catalogue of agents (built-in ones, and those of `--agents`) and of parts
//! that they may name: models, tools and MCP servers. The same function serves `levity plan`,
//! `levity serve --offer team` and `levity runs resume`, so a stored run finds equal agents.
//!
//! The folder of agents may come from a stranger. Agents in it can only name what the command line
//! offers, and keys from the environment are never sent to an address that a file in it names. A
//! part that no agent names is reported, because it is nearly always a mistake. So are tools that
//! an agent names and that no option provides, because its prompt may rely on them.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use levity::agents::{AgentPart, AgentParts, Catalogue, MissingPart};
use levity::dag::{Team, TeamBuilder};
use levity::observe::SessionFolder;
use levity::prelude::*;
use levity::tools::Policy;

use super::demo;
use super::estimate::PlanDraft;
use crate::agent::Common;
use crate::given::Given;
use crate::given_files::ReadGivenFile;
use crate::mcp::McpServers;
use crate::settings;
use crate::terminal::{chain, note};

/// The options that define a team.
#[derive(Args)]
pub(crate) struct TeamShape {
    /// Folder with agents of a team (`agent_config.yaml` and prompts). They change the built-in
    /// agents of the same name, or are added to them.
    #[arg(long, value_name = "DIR", help_heading = "Teams and swarms")]
    agents: Option<PathBuf>,
    /// Maximum number of changes to the plan of a team when steps fail [default: 3].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_replans: Option<u32>,
    /// Ask for approval of the plan of a team, and of each change to it.
    #[arg(long, help_heading = "Teams and swarms")]
    ask_plan: bool,
    /// Receives the plan in place of its execution.
    #[arg(skip)]
    pub(super) draft: Option<PlanDraft>,
    /// Notes about missing parts of the agents, which wait until a run starts.
    #[arg(skip)]
    missing: Mutex<Vec<String>>,
}

impl TeamShape {
    /// Returns the names of the given options.
    ///
    /// Commands for several kinds of runs refuse such an option for another kind.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        let agents = self.agents.as_ref().map(|_| "--agents");
        let replans = self.max_replans.map(|_| "--max-replans");
        let ask_plan = self.ask_plan.then_some("--ask-plan");
        [agents, replans, ask_plan].into_iter().flatten()
    }

    /// Builds the team with this runtime, and returns it with the MCP servers that run beside it.
    /// Its agents can read the given files.
    ///
    /// Limits are the same for all agents, except the number of turns of the planner. MCP servers
    /// start last among the parts, and are ended if the team cannot be built.
    ///
    /// # Errors
    /// The folder of agents cannot be read, no model can be opened, a tool or server of the options
    /// fails, or an agent names a part that does not exist.
    pub(crate) async fn build(
        &self,
        common: &Common,
        max_parallel: Option<usize>,
        given: &Given,
        runtime: Runtime,
        sessions: Option<&SessionFolder>,
    ) -> Result<(Team, McpServers), String> {
        let catalogue = match &self.agents {
            Some(folder) => settings::with_folder("agents", folder, |folder| {
                Catalogue::load(folder).map_err(|error| chain(&error))
            })?,
            None => Catalogue::defaults(),
        };
        // A reply is delayed only on a terminal, where the user watches it.
        let pause = if io::stderr().is_terminal() {
            demo::PAUSE
        } else {
            Duration::ZERO
        };
        let report = |text: &str| note(text.trim_end());
        let model = common
            .model
            .open_shared(&common.options, report, || demo::model(pause))?;
        given.check(model.card())?;
        let layers = common.model.layers(&common.options)?;
        let named = named_models(self.agents.clone());
        let mut parts = AgentParts::new(model.clone())
            .models(move |name| named(name).map(|(model, place)| layers.around(model, &place)))
            .policy(common.approval_rules().fold(Policy::new(), Policy::rule))
            .runtime(runtime.clone());
        if let Some(turns) = common.max_turns {
            // The planner calls no tools and has its own number of turns.
            parts = parts.customize(move |name, agent| match name {
                Catalogue::PLANNER => agent,
                _ => agent.max_turns(turns),
            });
        }
        let mut parts = common.tools.add_to_parts(parts, false, note)?;
        if let Some(tool) = given.tool(note) {
            parts = parts.tools(vec![tool]);
        }
        let mcp_servers = common.mcp.start(note).await?;
        let parts = mcp_servers.add_to_parts(parts);
        for part in catalogue
            .unused(&parts)
            .iter()
            .filter(|part| !is_built_in(part))
        {
            note(&format!(
                "{part} reaches no agent; name it, or `*`, under `tools` or `mcp_servers` of an \
                    agent in `agent_config.yaml`"
            ));
        }
        *self.missing() = missing_notes(&catalogue.missing(&parts));
        let team = self.of_parts(
            (catalogue, parts),
            (common, max_parallel),
            runtime,
            sessions,
            &model,
        );
        mcp_servers.beside(team).await
    }

    /// Prints the notes about parts that agents of the built team name and that are missing, once.
    ///
    /// The caller prints them when a run is about to start: next to the error of a wrong call, they
    /// would only distract.
    pub(crate) fn print_missing(&self) {
        self.missing().drain(..).for_each(|text| note(&text));
    }

    fn missing(&self) -> MutexGuard<'_, Vec<String>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Combines the catalogue and its parts. Separate from `build`, so that every error after the
    /// start of the MCP servers passes through one place that ends them. Defaults are 16 parallel
    /// steps and 3 changes of the plan.
    fn of_parts(
        &self,
        (catalogue, parts): (Catalogue, AgentParts),
        (common, max_parallel): (&Common, Option<usize>),
        runtime: Runtime,
        sessions: Option<&SessionFolder>,
        judge: &Arc<dyn Model>,
    ) -> Result<Team, String> {
        let mut team = catalogue
            .team(parts)
            .map_err(|error| chain(&levity::Error::from(error)))?
            .max_parallel(max_parallel.unwrap_or(16))
            .max_replans(self.max_replans.unwrap_or(3))
            .limits(common.options.limits())
            .runtime(runtime);
        team = common
            .options
            .guards(judge)
            .into_iter()
            .fold(team, TeamBuilder::guard);
        if let Some(turns) = common.max_turns {
            team = team.max_turns(turns);
        }
        if let Some(sessions) = sessions {
            team = team.observe(sessions.clone());
        }
        if self.ask_plan {
            team = team.approve_plans();
        }
        if let Some(draft) = &self.draft {
            team = team.approve_plans().approver(draft.clone());
        }
        team.build().map_err(|error| chain(&error))
    }
}

/// Returns `true` if the command adds a part automatically, without an option.
///
/// No note is printed for these parts: the user did not ask for them, so they need not be used.
fn is_built_in(part: &AgentPart) -> bool {
    matches!(
        part,
        AgentPart::Tool(name) if matches!(&**name, "now" | "write_artifact" | ReadGivenFile::NAME)
    )
}

/// Returns the notes about parts that agents name and that are missing: one note for each option
/// that would provide some of them, and one for each other part.
///
/// Required parts are errors of their own, and models have alternatives.
fn missing_notes(missing: &[MissingPart]) -> Vec<String> {
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    for part in missing.iter().filter(|part| !part.required) {
        let Some(text) = missing_note(&part.part, missing) else {
            continue;
        };
        match notes.iter_mut().find(|(other, _)| *other == text) {
            Some((_, agents)) if agents.contains(&&*part.agent) => {}
            Some((_, agents)) => agents.push(&part.agent),
            None => notes.push((text, vec![&part.agent])),
        }
    }
    let notes = notes.into_iter();
    notes
        .map(|(text, agents)| text.replace("{}", &agents.join(", ")))
        .collect()
}

/// Returns the note about one missing part, with `{}` for the agents. A part whose absence is usual
/// has none: the tools for `--file` and for an index of documents, and the optional servers of the
/// built-in agents.
fn missing_note(part: &AgentPart, missing: &[MissingPart]) -> Option<String> {
    let is_missing = |tool: &str| {
        let part = AgentPart::Tool(tool.into());
        missing.iter().any(|missing| missing.part == part)
    };
    let text = match part {
        AgentPart::Tool(name) => match &**name {
            ReadGivenFile::NAME | "search_documents" | "fetch_passage" => return None,
            "write_artifact" if !is_missing("read_file") => {
                "no files can be written by {}; add `--workspace DIR`, without `--read-only`"
            }
            "read_file" | "list_files" | "search_files" | "write_artifact" => {
                "no files for {}; add `--workspace DIR`"
            }
            "web_fetch" => "no web pages for {}; add `--web`",
            "web_search" if is_missing("web_fetch") => return None,
            "web_search" => "no web search for {}; set `BRAVE_API_KEY`, or add `--searxng URL`",
            name => {
                let text = "for {}; check its name in `agent_config.yaml`, or add it to `--tools`";
                return Some(format!("no tool `{name}` {text}"));
            }
        },
        AgentPart::Server(name) if !matches!(&**name, "browser" | "rag") => {
            let text = "for {}; check its name in `agent_config.yaml`, or add it to `--mcp`";
            return Some(format!("no MCP server `{name}` {text}"));
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// Returns the models that agents name, and their servers. The folder of the agents may be
/// untrusted, so no key is sent to an address in it.
///
/// Returns the model with retries, and a text that identifies its server for the cache. The
/// function is called when an agent names a model, so unused entries of a catalogue need no key. It
/// prints a warning if the server's address comes from a file.
fn named_models(
    agents: Option<PathBuf>,
) -> impl Fn(&str) -> Result<(Arc<dyn Model>, String), String> + Send + Sync + 'static {
    move |name| {
        let models = crate::models::from_env()?;
        let (model, address) = match &agents {
            Some(folder) => {
                let names = ["agent_config.yaml", "agent_config.yml", "agent_config.json"];
                let files = names.map(|name| folder.join(name));
                let file = files.iter().find(|file| file.exists()).unwrap_or(&files[0]);
                (
                    models.model_named_in(file, name),
                    models.address_named_in(file, name),
                )
            }
            None => (models.model(name), models.address_from_file(name)),
        };
        let model = model.map_err(|error| chain(&error))?;
        crate::agent::warn(address.as_deref());
        Ok((
            crate::agent::with_retries(model),
            crate::options::place_of(name, address.as_deref()),
        ))
    }
}
