use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{EffectKind, Limit, Limits, Spent, Usage};

/// Counts what a run and its children use, against its limits and those of all runs above it.
#[derive(Debug)]
pub(crate) struct Meter {
    limits: Limits,
    used: Mutex<Used>,
    parent: Option<Arc<Meter>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    model_calls: u64,
    tool_calls: u64,
    tokens: u64,
    /// What the last model call took: the next one takes about as much.
    last: u64,
}

impl Meter {
    pub(crate) fn new(limits: Limits, parent: Option<Arc<Self>>) -> Self {
        Self { limits, used: Mutex::default(), parent }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How deep runs may nest here: as deep as the strictest limit above allows.
    pub(crate) fn depth(&self) -> usize {
        let above = self.parent.as_ref().map_or(usize::MAX, |parent| parent.depth());
        self.limits.depth.min(above)
    }

    /// What has been used so far, here and below.
    pub(crate) fn spent(&self) -> Spent {
        let used = self.used();
        Spent::new(used.model_calls, used.tool_calls, used.tokens)
    }

    /// Counts what a child has used that ended in an earlier process, here and above.
    pub(crate) fn add(&self, spent: &Spent) {
        let mut used = self.used();
        used.model_calls = used.model_calls.saturating_add(spent.model_calls);
        used.tool_calls = used.tool_calls.saturating_add(spent.tool_calls);
        used.tokens = used.tokens.saturating_add(spent.tokens);
        drop(used);
        if let Some(parent) = &self.parent {
            parent.add(spent);
        }
    }

    /// Counts an effect that began in an earlier process, whatever the limits say.
    pub(crate) fn recount(&self, kind: EffectKind) {
        match kind {
            EffectKind::Model => self.add(&Spent::new(1, 0, 0)),
            EffectKind::Tool => self.add(&Spent::new(0, 1, 0)),
            _ => {}
        }
    }

    /// Counts an effect that is about to begin; nothing is counted when a limit forbids it.
    pub(crate) fn admit(&self, kind: EffectKind) -> Result<(), Limit> {
        self.take(kind)?;
        if let Some(Err(limit)) = self.parent.as_ref().map(|parent| parent.admit(kind)) {
            self.give_back(kind);
            return Err(limit);
        }
        Ok(())
    }

    fn take(&self, kind: EffectKind) -> Result<(), Limit> {
        let mut used = self.used();
        let over = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used >= limit);
        match kind {
            EffectKind::Model if over(used.model_calls, self.limits.model_calls) => Err(Limit::ModelCalls),
            EffectKind::Model if over(used.tokens, self.limits.tokens) => Err(Limit::Tokens),
            EffectKind::Tool if over(used.tool_calls, self.limits.tool_calls) => Err(Limit::ToolCalls),
            EffectKind::Model => {
                used.model_calls += 1;
                Ok(())
            }
            EffectKind::Tool => {
                used.tool_calls += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn give_back(&self, kind: EffectKind) {
        let mut used = self.used();
        match kind {
            EffectKind::Model => used.model_calls -= 1,
            EffectKind::Tool => used.tool_calls -= 1,
            _ => {}
        }
    }

    /// Counts the tokens of a model call, here and above.
    pub(crate) fn settle(&self, usage: &Usage) {
        let mut used = self.used();
        used.last = usage.total();
        used.tokens = used.tokens.saturating_add(usage.total());
        drop(used);
        if let Some(parent) = &self.parent {
            parent.settle(usage);
        }
    }

    /// The limit that leaves room for one more model call at most, here or above.
    pub(crate) fn near(&self) -> Option<Limit> {
        let used = *self.used();
        let left = |used: u64, limit: Option<u64>| limit.map(|limit| limit.saturating_sub(used));
        if left(used.model_calls, self.limits.model_calls).is_some_and(|left| left <= 1) {
            return Some(Limit::ModelCalls);
        }
        if left(used.tool_calls, self.limits.tool_calls) == Some(0) {
            return Some(Limit::ToolCalls);
        }
        // A next call as large as the last one, and then another, would be too much.
        if left(used.tokens, self.limits.tokens).is_some_and(|left| left < used.last.saturating_mul(2)) {
            return Some(Limit::Tokens);
        }
        self.parent.as_ref().and_then(|parent| parent.near())
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
