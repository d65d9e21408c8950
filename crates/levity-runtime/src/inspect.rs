//! Inspects runs that no process drives.
//!
//! The functions only read. They rebuild the machine with the code of this program, so they fail if
//! the program no longer knows the kind of machine or would decide differently.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::iter::Peekable;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use levity_core::{
    ArgumentProblem, Ask, ChildRun, Effect, EffectId, Event, EventKind, Executor, Journal, Machine,
    Record, RunId, RuntimeError, Timestamp,
};

use serde_json::Value;

use crate::drive::orders::edit_problems;
use crate::runnable::Runnable;
use levity_driver::{Replay, cut, opened, replay};

/// Replays a run without performing any effect, and returns its events, identical to the byte.
///
/// # Errors
/// Returns an error if there is no such run, or it is not of this kind.
///
/// ```
/// use levity_core::{RunId, RuntimeError};
/// use levity_runtime::{Runnable, replay_run};
///
/// /// Returns the names of everything that happened in a stored run.
/// async fn names<W: Runnable>(what: &W, run: &RunId) -> Result<Vec<&'static str>, RuntimeError> {
///     let replay = replay_run(what, run).await?;
///     Ok(replay.events.iter().map(|event| event.kind.name()).collect())
/// }
/// ```
pub async fn replay_run<W: Runnable>(
    what: &W,
    run: &RunId,
) -> Result<Replay<W::Machine>, RuntimeError> {
    let records = read(&**what.runtime().journal(), run).await?;
    replay(run, &records, |kind, state| what.inspect(kind, state))
}

/// Replays a run and all runs below it, and returns their events in the order in which they
/// happened.
///
/// The events of a child run come after its start in the parent run and before its end; otherwise
/// the order follows from their times and run ids. A child run that cannot be replayed, because its
/// agent has changed for example, has no events of its own.
///
/// # Errors
/// Returns an error if there is no such run, or it is not of this kind.
///
/// ```
/// use levity_core::{RunId, RuntimeError};
/// use levity_runtime::{Runnable, replay_with_children};
///
/// /// Counts the tool calls of a stored run and of all agents that it used.
/// async fn calls<W: Runnable>(what: &W, run: &RunId) -> Result<usize, RuntimeError> {
///     let events = replay_with_children(what, run).await?;
///     Ok(events.iter().filter(|event| event.kind.name() == "tool_started").count())
/// }
/// ```
pub async fn replay_with_children<W: Runnable>(
    what: &W,
    run: &RunId,
) -> Result<Vec<Event>, RuntimeError> {
    let replayed = replay_run(what, run).await?;
    let journal = what.runtime().journal().clone();
    let mut runs = BTreeMap::from([(run.clone(), replayed.events)]);
    let below = events_below(run.clone(), replayed.children, what.executor(), journal);
    runs.extend(below.await);
    Ok(merge(run, runs))
}

/// Returns the events of each run below a run.
fn events_below(
    run: RunId,
    children: Vec<(EffectId, ChildRun)>,
    executor: Arc<dyn Executor>,
    journal: Arc<dyn Journal>,
) -> BoxFuture<'static, BTreeMap<RunId, Vec<Event>>> {
    Box::pin(async move {
        let mut runs = BTreeMap::new();
        for (effect, child) in children {
            let below = run.child(effect);
            let Ok(records) = read(&*journal, &below).await else {
                continue;
            };
            let Ok((_, state)) = opened(&below, &records[0]) else {
                continue;
            };
            let Ok(made) = executor.child(&child, Some(state)).await else {
                continue;
            };
            let (machine, executor) = (made.machine, made.executor);
            let Ok(replayed) = replay(&below, &records, |_, _| Ok(machine)) else {
                continue;
            };
            runs.insert(below.clone(), replayed.events);
            let inner = events_below(below, replayed.children, executor, journal.clone());
            runs.extend(inner.await);
        }
        runs
    })
}

/// Merges the events of a run and the runs below it.
fn merge(root: &RunId, runs: BTreeMap<RunId, Vec<Event>>) -> Vec<Event> {
    let mut merge = Merge::default();
    let count = runs.values().map(Vec::len).sum();
    let waiting = runs.into_iter();
    merge.runs = waiting
        .map(|(run, events)| (run, events.into_iter().peekable()))
        .collect();
    merge.start(root.clone());
    let mut merged = Vec::with_capacity(count);
    while let Some(event) = merge.next() {
        merged.push(event);
    }
    merged
}

/// The events that are not merged yet.
#[derive(Default)]
struct Merge {
    runs: BTreeMap<RunId, Peekable<std::vec::IntoIter<Event>>>,
    /// The runs whose next event may follow, by the time of that event.
    ready: BinaryHeap<Reverse<(Timestamp, RunId)>>,
    started: BTreeSet<RunId>,
    /// The runs that wait for the end of a child run.
    waiting: BTreeMap<RunId, RunId>,
}

impl Merge {
    fn start(&mut self, run: RunId) {
        if self.started.insert(run.clone()) {
            self.offer(run);
        }
    }

    /// Makes the next event of a run available, unless it reports the end of a child run that has
    /// further events.
    fn offer(&mut self, run: RunId) {
        let Some(event) = self.runs.get_mut(&run).and_then(Peekable::peek) else {
            if let Some(parent) = self.waiting.remove(&run) {
                self.offer(parent);
            }
            return;
        };
        let at = event.at;
        if let EventKind::ChildFinished { effect, .. } = &event.kind {
            let child = run.child(*effect);
            let goes_on = |events: &mut Peekable<_>| events.peek().is_some();
            if self.started.contains(&child) && self.runs.get_mut(&child).is_some_and(goes_on) {
                self.waiting.insert(child, run);
                return;
            }
        }
        self.ready.push(Reverse((at, run)));
    }

    fn next(&mut self) -> Option<Event> {
        let Reverse((_, run)) = self.ready.pop()?;
        let event = self.runs.get_mut(&run)?.next()?;
        if let EventKind::ChildStarted { child, .. } = &event.kind {
            self.start(child.clone());
        }
        self.offer(run);
        Some(event)
    }
}

/// Returns the unanswered questions of a run and its child runs, while no process drives it.
///
/// # Errors
/// Returns an error if there is no such run, or it is not of this kind.
///
/// ```
/// use levity_core::{RunId, RuntimeError};
/// use levity_runtime::{Runnable, pending_asks};
///
/// /// Lists the calls that wait for approval in a parked run.
/// async fn calls<W: Runnable>(what: &W, run: &RunId) -> Result<Vec<String>, RuntimeError> {
///     let asks = pending_asks(what, run).await?;
///     Ok(asks.into_iter().map(|ask| ask.call.name).collect())
/// }
/// ```
pub async fn pending_asks<W: Runnable>(what: &W, run: &RunId) -> Result<Vec<Ask>, RuntimeError> {
    let asks = asks_with_executors(what, run).await?;
    Ok(asks.into_iter().map(|(ask, _)| ask).collect())
}

/// Returns the problems of other arguments for the call of an unanswered question, while no process
/// drives the run; none if the call may be made with them, or if the question is not open.
///
/// A [`Control`](crate::Control) checks the arguments itself. Use this function before you send a
/// decision with [`Runtime::send_request`](crate::Runtime::send_request).
///
/// # Errors
/// Returns an error if there is no such run, or it is not of this kind.
///
/// ```
/// use levity_core::{Ask, RunId, RuntimeError};
/// use levity_runtime::{Runnable, check_edit};
/// use serde_json::json;
///
/// /// Returns `true` if a parked run accepts a smaller amount.
/// async fn accepts<W: Runnable>(what: &W, run: &RunId, ask: &Ask) -> Result<bool, RuntimeError> {
///     Ok(check_edit(what, run, ask, &json!({"amount": 10})).await?.is_empty())
/// }
/// ```
pub async fn check_edit<W: Runnable>(
    what: &W,
    run: &RunId,
    ask: &Ask,
    args: &Value,
) -> Result<Vec<ArgumentProblem>, RuntimeError> {
    let asks = asks_with_executors(what, run).await?;
    let is_meant = |open: &Ask| open.run == ask.run && open.effect == ask.effect;
    let found = asks.into_iter().find(|(open, _)| is_meant(open));
    Ok(found.map_or_else(Vec::new, |(open, executor)| {
        edit_problems(&*executor, open.call, args)
    }))
}

async fn asks_with_executors<W: Runnable>(
    what: &W,
    run: &RunId,
) -> Result<Vec<AskWithExecutor>, RuntimeError> {
    let records = read_to_continue(&**what.runtime().journal(), run).await?;
    let folded = replay(run, &records, |kind, state| what.inspect(kind, state))?;
    let (is_over, under_way) = (folded.machine.ending().is_some(), folded.in_progress);
    asks_of(
        run.clone(),
        is_over,
        under_way,
        what.executor(),
        what.runtime().journal().clone(),
    )
    .await
}

/// A question, with the executor of the run that asks.
type AskWithExecutor = (Ask, Arc<dyn Executor>);

/// Returns the events that a fork begins with, as its own events; `None` if the fork already
/// exists.
pub(crate) async fn fork_history<W: Runnable>(
    what: &W,
    run: &RunId,
    from: &RunId,
    after: Option<u64>,
) -> Option<Vec<Event>> {
    let (journal, now) = (what.runtime().journal(), what.runtime().world().now());
    if !journal
        .read(run)
        .await
        .is_ok_and(|records| records.is_empty())
    {
        return None;
    }
    // Errors of the old journal are reported when the run starts.
    let records =
        cut(from, journal.read(from).await.unwrap_or_default(), after).unwrap_or_default();
    let replayed = replay(from, &records, |kind, state| what.restore(kind, state));
    let events = replayed.map(|replay| replay.events).unwrap_or_default();
    let ours = |event: Event| {
        let begins = matches!(event.kind, EventKind::RunStarted { .. });
        Event::new(
            run.clone(),
            event.seq,
            if begins { now } else { event.at },
            event.kind,
        )
    };
    Some(events.into_iter().map(ours).collect())
}

/// Children are visited recursively through the journal, since a waiting child has its question in
/// its own run.
fn asks_of(
    run: RunId,
    is_over: bool,
    under_way: Vec<(EffectId, Effect)>,
    executor: Arc<dyn Executor>,
    journal: Arc<dyn Journal>,
) -> BoxFuture<'static, Result<Vec<AskWithExecutor>, RuntimeError>> {
    Box::pin(async move {
        let mut asks = Vec::new();
        // A run that was cancelled has only its end to write.
        let under_way = if is_over { Vec::new() } else { under_way };
        for (id, effect) in under_way {
            match effect {
                Effect::Ask(ask) => asks.push((ask, executor.clone())),
                Effect::Child(child) => {
                    let below = run.child(id);
                    let records = match read_to_continue(&*journal, &below).await {
                        // The process ended before the child could start.
                        Err(RuntimeError::NotFound(_)) => continue,
                        records => records?,
                    };
                    let (_, state) = opened(&below, &records[0])?;
                    let reason = |error: levity_core::ToolError| error.explain();
                    let made = executor.child(&child, Some(state)).await.map_err(reason);
                    let made = made.map_err(|reason| RuntimeError::Restore {
                        run: below.clone(),
                        reason,
                    })?;
                    let (machine, executor) = (made.machine, made.executor);
                    let folded = replay(&below, &records, |_, _| Ok(machine))?;
                    let is_over = folded.machine.ending().is_some();
                    asks.extend(
                        asks_of(
                            below,
                            is_over,
                            folded.in_progress,
                            executor,
                            journal.clone(),
                        )
                        .await?,
                    );
                }
                _ => {}
            }
        }
        Ok(asks)
    })
}

async fn read(journal: &dyn Journal, run: &RunId) -> Result<Vec<Record>, RuntimeError> {
    existing(run, journal.read(run).await?)
}

async fn read_to_continue(journal: &dyn Journal, run: &RunId) -> Result<Vec<Record>, RuntimeError> {
    existing(run, journal.read_to_continue(run).await?)
}

fn existing(run: &RunId, records: Vec<Record>) -> Result<Vec<Record>, RuntimeError> {
    if records.is_empty() {
        Err(RuntimeError::NotFound(run.clone()))
    } else {
        Ok(records)
    }
}
