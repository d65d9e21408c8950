//! The machine of a blackboard.
//!
//! Workers of a round run at the same time and see the board from the start of the round. Their
//! writes are collected by slot and applied at its end, so the board does not depend on their
//! speed.

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
use crate::machine::{PatternMachine, PatternOutput, read_pattern_state};
use crate::notice::SwarmNotice;
use crate::round_work::{RoundMode, RoundWork};
use crate::rules::Start;
use crate::shared_state::{FinishedWork, SharedState, WorkKind};

/// Runs a blackboard: the workers write round by round, and the answer is derived from the board.
#[derive(Serialize, Deserialize)]
pub(crate) struct BlackboardMachine {
    #[serde(skip, default = "Blackboard::unjudged")]
    pub(super) blackboard: Blackboard,
    /// The goal, for the reports.
    #[serde(skip)]
    goal: Arc<str>,
    /// The round, from 1; 0 before the first.
    pub(super) round: u32,
    #[serde(rename = "crew")]
    pub(super) round_work: RoundWork,
    pub(super) asking: Drafts,
    pub(super) board: Board,
    /// The writes of the round, by piece of work.
    pub(super) writes: Vec<Vec<Write>>,
    /// The workers of the round.
    #[serde(rename = "asked")]
    round_workers: Vec<Arc<str>>,
    /// The round of each worker's last completed turn.
    #[serde(rename = "looked")]
    last_rounds: BTreeMap<Arc<str>, u32>,
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

impl BlackboardMachine {
    pub(crate) fn new(blackboard: &Blackboard, start: &Start) -> Self {
        Self {
            blackboard: blackboard.clone(),
            goal: start.goal.as_str().into(),
            round: 0,
            round_work: RoundWork::new(Recipient::All),
            asking: Drafts::default(),
            board: Board::default(),
            writes: Vec::new(),
            round_workers: Vec::new(),
            last_rounds: BTreeMap::new(),
            refused: Vec::new(),
            verdict: None,
            seen: String::new(),
            working: false,
        }
    }

    /// Starts the next round, or makes the answer after the last one.
    pub(super) fn advance(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if self.round >= self.blackboard.rounds || shared.near_limit.is_some() {
            return self.close(shared, out);
        }
        let round_workers: Vec<Arc<str>> = shared
            .rules
            .order
            .iter()
            .filter(|name| self.is_asked(name))
            .cloned()
            .collect();
        if round_workers.is_empty() {
            return self.close(shared, out);
        }
        self.round += 1;
        let (round, of) = (self.round, self.blackboard.rounds);
        shared.notify(out, || SwarmNotice::RoundBegan { round, of });
        self.seen = self.round_view();
        self.round_work.start_round(
            round,
            &round_workers,
            &self.goal,
            RoundMode::Together,
            shared,
        );
        self.writes = round_workers.iter().map(|_| Vec::new()).collect();
        (self.round_workers, self.working) = (round_workers, true);
        self.pump(shared, out);
    }

    /// Returns `true` if a worker is asked: it has no rule, or one of its entries is new to it.
    fn is_asked(&self, worker: &Arc<str>) -> bool {
        let Some(keys) = self.blackboard.reads.get(worker) else {
            return true;
        };
        let last_round = self.last_rounds.get(worker).copied().unwrap_or(0);
        keys.iter()
            .filter_map(|key| self.board.get(key))
            .any(|entry| is_new(entry, worker, last_round))
    }

    /// Starts the workers that may start; ends the round when all are done.
    fn pump(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        self.round_work.skip_rest(shared, out);
        while let Some(slot) = self.round_work.next(shared) {
            let task = self.task(slot, shared);
            self.round_work
                .begin(0..self.round_work.base(), slot, task, shared, out);
        }
        if self.round_work.is_over() {
            self.round_over(shared, out);
        }
    }

    fn handle_worker_end(
        &mut self,
        slot: usize,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let Some(attempt) = self.round_work.work_finished(slot, finished, shared, out) else {
            return;
        };
        if let Some(writes) = self.writes.get_mut(slot) {
            writes::take(writes, &attempt, shared);
        }
        if let Some(worker) = self.round_workers.get(slot).filter(|_| attempt.is_done()) {
            self.last_rounds.insert(worker.clone(), self.round);
        }
        self.round_work.flush(shared, out);
        self.pump(shared, out);
    }

    fn round_over(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        self.working = false;
        let any = self.apply_writes(shared, out);
        self.round_work.end_round(shared);
        let is_last = self.round >= self.blackboard.rounds || shared.near_limit.is_some();
        let reached = self
            .board
            .get(&self.blackboard.until)
            .is_some_and(|entry| entry.round == self.round);
        if reached || !any || is_last {
            return self.close(shared, out);
        }
        if self.blackboard.judge.each_round {
            self.asking = Drafts::default();
            return self.ask(shared, out);
        }
        self.advance(shared, out);
    }
}

/// Returns `true` if another worker wrote an entry since this worker's last turn. A worker sees the
/// board as of the start of its round.
fn is_new(entry: &BoardEntry, worker: &Arc<str>, last_round: u32) -> bool {
    let earlier = entry
        .history
        .iter()
        .map(|earlier| (earlier.round, &earlier.by));
    earlier
        .chain([(entry.round, &entry.by)])
        .any(|(round, by)| round >= last_round && by != worker)
}

impl PatternMachine for BlackboardMachine {
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
            WorkKind::Lead => self.handle_verdict(&finished, shared, out),
            WorkKind::Work(slot) => self.handle_worker_end(slot as usize, finished, shared, out),
            WorkKind::Close => self.handle_synthesis(&finished, shared, out),
        }
    }

    fn state_changed(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        if shared.near_limit.is_some() && self.working {
            self.pump(shared, out);
        }
    }

    fn partial_answer(&self, shared: &SharedState) -> String {
        self.fallback_answer(shared)
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn restore(&mut self, saved: &Value, shared: &SharedState) -> Result<(), String> {
        let saved: Self = read_pattern_state(saved)?;
        let round_work = saved.round_work.resumed(shared)?;
        *self = Self {
            blackboard: self.blackboard.clone(),
            goal: self.goal.clone(),
            round_work,
            ..saved
        };
        self.seen = self.round_view();
        Ok(())
    }

    fn output(&self) -> PatternOutput {
        PatternOutput {
            board: Some(self.board.clone()),
            ..PatternOutput::default()
        }
    }
}
