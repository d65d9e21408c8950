//! How a delegation is begun, tried again and settled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_core::{Signal, Step as Wants};

use super::machine::Routed;
use crate::bus::{Draft, MessageKind, Recipient};
use crate::desk::{Came, Desk, Duty, Why, WhyKind, Work};
use crate::effort::{self, Spent};
use crate::names::ROUTER;
use crate::notice::{Notice, Then};
use crate::plan::{Delegation, Order};
use crate::report::{Report, ReportStatus};
use crate::talk;
use crate::worker::Scope;

/// A delegation on its way; what came of it is in the report of the same place.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) delegation: Arc<Delegation>,
    /// Those it depends on, of this and of earlier rounds.
    pub(super) needs: Vec<usize>,
    /// Those that wait for it.
    dependents: Vec<usize>,
    /// How many it waits for.
    waits: usize,
    /// Who does it now, and how often that one has tried.
    pub(super) worker: Arc<str>,
    tried: u32,
    /// What that one has used.
    spent: Spent,
    /// Who has had it before.
    before: Vec<Arc<str>>,
    /// Why the attempt before failed.
    pub(super) failed: Option<String>,
    /// What it said that is not on the bus yet.
    letters: Vec<Draft>,
    /// The messages that were for others, for those who come after it.
    pub(super) notes: Vec<Draft>,
}

impl Routed {
    pub(super) fn add_jobs(&mut self, plan: Vec<Delegation>, order: Order, desk: &mut Desk) {
        let base = self.base;
        let Order { order, needs, earlier } = order;
        let mut plan: Vec<Option<Delegation>> = plan.into_iter().map(Some).collect();
        for ((at, needs), earlier) in order.into_iter().zip(needs).zip(earlier) {
            let Some(delegation) = plan.get_mut(at).and_then(Option::take) else { continue };
            let place = self.jobs.len();
            let own = needs.iter().map(|need| base + need);
            self.ids.insert(delegation.id.clone(), place);
            let (id, worker) = (delegation.id.clone(), delegation.worker.clone());
            let mut report = Report::new(id, worker.clone(), delegation.task.clone());
            report.again = self.again.remove(&report.id);
            desk.reports.push(report);
            let job = Job {
                delegation: Arc::new(delegation),
                needs: own.chain(earlier).collect(),
                dependents: Vec::new(),
                waits: 0,
                worker,
                tried: 0,
                spent: Spent::default(),
                before: Vec::new(),
                failed: None,
                letters: Vec::new(),
                notes: Vec::new(),
            };
            self.jobs.push(job);
        }
        self.link(desk);
    }

    /// Who waits for whom. In a conversation that is kept, one thing is done after the other, in the order of the plan.
    fn link(&mut self, desk: &Desk) {
        let mut last = BTreeMap::new();
        for at in self.base..self.jobs.len() {
            let job = &self.jobs[at];
            let own = job.needs.iter().copied().filter(|need| *need >= self.base);
            let talks = effort::conversations(&job.worker, desk);
            let before = talks.into_iter().filter_map(|talk| last.insert(talk, at));
            let waits: BTreeSet<usize> = own.chain(before).collect();
            self.jobs[at].waits = waits.len();
            waits.iter().for_each(|before| self.jobs[*before].dependents.push(at));
            if waits.is_empty() {
                self.ready.insert(at);
            }
        }
    }

    /// The router says to each what is to be done, in the order of the plan.
    pub(super) fn announce(&mut self, desk: &mut Desk, wants: &mut Wants) {
        for at in self.base..self.jobs.len() {
            let job = &self.jobs[at];
            let to = Recipient::One(job.worker.clone());
            let draft = Draft::new(ROUTER, to, MessageKind::Task, job.delegation.task.clone());
            desk.post(draft, wants);
        }
        self.head = self.base;
    }

    /// Begins a delegation, unless something that it depends on is not done.
    pub(super) fn begin_job(&mut self, at: usize, desk: &mut Desk, wants: &mut Wants) {
        if desk.reports[at].status.is_settled() {
            return;
        }
        let missing = self.jobs[at].needs.iter().find(|need| !desk.reports[**need].is_done());
        if let Some(missing) = missing {
            let why = format!("`{}` is not done", desk.reports[*missing].id);
            return self.skip(at, why, desk, wants);
        }
        let work = self.work(at, desk);
        let job = &mut self.jobs[at];
        job.tried += 1;
        let worker = job.worker.clone();
        self.running += 1;
        let effect = desk.want(&worker, &work, Duty::Work(u32::try_from(at).unwrap_or(u32::MAX)), wants);
        let report = &mut desk.reports[at];
        report.status = ReportStatus::Running;
        report.attempts += 1;
        report.worker = worker.clone();
        let (id, attempt) = (report.id.clone(), report.attempts);
        desk.tell(wants, || Notice::Began { id, worker, effect, attempt });
    }

    fn work(&self, at: usize, desk: &Desk) -> Work {
        let job = &self.jobs[at];
        let mut work = Work::new(self.task(at, desk));
        let Some(card) = desk.rules.cards.get(&job.worker) else { return work };
        work.conversation = effort::conversation(&job.worker, desk);
        if card.scope != Scope::Task && work.conversation.is_none() {
            work.history = self.remembered(at, desk);
        }
        work.limits = Some(effort::allowed(card, &self.share, &job.spent, &desk.reports[at]));
        work
    }

    /// A worker has ended.
    pub(super) fn worked(&mut self, at: usize, came: Came, desk: &mut Desk, wants: &mut Wants) {
        if at >= self.jobs.len() {
            return;
        }
        self.running -= 1;
        self.jobs[at].spent.add(&came);
        let report = &mut desk.reports[at];
        report.usage += came.usage;
        report.stats += came.stats;
        (report.text, report.run) = (came.text, Some(came.run));
        self.take_notes(at, &came.signals, desk);
        match came.result {
            Ok(()) => self.done(at, desk, wants),
            Err(why) => self.failed(at, why, desk, wants),
        }
        self.flush(desk, wants);
        self.pump(desk, wants);
    }

    /// What a worker has said to others.
    fn take_notes(&mut self, at: usize, signals: &[Signal], desk: &Desk) {
        let job = &mut self.jobs[at];
        for draft in talk::drafts(&job.worker, signals, &desk.rules.names) {
            self.noted.insert(at);
            job.notes.push(draft.clone());
            job.letters.push(draft);
        }
    }

    fn done(&mut self, at: usize, desk: &mut Desk, wants: &mut Wants) {
        let report = &mut desk.reports[at];
        (report.status, report.error) = (ReportStatus::Done, None);
        let (id, worker) = (report.id.clone(), report.worker.clone());
        let draft = Draft::new(
            worker.clone(),
            Recipient::One(ROUTER.into()),
            MessageKind::Result,
            report.text.clone(),
        );
        self.jobs[at].letters.push(draft);
        desk.tell(wants, || Notice::Done { id, worker });
        self.settle(at);
    }

    fn failed(&mut self, at: usize, why: Why, desk: &mut Desk, wants: &mut Wants) {
        let job = &mut self.jobs[at];
        let then = effort::then(&job.worker, job.tried, &job.before, &why, desk);
        let to = Recipient::One(ROUTER.into());
        job.letters.push(Draft::new(job.worker.clone(), to, MessageKind::Failure, &*why.error));
        let report = &mut desk.reports[at];
        let (id, worker, error) = (report.id.clone(), job.worker.clone(), why.error.clone());
        report.error = Some(why.error.clone());
        job.failed = Some(why.error);
        let left = then == Then::Leave;
        match &then {
            Then::StandIn { worker } => self.hand_to(at, worker.clone()),
            Then::Retry => _ = self.ready.insert(at),
            Then::Leave => {
                let stopped = why.kind == WhyKind::Stopped;
                report.status = if stopped { ReportStatus::Stopped } else { ReportStatus::Failed };
            }
        }
        desk.tell(wants, || Notice::Failed { id, worker, error, then });
        if left {
            self.settle(at);
        }
    }

    fn hand_to(&mut self, at: usize, worker: Arc<str>) {
        let job = &mut self.jobs[at];
        let before = std::mem::replace(&mut job.worker, worker.clone());
        job.before.push(before);
        (job.tried, job.spent) = (0, Spent::default());
        let task = job.delegation.task.clone();
        job.letters.push(Draft::new(ROUTER, Recipient::One(worker), MessageKind::Task, task));
        self.ready.insert(at);
    }

    /// A delegation is not begun.
    fn skip(&mut self, at: usize, why: String, desk: &mut Desk, wants: &mut Wants) {
        let report = &mut desk.reports[at];
        (report.status, report.error) = (ReportStatus::Skipped, Some(why.clone()));
        let id = report.id.clone();
        desk.tell(wants, || Notice::Skipped { id, why });
        self.settle(at);
        self.flush(desk, wants);
    }

    /// What has not begun is not begun any more.
    pub(super) fn skip_rest(&mut self, desk: &mut Desk, wants: &mut Wants) {
        let Some(limit) = desk.near else { return };
        for at in self.base..self.jobs.len() {
            if desk.reports[at].status == ReportStatus::Waiting {
                self.skip(at, format!("the limit on {limit} was near"), desk, wants);
            }
        }
        // Those that were to be tried again are left, too.
        while let Some(at) = self.ready.pop_first() {
            if !desk.reports[at].status.is_settled() {
                desk.leave(at, limit, wants);
                self.settle(at);
            }
        }
        self.flush(desk, wants);
    }

    /// Nothing more comes of a delegation: those that waited for it may begin.
    fn settle(&mut self, at: usize) {
        self.open = self.open.saturating_sub(1);
        for next in std::mem::take(&mut self.jobs[at].dependents) {
            let job = &mut self.jobs[next];
            job.waits = job.waits.saturating_sub(1);
            if job.waits == 0 {
                self.ready.insert(next);
            }
        }
    }

    /// Puts on the bus what was said, delegation by delegation: the order of the plan, whoever was faster.
    fn flush(&mut self, desk: &mut Desk, wants: &mut Wants) {
        while let Some(job) = self.jobs.get_mut(self.head) {
            for draft in std::mem::take(&mut job.letters) {
                desk.post(draft, wants);
            }
            if !desk.reports[self.head].status.is_settled() {
                break;
            }
            self.head += 1;
        }
    }

    /// Whether something failed that another could do.
    pub(super) fn could_be_done(&self, desk: &Desk) -> bool {
        (self.base..self.jobs.len()).any(|at| desk.reports[at].status == ReportStatus::Failed)
    }
}
