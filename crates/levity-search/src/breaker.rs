//! A circuit breaker around an optional service, such as a reranker.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use levity_core::{ModelError, ModelErrorKind, Timestamp, World};

use crate::embedding::{RETRY_DELAY, may_concern_one_text};

/// Limits the time of calls to a service, and makes none for 30 seconds after a failure.
///
/// An error that the input may have caused, such as a text that is too long, does not count as a
/// failure of the service. Clones share the state.
///
/// ```
/// use std::time::Duration;
///
/// use levity_core::{ModelError, ModelErrorKind};
/// use levity_search::CircuitBreaker;
/// use levity_system::SystemWorld;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let breaker = CircuitBreaker::new("the reranker", Duration::from_secs(20));
/// let fails = async { Err::<(), _>(ModelError::new(ModelErrorKind::Overloaded, "busy")) };
/// assert!(breaker.call(&SystemWorld, fails).await.is_err());
/// // For 30 seconds, the next call fails at once with the same error.
/// let error = breaker.call(&SystemWorld, async { Ok(7) }).await.unwrap_err();
/// assert_eq!(error.message(), "busy");
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    service: &'static str,
    timeout: Duration,
    /// The time and error of the last failure.
    failed: Arc<Mutex<Option<(Timestamp, ModelError)>>>,
}

impl CircuitBreaker {
    /// Creates a breaker for a service, whose name appears in the error of a timeout.
    pub fn new(service: &'static str, timeout: Duration) -> Self {
        Self {
            service,
            timeout,
            failed: Arc::default(),
        }
    }

    /// Waits for a call within the timeout.
    ///
    /// # Errors
    /// The error of the call, `Timeout`, or the error of a failure in the last 30 seconds.
    pub async fn call<T>(
        &self,
        world: &dyn World,
        call: impl Future<Output = Result<T, ModelError>>,
    ) -> Result<T, ModelError> {
        self.check_available(world.now())?;
        let result = match select(pin!(call), world.sleep(self.timeout)).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err(ModelError::new(
                ModelErrorKind::Timeout,
                format!("{} did not answer within {:?}", self.service, self.timeout),
            )),
        };
        match &result {
            Err(error) if may_concern_one_text(error) => {}
            Err(error) => self.remember(Some((world.now(), error.clone()))),
            Ok(_) => self.remember(None),
        }
        result
    }

    fn check_available(&self, now: Timestamp) -> Result<(), ModelError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failed {
            Some((when, error)) if now >= *when && now.since(*when) < RETRY_DELAY => {
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }

    fn remember(&self, failure: Option<(Timestamp, ModelError)>) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

#[cfg(test)]
mod tests {
    use levity_test::ManualWorld;

    use super::*;

    async fn call(
        breaker: &CircuitBreaker,
        world: &ManualWorld,
        kind: Option<ModelErrorKind>,
    ) -> bool {
        let mut called = false;
        let result = async {
            called = true;
            kind.map_or(Ok(()), |kind| Err(ModelError::new(kind, "no")))
        };
        let _ = breaker.call(world, result).await;
        called
    }

    #[tokio::test]
    async fn failure_blocks_calls_for_thirty_seconds() {
        let world = ManualWorld::new();
        let breaker = CircuitBreaker::new("it", Duration::from_secs(20));
        assert!(call(&breaker, &world, Some(ModelErrorKind::BadRequest)).await);
        assert!(call(&breaker, &world, Some(ModelErrorKind::Transport)).await);
        assert!(!call(&breaker, &world, None).await);
        world.advance(Duration::from_secs(31));
        assert!(call(&breaker, &world, None).await);
        assert!(call(&breaker, &world, None).await);
    }

    #[tokio::test]
    async fn call_without_end_times_out() {
        let breaker = CircuitBreaker::new("it", Duration::from_secs(20));
        let endless = std::future::pending::<Result<(), ModelError>>();
        let error = breaker
            .call(&ManualWorld::auto(), endless)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Timeout);
        assert_eq!(error.message(), "it did not answer within 20s");
    }
}
