//! Money and tokens: set aside before a call of a model leaves, settled when it is back.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    CancelToken, CostBound, Effect, EffectId, EffectKind, EffectNote, Entry, Journal, JournalError, Machine,
    ModelError, ModelErrorKind, Outcome, Record, RunId, RuntimeError, Spent,
};
use tokio::sync::watch;

use super::{Around, Driver};
use crate::meter::{Refusal, Reservation, begun, in_full};

/// What calls of models under way have reserved, and what waits for room.
#[derive(Default)]
pub(super) struct Budget {
    reservations: Vec<(EffectId, Reservation)>,
    /// Effects that may begin once others have given back.
    waiting: Vec<EffectId>,
    /// Resolves when there may be room for them.
    pub(super) freed: Option<BoxFuture<'static, ()>>,
}

impl Budget {
    /// Forgets who waits; they are looked at anew.
    pub(super) fn reset(&mut self) {
        self.waiting.clear();
        self.freed = None;
    }

    pub(super) fn waiting(&self) -> &[EffectId] {
        &self.waiting
    }

    /// What was set aside for an effect under way.
    pub(super) fn reservation(&self, id: EffectId) -> Option<&Reservation> {
        self.reservations.iter().find(|(of, _)| *of == id).map(|(_, reservation)| reservation)
    }

    /// Counts in full whatever is still under way.
    pub(super) fn clear(&mut self) {
        self.reservations.clear();
        self.reset();
    }

    /// Counts an effect that is about to begin, and sets aside what it may take. `Err` says what comes of it
    /// when it does not begin; nothing, when it waits.
    pub(super) fn take(
        &mut self,
        around: &Around,
        id: EffectId,
        effect: &Effect,
        cost: Option<CostBound>,
        note: &mut EffectNote,
    ) -> Result<(), Option<Box<Outcome>>> {
        let reservation = match reserve(around, effect, cost) {
            Ok(reservation) => reservation,
            Err(Held::Never(outcome)) => return Err(Some(outcome)),
            Err(Held::Wait(mut freed)) => {
                // The first has been told of all that was given back since any of them looked. The sender is
                // gone only when everything is.
                self.freed.get_or_insert_with(|| Box::pin(async move { drop(freed.changed().await) }));
                self.waiting.push(id);
                return Err(None);
            }
        };
        if let Err(limit) = around.meter.admit(effect.kind()) {
            reservation.into_iter().for_each(Reservation::release);
            return Err(Some(Box::new(Outcome::Refused(limit))));
        }
        note.reserved = reservation.as_ref().map(Reservation::reserved);
        self.reservations.extend(reservation.map(|reservation| (id, reservation)));
        Ok(())
    }

    /// Counts what an effect has used, and writes into its outcome what is known of that only here.
    pub(super) fn settle(&mut self, around: &Around, id: EffectId, outcome: &mut Outcome) {
        let at = self.reservations.iter().position(|(of, _)| *of == id);
        let reservation = at.map(|at| self.reservations.swap_remove(at).1);
        match (reservation, outcome) {
            (Some(reservation), Outcome::Model(Ok(response))) => reservation.settle(&mut response.usage),
            (Some(reservation), Outcome::Model(Err(error))) => reservation.fail(error),
            // Counts in full.
            (Some(reservation), _) => drop(reservation),
            (None, Outcome::Model(Ok(response))) => {
                around.meter.add(&Spent::on(response.usage.total(), response.usage.cost));
            }
            (None, _) => {}
        }
    }
}

impl<M: Machine + 'static> Driver<M> {
    /// Counts what earlier processes have used in all runs below that they left under way. If each were only
    /// counted when it is driven on, the first could spend what the others have spent already.
    pub(super) async fn count_below(&mut self) -> Result<(), RuntimeError> {
        let running = self.state.running.iter();
        let children = running.filter(|(_, running)| running.note.kind == EffectKind::Child);
        let left: Vec<EffectId> = children.map(|(id, _)| id).collect();
        if left.is_empty() || self.around.depth > 0 {
            return Ok(());
        }
        let mut all = BTreeMap::new();
        let spent = below(&*self.around.shared.journal, &self.state.run, left, &mut all).await?;
        self.around.meter.add(&spent);
        self.around.before = Some(Arc::new(all));
        Ok(())
    }

    /// What the machine must know before it asks for the next call.
    pub(super) fn warnings(&self) -> impl Iterator<Item = Entry> + use<M> {
        let meter = &self.around.meter;
        let low = if self.state.low { None } else { meter.low() };
        let near = if self.state.wrapped { None } else { meter.near() };
        low.map(Entry::Low).into_iter().chain(near.map(Entry::Wrapped))
    }
}

enum Held {
    Never(Box<Outcome>),
    Wait(watch::Receiver<()>),
}

fn reserve(around: &Around, effect: &Effect, cost: Option<CostBound>) -> Result<Option<Reservation>, Held> {
    let meter = &around.meter;
    if !around.reserves(effect) {
        return Ok(None);
    }
    let never = |outcome| Held::Never(Box::new(outcome));
    let unknown = |what| never(Outcome::Model(Err(ModelError::new(ModelErrorKind::Unpriced, what))));
    let Some(mut worst) = cost else {
        let what =
            format!("nobody knows what a call of `{}` can take, and the run has a budget", effect.name());
        return Err(unknown(what));
    };
    worst.price = worst.price.or_else(|| meter.assumed_price());
    if worst.price.is_none() && meter.counts_money() {
        let what = format!(
            "nobody knows what the model for `{}` costs, and the run's money is limited; set the price of its card, \
             or `Limits::assumed_price`",
            effect.name()
        );
        return Err(unknown(what));
    }
    if let Some(what) = worst.unknown.filter(|_| meter.counts_money()) {
        let what =
            format!("the run's money is limited, and the request for `{}` asks for {what}", effect.name());
        return Err(unknown(what));
    }
    meter.reserve(worst).map(Some).map_err(|refusal| match refusal {
        Refusal::Limit(limit) => never(Outcome::Refused(limit)),
        Refusal::Wait(freed) => Held::Wait(freed),
    })
}

/// What earlier processes have used in each run that they left under way, with all below it. The topmost run
/// has counted it before anything begins.
pub(crate) type Before = Option<Arc<BTreeMap<RunId, Spent>>>;

/// Reads what earlier processes have used in the children `left` of a run.
fn below<'a>(
    journal: &'a dyn Journal,
    run: &'a RunId,
    left: Vec<EffectId>,
    all: &'a mut BTreeMap<RunId, Spent>,
) -> BoxFuture<'a, Result<Spent, JournalError>> {
    Box::pin(async move {
        let mut sum = Spent::default();
        for id in left {
            let child = run.child(id);
            let (mut spent, left) = tally(&journal.read(&child).await?);
            spent += below(journal, &child, left, all).await?;
            sum += spent;
            all.insert(child, spent);
        }
        Ok(sum)
    })
}

impl Around {
    /// Whether something is set aside before the effect begins.
    pub(super) fn reserves(&self, effect: &Effect) -> bool {
        effect.kind() == EffectKind::Model && self.meter.is_budget()
    }

    /// Counts what earlier processes have used in a run that is driven on.
    pub(super) fn count(&self, run: &RunId, records: &[Record]) {
        match self.before.as_ref().and_then(|before| before.get(run)) {
            // The runs above have it in what they used.
            Some(spent) => self.meter.add_here(spent),
            None if records.is_empty() => {}
            // One that is only driven on to be ended was left waiting by this process, which has counted it.
            None if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) => {
                self.meter.add_here(&tally(records).0);
            }
            None => self.meter.add(&tally(records).0),
        }
    }
}

/// What a run's records say it has used, and the children they leave under way. What had begun and did not
/// finish counts in full.
fn tally(records: &[Record]) -> (Spent, Vec<EffectId>) {
    let mut spent = Spent::default();
    let mut open: BTreeMap<EffectId, &EffectNote> = BTreeMap::new();
    let in_full = |note: &EffectNote| note.reserved.map(in_full).unwrap_or_default();
    for record in records {
        match &record.entry {
            Entry::Started { effect, note } => {
                spent += begun(note.kind);
                spent += open.insert(*effect, note).map(in_full).unwrap_or_default();
            }
            Entry::Finished { effect, outcome, spent: below } => {
                let reserved = open.remove(effect).map(in_full).unwrap_or_default();
                spent += below.unwrap_or_default();
                spent += taken(outcome, reserved);
            }
            _ => {}
        }
    }
    open.values().for_each(|note| spent += in_full(note));
    let left = open.iter().filter(|(_, note)| note.kind == EffectKind::Child).map(|(id, _)| *id);
    (spent, left.collect())
}

fn taken(outcome: &Outcome, reserved: Spent) -> Spent {
    match outcome {
        Outcome::Model(Ok(response)) => Spent::on(response.usage.total(), response.usage.cost),
        Outcome::Model(Err(error)) if !error.may_cost() => Spent::default(),
        _ => reserved,
    }
}
