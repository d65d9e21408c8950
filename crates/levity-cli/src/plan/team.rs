//! The team that carries plans out.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levity::dag::{AgentPart, Catalogue, Parts, Sessions, Team, TeamBuilder};
use levity::prelude::*;
use levity::python::RunPython;
use levity::tools::{Policy, Rule};

use super::given::ReadGivenFile;
use super::{PlanArgs, demo};
use crate::mcp::Offered;
use crate::terminal::{chain, note};

impl PlanArgs {
    /// The team, driven by this runtime, and the servers that run beside it.
    pub(super) async fn team(
        &self,
        runtime: Runtime,
        sessions: Option<&Sessions>,
    ) -> Result<(Team, Offered), String> {
        let catalogue = match &self.agents {
            Some(folder) => Catalogue::load(folder).map_err(|error| chain(&error))?,
            None => Catalogue::defaults(),
        };
        // Lines that say which model it is have an end of their own.
        let pause = if io::stderr().is_terminal() { demo::PAUSE } else { Duration::ZERO };
        let tell = |text: &str| note(text.trim_end());
        let model = self.model.open_shared(&self.options, tell, || demo::model(pause))?;
        let layers = self.options.layers()?;
        let asks = |policy: Policy, tool: &String| {
            policy.rule(Rule::tool(tool.clone()).ask("it is asked about by `--ask`"))
        };
        let named = by_name(self.agents.clone());
        let mut parts = Parts::new(model.clone())
            .models(move |name| named(name).map(|(model, place)| layers.around(model, &place)))
            .policy(self.ask.iter().fold(Policy::new(), asks))
            .runtime(runtime.clone());
        if let Some(turns) = self.max_turns {
            // The planner has turns of its own: it calls no tools.
            parts = parts.finish(move |name, agent| match name {
                Catalogue::PLANNER => agent,
                _ => agent.max_turns(turns),
            });
        }
        let mut parts = self.tools.add_to_parts(parts, false, note)?;
        if !self.files.is_empty() {
            parts = parts.tool(ReadGivenFile::new(&self.files, note));
        }
        let offered = self.mcp.start(note).await?;
        let parts = offered.add_to_parts(parts);
        for part in catalogue.unused(&parts).iter().filter(|part| !is_own(part)) {
            note(&format!(
                "{part} reaches no agent; name it, or `*`, under `tools` or `mcp_servers` of an agent in `agent_config.yaml`"
            ));
        }
        match self.build((catalogue, parts), runtime, sessions, &model) {
            Ok(team) => Ok((team, offered)),
            Err(problem) => offered.end(Err(problem)).await,
        }
    }

    fn build(
        &self,
        (catalogue, parts): (Catalogue, Parts),
        runtime: Runtime,
        sessions: Option<&Sessions>,
        judge: &Arc<dyn Model>,
    ) -> Result<Team, String> {
        let mut team = Team::builder()
            .agents(catalogue, parts)
            .max_parallel(self.max_parallel)
            .max_replans(self.max_replans)
            .limits(self.options.limits())
            .runtime(runtime);
        team = self.options.guards(judge).into_iter().fold(team, TeamBuilder::guard);
        if let Some(turns) = self.max_turns {
            team = team.max_turns(turns);
        }
        if let Some(sessions) = sessions {
            team = team.sessions(sessions.clone());
        }
        if self.ask_plan {
            team = team.approve_plans();
        }
        if self.tools.python() {
            team = team.code(RunPython::new());
        }
        team.build().map_err(|error| chain(&error))
    }
}

/// Whether nobody asked for a part: the command adds it by itself.
fn is_own(part: &AgentPart) -> bool {
    matches!(part, AgentPart::Tool(name) if matches!(&**name, "now" | ReadGivenFile::NAME))
}

/// Models that agents name, and where they are. The folder of the agents may be a stranger's, so that no key goes to an address in it.
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
                (models.model_named_in(file, name), models.address_named_in(file, name))
            }
            None => (models.model(name), models.address_from_file(name)),
        };
        let model = model.map_err(|error| chain(&error))?;
        crate::agent::warn(address.as_deref());
        Ok((crate::agent::retried(model), crate::options::place_of(name, address.as_deref())))
    }
}
