//! The work of a round: the worker of each piece, their order, and the handling of failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{Limits, MachineOutput, Message, Signal};
use levity_graph::{Edges, Schedule};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::desk::{Came, Desk, Duty, Why, WhyKind, Work};
use crate::effort::{self, Spent};
use crate::notice::{FailureAction, SwarmNotice};
use crate::report::{ReportStatus, WorkerReport};
use crate::talk;
use crate::worker::WorkerMemory;

mod notes;
mod told;

use notes::Notes;
pub(crate) use told::{MOST_WORKER, goal, not_done, others, shared_list, tell_who};

/// The work of a round: pieces that may depend on each other, with one report for each.
#[derive(Serialize, Deserialize)]
pub(crate) struct Crew {
    seats: Vec<Seat>,
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
    how: How,
    /// The recipient of failure messages.
    lead: Recipient,
    pub(crate) notes: Notes,
    /// The stored text of all reports in bytes, and the index of the oldest report that is not cut.
    kept: (usize, usize),
}

/// The visibility of work between the workers of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    /// The workers run sequentially, and each sees all earlier work.
    #[default]
    InTurns,
    /// The workers run in parallel, and each sees only the work from before the round.
    Together,
}

/// A piece of work in a round; its result is in the report with the same index.
#[derive(Serialize, Deserialize)]
struct Seat {
    /// The current worker, and the number of its attempts.
    worker: Arc<str>,
    tried: u32,
    /// The usage of the current worker.
    spent: Spent,
    running: bool,
    /// The workers that had the piece before.
    before: Vec<Arc<str>>,
    /// The error of the previous attempt.
    failed: Option<String>,
    /// The messages that wait to be posted on the bus.
    letters: Vec<NewMessage>,
}

/// The result of one attempt of a worker.
pub(crate) struct Heard {
    /// The name of the worker.
    pub(crate) by: Arc<str>,
    /// The action after a failure; `None` if the work completed.
    pub(crate) then: Option<FailureAction>,
    pub(crate) text: Arc<str>,
    pub(crate) signals: Vec<Signal>,
    /// The messages to other workers.
    pub(crate) said: Vec<NewMessage>,
}

impl Heard {
    /// Returns `true` if the work completed; otherwise it may be retried.
    pub(crate) fn is_done(&self) -> bool {
        self.then.is_none()
    }
}

/// The maximum size of all stored texts, in bytes. Beyond it, the oldest texts are cut.
const MOST_KEPT: usize = 64 << 20;
/// The size to which old texts are cut, in bytes.
const CUT: usize = 1_000;

impl Crew {
    /// Creates an empty round; `lead` receives the failure messages.
    pub(crate) fn new(lead: Recipient) -> Self {
        Self {
            seats: Vec::new(),
            edges: Edges::default(),
            schedule: Schedule::new(0),
            running: 0,
            base: 0,
            head: 0,
            share: Limits::new(),
            how: How::InTurns,
            lead,
            notes: Notes::default(),
            kept: (0, 0),
        }
    }

    /// Resumes from a saved state. The reports determine which pieces may start.
    pub(crate) fn resumed(mut self, desk: &Desk) -> Result<Self, String> {
        let inconsistent = |what: &str| Err(format!("the saved state is inconsistent: {what}"));
        let reports = desk.reports.get(self.base..).unwrap_or_default();
        let (count, seated) = (self.edges.before.len(), self.seats.len());
        let settled = reports.iter().all(|report| report.status.is_settled());
        let risen = seated == 0 && settled;
        if reports.len() != count
            || desk.reports.len() != self.base + count
            || !(seated == count || risen)
        {
            return inconsistent("the work of the round and its reports differ");
        }
        if self.head > count || self.kept.1 > desk.reports.len() {
            return inconsistent("it refers to reports that do not exist");
        }
        if (0..)
            .zip(&self.edges.before)
            .any(|(at, before)| before.iter().any(|one| *one >= at))
        {
            return inconsistent("a piece of work precedes its dependency");
        }
        let running = (0..)
            .zip(self.seats.iter().zip(reports))
            .filter(|(_, (seat, _))| seat.running);
        let running: Vec<(u32, ReportStatus)> = running
            .map(|(at, (_, report))| (at, report.status))
            .collect();
        let at_work = running.iter().map(|(at, _)| *at).eq(desk.working());
        let open = desk.ending.is_none();
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
            .zip(self.seats.iter().zip(reports))
            .filter_map(|(at, (seat, report))| {
                (report.status == ReportStatus::Running && !seat.running).then_some(at)
            });
        for at in free.chain(again) {
            self.schedule.ready(at, 0);
        }
        Ok(self)
    }

    /// Starts a round of all workers, with a report and a share of the remaining limits for each.
    pub(crate) fn seat(
        &mut self,
        round: u32,
        workers: &[Arc<str>],
        task: &Arc<str>,
        how: How,
        desk: &mut Desk,
    ) {
        let reports = workers.iter().map(|name| {
            WorkerReport::new(format!("round{round}.{name}"), name.clone(), task.clone())
        });
        self.plan(
            reports.collect(),
            vec![Vec::new(); workers.len()],
            how,
            desk,
        );
    }

    /// Starts a round of these pieces of work; `before` lists the predecessors of each by index.
    /// Each piece has a share of the remaining limits. Tasks that share a remembered conversation
    /// run sequentially, in the order of the pieces.
    pub(crate) fn plan(
        &mut self,
        reports: Vec<WorkerReport>,
        mut before: Vec<Vec<u32>>,
        how: How,
        desk: &mut Desk,
    ) {
        (self.base, self.head, self.how) = (desk.reports.len(), 0, how);
        self.share = effort::share(desk, reports.len());
        let mut last = BTreeMap::new();
        for ((at, report), before) in (0..).zip(&reports).zip(&mut before) {
            let talks = effort::conversations(&report.worker, desk).into_iter();
            before.extend(talks.filter_map(|talk| last.insert(talk, at)));
        }
        self.seats = reports
            .iter()
            .map(|report| Seat::new(&report.worker))
            .collect();
        desk.reports.extend(reports);
        self.edges = Edges::new(before);
        self.schedule = Schedule::new(self.seats.len());
        for at in self.schedule.open(&self.edges) {
            self.schedule.ready(at, 0);
        }
    }

    /// Returns the index of the round's first report.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Returns the number of reports that a worker of the round can see.
    pub(crate) fn known(&self, seat: usize) -> usize {
        match self.how {
            How::InTurns => self.base + seat,
            How::Together => self.base,
        }
    }

    /// Returns the current worker of a piece.
    pub(crate) fn worker(&self, seat: usize) -> Option<&Arc<str>> {
        self.seats.get(seat).map(|seat| &seat.worker)
    }

    /// Returns the error of the previous attempt, if there was one.
    pub(crate) fn failed(&self, seat: usize) -> Option<&str> {
        self.seats.get(seat)?.failed.as_deref()
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
    pub(crate) fn has_room(&self, desk: &Desk) -> bool {
        self.running
            < if self.how == How::InTurns {
                1
            } else {
                desk.rules.parallel
            }
    }

    /// Returns `true` if a piece may start.
    pub(crate) fn has_ready(&self) -> bool {
        self.schedule.has_ready()
    }

    /// Returns the next piece that may start.
    pub(crate) fn next(&mut self, desk: &Desk) -> Option<usize> {
        if !self.has_room(desk) {
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
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        let work = self.work(places, at, task, desk);
        let Some(seat) = self.seats.get_mut(at) else {
            return;
        };
        (seat.tried, seat.running) = (seat.tried.saturating_add(1), true);
        let number = number(at);
        self.schedule.begin(number);
        self.running += 1;
        let worker = seat.worker.clone();
        let effect = desk.want(&worker, &work, Duty::Work(number), wants);
        desk.began(self.base + at, worker, effect, wants);
    }

    fn work(
        &self,
        places: impl Iterator<Item = usize>,
        at: usize,
        task: String,
        desk: &Desk,
    ) -> Work {
        let mut work = Work::new(task);
        let Some(worker) = self.worker(at) else {
            return work;
        };
        let Some(card) = desk.rules.cards.get(worker) else {
            return work;
        };
        work.conversation = effort::conversation(worker, desk);
        if card.scope != WorkerMemory::Task && work.conversation.is_none() {
            work.history = remembered(worker, places, &desk.reports);
        }
        work.limits = Some(effort::allowed(
            card,
            &self.share,
            &self.seats[at].spent,
            &desk.reports[self.base + at],
        ));
        work
    }

    /// Handles the end of a worker's attempt and decides about a retry. Add messages with
    /// [`letter`](Self::letter) before you call [`flush`](Self::flush).
    pub(crate) fn came(
        &mut self,
        at: usize,
        came: Came,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) -> Option<Heard> {
        let seat = self.seats.get_mut(at).filter(|seat| seat.running)?;
        seat.running = false;
        seat.spent.add(&came);
        self.running -= 1;
        let by = seat.worker.clone();
        let said = talk::drafts(&by, &came.signals, &desk.rules.names);
        seat.letters.extend(said.iter().cloned());
        desk.ended(self.base + at, &came);
        let then = match came.result {
            Ok(()) => {
                desk.done(self.base + at, wants);
                self.settle(at);
                None
            }
            Err(why) => Some(self.not_done(at, why, desk, wants)),
        };
        Some(Heard {
            by,
            then,
            text: came.text,
            signals: came.signals,
            said,
        })
    }

    fn not_done(
        &mut self,
        at: usize,
        why: Why,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) -> FailureAction {
        let seat = &mut self.seats[at];
        let then = effort::then(&seat.worker, seat.tried, &seat.before, &why, desk);
        let (worker, error) = (seat.worker.clone(), why.error.clone());
        seat.letters.push(NewMessage::new(
            worker.clone(),
            self.lead.clone(),
            MessageKind::Failure,
            &*error,
        ));
        let report = &mut desk.reports[self.base + at];
        let id = report.id.clone();
        (report.error, seat.failed) = (Some(why.error.clone()), Some(why.error));
        match &then {
            FailureAction::Retry => self.schedule.ready(number(at), 0),
            FailureAction::StandIn { worker } => {
                seat.before
                    .push(std::mem::replace(&mut seat.worker, worker.clone()));
                (seat.tried, seat.spent) = (0, Spent::default());
                self.schedule.ready(number(at), 0);
            }
            FailureAction::Leave => {
                let stopped = why.kind == WhyKind::Stopped;
                report.status = if stopped {
                    ReportStatus::Stopped
                } else {
                    ReportStatus::Failed
                };
                self.settle(at);
            }
        }
        desk.tell(wants, || SwarmNotice::Failed {
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
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        let report = &mut desk.reports[self.base + at];
        (report.status, report.error) = (ReportStatus::Skipped, Some(why.clone()));
        let id = report.id.clone();
        desk.tell(wants, || SwarmNotice::Skipped { id, why });
        self.settle(at);
        self.flush(desk, wants);
    }

    /// Skips pieces that have not started, and drops pending retries, because a limit is near.
    pub(crate) fn skip_rest(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        let Some(limit) = desk.near else { return };
        for at in 0..self.seats.len() {
            if desk.reports[self.base + at].status == ReportStatus::Waiting {
                self.skip(
                    at,
                    format!("the limit on {limit} was nearly reached"),
                    desk,
                    wants,
                );
            }
        }
        while let Some(at) = self.schedule.next() {
            desk.leave(self.base + at as usize, limit, wants);
            self.settle(at as usize);
        }
        self.flush(desk, wants);
    }

    /// Adds a message to post on the bus.
    pub(crate) fn letter(&mut self, at: usize, draft: NewMessage) {
        if let Some(seat) = self.seats.get_mut(at) {
            seat.letters.push(draft);
        }
    }

    /// Posts the messages on the bus in the order of the workers, regardless of their speed.
    pub(crate) fn flush(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        while let Some(seat) = self.seats.get_mut(self.head) {
            for draft in std::mem::take(&mut seat.letters) {
                self.notes.add(&draft);
                desk.post(draft, wants);
            }
            if !desk.reports[self.base + self.head].status.is_settled() {
                break;
            }
            self.head += 1;
        }
        if self.how == How::InTurns {
            self.notes.show();
        }
    }

    /// Ends the round: its messages become visible, and the oldest texts are cut if there are too
    /// many.
    pub(crate) fn rise(&mut self, desk: &mut Desk) {
        self.notes.show();
        self.trim(desk);
        self.seats.clear();
    }

    /// Cuts the texts of the oldest reports if the finished round exceeds the size limit.
    pub(crate) fn trim(&mut self, desk: &mut Desk) {
        let (bytes, oldest) = &mut self.kept;
        let new = desk.reports[self.base..]
            .iter()
            .map(|report| report.text.len())
            .sum();
        *bytes = bytes.saturating_add(new);
        while *bytes > MOST_KEPT
            && let Some(report) = desk.reports.get_mut(*oldest)
        {
            *bytes = bytes.saturating_sub(report.text.len());
            report.text = levity_core::text::clipped(&report.text, CUT).into();
            *bytes = bytes.saturating_add(report.text.len());
            *oldest += 1;
        }
    }
}

impl Seat {
    fn new(worker: &Arc<str>) -> Self {
        Self {
            worker: worker.clone(),
            tried: 0,
            spent: Spent::default(),
            running: false,
            before: Vec::new(),
            failed: None,
            letters: Vec::new(),
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
    const MOST: usize = 20;
    let own = places.filter_map(|at| reports.get(at));
    let own: Vec<&WorkerReport> = own
        .filter(|report| report.worker == *worker && report.is_done())
        .collect();
    let recent = own.iter().skip(own.len().saturating_sub(MOST));
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
