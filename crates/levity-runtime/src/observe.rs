//! Observers: code that follows runs from their start to their end.
//!
//! An observer differs from a watcher in two ways. It sees the earlier events of a resumed run, and
//! the run waits for its last work. A session file needs both: it must continue where it was, and
//! it must be complete when the result is returned.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{Event, RunId};

use crate::events::Watcher;

/// Creates an observer for each run, such as a session file, a metric or a page.
///
/// Pass it to one run with [`Run::observe`](crate::Run::observe), or to all runs of a team with
/// `TeamBuilder::observe`. It creates an [`Observer`] for each run. A closure is enough:
///
/// ```
/// # use levity_core::{EventKind, RunId};
/// use levity_runtime::{Observe, Observer};
///
/// fn names(observe: impl Observe) {}
/// names(|run: &RunId| {
///     let run = run.clone();
///     Observer::new(move |event| {
///         if let EventKind::RunEnded(ending) = &event.kind {
///             println!("{run}: {}", ending.status);
///         }
///     })
/// });
/// ```
///
/// # Contract
/// - `observe` is called once for each run of this process, before the run starts. A resumed run
///   gets a new observer.
/// - The watcher must not block: it runs on the task that drives the run.
/// - An observer cannot change or stop a run. Use a guard or a control for that.
pub trait Observe: Send + Sync {
    /// Returns the observer of this run, before the run starts.
    fn observe(&self, run: &RunId) -> Observer;
}

impl<F: Fn(&RunId) -> Observer + Send + Sync> Observe for F {
    fn observe(&self, run: &RunId) -> Observer {
        self(run)
    }
}

/// An observer of one run.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use levity_runtime::Observer;
///
/// let lines = Arc::new(Mutex::new(Vec::new()));
/// let (seen, all) = (lines.clone(), lines.clone());
/// let observer = Observer::new(move |event| seen.lock().unwrap().push(event.kind.name()))
///     .on_earlier_events(|events| println!("{} events before", events.len()))
///     .after(async move { println!("{} events", all.lock().unwrap().len()) });
/// # drop(observer);
/// ```
pub struct Observer {
    watcher: Watcher,
    earlier: Option<Box<Earlier>>,
    after: Option<BoxFuture<'static, ()>>,
}

pub(crate) type Earlier = dyn FnOnce(&[Event]) + Send;

impl Observer {
    /// Calls `watcher` with each event of the run and its child runs, in order; it must not block.
    pub fn new(watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self {
            watcher: Arc::new(watcher),
            earlier: None,
            after: None,
        }
    }

    /// Calls `take` before a resumed run or a fork starts, with the events that the run starts
    /// from. They are not emitted again.
    #[must_use]
    pub fn on_earlier_events(mut self, take: impl FnOnce(&[Event]) + Send + 'static) -> Self {
        self.earlier = Some(Box::new(take));
        self
    }

    /// Waits for `work` after the run has ended, before its result is returned.
    #[must_use]
    pub fn after(mut self, work: impl Future<Output = ()> + Send + 'static) -> Self {
        self.after = Some(Box::pin(work));
        self
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// All observers of one run.
///
/// Work at the end is done one after the other, in the order in which the observers were added.
#[derive(Default)]
pub(crate) struct Observers {
    watchers: Vec<Watcher>,
    /// The observers that need the earlier events.
    pub(crate) earlier: Vec<Box<Earlier>>,
    after: Vec<BoxFuture<'static, ()>>,
}

impl Observers {
    pub(crate) fn add(&mut self, observer: Observer) {
        self.watchers.push(observer.watcher);
        self.earlier.extend(observer.earlier);
        self.after.extend(observer.after);
    }

    /// Returns one watcher for all of them, and for the caller's own, which is called last.
    pub(crate) fn watcher(&mut self, own: Option<Watcher>) -> Option<Watcher> {
        let mut all = std::mem::take(&mut self.watchers);
        all.extend(own);
        match all.len() {
            0 | 1 => all.pop(),
            _ => Some(Arc::new(move |event: &Event| {
                all.iter().for_each(|watcher| watcher(event));
            })),
        }
    }

    /// Returns the work that remains after the run.
    pub(crate) fn after(self) -> Option<BoxFuture<'static, ()>> {
        let all = self.after;
        (!all.is_empty()).then(|| -> BoxFuture<'static, ()> {
            Box::pin(async move {
                for work in all {
                    work.await;
                }
            })
        })
    }
}
