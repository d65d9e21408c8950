//! Work in rounds: each worker once, in the order in which they were added.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_core::{Limits, Message, Signal, Step as Wants};

use crate::bus::{Draft, MessageKind, Recipient};
use crate::desk::{Came, Desk, Duty, Why, WhyKind, Work};
use crate::effort::{self, Spent};
use crate::notice::{Notice, Then};
use crate::report::{Report, ReportStatus};
use crate::talk;
use crate::worker::Scope;

mod notes;
mod told;

use notes::Notes;
pub(crate) use told::{MOST_WORKER, goal, not_done, others, shared_list, tell_who};

/// The workers of a round.
#[derive(Default)]
pub(crate) struct Crew {
    seats: Vec<Seat>,
    /// Where the reports of the round begin.
    base: usize,
    /// Those that may begin, the first in order first.
    ready: BTreeSet<usize>,
    running: usize,
    /// How many are not settled.
    open: usize,
    /// What is on the bus goes up to this one.
    head: usize,
    /// What each may use at most.
    share: Limits,
    how: How,
    pub(crate) notes: Notes,
    /// What the reports of all rounds have kept, in bytes, and the oldest that was not cut.
    kept: (usize, usize),
}

/// Whether the workers of a round see what the others do in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum How {
    /// One after the other, each with all that came before.
    #[default]
    InTurns,
    /// At the same time, each with what there was when the round began.
    Together,
}

/// One who works in a round; what came of it is in the report of the same place.
struct Seat {
    /// Who does it now, and how often that one has tried.
    worker: Arc<str>,
    tried: u32,
    /// What that one has used.
    spent: Spent,
    running: bool,
    /// The places that come first, in conversations that it may be done in.
    after: Vec<usize>,
    /// Who has had it before.
    before: Vec<Arc<str>>,
    /// Why the attempt before failed.
    failed: Option<String>,
    /// What is to be on the bus.
    letters: Vec<Draft>,
}

/// What a worker has come to with one attempt.
pub(crate) struct Heard {
    /// Who.
    pub(crate) by: Arc<str>,
    /// Whether it is done; if not, it may be tried again.
    pub(crate) done: bool,
    pub(crate) text: Arc<str>,
    pub(crate) signals: Vec<Signal>,
}

/// How much is kept of what was said in all rounds. What the oldest have said is cut then.
const MOST_KEPT: usize = 64 << 20;
/// To how much.
const CUT: usize = 1_000;

impl Crew {
    /// Begins a round: a report for each, and a share of what is left.
    pub(crate) fn seat(
        &mut self,
        round: u32,
        workers: &[Arc<str>],
        task: &Arc<str>,
        how: How,
        desk: &mut Desk,
    ) {
        (self.base, self.head, self.open, self.how) = (desk.reports.len(), 0, workers.len(), how);
        self.share = effort::share(desk, workers.len());
        let mut last = BTreeMap::new();
        let seats = workers.iter().enumerate().map(|(at, worker)| {
            let talks = effort::conversations(worker, desk).into_iter();
            Seat::new(worker, talks.filter_map(|talk| last.insert(talk, at)).collect())
        });
        self.seats = seats.collect();
        self.ready = (0..workers.len()).collect();
        let reports = workers
            .iter()
            .map(|name| Report::new(format!("round{round}.{name}"), name.clone(), task.clone()));
        desk.reports.extend(reports);
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
        self.open == 0 && self.running == 0
    }

    /// The next one that may begin.
    pub(crate) fn next(&mut self, desk: &Desk) -> Option<usize> {
        let most = if self.how == How::InTurns { 1 } else { desk.rules.parallel };
        if self.running >= most {
            return None;
        }
        let next = self.ready.iter().copied().find(|seat| self.is_free(*seat, desk))?;
        self.ready.remove(&next);
        Some(next)
    }

    /// Whether nothing comes before it. In a conversation that is kept, one thing is done after the other, in the order of the
    /// workers.
    fn is_free(&self, seat: usize, desk: &Desk) -> bool {
        self.seats[seat].after.iter().all(|before| desk.reports[self.base + before].status.is_settled())
    }

    /// Has a worker begin.
    pub(crate) fn begin(&mut self, at: usize, task: String, desk: &mut Desk, wants: &mut Wants) {
        let work = self.work(at, task, desk);
        let Some(seat) = self.seats.get_mut(at) else { return };
        (seat.tried, seat.running) = (seat.tried.saturating_add(1), true);
        self.running += 1;
        let worker = seat.worker.clone();
        let effect = desk.want(&worker, &work, Duty::Work(u32::try_from(at).unwrap_or(u32::MAX)), wants);
        let report = &mut desk.reports[self.base + at];
        report.status = ReportStatus::Running;
        report.attempts = report.attempts.saturating_add(1);
        report.worker = worker.clone();
        let (id, attempt) = (report.id.clone(), report.attempts);
        desk.tell(wants, || Notice::Began { id, worker, effect, attempt });
    }

    fn work(&self, at: usize, task: String, desk: &Desk) -> Work {
        let mut work = Work::new(task);
        let Some(worker) = self.worker(at) else { return work };
        let Some(card) = desk.rules.cards.get(worker) else { return work };
        work.conversation = effort::conversation(worker, desk);
        if card.scope != Scope::Task && work.conversation.is_none() {
            work.history = remembered(worker, &desk.reports[..self.base]);
        }
        work.limits =
            Some(effort::allowed(card, &self.share, &self.seats[at].spent, &desk.reports[self.base + at]));
        work
    }

    /// A worker has ended: what it said, and whether it is tried again. What is to be on the bus is added with
    /// [`letter`](Self::letter) before [`flush`](Self::flush).
    pub(crate) fn came(
        &mut self,
        at: usize,
        came: Came,
        desk: &mut Desk,
        wants: &mut Wants,
    ) -> Option<Heard> {
        let seat = self.seats.get_mut(at).filter(|seat| seat.running)?;
        seat.running = false;
        seat.spent.add(&came);
        self.running -= 1;
        let by = seat.worker.clone();
        seat.letters.extend(talk::drafts(&by, &came.signals, &desk.rules.names));
        let report = &mut desk.reports[self.base + at];
        report.usage += came.usage;
        report.stats += came.stats;
        (report.text, report.run) = (came.text.clone(), Some(came.run));
        let done = came.result.is_ok();
        match came.result {
            Ok(()) => self.done(at, desk, wants),
            Err(why) => self.not_done(at, why, desk, wants),
        }
        Some(Heard { by, done, text: came.text, signals: came.signals })
    }

    fn done(&mut self, at: usize, desk: &mut Desk, wants: &mut Wants) {
        let report = &mut desk.reports[self.base + at];
        (report.status, report.error) = (ReportStatus::Done, None);
        let (id, worker) = (report.id.clone(), report.worker.clone());
        self.open = self.open.saturating_sub(1);
        desk.tell(wants, || Notice::Done { id, worker });
    }

    fn not_done(&mut self, at: usize, why: Why, desk: &mut Desk, wants: &mut Wants) {
        let seat = &mut self.seats[at];
        let then = effort::then(&seat.worker, seat.tried, &seat.before, &why, desk);
        let (worker, error) = (seat.worker.clone(), why.error.clone());
        let letter = Draft::new(worker.clone(), Recipient::Everybody, MessageKind::Failure, &*error);
        seat.letters.push(letter);
        let report = &mut desk.reports[self.base + at];
        let id = report.id.clone();
        (report.error, seat.failed) = (Some(why.error.clone()), Some(why.error));
        match &then {
            Then::Retry => _ = self.ready.insert(at),
            Then::StandIn { worker } => {
                seat.before.push(std::mem::replace(&mut seat.worker, worker.clone()));
                (seat.tried, seat.spent) = (0, Spent::default());
                self.ready.insert(at);
            }
            Then::Leave => {
                let stopped = why.kind == WhyKind::Stopped;
                report.status = if stopped { ReportStatus::Stopped } else { ReportStatus::Failed };
                self.open = self.open.saturating_sub(1);
            }
        }
        desk.tell(wants, || Notice::Failed { id, worker, error, then });
    }

    /// What has not begun, or was to be tried again, is left: a limit is near.
    pub(crate) fn skip_rest(&mut self, desk: &mut Desk, wants: &mut Wants) {
        let Some(limit) = desk.near else { return };
        while let Some(at) = self.ready.pop_first() {
            self.open = self.open.saturating_sub(1);
            let report = &mut desk.reports[self.base + at];
            if report.attempts > 0 {
                desk.leave(self.base + at, limit, wants);
                continue;
            }
            let why = format!("the limit on {limit} was near");
            (report.status, report.error) = (ReportStatus::Skipped, Some(why.clone()));
            let id = report.id.clone();
            desk.tell(wants, || Notice::Skipped { id, why });
        }
        self.flush(desk, wants);
    }

    /// Adds what is to be on the bus.
    pub(crate) fn letter(&mut self, at: usize, draft: Draft) {
        if let Some(seat) = self.seats.get_mut(at) {
            seat.letters.push(draft);
        }
    }

    /// Puts on the bus what was said, in the order of the workers, whoever was faster.
    pub(crate) fn flush(&mut self, desk: &mut Desk, wants: &mut Wants) {
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

    /// The round is over: its messages may be shown, and what is kept of the oldest is cut when it is too much.
    pub(crate) fn rise(&mut self, desk: &mut Desk) {
        self.notes.show();
        let (bytes, oldest) = &mut self.kept;
        *bytes += desk.reports[self.base..].iter().map(|report| report.text.len()).sum::<usize>();
        while *bytes > MOST_KEPT
            && let Some(report) = desk.reports.get_mut(*oldest)
        {
            *bytes -= report.text.len();
            report.text = levity_core::text::clipped(&report.text, CUT).into();
            *bytes += report.text.len();
            *oldest += 1;
        }
        self.seats.clear();
    }
}

impl Seat {
    fn new(worker: &Arc<str>, after: Vec<usize>) -> Self {
        Self {
            worker: worker.clone(),
            tried: 0,
            spent: Spent::default(),
            running: false,
            after,
            before: Vec::new(),
            failed: None,
            letters: Vec::new(),
        }
    }
}

/// What a worker that remembers the run has done in earlier rounds.
fn remembered(worker: &Arc<str>, reports: &[Report]) -> Vec<Arc<Message>> {
    /// How many of its tasks it remembers.
    const MOST: usize = 20;
    let own = reports.iter().rev().filter(|report| report.worker == *worker && report.is_done());
    let mut own: Vec<&Report> = own.take(MOST).collect();
    own.reverse();
    own.iter()
        .flat_map(|report| {
            [Arc::new(Message::user(&*report.task)), Arc::new(Message::assistant(&*report.text))]
        })
        .collect()
}

#[cfg(test)]
mod tests;
