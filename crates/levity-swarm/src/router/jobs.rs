//! How a plan becomes work, and what workers say becomes results.

use levity_core::Step as Wants;

use super::machine::{Job, Routed};
use crate::bus::{Draft, MessageKind, Recipient};
use crate::crew::How;
use crate::desk::{Came, Desk};
use crate::names::ROUTER;
use crate::notice::Then;
use crate::plan::{Delegation, Order};
use crate::report::{Report, ReportStatus};
use crate::worker::Scope;

impl Routed {
    pub(super) fn add_jobs(&mut self, plan: Vec<Delegation>, order: Order, desk: &mut Desk) {
        let base = self.jobs.len();
        let Order { order, needs, earlier } = order;
        let mut plan: Vec<Option<Delegation>> = plan.into_iter().map(Some).collect();
        let mut reports = Vec::with_capacity(plan.len());
        for ((at, needs), earlier) in order.into_iter().zip(&needs).zip(earlier) {
            let Some(delegation) = plan.get_mut(at as usize).and_then(Option::take) else { continue };
            let Delegation { id, worker, task, .. } = &delegation;
            self.ids.insert(id.clone(), self.jobs.len());
            let mut report = Report::new(id.clone(), worker.clone(), task.clone());
            report.again = self.again.remove(id);
            reports.push(report);
            let needs = needs.iter().map(|need| base + *need as usize).chain(earlier).collect();
            self.jobs.push(Job { delegation, needs });
        }
        self.crew.plan(reports, needs, How::Together, desk);
    }

    /// The router says to each what is to be done, in the order of the plan.
    pub(super) fn announce(&mut self, desk: &mut Desk, wants: &mut Wants) {
        for job in &self.jobs[self.crew.base()..] {
            let Delegation { worker, task, .. } = &job.delegation;
            let to = Recipient::One(worker.clone());
            desk.post(Draft::new(ROUTER, to, MessageKind::Task, task.clone()), wants);
        }
    }

    /// Begins a delegation, unless something that it depends on is not done.
    pub(super) fn begin_job(&mut self, seat: usize, desk: &mut Desk, wants: &mut Wants) {
        let at = self.crew.base() + seat;
        let missing = self.jobs[at].needs.iter().find(|need| !desk.reports[**need].is_done());
        if let Some(missing) = missing {
            let why = format!("`{}` is not done", desk.reports[*missing].id);
            return self.crew.skip(seat, why, desk, wants);
        }
        let task = self.task(seat, desk);
        let worker = self.crew.worker(seat).and_then(|worker| desk.rules.cards.get(worker));
        let known: Vec<usize> = match worker {
            Some(card) if card.scope != Scope::Task => (0..self.crew.base()).chain(self.before(at)).collect(),
            _ => Vec::new(),
        };
        self.crew.begin_knowing(known.into_iter(), seat, task, desk, wants);
    }

    /// A worker has ended.
    pub(super) fn worked(&mut self, seat: usize, came: Came, desk: &mut Desk, wants: &mut Wants) {
        let Some(heard) = self.crew.came(seat, came, desk, wants) else { return };
        if !heard.said.is_empty() {
            self.notes.entry(self.crew.base() + seat).or_default().extend(heard.said);
        }
        match heard.then {
            None => {
                let to = Recipient::One(ROUTER.into());
                self.crew.letter(seat, Draft::new(heard.by, to, MessageKind::Result, heard.text));
            }
            Some(Then::StandIn { worker }) => {
                let task = desk.reports[self.crew.base() + seat].task.clone();
                self.crew.letter(seat, Draft::new(ROUTER, Recipient::One(worker), MessageKind::Task, task));
            }
            Some(_) => {}
        }
        self.crew.flush(desk, wants);
        self.pump(desk, wants);
    }

    /// Whether something failed that another could do.
    pub(super) fn could_be_done(&self, desk: &Desk) -> bool {
        desk.reports[self.crew.base()..].iter().any(|report| report.status == ReportStatus::Failed)
    }
}
