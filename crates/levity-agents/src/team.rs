//! Teams and workers of the catalogue's agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_dag::{StepRunner, StepRunnerKind, Team, TeamBuilder};

use crate::catalogue::{Catalogue, CatalogueError, described};
use crate::parts::AgentParts;
use crate::shared::Shared;

impl Catalogue {
    /// Begins a team of all agents that are not switched off, built of these parts; a model alone
    /// is enough. The parts' program, approver and runtime are also those of the team.
    ///
    /// ```
    /// # use levity_agents::{AgentParts, Catalogue};
    /// # use levity_test::ScriptedModel;
    /// # fn main() -> levity_core::Result<()> {
    /// # let model = ScriptedModel::new();
    /// let team = Catalogue::defaults().team(AgentParts::new(model))?.max_parallel(4).build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When an agent cannot be built; see [`build`](Self::build).
    pub fn team(&self, parts: impl Into<AgentParts>) -> Result<TeamBuilder, CatalogueError> {
        let parts = parts.into();
        let mut team = Team::builder().runtime(parts.runtime.clone());
        let mut cards: BTreeMap<Arc<str>, StepRunner> = self.performers().collect();
        for entry in self.entries().filter(|entry| entry.enabled) {
            let agent = self.build(&entry.name, &parts)?;
            let card = cards.remove(&entry.name);
            let mut card = card.unwrap_or_else(|| StepRunner::new(StepRunnerKind::Agent, ""));
            card.description = described(entry, &parts);
            team = team.performer(team_name(&entry.name), card, agent);
        }
        if let Some(program) = parts.program(&[]) {
            team = team.code(Shared(program));
        }
        Ok(match parts.approver {
            Some(approver) => team.approver(Shared(approver)),
            None => team,
        })
    }

    /// Builds the agent of this name as a worker of a swarm, which knows it by its description and
    /// its tools.
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    #[cfg(feature = "swarm")]
    pub fn worker(
        &self,
        name: &str,
        parts: &AgentParts,
    ) -> Result<levity_swarm::Worker, CatalogueError> {
        let entry = self.able(name)?;
        let agent = self.build(name, parts)?;
        Ok(levity_swarm::Worker::new(
            entry.name.clone(),
            described(entry, parts),
            agent,
        ))
    }
}

/// The name that a team knows a special agent by, also where a catalogue has it as `PlannerAgent`.
fn team_name(name: &Arc<str>) -> Arc<str> {
    let special = [Team::PLANNER, Team::DISTILLER, Team::QA];
    let special = special
        .into_iter()
        .find(|special| name.strip_suffix("Agent") == Some(*special));
    special.map_or_else(|| name.clone(), Into::into)
}
