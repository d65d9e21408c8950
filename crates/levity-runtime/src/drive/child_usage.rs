//! Counts the usage of earlier processes in child runs that they left in progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    CancelToken, EffectId, Journal, JournalError, Machine, RunId, RuntimeError, Spending,
};
use levity_driver::{DriverSettings, tally};

use super::{Driver, RunEnvironment};

/// The usage of earlier processes in each run that they left in progress, with all its children.
/// The topmost run counts it before anything starts.
pub(crate) type EarlierUsage = Option<Arc<BTreeMap<RunId, Spending>>>;

impl<M: Machine + 'static> Driver<M> {
    /// Counts the usage of earlier processes in all child runs that they left in progress.
    ///
    /// If each child were counted only when it is resumed, the first could spend what the others
    /// have already spent.
    pub(super) async fn count_below(&mut self) -> Result<(), RuntimeError> {
        let left: Vec<EffectId> = self.core.children().collect();
        if left.is_empty() || self.env.depth > 0 {
            return Ok(());
        }
        let mut all = BTreeMap::new();
        let spent = below(&*self.env.shared.journal, self.core.run(), left, &mut all).await?;
        self.env.meter.add(&spent);
        self.env.before = Some(Arc::new(all));
        Ok(())
    }
}

/// Reads the usage of earlier processes in the children `left` of a run.
fn below<'a>(
    journal: &'a dyn Journal,
    run: &'a RunId,
    left: Vec<EffectId>,
    all: &'a mut BTreeMap<RunId, Spending>,
) -> BoxFuture<'a, Result<Spending, JournalError>> {
    Box::pin(async move {
        let mut sum = Spending::default();
        for id in left {
            let child = run.child(id);
            let (mut spent, left) = tally(&journal.read(&child).await?);
            spent += below(journal, &child, left, all).await?;
            sum += spent;
            all.insert(child, spent);
        }
        Ok(sum)
    })
}

impl RunEnvironment {
    /// Returns the settings of the core.
    pub(super) fn settings(&self, has_line: bool) -> DriverSettings {
        let mut settings = DriverSettings::new(self.meter.clone());
        (settings.depth, settings.origin) = (self.depth, self.origin);
        settings.keeps = self.shared.journal.keeps();
        settings.is_reachable = has_line || self.park;
        settings.resumes = !has_line || self.depth > 0;
        settings.has_approver = self.approver().is_some();
        settings
    }

    /// Counts the usage of earlier processes in a resumed run.
    pub(super) fn count(&self, run: &RunId, records: u64, spent: &Spending) {
        match self.before.as_ref().and_then(|before| before.get(run)) {
            // The parents already count it in their usage.
            Some(spent) => self.meter.add_here(spent),
            None if records == 0 => {}
            // A run that is only resumed to be ended was left waiting by this process, which has
            // counted it.
            None if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) => {
                self.meter.add_here(spent);
            }
            None => self.meter.add(spent),
        }
    }
}
