//! How it is judged what stands on the board, and how it becomes the answer.

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
    /// Has the judge say whether the goal is reached.
    pub(super) fn ask(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        let work = self.blackboard.judge.work(self.judging(desk), false, desk);
        desk.want(&JUDGE.into(), &work, Duty::Lead, wants);
    }

    /// The judge has spoken. When it cannot be read or failed, the work goes on without it.
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

    /// Has the answer made of what stands on the board.
    pub(super) fn close(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if !self.blackboard.judge.is_there() {
            return self.list_up(None, desk, wants);
        }
        let work = self.blackboard.judge.work(self.closing(desk), true, desk);
        let effect = desk.want(&JUDGE.into(), &work, Duty::Close, wants);
        desk.tell(wants, || SwarmNotice::Synthesising { effect });
    }

    /// The answer was made, or what stands there must do.
    pub(super) fn closed(&mut self, came: &Came, desk: &mut Desk, wants: &mut MachineOutput) {
        let why = match &came.result {
            Ok(()) if !came.text.trim().is_empty() => {
                let text = format!("{}{}", came.text.trim_end(), not_done(&desk.reports));
                return desk.answer(JUDGE, text, wants);
            }
            Ok(()) => "what was made of it is empty".to_owned(),
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
            "nobody has written anything{made}{}",
            not_done(&desk.reports)
        );
        desk.end(Status::Failed(Failure::Unreached(why)), text, None);
    }

    /// The answer without an agent that makes it: the entry for it, the board as a list, or what
    /// was said beside it.
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

    /// What was said in the last round.
    pub(super) fn last_words<'a>(
        &self,
        desk: &'a Desk,
    ) -> impl Iterator<Item = &'a WorkerReport> + use<'a> {
        let round = desk.reports.iter().skip(self.crew.base());
        round.filter(|report| report.is_done() && !report.text.trim().is_empty())
    }
}

/// Whether a verdict says what was asked for.
fn check(verdict: Verdict) -> Result<Verdict, String> {
    if verdict.done.is_none() {
        Err("it has no `done`".to_owned())
    } else {
        Ok(verdict)
    }
}
