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

use limiter::{Limiter, Place};

/// How often a model may be called.
///
/// ```
/// use levity_llm::layers::Rate;
/// use std::time::Duration;
///
/// let rate = Rate::new().requests(60).tokens(100_000).gap(Duration::from_millis(200));
/// assert_eq!(Rate::gemini_free(), Rate::new().requests(15).gap(Duration::from_millis(4_500)));
/// # let _ = rate;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rate {
    /// How many requests a minute, where there is a limit.
    pub requests: Option<u64>,
    /// How many tokens a minute, sent and received, where there is a limit.
    pub tokens: Option<u64>,
    /// The least time from one request to the next.
    pub gap: Duration,
    /// How many may wait at once; one more fails.
    pub max_waiting: usize,
}

impl Rate {
    /// How many may wait at once by default: 1,000.
    pub const DEFAULT_MAX_WAITING: usize = 1_000;

    /// No limit.
    pub fn new() -> Self {
        Self {
            requests: None,
            tokens: None,
            gap: Duration::ZERO,
            max_waiting: Self::DEFAULT_MAX_WAITING,
        }
    }

    /// Gemini's free tier: 15 requests a minute, 4.5 s apart.
    pub fn gemini_free() -> Self {
        Self::new().requests(15).gap(Duration::from_millis(4_500))
    }

    /// Sets how many requests a minute there may be; one at least.
    #[must_use]
    pub fn requests(mut self, a_minute: u64) -> Self {
        self.requests = Some(a_minute.max(1));
        self
    }

    /// Sets how many tokens a minute there may be, sent and received.
    #[must_use]
    pub fn tokens(mut self, a_minute: u64) -> Self {
        self.tokens = Some(a_minute);
        self
    }

    /// Sets the least time from one request to the next.
    #[must_use]
    pub fn gap(mut self, time: Duration) -> Self {
        self.gap = time;
        self
    }

    /// Sets how many may wait at once; one more fails with
    /// [`RateLimited`](ModelErrorKind::RateLimited).
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

/// Keeps the calls of a model to a [`Rate`].
///
/// All layers of a process with the same [`key`](Self::key) count together, whatever agent they
/// belong to; by default the key is the model's provider and id. Who comes first is served first.
/// Those who watch see each wait as a [`Delta::Waiting`]; dropping the call gives its place up.
///
/// Tokens are estimated before a request is sent, at a quarter of its bytes, and corrected by what
/// the provider counts. When it turns a request down and says when to come back, nobody with this
/// key calls before then.
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
pub struct RateLimit<M> {
    inner: Arc<M>,
    gate: Gate,
}

#[derive(Clone)]
struct Gate {
    key: Arc<str>,
    limiter: Arc<Limiter>,
    rate: Rate,
    world: Arc<dyn World>,
}

impl<M: Model + 'static> RateLimit<M> {
    /// Wraps a model.
    pub fn new(model: M, rate: Rate) -> Self {
        let key: Arc<str> = format!("{}/{}", model.card().provider, model.card().id).into();
        let gate = Gate {
            limiter: Limiter::shared(&key),
            key,
            rate,
            world: Arc::new(SystemWorld),
        };
        Self {
            inner: Arc::new(model),
            gate,
        }
    }

    /// Wraps a model within [Gemini's free tier](Rate::gemini_free).
    pub fn gemini_free(model: M) -> Self {
        Self::new(model, Rate::gemini_free())
    }

    /// Sets what is counted together: all with the same key, in the whole process. What is left of
    /// a quota usually goes by the account, so the account's name is a good key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.gate.key = key.into();
        self.gate.limiter = Limiter::shared(&self.gate.key);
        self
    }

    /// Sets where time comes from; from the system by default.
    #[must_use]
    pub fn with_world(mut self, world: Arc<dyn World>) -> Self {
        self.gate.world = world;
        self
    }
}

impl Gate {
    fn line_up(&self, request: &Request) -> Result<Place, ModelError> {
        let place = self
            .limiter
            .line_up(estimate(request), &self.rate, self.world.now());
        place.ok_or_else(|| {
            let (key, waiting) = (&self.key, self.rate.max_waiting);
            let message = format!("{waiting} calls wait for the rate limit `{key}` already");
            ModelError::new(ModelErrorKind::RateLimited { retry_after: None }, message)
        })
    }

    async fn pass(&self, place: Place) -> u64 {
        place.pass(&self.rate, &*self.world).await
    }

    /// Notes what came of a request.
    fn settle(&self, id: u64, usage: Result<&Usage, &ModelError>) {
        match usage {
            Ok(usage) if usage.total() > 0 => self.limiter.settle(id, usage.total()),
            Ok(_) => {}
            Err(error) => {
                if let Some(time) = error.retry_after() {
                    self.limiter.close(time, self.world.now());
                }
                if !error.may_cost() {
                    self.limiter.settle(id, 0);
                }
            }
        }
    }
}

/// How many tokens a request is thought to be: a quarter of its bytes.
fn estimate(request: &Request) -> u64 {
    let system = request.system.as_ref().map_or(0, |system| system.len());
    let tool =
        |tool: &Arc<levity_core::ToolSpec>| tool.description.len() + tool.input.to_string().len();
    let bytes = request.history.size() + system + request.tools.iter().map(tool).sum::<usize>();
    (bytes as u64).div_ceil(4)
}

/// Hands the pieces on and returns what they took.
async fn forward(
    model: &dyn Model,
    request: Request,
    out: &flow::Out,
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
        let (model, gate) = (self.inner.clone(), self.gate.clone());
        Ok(flow::deltas(move |out| async move {
            let place = gate.line_up(&request)?;
            if !place.expected().is_zero() {
                let reason = format!("rate limit `{}`", gate.key);
                out.send(Delta::Waiting {
                    time: place.expected(),
                    reason,
                })
                .await;
            }
            let id = gate.pass(place).await;
            let reply = forward(&*model, request, &out).await;
            gate.settle(id, reply.as_ref());
            reply.map(drop)
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let place = self.gate.line_up(&request)?;
        let id = self.gate.pass(place).await;
        let reply = self.inner.complete(request).await;
        self.gate
            .settle(id, reply.as_ref().map(|reply| &reply.usage));
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
            .field("key", &self.gate.key)
            .finish_non_exhaustive()
    }
}
