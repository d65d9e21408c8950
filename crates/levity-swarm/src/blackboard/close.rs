//! Judges the board, and derives the answer from it.

use levity_core::{Failure, MachineOutput, Status};

use super::machine::Boarding;
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::crew::{not_done, shared_list};
use crate::desk::{Came, Desk, Duty};
use crate::judge::{self, Verdict, read};
use crate::names::JUDGE;
use crate::notice::SwarmNotice;
use crate::report::WorkerReport;

impl Boarding {
    /// Asks the judge whether the goal is reached.
    pub(super) fn ask(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        let work = self.blackboard.judge.work(self.judging(desk), false, desk);
        desk.want(&JUDGE.into(), &work, Duty::Lead, wants);
    }

    /// Handles the judge's answer. If it is unreadable or missing, the work continues without a
    /// verdict.
    pub(super) fn judged(&mut self, came: &Came, desk: &mut Desk, wants: &mut MachineOutput) {
        let complaint = match (read(&came.text).and_then(check), &came.result) {
            (Ok(verdict), _) => return self.found(&verdict, desk, wants),
            (Err(_), Err(why)) => why.error.clone(),
            (Err(complaint), Ok(())) => {
                if self
                    .asking
                    .reject(vec![complaint.clone()], &*came.text, judge::TRIES)
                    && desk.near.is_none()
                {
                    return self.ask(desk, wants);
                }
                complaint
            }
        };
        let (round, reason) = (
            self.round,
            format!("the judge gave no verdict: {complaint}"),
        );
        desk.tell(wants, || SwarmNotice::Judged {
            round,
            done: false,
            reason: reason.into(),
        });
        self.verdict = None;
        self.go_on(desk, wants);
    }

    fn found(&mut self, verdict: &Verdict, desk: &mut Desk, wants: &mut MachineOutput) {
        let (round, words) = (self.round, verdict.words());
        let done = verdict.done == Some(true);
        desk.tell(wants, || SwarmNotice::Judged {
            round,
            done,
            reason: words.clone(),
        });
        desk.post(
            NewMessage::new(
                JUDGE,
                Recipient::Everybody,
                MessageKind::Verdict,
                words.clone(),
            ),
            wants,
        );
        if !done {
            self.verdict = Some(words);
            return self.go_on(desk, wants);
        }
        if verdict.answer.is_empty() {
            return self.close(desk, wants);
        }
        let text = format!("{}{}", verdict.answer, not_done(&desk.reports));
        desk.answer(JUDGE, text, wants);
    }

    /// Starts making the answer from the board.
    pub(super) fn close(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if !self.blackboard.judge.is_there() {
            return self.list_up(None, desk, wants);
        }
        let work = self.blackboard.judge.work(self.closing(desk), true, desk);
        let effect = desk.want(&JUDGE.into(), &work, Duty::Close, wants);
        desk.tell(wants, || SwarmNotice::Synthesising { effect });
    }

    /// Handles the answer, or uses the board if there is none.
    pub(super) fn closed(&mut self, came: &Came, desk: &mut Desk, wants: &mut MachineOutput) {
        let why = match &came.result {
            Ok(()) if !came.text.trim().is_empty() => {
                let text = format!("{}{}", came.text.trim_end(), not_done(&desk.reports));
                return desk.answer(JUDGE, text, wants);
            }
            Ok(()) => "the answer is empty".to_owned(),
            Err(why) => why.error.clone(),
        };
        desk.tell(wants, || SwarmNotice::Listed { why: why.clone() });
        self.list_up(Some(why), desk, wants);
    }

    fn list_up(&mut self, why: Option<String>, desk: &mut Desk, wants: &mut MachineOutput) {
        let text = self.without(desk);
        if !self.board.is_empty() || desk.reports.iter().any(WorkerReport::is_done) {
            return desk.answer(JUDGE, text, wants);
        }
        let made = why.map_or_else(String::new, |why| {
            format!(", and no answer was made: {why}")
        });
        let why = format!(
            "no worker has written anything{made}{}",
            not_done(&desk.reports)
        );
        desk.end(Status::Failed(Failure::Unreached(why)), text, None);
    }

    /// Returns the answer without an agent: the answer entry, the board as a list, or the workers'
    /// answers.
    pub(super) fn without(&self, desk: &Desk) -> String {
        let text = match self.board.get(&self.blackboard.until) {
            Some(entry) => entry.content.trim_end().to_owned(),
            None if self.board.is_empty() => shared_list(
                self.last_words(desk)
                    .map(|report| (report.worker.to_string(), &*report.text)),
            ),
            None => shared_list(
                self.board
                    .iter()
                    .map(|entry| (format!("{} (by {})", entry.key, entry.by), &*entry.content)),
            ),
        };
        format!("{text}{}", not_done(&desk.reports))
    }

    /// Returns the reports with text of the last round.
    pub(super) fn last_words<'a>(
        &self,
        desk: &'a Desk,
    ) -> impl Iterator<Item = &'a WorkerReport> + use<'a> {
        let round = desk.reports.iter().skip(self.crew.base());
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
