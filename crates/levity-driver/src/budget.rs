//! Money and tokens: reserved before a model call is sent, settled when it returns.
//!
//! A model call with a limit on money or tokens goes through three states. First the maximum cost
//! is reserved, and the record of the call's start contains the amount. Then the reply arrives, the
//! actual usage is counted and the rest is released. If the process ends in between, the record
//! makes the next process count the whole reservation: a budget may be spent too slowly after a
//! crash, but never exceeded.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{
    CancelToken, CostBound, Effect, EffectId, EffectKind, EffectNote, Entry, ModelError,
    ModelErrorKind, Outcome, Record, Spending,
};

use crate::meter::{Meter, Refusal, Reservation, full_spending, initial_spending};

/// The reservations of model calls in progress, and the effects that wait for budget.
///
/// There are few reservations at a time, so a list is searched from the start.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    reservations: Vec<(EffectId, Reservation)>,
    /// The effects that may begin once other calls release budget.
    waiting: Vec<EffectId>,
    /// The token that is cancelled when there may be budget for them.
    freed: Option<CancelToken>,
}

impl Budget {
    /// Clears the waiting effects, so that they are checked again.
    pub(crate) fn reset(&mut self) {
        self.waiting.clear();
        self.freed = None;
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the token that is cancelled when there may be budget for waiting effects.
    pub(crate) fn freed(&self) -> Option<&CancelToken> {
        self.freed.as_ref()
    }

    /// Removes a cancelled token, so that it wakes no one twice.
    pub(crate) fn forget_freed(&mut self) {
        self.freed.take_if(|freed| freed.is_cancelled());
    }

    /// Returns the reservation of an effect in progress.
    pub(crate) fn reservation(&self, id: EffectId) -> Option<&Reservation> {
        self.reservations
            .iter()
            .find(|(of, _)| *of == id)
            .map(|(_, reservation)| reservation)
    }

    /// Counts all effects that are still in progress in full.
    pub(crate) fn clear(&mut self) {
        self.reservations.clear();
        self.reset();
    }

    /// Counts an effect that is about to begin, and reserves its maximum cost. Returns the outcome
    /// as an error if the effect must not begin, or `None` if it has to wait.
    pub(crate) fn take(
        &mut self,
        meter: &Arc<Meter>,
        id: EffectId,
        effect: &Effect,
        cost: Option<CostBound>,
        note: &mut EffectNote,
    ) -> Result<(), Option<Box<Outcome>>> {
        let reservation = match reserve(meter, effect, cost) {
            Ok(reservation) => reservation,
            Err(NotReserved::Never(outcome)) => return Err(Some(outcome)),
            Err(NotReserved::Wait(freed)) => {
                // The first token covers every release since any of them was checked.
                self.freed.get_or_insert(freed);
                self.waiting.push(id);
                return Err(None);
            }
        };
        if let Err(limit) = meter.admit(effect.kind()) {
            reservation.into_iter().for_each(Reservation::release);
            return Err(Some(Box::new(Outcome::Refused(limit))));
        }
        note.reserved = reservation.as_ref().map(Reservation::reserved);
        self.reservations
            .extend(reservation.map(|reservation| (id, reservation)));
        Ok(())
    }

    /// Counts the usage of an effect, and fills the usage that only the meter knows into its
    /// outcome.
    pub(crate) fn settle(&mut self, meter: &Meter, id: EffectId, outcome: &mut Outcome) {
        let at = self.reservations.iter().position(|(of, _)| *of == id);
        let reservation = at.map(|at| self.reservations.swap_remove(at).1);
        match (reservation, outcome) {
            (Some(reservation), Outcome::Model(Ok(response))) => {
                reservation.settle(&mut response.usage);
            }
            (Some(reservation), Outcome::Model(Err(error))) => reservation.fail(error),
            // Dropping a reservation counts it in full.
            (Some(reservation), _) => drop(reservation),
            (None, Outcome::Model(Ok(response))) => {
                meter.add(&Spending::on(response.usage.total(), response.usage.cost));
            }
            (None, _) => {}
        }
    }
}

enum NotReserved {
    Never(Box<Outcome>),
    Wait(CancelToken),
}

/// Returns `true` if budget is reserved before the effect begins.
pub(crate) fn reserves(meter: &Meter, effect: &Effect) -> bool {
    effect.kind() == EffectKind::Model && meter.is_budget()
}

/// A call without a known maximum cost is refused as [`ModelErrorKind::Unpriced`], since no
/// reservation could cover it.
fn reserve(
    meter: &Arc<Meter>,
    effect: &Effect,
    cost: Option<CostBound>,
) -> Result<Option<Reservation>, NotReserved> {
    if !reserves(meter, effect) {
        return Ok(None);
    }
    let never = |outcome| NotReserved::Never(Box::new(outcome));
    let unknown = |what| {
        never(Outcome::Model(Err(ModelError::new(
            ModelErrorKind::Unpriced,
            what,
        ))))
    };
    let Some(mut worst) = cost else {
        let what = format!(
            "the cost of a call of `{}` is unknown, but the run has a budget",
            effect.name()
        );
        return Err(unknown(what));
    };
    worst.price = worst.price.or_else(|| meter.assumed_price());
    if worst.price.is_none() && meter.counts_money() {
        let what = format!(
            "the price of the model for `{}` is unknown, but the run's money is limited; set the \
             price of its card, or `Limits::assumed_price`",
            effect.name()
        );
        return Err(unknown(what));
    }
    let is_unlimited = worst.input == u64::MAX;
    if let Some(what) = worst
        .unknown
        .filter(|_| meter.counts_money() || is_unlimited)
    {
        let limited = if meter.counts_money() {
            "money is"
        } else {
            "tokens are"
        };
        let what = format!(
            "the run's {limited} limited, but the request for `{}` uses {what}",
            effect.name()
        );
        return Err(unknown(what));
    }
    meter
        .reserve(worst)
        .map(Some)
        .map_err(|refusal| match refusal {
            Refusal::Limit(limit) => never(Outcome::Refused(limit)),
            Refusal::Wait(freed) => NotReserved::Wait(freed),
        })
}

/// The spending of a run by its records, without effects in progress.
///
/// It follows from records alone, so that a resumed run and a report of a stored run agree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally(pub(crate) Spending);

impl Tally {
    /// Counts an effect that begins. A reservation by an earlier process counts in full.
    pub(crate) fn started(&mut self, note: &EffectNote, before: Option<&EffectNote>) {
        self.0 += initial_spending(note.kind);
        self.0 += before.map(reserved).unwrap_or_default();
    }

    /// Counts an effect that has finished, with the spending of a child and its descendants.
    pub(crate) fn finished(
        &mut self,
        outcome: &Outcome,
        below: Option<Spending>,
        note: Option<&EffectNote>,
    ) {
        self.0 += below.unwrap_or_default();
        self.0 += match outcome {
            Outcome::Model(Ok(response)) => {
                Spending::on(response.usage.total(), response.usage.cost)
            }
            Outcome::Model(Err(error)) if !error.may_cost() => Spending::default(),
            _ => note.map(reserved).unwrap_or_default(),
        };
    }

    /// Returns the total spending. Effects in progress count in full.
    pub(crate) fn with<'a>(self, under_way: impl Iterator<Item = &'a EffectNote>) -> Spending {
        under_way.fold(self.0, |mut sum, note| {
            sum += reserved(note);
            sum
        })
    }
}

/// Returns the spending of a run by its records, and the children that are still in progress.
/// Effects that began and did not finish count in full.
///
/// ```
/// use levity_core::{EffectClass, EffectId, EffectKind, EffectNote, Entry, Record, Timestamp};
/// use levity_driver::tally;
///
/// let effect = EffectId::new(0);
/// let note = EffectNote::new(EffectKind::Child, "writer", EffectClass::Idempotent);
/// let started = Record::new(1, Timestamp::default(), Entry::Started { effect, note });
/// let (spent, children) = tally(&[started]);
/// assert_eq!((spent.model_calls, children), (0, vec![effect])); // the child is in progress
/// ```
pub fn tally(records: &[Record]) -> (Spending, Vec<EffectId>) {
    let mut tally = Tally::default();
    let mut open: BTreeMap<EffectId, &EffectNote> = BTreeMap::new();
    for record in records {
        match &record.entry {
            Entry::Started { effect, note } => tally.started(note, open.insert(*effect, note)),
            Entry::Finished {
                effect,
                outcome,
                spent,
            } => {
                tally.finished(outcome, *spent, open.remove(effect));
            }
            _ => {}
        }
    }
    let children = open
        .iter()
        .filter(|(_, note)| note.kind == EffectKind::Child)
        .map(|(id, _)| *id);
    (tally.with(open.values().copied()), children.collect())
}

fn reserved(note: &EffectNote) -> Spending {
    note.reserved.map(full_spending).unwrap_or_default()
}
