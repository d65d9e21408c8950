//! Delegations in progress, round by round, for any author of the plan.
//!
//! A router and a coordinator share this part: both make a plan for a round, wait until it is
//! settled, and decide again. Ids are unique over all rounds, so a later plan can depend on earlier
//! work.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{Limit, MachineOutput, Signal};
use serde::{Deserialize, Serialize};

use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::notice::FailureAction;
use crate::plan::{Delegation, Order, PlanContext, PlanFaults, check};
use crate::report::{ReportStatus, WorkerReport};
use crate::round_work::{RoundMode, RoundWork, not_done, shared_list};
use crate::shared_state::{FinishedWork, SharedState};
use crate::worker::WorkerMemory;

mod task_text;

/// All delegations of a run, and the work of the current round.
#[derive(Serialize, Deserialize)]
pub(crate) struct DelegatedWork {
    /// The sender name of the tasks.
    #[serde(skip)]
    lead: &'static str,
    /// All delegations, in the order of their reports.
    jobs: Vec<Job>,
    /// The work of the current round.
    #[serde(rename = "crew")]
    round_work: RoundWork,
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

impl DelegatedWork {
    pub(crate) fn new(lead: &'static str) -> Self {
        let round_work = RoundWork::new(Recipient::One(lead.into()));
        Self {
            lead,
            jobs: Vec::new(),
            round_work,
            ids: BTreeMap::new(),
            notes: BTreeMap::new(),
        }
    }

    /// Resumes from a saved state, with `lead` as the sender of the tasks.
    pub(crate) fn resumed(self, lead: &'static str, shared: &SharedState) -> Result<Self, String> {
        let has_needs = |(at, job): (usize, &Job)| job.needs.iter().all(|need| *need < at);
        if self.jobs.len() != shared.reports.len() || !self.jobs.iter().enumerate().all(has_needs) {
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
            round_work: self.round_work.resumed(shared)?,
            ..self
        })
    }

    /// Returns all delegations of the plan.
    pub(crate) fn plan(&self) -> Vec<Delegation> {
        self.jobs.iter().map(|job| job.delegation.clone()).collect()
    }

    /// Returns the index of the round's first report.
    pub(crate) fn base(&self) -> usize {
        self.round_work.base()
    }

    /// Returns `true` if every delegation is settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.round_work.is_settled()
    }

    /// Validates a plan for the next round.
    pub(crate) fn check(
        &self,
        plan: &[Delegation],
        max_delegations: usize,
        shared: &SharedState,
    ) -> Result<Order, PlanFaults> {
        let (workers, done, reports) = (&shared.rules.names, &self.ids, &shared.reports);
        check(
            plan,
            &PlanContext {
                workers,
                router: self.lead,
                done,
                reports,
                max_delegations,
            },
        )
    }

    /// Adopts a validated plan: creates a report for each delegation, and posts a task for each
    /// worker on the bus, in plan order. `again` maps repeated delegations to their original ids.
    pub(crate) fn adopt_plan(
        &mut self,
        plan: Vec<Delegation>,
        order: Order,
        mut again: BTreeMap<Arc<str>, Arc<str>>,
        shared: &mut SharedState,
        out: &mut MachineOutput,
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
        self.round_work
            .start_pieces(reports, needs, RoundMode::Together, shared);
        for job in &self.jobs[base..] {
            let Delegation { worker, task, .. } = &job.delegation;
            let to = Recipient::One(worker.clone());
            shared.post(
                NewMessage::new(self.lead, to, MessageKind::Task, task.clone()),
                out,
            );
        }
    }

    /// Starts the delegations that may start. Returns `true` if the round is over. With
    /// `reserves_call`, one model call is reserved for the answer.
    pub(crate) fn pump(
        &mut self,
        reserves_call: bool,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) -> bool {
        while self.round_work.has_room(shared) {
            if reserves_call && self.round_work.has_ready() {
                self.reserve_model_call(shared);
            }
            self.round_work.skip_rest(shared, out);
            let Some(slot) = self.round_work.next(shared) else {
                break;
            };
            self.begin(slot, shared, out);
        }
        self.round_work.is_over() && !self.jobs.is_empty()
    }

    /// Sets the near limit if the remaining model calls are needed for the answer and the running
    /// workers.
    ///
    /// The combined answer needs one more model call. Without the reserve, workers could use all
    /// calls, and their results would be listed instead of combined.
    fn reserve_model_call(&self, shared: &mut SharedState) {
        let Some(limit) = shared.start.limits.model_calls else {
            return;
        };
        let taken = shared
            .stats
            .model_calls
            .saturating_add(self.round_work.running() as u64);
        if taken.saturating_add(1) >= limit {
            shared.near_limit = shared.near_limit.or(Some(Limit::ModelCalls));
        }
    }

    /// Starts a delegation, or skips it if a dependency did not complete.
    fn begin(&mut self, slot: usize, shared: &mut SharedState, out: &mut MachineOutput) {
        let at = self.base() + slot;
        let missing = self.jobs[at]
            .needs
            .iter()
            .find(|need| !shared.reports[**need].is_done());
        if let Some(missing) = missing {
            let why = format!("`{}` is not done", shared.reports[*missing].id);
            return self.round_work.skip(slot, why, shared, out);
        }
        let task = self.task(slot, shared);
        let worker = self
            .round_work
            .worker(slot)
            .and_then(|worker| shared.rules.cards.get(worker));
        let known: Vec<usize> = match worker {
            Some(card) if card.scope != WorkerMemory::Task => {
                (0..self.base()).chain(self.before(at)).collect()
            }
            _ => Vec::new(),
        };
        self.round_work
            .begin(known.into_iter(), slot, task, shared, out);
    }

    /// Handles the end of a worker's attempt. Returns the index of the report, and the signals.
    pub(crate) fn handle_worker_end(
        &mut self,
        slot: usize,
        finished: FinishedWork,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) -> Option<(usize, Vec<Signal>)> {
        let attempt = self.round_work.work_finished(slot, finished, shared, out)?;
        let place = self.base() + slot;
        if !attempt.messages.is_empty() {
            self.notes
                .entry(place)
                .or_default()
                .extend(attempt.messages);
        }
        match attempt.then {
            None => {
                let to = Recipient::One(self.lead.into());
                self.round_work.queue_message(
                    slot,
                    NewMessage::new(attempt.by, to, MessageKind::Result, attempt.text),
                );
            }
            Some(FailureAction::Fallback { worker }) => {
                let task = shared.reports[place].task.clone();
                self.round_work.queue_message(
                    slot,
                    NewMessage::new(self.lead, Recipient::One(worker), MessageKind::Task, task),
                );
            }
            Some(_) => {}
        }
        self.round_work.flush(shared, out);
        Some((place, attempt.signals))
    }

    /// Ends the round. The texts of the oldest reports are cut if their total is too large.
    pub(crate) fn end_round(&mut self, shared: &mut SharedState) {
        self.round_work.trim(shared);
    }

    /// Returns `true` if something failed in the round that another worker could do.
    pub(crate) fn has_reassignable_failure(&self, shared: &SharedState) -> bool {
        shared.reports[self.base()..]
            .iter()
            .any(|report| report.status == ReportStatus::Failed)
    }
}

/// Lists the results of all workers, and the work that did not complete.
pub(crate) fn list(shared: &SharedState) -> String {
    let done = shared.reports.iter().filter(|report| report.is_done());
    let list = shared_list(done.map(|report| {
        (
            format!("{} (`{}`)", report.worker, report.id),
            &*report.text,
        )
    }));
    format!("{list}{}", not_done(&shared.reports))
}
