//! The team that carries plans out.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levity::dag::{Catalogue, Parts, Sessions, Team};
use levity::llm::Models;
use levity::prelude::*;
use levity::python::RunPython;

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
        // Many agents call the model, so a script has one reply for each call and not for each turn of an agent.
        let model = match self.model.scripted()? {
            Some(script) => Arc::new(script) as Arc<dyn Model>,
            None => self.model.open(|text| note(text.trim_end()), || demo::model(pause))?,
        };
        let parts = Parts::new(model).models(by_name(self.agents.clone())).runtime(runtime.clone());
        let parts = self.tools.add_to_parts(parts, false, note)?;
        let offered = self.mcp.start(note).await?;
        let parts = offered.add_to_parts(parts);
        match self.build(catalogue, parts, runtime, sessions) {
            Ok(team) => Ok((team, offered)),
            Err(problem) => offered.end(Err(problem)).await,
        }
    }

    fn build(
        &self,
        catalogue: Catalogue,
        parts: Parts,
        runtime: Runtime,
        sessions: Option<&Sessions>,
    ) -> Result<Team, String> {
        let mut team = Team::builder()
            .agents(catalogue, parts)
            .max_parallel(self.max_parallel)
            .max_replans(self.max_replans)
            .limits(self.limits.limits())
            .runtime(runtime);
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

/// Models that agents name. The folder of the agents may be a stranger's, so that no key goes to an address in it.
fn by_name(
    agents: Option<PathBuf>,
) -> impl Fn(&str) -> Result<Arc<dyn Model>, String> + Send + Sync + 'static {
    move |name| {
        let models = Models::from_env().map_err(|error| chain(&error))?;
        let model = match &agents {
            Some(folder) => models.model_named_in(folder.join("agent_config.yaml"), name),
            None => models.model(name),
        };
        model.map(crate::agent::retried).map_err(|error| chain(&error))
    }
}
