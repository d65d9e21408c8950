//! The spending of earlier processes in runs that they left under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    CancelToken, EffectId, Journal, JournalError, Machine, RunId, RuntimeError, Spending,
};
use levity_driver::{DriverSettings, tally};

use super::{Around, Driver};

/// The spending of earlier processes in each run that they left under way, with all below it. The
/// topmost run has counted it before anything begins.
pub(crate) type Before = Option<Arc<BTreeMap<RunId, Spending>>>;

impl<M: Machine + 'static> Driver<M> {
    /// Counts what earlier processes have used in all runs below that they left under way. If each
    /// were only counted when it is driven on, the first could spend what the others have spent
    /// already.
    pub(super) async fn count_below(&mut self) -> Result<(), RuntimeError> {
        let left: Vec<EffectId> = self.core.children().collect();
        if left.is_empty() || self.around.depth > 0 {
            return Ok(());
        }
        let mut all = BTreeMap::new();
        let spent = below(
            &*self.around.shared.journal,
            self.core.run(),
            left,
            &mut all,
        )
        .await?;
        self.around.meter.add(&spent);
        self.around.before = Some(Arc::new(all));
        Ok(())
    }
}

/// Reads what earlier processes have used in the children `left` of a run.
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

impl Around {
    /// Settings for the core.
    pub(super) fn settings(&self, has_line: bool) -> DriverSettings {
        let mut settings = DriverSettings::new(self.meter.clone());
        (settings.depth, settings.origin) = (self.depth, self.origin);
        settings.keeps = self.shared.journal.keeps();
        settings.is_reachable = has_line || self.park;
        settings.resumes = !has_line || self.depth > 0;
        settings.has_approver = self.approver().is_some();
        settings
    }

    /// Counts what earlier processes have used in a run that is driven on.
    pub(super) fn count(&self, run: &RunId, records: u64, spent: &Spending) {
        match self.before.as_ref().and_then(|before| before.get(run)) {
            // The runs above have it in what they used.
            Some(spent) => self.meter.add_here(spent),
            None if records == 0 => {}
            // One that is only driven on to be ended was left waiting by this process, which has
            // counted it.
            None if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) => {
                self.meter.add_here(spent);
            }
            None => self.meter.add(spent),
        }
    }
}
