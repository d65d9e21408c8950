use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    CostBound, Delta, Deltas, Model, ModelCard, ModelError, ModelErrorKind, Request, Response,
    World,
};

use super::tally::{Tally, attempt};
use super::told;
use super::{Kinds, flow};
use levity_system::SystemWorld;

/// Sends a request again when it failed for a reason that may pass.
///
/// - It sends up to 4 times ([`attempts`](Self::attempts)).
/// - It waits between half and all of 1 s, 2 s, 4 s, … up to 60 s ([`backoff`](Self::backoff));
///   chance decides, so that many who failed together do not come back together.
/// - When the provider says when to come back, it waits that long in full and up to a second more,
///   however long that is, unless [`max_wait`](Self::max_wait) says otherwise.
/// - Once a piece of the reply was handed on, it does not send again, unless
///   [`restart_after_first_delta`](Self::restart_after_first_delta) allows it.
///
/// Those who watch see each wait as a [`Delta::Waiting`]. The usage it reports is that of all
/// attempts.
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
    plan: Plan,
    restart: bool,
    world: Arc<dyn World>,
}

#[derive(Clone)]
struct Plan {
    attempts: u64,
    first: Duration,
    longest: Duration,
    max_wait: Option<Duration>,
    on: Kinds,
}

impl<M: Model + 'static> Retry<M> {
    /// How often a request is sent at most: 4 times.
    pub const DEFAULT_ATTEMPTS: u64 = 4;
    /// What the waits begin with: 1 second.
    pub const DEFAULT_FIRST: Duration = Duration::from_secs(1);
    /// What the waits grow to: 60 seconds.
    pub const DEFAULT_LONGEST: Duration = Duration::from_secs(60);

    /// Wraps a model.
    pub fn new(model: M) -> Self {
        let plan = Plan {
            attempts: Self::DEFAULT_ATTEMPTS,
            first: Self::DEFAULT_FIRST,
            longest: Self::DEFAULT_LONGEST,
            max_wait: None,
            on: Kinds::new(ModelErrorKind::is_retryable),
        };
        Self {
            inner: Arc::new(model),
            plan,
            restart: false,
            world: Arc::new(SystemWorld),
        }
    }

    /// Sets how often a request is sent at most; at least once.
    #[must_use]
    pub fn attempts(mut self, attempts: u64) -> Self {
        self.plan.attempts = attempts.max(1);
        self
    }

    /// Sets the wait after the first failure and the longest one; each is twice the one before.
    #[must_use]
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        (self.plan.first, self.plan.longest) = (first, longest);
        self
    }

    /// Sets the longest wait that a provider may ask for; when it asks for more, the error is
    /// returned at once. Without it, every wait is kept to, within the time that the caller gives
    /// the model.
    #[must_use]
    pub fn max_wait(mut self, longest: Duration) -> Self {
        self.plan.max_wait = Some(longest);
        self
    }

    /// Sets after which errors to send again; by default
    /// [those that may pass](ModelErrorKind::is_retryable).
    #[must_use]
    pub fn on(mut self, kinds: impl Fn(ModelErrorKind) -> bool + Send + Sync + 'static) -> Self {
        self.plan.on = Kinds::new(kinds);
        self
    }

    /// Sends again also when a part of the reply was handed on before it failed. A
    /// [`Delta::Restart`] then tells whoever shows the pieces to drop them; the whole reply is only
    /// that of the last attempt.
    #[must_use]
    pub fn restart_after_first_delta(mut self) -> Self {
        self.restart = true;
        self
    }

    /// Sets where time and chance come from; from the system by default.
    #[must_use]
    pub fn with_world(mut self, world: Arc<dyn World>) -> Self {
        self.world = world;
        self
    }
}

impl Plan {
    /// How long to wait after this many attempts, the last of which failed so; `None` when it is
    /// over.
    fn wait(&self, failed: u64, error: &ModelError, world: &dyn World) -> Option<Duration> {
        if failed >= self.attempts || !self.on.contains(error.kind()) {
            return None;
        }
        if let Some(asked) = error.retry_after() {
            let allowed = self.max_wait.is_none_or(|longest| asked <= longest);
            return allowed.then(|| asked.saturating_add(part(self.first, world)));
        }
        let doublings = u32::try_from(failed - 1).unwrap_or(u32::MAX);
        let factor = 2_u32.checked_pow(doublings).unwrap_or(u32::MAX);
        let half = self.first.saturating_mul(factor).min(self.longest) / 2;
        Some(half + part(half, world))
    }

    fn reason(&self, failed: u64, error: &ModelError) -> String {
        format!("attempt {failed} of {} failed: {error}", self.attempts)
    }
}

/// Some of `time`, as chance has it.
fn part(time: Duration, world: &dyn World) -> Duration {
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
        let (model, plan, world) = (self.inner.clone(), self.plan.clone(), self.world.clone());
        let restart = self.restart;
        Ok(flow::deltas(move |out| async move {
            let (mut tally, mut shown, mut failed) = (Tally::default(), false, 0);
            while let Err(error) =
                attempt(&*model, request.clone(), &out, &mut tally, &mut shown).await
            {
                let error = tally.fail(error);
                failed += 1;
                let wait = plan
                    .wait(failed, &error, &*world)
                    .filter(|_| restart || !shown);
                let Some(time) = wait else { return Err(error) };
                told::waits(model.card(), failed, &error, time);
                let reason = plan.reason(failed, &error);
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
            let Some(time) = self.plan.wait(failed, &error, &*self.world) else {
                return Err(error);
            };
            told::waits(self.inner.card(), failed, &error, time);
            self.world.sleep(time).await;
        }
    }

    fn cost_bound(&self, request: &Request) -> CostBound {
        let worst = self.inner.cost_bound(request);
        worst.with_sends(worst.sends.saturating_mul(self.plan.attempts))
    }
}

impl<M: Model> fmt::Debug for Retry<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.plan.attempts;
        f.debug_struct("Retry")
            .field("model", &self.inner.card().id)
            .field("attempts", &attempts)
            .finish()
    }
}
