//! Judges the board, and derives the answer from it.
//!
//! An unreadable verdict never ends the work: the judge is asked once more, and then the next round
//! starts.

use levity_core::{Failure, MachineOutput, Status};

use super::machine::BlackboardMachine;
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::judge::{self, Verdict, read};
use crate::names::JUDGE;
use crate::notice::SwarmNotice;
use crate::report::WorkerReport;
use crate::round_work::{not_done, shared_list};
use crate::shared_state::{FinishedWork, SharedState, WorkKind};

impl BlackboardMachine {
    /// Asks the judge whether the goal is reached.
    pub(super) fn ask(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        let work = self
            .blackboard
            .judge
            .work(self.judge_task(shared), false, shared);
        shared.request(&JUDGE.into(), &work, WorkKind::Lead, out);
    }

    /// Handles the judge's answer. If it is unreadable or missing, the work continues without a
    /// verdict.
    pub(super) fn handle_verdict(
        &mut self,
        finished: &FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let complaint = match (read(&finished.text).and_then(check), &finished.result) {
            (Ok(verdict), _) => return self.apply_verdict(&verdict, shared, out),
            (Err(_), Err(failure)) => failure.error.clone(),
            (Err(complaint), Ok(())) => {
                if self.asking.reject(
                    vec![complaint.clone()],
                    &*finished.text,
                    judge::MAX_ATTEMPTS,
                ) && shared.near_limit.is_none()
                {
                    return self.ask(shared, out);
                }
                complaint
            }
        };
        let (round, reason) = (
            self.round,
            format!("the judge gave no verdict: {complaint}"),
        );
        shared.notify(out, || SwarmNotice::Judged {
            round,
            done: false,
            reason: reason.into(),
        });
        self.verdict = None;
        self.advance(shared, out);
    }

    fn apply_verdict(
        &mut self,
        verdict: &Verdict,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let (round, words) = (self.round, verdict.words());
        let done = verdict.done == Some(true);
        shared.notify(out, || SwarmNotice::Judged {
            round,
            done,
            reason: words.clone(),
        });
        shared.post(
            NewMessage::new(JUDGE, Recipient::All, MessageKind::Verdict, words.clone()),
            out,
        );
        if !done {
            self.verdict = Some(words);
            return self.advance(shared, out);
        }
        if verdict.answer.is_empty() {
            return self.close(shared, out);
        }
        let text = format!("{}{}", verdict.answer, not_done(&shared.reports));
        shared.answer(JUDGE, text, out);
    }

    /// Starts making the answer from the board.
    pub(super) fn close(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if !self.blackboard.judge.exists() {
            return self.answer_with_list(None, shared, out);
        }
        let work = self
            .blackboard
            .judge
            .work(self.answer_task(shared), true, shared);
        let effect = shared.request(&JUDGE.into(), &work, WorkKind::Close, out);
        shared.notify(out, || SwarmNotice::Synthesising { effect });
    }

    /// Handles the answer, or uses the board if there is none.
    pub(super) fn handle_synthesis(
        &mut self,
        finished: &FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let reason = match &finished.result {
            Ok(()) if !finished.text.trim().is_empty() => {
                let text = format!("{}{}", finished.text.trim_end(), not_done(&shared.reports));
                return shared.answer(JUDGE, text, out);
            }
            Ok(()) => "the answer is empty".to_owned(),
            Err(failure) => failure.error.clone(),
        };
        shared.notify(out, || SwarmNotice::Listed {
            reason: reason.clone(),
        });
        self.answer_with_list(Some(reason), shared, out);
    }

    fn answer_with_list(
        &mut self,
        reason: Option<String>,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let text = self.fallback_answer(shared);
        if !self.board.is_empty() || shared.reports.iter().any(WorkerReport::is_done) {
            return shared.answer(JUDGE, text, out);
        }
        let made = reason.map_or_else(String::new, |reason| {
            format!(", and no answer was made: {reason}")
        });
        let reason = format!(
            "no worker has written anything{made}{}",
            not_done(&shared.reports)
        );
        shared.end(Status::Failed(Failure::GoalNotReached(reason)), text, None);
    }

    /// Returns the answer without an agent: the answer entry, the board as a list, or the workers'
    /// answers.
    pub(super) fn fallback_answer(&self, shared: &SharedState) -> String {
        let text = match self.board.get(&self.blackboard.until) {
            Some(entry) => entry.content.trim_end().to_owned(),
            None if self.board.is_empty() => shared_list(
                self.last_answers(shared)
                    .map(|report| (report.worker.to_string(), &*report.text)),
            ),
            None => shared_list(
                self.board
                    .iter()
                    .map(|entry| (format!("{} (by {})", entry.key, entry.by), &*entry.content)),
            ),
        };
        format!("{text}{}", not_done(&shared.reports))
    }

    /// Returns the reports with text of the last round.
    pub(super) fn last_answers<'a>(
        &self,
        shared: &'a SharedState,
    ) -> impl Iterator<Item = &'a WorkerReport> + use<'a> {
        let round = shared.reports.iter().skip(self.round_work.base());
        round.filter(|report| report.is_done() && !report.text.trim().is_empty())
    }
}

/// Checks that a verdict has the requested field.
fn check(verdict: Verdict) -> Result<Verdict, String> {
    if verdict.done.is_none() {
        Err("the answer has no `done`".to_owned())
    } else {
        Ok(verdict)
    }
}
