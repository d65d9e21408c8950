//! The kinds of runs that this command can drive.

use clap::{Args, ValueEnum};
use levity::core::{Entry, Record, RunId};
use levity::dag::Team;
use levity::observe::SessionFolder;
use levity::prelude::*;
use levity::serve::Runs;
use levity::swarm::Swarm;

use crate::agent::{Common, Made};
use crate::mcp::Offered;
use crate::plan::TeamShape;
use crate::swarm::SwarmShape;

/// A kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// One agent.
    Agent,
    /// A team that makes a plan and carries it out, as `levity plan` does.
    Team,
    /// A swarm of workers with a router, as `levity swarm` does.
    Swarm,
}

impl Kind {
    /// The kind of a run, by its first record.
    pub(crate) fn of(run: &RunId, records: &[Record]) -> Result<Self, String> {
        let Some(Entry::Opened(opened)) = records.first().map(|record| &record.entry) else {
            return Err(format!(
                "run `{run}` does not begin with a first record; its journal is damaged"
            ));
        };
        match &*opened.machine.name {
            "agent" => Ok(Self::Agent),
            "graph" => Ok(Self::Team),
            "swarm" => Ok(Self::Swarm),
            other => Err(format!(
                "run `{run}` was made by a machine `{other}`, which this command does not have; \
                    resume it with the program \
                 that began it"
            )),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Agent => "an agent",
            Self::Team => "a team",
            Self::Swarm => "a swarm",
        }
    }
}

/// Options of teams and swarms.
#[derive(Args)]
pub(crate) struct Several {
    /// The most agents of a team or a swarm that work at a time [default: 16].
    #[arg(long, value_name = "N", help_heading = "Teams and swarms")]
    max_parallel: Option<usize>,
    #[command(flatten)]
    team: TeamShape,
    #[command(flatten)]
    swarm: SwarmShape,
}

impl Several {
    /// Refuses options that have no effect on this kind of run.
    pub(crate) fn check(&self, kind: Kind, made: &Made) -> Result<(), String> {
        let parallel = self.max_parallel.map(|_| "--max-parallel");
        let unused = match kind {
            Kind::Agent => parallel.or(self.team.given()).or(self.swarm.given()),
            Kind::Team => made.given().or(self.swarm.given()),
            Kind::Swarm => made.given().or(self.team.given()),
        };
        unused.map_or(Ok(()), |option| {
            Err(format!(
                "`{option}` changes nothing about {}; leave it out",
                kind.words()
            ))
        })
    }

    /// The runs of a team or a swarm for clients, and the servers that run beside it.
    pub(crate) async fn runs(
        &self,
        kind: Kind,
        common: &Common,
        runtime: Runtime,
    ) -> Result<(Runs, Offered), String> {
        match kind {
            Kind::Swarm => {
                let (swarm, offered) = self.swarm(common, runtime, false).await?;
                Ok((Runs::new(swarm), offered))
            }
            _ => {
                let (team, offered) = self.team(common, runtime, None).await?;
                Ok((Runs::new(team), offered))
            }
        }
    }

    /// The team, driven by this runtime, and the servers that run beside it.
    pub(crate) async fn team(
        &self,
        common: &Common,
        runtime: Runtime,
        sessions: Option<&SessionFolder>,
    ) -> Result<(Team, Offered), String> {
        self.team
            .build(common, self.max_parallel, &[], runtime, sessions)
            .await
    }

    /// The swarm, driven by this runtime, and the servers that run beside it.
    pub(crate) async fn swarm(
        &self,
        common: &Common,
        runtime: Runtime,
        quiet: bool,
    ) -> Result<(Swarm, Offered), String> {
        self.swarm
            .build(common, self.max_parallel, runtime, quiet)
            .await
    }
}
