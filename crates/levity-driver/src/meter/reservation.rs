use std::sync::Arc;

use levity_core::{CostBound, ModelError, Money, Price, ReservedCost, Spending, Usage};

use super::{Amount, Meter};

/// How long the reply is taken to be that a run ends with, in tokens.
const ANSWER: u64 = 1_024;

/// What was set aside for a call of a model under way. Dropped, it counts in full: nobody knows
/// what the provider did.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reservation {
    meter: Arc<Meter>,
    pub(super) worst: CostBound,
    output: u64,
    open: bool,
}

impl Reservation {
    pub(super) fn new(meter: Arc<Meter>, worst: CostBound, output: u64) -> Self {
        Self {
            meter,
            worst,
            output,
            open: true,
        }
    }

    /// The most tokens that may be sent.
    pub(crate) fn input(&self) -> u64 {
        self.worst.input
    }

    /// The most tokens that the reply may have.
    pub(crate) fn output(&self) -> u64 {
        self.output
    }

    pub(crate) fn reserved(&self) -> ReservedCost {
        self.worst.reserved(self.output)
    }

    /// Counts what the call has used and gives the rest back. What is not known is filled in with
    /// the most that it can be.
    pub(crate) fn settle(mut self, usage: &mut Usage) {
        self.fill(usage);
        let spent = Spending::on(usage.total(), usage.cost);
        let answer = Amount::from(self.worst.reserved(self.output.min(ANSWER)));
        self.close(&spent, Some(answer));
    }

    /// Counts a call that failed: in full, or not at all when the provider turned it down. Only the
    /// last of several sendings is known to have been.
    pub(crate) fn fail(self, error: &mut ModelError) {
        if self.worst.sends > 1 {
            *error = error.clone().with_charge();
        }
        if !error.may_cost() {
            self.release();
        }
    }

    /// Gives everything back: the provider charges nothing.
    pub(crate) fn release(mut self) {
        self.close(&Spending::default(), None);
    }

    fn fill(&self, usage: &mut Usage) {
        let known = |count: Option<u64>, most: u64| match count {
            Some(count) if !usage.estimated => count,
            // An estimate is not the provider's word.
            Some(count) => count.max(most),
            None => most,
        };
        let most = |tokens: u64| tokens.saturating_mul(self.worst.sends);
        let input = known(usage.input, most(self.worst.input));
        let output = known(usage.output, most(self.output));
        let unsaid = usage.input.is_none() || usage.estimated;
        usage.estimated |= usage.input.is_none() || usage.output.is_none();
        (usage.input, usage.output) = (Some(input), Some(output));
        usage.cost = usage
            .cost
            .or_else(|| Some(self.within(cost(self.worst.price?, usage, unsaid), usage)));
    }

    /// Counts of several sendings are added up, and must not be taken for one long request.
    fn within(&self, cost: Money, usage: &Usage) -> Money {
        let reserved = self.reserved();
        match reserved.cost {
            Some(most) if self.worst.sends > 1 && usage.total() <= reserved.tokens => {
                cost.min(most)
            }
            _ => cost,
        }
    }

    fn close(&mut self, spent: &Spending, answer: Option<Amount>) {
        if std::mem::take(&mut self.open) {
            self.meter.settle(self.reserved().into(), spent, answer);
            if let Some(freed) = &self.meter.freed {
                freed.tell();
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.close(&in_full(self.reserved()), None);
    }
}

/// What a call cost. Input of which it is not known what the provider's cache did with it has the
/// dearest rate.
fn cost(price: Price, usage: &Usage, unsaid: bool) -> Money {
    let unsaid = unsaid || (price.cache_write.is_some() && usage.cache_written.is_none());
    match (usage.input, usage.output) {
        (Some(input), Some(output)) if unsaid => {
            let price = if usage.priority {
                price.prioritised()
            } else {
                price
            };
            price
                .most(input, output)
                .saturating_add(price.most_fees(usage))
        }
        _ => price.cost_at_most(usage),
    }
}

/// All of it.
pub(crate) fn in_full(reserved: ReservedCost) -> Spending {
    Spending::on(reserved.tokens, reserved.cost)
}
