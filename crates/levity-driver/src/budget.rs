//! Money and tokens: set aside before a call of a model leaves, settled when it is back.

use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::{
    CancelToken, CostBound, Effect, EffectId, EffectKind, EffectNote, Entry, ModelError,
    ModelErrorKind, Outcome, Record, Spending,
};

use crate::meter::{Meter, Refusal, Reservation, begun, in_full};

/// Reservations of model calls under way, and the effects that wait for budget.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    reservations: Vec<(EffectId, Reservation)>,
    /// Effects that may begin once others have given back.
    waiting: Vec<EffectId>,
    /// Cancelled when there may be room for them.
    freed: Option<CancelToken>,
}

impl Budget {
    /// Forgets who waits; they are looked at anew.
    pub(crate) fn reset(&mut self) {
        self.waiting.clear();
        self.freed = None;
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The token that is cancelled when there may be room for those who wait.
    pub(crate) fn freed(&self) -> Option<&CancelToken> {
        self.freed.as_ref()
    }

    /// Forgets a token that was cancelled, so that nobody wakes up by it twice.
    pub(crate) fn forget_freed(&mut self) {
        self.freed.take_if(|freed| freed.is_cancelled());
    }

    /// The reservation of an effect under way.
    pub(crate) fn reservation(&self, id: EffectId) -> Option<&Reservation> {
        self.reservations
            .iter()
            .find(|(of, _)| *of == id)
            .map(|(_, reservation)| reservation)
    }

    /// Counts in full whatever is still under way.
    pub(crate) fn clear(&mut self) {
        self.reservations.clear();
        self.reset();
    }

    /// Counts an effect that is about to begin, and sets aside what it may take. `Err` says what
    /// comes of it when it does not begin; nothing, when it waits.
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
            Err(Held::Never(outcome)) => return Err(Some(outcome)),
            Err(Held::Wait(freed)) => {
                // The first has been told of all that was given back since any of them looked.
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

    /// Counts what an effect has used, and writes into its outcome what is known of that only here.
    pub(crate) fn settle(&mut self, meter: &Meter, id: EffectId, outcome: &mut Outcome) {
        let at = self.reservations.iter().position(|(of, _)| *of == id);
        let reservation = at.map(|at| self.reservations.swap_remove(at).1);
        match (reservation, outcome) {
            (Some(reservation), Outcome::Model(Ok(response))) => {
                reservation.settle(&mut response.usage);
            }
            (Some(reservation), Outcome::Model(Err(error))) => reservation.fail(error),
            // Counts in full.
            (Some(reservation), _) => drop(reservation),
            (None, Outcome::Model(Ok(response))) => {
                meter.add(&Spending::on(response.usage.total(), response.usage.cost));
            }
            (None, _) => {}
        }
    }
}

enum Held {
    Never(Box<Outcome>),
    Wait(CancelToken),
}

/// Returns whether budget is reserved before the effect begins.
pub(crate) fn reserves(meter: &Meter, effect: &Effect) -> bool {
    effect.kind() == EffectKind::Model && meter.is_budget()
}

fn reserve(
    meter: &Arc<Meter>,
    effect: &Effect,
    cost: Option<CostBound>,
) -> Result<Option<Reservation>, Held> {
    if !reserves(meter, effect) {
        return Ok(None);
    }
    let never = |outcome| Held::Never(Box::new(outcome));
    let unknown = |what| {
        never(Outcome::Model(Err(ModelError::new(
            ModelErrorKind::Unpriced,
            what,
        ))))
    };
    let Some(mut worst) = cost else {
        let what = format!(
            "nobody knows what a call of `{}` can take, and the run has a budget",
            effect.name()
        );
        return Err(unknown(what));
    };
    worst.price = worst.price.or_else(|| meter.assumed_price());
    if worst.price.is_none() && meter.counts_money() {
        let what = format!(
            "nobody knows what the model for `{}` costs, and the run's money is limited; set the \
                price of its card, \
             or `Limits::assumed_price`",
            effect.name()
        );
        return Err(unknown(what));
    }
    if let Some(what) = worst.unknown.filter(|_| meter.counts_money()) {
        let what = format!(
            "the run's money is limited, and the request for `{}` asks for {what}",
            effect.name()
        );
        return Err(unknown(what));
    }
    meter
        .reserve(worst)
        .map(Some)
        .map_err(|refusal| match refusal {
            Refusal::Limit(limit) => never(Outcome::Refused(limit)),
            Refusal::Wait(freed) => Held::Wait(freed),
        })
}

/// The spending of a run by its records, without effects under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally(pub(crate) Spending);

impl Tally {
    /// Counts an effect that begins. What an earlier process had reserved for it counts in full.
    pub(crate) fn started(&mut self, note: &EffectNote, before: Option<&EffectNote>) {
        self.0 += begun(note.kind);
        self.0 += before.map(reserved).unwrap_or_default();
    }

    /// Counts an effect that has finished, with what a child and all below it have used.
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

    /// All that was used. Effects under way count in full.
    pub(crate) fn with<'a>(self, under_way: impl Iterator<Item = &'a EffectNote>) -> Spending {
        under_way.fold(self.0, |mut sum, note| {
            sum += reserved(note);
            sum
        })
    }
}

/// Returns what the records of a run say that it has used, and the children that they leave under
/// way. Effects that had begun and did not finish count in full.
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
    let left = open
        .iter()
        .filter(|(_, note)| note.kind == EffectKind::Child)
        .map(|(id, _)| *id);
    (tally.with(open.values().copied()), left.collect())
}

fn reserved(note: &EffectNote) -> Spending {
    note.reserved.map(in_full).unwrap_or_default()
}
