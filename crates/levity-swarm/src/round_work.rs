//! The work of a round: the worker of each piece, their order, and the handling of failures.
//!
//! A round is a list of slots. Each slot has one report, one current worker and an outbox. Failures
//! are handled here for all patterns: the same worker again, then its fallback, then the slot
//! settles.
//!
//! Messages leave the outboxes in the order of the slots, never in the order of completion: `head`
//! is the first slot whose messages are not on the bus yet, and it moves on only when its slot
//! settles. Two runs with the same outcomes therefore have the same bus.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{Limits, MachineOutput, Message, Signal};
use levity_graph::{Edges, Schedule};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::message_tool;
use crate::notice::{FailureAction, SwarmNotice};
use crate::report::{ReportStatus, WorkerReport};
use crate::shared_state::{FinishedWork, SharedState, Work, WorkError, WorkErrorKind, WorkKind};
use crate::work_limits::{self, TaskUsage};
use crate::worker::WorkerMemory;

mod text_blocks;
mod worker_messages;

pub(crate) use text_blocks::{
    MAX_DESCRIPTION_BYTES, goal, not_done, others, shared_list, write_identity,
};
use worker_messages::WorkerMessages;

/// The work of a round: pieces that may depend on each other, with one report for each.
#[derive(Serialize, Deserialize)]
pub(crate) struct RoundWork {
    #[serde(rename = "seats")]
    slots: Vec<WorkSlot>,
    /// Saved as the list of direct predecessors of each piece.
    #[serde(
        rename = "before",
        serialize_with = "save_edges",
        deserialize_with = "read_edges"
    )]
    edges: Edges,
    #[serde(skip, default = "no_schedule")]
    schedule: Schedule,
    #[serde(skip)]
    running: usize,
    /// The index of the round's first report.
    base: usize,
    /// The first piece whose messages are not yet on the bus.
    head: usize,
    /// The limits of each piece.
    share: Limits,
    #[serde(rename = "how")]
    mode: RoundMode,
    /// The recipient of failure messages.
    lead: Recipient,
    pub(crate) notes: WorkerMessages,
    /// The stored text of all reports in bytes, and the index of the oldest report that is not cut.
    kept: (usize, usize),
}

/// The visibility of work between the workers of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RoundMode {
    /// The workers run sequentially, and each sees all earlier work.
    #[default]
    InTurns,
    /// The workers run in parallel, and each sees only the work from before the round.
    Together,
}

/// A piece of work in a round; its result is in the report with the same index.
#[derive(Serialize, Deserialize)]
struct WorkSlot {
    /// The current worker, and the number of its attempts.
    worker: Arc<str>,
    tried: u32,
    /// The usage of the current worker.
    spent: TaskUsage,
    running: bool,
    /// The workers that had the piece before.
    before: Vec<Arc<str>>,
    /// The error of the previous attempt.
    failed: Option<String>,
    /// The messages that wait to be posted on the bus.
    #[serde(rename = "letters")]
    outbox: Vec<NewMessage>,
}

/// The result of one attempt of a worker.
pub(crate) struct AttemptResult {
    /// The name of the worker.
    pub(crate) by: Arc<str>,
    /// The action after a failure; `None` if the work completed.
    pub(crate) then: Option<FailureAction>,
    pub(crate) text: Arc<str>,
    pub(crate) signals: Vec<Signal>,
    /// The messages to other workers.
    pub(crate) messages: Vec<NewMessage>,
}

impl AttemptResult {
    /// Returns `true` if the work completed; otherwise it may be retried.
    pub(crate) fn is_done(&self) -> bool {
        self.then.is_none()
    }
}

/// The maximum size of all stored texts, in bytes. Beyond it, the oldest texts are cut.
const MAX_STORED_BYTES: usize = 64 << 20;
/// The size to which old texts are cut, in bytes.
const CUT_TEXT_BYTES: usize = 1_000;

impl RoundWork {
    /// Creates an empty round; `lead` receives the failure messages.
    pub(crate) fn new(lead: Recipient) -> Self {
        Self {
            slots: Vec::new(),
            edges: Edges::default(),
            schedule: Schedule::new(0),
            running: 0,
            base: 0,
            head: 0,
            share: Limits::new(),
            mode: RoundMode::InTurns,
            lead,
            notes: WorkerMessages::default(),
            kept: (0, 0),
        }
    }

    /// Resumes from a saved state. The reports determine which pieces may start.
    pub(crate) fn resumed(mut self, shared: &SharedState) -> Result<Self, String> {
        let inconsistent = |what: &str| Err(format!("the saved state is inconsistent: {what}"));
        let reports = shared.reports.get(self.base..).unwrap_or_default();
        let (count, occupied) = (self.edges.before.len(), self.slots.len());
        let settled = reports.iter().all(|report| report.status.is_settled());
        let finished_round = occupied == 0 && settled;
        if reports.len() != count
            || shared.reports.len() != self.base + count
            || !(occupied == count || finished_round)
        {
            return inconsistent("the work of the round and its reports differ");
        }
        if self.head > count || self.kept.1 > shared.reports.len() {
            return inconsistent("it refers to reports that do not exist");
        }
        if (0..)
            .zip(&self.edges.before)
            .any(|(at, before)| before.iter().any(|one| *one >= at))
        {
            return inconsistent("a piece of work precedes its dependency");
        }
        let running = (0..)
            .zip(self.slots.iter().zip(reports))
            .filter(|(_, (slot, _))| slot.running);
        let running: Vec<(u32, ReportStatus)> = running
            .map(|(at, (_, report))| (at, report.status))
            .collect();
        let at_work = running.iter().map(|(at, _)| *at).eq(shared.working());
        let open = shared.ending.is_none();
        if open
            && (!at_work
                || running
                    .iter()
                    .any(|(_, status)| *status != ReportStatus::Running))
        {
            return inconsistent("the running workers and the requested work differ");
        }
        self.running = running.len();
        self.schedule = Schedule::new(count);
        for (at, report) in (0..).zip(reports) {
            match report.status {
                ReportStatus::Waiting => {}
                ReportStatus::Running => _ = self.schedule.begin(at),
                _ => _ = self.schedule.settle(at),
            }
        }
        let free = self.schedule.open(&self.edges).into_iter();
        let again = (0..)
            .zip(self.slots.iter().zip(reports))
            .filter_map(|(at, (slot, report))| {
                (report.status == ReportStatus::Running && !slot.running).then_some(at)
            });
        for at in free.chain(again) {
            self.schedule.ready(at, 0);
        }
        Ok(self)
    }

    /// Starts a round of all workers, with a report and a share of the remaining limits for each.
    pub(crate) fn start_round(
        &mut self,
        round: u32,
        workers: &[Arc<str>],
        task: &Arc<str>,
        mode: RoundMode,
        shared: &mut SharedState,
    ) {
        let reports = workers.iter().map(|name| {
            WorkerReport::new(format!("round{round}.{name}"), name.clone(), task.clone())
        });
        self.start_pieces(
            reports.collect(),
            vec![Vec::new(); workers.len()],
            mode,
            shared,
        );
    }

    /// Starts a round of these pieces of work; `before` lists the predecessors of each by index.
    /// Each piece has a share of the remaining limits. Tasks that share a remembered conversation
    /// run sequentially, in the order of the pieces.
    pub(crate) fn start_pieces(
        &mut self,
        reports: Vec<WorkerReport>,
        mut before: Vec<Vec<u32>>,
        mode: RoundMode,
        shared: &mut SharedState,
    ) {
        (self.base, self.head, self.mode) = (shared.reports.len(), 0, mode);
        self.share = work_limits::share(shared, reports.len());
        let mut last = BTreeMap::new();
        for ((at, report), before) in (0..).zip(&reports).zip(&mut before) {
            let talks = work_limits::conversations(&report.worker, shared).into_iter();
            before.extend(talks.filter_map(|talk| last.insert(talk, at)));
        }
        self.slots = reports
            .iter()
            .map(|report| WorkSlot::new(&report.worker))
            .collect();
        shared.reports.extend(reports);
        self.edges = Edges::new(before);
        self.schedule = Schedule::new(self.slots.len());
        for at in self.schedule.open(&self.edges) {
            self.schedule.ready(at, 0);
        }
    }

    /// Returns the index of the round's first report.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Returns the number of reports that a worker of the round can see.
    pub(crate) fn known(&self, slot: usize) -> usize {
        match self.mode {
            RoundMode::InTurns => self.base + slot,
            RoundMode::Together => self.base,
        }
    }

    /// Returns the current worker of a piece.
    pub(crate) fn worker(&self, slot: usize) -> Option<&Arc<str>> {
        self.slots.get(slot).map(|slot| &slot.worker)
    }

    /// Returns the error of the previous attempt, if there was one.
    pub(crate) fn failed(&self, slot: usize) -> Option<&str> {
        self.slots.get(slot)?.failed.as_deref()
    }

    /// Returns `true` if nothing remains to do in the round.
    pub(crate) fn is_over(&self) -> bool {
        self.schedule.is_done() && self.running == 0
    }

    /// Returns `true` if every piece of the round is settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.schedule.is_done()
    }

    /// Returns the number of running workers.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Returns `true` if one more worker may run.
    pub(crate) fn has_room(&self, shared: &SharedState) -> bool {
        self.running
            < if self.mode == RoundMode::InTurns {
                1
            } else {
                shared.rules.parallel
            }
    }

    /// Returns `true` if a piece may start.
    pub(crate) fn has_ready(&self) -> bool {
        self.schedule.has_ready()
    }

    /// Returns the next piece that may start.
    pub(crate) fn next(&mut self, shared: &SharedState) -> Option<usize> {
        if !self.has_room(shared) {
            return None;
        }
        self.schedule.next().map(|at| at as usize)
    }

    /// Starts a worker on a piece. The worker may remember its work in the reports at `places`.
    pub(crate) fn begin(
        &mut self,
        places: impl Iterator<Item = usize>,
        at: usize,
        task: String,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let work = self.work(places, at, task, shared);
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        (slot.tried, slot.running) = (slot.tried.saturating_add(1), true);
        let number = number(at);
        self.schedule.begin(number);
        self.running += 1;
        let worker = slot.worker.clone();
        let effect = shared.request(&worker, &work, WorkKind::Work(number), out);
        shared.record_start(self.base + at, worker, effect, out);
    }

    fn work(
        &self,
        places: impl Iterator<Item = usize>,
        at: usize,
        task: String,
        shared: &SharedState,
    ) -> Work {
        let mut work = Work::new(task);
        let Some(worker) = self.worker(at) else {
            return work;
        };
        let Some(card) = shared.rules.cards.get(worker) else {
            return work;
        };
        work.conversation = work_limits::conversation(worker, shared);
        if card.scope != WorkerMemory::Task && work.conversation.is_none() {
            work.history = remembered(worker, places, &shared.reports);
        }
        work.limits = Some(work_limits::task_limits(
            card,
            &self.share,
            &self.slots[at].spent,
            &shared.reports[self.base + at],
        ));
        work
    }

    /// Handles the end of a worker's attempt and decides about a retry. Add messages with
    /// [`queue_message`](Self::queue_message) before you call [`flush`](Self::flush).
    pub(crate) fn work_finished(
        &mut self,
        at: usize,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) -> Option<AttemptResult> {
        let slot = self.slots.get_mut(at).filter(|slot| slot.running)?;
        slot.running = false;
        slot.spent.add(&finished);
        self.running -= 1;
        let by = slot.worker.clone();
        let messages = message_tool::drafts(&by, &finished.signals, &shared.rules.names);
        slot.outbox.extend(messages.iter().cloned());
        shared.record_end(self.base + at, &finished);
        let then = match finished.result {
            Ok(()) => {
                shared.mark_done(self.base + at, out);
                self.settle(at);
                None
            }
            Err(failure) => Some(self.handle_failure(at, failure, shared, out)),
        };
        Some(AttemptResult {
            by,
            then,
            text: finished.text,
            signals: finished.signals,
            messages,
        })
    }

    fn handle_failure(
        &mut self,
        at: usize,
        failure: WorkError,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) -> FailureAction {
        let slot = &mut self.slots[at];
        let then =
            work_limits::failure_action(&slot.worker, slot.tried, &slot.before, &failure, shared);
        let (worker, error) = (slot.worker.clone(), failure.error.clone());
        slot.outbox.push(NewMessage::new(
            worker.clone(),
            self.lead.clone(),
            MessageKind::Failure,
            &*error,
        ));
        let report = &mut shared.reports[self.base + at];
        let id = report.id.clone();
        (report.error, slot.failed) = (Some(failure.error.clone()), Some(failure.error));
        match &then {
            FailureAction::Retry => self.schedule.ready(number(at), 0),
            FailureAction::Fallback { worker } => {
                slot.before
                    .push(std::mem::replace(&mut slot.worker, worker.clone()));
                (slot.tried, slot.spent) = (0, TaskUsage::default());
                self.schedule.ready(number(at), 0);
            }
            FailureAction::GiveUp => {
                let stopped = failure.kind == WorkErrorKind::Stopped;
                report.status = if stopped {
                    ReportStatus::Stopped
                } else {
                    ReportStatus::Failed
                };
                self.settle(at);
            }
        }
        shared.notify(out, || SwarmNotice::Failed {
            id,
            worker,
            error,
            then: then.clone(),
        });
        then
    }

    /// Settles a piece, so that its dependents may start.
    fn settle(&mut self, at: usize) {
        self.schedule.settle(number(at));
        self.schedule.release(number(at), &self.edges, |_| Some(0));
    }

    /// Skips a piece with a reason.
    pub(crate) fn skip(
        &mut self,
        at: usize,
        why: String,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let report = &mut shared.reports[self.base + at];
        (report.status, report.error) = (ReportStatus::Skipped, Some(why.clone()));
        let id = report.id.clone();
        shared.notify(out, || SwarmNotice::Skipped { id, reason: why });
        self.settle(at);
        self.flush(shared, out);
    }

    /// Skips pieces that have not started, and drops pending retries, because a limit is near.
    pub(crate) fn skip_rest(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        let Some(limit) = shared.near_limit else {
            return;
        };
        for at in 0..self.slots.len() {
            if shared.reports[self.base + at].status == ReportStatus::Waiting {
                self.skip(
                    at,
                    format!("the limit on {limit} was nearly reached"),
                    shared,
                    out,
                );
            }
        }
        while let Some(at) = self.schedule.next() {
            shared.mark_failed(self.base + at as usize, limit, out);
            self.settle(at as usize);
        }
        self.flush(shared, out);
    }

    /// Adds a message to post on the bus.
    pub(crate) fn queue_message(&mut self, at: usize, draft: NewMessage) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.outbox.push(draft);
        }
    }

    /// Posts the messages on the bus in the order of the workers, regardless of their speed.
    pub(crate) fn flush(&mut self, shared: &mut SharedState, out: &mut MachineOutput) {
        while let Some(slot) = self.slots.get_mut(self.head) {
            for draft in std::mem::take(&mut slot.outbox) {
                self.notes.add(&draft);
                shared.post(draft, out);
            }
            if !shared.reports[self.base + self.head].status.is_settled() {
                break;
            }
            self.head += 1;
        }
        if self.mode == RoundMode::InTurns {
            self.notes.show();
        }
    }

    /// Ends the round: its messages become visible, and the oldest texts are cut if there are too
    /// many.
    pub(crate) fn end_round(&mut self, shared: &mut SharedState) {
        self.notes.show();
        self.trim(shared);
        self.slots.clear();
    }

    /// Cuts the texts of the oldest reports if the finished round exceeds the size limit.
    ///
    /// Reports of earlier rounds stay readable: a cut text states how much is missing, and the run
    /// of the worker has all of it.
    pub(crate) fn trim(&mut self, shared: &mut SharedState) {
        let (bytes, oldest) = &mut self.kept;
        let new = shared.reports[self.base..]
            .iter()
            .map(|report| report.text.len())
            .sum();
        *bytes = bytes.saturating_add(new);
        while *bytes > MAX_STORED_BYTES
            && let Some(report) = shared.reports.get_mut(*oldest)
        {
            *bytes = bytes.saturating_sub(report.text.len());
            report.text = levity_core::text::clipped(&report.text, CUT_TEXT_BYTES).into();
            *bytes = bytes.saturating_add(report.text.len());
            *oldest += 1;
        }
    }
}

impl WorkSlot {
    fn new(worker: &Arc<str>) -> Self {
        Self {
            worker: worker.clone(),
            tried: 0,
            spent: TaskUsage::default(),
            running: false,
            before: Vec::new(),
            failed: None,
            outbox: Vec::new(),
        }
    }
}

fn no_schedule() -> Schedule {
    Schedule::new(0)
}

fn save_edges<S: Serializer>(edges: &Edges, serializer: S) -> Result<S::Ok, S::Error> {
    edges.before.serialize(serializer)
}

fn read_edges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Edges, D::Error> {
    Vec::deserialize(deserializer).map(Edges::new)
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Returns the messages of a worker's earlier tasks at these places.
fn remembered(
    worker: &Arc<str>,
    places: impl Iterator<Item = usize>,
    reports: &[WorkerReport],
) -> Vec<Arc<Message>> {
    /// The maximum number of remembered tasks.
    const MAX_TASKS: usize = 20;
    let own = places.filter_map(|at| reports.get(at));
    let own: Vec<&WorkerReport> = own
        .filter(|report| report.worker == *worker && report.is_done())
        .collect();
    let recent = own.iter().skip(own.len().saturating_sub(MAX_TASKS));
    recent
        .flat_map(|report| {
            [
                Arc::new(Message::user(&*report.task)),
                Arc::new(Message::assistant(&*report.text)),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests;
