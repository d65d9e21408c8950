//! The layer [`Retry`]: sends a request again after a transient failure.
//!
//! `stream` and `complete` follow the same [`RetryPolicy`] but have separate loops. A stream
//! reports waits as deltas and stops retrying once the consumer has received content. `complete`
//! shows nothing before its end, so it may always retry. Both count the usage of all attempts in
//! one [`Tally`], because a failed attempt may have cost something.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    CostBound, Delta, Deltas, Model, ModelCard, ModelError, ModelErrorKind, Request, Response,
    World,
};

use super::log;
use super::tally::{Tally, attempt};
use super::{ErrorFilter, flow};
use levity_system::SystemWorld;

/// Retries a request after a transient failure.
///
/// - It sends a request up to 4 times ([`attempts`](Self::attempts)).
/// - It waits a random time between half and all of 1 s, 2 s, 4 s, … up to 60 s
///   ([`backoff`](Self::backoff)). The jitter spreads the retries of calls that failed together.
/// - If the provider states a retry delay, the layer waits that delay in full plus up to one
///   second. No limit applies to the delay unless you set [`max_wait`](Self::max_wait).
/// - Once it has forwarded part of the reply, it does not retry unless you allow it with
///   [`restart_after_first_delta`](Self::restart_after_first_delta).
///
/// The layer reports each wait as a [`Delta::Waiting`]. Its usage covers all attempts.
///
/// ```
/// use levity_core::{Message, Model, ModelErrorKind, Request};
/// use levity_llm::ModelExt;
/// use levity_test::{ManualWorld, ScriptedModel};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::ModelError> {
/// let model = ScriptedModel::new().fail(ModelErrorKind::Overloaded).reply("Good morning!");
/// let model = model.retry().with_world(Arc::new(ManualWorld::auto()));
/// let reply = model.complete(Request::new().with_message(Message::user("Hello"))).await?;
/// assert_eq!(reply.message.text(), "Good morning!");
/// # Ok(())
/// # }
/// ```
pub struct Retry<M> {
    inner: Arc<M>,
    policy: RetryPolicy,
    /// True if a retry may discard content that the consumer has already received.
    restart: bool,
    world: Arc<dyn World>,
}

/// The settings that decide on a retry, separate from the model so that a stream can own a copy.
///
/// With the defaults, the waits after the first, second and third failure are 0.5 to 1 s, 1 to 2 s
/// and 2 to 4 s.
#[derive(Clone)]
struct RetryPolicy {
    /// The number of times that a request is sent at most, the first time included.
    attempts: u64,
    /// The upper end of the wait after the first failure.
    first: Duration,
    /// The upper end of all computed waits; a delay from the provider may be longer.
    longest: Duration,
    /// The longest delay from a provider to accept; `None` accepts every delay.
    max_wait: Option<Duration>,
    on: ErrorFilter,
}

impl<M: Model + 'static> Retry<M> {
    /// The default maximum number of attempts: 4.
    pub const DEFAULT_ATTEMPTS: u64 = 4;
    /// The default first wait: 1 second.
    pub const DEFAULT_FIRST: Duration = Duration::from_secs(1);
    /// The default longest wait: 60 seconds.
    pub const DEFAULT_LONGEST: Duration = Duration::from_secs(60);

    /// Wraps the given model.
    ///
    /// The layer uses [`DEFAULT_ATTEMPTS`](Self::DEFAULT_ATTEMPTS),
    /// [`DEFAULT_FIRST`](Self::DEFAULT_FIRST) and [`DEFAULT_LONGEST`](Self::DEFAULT_LONGEST), and
    /// retries [transient errors](ModelErrorKind::is_retryable).
    pub fn new(model: M) -> Self {
        let policy = RetryPolicy {
            attempts: Self::DEFAULT_ATTEMPTS,
            first: Self::DEFAULT_FIRST,
            longest: Self::DEFAULT_LONGEST,
            max_wait: None,
            on: ErrorFilter::new(ModelErrorKind::is_retryable),
        };
        Self {
            inner: Arc::new(model),
            policy,
            restart: false,
            world: Arc::new(SystemWorld),
        }
    }

    /// Sets the maximum number of attempts, which is at least one.
    ///
    /// The [`CostBound`] of a request multiplies its sends by this number, so a budget reserves the
    /// cost of all attempts.
    ///
    /// ```
    /// use levity_core::{Model, ModelErrorKind, Request};
    /// use levity_llm::ModelExt;
    /// use levity_test::{ManualWorld, ScriptedModel};
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let timeout = ModelErrorKind::Timeout;
    /// let inner = ScriptedModel::new().fail(timeout).fail(timeout);
    /// let model = inner.clone().retry().attempts(2).with_world(Arc::new(ManualWorld::auto()));
    /// let error = model.complete(Request::new()).await.unwrap_err();
    /// assert_eq!((error.kind(), inner.requests().len()), (timeout, 2));
    /// # }
    /// ```
    #[must_use]
    pub fn attempts(mut self, attempts: u64) -> Self {
        self.policy.attempts = attempts.max(1);
        self
    }

    /// Sets the wait after the first failure and the longest wait; each wait doubles the previous
    /// one.
    ///
    /// ```
    /// use levity_core::{Model, ModelErrorKind, Request, World};
    /// use levity_llm::ModelExt;
    /// use levity_test::{ManualWorld, ScriptedModel};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let world = Arc::new(ManualWorld::auto());
    /// let model = ScriptedModel::new().fail(ModelErrorKind::Overloaded).reply("yes").retry();
    /// let model = model
    ///     .backoff(Duration::from_millis(100), Duration::from_secs(2))
    ///     .with_world(world.clone());
    /// model.complete(Request::new()).await?;
    /// let waited = world.now().since(ManualWorld::START);
    /// assert!((50..=100).contains(&waited.as_millis()), "{waited:?}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        (self.policy.first, self.policy.longest) = (first, longest);
        self
    }

    /// Sets the longest retry delay to accept from a provider. If the provider states a longer one,
    /// the layer returns the error immediately. Without this limit, the layer honours every delay
    /// within the caller's time limit for the model.
    ///
    /// ```
    /// use levity_core::{Model, ModelErrorKind, Request};
    /// use levity_llm::ModelExt;
    /// use levity_test::ScriptedModel;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let delay = Some(Duration::from_secs(3_600));
    /// let inner = ScriptedModel::new().fail(ModelErrorKind::RateLimited { retry_after: delay });
    /// let model = inner.clone().retry().max_wait(Duration::from_secs(60));
    /// assert!(model.complete(Request::new()).await.is_err());
    /// assert_eq!(inner.requests().len(), 1); // an hour is too long, so the error returns at once
    /// # }
    /// ```
    #[must_use]
    pub fn max_wait(mut self, longest: Duration) -> Self {
        self.policy.max_wait = Some(longest);
        self
    }

    /// Sets the errors to retry after; by default [transient errors](ModelErrorKind::is_retryable).
    ///
    /// ```
    /// use levity_core::{Model, ModelErrorKind, Request};
    /// use levity_llm::ModelExt;
    /// use levity_test::{ManualWorld, ScriptedModel};
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::ModelError> {
    /// let inner = ScriptedModel::new().fail(ModelErrorKind::Malformed).reply("yes");
    /// let model = inner
    ///     .retry()
    ///     .on(|kind| kind.is_retryable() || kind == ModelErrorKind::Malformed)
    ///     .with_world(Arc::new(ManualWorld::auto()));
    /// assert_eq!(model.complete(Request::new()).await?.message.text(), "yes");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on(mut self, kinds: impl Fn(ModelErrorKind) -> bool + Send + Sync + 'static) -> Self {
        self.policy.on = ErrorFilter::new(kinds);
        self
    }

    /// Retries even if part of the reply was already forwarded. A [`Delta::Restart`] instructs
    /// consumers to discard the part that they received. The complete reply contains only the last
    /// attempt.
    ///
    /// Enable it only if every consumer of the stream handles the restart.
    /// [`Fold`](levity_core::Fold) and the command line of levity do; a program that prints deltas
    /// as they arrive shows the discarded part as well.
    #[must_use]
    pub fn restart_after_first_delta(mut self) -> Self {
        self.restart = true;
        self
    }

    /// Sets the source of time and randomness; the system by default.
    #[must_use]
    pub fn with_world(mut self, world: Arc<dyn World>) -> Self {
        self.world = world;
        self
    }
}

impl RetryPolicy {
    /// Returns the wait after this many failed attempts, or `None` if no attempt remains.
    ///
    /// A delay from the provider replaces the computed wait and is honoured in full, because an
    /// earlier request would only be rejected again. The random part on top spreads the calls that
    /// were rejected together.
    fn wait(&self, failed: u64, error: &ModelError, world: &dyn World) -> Option<Duration> {
        if failed >= self.attempts || !self.on.contains(error.kind()) {
            return None;
        }
        if let Some(delay) = error.retry_after() {
            let allowed = self.max_wait.is_none_or(|longest| delay <= longest);
            return allowed.then(|| delay.saturating_add(random_part(self.first, world)));
        }
        let doublings = u32::try_from(failed - 1).unwrap_or(u32::MAX);
        let factor = 2_u32.checked_pow(doublings).unwrap_or(u32::MAX);
        let half = self.first.saturating_mul(factor).min(self.longest) / 2;
        Some(half + random_part(half, world))
    }

    /// Returns the text of the [`Delta::Waiting`]: `attempt 1 of 4 failed: the service is busy`.
    fn reason(&self, failed: u64, error: &ModelError) -> String {
        format!("attempt {failed} of {} failed: {error}", self.attempts)
    }
}

/// Returns a random fraction of `time`.
///
/// The multiplication by a random `u64` and the shift by 64 bits give a uniform share without
/// floating point, so a seeded world repeats it exactly on every machine.
fn random_part(time: Duration, world: &dyn World) -> Duration {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let share = u128::from(nanos) * u128::from(world.random());
    Duration::from_nanos((share >> 64) as u64)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<M: Model + 'static> Model for Retry<M> {
    fn card(&self) -> &ModelCard {
        self.inner.card()
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let (model, policy, world) = (self.inner.clone(), self.policy.clone(), self.world.clone());
        let restart = self.restart;
        Ok(flow::deltas(move |out| async move {
            let (mut tally, mut shown, mut failed) = (Tally::default(), false, 0);
            while let Err(error) =
                attempt(&*model, request.clone(), &out, &mut tally, &mut shown).await
            {
                let error = tally.fail(error);
                failed += 1;
                let wait = policy
                    .wait(failed, &error, &*world)
                    .filter(|_| restart || !shown);
                let Some(time) = wait else { return Err(error) };
                log::retrying(model.card(), failed, &error, time);
                let reason = policy.reason(failed, &error);
                out.send(Delta::Waiting {
                    time,
                    reason: reason.clone(),
                })
                .await;
                world.sleep(time).await;
                if std::mem::take(&mut shown) {
                    out.send(Delta::Restart { reason }).await;
                }
            }
            out.send(Delta::Usage(tally.total(model.card()))).await;
            Ok(())
        }))
    }

    async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        let (mut tally, mut failed) = (Tally::default(), 0);
        loop {
            let error = match self.inner.complete(request.clone()).await {
                Ok(response) => return Ok(tally.close(response, self.inner.card())),
                Err(error) => tally.fail(error),
            };
            failed += 1;
            let Some(time) = self.policy.wait(failed, &error, &*self.world) else {
                return Err(error);
            };
            log::retrying(self.inner.card(), failed, &error, time);
            self.world.sleep(time).await;
        }
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        let worst = self.inner.cost_bound(request);
        worst.with_sends(worst.sends.saturating_mul(self.policy.attempts))
    }
}

impl<M: Model> fmt::Debug for Retry<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.policy.attempts;
        f.debug_struct("Retry")
            .field("model", &self.inner.card().id)
            .field("attempts", &attempts)
            .finish()
    }
}
