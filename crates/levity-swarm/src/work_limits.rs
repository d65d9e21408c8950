//! Limits for a piece of work, and the action after a failure; shared by all patterns.
//!
//! Tokens and money are divided by the number of workers plus one; the extra share is for the
//! answer. Calls are not divided, because the run counts them itself and stops at its limit.

use std::collections::BTreeSet;
use std::sync::Arc;

use levity_core::{ConversationId, Limits, Money, Stats, Usage};
use levity_graph::{Next, Remedy, after_failure};
use serde::{Deserialize, Serialize};

use crate::notice::FailureAction;
use crate::report::WorkerReport;
use crate::shared_state::{FinishedWork, SharedState, WorkError, WorkErrorKind};
use crate::worker::{Card, WorkerMemory};

/// Returns the share of one of `count` workers, which leaves something for the answer. A resource
/// without a limit for the run has no limit here.
pub(crate) fn share(shared: &SharedState, count: usize) -> Limits {
    let whole = &shared.start.limits;
    let parts = u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1);
    let mut share = crate::executor::unlimited();
    share.tokens = whole
        .tokens
        .map(|tokens| tokens.saturating_sub(shared.usage.total()) / parts);
    share.money = whole.money.map(|money| {
        let spent = shared.usage.cost.unwrap_or_default();
        Money::from_nanos(money.saturating_sub(spent).nanos() / parts)
    });
    share.assumed_price = whole.assumed_price;
    share
}

/// The usage of one worker for a task, over all its attempts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TaskUsage {
    usage: Usage,
    stats: Stats,
}

impl TaskUsage {
    /// Returns the usage of a report.
    pub(crate) fn of(report: &WorkerReport) -> Self {
        Self {
            usage: report.usage,
            stats: report.stats,
        }
    }

    pub(crate) fn add(&mut self, finished: &FinishedWork) {
        self.usage += finished.usage;
        self.stats += finished.stats;
    }
}

/// Returns the limits of a worker for a task. They are its own limits minus its usage, within the
/// share minus the usage of all workers on the task.
pub(crate) fn task_limits(
    card: &Card,
    share: &Limits,
    own: &TaskUsage,
    report: &WorkerReport,
) -> Limits {
    worker_limits(card, &subtract_usage(*share, &TaskUsage::of(report)), own)
}

/// Returns the worker's own limits minus its usage, within these limits.
pub(crate) fn worker_limits(card: &Card, within: &Limits, own: &TaskUsage) -> Limits {
    let mut limits = card
        .limits
        .map_or(*within, |limits| subtract_usage(limits, own).within(within));
    limits.wall_time = [limits.wall_time, card.timeout].into_iter().flatten().min();
    limits
}

fn subtract_usage(mut limits: Limits, spent: &TaskUsage) -> Limits {
    let TaskUsage { usage, stats } = spent;
    limits.tokens = limits
        .tokens
        .map(|tokens| tokens.saturating_sub(usage.total()));
    limits.money = limits
        .money
        .map(|money| money.saturating_sub(usage.cost.unwrap_or_default()));
    limits.model_calls = limits
        .model_calls
        .map(|calls| calls.saturating_sub(stats.model_calls));
    limits.tool_calls = limits
        .tool_calls
        .map(|calls| calls.saturating_sub(stats.tool_calls));
    limits
}

/// Returns the conversation that a worker remembers, if it has one.
pub(crate) fn conversation(worker: &Arc<str>, shared: &SharedState) -> Option<ConversationId> {
    match &shared.rules.cards.get(worker)?.scope {
        WorkerMemory::Named(id) => Some(id.clone()),
        WorkerMemory::Conversation => {
            let of_run = shared.start.conversation.as_ref()?;
            Some(ConversationId::new(format!("{of_run}/{worker}")))
        }
        _ => None,
    }
}

/// Returns the conversations that a task may use: the worker's, and those of all its possible
/// fallbacks. The actual worker is known only at the start of the task, and the waiting order must
/// not depend on it.
pub(crate) fn conversations(worker: &Arc<str>, shared: &SharedState) -> BTreeSet<ConversationId> {
    let (mut conversations_used, mut seen, mut next) =
        (BTreeSet::new(), BTreeSet::new(), Some(worker));
    while let Some(name) = next.filter(|name| seen.insert(*name)) {
        conversations_used.extend(conversation(name, shared));
        next = shared
            .rules
            .cards
            .get(name)
            .and_then(|card| card.stand_in.as_ref());
    }
    conversations_used
}

/// Returns the action after a failure: the same worker again, or its fallback if that has not had
/// the task before.
pub(crate) fn failure_action(
    worker: &Arc<str>,
    tried: u32,
    before: &[Arc<str>],
    failure: &WorkError,
    shared: &SharedState,
) -> FailureAction {
    let Some(card) = shared.rules.cards.get(worker) else {
        return FailureAction::GiveUp;
    };
    let remedy = match failure.kind {
        _ if shared.near_limit.is_some() => Remedy::Nothing,
        WorkErrorKind::Stopped => Remedy::Nothing,
        WorkErrorKind::Limit => Remedy::OtherWorker,
        WorkErrorKind::Failed => Remedy::Retry,
    };
    let stand_in = card
        .stand_in
        .as_ref()
        .filter(|other| *other != worker)
        .cloned();
    match after_failure(remedy, tried, card.retries, stand_in, before) {
        Next::Retry => FailureAction::Retry,
        Next::Fallback(worker) => FailureAction::Fallback { worker },
        Next::GiveUp => FailureAction::GiveUp,
    }
}
