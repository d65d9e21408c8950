//! The kinds of runs that this command can drive.
//!
//! A journal holds runs of agents, teams and swarms side by side. Commands that drive any of them
//! (`runs resume`, `serve`) accept the options of all kinds, and this module checks that those
//! given fit the kind at hand: an option without effect is refused, since the user expects one.

use clap::{Args, ValueEnum};
use levity::core::{Entry, Record, RunId};
use levity::dag::Team;
use levity::observe::SessionFolder;
use levity::prelude::*;
#[cfg(feature = "serve")]
use levity::serve::Runs;
use levity::swarm::Swarm;

use crate::agent::{AgentShape, Common};
use crate::given::Given;
use crate::mcp::McpServers;
use crate::plan::TeamShape;
use crate::settings;
use crate::swarm::SwarmShape;

/// The kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// One agent that works on the goal alone.
    Agent,
    /// A team that makes a plan and carries it out, as in `levity plan`.
    Team,
    /// A swarm of workers with a router, as in `levity swarm`.
    Swarm,
}

impl Kind {
    /// Returns the kind of a run, by its first record.
    ///
    /// The names are those under which the machines of the crates register: `agent`, `graph` and
    /// `swarm`. Runs of other machines belong to programs of users.
    ///
    /// # Errors
    /// The first record does not open a run, or its machine is unknown.
    pub(crate) fn of(run: &RunId, records: &[Record]) -> Result<Self, String> {
        let Some(Entry::Opened(opened)) = records.first().map(|record| &record.entry) else {
            return Err(format!(
                "run `{run}` does not begin with an opening record; its journal is damaged"
            ));
        };
        match &*opened.machine.name {
            "agent" => Ok(Self::Agent),
            "graph" => Ok(Self::Team),
            "swarm" => Ok(Self::Swarm),
            other => Err(format!(
                "run `{run}` belongs to a machine `{other}`, which this command does not support; \
                    resume it with the program that started it"
            )),
        }
    }

    /// Names the kind within an error message.
    fn noun(self) -> &'static str {
        match self {
            Self::Agent => "an agent",
            Self::Team => "a team",
            Self::Swarm => "a swarm",
        }
    }
}

/// The options of teams and swarms.
#[derive(Args)]
pub(crate) struct GroupOptions {
    /// Maximum number of agents of a team or a swarm that run at the same time [default: 16].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_parallel: Option<usize>,
    #[command(flatten)]
    team: TeamShape,
    #[command(flatten)]
    swarm: SwarmShape,
}

impl GroupOptions {
    /// Rejects options that have no effect on this kind of run.
    ///
    /// Options that all kinds share, such as models and tools, are not checked, and neither are
    /// settings, which serve all kinds. The error names the first option that does not fit.
    pub(crate) fn check(&self, kind: Kind, shape: &AgentShape) -> Result<(), String> {
        let parallel = self.max_parallel.map(|_| "--max-parallel");
        let (agent, team, swarm) = (shape.given(), self.team.given(), self.swarm.given());
        let others: Vec<_> = match kind {
            Kind::Agent => parallel.into_iter().chain(team).chain(swarm).collect(),
            Kind::Team => agent.chain(swarm).collect(),
            Kind::Swarm => agent.chain(team).collect(),
        };
        let is_typed = |option: &&str| {
            !settings::is_supplied(&option.trim_start_matches('-').replace('-', "_"))
        };
        let unused = others.into_iter().find(is_typed);
        unused.map_or(Ok(()), |option| {
            Err(format!(
                "`{option}` has no effect on {}; remove it",
                kind.noun()
            ))
        })
    }

    /// Returns the runs of a team or a swarm for clients, and the MCP servers that run beside it.
    ///
    /// A single agent is built by its own options and never passes here; every other kind than a
    /// swarm is a team.
    #[cfg(feature = "serve")]
    pub(crate) async fn runs(
        &self,
        kind: Kind,
        common: &Common,
        runtime: Runtime,
    ) -> Result<(Runs, McpServers), String> {
        match kind {
            Kind::Swarm => {
                let given = Given::default();
                let (swarm, mcp_servers) = self.swarm(common, &given, runtime, false).await?;
                Ok((Runs::new(swarm), mcp_servers))
            }
            _ => {
                let given = Given::default();
                let (team, mcp_servers) = self.team(common, &given, runtime, None).await?;
                self.team.print_missing();
                Ok((Runs::new(team), mcp_servers))
            }
        }
    }

    /// Builds the team with this runtime, and returns it with the MCP servers that run beside it.
    pub(crate) async fn team(
        &self,
        common: &Common,
        given: &Given,
        runtime: Runtime,
        sessions: Option<&SessionFolder>,
    ) -> Result<(Team, McpServers), String> {
        self.team
            .build(common, self.max_parallel, given, runtime, sessions)
            .await
    }

    /// Builds the swarm with this runtime, and returns it with the MCP servers that run beside it.
    pub(crate) async fn swarm(
        &self,
        common: &Common,
        given: &Given,
        runtime: Runtime,
        quiet: bool,
    ) -> Result<(Swarm, McpServers), String> {
        self.swarm
            .build(common, self.max_parallel, given, runtime, quiet)
            .await
    }
}
