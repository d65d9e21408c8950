//! Reservations: the money and tokens of a model call in progress.
//!
//! A reservation ends in one of three ways: settled with the usage of the reply, released because
//! the provider charges nothing, or dropped. Dropping counts it in full. So an error path that
//! forgets a reservation can only make the run more careful.

use std::sync::Arc;

use levity_core::{CostBound, ModelError, Money, Price, ReservedCost, Spending, Usage};

use super::{Amount, Meter};

/// The assumed length of the reply that ends a run, in tokens.
const ANSWER: u64 = 1_024;

/// The reserved cost of a model call in progress. If it is dropped, it counts in full, because the
/// provider's charge is unknown.
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

    /// Returns the maximum number of tokens to send.
    pub(crate) fn input(&self) -> u64 {
        self.worst.input
    }

    /// Returns the maximum number of tokens of the reply.
    pub(crate) fn output(&self) -> u64 {
        self.output
    }

    pub(crate) fn reserved(&self) -> ReservedCost {
        self.worst.reserved(self.output)
    }

    /// Counts the usage of the call and releases the rest. Unknown counts are filled in with their
    /// maximum.
    pub(crate) fn settle(mut self, usage: &mut Usage) {
        self.fill(usage);
        let spent = Spending::on(usage.total(), usage.cost);
        let answer = Amount::from(self.worst.reserved(self.output.min(ANSWER)));
        self.close(&spent, Some(answer));
    }

    /// Counts a failed call: in full, or not at all if the provider rejected it. Only the last of
    /// several attempts is known to be rejected.
    pub(crate) fn fail(self, error: &mut ModelError) {
        if self.worst.sends > 1 {
            *error = error.clone().with_charge();
        }
        if !error.may_cost() {
            self.release();
        }
    }

    /// Releases everything: the provider charges nothing.
    pub(crate) fn release(mut self) {
        self.close(&Spending::default(), None);
    }

    /// An estimated count is raised to its maximum, because only the provider's own numbers are
    /// reliable.
    fn fill(&self, usage: &mut Usage) {
        let known = |count: Option<u64>, bound: u64| match count {
            Some(count) if !usage.estimated => count,
            // An estimate does not come from the provider.
            Some(count) => count.max(bound),
            None => bound,
        };
        let bound = |tokens: u64| tokens.saturating_mul(self.worst.sends);
        let input = known(usage.input, bound(self.worst.input));
        let output = known(usage.output, bound(self.output));
        let cache_unknown = usage.input.is_none() || usage.estimated;
        usage.estimated |= usage.input.is_none() || usage.output.is_none();
        (usage.input, usage.output) = (Some(input), Some(output));
        usage.cost = usage
            .cost
            .or_else(|| Some(self.within(cost(self.worst.price?, usage, cache_unknown), usage)));
    }

    /// Limits the cost of several attempts, whose counts are added up and must not be treated as
    /// one long request.
    fn within(&self, cost: Money, usage: &Usage) -> Money {
        let reserved = self.reserved();
        match reserved.cost {
            Some(bound) if self.worst.sends > 1 && usage.total() <= reserved.tokens => {
                cost.min(bound)
            }
            _ => cost,
        }
    }

    fn close(&mut self, spent: &Spending, answer: Option<Amount>) {
        if std::mem::take(&mut self.open) {
            self.meter.settle(self.reserved().into(), spent, answer);
            if let Some(freed) = &self.meter.freed {
                freed.notify();
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.close(&full_spending(self.reserved()), None);
    }
}

/// Returns the cost of a call. Input whose cache status is unknown has the highest rate.
fn cost(price: Price, usage: &Usage, cache_unknown: bool) -> Money {
    let cache_unknown =
        cache_unknown || (price.cache_write.is_some() && usage.cache_written.is_none());
    match (usage.input, usage.output) {
        (Some(input), Some(output)) if cache_unknown => {
            let price = if usage.priority {
                price.prioritised()
            } else {
                price
            };
            price
                .max_cost(input, output)
                .saturating_add(price.max_fees(usage))
        }
        _ => price.cost_at_most(usage),
    }
}

/// Returns the whole reservation as spending.
pub(crate) fn full_spending(reserved: ReservedCost) -> Spending {
    Spending::on(reserved.tokens, reserved.cost)
}
