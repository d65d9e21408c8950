//! Sends requests to runs, no matter which process drives them.
//!
//! Each command writes one request into the journal. The process that drives the run picks it up;
//! without such a process, it stays and takes effect when the run is resumed. The commands
//! therefore need no connection to that process, and work after its crash.
//!
//! Approving is the dangerous one. It prints the call that will be executed, taken from the reply
//! of the model in the records, and refuses a call that it cannot find there or cannot show in full
//! without `--long-call`. Commands that let a run go on (approve, answer, resolve) require a run of
//! this user; those that only stop something (deny, cancel) do not.
//!
//! Exit codes: 0 if the request is stored or sent, 1 otherwise, 2 for a wrong call.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use levity::core::{
    ControlCommand, EffectId, Entry, Journal, Record, Resolution, RunId, RunRequest, RunSummary,
    ToolOutput, Waiting,
};
use levity::prelude::*;
use levity::runtime::Delivery;

use super::timeline::asked_call;
use super::{CommandResult, RunArg};
use crate::marks::Trust;
use crate::terminal::{advise, chain, print_text, shell_quote};

#[derive(Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    run_arg: RunArg,
    /// Question, by its number in `levity runs show`; required if there is more than one.
    #[arg(long, value_name = "EFFECT")]
    effect: Option<u64>,
    /// Approve a call that is too long to be shown in full; `levity runs show --json` prints all of
    /// it.
    #[arg(long)]
    long_call: bool,
    #[command(flatten)]
    trust: Trust,
}

impl Approve {
    /// Shows the call and approves it. A call that the journal does not contain, or that is too
    /// long to show, is refused.
    pub(super) async fn send(self) -> CommandResult {
        let (journal, records) = self.run_arg.own_records(self.trust).await?;
        let (run, effect) = question(&*journal, &self.run_arg.id(), &records, self.effect).await?;
        let asking = if run == self.run_arg.id() {
            records
        } else {
            let read = journal.read_to_continue(&run).await;
            read.map_err(|error| chain(&error))?
        };
        if let Some(call) = asked_call(&asking, effect) {
            if !call.is_known {
                return Err(format!(
                    "the journal does not contain the call to approve: {}; `levity runs resume` \
                        shows it at a terminal and asks for approval",
                    call.text
                ));
            }
            print_text(&format!("approving {}\n", call.text));
            if !call.is_complete && !self.long_call {
                return Err(format!(
                    "the call is too long to be shown in full, so it is not approved; `levity runs \
                        show {run} --json` prints all of it, and `--long-call` approves it",
                    run = shell_quote(run.as_str())
                ));
            }
        }
        send_request(
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
    run_arg: RunArg,
    /// Question, by its number in `levity runs show`; required if there is more than one.
    #[arg(long, value_name = "EFFECT")]
    effect: Option<u64>,
    /// Reason, which the model receives.
    #[arg(long, default_value = "the user denied the call")]
    reason: String,
}

impl Deny {
    /// Denies the call; the model receives the reason.
    pub(super) async fn send(self) -> CommandResult {
        let (journal, records) = self.run_arg.any_records().await?;
        let (run, effect) = question(&*journal, &self.run_arg.id(), &records, self.effect).await?;
        send_request(
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
    run_arg: RunArg,
    /// Question, by its number in `levity runs show`; required if there is more than one.
    #[arg(long, value_name = "EFFECT")]
    effect: Option<u64>,
    /// Text of the answer.
    #[arg(long)]
    text: String,
    #[command(flatten)]
    trust: Trust,
}

impl Answer {
    /// Answers a question of the model, or replaces the result of a call.
    pub(super) async fn send(self) -> CommandResult {
        let (journal, records) = self.run_arg.own_records(self.trust).await?;
        let (run, effect) = question(&*journal, &self.run_arg.id(), &records, self.effect).await?;
        send_request(
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
    run_arg: RunArg,
    /// Reason for the cancellation.
    #[arg(long, default_value = "the user cancelled the run")]
    reason: String,
}

impl Cancel {
    /// Cancels the run and, with it, its child runs.
    pub(super) async fn send(self) -> CommandResult {
        let (journal, _) = self.run_arg.any_records().await?;
        send_request(
            journal,
            &self.run_arg.id(),
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
    run_arg: RunArg,
    /// Call, by its number in `levity runs show`.
    #[arg(long, value_name = "EFFECT")]
    effect: u64,
    /// The call took effect and returned this text.
    #[arg(long, value_name = "TEXT", group = "what")]
    done: Option<String>,
    /// The call did not take effect; repeat it when the run is resumed.
    #[arg(long, group = "what")]
    not_done: bool,
    /// The result is unknown; the model receives this fact.
    #[arg(long, group = "what")]
    unknown: bool,
    #[command(flatten)]
    trust: Trust,
}

impl Resolve {
    /// States what became of a call that was in progress when a process ended.
    pub(super) async fn send(self) -> CommandResult {
        let resolution = match self.done {
            Some(text) => Resolution::Done(ToolOutput::text(text)),
            None if self.not_done => Resolution::NotDone,
            None => Resolution::Unknown,
        };
        let effect = EffectId::new(self.effect);
        let (journal, _) = self.run_arg.own_records(self.trust).await?;
        send_request(
            journal,
            &self.run_arg.id(),
            RunRequest::Resolve { effect, resolution },
        )
        .await
    }
}

/// Returns the question with this number, or the only one.
///
/// A number refers to the named run itself; without a number, child runs are searched too, because
/// a user usually knows only the id of the run that was started.
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

/// Returns the only open question of a run and its child runs.
///
/// Waits with a time are no questions. The three errors differ in their advice: the run has ended,
/// it has no question, or it has several; the last one lists ready options for each.
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
        [] if has_ended(records) => Err(format!(
            "run `{run}` has ended, so it has no open question; `levity runs show {}` shows its \
             answer",
            shell_quote(run.as_str())
        )),
        [] => {
            let id = shell_quote(run.as_str());
            Err(format!(
                "run `{run}` has no open question; `levity runs show {id}` shows its state"
            ))
        }
        many => {
            let list: Vec<_> = many
                .iter()
                .map(|(run, effect)| format!("{} --effect {effect}", shell_quote(run.as_str())))
                .collect();
            Err(format!(
                "there are {} open questions; choose one: {}",
                many.len(),
                list.join(", ")
            ))
        }
    }
}

/// Returns the run to resume so that this one continues.
///
/// A child run cannot be resumed by itself. The loop follows the parents while the records say that
/// a run is a child; an id with a dot alone is no proof, since users choose ids.
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

/// The end is always the last record of a run.
fn has_ended(records: &[Record]) -> bool {
    matches!(
        records.last().map(|record| &record.entry),
        Some(Entry::Ended(_))
    )
}

/// Tells the user which of the two happened: a living driver has the request, or the run must be
/// resumed, with the id of the run to resume.
async fn send_request(journal: Arc<dyn Journal>, run: &RunId, post: RunRequest) -> CommandResult {
    let delivery = Runtime::new()
        .with_journal(journal.clone())
        .send_request(run, post)
        .await;
    let show = format!(
        "`levity runs show {}` shows its state",
        shell_quote(run.as_str())
    );
    match delivery.map_err(|error| advise(chain(&error), &show))? {
        Delivery::Posted => print_text(&format!("sent to the process that drives run {run}\n")),
        _ => {
            let top = top(&*journal, run).await?;
            print_text(&format!(
                "stored; resume run {top} with `levity runs resume`\n"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}
