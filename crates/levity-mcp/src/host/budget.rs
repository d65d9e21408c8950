//! The usage of a model by servers, and its limits.
//!
//! A call reserves the highest amount that it can cost, under one lock, before it is sent.
//! Afterwards the reservation is replaced by the reported usage. Concurrent calls of one server
//! therefore cannot pass its limits together, and a call that is dropped midway stays counted in
//! full.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use levity_core::{CostBound, Money, Price, ReservedCost, Usage};

use super::Refusal;

/// The usage limits of one server for the lifetime of the sampler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    pub(super) requests: u64,
    pub(super) tokens: u64,
    pub(super) money: Option<Money>,
}

/// The usage of each server, including calls in progress.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<BTreeMap<String, ServerUsage>>);

/// The amounts that one server has used or reserved.
#[derive(Clone, Copy, Debug, Default)]
struct ServerUsage {
    requests: u64,
    tokens: u64,
    money: Money,
}

/// The reservation for one call. If it is dropped, the full amount counts, because the provider may
/// charge for an abandoned call.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    ledger: &'a Ledger,
    server: String,
    reserved: ReservedCost,
    price: Option<Price>,
    /// The maximum length of the reply, in tokens.
    pub(super) output: u64,
}

impl Ledger {
    /// Reserves the maximum cost of a call, for a reply of `wanted` tokens or the remaining number.
    ///
    /// # Errors
    /// Returns a refusal if the server has no requests left, if money is limited and the cost is
    /// unknown, or if fewer tokens remain than a useful reply needs (`CostBound::LEAST_OUTPUT`).
    pub(super) fn reserve(
        &self,
        server: &str,
        bound: &CostBound,
        wanted: u64,
        limits: &Allowance,
    ) -> Result<Reservation<'_>, Refusal> {
        let mut all = self.all();
        let used = all.entry(server.to_owned()).or_default();
        if used.requests >= limits.requests {
            return Err(Refusal::limit(
                "the server has reached its limit of requests",
            ));
        }
        if limits.money.is_some() && bound.price.is_none() {
            return Err(Refusal::limit(
                "the cost is limited, and the price of the model is unknown",
            ));
        }
        if let Some(what) = bound.unknown.filter(|_| limits.money.is_some()) {
            return Err(Refusal::limit(format!(
                "the cost is limited, and the request has an unknown cost: {what}"
            )));
        }
        let money = limits.money.map(|money| money.saturating_sub(used.money));
        let affordable_output =
            bound.affordable(Some(limits.tokens.saturating_sub(used.tokens)), money);
        let output = affordable_output.unwrap_or(0).min(wanted);
        if affordable_output.is_none() || output < wanted.min(CostBound::LEAST_OUTPUT) {
            return Err(Refusal::limit(
                "the request needs more tokens or money than the server has remaining",
            ));
        }
        let reserved = bound.reserved(output);
        used.requests += 1;
        used.tokens = used.tokens.saturating_add(reserved.tokens);
        used.money += reserved.cost.unwrap_or_default();
        Ok(Reservation {
            ledger: self,
            server: server.to_owned(),
            reserved,
            price: bound.price,
            output,
        })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, ServerUsage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the requests, tokens and money that a server has used.
    pub(super) fn used(&self, server: &str) -> (u64, u64, Money) {
        let used = self.all().get(server).copied().unwrap_or_default();
        (used.requests, used.tokens, used.money)
    }
}

impl Reservation<'_> {
    /// Replaces the reservation with the actual usage. Amounts that the provider does not report
    /// count in full.
    pub(super) fn settle(self, usage: &Usage) {
        let is_complete = usage.input.is_some() && usage.output.is_some();
        let tokens = if is_complete {
            usage.total()
        } else {
            self.reserved.tokens
        };
        let counted = self
            .price
            .filter(|_| is_complete)
            .map(|price| price.cost_at_most(usage));
        let cost = usage
            .cost
            .or(counted)
            .or(self.reserved.cost)
            .unwrap_or_default();
        self.replace(tokens, cost);
    }

    /// Counts only the request, because it was rejected and costs nothing.
    pub(super) fn release(self) {
        self.replace(0, Money::ZERO);
    }

    /// Replaces the reserved amounts by these.
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
