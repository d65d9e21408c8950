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
//! The records decide which questions are open, not the list of the journal. Another program could
//! put the number of a later call into the list, and use the decision when that call is asked.
//!
//! Exit codes: 0 if the request is stored or sent, 1 otherwise, 2 for a wrong call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use levity::core::{
    ControlCommand, EffectId, EffectKind, Entry, Journal, Record, Resolution, RunId, RunRequest,
    RunSummary, ToolOutput,
};
use levity::prelude::*;
use levity::runtime::Delivery;

use super::timeline::{ApprovalCall, asked_calls, open_effects};
use super::{CommandResult, RunArg};
use crate::marks::{OwnJournal, Trust, children};
use crate::terminal::{advise, chain, print_text, shell_quote};

#[derive(Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    run_arg: RunArg,
    /// Question, by its number in `levity runs show`; required if there is more than one. With the
    /// fingerprint that `show` prints, another call with the same number is refused.
    #[arg(long, value_name = "EFFECT[:FINGERPRINT]")]
    effect: Option<QuestionArg>,
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
        let id = self.run_arg.id();
        let question =
            question(&journal, Check::Sealed, &id, &records, self.effect.as_ref()).await?;
        let Question { run, effect, call } = question;
        if !call.is_known {
            return Err(format!(
                "the journal does not contain the call to approve: {}; `levity runs resume` shows \
                    it at a terminal and asks for approval",
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
    /// Question, by its number in `levity runs show`; required if there is more than one. With the
    /// fingerprint that `show` prints, another call with the same number is refused.
    #[arg(long, value_name = "EFFECT[:FINGERPRINT]")]
    effect: Option<QuestionArg>,
    /// Reason, which the model receives.
    #[arg(long, default_value = "the user denied the call")]
    reason: String,
}

impl Deny {
    /// Denies the call; the model receives the reason.
    pub(super) async fn send(self) -> CommandResult {
        let (journal, records) = self.run_arg.any_records().await?;
        let id = self.run_arg.id();
        let question = question(&journal, Check::Any, &id, &records, self.effect.as_ref()).await?;
        let Question { run, effect, .. } = question;
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
    /// Question, by its number in `levity runs show`; required if there is more than one. With the
    /// fingerprint that `show` prints, another call with the same number is refused.
    #[arg(long, value_name = "EFFECT[:FINGERPRINT]")]
    effect: Option<QuestionArg>,
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
        let id = self.run_arg.id();
        let question =
            question(&journal, Check::Sealed, &id, &records, self.effect.as_ref()).await?;
        let Question { run, effect, .. } = question;
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
        let (journal, records) = self.run_arg.own_records(self.trust).await?;
        check_unfinished(&self.run_arg.id(), &records, effect)?;
        send_request(
            journal,
            &self.run_arg.id(),
            RunRequest::Resolve { effect, resolution },
        )
        .await
    }
}

/// An open question of a run.
struct Question {
    run: RunId,
    effect: EffectId,
    call: ApprovalCall,
}

impl Question {
    /// Returns the arguments that select the question, with the fingerprint of its call.
    fn args(&self) -> String {
        let run = shell_quote(self.run.as_str());
        match &self.call.fingerprint {
            Some(hash) => format!("{run} --effect {}:{hash}", self.effect),
            None => format!("{run} --effect {}", self.effect),
        }
    }
}

/// A question in the arguments of a command: the number of its effect, and optionally the
/// fingerprint of its call, such as `2` or `2:9f86d081884c7d659a2feaa0c55ad015`.
#[derive(Clone, Debug)]
struct QuestionArg {
    effect: EffectId,
    fingerprint: Option<String>,
}

impl FromStr for QuestionArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (effect, fingerprint) = match text.split_once(':') {
            Some((effect, hash)) => (effect, Some(hash)),
            None => (text, None),
        };
        let is_valid = |hash: &str| {
            hash.len() == 32
                && hash
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        match (effect.parse(), fingerprint) {
            (Ok(number), hash) if hash.is_none_or(is_valid) => Ok(Self {
                effect: EffectId::new(number),
                fingerprint: hash.map(str::to_owned),
            }),
            _ => Err(
                "expected a number, or a number and a fingerprint of 32 digits, such as `2:9f86..`"
                    .to_owned(),
            ),
        }
    }
}

/// The records in which questions are looked up.
#[derive(Clone, Copy)]
enum Check {
    /// Those that levity itself wrote, for decisions that let a run go on.
    Sealed,
    /// Those of any program, for decisions that only stop something.
    Any,
}

/// Returns the question with this number, or the only one.
///
/// A number refers to the named run itself; without a number, child runs are searched too, because
/// a user usually knows only the id of the run that was started.
///
/// # Errors
/// The errors differ in their advice: the run has ended, it has no question, or one has to be
/// chosen; the last one lists ready options for each.
async fn question(
    journal: &OwnJournal,
    check: Check,
    run: &RunId,
    records: &[Record],
    arg: Option<&QuestionArg>,
) -> Result<Question, String> {
    let mut found = open_questions(journal, check, run, records).await?;
    let wanted = |question: &Question| match arg {
        Some(arg) => question.run == *run && question.effect == arg.effect,
        None => true,
    };
    let position = found.iter().position(wanted);
    if let Some(position) = position.filter(|_| arg.is_some() || found.len() == 1) {
        let question = found.swap_remove(position);
        check_fingerprint(&question, arg)?;
        return Ok(question);
    }
    let id = shell_quote(run.as_str());
    if has_ended(records) {
        return Err(format!(
            "run `{run}` has ended, so it has no open question; `levity runs show {id}` shows its \
                answer"
        ));
    }
    if found.is_empty() {
        return Err(format!(
            "run `{run}` has no open question; `levity runs show {id}` shows its state"
        ));
    }
    let list: Vec<_> = found.iter().map(Question::args).collect();
    let list = list.join(", ");
    Err(match arg {
        Some(QuestionArg { effect, .. }) => {
            format!("run `{run}` has no open question with effect {effect}; choose one: {list}")
        }
        None => format!(
            "there are {} open questions; choose one: {list}",
            found.len()
        ),
    })
}

/// Fails if the user selected another question: since they read it, the run was replaced by one
/// with the same id.
fn check_fingerprint(question: &Question, arg: Option<&QuestionArg>) -> Result<(), String> {
    let Some(selected) = arg.and_then(|arg| arg.fingerprint.as_ref()) else {
        return Ok(());
    };
    if question.call.fingerprint.as_ref() == Some(selected) {
        return Ok(());
    }
    let (run, effect) = (&question.run, question.effect);
    Err(format!(
        "effect {effect} of run `{run}` is another question than the selected one; read it with \
            `levity runs show {}`",
        shell_quote(run.as_str())
    ))
}

/// Returns the open questions of a run and of the child runs that its records name.
async fn open_questions(
    journal: &OwnJournal,
    check: Check,
    run: &RunId,
    records: &[Record],
) -> Result<Vec<Question>, String> {
    let of = |run: &RunId, records: &[Record]| -> Vec<Question> {
        let calls = if is_ending(records) {
            BTreeMap::new()
        } else {
            asked_calls(records)
        };
        let question = |(effect, call)| Question {
            run: run.clone(),
            effect,
            call,
        };
        calls.into_iter().map(question).collect()
    };
    let mut found = of(run, records);
    let (mut seen, mut queue) = (BTreeSet::from([run.clone()]), VecDeque::new());
    queue.extend(children(run, records));
    while let Some(child) = queue.pop_front() {
        if !seen.insert(child.clone()) {
            continue;
        }
        let records = match check {
            Check::Sealed => journal.read_to_continue(&child).await,
            Check::Any => journal.read(&child).await,
        };
        let records = records.map_err(|error| chain(&error))?;
        found.extend(of(&child, &records));
        queue.extend(children(&child, &records));
    }
    Ok(found)
}

/// Checks that a call has started and not finished, so that its result can be stated.
fn check_unfinished(run: &RunId, records: &[Record], effect: EffectId) -> Result<(), String> {
    let open = open_effects(records).into_iter();
    let calls = open.filter(|(_, note)| note.kind == EffectKind::Tool && !note.class.may_repeat());
    let calls: Vec<_> = calls.map(|(effect, _)| effect).collect();
    if has_ended(records) {
        return Err(format!(
            "run `{run}` is not running, so no call of it is interrupted; `levity runs show {}` \
                shows its answer",
            shell_quote(run.as_str())
        ));
    }
    if calls.contains(&effect) {
        return Ok(());
    }
    let list: Vec<_> = calls
        .iter()
        .map(|effect| format!("--effect {effect}"))
        .collect();
    let advice = match &*list {
        [] => format!(
            "`levity runs show {}` shows its state",
            shell_quote(run.as_str())
        ),
        list => format!("choose one: {}", list.join(", ")),
    };
    Err(format!(
        "run `{run}` has no call with effect {effect} whose result is unknown; {advice}"
    ))
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

/// A run that was cancelled or stopped ends without its answers.
fn is_ending(records: &[Record]) -> bool {
    records.iter().any(|record| {
        matches!(
            record.entry,
            Entry::Commanded(ControlCommand::Cancel { .. }) | Entry::Stopped(_) | Entry::Ended(_)
        )
    })
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
