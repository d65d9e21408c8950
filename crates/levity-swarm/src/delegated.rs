//! Delegations in progress, round by round, for any author of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{Limit, MachineOutput, Signal};
use serde::{Deserialize, Serialize};

use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::crew::{Crew, How, not_done, shared_list};
use crate::desk::{Came, Desk};
use crate::notice::FailureAction;
use crate::plan::{Delegation, Known, Order, PlanFaults, check};
use crate::report::{ReportStatus, WorkerReport};
use crate::worker::WorkerMemory;

mod task;

/// All delegations of a run, and the work of the current round.
#[derive(Serialize, Deserialize)]
pub(crate) struct Delegated {
    /// The sender name of the tasks.
    #[serde(skip)]
    lead: &'static str,
    /// All delegations, in the order of their reports.
    jobs: Vec<Job>,
    /// The work of the current round.
    crew: Crew,
    /// The indices of all delegations, by id.
    #[serde(skip)]
    pub(crate) ids: BTreeMap<Arc<str>, usize>,
    /// The messages of workers to others, by the index of their delegation, of all rounds.
    notes: BTreeMap<usize, Vec<NewMessage>>,
}

/// A delegation; its result is in the report with the same index.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    delegation: Delegation,
    /// The indices of its dependencies, of this and of earlier rounds.
    needs: Vec<usize>,
}

impl Delegated {
    pub(crate) fn new(lead: &'static str) -> Self {
        let crew = Crew::new(Recipient::One(lead.into()));
        Self {
            lead,
            jobs: Vec::new(),
            crew,
            ids: BTreeMap::new(),
            notes: BTreeMap::new(),
        }
    }

    /// Resumes from a saved state, with `lead` as the sender of the tasks.
    pub(crate) fn resumed(self, lead: &'static str, desk: &Desk) -> Result<Self, String> {
        let has_needs = |(at, job): (usize, &Job)| job.needs.iter().all(|need| *need < at);
        if self.jobs.len() != desk.reports.len() || !self.jobs.iter().enumerate().all(has_needs) {
            return Err(
                "the saved state is inconsistent: the plan and the reports differ".to_owned(),
            );
        }
        let ids = self
            .jobs
            .iter()
            .enumerate()
            .map(|(at, job)| (job.delegation.id.clone(), at))
            .collect();
        Ok(Self {
            lead,
            ids,
            crew: self.crew.resumed(desk)?,
            ..self
        })
    }

    /// Returns all delegations.
    pub(crate) fn plan(&self) -> Vec<Delegation> {
        self.jobs.iter().map(|job| job.delegation.clone()).collect()
    }

    /// Returns the index of the round's first report.
    pub(crate) fn base(&self) -> usize {
        self.crew.base()
    }

    /// Returns `true` if every delegation is settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.crew.is_settled()
    }

    /// Validates a plan for the next round.
    pub(crate) fn check(
        &self,
        plan: &[Delegation],
        max_delegations: usize,
        desk: &Desk,
    ) -> Result<Order, PlanFaults> {
        let (workers, done, reports) = (&desk.rules.names, &self.ids, &desk.reports);
        check(
            plan,
            &Known {
                workers,
                router: self.lead,
                done,
                reports,
                most: max_delegations,
            },
        )
    }

    /// Adopts a validated plan: creates a report for each delegation, and posts a task for each
    /// worker on the bus, in plan order. `again` maps repeated delegations to their original ids.
    pub(crate) fn take_on(
        &mut self,
        plan: Vec<Delegation>,
        order: Order,
        mut again: BTreeMap<Arc<str>, Arc<str>>,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        let base = self.jobs.len();
        let Order {
            order,
            needs,
            earlier,
        } = order;
        let mut plan: Vec<Option<Delegation>> = plan.into_iter().map(Some).collect();
        let mut reports = Vec::with_capacity(plan.len());
        for ((at, needs), earlier) in order.into_iter().zip(&needs).zip(earlier) {
            let Some(delegation) = plan.get_mut(at as usize).and_then(Option::take) else {
                continue;
            };
            let Delegation {
                id, worker, task, ..
            } = &delegation;
            self.ids.insert(id.clone(), self.jobs.len());
            let mut report = WorkerReport::new(id.clone(), worker.clone(), task.clone());
            report.again = again.remove(id);
            reports.push(report);
            let needs = needs
                .iter()
                .map(|need| base + *need as usize)
                .chain(earlier)
                .collect();
            self.jobs.push(Job { delegation, needs });
        }
        self.crew.plan(reports, needs, How::Together, desk);
        for job in &self.jobs[base..] {
            let Delegation { worker, task, .. } = &job.delegation;
            let to = Recipient::One(worker.clone());
            desk.post(
                NewMessage::new(self.lead, to, MessageKind::Task, task.clone()),
                wants,
            );
        }
    }

    /// Starts the delegations that may start. Returns `true` if the round is over. With
    /// `keeps_call`, one model call is reserved for the answer.
    pub(crate) fn pump(
        &mut self,
        keeps_call: bool,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) -> bool {
        while self.crew.has_room(desk) {
            if keeps_call && self.crew.has_ready() {
                self.keep_a_call(desk);
            }
            self.crew.skip_rest(desk, wants);
            let Some(seat) = self.crew.next(desk) else {
                break;
            };
            self.begin(seat, desk, wants);
        }
        self.crew.is_over() && !self.jobs.is_empty()
    }

    /// Sets the near limit if the remaining model calls are needed for the answer and the running
    /// workers.
    fn keep_a_call(&self, desk: &mut Desk) {
        let Some(limit) = desk.start.limits.model_calls else {
            return;
        };
        let taken = desk
            .stats
            .model_calls
            .saturating_add(self.crew.running() as u64);
        if taken.saturating_add(1) >= limit {
            desk.near = desk.near.or(Some(Limit::ModelCalls));
        }
    }

    /// Starts a delegation, or skips it if a dependency did not complete.
    fn begin(&mut self, seat: usize, desk: &mut Desk, wants: &mut MachineOutput) {
        let at = self.base() + seat;
        let missing = self.jobs[at]
            .needs
            .iter()
            .find(|need| !desk.reports[**need].is_done());
        if let Some(missing) = missing {
            let why = format!("`{}` is not done", desk.reports[*missing].id);
            return self.crew.skip(seat, why, desk, wants);
        }
        let task = self.task(seat, desk);
        let worker = self
            .crew
            .worker(seat)
            .and_then(|worker| desk.rules.cards.get(worker));
        let known: Vec<usize> = match worker {
            Some(card) if card.scope != WorkerMemory::Task => {
                (0..self.base()).chain(self.before(at)).collect()
            }
            _ => Vec::new(),
        };
        self.crew.begin(known.into_iter(), seat, task, desk, wants);
    }

    /// Handles the end of a worker's attempt. Returns the index of the report, and the signals.
    pub(crate) fn worked(
        &mut self,
        seat: usize,
        came: Came,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) -> Option<(usize, Vec<Signal>)> {
        let heard = self.crew.came(seat, came, desk, wants)?;
        let place = self.base() + seat;
        if !heard.said.is_empty() {
            self.notes.entry(place).or_default().extend(heard.said);
        }
        match heard.then {
            None => {
                let to = Recipient::One(self.lead.into());
                self.crew.letter(
                    seat,
                    NewMessage::new(heard.by, to, MessageKind::Result, heard.text),
                );
            }
            Some(FailureAction::StandIn { worker }) => {
                let task = desk.reports[place].task.clone();
                self.crew.letter(
                    seat,
                    NewMessage::new(self.lead, Recipient::One(worker), MessageKind::Task, task),
                );
            }
            Some(_) => {}
        }
        self.crew.flush(desk, wants);
        Some((place, heard.signals))
    }

    /// Ends the round. The texts of the oldest reports are cut if their total is too large.
    pub(crate) fn end_round(&mut self, desk: &mut Desk) {
        self.crew.trim(desk);
    }

    /// Returns `true` if something failed in the round that another worker could do.
    pub(crate) fn could_be_done(&self, desk: &Desk) -> bool {
        desk.reports[self.base()..]
            .iter()
            .any(|report| report.status == ReportStatus::Failed)
    }
}

/// Lists the results of all workers, and the work that did not complete.
pub(crate) fn list(desk: &Desk) -> String {
    let done = desk.reports.iter().filter(|report| report.is_done());
    let list = shared_list(done.map(|report| {
        (
            format!("{} (`{}`)", report.worker, report.id),
            &*report.text,
        )
    }));
    format!("{list}{}", not_done(&desk.reports))
}
