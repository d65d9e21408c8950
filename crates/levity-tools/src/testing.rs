//! A clock that tests control, and tools made of functions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use levity_core::{Timestamp, Tool, ToolCx, ToolError, ToolOutput, ToolSpec, World};
use serde_json::Value;

/// A clock that advances only on request, or jumps to the end of every sleep.
#[derive(Default)]
pub(crate) struct Clock {
    skips: bool,
    now: AtomicU64,
    random: AtomicU64,
    sleepers: Mutex<Vec<Waker>>,
    pub(crate) slept: Mutex<Vec<Duration>>,
}

impl Clock {
    /// Creates a clock that stops until [`advance`](Self::advance).
    pub(crate) fn still() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Creates a clock that jumps to the end of every sleep.
    pub(crate) fn skipping() -> Arc<Self> {
        Arc::new(Self {
            skips: true,
            ..Self::default()
        })
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.now
            .fetch_add(time.as_millis() as u64, Ordering::SeqCst);
        self.sleepers
            .lock()
            .unwrap()
            .drain(..)
            .for_each(Waker::wake);
    }
}

#[async_trait]
impl World for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }

    fn random(&self) -> u64 {
        self.random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst)
    }

    async fn sleep(&self, time: Duration) {
        self.slept.lock().unwrap().push(time);
        let end = self.now().after(time);
        std::future::poll_fn(|cx| {
            self.sleepers.lock().unwrap().push(cx.waker().clone());
            if self.skips {
                self.advance(end.since(self.now()));
            }
            if self.now() >= end {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

type Outcome = Result<ToolOutput, ToolError>;
type Work = dyn Fn(Value, ToolCx) -> BoxFuture<'static, Outcome> + Send + Sync;

/// A tool made of a function.
pub(crate) struct FnTool(pub(crate) ToolSpec, pub(crate) Box<Work>);

impl FnTool {
    pub(crate) fn new<F>(
        spec: ToolSpec,
        work: impl Fn(Value, ToolCx) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self(spec, Box::new(move |args, cx| work(args, cx).boxed()))
    }

    /// Creates a tool that answers at once.
    pub(crate) fn ready(
        spec: ToolSpec,
        work: impl Fn(Value) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        Self::new(spec, move |args, _| std::future::ready(work(args)))
    }

    /// Creates a tool that only has a name.
    pub(crate) fn named(name: &str) -> Self {
        Self::ready(ToolSpec::new(name, ""), |_| Ok(ToolOutput::text("done")))
    }
}

#[async_trait]
impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, args: Value, cx: &ToolCx) -> Outcome {
        (self.1)(args, cx.clone()).await
    }
}
