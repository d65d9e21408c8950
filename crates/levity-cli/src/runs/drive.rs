//! Resumes, forks and replays runs of every kind.
//!
//! The records say which kind of machine drove a run, so these commands need no option for it:
//! `Kind::of` selects agent, team or swarm, and the options that define one must fit, or the call
//! is wrong (exit code 2). The user gives the same options as at the start, since a journal stores
//! decisions and results but no tools, keys or models.
//!
//! Resuming performs effects, so it requires a run of this user or an explicit trust, see `marks`.
//! Replaying performs none: it folds the records through the same machine and compares, so it
//! accepts every run.
//!
//! Other exit codes are those of `run`, `plan` and `swarm`, because the same code follows the
//! continued run.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use levity::core::{Entry, Event, Record, RunId, World as _};
use levity::dag::Team;
use levity::observe::{PlanView, SessionFolder};
use levity::prelude::*;
use levity::runtime::{Run, Runnable, replay, replay_run};
use levity::swarm::Swarm;

use super::{CommandResult, DriveArgs};
use crate::follow::{follow, unpause};
use crate::given::Given;
use crate::kind::Kind;
use crate::mcp::McpServers;
use crate::terminal::{chain, print_json, print_text, report_error};
use crate::{plan, swarm};

/// A way to continue an old run.
///
/// A resumed run keeps its id and appends to its records; a fork copies records into a run with a
/// new id and leaves the old one unchanged.
enum Continuation {
    Resume,
    /// A new run that starts after a record of the old one.
    Fork {
        after: Option<u64>,
        id: Option<String>,
    },
}

impl Continuation {
    /// Returns the records with which the run starts.
    ///
    /// They are needed before the run starts, to rebuild the view and to see if it was paused. A
    /// fork without `after` drops the end of the old run, so the new one continues instead of
    /// ending at once. A number beyond the last record returns no records, and the runtime reports
    /// the error.
    fn initial_records<'a>(&self, records: &'a [Record]) -> &'a [Record] {
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

/// Completed effects are not repeated; their results come from the records.
pub(super) async fn resume(args: DriveArgs) -> CommandResult {
    args.continue_run(&Continuation::Resume).await
}

impl DriveArgs {
    /// The records are read twice on purpose. The first read only finds the kind, so that a wrong
    /// option fails before the second one asks for trust and prints calls of a foreign run.
    async fn continue_run(self, continuation: &Continuation) -> CommandResult {
        let (_, records) = self.run_arg.records().await?;
        let kind = Kind::of(&self.run_arg.id(), &records)?;
        // This check runs before a foreign run is trusted.
        if let Err(problem) = self.check(kind) {
            return Ok(report_error(&problem, 2));
        }
        let (journal, records) = self.run_arg.own_records(self.trust).await?;
        let runtime = Runtime::new().with_journal(journal);
        match kind {
            Kind::Agent => self.agent(runtime, continuation, &records).await,
            Kind::Team => {
                let (team, mcp_servers) = self.team(runtime).await?;
                mcp_servers
                    .end(self.drive_team(&team, continuation, &records).await)
                    .await
            }
            Kind::Swarm => {
                let (swarm, mcp_servers) = self.swarm(runtime).await?;
                mcp_servers
                    .end(self.drive_swarm(&swarm, continuation, &records).await)
                    .await
            }
        }
    }

    /// Rejects options that have no effect on this kind of run, and files that do not exist.
    fn check(&self, kind: Kind) -> Result<(), String> {
        Given::files(&self.files)?;
        let recalls = self.agent.recall.is_some() && !crate::settings::is_supplied("recall");
        if recalls && kind != Kind::Agent {
            let text = "`--recall` has no effect on a resumed team or swarm; remove it";
            return Err(text.to_owned());
        }
        self.group.check(kind, &self.agent.shape)
    }

    /// Returns the continued run before it is started.
    ///
    /// Only limits that the user gives replace the stored ones. Without this rule, a resumed run
    /// would fall back to the defaults of the command.
    fn run<W: Runnable>(
        &self,
        runnable: &W,
        continuation: &Continuation,
        records: &[Record],
    ) -> Run<W> {
        let old = self.run_arg.id();
        let mut run = match continuation {
            Continuation::Resume => Run::resume(runnable.clone(), old),
            Continuation::Fork { after, id } => {
                let fork = Run::fork(runnable.clone(), old);
                let fork = after.iter().fold(fork, |fork, after| fork.after(*after));
                id.iter().fold(fork, |fork, id| fork.id(id.as_str()))
            }
        };
        if let Some(limits) = self.agent.shape.common.options.resumed_limits(records) {
            run = run.limits(limits);
        }
        if self.agent.park { run.park() } else { run }
    }

    /// Follows the run like `levity run` does, and ends the MCP servers after it.
    async fn agent(
        &self,
        runtime: Runtime,
        continuation: &Continuation,
        records: &[Record],
    ) -> CommandResult {
        let logs = self.agent.shape.common.logs.open()?;
        let extras = self.agent.extras(Given::files(&self.files)?)?;
        let (agent, mcp_servers) = self.agent.build(runtime, &extras).await?;
        let run = self
            .run(&agent, continuation, records)
            .on_event(logs.watcher(None))
            .start();
        unpause(&run, continuation.initial_records(records)).await;
        let goal = super::goal_of(records).unwrap_or_default();
        let recall = extras.recall.as_ref().map(|recall| (recall, &*goal));
        let code = follow(run, &self.agent, true, recall).await;
        Ok(mcp_servers.end(code).await)
    }

    /// Returns the id of the continued run.
    ///
    /// A team needs its id before the start, because the view is filled with events of that id;
    /// random ids have 32 hexadecimal digits.
    fn new_id(&self, team: &Team, continuation: &Continuation) -> RunId {
        match continuation {
            Continuation::Resume => self.run_arg.id(),
            Continuation::Fork { id: Some(id), .. } => RunId::new(id.as_str()),
            Continuation::Fork { id: None, .. } => {
                let world = team.runtime().world();
                RunId::new(format!("{:016x}{:016x}", world.random(), world.random()))
            }
        }
    }

    /// Builds the team of the run; it updates the session next to the journal, if there is one.
    async fn team(&self, runtime: Runtime) -> Result<(Team, McpServers), String> {
        let sessions = self.sessions().await;
        self.group
            .team(
                &self.agent.shape.common,
                &Given::files(&self.files)?,
                runtime,
                sessions.as_ref(),
            )
            .await
    }

    /// `levity plan --sessions DIR` keeps its journal in `DIR/journal`, so the session of a run
    /// lies in the folder above. Returns `None` if that folder has no session of this run; a
    /// journal of another command then gets no session file.
    async fn sessions(&self) -> Option<SessionFolder> {
        let folder = self.run_arg.place.journal.parent()?;
        let sessions = plan::sessions(if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        });
        sessions
            .find(self.run_arg.id().as_str())
            .await
            .is_ok()
            .then_some(sessions)
    }

    /// Replays the initial records into the view first, so the tree shows the completed steps from
    /// the beginning. For a fork, the events of the old run get the id of the new one.
    async fn drive_team(
        &self,
        team: &Team,
        continuation: &Continuation,
        records: &[Record],
    ) -> CommandResult {
        let kind = match (self.agent.json, self.agent.quiet) {
            (true, _) => plan::ViewKind::Json,
            (_, true) => plan::ViewKind::None,
            _ => plan::ViewKind::Auto,
        };
        let (run, old) = (self.new_id(team, continuation), self.run_arg.id());
        let restore = |kind: &_, state: &_| team.inspect(kind, state);
        let replayed = replay(&old, continuation.initial_records(records), restore)
            .map_err(|error| chain(&error))?;
        let mut view = PlanView::of_run(run.clone());
        for Event { seq, at, kind, .. } in replayed.events {
            view.apply(&Event::new(run.clone(), seq, at, kind));
        }
        let display = plan::PlanDisplay::new(
            view,
            kind,
            self.agent.shape.common.logs.open()?,
            self.agent.park,
        );
        let continued = self.run(team, continuation, records);
        let continued = if let Continuation::Resume = continuation {
            continued
        } else {
            continued.id(run)
        };
        let run = continued.on_event(display.watcher()).start();
        unpause(&run, continuation.initial_records(records)).await;
        Ok(plan::show(run, display, team.runtime(), kind).await)
    }

    /// Notes of the tools are hidden in quiet and in JSON output.
    async fn swarm(&self, runtime: Runtime) -> Result<(Swarm, McpServers), String> {
        let quiet = self.agent.quiet || self.agent.json;
        self.group
            .swarm(
                &self.agent.shape.common,
                &Given::files(&self.files)?,
                runtime,
                quiet,
            )
            .await
    }

    /// A fork starts with an empty display, since the events of the old run have other ids.
    async fn drive_swarm(
        &self,
        swarm: &Swarm,
        continuation: &Continuation,
        records: &[Record],
    ) -> CommandResult {
        let (lines, answer) = match (self.agent.json, self.agent.quiet) {
            (true, _) => (swarm::Lines::Json, swarm::AnswerFormat::Nothing),
            (_, true) => (swarm::Lines::None, swarm::AnswerFormat::Text),
            _ => (swarm::Lines::Plain, swarm::AnswerFormat::Text),
        };
        let display = swarm::SwarmDisplay::new(lines, self.agent.park);
        if let Continuation::Resume = continuation {
            display.catch_up(&self.history(swarm).await?);
        }
        let logs = self.agent.shape.common.logs.open()?;
        let run = self
            .run(swarm, continuation, records)
            .on_event(logs.watcher_with(display.watcher()))
            .start();
        unpause(&run, continuation.initial_records(records)).await;
        let quiet = self.agent.quiet || self.agent.json;
        let options = swarm::OutputOptions {
            answer,
            quiet,
            in_journal: true,
            bus: None,
        };
        Ok(swarm::show(run, display, swarm.runtime(), &options).await)
    }

    /// Returns the events of the run up to now.
    ///
    /// Fails if a record does not fit the machine, for example after an incompatible change of the
    /// options.
    async fn history(&self, runnable: &impl Runnable) -> Result<Vec<Event>, String> {
        let replayed = replay_run(runnable, &self.run_arg.id()).await;
        replayed
            .map(|replayed| replayed.events)
            .map_err(|error| chain(&error))
    }
}

#[derive(Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    drive_args: DriveArgs,
}

impl Replay {
    /// The options for output are taken from the arguments, so that building the agent prints
    /// nothing. MCP servers start, since their tools are part of the agent, but no tool is called.
    /// A difference is an error with exit code 1.
    pub(super) async fn replay(self) -> CommandResult {
        let Self { mut drive_args } = self;
        let json = std::mem::take(&mut drive_args.agent.json);
        drive_args.agent.quiet = true;
        let (journal, records) = drive_args.run_arg.records().await?;
        let kind = Kind::of(&drive_args.run_arg.id(), &records)?;
        if let Err(problem) = drive_args.check(kind) {
            return Ok(report_error(&problem, 2));
        }
        let runtime = Runtime::new().with_journal(journal);
        let events = match kind {
            Kind::Agent => {
                let given = Given::files(&drive_args.files)?;
                let extras = drive_args.agent.extras(given)?;
                let (agent, mcp_servers) = drive_args.agent.build(runtime, &extras).await?;
                let replayed = mcp_servers
                    .end(agent.replay(&drive_args.run_arg.id()).await)
                    .await;
                replayed.map_err(|error| chain(&error))?.events
            }
            Kind::Team => {
                let (team, mcp_servers) = drive_args.team(runtime).await?;
                mcp_servers.end(drive_args.history(&team).await).await?
            }
            Kind::Swarm => {
                let (swarm, mcp_servers) = drive_args.swarm(runtime).await?;
                mcp_servers.end(drive_args.history(&swarm).await).await?
            }
        };
        if json {
            events.iter().for_each(print_json);
        } else {
            let (records, events) = (records.len(), events.len());
            print_text(&format!(
                "replayed {records} records with the same {events} events\n"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Fork {
    #[command(flatten)]
    drive_args: DriveArgs,
    /// Last record of the old run that the new run starts with, by its number in
    /// `levity runs show`; for a run that has ended, the record before the last model call.
    #[arg(long, value_name = "RECORD")]
    after: Option<u64>,
    /// Id of the new run; random by default.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

impl Fork {
    /// Prints and exits like the command of the run's kind.
    pub(super) async fn fork(self) -> CommandResult {
        let continuation = Continuation::Fork {
            after: self.after,
            id: self.id,
        };
        self.drive_args.continue_run(&continuation).await
    }
}
