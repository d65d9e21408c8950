//! The machine of a debate.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{Failure, MachineOutput, Status};
use levity_graph::Drafts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Debate;
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::crew::{Crew, How, not_done, shared_list};
use crate::desk::{Came, Desk, Duty};
use crate::judge::{self, Verdict, in_words, read};
use crate::machine::{Play, Shown, read_play};
use crate::names::JUDGE;
use crate::notice::SwarmNotice;
use crate::report::WorkerReport;
use crate::rules::Start;

/// Runs a debate: the workers speak round by round, and the judge decides.
#[derive(Serialize, Deserialize)]
pub(crate) struct Debating {
    #[serde(skip, default = "Debate::unjudged")]
    pub(super) debate: Debate,
    /// The question, for the reports.
    #[serde(skip)]
    goal: Arc<str>,
    /// The round, from 1; 0 before the first.
    pub(super) round: u32,
    pub(super) crew: Crew,
    pub(super) asking: Drafts,
    /// The reasons of the judge, by round.
    pub(super) verdicts: BTreeMap<usize, Arc<str>>,
    /// `true` while the workers are speaking.
    speaking: bool,
    /// The worker that spoke last.
    last: Option<Arc<str>>,
}

impl Debating {
    pub(crate) fn new(debate: &Debate, start: &Start) -> Self {
        Self {
            debate: debate.clone(),
            goal: start.goal.as_str().into(),
            round: 0,
            crew: Crew::new(Recipient::Everybody),
            asking: Drafts::default(),
            verdicts: BTreeMap::new(),
            speaking: false,
            last: None,
        }
    }

    /// Starts the next round, or asks the judge for the decision after the last one.
    fn go_on(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if self.round >= self.debate.rounds || desk.near.is_some() {
            return self.decide(desk, wants);
        }
        self.round += 1;
        let (round, of) = (self.round, self.debate.rounds);
        desk.tell(wants, || SwarmNotice::RoundBegan { round, of });
        let how = if round == 1 && self.debate.together {
            How::Together
        } else {
            How::InTurns
        };
        let rules = desk.rules.clone();
        self.crew.seat(round, &rules.order, &self.goal, how, desk);
        self.speaking = true;
        self.pump(desk, wants);
    }

    /// Starts the turns that may start; ends the round when all have spoken.
    fn pump(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        self.crew.skip_rest(desk, wants);
        while let Some(seat) = self.crew.next(desk) {
            let task = self.turn(seat, desk);
            self.crew
                .begin(0..self.crew.base(), seat, task, desk, wants);
        }
        if self.crew.is_over() {
            self.round_over(desk, wants);
        }
    }

    fn spoke(&mut self, seat: usize, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        let Some(heard) = self.crew.came(seat, came, desk, wants) else {
            return;
        };
        if heard.is_done() {
            let turn = NewMessage::new(
                heard.by,
                Recipient::Everybody,
                MessageKind::Turn,
                heard.text,
            );
            self.crew.letter(seat, turn);
        }
        self.crew.flush(desk, wants);
        self.pump(desk, wants);
    }

    fn round_over(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        self.speaking = false;
        let turns = &desk.reports[self.crew.base()..];
        let last = turns
            .iter()
            .rev()
            .find(|turn| turn.is_done())
            .map(|turn| turn.worker.clone());
        let silent = last.is_none();
        self.last = last.or(self.last.take());
        self.crew.rise(desk);
        if silent {
            return self.decide(desk, wants);
        }
        let looks =
            self.debate.judge.each_round && self.round < self.debate.rounds && desk.near.is_none();
        if looks {
            self.asking = Drafts::default();
            return self.ask(false, desk, wants);
        }
        self.go_on(desk, wants);
    }

    /// Asks the judge for the answer, or lists the turns.
    fn decide(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if !self.debate.judge.is_there() {
            return self.list_up(None, desk, wants);
        }
        self.asking = Drafts::default();
        self.ask(true, desk, wants);
    }

    fn ask(&mut self, last: bool, desk: &mut Desk, wants: &mut MachineOutput) {
        let work = self.debate.judge.work(self.judging(last, desk), last, desk);
        let duty = if last { Duty::Close } else { Duty::Lead };
        let effect = desk.want(&JUDGE.into(), &work, duty, wants);
        if last {
            desk.tell(wants, || SwarmNotice::Synthesising { effect });
        }
    }

    /// Handles the judge's answer.
    fn judged(&mut self, last: bool, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        let verdict = read(&came.text).and_then(|verdict| check(verdict, last));
        match (verdict, came.result) {
            (Ok(verdict), _) => self.found(&verdict, last, desk, wants),
            (Err(_), Err(why)) => self.no_verdict(why.error, last, desk, wants),
            (Err(complaint), Ok(())) => {
                if self
                    .asking
                    .reject(vec![complaint.clone()], &*came.text, judge::TRIES)
                    && desk.near.is_none()
                {
                    return self.ask(last, desk, wants);
                }
                let Some(answer) = in_words(&came.text).filter(|_| last) else {
                    return self.no_verdict(complaint, last, desk, wants);
                };
                let reason = format!("the judge's text is used as the answer, because {complaint}");
                let (done, answer) = (Some(true), answer.to_owned());
                self.found(
                    &Verdict {
                        done,
                        answer,
                        reason,
                    },
                    last,
                    desk,
                    wants,
                );
            }
        }
    }

    fn found(&mut self, verdict: &Verdict, last: bool, desk: &mut Desk, wants: &mut MachineOutput) {
        let (round, words) = (self.round, verdict.words());
        let done = last || verdict.done == Some(true);
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
        if done {
            let text = format!("{}{}", verdict.answer, not_done(&desk.reports));
            return desk.answer(JUDGE, text, wants);
        }
        self.verdicts
            .insert(usize::try_from(round).unwrap_or(usize::MAX), words);
        self.go_on(desk, wants);
    }

    /// Continues without a verdict: between rounds the debate goes on, and at the end the turns are
    /// listed.
    fn no_verdict(&mut self, why: String, last: bool, desk: &mut Desk, wants: &mut MachineOutput) {
        if last {
            return self.list_up(Some(why), desk, wants);
        }
        let round = self.round;
        let reason: Arc<str> = format!("the judge gave no verdict: {why}").into();
        desk.tell(wants, || SwarmNotice::Judged {
            round,
            done: false,
            reason,
        });
        self.go_on(desk, wants);
    }

    fn list_up(&mut self, why: Option<String>, desk: &mut Desk, wants: &mut MachineOutput) {
        if let Some(why) = &why {
            desk.tell(wants, || SwarmNotice::Listed { why: why.clone() });
        }
        let text = self.list(desk);
        if desk.reports.iter().any(WorkerReport::is_done) {
            return desk.answer(JUDGE, text, wants);
        }
        let judged = why.map_or_else(String::new, |why| {
            format!(", and the judge gave no verdict: {why}")
        });
        let why = format!("no worker has spoken{judged}{}", not_done(&desk.reports));
        desk.end(Status::Failed(Failure::Unreached(why)), text, None);
    }

    /// Lists the last turn of each worker, and the workers that could not speak.
    fn list(&self, desk: &Desk) -> String {
        let all = desk.rules.order.len();
        let last = (0..all).filter_map(|seat| {
            let turns = desk.reports.iter().skip(seat).step_by(all.max(1));
            turns.rev().find(|turn| turn.is_done())
        });
        let list =
            shared_list(last.map(|turn| (format!("{} (`{}`)", turn.worker, turn.id), &*turn.text)));
        format!("{list}{}", not_done(&desk.reports))
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

impl Play for Debating {
    fn begin(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        self.go_on(desk, wants);
    }

    fn came(&mut self, duty: Duty, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        match duty {
            Duty::Lead => self.judged(false, came, desk, wants),
            Duty::Work(seat) => self.spoke(seat as usize, came, desk, wants),
            Duty::Close => self.judged(true, came, desk, wants),
        }
    }

    fn stirred(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if desk.near.is_some() && self.speaking {
            self.pump(desk, wants);
        }
    }

    fn so_far(&self, desk: &Desk) -> String {
        self.list(desk)
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, desk: &Desk) -> Result<(), String> {
        let saved: Self = read_play(saved)?;
        let crew = saved.crew.resumed(desk)?;
        *self = Self {
            debate: self.debate.clone(),
            goal: self.goal.clone(),
            crew,
            ..saved
        };
        Ok(())
    }

    fn shown(&self) -> Shown {
        Shown {
            last: self.last.clone(),
            ..Shown::default()
        }
    }
}
