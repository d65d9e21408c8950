//! Going on with runs, whatever kind they are of.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use levity::core::{Entry, Event, Record, RunId, World as _};
use levity::dag::Team;
use levity::observe::{PlanView, SessionFolder};
use levity::prelude::*;
use levity::runtime::{Run, Runnable, replay, replay_run};
use levity::swarm::Swarm;

use super::{Done, Driven};
use crate::follow::{follow, go_on};
use crate::kind::Kind;
use crate::mcp::Offered;
use crate::terminal::{chain, complain, say, say_json};
use crate::{plan, swarm};

/// A way to continue an old run.
enum Way {
    Resume,
    /// As a new run, from a record of the old one.
    Fork {
        after: Option<u64>,
        id: Option<String>,
    },
}

impl Way {
    /// The records that the run begins with.
    fn known<'a>(&self, records: &'a [Record]) -> &'a [Record] {
        match self {
            Self::Fork {
                after: Some(after), ..
            } => {
                let count = usize::try_from(*after)
                    .ok()
                    .and_then(|after| after.checked_add(1));
                count
                    .and_then(|count| records.get(..count))
                    .unwrap_or_default()
            }
            Self::Fork { after: None, .. } => match records.split_last() {
                Some((last, before)) if matches!(last.entry, Entry::Ended(_)) => before,
                _ => records,
            },
            Self::Resume => records,
        }
    }
}

pub(super) async fn resume(args: Driven) -> Done {
    args.go_on(&Way::Resume).await
}

impl Driven {
    async fn go_on(self, way: &Way) -> Done {
        let (_, records) = self.one.records().await?;
        let kind = Kind::of(&self.one.id(), &records)?;
        // Before anything is trusted.
        if let Err(problem) = self.several.check(kind, &self.agent.made) {
            return Ok(complain(&problem, 2));
        }
        let (journal, records) = self.one.own_records(self.trust).await?;
        let runtime = Runtime::new().with_journal(journal);
        match kind {
            Kind::Agent => self.agent(runtime, way, &records).await,
            Kind::Team => {
                let (team, offered) = self.team(runtime).await?;
                offered
                    .end(self.drive_team(&team, way, &records).await)
                    .await
            }
            Kind::Swarm => {
                let (swarm, offered) = self.swarm(runtime).await?;
                offered
                    .end(self.drive_swarm(&swarm, way, &records).await)
                    .await
            }
        }
    }

    /// The run as it goes on, before it is started.
    fn run<W: Runnable>(&self, what: &W, way: &Way) -> Run<W> {
        let old = self.one.id();
        let mut run = match way {
            Way::Resume => Run::resume(what.clone(), old),
            Way::Fork { after, id } => {
                let fork = Run::fork(what.clone(), old);
                let fork = after.iter().fold(fork, |fork, after| fork.after(*after));
                id.iter().fold(fork, |fork, id| fork.id(id.as_str()))
            }
        };
        if let Some(limits) = self.agent.made.common.options.given_limits() {
            run = run.limits(limits);
        }
        if self.agent.park { run.park() } else { run }
    }

    async fn agent(&self, runtime: Runtime, way: &Way, records: &[Record]) -> Done {
        let logs = self.agent.made.common.logs.open()?;
        let (agent, offered) = self.agent.build(runtime).await?;
        let run = self.run(&agent, way).on_event(logs.watcher(None)).start();
        go_on(&run, way.known(records)).await;
        Ok(offered.end(follow(run, &self.agent, true).await).await)
    }

    /// The id of the run as it goes on.
    fn new_id(&self, team: &Team, way: &Way) -> RunId {
        match way {
            Way::Resume => self.one.id(),
            Way::Fork { id: Some(id), .. } => RunId::new(id.as_str()),
            Way::Fork { id: None, .. } => {
                let world = team.runtime().world();
                RunId::new(format!("{:016x}{:016x}", world.random(), world.random()))
            }
        }
    }

    /// The team of the run; it keeps the session that is beside the journal, if there is one.
    async fn team(&self, runtime: Runtime) -> Result<(Team, Offered), String> {
        let sessions = self.sessions().await;
        self.several
            .team(&self.agent.made.common, runtime, sessions.as_ref())
            .await
    }

    async fn sessions(&self) -> Option<SessionFolder> {
        let folder = self.one.place.journal.parent()?;
        let sessions = plan::sessions(if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        });
        sessions
            .find(self.one.id().as_str())
            .await
            .is_ok()
            .then_some(sessions)
    }

    async fn drive_team(&self, team: &Team, way: &Way, records: &[Record]) -> Done {
        let kind = match (self.agent.json, self.agent.quiet) {
            (true, _) => plan::ViewKind::Json,
            (_, true) => plan::ViewKind::None,
            _ => plan::ViewKind::Auto,
        };
        let (run, old) = (self.new_id(team, way), self.one.id());
        let restore = |kind: &_, state: &_| team.inspect(kind, state);
        let replayed = replay(&old, way.known(records), restore).map_err(|error| chain(&error))?;
        let mut view = PlanView::of_run(run.clone());
        for Event { seq, at, kind, .. } in replayed.events {
            view.apply(&Event::new(run.clone(), seq, at, kind));
        }
        let told = plan::Told::new(
            view,
            kind,
            self.agent.made.common.logs.open()?,
            self.agent.park,
        );
        let going_on = self.run(team, way);
        let going_on = if let Way::Resume = way {
            going_on
        } else {
            going_on.id(run)
        };
        let run = going_on.on_event(told.watcher()).start();
        go_on(&run, way.known(records)).await;
        Ok(plan::show(run, told, team.runtime(), kind).await)
    }

    async fn swarm(&self, runtime: Runtime) -> Result<(Swarm, Offered), String> {
        let quiet = self.agent.quiet || self.agent.json;
        self.several
            .swarm(&self.agent.made.common, runtime, quiet)
            .await
    }

    async fn drive_swarm(&self, swarm: &Swarm, way: &Way, records: &[Record]) -> Done {
        let (lines, answer) = match (self.agent.json, self.agent.quiet) {
            (true, _) => (swarm::Lines::Json, swarm::Printed::Nothing),
            (_, true) => (swarm::Lines::None, swarm::Printed::Text),
            _ => (swarm::Lines::Plain, swarm::Printed::Text),
        };
        let told = swarm::Told::new(lines, self.agent.park);
        if let Way::Resume = way {
            told.catch_up(&self.history(swarm).await?);
        }
        let logs = self.agent.made.common.logs.open()?;
        let run = self
            .run(swarm, way)
            .on_event(logs.beside(told.watcher()))
            .start();
        go_on(&run, way.known(records)).await;
        let quiet = self.agent.quiet || self.agent.json;
        let shown = swarm::Shown {
            answer,
            quiet,
            kept: true,
            bus: None,
        };
        Ok(swarm::show(run, told, swarm.runtime(), &shown).await)
    }

    /// The events of the run so far.
    async fn history(&self, what: &impl Runnable) -> Result<Vec<Event>, String> {
        let replayed = replay_run(what, &self.one.id()).await;
        replayed
            .map(|replayed| replayed.events)
            .map_err(|error| chain(&error))
    }
}

#[derive(Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    driven: Driven,
}

impl Replay {
    pub(super) async fn replay(self) -> Done {
        let Self { mut driven } = self;
        let json = std::mem::take(&mut driven.agent.json);
        driven.agent.quiet = true;
        let (journal, records) = driven.one.records().await?;
        let kind = Kind::of(&driven.one.id(), &records)?;
        if let Err(problem) = driven.several.check(kind, &driven.agent.made) {
            return Ok(complain(&problem, 2));
        }
        let runtime = Runtime::new().with_journal(journal);
        let events = match kind {
            Kind::Agent => {
                let (agent, offered) = driven.agent.build(runtime).await?;
                let replayed = offered.end(agent.replay(&driven.one.id()).await).await;
                replayed.map_err(|error| chain(&error))?.events
            }
            Kind::Team => {
                let (team, offered) = driven.team(runtime).await?;
                offered.end(driven.history(&team).await).await?
            }
            Kind::Swarm => {
                let (swarm, offered) = driven.swarm(runtime).await?;
                offered.end(driven.history(&swarm).await).await?
            }
        };
        if json {
            events.iter().for_each(say_json);
        } else {
            let (records, events) = (records.len(), events.len());
            say(&format!(
                "{records} records give the same {events} events again\n"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Fork {
    #[command(flatten)]
    driven: Driven,
    /// The last record of the old run that the new one begins with, by its number in
    /// `levity runs show`; of a run that has ended, the last before the last call of its model.
    #[arg(long, value_name = "RECORD")]
    after: Option<u64>,
    /// The new run's id; a random one by default.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

impl Fork {
    pub(super) async fn fork(self) -> Done {
        let way = Way::Fork {
            after: self.after,
            id: self.id,
        };
        self.driven.go_on(&way).await
    }
}
