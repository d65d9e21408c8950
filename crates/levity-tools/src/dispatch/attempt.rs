use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, select};
use levity_core::{Deadline, Tool, ToolCall, ToolCx, ToolError, ToolErrorKind, ToolOutput, World};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{CallCx, Dispatcher};
use crate::entry::Entry;
use crate::text::Short;

type Outcome = Result<ToolOutput, ToolError>;

impl Dispatcher {
    /// Calls the tool, and again as long as that is safe and may help.
    pub(super) async fn run(&self, entry: &Entry, call: &ToolCall, args: &Value, cx: &CallCx) -> Outcome {
        let mut attempt = 1;
        loop {
            let mut cx = tool_cx(call, cx);
            cx.attempt = attempt;
            match self.attempt(entry, args.clone(), cx).await {
                Err(error) if self.may_retry(entry, &error, attempt) => {
                    let pause = self.0.backoff.pause(attempt, self.0.world.random());
                    self.0.world.sleep(pause).await;
                    attempt += 1;
                }
                Err(error) => return Err(counted(error, attempt)),
                output => return output,
            }
        }
    }

    fn may_retry(&self, entry: &Entry, error: &ToolError, attempt: u32) -> bool {
        attempt <= self.0.retries
            && entry.spec.hints.class.may_repeat()
            && (error.is_retryable() || error.kind() == ToolErrorKind::Timeout)
    }

    async fn attempt(&self, entry: &Entry, args: Value, mut cx: ToolCx) -> Outcome {
        // The semaphore is never closed, so waiting for it does not fail.
        let _slot = self.0.slots.acquire().await;
        let world = &*self.0.world;
        let limit = entry.spec.hints.timeout.unwrap_or(self.0.timeout);
        cx.deadline = Deadline::new(world.now(), limit);
        // However this ends, by a drop too, the tool hears that nobody waits for it any more.
        let _cancel = cx.cancel.clone().into_guard();
        let outcome = if entry.spec.hints.blocking {
            within(world, limit, on_thread(entry.tool.clone(), args, cx)).await
        } else {
            within(world, limit, guarded(&*entry.tool, args, &cx)).await
        };
        outcome.unwrap_or_else(|| Err(too_slow(entry, limit)))
    }
}

fn tool_cx(call: &ToolCall, cx: &CallCx) -> ToolCx {
    let mut tool_cx = ToolCx::new(cx.run.clone(), call.id.clone(), cx.key.clone());
    tool_cx.progress = cx.progress.clone();
    tool_cx
}

/// The future's output, unless it takes longer than `limit`. A future that is ready at once never touches
/// the clock.
async fn within<T>(world: &dyn World, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut sleep = None;
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => sleep.get_or_insert_with(|| world.sleep(limit)).as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Calls the tool; a panic is a failure.
async fn guarded(tool: &dyn Tool, args: Value, cx: &ToolCx) -> Outcome {
    // The call is made within the block, as it may panic before it returns a future.
    let call = async {
        let mut work = Work(Some(tool.call(args, cx)));
        poll_fn(|cx| work.poll(cx)).await
    };
    let outcome = AssertUnwindSafe(call).catch_unwind().await;
    outcome.unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

/// A call under way. It is dropped when its time is up, and its destructors may panic as well.
struct Work<'a>(Option<BoxFuture<'a, Outcome>>);

impl Work<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        self.0.as_mut().map_or(Poll::Pending, |work| work.as_mut().poll(cx))
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let work = self.0.take();
        let _ = catch_unwind(AssertUnwindSafe(move || drop(work)));
    }
}

/// Calls the tool on a thread where it may block.
async fn on_thread(tool: Arc<dyn Tool>, args: Value, cx: ToolCx) -> Outcome {
    let Ok(runtime) = Handle::try_current() else {
        return Err(ToolError::failed("the tool needs a thread of its own, and no tokio runtime is there"));
    };
    let inside = runtime.clone();
    let work = move || {
        inside.block_on(async {
            // What blocks goes on after a cancel; what merely waits ends here.
            match select(pin!(guarded(&*tool, args, &cx)), pin!(cx.cancel.cancelled())).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => Err(stopped()),
            }
        })
    };
    let mut thread = Thread(runtime.spawn_blocking(work));
    (&mut thread.0).await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => Err(panicked(panic.as_ref())),
        Err(_) => Err(stopped()),
    })
}

/// Takes the work back when it is dropped, if it still waits for a thread.
struct Thread(JoinHandle<Outcome>);

impl Drop for Thread {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn stopped() -> ToolError {
    ToolError::new(ToolErrorKind::Cancelled, "the tool was stopped before it was done")
}

fn too_slow(entry: &Entry, limit: Duration) -> ToolError {
    let effect =
        if entry.spec.hints.class.may_repeat() { "" } else { "; it may have taken effect all the same" };
    ToolError::new(ToolErrorKind::Timeout, format!("the tool was not done within {limit:?}{effect}"))
}

fn panicked(panic: &(dyn Any + Send)) -> ToolError {
    let text = panic.downcast_ref::<&str>().copied();
    match text.or_else(|| panic.downcast_ref::<String>().map(|text| &**text)) {
        Some(text) => ToolError::failed(format!("the tool panicked: {}", Short(text, 512))),
        None => ToolError::failed("the tool panicked"),
    }
}

/// The error, and how many attempts it took.
fn counted(error: ToolError, attempts: u32) -> ToolError {
    if attempts == 1 {
        return error;
    }
    ToolError::new(error.kind(), format!("{} ({attempts} attempts were made)", error.explain()))
}
