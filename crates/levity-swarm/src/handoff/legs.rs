//! How a leg is begun.

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
    /// Begins a leg.
    pub(super) fn open(&mut self, mut leg: Leg, desk: &mut Desk, wants: &mut MachineOutput) {
        leg.place = desk.reports.len();
        let id = format!("leg{}", leg.place + 1);
        desk.reports
            .push(WorkerReport::new(id, leg.worker.clone(), ""));
        self.go(leg, desk, wants);
    }

    /// Has the worker of a leg go on with the conversation, at first or again.
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

    /// What goes along to a worker.
    pub(super) fn carried(
        &self,
        to: &Arc<str>,
        all: &[Arc<Message>],
        desk: &Desk,
        wants: &mut MachineOutput,
    ) -> Vec<Arc<Message>> {
        let (shown, failed) = self.handoff.carry_for(to).of(all, &desk.start.goal);
        if failed {
            let why = "it panicked, so only the words go along".to_owned();
            desk.tell(wants, || SwarmNotice::FilterFailed {
                to: to.clone(),
                why,
            });
        }
        Record::of(&shown).all()
    }
}

/// What a worker may use for a leg: what is left of the whole, and of its own less what earlier
/// attempts have used.
fn allowed(card: &Card, desk: &Desk, report: &WorkerReport) -> Limits {
    let whole = &desk.start.limits;
    let mut left = unlimited();
    left.tokens = whole
        .tokens
        .map(|tokens| tokens.saturating_sub(desk.usage.total()));
    let spent = desk.usage.cost.unwrap_or_default();
    left.money = whole.money.map(|money| money.saturating_sub(spent));
    left.assumed_price = whole.assumed_price;
    effort::bounded(card, &left, &Spent::of(report))
}
