//! Meters: the spending of a tree of runs against its limits.
//!
//! Each run has a meter, and the meter of a child has the one of its parent above it. Spending is
//! counted in all of them at once. A call may begin only if every meter up to the root has room for
//! its maximum cost.
//!
//! Besides the money spent, a meter tracks reservations of calls in progress and an estimate of the
//! next call. The estimate tells the run in time that it should finish with its current results.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{
    CancelToken, CostBound, EffectKind, Limit, Limits, Money, Price, ReservedCost, Spending,
};

mod reservation;

pub(crate) use reservation::{Reservation, full_spending};

/// Counts the spending of a run and its children against its limits and those of its ancestors.
///
/// An operation locks the meters from its own up to the root, in this order, and holds the locks
/// until all are changed. So no amount is ever taken here without being taken above.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::{Limits, Spending};
/// use levity_driver::Meter;
///
/// let root = Arc::new(Meter::new(Limits::new().tokens(1_000), None));
/// let child = Meter::new(Limits::new(), Some(root.clone()));
/// child.add(&Spending::new(1, 0, 300));
/// assert_eq!(root.spent().tokens, 300);
/// assert!(child.is_budget(), "the limit of the root holds for the child");
/// ```
#[derive(Debug)]
pub struct Meter {
    limits: Limits,
    used: Mutex<Consumption>,
    parent: Option<Arc<Meter>>,
    /// Notifies waiting calls of released budget, if money or tokens are limited here or above.
    freed: Option<Arc<Freed>>,
}

/// Notifies waiting calls that some budget was released.
///
/// All waiting calls of a tree share one token. It is created on demand and replaced after each
/// release.
#[derive(Debug, Default)]
struct Freed(Mutex<Option<CancelToken>>);

impl Freed {
    /// Returns a token that is cancelled at the next release.
    fn next(&self) -> CancelToken {
        self.token().get_or_insert_default().clone()
    }

    fn notify(&self) {
        let waiting = self.token().take();
        waiting.iter().for_each(CancelToken::cancel);
    }

    fn token(&self) -> MutexGuard<'_, Option<CancelToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counts of one meter, for its run and everything below it.
#[derive(Clone, Copy, Debug, Default)]
struct Consumption {
    spent: Spending,
    /// The maximum cost of calls in progress.
    held: Amount,
    /// The cost of one more call like the last, plus the worst case of an answer after it. While
    /// the run itself has called nothing, those of the runs below.
    next: Amount,
    /// The worst case of an answer of the run itself, once it has made a call.
    answer: Amount,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    tokens: u64,
    cost: Money,
}

/// The reason why nothing was reserved.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The spending leaves no room.
    Limit(Limit),
    /// Calls in progress have reserved the rest; the token is cancelled when budget is released.
    Wait(CancelToken),
}

impl Meter {
    /// Creates a meter of these limits below another.
    pub fn new(limits: Limits, parent: Option<Arc<Self>>) -> Self {
        let limited = limits.tokens.is_some() || limits.money.is_some();
        let above = parent.as_ref().and_then(|parent| parent.freed.clone());
        let freed = above.or_else(|| limited.then(Arc::default));
        Self {
            limits,
            used: Mutex::default(),
            parent,
            freed,
        }
    }

    /// Returns the limits of the run itself.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the maximum nesting depth here, by the strictest limit above.
    pub(crate) fn depth(&self) -> usize {
        let above = self
            .parent
            .as_ref()
            .map_or(usize::MAX, |parent| parent.depth());
        self.limits.depth.min(above)
    }

    /// Returns `true` if money or tokens are limited, here or above.
    ///
    /// ```
    /// # use levity_core::Limits;
    /// # use levity_driver::Meter;
    /// assert!(Meter::new(Limits::new().tokens(1_000), None).is_budget());
    /// assert!(!Meter::new(Limits::new(), None).is_budget());
    /// ```
    pub fn is_budget(&self) -> bool {
        self.freed.is_some()
    }

    /// Returns `true` if money is limited, here or above.
    pub(crate) fn counts_money(&self) -> bool {
        self.limits.money.is_some()
            || self
                .parent
                .as_ref()
                .is_some_and(|parent| parent.counts_money())
    }

    /// Returns the price assumed for a model of unknown price, from the nearest limits.
    pub(crate) fn assumed_price(&self) -> Option<Price> {
        self.limits
            .assumed_price
            .or_else(|| self.parent.as_ref()?.assumed_price())
    }

    /// Returns the spending here and below.
    ///
    /// ```
    /// # use levity_core::{Limits, Spending};
    /// # use levity_driver::Meter;
    /// let meter = Meter::new(Limits::new(), None);
    /// meter.add(&Spending::new(1, 2, 300));
    /// assert_eq!((meter.spent().model_calls, meter.spent().tool_calls), (1, 2));
    /// ```
    pub fn spent(&self) -> Spending {
        self.used().spent
    }

    /// Adds spending here and above, whatever the limits are.
    pub fn add(&self, spent: &Spending) {
        let mut used = self.used();
        self.count(&mut used, spent);
        if let Some(parent) = &self.parent {
            parent.add(spent);
        }
    }

    /// Adds spending here that the runs above have already counted.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use levity_core::{Limits, Spending};
    /// # use levity_driver::Meter;
    /// let root = Arc::new(Meter::new(Limits::new(), None));
    /// let child = Meter::new(Limits::new(), Some(root.clone()));
    /// child.add_here(&Spending::new(1, 0, 300));
    /// assert_eq!((child.spent().tokens, root.spent().tokens), (300, 0));
    /// ```
    pub fn add_here(&self, spent: &Spending) {
        self.count(&mut self.used(), spent);
    }

    fn count(&self, used: &mut Consumption, spent: &Spending) {
        used.spent += *spent;
        let unpriced = spent.unpriced();
        if self.limits.money.is_some() && unpriced > 0 {
            // Tokens from a time when money was not limited: use the assumed price, or the maximum.
            let dearest =
                |price: Price| price.max_cost(unpriced, 0).max(price.max_cost(0, unpriced));
            used.spent.cost += self.assumed_price().map_or(Money::MAX, dearest);
            used.spent.priced = used.spent.priced.saturating_add(unpriced);
        }
    }

    /// Counts an effect that is about to begin; counts nothing if a limit forbids it.
    pub(crate) fn admit(&self, kind: EffectKind) -> Result<(), Limit> {
        let mut used = self.used();
        let over = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used >= limit);
        match kind {
            EffectKind::Model if over(used.spent.model_calls, self.limits.model_calls) => {
                return Err(Limit::ModelCalls);
            }
            EffectKind::Tool if over(used.spent.tool_calls, self.limits.tool_calls) => {
                return Err(Limit::ToolCalls);
            }
            _ => {}
        }
        if let Some(parent) = &self.parent {
            parent.admit(kind)?;
        }
        used.spent += initial_spending(kind);
        Ok(())
    }

    /// Reserves the maximum cost of a model call, here and above.
    ///
    /// The reply may be as long as the spending allows. If only calls in progress prevent that, the
    /// call has to wait for them.
    pub(crate) fn reserve(self: &Arc<Self>, worst: CostBound) -> Result<Reservation, Refusal> {
        let wanted = worst.output.unwrap_or(CostBound::DEFAULT_OUTPUT);
        let hold = || {
            let room = ReplyRoom {
                wanted,
                later: Some(wanted),
                now: Some(wanted),
                limit: Limit::Tokens,
            };
            self.hold(&worst, room)
        };
        let held = match (hold(), &self.freed) {
            (Err(None), Some(freed)) => {
                // Create the token before the second check, so that no later release is missed.
                let freed = freed.next();
                match hold() {
                    Err(None) => return Err(Refusal::Wait(freed)),
                    held => held,
                }
            }
            (held, _) => held,
        };
        match held {
            Ok(output) => Ok(Reservation::new(self.clone(), worst, output)),
            Err(limit) => Err(Refusal::Limit(limit.unwrap_or(Limit::Tokens))),
        }
    }

    /// Returns the maximum length of the reply; the limit that forbids any, or `None` if it has to
    /// wait.
    ///
    /// The locks of all meters up to the root are held until the root has decided, so two calls
    /// cannot both take the last of a budget.
    fn hold(&self, worst: &CostBound, room: ReplyRoom) -> Result<u64, Option<Limit>> {
        let mut used = self.used();
        let room = room.within(worst, &self.limits, &used);
        let output = match &self.parent {
            Some(parent) => parent.hold(worst, room)?,
            None => room.decide()?,
        };
        used.held.add(worst.reserved(output).into());
        Ok(output)
    }

    /// Releases a reservation, here and above, and counts the usage. `answer` is the worst case of
    /// an answer after a call that had a reply.
    fn settle(&self, held: Amount, spent: &Spending, answer: Option<Amount>) {
        let next = answer.map(|answer| {
            answer.and(Amount {
                tokens: spent.tokens,
                cost: spent.cost,
            })
        });
        if let Some(answer) = answer {
            self.used().answer = answer;
        }
        self.settle_up(held, spent, next, true);
    }

    fn settle_up(&self, held: Amount, spent: &Spending, next: Option<Amount>, own: bool) {
        let mut used = self.used();
        used.held.sub(held);
        self.count(&mut used, spent);
        if let Some(next) = next.filter(|_| own || used.answer == Amount::default()) {
            used.next = next;
        }
        if let Some(parent) = &self.parent {
            parent.settle_up(held, spent, next, false);
        }
    }

    /// Returns the limit that leaves room for at most one more model call, here or above.
    ///
    /// A run that knows this early can still afford an answer. Without it, the last call would be
    /// refused and the work lost.
    pub(crate) fn almost_reached(&self) -> Option<Limit> {
        let next = self.used().next;
        // The cost of a run that has called nothing is estimated from the run above it.
        let new = next == Amount::default();
        self.almost_reached_with(next)
            .or_else(|| self.parent.as_ref().filter(|_| new)?.almost_reached())
    }

    /// Returns the limit that has no room for this amount. The runs above also need room for their
    /// own answers.
    fn almost_reached_with(&self, next: Amount) -> Option<Limit> {
        let spent = self.used().spent;
        let remaining =
            |used: u64, limit: Option<u64>| limit.map(|limit| limit.saturating_sub(used));
        if remaining(spent.model_calls, self.limits.model_calls).is_some_and(|rest| rest <= 1) {
            return Some(Limit::ModelCalls);
        }
        if remaining(spent.tool_calls, self.limits.tool_calls) == Some(0) {
            return Some(Limit::ToolCalls);
        }
        if remaining(spent.tokens, self.limits.tokens).is_some_and(|rest| rest < next.tokens) {
            return Some(Limit::Tokens);
        }
        if self
            .limits
            .money
            .is_some_and(|money| money.saturating_sub(spent.cost) < next.cost)
        {
            return Some(Limit::Money);
        }
        let parent = self.parent.as_ref()?;
        let answer = parent.used().answer;
        parent.almost_reached_with(next.and(answer))
    }

    /// Returns the limit of which no more than the configured share remains, here or above.
    pub(crate) fn low(&self) -> Option<Limit> {
        let spent = self.used().spent;
        let is_low = |used: u64, limit: Option<u64>| match (limit, self.limits.low) {
            (Some(limit), Some(low)) => {
                u128::from(limit.saturating_sub(used)) * 100 <= u128::from(limit) * u128::from(low)
            }
            _ => false,
        };
        if is_low(spent.cost.nanos(), self.limits.money.map(Money::nanos)) {
            return Some(Limit::Money);
        }
        if is_low(spent.tokens, self.limits.tokens) {
            return Some(Limit::Tokens);
        }
        self.parent.as_ref().and_then(|parent| parent.low())
    }

    fn used(&self) -> MutexGuard<'_, Consumption> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the spending that is counted when an effect begins.
pub(crate) fn initial_spending(kind: EffectKind) -> Spending {
    match kind {
        EffectKind::Model => Spending::new(1, 0, 0),
        EffectKind::Tool => Spending::new(0, 1, 0),
        _ => Spending::default(),
    }
}

/// The maximum length of a reply, from the meters checked up to now; `None` if not even the request
/// fits.
struct ReplyRoom {
    wanted: u64,
    /// The room once no call is in progress.
    later: Option<u64>,
    /// The room while calls in progress may still use their full reservations.
    now: Option<u64>,
    /// The limit that restricts it most.
    limit: Limit,
}

impl ReplyRoom {
    fn within(mut self, worst: &CostBound, limits: &Limits, used: &Consumption) -> Self {
        let (spent, held) = (&used.spent, &used.held);
        let tokens = limits
            .tokens
            .map(|limit| limit.saturating_sub(spent.tokens));
        let money = limits.money.map(|limit| limit.saturating_sub(spent.cost));
        for (limit, room) in [
            (Limit::Tokens, worst.affordable(tokens, None)),
            (Limit::Money, worst.affordable(None, money)),
        ] {
            if room < self.later {
                (self.later, self.limit) = (room, limit);
            }
        }
        let tokens = tokens.map(|tokens| tokens.saturating_sub(held.tokens));
        let money = money.map(|money| money.saturating_sub(held.cost));
        self.now = self.now.min(worst.affordable(tokens, money));
        self
    }

    /// A reply of less than 64 tokens is not worth a call, unless the request itself wants no more.
    fn decide(self) -> Result<u64, Option<Limit>> {
        match self.later {
            Some(later) if later >= self.wanted.min(CostBound::LEAST_OUTPUT) => {
                if self.now < self.later {
                    Err(None)
                } else {
                    Ok(later)
                }
            }
            _ => Err(Some(self.limit)),
        }
    }
}

impl Amount {
    fn and(mut self, other: Self) -> Self {
        self.add(other);
        self
    }

    fn add(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.cost += other.cost;
    }

    fn sub(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_sub(other.tokens);
        self.cost = self.cost.saturating_sub(other.cost);
    }
}

impl From<ReservedCost> for Amount {
    fn from(reserved: ReservedCost) -> Self {
        Self {
            tokens: reserved.tokens,
            cost: reserved.cost.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
