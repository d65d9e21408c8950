//! Telling runs what to do, whoever drives them.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use levity::core::{
    ControlCommand, EffectId, Entry, Journal, Record, Resolution, RunId, RunRequest, RunSummary,
    ToolOutput, Waiting,
};
use levity::prelude::*;
use levity::runtime::Delivery;

use super::story::asked;
use super::{Done, One, read};
use crate::marks::Trust;
use crate::terminal::{chain, say, shell};

#[derive(Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    one: One,
    /// The question, by its number in `levity runs show`; needed when there is more than one.
    #[arg(long, value_name = "EFFECT")]
    effect: Option<u64>,
    /// Allow a call that is too long to be shown whole; `levity runs show --json` has all of it.
    #[arg(long)]
    long_call: bool,
    #[command(flatten)]
    trust: Trust,
}

impl Approve {
    pub(super) async fn tell(self) -> Done {
        let (journal, records) = self.one.own_records(self.trust).await?;
        let (run, effect) = question(&*journal, &self.one.id(), &records, self.effect).await?;
        let asking = if run == self.one.id() {
            records
        } else {
            read(&*journal, &run).await?
        };
        if let Some(call) = asked(&asking, effect) {
            if !call.is_known {
                return Err(format!(
                    "the journal does not show what would be approved: {}; `levity runs resume` \
                        shows it at a terminal, and asks",
                    call.words
                ));
            }
            say(&format!("approves {}\n", call.words));
            if !call.is_whole && !self.long_call {
                return Err(format!(
                    "the call is not shown whole, so it is not approved; `levity runs show {run} \
                        --json` has all of it, and \
                     `--long-call` approves it",
                    run = shell(run.as_str())
                ));
            }
        }
        tell_in(
            journal,
            &run,
            RunRequest::Decide {
                effect,
                decision: Decision::Allow,
            },
        )
        .await
    }
}

#[derive(Args)]
pub(crate) struct Deny {
    #[command(flatten)]
    one: One,
    /// The question, by its number in `levity runs show`; needed when there is more than one.
    #[arg(long, value_name = "EFFECT")]
    effect: Option<u64>,
    /// Why not; the model is told.
    #[arg(long, default_value = "the user says no")]
    reason: String,
}

impl Deny {
    pub(super) async fn tell(self) -> Done {
        let (journal, records) = self.one.records().await?;
        let (run, effect) = question(&*journal, &self.one.id(), &records, self.effect).await?;
        tell_in(
            journal,
            &run,
            RunRequest::Decide {
                effect,
                decision: Decision::deny(self.reason),
            },
        )
        .await
    }
}

#[derive(Args)]
pub(crate) struct Answer {
    #[command(flatten)]
    one: One,
    /// The question, by its number in `levity runs show`; needed when there is more than one.
    #[arg(long, value_name = "EFFECT")]
    effect: Option<u64>,
    /// The answer.
    #[arg(long)]
    text: String,
    #[command(flatten)]
    trust: Trust,
}

impl Answer {
    pub(super) async fn tell(self) -> Done {
        let (journal, records) = self.one.own_records(self.trust).await?;
        let (run, effect) = question(&*journal, &self.one.id(), &records, self.effect).await?;
        tell_in(
            journal,
            &run,
            RunRequest::Decide {
                effect,
                decision: Decision::answer(self.text),
            },
        )
        .await
    }
}

#[derive(Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    one: One,
    /// Why.
    #[arg(long, default_value = "the user wants no more")]
    reason: String,
}

impl Cancel {
    pub(super) async fn tell(self) -> Done {
        let (journal, _) = self.one.records().await?;
        tell_in(
            journal,
            &self.one.id(),
            RunRequest::Command(ControlCommand::Cancel {
                reason: self.reason,
            }),
        )
        .await
    }
}

#[derive(Args)]
#[command(group(ArgGroup::new("what").required(true)))]
pub(crate) struct Resolve {
    #[command(flatten)]
    one: One,
    /// The call, by its number in `levity runs show`.
    #[arg(long, value_name = "EFFECT")]
    effect: u64,
    /// It took effect, and returned this.
    #[arg(long, value_name = "TEXT", group = "what")]
    done: Option<String>,
    /// It did not take effect, and is to be made when the run goes on.
    #[arg(long, group = "what")]
    not_done: bool,
    /// Nobody can tell; the model is told so.
    #[arg(long, group = "what")]
    unknown: bool,
    #[command(flatten)]
    trust: Trust,
}

impl Resolve {
    pub(super) async fn tell(self) -> Done {
        let resolution = match self.done {
            Some(text) => Resolution::Done(ToolOutput::text(text)),
            None if self.not_done => Resolution::NotDone,
            None => Resolution::Unknown,
        };
        let effect = EffectId::new(self.effect);
        let (journal, _) = self.one.own_records(self.trust).await?;
        tell_in(
            journal,
            &self.one.id(),
            RunRequest::Resolve { effect, resolution },
        )
        .await
    }
}

/// The question that is meant: the one with this number, or the only one.
async fn question(
    journal: &dyn Journal,
    run: &RunId,
    records: &[Record],
    effect: Option<u64>,
) -> Result<(RunId, EffectId), String> {
    match effect {
        Some(effect) => Ok((run.clone(), EffectId::new(effect))),
        None => only_question(journal, run, records).await,
    }
}

/// The one question that a run, or a run below it, waits for an answer to.
async fn only_question(
    journal: &dyn Journal,
    run: &RunId,
    records: &[Record],
) -> Result<(RunId, EffectId), String> {
    let query = levity::core::RunQuery::new().below(run.clone());
    let runs = journal.list(&query).await.map_err(|error| chain(&error))?;
    let asks = |waiting: &Waiting| waiting.until.is_none();
    let found: Vec<(RunId, EffectId)> = runs
        .iter()
        .flat_map(|run| {
            run.waiting
                .iter()
                .filter(|w| asks(w))
                .map(|w| (run.run.clone(), w.effect))
        })
        .collect();
    match &*found {
        [only] => Ok(only.clone()),
        [] if has_ended(records) => Err(format!("run `{run}` has ended, so it asks nothing")),
        [] => {
            let id = shell(run.as_str());
            Err(format!(
                "run `{run}` asks nothing; `levity runs show {id}` says where it stands"
            ))
        }
        many => {
            let list: Vec<_> = many
                .iter()
                .map(|(run, effect)| format!("{} --effect {effect}", shell(run.as_str())))
                .collect();
            Err(format!(
                "there are {} questions; say which: {}",
                many.len(),
                list.join(", ")
            ))
        }
    }
}

/// The run that is to be resumed so that this one goes on.
async fn top(journal: &dyn Journal, run: &RunId) -> Result<RunId, String> {
    let mut top = run.clone();
    loop {
        let records = journal.read(&top).await.map_err(|error| chain(&error))?;
        let child = RunSummary::of(&top, &records).is_some_and(|summary| summary.child);
        match top.parent().filter(|_| child) {
            Some(parent) => top = parent,
            None => return Ok(top),
        }
    }
}

fn has_ended(records: &[Record]) -> bool {
    matches!(
        records.last().map(|record| &record.entry),
        Some(Entry::Ended(_))
    )
}

async fn tell_in(journal: Arc<dyn Journal>, run: &RunId, post: RunRequest) -> Done {
    let told = Runtime::new()
        .with_journal(journal.clone())
        .tell(run, post)
        .await;
    match told.map_err(|error| chain(&error))? {
        Delivery::Posted => say(&format!("left for the process that drives run {run}\n")),
        _ => {
            let top = top(&*journal, run).await?;
            say(&format!(
                "written; `levity runs resume` goes on with run {top}\n"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}
