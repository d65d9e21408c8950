//! Work of a round: who does each piece of it, in which order, and what follows when one fails.

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

/// The work of a round: pieces that may depend on each other, one report for each.
#[derive(Serialize, Deserialize)]
pub(crate) struct Crew {
    seats: Vec<Seat>,
    /// Saved as those right before each.
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
    /// Where the reports of the round begin.
    base: usize,
    /// What is on the bus goes up to this one.
    head: usize,
    /// What each may use at most.
    share: Limits,
    how: How,
    /// Whom failures are told.
    lead: Recipient,
    pub(crate) notes: Notes,
    /// What the reports of all rounds have kept, in bytes, and the oldest that was not cut.
    kept: (usize, usize),
}

/// Whether the workers of a round see what the others do in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    /// One after the other, each with all that came before.
    #[default]
    InTurns,
    /// At the same time, each with what there was when the round began.
    Together,
}

/// One who works in a round; what came of it is in the report of the same place.
#[derive(Serialize, Deserialize)]
struct Seat {
    /// Who does it now, and how often that one has tried.
    worker: Arc<str>,
    tried: u32,
    /// What that one has used.
    spent: Spent,
    running: bool,
    /// Who has had it before.
    before: Vec<Arc<str>>,
    /// Why the attempt before failed.
    failed: Option<String>,
    /// What is to be on the bus.
    letters: Vec<NewMessage>,
}

/// What a worker has come to with one attempt.
pub(crate) struct Heard {
    /// Who.
    pub(crate) by: Arc<str>,
    /// What is done about a failure; nothing when it is done.
    pub(crate) then: Option<FailureAction>,
    pub(crate) text: Arc<str>,
    pub(crate) signals: Vec<Signal>,
    /// What it has said to others.
    pub(crate) said: Vec<NewMessage>,
}

impl Heard {
    /// Whether it is done; if not, it may be tried again.
    pub(crate) fn is_done(&self) -> bool {
        self.then.is_none()
    }
}

/// How much is kept of what was said in all rounds. What the oldest have said is cut then.
const MOST_KEPT: usize = 64 << 20;
/// To how much.
const CUT: usize = 1_000;

impl Crew {
    /// A crew whose members tell this one of failures.
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

    /// Resumes from a saved state. The reports tell which pieces may begin.
    pub(crate) fn resumed(mut self, desk: &Desk) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("its state contradicts itself: {what}"));
        let reports = desk.reports.get(self.base..).unwrap_or_default();
        let (count, seated) = (self.edges.before.len(), self.seats.len());
        let settled = reports.iter().all(|report| report.status.is_settled());
        let risen = seated == 0 && settled;
        if reports.len() != count
            || desk.reports.len() != self.base + count
            || !(seated == count || risen)
        {
            return wrong("the work of the round is not what its reports are of");
        }
        if self.head > count || self.kept.1 > desk.reports.len() {
            return wrong("it points to reports that are not there");
        }
        if (0..)
            .zip(&self.edges.before)
            .any(|(at, before)| before.iter().any(|one| *one >= at))
        {
            return wrong("work comes before what it depends on");
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
            return wrong("those who work are not those who were given work");
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

    /// Begins a round of all workers: a report for each, and a share of what is left.
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

    /// Begins a round of these pieces of work, each after those of the round that are named by
    /// their places in it. Each has a share of what is left. In a conversation that is kept, one
    /// thing is done after the other, in the order of the pieces.
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

    /// Where the reports of the round begin.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Up to which report a worker of the round knows what was done.
    pub(crate) fn known(&self, seat: usize) -> usize {
        match self.how {
            How::InTurns => self.base + seat,
            How::Together => self.base,
        }
    }

    /// Who works there now.
    pub(crate) fn worker(&self, seat: usize) -> Option<&Arc<str>> {
        self.seats.get(seat).map(|seat| &seat.worker)
    }

    /// Why the attempt before failed, if there was one.
    pub(crate) fn failed(&self, seat: usize) -> Option<&str> {
        self.seats.get(seat)?.failed.as_deref()
    }

    /// Whether nothing of the round is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.schedule.is_done() && self.running == 0
    }

    /// Whether every piece of the round is settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.schedule.is_done()
    }

    /// How many are at work.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Whether there is room for one more to work.
    pub(crate) fn has_room(&self, desk: &Desk) -> bool {
        self.running
            < if self.how == How::InTurns {
                1
            } else {
                desk.rules.parallel
            }
    }

    /// Whether somebody may begin.
    pub(crate) fn has_ready(&self) -> bool {
        self.schedule.has_ready()
    }

    /// The next one that may begin.
    pub(crate) fn next(&mut self, desk: &Desk) -> Option<usize> {
        if !self.has_room(desk) {
            return None;
        }
        self.schedule.next().map(|at| at as usize)
    }

    /// Has a worker begin, who may remember what it did at these places among the reports.
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

    /// A worker has ended: what it said, and whether it is tried again. What is to be on the bus is
    /// added with [`letter`](Self::letter) before [`flush`](Self::flush).
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

    /// Nothing more comes of one: those that waited for it may begin.
    fn settle(&mut self, at: usize) {
        self.schedule.settle(number(at));
        self.schedule.release(number(at), &self.edges, |_| Some(0));
    }

    /// One is not begun.
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

    /// What has not begun, or was to be tried again, is left: a limit is near.
    pub(crate) fn skip_rest(&mut self, desk: &mut Desk, wants: &mut MachineOutput) {
        let Some(limit) = desk.near else { return };
        for at in 0..self.seats.len() {
            if desk.reports[self.base + at].status == ReportStatus::Waiting {
                self.skip(at, format!("the limit on {limit} was near"), desk, wants);
            }
        }
        while let Some(at) = self.schedule.next() {
            desk.leave(self.base + at as usize, limit, wants);
            self.settle(at as usize);
        }
        self.flush(desk, wants);
    }

    /// Adds what is to be on the bus.
    pub(crate) fn letter(&mut self, at: usize, draft: NewMessage) {
        if let Some(seat) = self.seats.get_mut(at) {
            seat.letters.push(draft);
        }
    }

    /// Puts on the bus what was said, in the order of the workers, whoever was faster.
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

    /// The round is over: its messages may be shown, and what is kept of the oldest is cut when it
    /// is too much.
    pub(crate) fn rise(&mut self, desk: &mut Desk) {
        self.notes.show();
        self.trim(desk);
        self.seats.clear();
    }

    /// Cuts what is kept of the oldest reports when the round, which is over, makes it too much.
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

/// What a worker that remembers the run has done at these places.
fn remembered(
    worker: &Arc<str>,
    places: impl Iterator<Item = usize>,
    reports: &[WorkerReport],
) -> Vec<Arc<Message>> {
    /// How many of its tasks it remembers.
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
