use levity_core::Model;
use levity_core::{CostBound, Delta, ModelCard, ModelError, Price, Request, Response, Usage};

use super::flow::Out;

/// What all attempts at one request have used.
///
/// An attempt that failed and may have cost something makes the whole an estimate without a cost:
/// where money or tokens are limited, all that was reserved is then counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    before: Usage,
    now: Usage,
    /// An attempt failed and may have cost something.
    unsure: bool,
}

impl Tally {
    /// Notes a piece; counts are held back, since only the end tells what they come to.
    pub(super) fn see(&mut self, delta: Delta) -> Option<Delta> {
        match delta {
            Delta::Usage(usage) => {
                self.now.update(usage);
                None
            }
            delta => Some(delta),
        }
    }

    /// Notes that an attempt failed, and marks the error when that is more than it says itself.
    pub(super) fn fail(&mut self, error: ModelError) -> ModelError {
        let now = std::mem::take(&mut self.now);
        if error.may_cost() {
            self.before += now;
            self.unsure = true;
        }
        if self.unsure {
            error.with_charge()
        } else {
            error
        }
    }

    /// The counts of the attempt under way.
    pub(super) fn now(&self) -> &Usage {
        &self.now
    }

    /// Notes the counts of a reply that did not arrive in pieces.
    pub(super) fn used(&mut self, usage: Usage) {
        self.now = usage;
    }

    /// Notes that a whole reply is dropped and the request is sent again.
    pub(super) fn again(&mut self, card: &ModelCard) {
        let mut now = std::mem::take(&mut self.now);
        now.cost = now.cost.or_else(|| cost(card.price?, &now));
        self.before += now;
    }

    /// What everything came to, when the last attempt was this model's.
    pub(super) fn total(&mut self, card: &ModelCard) -> Usage {
        let mut last = std::mem::take(&mut self.now);
        if !self.unsure {
            last.cost = last.cost.or_else(|| cost(card.price?, &last));
            last += std::mem::take(&mut self.before);
            return last;
        }
        last += self.before;
        last.estimated = true;
        last.cost = None;
        last
    }

    /// Completes a reply that did not arrive in pieces.
    pub(super) fn close(&mut self, response: Response, card: &ModelCard) -> Response {
        self.now = response.usage;
        let usage = self.total(card);
        response.with_usage(usage)
    }
}

/// What a call cost, where that is certain. Input of which it is not known whether the provider put
/// it into its cache has the dearest rate.
fn cost(price: Price, usage: &Usage) -> Option<levity_core::Money> {
    let (Some(input), Some(output), false) = (usage.input, usage.output, usage.estimated) else {
        return None;
    };
    let unsaid = price.cache_write.is_some() && usage.cache_written.is_none();
    Some(match unsaid {
        true if usage.priority => price
            .prioritised()
            .most(input, output)
            .saturating_add(price.most_fees(usage)),
        true => price
            .most(input, output)
            .saturating_add(price.most_fees(usage)),
        false => price.cost_at_most(usage),
    })
}

/// Sends a request once and hands the pieces on. `shown` says whether a reader has seen some of the
/// reply.
pub(super) async fn attempt(
    model: &dyn Model,
    request: Request,
    out: &Out,
    tally: &mut Tally,
    shown: &mut bool,
) -> Result<(), ModelError> {
    let mut deltas = model.stream(request).await?;
    // A provider that had begun to reply may charge for it, whatever it breaks off with.
    let mut begun = false;
    while let Some(delta) = deltas.next().await {
        let delta = delta.map_err(|error| if begun { error.with_charge() } else { error })?;
        begun |= delta.is_content() || matches!(delta, Delta::Usage(_));
        let Some(delta) = tally.see(delta) else {
            continue;
        };
        *shown = delta.is_content() || (*shown && !matches!(delta, Delta::Restart { .. }));
        out.send(delta).await;
    }
    Ok(())
}

/// The most of both: what can be taken when it is not known which of two is called.
pub(super) fn either(a: CostBound, b: CostBound) -> CostBound {
    let mut both = CostBound::new(a.input.max(b.input)).with_sends(a.sends.max(b.sends));
    both.output = a.output.zip(b.output).map(|(a, b)| a.max(b));
    both.price = dearest(a.price, b.price);
    both.fees = a.fees.max(b.fees);
    both.unknown = a.unknown.or(b.unknown);
    both
}

/// The dearest of two prices in each respect; unknown when one of them is.
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
    // What only one of them knows is not known of both.
    both.priority = a.priority.zip(b.priority).map(|(a, b)| a.max(b));
    both.fees.search = a.fees.search.zip(b.fees.search).map(|(a, b)| a.max(b));
    both.fees.session = a.fees.session.zip(b.fees.session).map(|(a, b)| a.max(b));
    both.fees.most_uses = a
        .fees
        .most_uses
        .zip(b.fees.most_uses)
        .map(|(a, b)| a.max(b));
    both.long = None;
    let over = [a.long, b.long]
        .into_iter()
        .flatten()
        .map(|long| long.over)
        .min();
    let long = over.and_then(|over| Some((over, dearest(Some(at_length(a)), Some(at_length(b)))?)));
    Some(long.map_or(both, |(over, long)| both.with_long(over, long)))
}

/// The rates for long requests, as the only ones.
fn at_length(price: Price) -> Price {
    let mut rates = price;
    rates.long = None;
    if let Some(long) = price.long {
        (rates.input, rates.output) = (long.input, long.output);
        (rates.cached, rates.cache_write) = (long.cached, long.cache_write);
        rates.cache_write_hour = long.cache_write_hour;
    }
    rates
}
