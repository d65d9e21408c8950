//! The team that carries plans out.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use levity::agents::{AgentPart, AgentParts, Catalogue};
use levity::dag::{Team, TeamBuilder};
use levity::observe::SessionFolder;
use levity::prelude::*;
use levity::tools::Policy;

use super::demo;
use super::given::ReadGivenFile;
use crate::agent::Common;
use crate::mcp::Offered;
use crate::terminal::{chain, note};

/// The options of a team.
#[derive(Args)]
pub(crate) struct TeamShape {
    /// The folder of a team's agents (`agent_config.yaml` and prompts), on top of those that are
    /// built in.
    #[arg(long, value_name = "DIR", help_heading = "Teams and swarms")]
    agents: Option<PathBuf>,
    /// The most changes to the plan of a team when steps fail [default: 3].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_replans: Option<u32>,
    /// Ask before the plan of a team, or a change of it, is carried out.
    #[arg(long, help_heading = "Teams and swarms")]
    ask_plan: bool,
}

impl TeamShape {
    /// An option that was given, if one was.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let agents = self.agents.as_ref().map(|_| "--agents");
        let replans = self.max_replans.map(|_| "--max-replans");
        agents.or(replans).or(self.ask_plan.then_some("--ask-plan"))
    }

    /// The team, driven by this runtime, and the servers that run beside it. Its agents can read
    /// these files.
    pub(crate) async fn build(
        &self,
        common: &Common,
        max_parallel: Option<usize>,
        files: &[PathBuf],
        runtime: Runtime,
        sessions: Option<&SessionFolder>,
    ) -> Result<(Team, Offered), String> {
        let catalogue = match &self.agents {
            Some(folder) => Catalogue::load(folder).map_err(|error| chain(&error))?,
            None => Catalogue::defaults(),
        };
        // Lines that say which model it is have an end of their own.
        let pause = if io::stderr().is_terminal() {
            demo::PAUSE
        } else {
            Duration::ZERO
        };
        let tell = |text: &str| note(text.trim_end());
        let model = common
            .model
            .open_shared(&common.options, tell, || demo::model(pause))?;
        let layers = common.options.layers()?;
        let named = by_name(self.agents.clone());
        let mut parts = AgentParts::new(model.clone())
            .models(move |name| named(name).map(|(model, place)| layers.around(model, &place)))
            .policy(common.asked().fold(Policy::new(), Policy::rule))
            .runtime(runtime.clone());
        if let Some(turns) = common.max_turns {
            // The planner has turns of its own: it calls no tools.
            parts = parts.finish(move |name, agent| match name {
                Catalogue::PLANNER => agent,
                _ => agent.max_turns(turns),
            });
        }
        let mut parts = common.tools.add_to_parts(parts, false, note)?;
        if !files.is_empty() {
            parts = parts.tool(ReadGivenFile::new(files, note));
        }
        let offered = common.mcp.start(note).await?;
        let parts = offered.add_to_parts(parts);
        for part in catalogue.unused(&parts).iter().filter(|part| !is_own(part)) {
            note(&format!(
                "{part} reaches no agent; name it, or `*`, under `tools` or `mcp_servers` of an \
                    agent in `agent_config.yaml`"
            ));
        }
        match self.of_parts(
            (catalogue, parts),
            (common, max_parallel),
            runtime,
            sessions,
            &model,
        ) {
            Ok(team) => Ok((team, offered)),
            Err(problem) => offered.end(Err(problem)).await,
        }
    }

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
        team.build().map_err(|error| chain(&error))
    }
}

/// Whether nobody asked for a part: the command adds it by itself.
fn is_own(part: &AgentPart) -> bool {
    matches!(part, AgentPart::Tool(name) if matches!(&**name, "now" | ReadGivenFile::NAME))
}

/// Models that agents name, and where they are. The folder of the agents may be a stranger's, so
/// that no key goes to an address in it.
fn by_name(
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
            crate::agent::retried(model),
            crate::options::place_of(name, address.as_deref()),
        ))
    }
}
