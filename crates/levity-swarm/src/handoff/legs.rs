//! Starts the legs of a handoff.
//!
//! A leg has the remaining limits of the run and not a share of them: legs run one after the other,
//! and nobody knows how many follow.

use std::sync::Arc;

use levity_core::{Limits, MachineOutput, Message};

use super::machine::{HandoffMachine, Leg, Opening};
use super::prompt;
use super::record::Record;
use crate::executor::unlimited;
use crate::notice::SwarmNotice;
use crate::report::WorkerReport;
use crate::shared_state::{SharedState, Work, WorkKind};
use crate::work_limits::{self, TaskUsage};
use crate::worker::Card;

impl Leg {
    pub(super) fn new(worker: Arc<str>, opening: Opening, history: Vec<Arc<Message>>) -> Self {
        Self {
            place: 0,
            worker,
            opening,
            history,
            user_messages: Vec::new(),
            plain: false,
            tried: 0,
            before: Vec::new(),
            error: None,
            seen: 0,
        }
    }
}

impl HandoffMachine {
    /// Starts a new leg with its report.
    pub(super) fn start_leg(
        &mut self,
        mut leg: Leg,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        leg.place = shared.reports.len();
        let id = format!("leg{}", leg.place + 1);
        shared
            .reports
            .push(WorkerReport::new(id, leg.worker.clone(), ""));
        self.start_attempt(leg, shared, out);
    }

    /// Starts an attempt of the worker of a leg.
    pub(super) fn start_attempt(
        &mut self,
        mut leg: Leg,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        leg.user_messages.extend(self.take_unread_messages(shared));
        leg.plain |= shared.near_limit.is_some();
        (leg.tried, leg.seen) = (leg.tried.saturating_add(1), shared.bus.last_id());
        let work = self.work(&leg, shared);
        let worker = leg.worker.clone();
        self.holder = worker.clone();
        let place = u32::try_from(leg.place).unwrap_or(u32::MAX);
        let effect = shared.request(&worker, &work, WorkKind::Work(place), out);
        let report = &mut shared.reports[leg.place];
        if report.attempts == 0 {
            report.task = work.task.into();
        }
        shared.record_start(leg.place, worker, effect, out);
        self.leg = Some(leg);
    }

    fn work(&self, leg: &Leg, shared: &SharedState) -> Work {
        let Some(card) = shared.rules.cards.get(&leg.worker) else {
            return Work::new(prompt::task(leg, self, shared));
        };
        let limits = Some(leg_limits(card, shared, &shared.reports[leg.place]));
        if card.is_swarm {
            return Work {
                limits,
                ..Work::new(prompt::standalone_task(leg, self, shared))
            };
        }
        let task = prompt::task(leg, self, shared);
        Work {
            history: leg.history.clone(),
            limits,
            plain: leg.plain,
            said: true,
            ..Work::new(task)
        }
    }

    /// Returns the messages that a handoff to a worker includes.
    pub(super) fn included_history(
        &self,
        to: &Arc<str>,
        all: &[Arc<Message>],
        shared: &SharedState,
        out: &mut MachineOutput,
    ) -> Vec<Arc<Message>> {
        let (shown, failed) = self.handoff.carry_for(to).of(all, &shared.start.goal);
        if failed {
            let why =
                "the filter function panicked, so only the text messages were passed on".to_owned();
            shared.notify(out, || SwarmNotice::FilterFailed {
                to: to.clone(),
                reason: why,
            });
        }
        Record::of(&shown).all()
    }
}

/// Returns the limits of a leg: the remaining limits of the run, and the worker's own limits minus
/// its earlier attempts.
fn leg_limits(card: &Card, shared: &SharedState, report: &WorkerReport) -> Limits {
    let whole = &shared.start.limits;
    let mut remaining = unlimited();
    remaining.tokens = whole
        .tokens
        .map(|tokens| tokens.saturating_sub(shared.usage.total()));
    let spent = shared.usage.cost.unwrap_or_default();
    remaining.money = whole.money.map(|money| money.saturating_sub(spent));
    remaining.assumed_price = whole.assumed_price;
    work_limits::worker_limits(card, &remaining, &TaskUsage::of(report))
}
