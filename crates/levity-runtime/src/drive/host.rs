//! Handles answers of the executor about effects before they start, at once or later.
//!
//! An executor usually knows the class and the permit of an effect without I/O. A policy that reads
//! files answers later; the run then waits for the answer beside everything else.

use std::future::pending;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use levity_core::{
    Effect, EffectId, Eventual, Executor, Machine, PrepareCx, Prepared, RuntimeError, Timestamp,
    World,
};
use levity_driver::{Action, DriverHost};

use super::{BATCH, Driver, SLICE};

/// Pending answers of the executor. Most executors answer at once, so a run reserves no space for
/// this.
#[derive(Default)]
pub(super) struct PendingAnswers(Option<Box<FuturesUnordered<BoxFuture<'static, Answer>>>>);

/// An answer of the executor about an effect.
type Answer = (EffectId, Prepared);

impl PendingAnswers {
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Returns the next answer. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Answer {
        match &mut self.0 {
            Some(waiting) => match waiting.next().await {
                Some(answer) => answer,
                None => pending().await,
            },
            None => pending().await,
        }
    }
}

/// Asks the executor on behalf of the core; pending answers are awaited beside all other input.
///
/// It stops asking once the slice is over, so that a thousand requested calls do not block the
/// task.
struct Host<'a> {
    executor: &'a dyn Executor,
    cx: PrepareCx,
    preparing: &'a mut PendingAnswers,
    late: SliceTimer,
}

impl DriverHost for Host<'_> {
    fn prepare(&mut self, id: EffectId, effect: &Effect) -> Option<Prepared> {
        match self.executor.prepare(effect, &self.cx) {
            Eventual::Known(prepared) => Some(prepared),
            Eventual::Later(later) => {
                let answer = later.map(move |prepared| (id, prepared)).boxed();
                self.preparing.0.get_or_insert_default().push(answer);
                None
            }
        }
    }

    fn is_late(&mut self) -> bool {
        self.late.is_late()
    }
}

/// Detects the end of a slice, measured from the first question.
pub(super) struct SliceTimer {
    world: Arc<dyn World>,
    since: Option<Timestamp>,
}

impl SliceTimer {
    pub(super) fn is_late(&mut self) -> bool {
        let now = self.world.now();
        now.since(*self.since.get_or_insert(now)) >= SLICE
    }
}

impl<M: Machine + 'static> Driver<M> {
    pub(super) fn slice_timer(&self) -> SliceTimer {
        SliceTimer {
            world: self.env.shared.world.clone(),
            since: None,
        }
    }

    fn host(&mut self) -> (&mut levity_driver::RunDriver<M>, Host<'_>) {
        let (late, cx) = (
            self.slice_timer(),
            PrepareCx::new().with_cost(self.env.meter.is_budget()),
        );
        let (executor, preparing) = (&*self.env.executor, &mut self.preparing);
        (
            &mut self.core,
            Host {
                executor,
                cx,
                preparing,
                late,
            },
        )
    }

    /// Starts the effects that may start, until there are no more or the slice is over.
    pub(super) fn advance(&mut self) -> Result<Vec<Action>, RuntimeError> {
        let (now, seq) = (self.now(), self.core.seq());
        let (core, mut host) = self.host();
        let actions = core.advance(now, BATCH, &mut host)?;
        self.add_to_slice(seq);
        Ok(actions)
    }

    /// Repeats the questions of an earlier process.
    pub(super) async fn ask_again(&mut self) -> Result<(), RuntimeError> {
        let now = self.now();
        let (core, mut host) = self.host();
        let actions = core.ask_again(now, &mut host)?;
        self.perform(actions).await
    }

    /// Records an answer of the executor, and all others that have arrived, as many as fit into a
    /// slice.
    pub(super) fn take_prepared(&mut self, (id, prepared): Answer) {
        self.core.prepared(id, prepared);
        for _ in 1..BATCH {
            let Some((id, prepared)) = self.preparing.next().now_or_never() else {
                break;
            };
            self.core.prepared(id, prepared);
        }
    }
}
