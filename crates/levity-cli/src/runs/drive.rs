//! Going on with runs.

use std::process::ExitCode;

use clap::Args;
use levity::prelude::*;

use super::{Done, Driven};
use crate::follow::{follow, go_on};
use crate::terminal::{chain, say, say_json};

pub(super) async fn resume(args: Driven) -> Done {
    let logs = args.agent.made.logs.open()?;
    let (journal, records) = args.one.own_records(args.trust).await?;
    let (agent, offered) = args.agent.build(Runtime::new().with_journal(journal)).await?;
    let mut resume = agent.resume(args.one.id()).on_event(logs.watcher(None));
    if let Some(limits) = args.agent.made.options.given_limits() {
        resume = resume.limits(limits);
    }
    let run = if args.agent.park { resume.park() } else { resume }.start();
    go_on(&run, &records).await;
    Ok(offered.end(follow(run, &args.agent, true).await).await)
}

#[derive(Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    driven: Driven,
}

impl Replay {
    pub(super) async fn replay(self) -> Done {
        let Driven { one, agent: mut args, .. } = self.driven;
        let (journal, records) = one.records().await?;
        args.quiet = true;
        let (agent, offered) = args.build(Runtime::new().with_journal(journal)).await?;
        let replayed = offered.end(agent.replay(&one.id()).await).await.map_err(|error| chain(&error))?;
        if args.json {
            replayed.events.iter().for_each(say_json);
        } else {
            let (records, events) = (records.len(), replayed.events.len());
            say(&format!("{records} records give the same {events} events again\n"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Fork {
    #[command(flatten)]
    driven: Driven,
    /// The last record of the old run that the new one begins with, by its number in `levity runs show`; of
    /// a run that has ended, the last before the last call of its model.
    #[arg(long, value_name = "RECORD")]
    after: Option<u64>,
    /// The new run's id; a random one by default.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

impl Fork {
    pub(super) async fn fork(self) -> Done {
        let Driven { one, trust, agent: args } = self.driven;
        let (journal, records) = one.own_records(trust).await?;
        let logs = args.made.logs.open()?;
        let (agent, offered) = args.build(Runtime::new().with_journal(journal)).await?;
        let mut fork = agent.fork(one.id()).on_event(logs.watcher(None));
        if let Some(after) = self.after {
            fork = fork.after(after);
        }
        if let Some(id) = self.id {
            fork = fork.id(id);
        }
        if let Some(limits) = args.made.options.given_limits() {
            fork = fork.limits(limits);
        }
        let run = if args.park { fork.park() } else { fork }.start();
        let begins = self.after.and_then(|after| usize::try_from(after).ok()?.checked_add(1));
        go_on(&run, records.get(..begins.unwrap_or(records.len())).unwrap_or_default()).await;
        Ok(offered.end(follow(run, &args, true).await).await)
    }
}
