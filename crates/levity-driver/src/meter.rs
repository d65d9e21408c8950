use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{
    CancelToken, CostBound, EffectKind, Limit, Limits, Money, Price, ReservedCost, Spending,
};

mod reservation;

pub(crate) use reservation::{Reservation, in_full};

/// Counts what a run and its children use, against its limits and those of all runs above it.
///
/// Whoever takes something locks the meters from its own up to the topmost, in this order, and
/// holds them until all are changed: so nothing is ever taken here and not above.
#[derive(Debug)]
pub struct Meter {
    limits: Limits,
    used: Mutex<Used>,
    parent: Option<Arc<Meter>>,
    /// Where money or tokens are limited, here or above: tells those who wait that some were given
    /// back.
    freed: Option<Arc<Freed>>,
}

/// Tells those who wait for room that some was given back.
#[derive(Debug, Default)]
struct Freed(Mutex<Option<CancelToken>>);

impl Freed {
    /// A token that is cancelled when something is given back from now on.
    fn next(&self) -> CancelToken {
        self.token().get_or_insert_default().clone()
    }

    fn tell(&self) {
        let waiting = self.token().take();
        waiting.iter().for_each(CancelToken::cancel);
    }

    fn token(&self) -> MutexGuard<'_, Option<CancelToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    spent: Spending,
    /// What calls under way may take at most.
    held: Amount,
    /// What one more call like the last would take, and the worst case of an answer after it; of
    /// the runs below while the run itself has called nothing.
    next: Amount,
    /// The worst case of an answer of the run itself, once it has called something.
    answer: Amount,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    tokens: u64,
    cost: Money,
}

/// Why nothing was reserved.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// What has been spent leaves no room.
    Limit(Limit),
    /// Calls under way have reserved the rest; the token is cancelled when budget is released.
    Wait(CancelToken),
}

impl Meter {
    /// A meter of these limits, below another.
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

    /// The limits of the run itself.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How deep runs may nest here: as deep as the strictest limit above allows.
    pub(crate) fn depth(&self) -> usize {
        let above = self
            .parent
            .as_ref()
            .map_or(usize::MAX, |parent| parent.depth());
        self.limits.depth.min(above)
    }

    /// Whether money or tokens are limited, here or above.
    pub fn is_budget(&self) -> bool {
        self.freed.is_some()
    }

    /// Whether money is limited, here or above.
    pub(crate) fn counts_money(&self) -> bool {
        self.limits.money.is_some()
            || self
                .parent
                .as_ref()
                .is_some_and(|parent| parent.counts_money())
    }

    /// What a model is taken to cost whose price is not known, as the nearest limits have it.
    pub(crate) fn assumed_price(&self) -> Option<Price> {
        self.limits
            .assumed_price
            .or_else(|| self.parent.as_ref()?.assumed_price())
    }

    /// What has been used so far, here and below.
    pub fn spent(&self) -> Spending {
        self.used().spent
    }

    /// Counts something here and above, whatever the limits say.
    pub fn add(&self, spent: &Spending) {
        let mut used = self.used();
        self.count(&mut used, spent);
        if let Some(parent) = &self.parent {
            parent.add(spent);
        }
    }

    /// Counts here what the runs above have counted already.
    pub fn add_here(&self, spent: &Spending) {
        self.count(&mut self.used(), spent);
    }

    fn count(&self, used: &mut Used, spent: &Spending) {
        used.spent += *spent;
        let unpriced = spent.unpriced();
        if self.limits.money.is_some() && unpriced > 0 {
            // Tokens of a time when money was not limited: by rule, or more than anybody has.
            let dearest = |price: Price| price.most(unpriced, 0).max(price.most(0, unpriced));
            used.spent.cost += self.assumed_price().map_or(Money::MAX, dearest);
            used.spent.priced = used.spent.priced.saturating_add(unpriced);
        }
    }

    /// Counts an effect that is about to begin; nothing is counted when a limit forbids it.
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
        used.spent += begun(kind);
        Ok(())
    }

    /// Sets aside what a call of a model can take at most, here and above.
    ///
    /// Its reply may be as long as what has been spent allows. When only calls under way stand in
    /// the way of that, it has to wait for them.
    pub(crate) fn reserve(self: &Arc<Self>, worst: CostBound) -> Result<Reservation, Refusal> {
        let wanted = worst.output.unwrap_or(CostBound::DEFAULT_OUTPUT);
        let hold = || {
            let room = Room {
                wanted,
                later: Some(wanted),
                now: Some(wanted),
                limit: Limit::Tokens,
            };
            self.hold(&worst, room)
        };
        let held = match (hold(), &self.freed) {
            (Err(None), Some(freed)) => {
                // A token before another look, so that nothing given back after it is missed.
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

    /// How long the reply may be; the limit that forbids any, or `None` when it has to wait.
    fn hold(&self, worst: &CostBound, room: Room) -> Result<u64, Option<Limit>> {
        let mut used = self.used();
        let room = room.within(worst, &self.limits, &used);
        let output = match &self.parent {
            Some(parent) => parent.hold(worst, room)?,
            None => room.decide()?,
        };
        used.held.add(worst.reserved(output).into());
        Ok(output)
    }

    /// Takes back what was held, here and above, and counts what was used of it. `answer` is the
    /// worst case of an answer after a call that had a reply.
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

    /// The limit that leaves room for one more model call at most, here or above.
    pub(crate) fn near(&self) -> Option<Limit> {
        let next = self.used().next;
        // What a run takes that has called nothing yet is guessed from what the run above it took.
        let new = next == Amount::default();
        self.near_with(next)
            .or_else(|| self.parent.as_ref().filter(|_| new)?.near())
    }

    /// The limit that has no room for so much. Above it stands what the run there needs to answer
    /// in its turn.
    fn near_with(&self, next: Amount) -> Option<Limit> {
        let spent = self.used().spent;
        let left = |used: u64, limit: Option<u64>| limit.map(|limit| limit.saturating_sub(used));
        if left(spent.model_calls, self.limits.model_calls).is_some_and(|left| left <= 1) {
            return Some(Limit::ModelCalls);
        }
        if left(spent.tool_calls, self.limits.tool_calls) == Some(0) {
            return Some(Limit::ToolCalls);
        }
        if left(spent.tokens, self.limits.tokens).is_some_and(|left| left < next.tokens) {
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
        parent.near_with(next.and(answer))
    }

    /// The limit of which no more than the set share is left, here or above.
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

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is counted of an effect when it begins.
pub(crate) fn begun(kind: EffectKind) -> Spending {
    match kind {
        EffectKind::Model => Spending::new(1, 0, 0),
        EffectKind::Tool => Spending::new(0, 1, 0),
        _ => Spending::default(),
    }
}

/// How long a reply may be, from the meters looked at so far; `None` when not even the request
/// fits.
struct Room {
    wanted: u64,
    /// Once no call is under way.
    later: Option<u64>,
    /// While those under way may still take all they reserved.
    now: Option<u64>,
    /// The limit that narrows it most.
    limit: Limit,
}

impl Room {
    fn within(mut self, worst: &CostBound, limits: &Limits, used: &Used) -> Self {
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
