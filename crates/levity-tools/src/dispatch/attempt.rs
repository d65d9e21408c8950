//! One attempt at a call, and the loop of attempts.
//!
//! An attempt holds one of the dispatcher's slots. A blocking tool runs on a thread of its own and
//! may continue there after its timeout, since a thread cannot be stopped. For a compensable tool,
//! the undo then waits for that thread: otherwise the call could take effect after it was undone.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use futures_util::{FutureExt as _, TryFutureExt as _};
use levity_core::{Deadline, Tool, ToolCall, ToolCx, ToolError, ToolErrorKind, ToolOutput, World};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::key_locks::{KEY_LOCKS, KeyLocks};
use super::{CallCx, Dispatcher};
use crate::entry::Entry;
use crate::text::Truncated;

type Outcome = Result<ToolOutput, ToolError>;

/// The action of an attempt.
#[derive(Clone, Copy, PartialEq)]
enum Job {
    Call,
    /// Undoes the call; its output is empty.
    Undo,
}

impl Dispatcher {
    /// Calls the tool, and retries as long as that is safe and may help.
    pub(super) async fn run(
        &self,
        entry: &Entry,
        call: &ToolCall,
        args: &Value,
        cx: &CallCx,
    ) -> Outcome {
        let mut attempt = 1;
        loop {
            match self
                .attempt(entry, Job::Call, args.clone(), tool_cx(call, cx, attempt))
                .await
            {
                Err(error) if self.may_retry(entry, &error, attempt) => {
                    if entry.spec.hints.class.needs_undo() {
                        // Boxed, since few calls need it.
                        let undone = self.attempt(
                            entry,
                            Job::Undo,
                            args.clone(),
                            tool_cx(call, cx, attempt),
                        );
                        let undone = Box::pin(undone);
                        undone
                            .await
                            .map_err(|undo| not_undone(&with_attempts(error, attempt), &undo))?;
                    }
                    let pause = self.0.backoff.pause(attempt, self.0.world.random());
                    self.0.world.sleep(pause).await;
                    attempt += 1;
                }
                Err(error) => return Err(with_attempts(maybe_done(entry, error), attempt)),
                output => return output,
            }
        }
    }

    /// Undoes the remains of this call from an earlier process, so that it can be made again.
    pub(super) async fn clear(
        &self,
        entry: &Entry,
        call: &ToolCall,
        args: &Value,
        cx: &CallCx,
    ) -> Result<(), String> {
        let class = entry.spec.hints.class;
        if class.may_repeat() {
            return Ok(());
        }
        if !class.needs_undo() {
            return Err("the call had started before, and must not be made twice".to_owned());
        }
        let undone = self
            .attempt(entry, Job::Undo, args.clone(), tool_cx(call, cx, 1))
            .await;
        let failed = |error: ToolError| {
            format!(
                "the call had started before, and undoing it failed: {}",
                error.explain()
            )
        };
        undone.map(drop).map_err(failed)
    }

    fn may_retry(&self, entry: &Entry, error: &ToolError, attempt: u32) -> bool {
        let class = entry.spec.hints.class;
        attempt <= self.0.retries
            && (class.may_repeat() || class.needs_undo())
            && (error.is_retryable() || error.kind() == ToolErrorKind::Timeout)
    }

    /// The wait for a slot is not part of the timeout.
    async fn attempt(&self, entry: &Entry, job: Job, args: Value, mut cx: ToolCx) -> Outcome {
        // The semaphore is never closed, so acquiring a permit does not fail.
        let _slot = self.0.slots.acquire().await;
        let world = &*self.0.world;
        let hints = &entry.spec.hints;
        let limit = hints.timeout.unwrap_or(self.0.timeout);
        cx.started = world.now();
        cx.deadline = Deadline::new(cx.started, limit);
        // However this ends, even by a drop, the tool is notified of the cancellation.
        let _cancel = cx.cancel.clone().into_guard();
        let outcome = if hints.blocking {
            let turns = hints.class.needs_undo().then_some(&*KEY_LOCKS);
            within(
                world,
                limit,
                Box::pin(on_thread(entry.tool.clone(), job, args, cx, turns)),
            )
            .await
        } else {
            within(
                world,
                limit,
                call_catching_panic(&*entry.tool, job, args, &cx),
            )
            .await
        };
        outcome.unwrap_or_else(|| Err(timed_out(limit)))
    }
}

fn tool_cx(call: &ToolCall, cx: &CallCx, attempt: u32) -> ToolCx {
    let mut tool_cx = ToolCx::new(cx.run.clone(), call.id.clone(), cx.key.clone());
    tool_cx.attempt = attempt;
    tool_cx.resumed = cx.is_repeat;
    tool_cx.progress = cx.progress.clone();
    tool_cx.values = cx.values.clone();
    tool_cx
}

/// Returns the future's output, unless it takes longer than `limit`. A future that is ready at once
/// never uses the clock.
async fn within<T>(world: &dyn World, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut sleep = None;
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => sleep
            .get_or_insert_with(|| world.sleep(limit))
            .as_mut()
            .poll(cx)
            .map(|()| None),
    })
    .await
}

/// Calls the tool, and turns a panic into a failure.
async fn call_catching_panic(tool: &dyn Tool, job: Job, args: Value, cx: &ToolCx) -> Outcome {
    // The call is made within the block, as it may panic before it returns a future.
    let call = async {
        let mut work = CallFuture(Some(match job {
            Job::Call => tool.call(args, cx),
            Job::Undo => tool
                .undo(args, cx)
                .map_ok(|()| ToolOutput::default())
                .boxed(),
        }));
        poll_fn(|cx| work.poll(cx)).await
    };
    let outcome = AssertUnwindSafe(call).catch_unwind().await;
    outcome.unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

/// A call in progress. It is dropped when it times out, and its destructors may panic as well.
struct CallFuture<'a>(Option<BoxFuture<'a, Outcome>>);

impl CallFuture<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        self.0
            .as_mut()
            .map_or(Poll::Pending, |work| work.as_mut().poll(cx))
    }
}

impl Drop for CallFuture<'_> {
    fn drop(&mut self) {
        let work = self.0.take();
        let _ = catch_unwind(AssertUnwindSafe(move || drop(work)));
    }
}

/// Calls the tool on a thread where it may block; with `turns`, after other threads with the same
/// key.
async fn on_thread(
    tool: Arc<dyn Tool>,
    job: Job,
    args: Value,
    cx: ToolCx,
    turns: Option<&KeyLocks>,
) -> Outcome {
    let Ok(runtime) = Handle::try_current() else {
        return Err(ToolError::failed(
            "the tool needs a separate thread, but there is no tokio runtime",
        ));
    };
    let turn = match turns {
        Some(turns) => Some(turns.wait(&cx.key).await),
        None => None,
    };
    let inside = runtime.clone();
    let work = move || {
        let _turn = turn;
        inside.block_on(async {
            // Blocking code continues after a cancel; code that merely waits ends here.
            match select(
                pin!(call_catching_panic(&*tool, job, args, &cx)),
                pin!(cx.cancel.cancelled()),
            )
            .await
            {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => Err(stopped()),
            }
        })
    };
    // The thread does not inherit the call's span.
    #[cfg(feature = "tracing")]
    let work = {
        let span = tracing::Span::current();
        move || span.in_scope(work)
    };
    // It panics if the system has no thread left.
    let Ok(thread) = catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(work))) else {
        return Err(ToolError::transient(
            "the tool needs a separate thread, but the system has none left",
        ));
    };
    let mut thread = BlockingCall(thread);
    (&mut thread.0)
        .await
        .unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => Err(panicked(panic.as_ref())),
            Err(_) => Err(stopped()),
        })
}

/// Aborts the work on drop, if it still waits for a thread.
struct BlockingCall(JoinHandle<Outcome>);

impl Drop for BlockingCall {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn stopped() -> ToolError {
    ToolError::new(
        ToolErrorKind::Cancelled,
        "the tool was stopped before it finished",
    )
}

fn timed_out(limit: Duration) -> ToolError {
    ToolError::new(
        ToolErrorKind::Timeout,
        format!("the tool timed out after {limit:?}"),
    )
}

/// Returns the last error of a call that is not undone; one that timed out may still have taken
/// effect.
fn maybe_done(entry: &Entry, error: ToolError) -> ToolError {
    if error.kind() != ToolErrorKind::Timeout || entry.spec.hints.class.may_repeat() {
        return error;
    }
    ToolError::new(
        error.kind(),
        format!("{}; it may have taken effect nevertheless", error.explain()),
    )
}

/// Returns the error of a call that would have been repeated, had undoing it not failed.
fn not_undone(error: &ToolError, undo: &ToolError) -> ToolError {
    let (error_text, undo) = (error.explain(), undo.explain());
    let text = format!(
        "{error_text}; undoing the call failed as well, so it may have taken effect: {undo}"
    );
    ToolError::new(error.kind(), text)
}

fn panicked(panic: &(dyn Any + Send)) -> ToolError {
    let text = panic.downcast_ref::<&str>().copied();
    match text.or_else(|| panic.downcast_ref::<String>().map(|text| &**text)) {
        Some(text) => ToolError::failed(format!("the tool panicked: {}", Truncated(text, 512))),
        None => ToolError::failed("the tool panicked"),
    }
}

/// Returns the error with the number of attempts.
fn with_attempts(error: ToolError, attempts: u32) -> ToolError {
    if attempts == 1 {
        return error;
    }
    ToolError::new(
        error.kind(),
        format!("{} ({attempts} attempts were made)", error.explain()),
    )
}
