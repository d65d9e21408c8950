//! The layer [`RateLimit`] and its setting [`Rate`].
//!
//! The layer itself holds no state: the [`Limiter`] of its key does, and all layers in the process
//! with this key share it. A call enqueues, waits for its turn, is recorded as sent, and reports
//! its actual tokens afterwards. A wait belongs to the call, so dropping the call leaves the queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    CostBound, Delta, Deltas, Model, ModelCard, ModelError, ModelErrorKind, Request, Response,
    Usage, World,
};

use super::flow;
use levity_system::SystemWorld;

mod limiter;

use limiter::{Limiter, QueueSlot};

/// A limit on how often a model may be called.
///
/// ```
/// use levity_llm::layers::Rate;
/// use std::time::Duration;
///
/// let rate = Rate::new().requests(60).tokens(100_000).min_interval(Duration::from_millis(200));
/// let free = Rate::new().requests(15).min_interval(Duration::from_millis(4_500));
/// assert_eq!(Rate::gemini_free(), free);
/// # let _ = rate;
/// ```
///
/// The limits combine: a request is sent as soon as all of them allow it. Requests and tokens are
/// counted over the last 60 seconds, not per calendar minute. A request with more tokens than the
/// whole limit is sent once the window is empty, because it could never fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rate {
    /// The maximum number of requests per minute, if limited.
    pub requests: Option<u64>,
    /// The maximum number of tokens per minute, sent and received, if limited.
    pub tokens: Option<u64>,
    /// The minimum time between two requests.
    pub min_interval: Duration,
    /// The maximum number of waiting calls; any further call fails.
    pub max_waiting: usize,
}

impl Rate {
    /// The default maximum number of waiting calls: 1,000.
    pub const DEFAULT_MAX_WAITING: usize = 1_000;

    /// Creates a rate without any limit.
    pub fn new() -> Self {
        Self {
            requests: None,
            tokens: None,
            min_interval: Duration::ZERO,
            max_waiting: Self::DEFAULT_MAX_WAITING,
        }
    }

    /// Returns the rate of Gemini's free tier: 15 requests per minute, 4.5 s apart.
    pub fn gemini_free() -> Self {
        Self::new()
            .requests(15)
            .min_interval(Duration::from_millis(4_500))
    }

    /// Sets the maximum number of requests per minute, which is at least one.
    #[must_use]
    pub fn requests(mut self, a_minute: u64) -> Self {
        self.requests = Some(a_minute.max(1));
        self
    }

    /// Sets the maximum number of tokens per minute, sent and received.
    ///
    /// The estimate before the call counts only the input. The provider's count, which includes the
    /// output, replaces it when the reply is complete.
    #[must_use]
    pub fn tokens(mut self, a_minute: u64) -> Self {
        self.tokens = Some(a_minute);
        self
    }

    /// Sets the minimum time between two requests.
    #[must_use]
    pub fn min_interval(mut self, time: Duration) -> Self {
        self.min_interval = time;
        self
    }

    /// Sets the maximum number of waiting calls. Any further call fails with
    /// [`RateLimited`](ModelErrorKind::RateLimited).
    ///
    /// With 0, a call that would have to wait fails at once:
    ///
    /// ```
    /// use levity_core::{Model, ModelErrorKind, Request};
    /// use levity_llm::ModelExt;
    /// use levity_llm::layers::Rate;
    /// use levity_test::{ManualWorld, ScriptedModel, Turn};
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let model = ScriptedModel::looping(Turn::new().text("yes"))
    ///     .rate_limit(Rate::new().requests(1).max_waiting(0))
    ///     .key("no queue")
    ///     .with_world(Arc::new(ManualWorld::new()));
    /// model.complete(Request::new()).await?;
    /// let error = model.complete(Request::new()).await.unwrap_err();
    /// assert_eq!(error.kind(), ModelErrorKind::RateLimited { retry_after: None });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_waiting(mut self, count: usize) -> Self {
        self.max_waiting = count;
        self
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self::new()
    }
}

/// Limits the calls of a model to a [`Rate`].
///
/// All layers in a process with the same [`key`](Self::key) share one limit, across all agents. By
/// default the key is the model's provider and id. Calls are served in the order of their arrival.
/// The layer reports each wait as a [`Delta::Waiting`]; dropping the call gives up its place in the
/// queue.
///
/// The layer estimates the tokens of a request at a quarter of its bytes, and corrects the estimate
/// with the provider's count. If the provider rejects a request and states a retry delay, no call
/// with this key is sent before the delay has elapsed.
///
/// ```
/// use levity_core::{Model, Request};
/// use levity_llm::ModelExt;
/// use levity_llm::layers::Rate;
/// use levity_test::{ManualWorld, ScriptedModel, Turn};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let world = Arc::new(ManualWorld::auto());
/// let model = ScriptedModel::looping(Turn::new().text("yes"));
/// let model = model.rate_limit(Rate::gemini_free()).key("my key").with_world(world.clone());
/// model.complete(Request::new()).await?;
/// model.complete(Request::new()).await?;
/// # use levity_core::World;
/// assert_eq!(world.now().since(ManualWorld::START), Duration::from_millis(4_500));
/// # Ok(())
/// # }
/// ```
///
/// # Limits
/// The limit holds within one process. Several processes with the same account need rates that add
/// up to the quota. The queue holds [`Rate::DEFAULT_MAX_WAITING`] calls by default; a further call
/// fails with [`RateLimited`](ModelErrorKind::RateLimited), which an outer [`Retry`](super::Retry)
/// retries.
pub struct RateLimit<M> {
    inner: Arc<M>,
    access: LimitedAccess,
}

/// The part of the layer that a stream takes along: the shared limiter, with this layer's rate and
/// clock.
#[derive(Clone)]
struct LimitedAccess {
    key: Arc<str>,
    limiter: Arc<Limiter>,
    rate: Rate,
    world: Arc<dyn World>,
}

impl<M: Model + 'static> RateLimit<M> {
    /// Wraps the given model.
    ///
    /// Two layers with the same key may have different rates. Each call then waits by the rate of
    /// its own layer, but all calls count.
    pub fn new(model: M, rate: Rate) -> Self {
        let key: Arc<str> = format!("{}/{}", model.card().provider, model.card().id).into();
        let access = LimitedAccess {
            limiter: Limiter::shared(&key),
            key,
            rate,
            world: Arc::new(SystemWorld),
        };
        Self {
            inner: Arc::new(model),
            access,
        }
    }

    /// Wraps a model with the rate of [Gemini's free tier](Rate::gemini_free).
    ///
    /// ```
    /// use levity_core::Model;
    /// use levity_llm::layers::RateLimit;
    /// use levity_test::ScriptedModel;
    ///
    /// let model = RateLimit::gemini_free(ScriptedModel::new());
    /// assert_eq!(model.card().id, "scripted"); // the card of the inner model
    /// ```
    pub fn gemini_free(model: M) -> Self {
        Self::new(model, Rate::gemini_free())
    }

    /// Sets the key that calls in the whole process share to be counted together. Quotas usually
    /// apply to an account, so the account's name is a good key.
    ///
    /// ```
    /// use levity_core::{Model, Request, World};
    /// use levity_llm::ModelExt;
    /// use levity_llm::layers::Rate;
    /// use levity_test::{ManualWorld, ScriptedModel};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let world = Arc::new(ManualWorld::auto());
    /// let limited = |model: ScriptedModel| {
    ///     let rate = Rate::new().min_interval(Duration::from_secs(1));
    ///     model.rate_limit(rate).key("account 7").with_world(world.clone())
    /// };
    /// let (small, large) = (ScriptedModel::new().reply("a"), ScriptedModel::new().reply("b"));
    /// let (small, large) = (limited(small), limited(large));
    /// small.complete(Request::new()).await?;
    /// large.complete(Request::new()).await?; // waits a second, although it is another model
    /// assert_eq!(world.now().since(ManualWorld::START), Duration::from_secs(1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.access.key = key.into();
        self.access.limiter = Limiter::shared(&self.access.key);
        self
    }

    /// Sets the source of time; the system clock by default.
    #[must_use]
    pub fn with_world(mut self, world: Arc<dyn World>) -> Self {
        self.access.world = world;
        self
    }
}

impl LimitedAccess {
    /// Enters the queue with the estimated tokens.
    ///
    /// # Errors
    /// Returns [`RateLimited`](ModelErrorKind::RateLimited) without a delay if the queue is full.
    fn enqueue(&self, request: &Request) -> Result<QueueSlot, ModelError> {
        let slot = self
            .limiter
            .enqueue(estimate(request), &self.rate, self.world.now());
        slot.ok_or_else(|| {
            let (key, waiting) = (&self.key, self.rate.max_waiting);
            let message = format!(
                "{waiting} calls are already waiting for the rate limit `{key}`; \
                retry later or raise `max_waiting`"
            );
            ModelError::new(ModelErrorKind::RateLimited { retry_after: None }, message)
        })
    }

    async fn wait_for_turn(&self, slot: QueueSlot) -> u64 {
        slot.wait_for_turn(&self.rate, &*self.world).await
    }

    /// Records the actual usage or the error of a request.
    ///
    /// A request that failed and cannot have cost anything gives its tokens back, but still counts
    /// as a request. Usage without any tokens keeps the estimate: some servers do not count.
    fn record_usage(&self, id: u64, usage: Result<&Usage, &ModelError>) {
        match usage {
            Ok(usage) if usage.total() > 0 => self.limiter.record_usage(id, usage.total()),
            Ok(_) => {}
            Err(error) => {
                if let Some(time) = error.retry_after() {
                    self.limiter.block_for(time, self.world.now());
                }
                if !error.may_cost() {
                    self.limiter.record_usage(id, 0);
                }
            }
        }
    }
}

/// Estimates the tokens of a request at a quarter of its bytes.
///
/// The descriptions and schemas of tools count as well, since they often outweigh the conversation.
fn estimate(request: &Request) -> u64 {
    let system = request.system.as_ref().map_or(0, |system| system.len());
    let tool =
        |tool: &Arc<levity_core::ToolSpec>| tool.description.len() + tool.input.to_string().len();
    let bytes = request.history.size() + system + request.tools.iter().map(tool).sum::<usize>();
    (bytes as u64).div_ceil(4)
}

/// Forwards the deltas and returns their usage.
///
/// Unlike [`flow::forward`], it does not fold the reply: only the usage is needed.
async fn forward(
    model: &dyn Model,
    request: Request,
    out: &flow::DeltaSender,
) -> Result<Usage, ModelError> {
    let mut deltas = model.stream(request).await?;
    let mut usage = Usage::default();
    while let Some(delta) = deltas.next().await {
        let delta = delta?;
        if let Delta::Usage(newer) = &delta {
            usage.update(*newer);
        }
        out.send(delta).await;
    }
    Ok(usage)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model + 'static> Model for RateLimit<M> {
    fn card(&self) -> &ModelCard {
        self.inner.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let (model, access) = (self.inner.clone(), self.access.clone());
        Ok(flow::deltas(move |out| async move {
            let slot = access.enqueue(&request)?;
            if !slot.expected().is_zero() {
                let reason = format!("rate limit `{}`", access.key);
                out.send(Delta::Waiting {
                    time: slot.expected(),
                    reason,
                })
                .await;
            }
            let id = access.wait_for_turn(slot).await;
            let reply = forward(&*model, request, &out).await;
            access.record_usage(id, reply.as_ref());
            reply.map(drop)
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let slot = self.access.enqueue(&request)?;
        let id = self.access.wait_for_turn(slot).await;
        let reply = self.inner.complete(request).await;
        self.access
            .record_usage(id, reply.as_ref().map(|reply| &reply.usage));
        reply
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        self.inner.cost_bound(request)
    }
}

impl<M: Model> fmt::Debug for RateLimit<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = &self.inner.card().id;
        f.debug_struct("RateLimit")
            .field("model", model)
            .field("key", &self.access.key)
            .finish_non_exhaustive()
    }
}
