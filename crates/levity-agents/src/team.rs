//! Teams and swarm workers from the agents of a catalogue.
//!
//! The catalogue only describes agents; this module hands them to the crates that run several of
//! them. A team gives special roles to three names (planner, distiller, QA), so those agents are
//! renamed to what the team expects.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_dag::{StepRunner, StepRunnerKind, Team, TeamBuilder};

use crate::catalogue::{Catalogue, CatalogueError, description_with_tools};
use crate::parts::AgentParts;
use crate::shared::Shared;

impl Catalogue {
    /// Starts a team of all enabled agents, built from these parts; a model alone is enough. The
    /// team also uses the program, approver and runtime of the parts.
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
    /// Disabled agents take no part. The planner chooses agents by their descriptions, to which the
    /// names of their tools are added.
    ///
    /// # Errors
    /// Fails if an agent cannot be built; see [`build`](Self::build).
    pub fn team(&self, parts: impl Into<AgentParts>) -> Result<TeamBuilder, CatalogueError> {
        let parts = parts.into();
        let mut team = Team::builder().runtime(parts.runtime.clone());
        let mut cards: BTreeMap<Arc<str>, StepRunner> = self.performers().collect();
        for entry in self.entries().filter(|entry| entry.enabled) {
            let agent = self.build(&entry.name, &parts)?;
            let card = cards.remove(&entry.name);
            let mut card = card.unwrap_or_else(|| StepRunner::new(StepRunnerKind::Agent, ""));
            card.description = description_with_tools(entry, &parts);
            team = team.runner(team_name(&entry.name), card, agent);
        }
        if let Some(program) = parts.program(&[]) {
            team = team.code(Shared(program));
        }
        Ok(match parts.approver {
            Some(approver) => team.approver(Shared(approver)),
            None => team,
        })
    }

    /// Builds the agent with this name as a swarm worker, with its description and tools.
    ///
    /// ```
    /// use levity_agents::{AgentParts, Catalogue};
    /// use levity_test::ScriptedModel;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let parts = AgentParts::new(ScriptedModel::new());
    /// let thinker = Catalogue::defaults().worker("thinker", &parts)?;
    /// assert_eq!(thinker.name(), "Thinker");
    /// assert!(Catalogue::defaults().worker("painter", &parts).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails under the same conditions as [`build`](Self::build).
    #[cfg(feature = "swarm")]
    pub fn worker(
        &self,
        name: &str,
        parts: &AgentParts,
    ) -> Result<levity_swarm::Worker, CatalogueError> {
        let entry = self.find_enabled(name)?;
        let agent = self.build(name, parts)?;
        Ok(levity_swarm::Worker::new(
            entry.name.clone(),
            description_with_tools(entry, parts),
            agent,
        ))
    }
}

/// Returns the name that a team uses for a special agent, even if the catalogue calls it
/// `PlannerAgent`.
fn team_name(name: &Arc<str>) -> Arc<str> {
    let special = [Team::PLANNER, Team::DISTILLER, Team::QA];
    let special = special
        .into_iter()
        .find(|special| name.strip_suffix("Agent") == Some(*special));
    special.map_or_else(|| name.clone(), Into::into)
}
