//! Usage and cost across several attempts at one request.
//!
//! A budget reserves the worst case before a request leaves and settles with the usage of the
//! reply. A layer that sends a request more than once must therefore report the sum of all
//! attempts, and must not report a sum that is too low. The rules are:
//!
//! - Usage deltas are held back. The layer emits one total at the end.
//! - A rejected attempt costs nothing and is forgotten.
//! - A failed attempt that may have cost something makes the total an estimate without a cost, so
//!   the whole reservation counts.
//! - The bound of several models is the worst of each value, and unknown if one value is unknown.

use levity_core::Model;
use levity_core::{CostBound, Delta, ModelCard, ModelError, Price, Request, Response, Usage};

use super::flow::DeltaSender;

/// The combined usage of all attempts at one request.
///
/// A failed attempt that may have cost something turns the total into an estimate without a cost.
/// Budgets of money or tokens then count the whole reservation.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The usage of earlier attempts that count.
    before: Usage,
    /// The usage of the current attempt, which newer deltas replace.
    now: Usage,
    /// True if an attempt failed and may have cost something.
    uncertain: bool,
}

impl Tally {
    /// Records a delta. Usage is held back, because only the end of the reply settles it.
    pub(super) fn observe(&mut self, delta: Delta) -> Option<Delta> {
        match delta {
            Delta::Usage(usage) => {
                self.now.update(usage);
                None
            }
            delta => Some(delta),
        }
    }

    /// Records a failed attempt, and marks the error as charged if any attempt may have cost
    /// something.
    ///
    /// The returned error carries the charge of all attempts, because the caller sees only this
    /// last one.
    pub(super) fn fail(&mut self, error: ModelError) -> ModelError {
        let now = std::mem::take(&mut self.now);
        if error.may_cost() {
            self.before += now;
            self.uncertain = true;
        }
        if self.uncertain {
            error.with_charge()
        } else {
            error
        }
    }

    /// Returns the usage of the current attempt.
    ///
    /// [`AdaptTools`](super::AdaptTools) reads the input tokens from it to detect dropped tools.
    pub(super) fn now(&self) -> &Usage {
        &self.now
    }

    /// Records the usage of a reply that was not streamed.
    pub(super) fn set_usage(&mut self, usage: Usage) {
        self.now = usage;
    }

    /// Records that a complete reply is discarded and the request is sent again.
    ///
    /// The discarded reply was complete and its usage is certain, so the total stays exact.
    pub(super) fn restart(&mut self, card: &ModelCard) {
        let mut now = std::mem::take(&mut self.now);
        now.cost = now.cost.or_else(|| cost(card.price?, &now));
        self.before += now;
    }

    /// Returns the total usage if this model made the last attempt.
    ///
    /// The cost is computed per attempt, since a fallback has two prices. After an uncertain
    /// attempt, the cost stays unknown even if the last attempt reports one.
    pub(super) fn total(&mut self, card: &ModelCard) -> Usage {
        let mut last = std::mem::take(&mut self.now);
        if !self.uncertain {
            last.cost = last.cost.or_else(|| cost(card.price?, &last));
            last += std::mem::take(&mut self.before);
            return last;
        }
        last += self.before;
        last.estimated = true;
        last.cost = None;
        last
    }

    /// Sets the total usage of a reply that was not streamed.
    pub(super) fn close(&mut self, response: Response, card: &ModelCard) -> Response {
        self.now = response.usage;
        let usage = self.total(card);
        response.with_usage(usage)
    }
}

/// Returns the cost of a call, if it is certain. Input that the provider may have written to its
/// cache is charged at the highest rate.
///
/// The result is `None` if the provider gave no counts or only estimates.
fn cost(price: Price, usage: &Usage) -> Option<levity_core::Money> {
    let (Some(input), Some(output), false) = (usage.input, usage.output, usage.estimated) else {
        return None;
    };
    let cache_write_unknown = price.cache_write.is_some() && usage.cache_written.is_none();
    Some(match cache_write_unknown {
        true if usage.priority => price
            .prioritised()
            .max_cost(input, output)
            .saturating_add(price.max_fees(usage)),
        true => price
            .max_cost(input, output)
            .saturating_add(price.max_fees(usage)),
        false => price.cost_at_most(usage),
    })
}

/// Sends a request once and forwards its deltas. Sets `shown` if a consumer has received part of
/// the reply.
///
/// An error after the first content, or after a usage delta, is marked as charged. `shown` becomes
/// `false` again after a [`Delta::Restart`] of an inner layer: the consumer has discarded the part.
pub(super) async fn attempt(
    model: &dyn Model,
    request: Request,
    out: &DeltaSender,
    tally: &mut Tally,
    shown: &mut bool,
) -> Result<(), ModelError> {
    let mut deltas = model.stream(request).await?;
    // A provider that has started to reply may charge for it, even if it then fails.
    let mut started = false;
    while let Some(delta) = deltas.next().await {
        let delta = delta.map_err(|error| if started { error.with_charge() } else { error })?;
        started |= delta.is_content() || matches!(delta, Delta::Usage(_));
        let Some(delta) = tally.observe(delta) else {
            continue;
        };
        *shown = delta.is_content() || (*shown && !matches!(delta, Delta::Restart { .. }));
        out.send(delta).await;
    }
    Ok(())
}

/// Returns the higher bound of two models if either may be called.
///
/// The number of sends is the higher of both. A caller that calls both models, such as a fallback,
/// replaces it with the sum.
pub(super) fn max_bound(a: CostBound, b: CostBound) -> CostBound {
    let mut both = CostBound::new(a.input.max(b.input)).with_sends(a.sends.max(b.sends));
    both.output = a.output.zip(b.output).map(|(a, b)| a.max(b));
    both.price = dearest(a.price, b.price);
    both.fees = a.fees.max(b.fees);
    both.unknown = a.unknown.or(b.unknown);
    both
}

/// Returns the higher price of two in each rate; unknown if one price is unknown.
///
/// The special rates (cache, long requests) of one price are compared with the plain rates of the
/// other, so that no combination of usage costs more than the result. The long rates apply from the
/// lower of both thresholds.
pub(super) fn dearest(a: Option<Price>, b: Option<Price>) -> Option<Price> {
    let (a, b) = a.zip(b)?;
    let rate = |a: Option<_>, b: Option<_>, plain| {
        (a.is_some() || b.is_some()).then(|| a.max(b).max(plain))
    };
    let mut both = a;
    (both.input, both.output) = (a.input.max(b.input), a.output.max(b.output));
    both.cached = rate(a.cached, b.cached, Some(both.input)).flatten();
    both.cache_write = rate(a.cache_write, b.cache_write, Some(both.input)).flatten();
    let hour = a.cache_write_hour.is_some() || b.cache_write_hour.is_some();
    both.cache_write_hour = hour
        .then(|| {
            a.with_hour()
                .cache_write_hour
                .max(b.with_hour().cache_write_hour)
        })
        .flatten();
    // A rate that only one price has is unknown for both.
    both.priority = a.priority.zip(b.priority).map(|(a, b)| a.max(b));
    both.fees.search = a.fees.search.zip(b.fees.search).map(|(a, b)| a.max(b));
    both.fees.session = a.fees.session.zip(b.fees.session).map(|(a, b)| a.max(b));
    both.fees.max_uses = a.fees.max_uses.zip(b.fees.max_uses).map(|(a, b)| a.max(b));
    both.long = None;
    let over = [a.long, b.long]
        .into_iter()
        .flatten()
        .map(|long| long.over)
        .min();
    let long =
        over.and_then(|over| Some((over, dearest(Some(long_rates(a)), Some(long_rates(b)))?)));
    Some(long.map_or(both, |(over, long)| both.with_long(over, long)))
}

/// Returns a price that has the rates for long requests as its only rates.
fn long_rates(price: Price) -> Price {
    let mut rates = price;
    rates.long = None;
    if let Some(long) = price.long {
        (rates.input, rates.output) = (long.input, long.output);
        (rates.cached, rates.cache_write) = (long.cached, long.cache_write);
        rates.cache_write_hour = long.cache_write_hour;
    }
    rates
}
