//! The machine of a blackboard.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::MachineOutput;
use levity_graph::Drafts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Blackboard;
use super::writes::{self, Write};
use crate::board::{Board, BoardEntry};
use crate::bus::Recipient;
use crate::crew::{Crew, How};
use crate::desk::{Came, Desk, Duty};
use crate::machine::{Play, Shown, read_play};
use crate::notice::SwarmNotice;
use crate::rules::Start;

/// Runs a blackboard: the workers write round by round, and the answer is derived from the board.
#[derive(Serialize, Deserialize)]
pub(crate) struct Boarding {
    #[serde(skip, default = "Blackboard::unjudged")]
    pub(super) blackboard: Blackboard,
    /// The goal, for the reports.
    #[serde(skip)]
    goal: Arc<str>,
    /// The round, from 1; 0 before the first.
    pub(super) round: u32,
    pub(super) crew: Crew,
    pub(super) asking: Drafts,
    pub(super) board: Board,
    /// The writes of the round, by piece of work.
    pub(super) writes: Vec<Vec<Write>>,
    /// The workers of the round.
    asked: Vec<Arc<str>>,
    /// The round of each worker's last completed turn.
    looked: BTreeMap<Arc<str>, u32>,
    /// The refused writes of the last round.
    pub(super) refused: Vec<String>,
    /// The last reason of the judge.
    pub(super) verdict: Option<Arc<str>>,
    /// The text of the board in the prompts of the round. It is derived from the board, which does
    /// not change during a round.
    #[serde(skip)]
    pub(super) seen: String,
    /// `true` while the workers are running.
    working: bool,
}

impl Boarding {
    pub(crate) fn new(blackboard: &Blackboard, start: &Start) -> Self {
        Self {
            blackboard: blackboard.clone(),
            goal: start.goal.as_str().into(),
            round: 0,
            crew: Crew::new(Recipient::Everybody),
            asking: Drafts::default(),
            board: Board::default(),
            writes: Vec::new(),
            asked: Vec::new(),
            looked: BTreeMap::new(),
            refused: Vec::new(),
            verdict: None,
            seen: String::new(),
            working: false,
        }
    }

    /// Starts the next round, or makes the answer after the last one.
    pub(super) fn go_on(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if self.round >= self.blackboard.rounds || desk.near.is_some() {
            return self.close(desk, wants);
        }
        let asked: Vec<Arc<str>> = desk
            .rules
            .order
            .iter()
            .filter(|name| self.is_asked(name))
            .cloned()
            .collect();
        if asked.is_empty() {
            return self.close(desk, wants);
        }
        self.round += 1;
        let (round, of) = (self.round, self.blackboard.rounds);
        desk.tell(wants, || SwarmNotice::RoundBegan { round, of });
        self.seen = self.look();
        self.crew
            .seat(round, &asked, &self.goal, How::Together, desk);
        self.writes = asked.iter().map(|_| Vec::new()).collect();
        (self.asked, self.working) = (asked, true);
        self.pump(desk, wants);
    }

    /// Returns `true` if a worker is asked: it has no rule, or one of its entries is new to it.
    fn is_asked(&self, worker: &Arc<str>) -> bool {
        let Some(keys) = self.blackboard.reads.get(worker) else {
            return true;
        };
        let looked = self.looked.get(worker).copied().unwrap_or(0);
        keys.iter()
            .filter_map(|key| self.board.get(key))
            .any(|entry| is_new(entry, worker, looked))
    }

    /// Starts the workers that may start; ends the round when all are done.
    fn pump(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        self.crew.skip_rest(desk, wants);
        while let Some(seat) = self.crew.next(desk) {
            let task = self.task(seat, desk);
            self.crew
                .begin(0..self.crew.base(), seat, task, desk, wants);
        }
        if self.crew.is_over() {
            self.round_over(desk, wants);
        }
    }

    fn worked(&mut self, seat: usize, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        let Some(heard) = self.crew.came(seat, came, desk, wants) else {
            return;
        };
        if let Some(writes) = self.writes.get_mut(seat) {
            writes::take(writes, &heard, desk);
        }
        if let Some(worker) = self.asked.get(seat).filter(|_| heard.is_done()) {
            self.looked.insert(worker.clone(), self.round);
        }
        self.crew.flush(desk, wants);
        self.pump(desk, wants);
    }

    fn round_over(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        self.working = false;
        let any = self.put_up(desk, wants);
        self.crew.rise(desk);
        let is_last = self.round >= self.blackboard.rounds || desk.near.is_some();
        let reached = self
            .board
            .get(&self.blackboard.until)
            .is_some_and(|entry| entry.round == self.round);
        if reached || !any || is_last {
            return self.close(desk, wants);
        }
        if self.blackboard.judge.each_round {
            self.asking = Drafts::default();
            return self.ask(desk, wants);
        }
        self.go_on(desk, wants);
    }
}

/// Returns `true` if another worker wrote an entry since this worker's last turn. A worker sees the
/// board as of the start of its round.
fn is_new(entry: &BoardEntry, worker: &Arc<str>, looked: u32) -> bool {
    let earlier = entry
        .history
        .iter()
        .map(|earlier| (earlier.round, &earlier.by));
    earlier
        .chain([(entry.round, &entry.by)])
        .any(|(round, by)| round >= looked && by != worker)
}

impl Play for Boarding {
    fn begin(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        self.go_on(desk, wants);
    }

    fn came(&mut self, duty: Duty, came: Came, desk: &mut Desk, wants: &mut MachineOutput) {
        match duty {
            Duty::Lead => self.judged(&came, desk, wants),
            Duty::Work(seat) => self.worked(seat as usize, came, desk, wants),
            Duty::Close => self.closed(&came, desk, wants),
        }
    }

    fn stirred(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        if desk.near.is_some() && self.working {
            self.pump(desk, wants);
        }
    }

    fn so_far(&self, desk: &Desk) -> String {
        self.without(desk)
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, desk: &Desk) -> Result<(), String> {
        let saved: Self = read_play(saved)?;
        let crew = saved.crew.resumed(desk)?;
        *self = Self {
            blackboard: self.blackboard.clone(),
            goal: self.goal.clone(),
            crew,
            ..saved
        };
        self.seen = self.look();
        Ok(())
    }

    fn shown(&self) -> Shown {
        Shown {
            board: Some(self.board.clone()),
            ..Shown::default()
        }
    }
}
