//! Starts the legs of a handoff.

use std::sync::Arc;

use levity_core::{Limits, MachineOutput, Message};

use super::brief;
use super::machine::{Handing, Leg, Opening};
use super::record::Record;
use crate::desk::{Desk, Duty, Work};
use crate::effort::{self, Spent};
use crate::executor::unlimited;
use crate::notice::SwarmNotice;
use crate::report::WorkerReport;
use crate::worker::Card;

impl Leg {
    pub(super) fn new(worker: Arc<str>, opening: Opening, history: Vec<Arc<Message>>) -> Self {
        Self {
            place: 0,
            worker,
            opening,
            history,
            asks: Vec::new(),
            plain: false,
            tried: 0,
            before: Vec::new(),
            error: None,
            seen: 0,
        }
    }
}

impl Handing {
    /// Starts a new leg with its report.
    pub(super) fn open(&mut self, mut leg: Leg, desk: &mut Desk, wants: &mut MachineOutput) {
        leg.place = desk.reports.len();
        let id = format!("leg{}", leg.place + 1);
        desk.reports
            .push(WorkerReport::new(id, leg.worker.clone(), ""));
        self.go(leg, desk, wants);
    }

    /// Starts an attempt of the worker of a leg.
    pub(super) fn go(&mut self, mut leg: Leg, desk: &mut Desk, wants: &mut MachineOutput) {
        leg.asks.extend(self.unheard(desk));
        leg.plain |= desk.near.is_some();
        (leg.tried, leg.seen) = (leg.tried.saturating_add(1), desk.bus.last_id());
        let work = self.work(&leg, desk);
        let worker = leg.worker.clone();
        self.holder = worker.clone();
        let place = u32::try_from(leg.place).unwrap_or(u32::MAX);
        let effect = desk.want(&worker, &work, Duty::Work(place), wants);
        let report = &mut desk.reports[leg.place];
        if report.attempts == 0 {
            report.task = work.task.into();
        }
        desk.began(leg.place, worker, effect, wants);
        self.leg = Some(leg);
    }

    fn work(&self, leg: &Leg, desk: &Desk) -> Work {
        let Some(card) = desk.rules.cards.get(&leg.worker) else {
            return Work::new(brief::task(leg, self, desk));
        };
        let limits = Some(allowed(card, desk, &desk.reports[leg.place]));
        if card.is_swarm {
            return Work {
                limits,
                ..Work::new(brief::whole(leg, self, desk))
            };
        }
        let task = brief::task(leg, self, desk);
        Work {
            history: leg.history.clone(),
            limits,
            plain: leg.plain,
            said: true,
            ..Work::new(task)
        }
    }

    /// Returns the messages that a handoff to a worker includes.
    pub(super) fn carried(
        &self,
        to: &Arc<str>,
        all: &[Arc<Message>],
        desk: &Desk,
        wants: &mut MachineOutput,
    ) -> Vec<Arc<Message>> {
        let (shown, failed) = self.handoff.carry_for(to).of(all, &desk.start.goal);
        if failed {
            let why =
                "the filter function panicked, so only the text messages were passed on".to_owned();
            desk.tell(wants, || SwarmNotice::FilterFailed {
                to: to.clone(),
                why,
            });
        }
        Record::of(&shown).all()
    }
}

/// Returns the limits of a leg: the remaining limits of the run, and the worker's own limits minus
/// its earlier attempts.
fn allowed(card: &Card, desk: &Desk, report: &WorkerReport) -> Limits {
    let whole = &desk.start.limits;
    let mut remaining = unlimited();
    remaining.tokens = whole
        .tokens
        .map(|tokens| tokens.saturating_sub(desk.usage.total()));
    let spent = desk.usage.cost.unwrap_or_default();
    remaining.money = whole.money.map(|money| money.saturating_sub(spent));
    remaining.assumed_price = whole.assumed_price;
    effort::bounded(card, &remaining, &Spent::of(report))
}
