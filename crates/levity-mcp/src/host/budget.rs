//! What a server has used of a model, and what it may.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use levity_core::{CostBound, Money, Price, ReservedCost, Usage};

use super::Refusal;

/// How much one server may use while the sampler lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    pub(super) requests: u64,
    pub(super) tokens: u64,
    pub(super) money: Option<Money>,
}

/// What each server has used, calls under way included.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<BTreeMap<String, Used>>);

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    requests: u64,
    tokens: u64,
    money: Money,
}

/// What was set aside for one call. Dropped, it counts in full: the provider may charge for what
/// nobody waits for.
#[derive(Debug)]
pub(super) struct Held<'a> {
    ledger: &'a Ledger,
    server: String,
    reserved: ReservedCost,
    price: Option<Price>,
    /// How long the reply may be, in tokens.
    pub(super) output: u64,
}

impl Ledger {
    /// Sets aside the most that a call can take, for a reply of `wanted` tokens or as many as are
    /// left.
    pub(super) fn hold(
        &self,
        server: &str,
        worst: &CostBound,
        wanted: u64,
        most: &Allowance,
    ) -> Result<Held<'_>, Refusal> {
        let mut all = self.all();
        let used = all.entry(server.to_owned()).or_default();
        if used.requests >= most.requests {
            return Err(Refusal::limit(
                "the server has made all the requests that it may",
            ));
        }
        if most.money.is_some() && worst.price.is_none() {
            return Err(Refusal::limit(
                "nobody knows what the model costs, and money is limited",
            ));
        }
        if let Some(what) = worst.unknown.filter(|_| most.money.is_some()) {
            return Err(Refusal::limit(format!(
                "money is limited, and the model is asked for {what}"
            )));
        }
        let money = most.money.map(|money| money.saturating_sub(used.money));
        let left = worst.affordable(Some(most.tokens.saturating_sub(used.tokens)), money);
        let output = left.unwrap_or(0).min(wanted);
        if left.is_none() || output < wanted.min(CostBound::LEAST_OUTPUT) {
            return Err(Refusal::limit(
                "it needs more tokens or money than the server has left",
            ));
        }
        let reserved = worst.reserved(output);
        used.requests += 1;
        used.tokens = used.tokens.saturating_add(reserved.tokens);
        used.money += reserved.cost.unwrap_or_default();
        Ok(Held {
            ledger: self,
            server: server.to_owned(),
            reserved,
            price: worst.price,
            output,
        })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Used>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tokens and money that a server has used.
    pub(super) fn used(&self, server: &str) -> (u64, u64, Money) {
        let used = self.all().get(server).copied().unwrap_or_default();
        (used.requests, used.tokens, used.money)
    }
}

impl Held<'_> {
    /// Counts what the call took. What the provider does not say counts in full.
    pub(super) fn settle(self, usage: &Usage) {
        let told = usage.input.is_some() && usage.output.is_some();
        let tokens = if told {
            usage.total()
        } else {
            self.reserved.tokens
        };
        let counted = self
            .price
            .filter(|_| told)
            .map(|price| price.cost_at_most(usage));
        let cost = usage
            .cost
            .or(counted)
            .or(self.reserved.cost)
            .unwrap_or_default();
        self.replace(tokens, cost);
    }

    /// Counts nothing but the request: it was turned down, and costs nothing.
    pub(super) fn release(self) {
        self.replace(0, Money::ZERO);
    }

    fn replace(self, tokens: u64, cost: Money) {
        let mut all = self.ledger.all();
        let used = all.entry(self.server).or_default();
        used.tokens = used
            .tokens
            .saturating_sub(self.reserved.tokens)
            .saturating_add(tokens);
        used.money = used
            .money
            .saturating_sub(self.reserved.cost.unwrap_or_default())
            .saturating_add(cost);
    }
}
