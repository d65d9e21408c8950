//! The machine of a debate.
//!
//! Reports are in the order of turns: with `n` workers, the report at index `i` is a turn of round
//! `i / n + 1`. The transcript and the list of last turns rely on this.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{Failure, MachineOutput, Status};
use levity_graph::Drafts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Debate;
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::judge::{self, Verdict, in_words, read};
use crate::machine::{PatternMachine, PatternOutput, read_pattern_state};
use crate::names::JUDGE;
use crate::notice::SwarmNotice;
use crate::report::WorkerReport;
use crate::round_work::{RoundMode, RoundWork, not_done, shared_list};
use crate::rules::Start;
use crate::shared_state::{FinishedWork, SharedState, WorkKind};

/// Runs a debate: the workers speak round by round, and the judge decides.
#[derive(Serialize, Deserialize)]
pub(crate) struct DebateMachine {
    #[serde(skip, default = "Debate::unjudged")]
    pub(super) debate: Debate,
    /// The question, for the reports.
    #[serde(skip)]
    goal: Arc<str>,
    /// The round, from 1; 0 before the first.
    pub(super) round: u32,
    #[serde(rename = "crew")]
    pub(super) round_work: RoundWork,
    pub(super) asking: Drafts,
    /// The reasons of the judge, by round.
    pub(super) verdicts: BTreeMap<usize, Arc<str>>,
    /// `true` while the workers are speaking.
    speaking: bool,
    /// The worker that spoke last.
    last: Option<Arc<str>>,
}

impl DebateMachine {
    pub(crate) fn new(debate: &Debate, start: &Start) -> Self {
        Self {
            debate: debate.clone(),
            goal: start.goal.as_str().into(),
            round: 0,
            round_work: RoundWork::new(Recipient::All),
            asking: Drafts::default(),
            verdicts: BTreeMap::new(),
            speaking: false,
            last: None,
        }
    }

    /// Starts the next round, or asks the judge for the decision after the last one.
    fn advance(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if self.round >= self.debate.rounds || shared.near_limit.is_some() {
            return self.decide(shared, out);
        }
        self.round += 1;
        let (round, of) = (self.round, self.debate.rounds);
        shared.notify(out, || SwarmNotice::RoundBegan { round, of });
        let mode = if round == 1 && self.debate.together {
            RoundMode::Together
        } else {
            RoundMode::InTurns
        };
        let rules = shared.rules.clone();
        self.round_work
            .start_round(round, &rules.order, &self.goal, mode, shared);
        self.speaking = true;
        self.pump(shared, out);
    }

    /// Starts the turns that may start; ends the round when all have spoken.
    fn pump(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        self.round_work.skip_rest(shared, out);
        while let Some(slot) = self.round_work.next(shared) {
            let task = self.turn_task(slot, shared);
            self.round_work
                .begin(0..self.round_work.base(), slot, task, shared, out);
        }
        if self.round_work.is_over() {
            self.round_over(shared, out);
        }
    }

    fn handle_turn(
        &mut self,
        slot: usize,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let Some(attempt) = self.round_work.work_finished(slot, finished, shared, out) else {
            return;
        };
        if attempt.is_done() {
            let turn = NewMessage::new(attempt.by, Recipient::All, MessageKind::Turn, attempt.text);
            self.round_work.queue_message(slot, turn);
        }
        self.round_work.flush(shared, out);
        self.pump(shared, out);
    }

    fn round_over(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        self.speaking = false;
        let turns = &shared.reports[self.round_work.base()..];
        let last = turns
            .iter()
            .rev()
            .find(|turn| turn.is_done())
            .map(|turn| turn.worker.clone());
        let silent = last.is_none();
        self.last = last.or(self.last.take());
        self.round_work.end_round(shared);
        if silent {
            return self.decide(shared, out);
        }
        let asks_judge = self.debate.judge.each_round
            && self.round < self.debate.rounds
            && shared.near_limit.is_none();
        if asks_judge {
            self.asking = Drafts::default();
            return self.ask(false, shared, out);
        }
        self.advance(shared, out);
    }

    /// Asks the judge for the answer, or lists the turns.
    fn decide(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if !self.debate.judge.exists() {
            return self.answer_with_list(None, shared, out);
        }
        self.asking = Drafts::default();
        self.ask(true, shared, out);
    }

    fn ask(&mut self, last: bool, shared: &mut SharedState, out: &mut MachineOutput) {
        let work = self
            .debate
            .judge
            .work(self.judge_task(last, shared), last, shared);
        let kind = if last {
            WorkKind::Close
        } else {
            WorkKind::Lead
        };
        let effect = shared.request(&JUDGE.into(), &work, kind, out);
        if last {
            shared.notify(out, || SwarmNotice::Synthesising { effect });
        }
    }

    /// Handles the judge's answer.
    fn handle_verdict(
        &mut self,
        last: bool,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let verdict = read(&finished.text).and_then(|verdict| check(verdict, last));
        match (verdict, finished.result) {
            (Ok(verdict), _) => self.apply_verdict(&verdict, last, shared, out),
            (Err(_), Err(failure)) => self.no_verdict(failure.error, last, shared, out),
            (Err(complaint), Ok(())) => {
                if self.asking.reject(
                    vec![complaint.clone()],
                    &*finished.text,
                    judge::MAX_ATTEMPTS,
                ) && shared.near_limit.is_none()
                {
                    return self.ask(last, shared, out);
                }
                let Some(answer) = in_words(&finished.text).filter(|_| last) else {
                    return self.no_verdict(complaint, last, shared, out);
                };
                let reason = format!("the judge's text is used as the answer, because {complaint}");
                let (done, answer) = (Some(true), answer.to_owned());
                self.apply_verdict(
                    &Verdict {
                        done,
                        answer,
                        reason,
                    },
                    last,
                    shared,
                    out,
                );
            }
        }
    }

    fn apply_verdict(
        &mut self,
        verdict: &Verdict,
        last: bool,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let (round, words) = (self.round, verdict.words());
        let done = last || verdict.done == Some(true);
        shared.notify(out, || SwarmNotice::Judged {
            round,
            done,
            reason: words.clone(),
        });
        shared.post(
            NewMessage::new(JUDGE, Recipient::All, MessageKind::Verdict, words.clone()),
            out,
        );
        if done {
            let text = format!("{}{}", verdict.answer, not_done(&shared.reports));
            return shared.answer(JUDGE, text, out);
        }
        self.verdicts
            .insert(usize::try_from(round).unwrap_or(usize::MAX), words);
        self.advance(shared, out);
    }

    /// Continues without a verdict: between rounds the debate continues, and at the end the turns
    /// are listed.
    fn no_verdict(
        &mut self,
        reason: String,
        last: bool,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        if last {
            return self.answer_with_list(Some(reason), shared, out);
        }
        let round = self.round;
        let reason: Arc<str> = format!("the judge gave no verdict: {reason}").into();
        shared.notify(out, || SwarmNotice::Judged {
            round,
            done: false,
            reason,
        });
        self.advance(shared, out);
    }

    fn answer_with_list(
        &mut self,
        reason: Option<String>,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        if let Some(reason) = &reason {
            shared.notify(out, || SwarmNotice::Listed {
                reason: reason.clone(),
            });
        }
        let text = self.list(shared);
        if shared.reports.iter().any(WorkerReport::is_done) {
            return shared.answer(JUDGE, text, out);
        }
        let judged = reason.map_or_else(String::new, |reason| {
            format!(", and the judge gave no verdict: {reason}")
        });
        let reason = format!("no worker has spoken{judged}{}", not_done(&shared.reports));
        shared.end(Status::Failed(Failure::GoalNotReached(reason)), text, None);
    }

    /// Lists the last turn of each worker, and the workers that could not speak.
    fn list(&self, shared: &SharedState) -> String {
        let all = shared.rules.order.len();
        let last = (0..all).filter_map(|slot| {
            let turns = shared.reports.iter().skip(slot).step_by(all.max(1));
            turns.rev().find(|turn| turn.is_done())
        });
        let list =
            shared_list(last.map(|turn| (format!("{} (`{}`)", turn.worker, turn.id), &*turn.text)));
        format!("{list}{}", not_done(&shared.reports))
    }
}

/// Checks that a verdict has the requested fields.
fn check(verdict: Verdict, last: bool) -> Result<Verdict, String> {
    if !last && verdict.done.is_none() {
        return Err("the answer has no `done`".to_owned());
    }
    if (last || verdict.done == Some(true)) && verdict.answer.is_empty() {
        return Err("the answer has no `answer`".to_owned());
    }
    Ok(verdict)
}

impl PatternMachine for DebateMachine {
    fn begin(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        self.advance(shared, out);
    }

    fn work_finished(
        &mut self,
        kind: WorkKind,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        match kind {
            WorkKind::Lead => self.handle_verdict(false, finished, shared, out),
            WorkKind::Work(slot) => self.handle_turn(slot as usize, finished, shared, out),
            WorkKind::Close => self.handle_verdict(true, finished, shared, out),
        }
    }

    fn state_changed(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if shared.near_limit.is_some() && self.speaking {
            self.pump(shared, out);
        }
    }

    fn partial_answer(&self, shared: &SharedState) -> String {
        self.list(shared)
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, shared: &SharedState) -> Result<(), String> {
        let saved: Self = read_pattern_state(saved)?;
        let round_work = saved.round_work.resumed(shared)?;
        *self = Self {
            debate: self.debate.clone(),
            goal: self.goal.clone(),
            round_work,
            ..saved
        };
        Ok(())
    }

    fn output(&self) -> PatternOutput {
        PatternOutput {
            last: self.last.clone(),
            ..PatternOutput::default()
        }
    }
}
