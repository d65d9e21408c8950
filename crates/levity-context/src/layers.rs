//! Wrappers around a source of context.
//!
//! Each wrapper is a source itself, so they nest in any order. The order matters for
//! [`WithFallbackNote`]: around [`WithTimeout`] it also covers the timeout, inside of it it does
//! not.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ContextBlock, ContextError, ContextLifetime, ContextRequest, ContextSource, World,
};
use levity_system::SystemWorld;

/// Wrappers for any source of context.
///
/// ```
/// use levity_context::{ContextExt as _, ContextFn};
/// use levity_core::{ContextRequest, ContextSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tickets = ContextFn::new("tickets", |_| async { Err::<String, _>("the server is down") });
/// let tickets = tickets.with_budget(500).with_fallback_note();
/// let blocks = tickets.blocks(&ContextRequest::new(1_000)).await?;
/// assert_eq!((&*blocks[0].name, &*blocks[0].text), ("tickets", "[this is not available now]"));
/// # Ok(())
/// # }
/// ```
///
/// # Contract
/// - Each method wraps the source and queries nothing before the wrapper is queried.
/// - A wrapper passes the goal of the request on, and never a larger budget than it received.
/// - The trait has a blanket implementation, so your own source has these methods as well:
///
/// ```
/// use async_trait::async_trait;
/// use levity_context::ContextExt as _;
/// use levity_core::{ContextBlock, ContextError, ContextRequest, ContextSource};
///
/// /// Repeats the goal of the run.
/// struct Goal;
///
/// #[async_trait]
/// impl ContextSource for Goal {
///     async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
///         let block = ContextBlock::new("goal", ask.goal.as_str());
///         Ok(block.cut_to(ask.budget).into_iter().collect())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ContextError> {
/// let ask = ContextRequest::new(1_000).for_goal("Tidy up");
/// assert_eq!(Goal.with_budget(100).blocks(&ask).await?[0].text, "Tidy up");
/// # Ok(())
/// # }
/// ```
pub trait ContextExt: ContextSource + Sized {
    /// Limits the source to its own budget, however large the overall budget is.
    ///
    /// The smaller of both budgets applies.
    fn with_budget(self, tokens: usize) -> WithBudget<Self> {
        WithBudget {
            source: self,
            tokens,
        }
    }

    /// Replaces an error of the source with a note, so that the run continues.
    ///
    /// The note is `[this is not available now]`, under the name of the failed source. It is valid
    /// for the run only, so the next run queries the source again.
    fn with_fallback_note(self) -> WithFallbackNote<Self> {
        WithFallbackNote {
            source: self,
            watcher: None,
        }
    }

    /// Fails if the source takes longer than `time`. Errors call the source `name`.
    ///
    /// The source is dropped when the time is over, which cancels its work.
    fn with_timeout(self, time: Duration, name: impl Into<String>) -> WithTimeout<Self> {
        WithTimeout {
            source: self,
            time,
            world: Arc::new(SystemWorld),
            name: name.into(),
        }
    }
}

impl<S: ContextSource> ContextExt for S {}

/// A source with its own budget; see [`ContextExt::with_budget`].
///
/// ```
/// use levity_context::ContextExt as _;
/// use levity_core::{ContextBlock, ContextRequest, ContextSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ContextError> {
/// let rules = ContextBlock::new("rules", "Be kind.\n".repeat(1_000)).with_budget(50);
/// let blocks = rules.blocks(&ContextRequest::new(10_000)).await?;
/// assert!(blocks[0].tokens() <= 50);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WithBudget<S> {
    source: S,
    tokens: usize,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: ContextSource> ContextSource for WithBudget<S> {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        let mut ask = ask.clone();
        ask.budget = ask.budget.min(self.tokens);
        self.source.blocks(&ask).await
    }
}

/// A function that receives each error.
type Watcher = Arc<dyn Fn(&ContextError) + Send + Sync>;

/// A source that yields a note instead of an error; see [`ContextExt::with_fallback_note`].
///
/// ```
/// use levity_context::{ContextExt as _, ContextFn};
/// use levity_core::{ContextRequest, ContextSource};
/// use std::sync::{Arc, Mutex};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ContextError> {
/// let log = Arc::new(Mutex::new(Vec::new()));
/// let sink = log.clone();
/// let tickets = ContextFn::new("tickets", |_| async { Err::<String, _>("the server is down") })
///     .with_fallback_note()
///     .on_failure(move |error| sink.lock().unwrap().push(error.name.clone()));
/// tickets.blocks(&ContextRequest::new(100)).await?;
/// assert_eq!(*log.lock().unwrap(), ["tickets"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WithFallbackNote<S> {
    source: S,
    watcher: Option<Watcher>,
}

impl<S> WithFallbackNote<S> {
    /// Calls `watcher` with the error. The note does not contain the cause, because a model does
    /// not need it.
    #[must_use]
    pub fn on_failure(mut self, watcher: impl Fn(&ContextError) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: ContextSource> ContextSource for WithFallbackNote<S> {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        let error = match self.source.blocks(ask).await {
            Ok(blocks) => return Ok(blocks),
            Err(error) => error,
        };
        if let Some(watcher) = &self.watcher {
            watcher(&error);
        }
        let note = ContextBlock::new(error.name, "[this is not available now]")
            .lasting(ContextLifetime::Run);
        Ok(note.cut_to(ask.budget).into_iter().collect())
    }
}

impl<S: fmt::Debug> fmt::Debug for WithFallbackNote<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithFallbackNote")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A source with a time limit; see [`ContextExt::with_timeout`].
///
/// ```
/// use levity_context::{ContextExt as _, ContextFn};
/// use levity_core::{ContextRequest, ContextSource};
/// use levity_test::ManualWorld;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let never = ContextFn::new("tickets", |_| std::future::pending::<Result<String, &str>>());
/// let limited = never.with_timeout(Duration::from_secs(5), "tickets").world(ManualWorld::auto());
/// let error = limited.blocks(&ContextRequest::new(100)).await.unwrap_err();
/// assert_eq!(error.name, "tickets");
/// # }
/// ```
#[derive(Clone)]
pub struct WithTimeout<S> {
    source: S,
    time: Duration,
    world: Arc<dyn World>,
    name: String,
}

impl<S> WithTimeout<S> {
    /// Sets the clock for the time limit; the system's clock by default.
    #[must_use]
    pub fn world(mut self, world: impl World + 'static) -> Self {
        self.world = Arc::new(world);
        self
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: ContextSource> ContextSource for WithTimeout<S> {
    async fn blocks(&self, ask: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        let blocks = either(self.source.blocks(ask), self.world.sleep(self.time)).await;
        blocks.unwrap_or_else(|| {
            let cause = format!("it took longer than {:?}", self.time);
            Err(ContextError::new(self.name.as_str(), cause))
        })
    }
}

/// Returns the result of `work`, or `None` if `end` completes first.
///
/// `work` is polled first, so a result that is ready in time wins over the end of the time.
async fn either<T>(work: impl Future<Output = T>, end: impl Future<Output = ()>) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

impl<S: fmt::Debug> fmt::Debug for WithTimeout<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithTimeout")
            .field("source", &self.source)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}
