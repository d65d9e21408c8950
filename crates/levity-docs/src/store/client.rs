//! Calls to a store that may hang or fail.
//!
//! Each call has a time limit. After a failure to reach the store, no call is made for 30 seconds,
//! so that an unreachable store does not delay every search. After a failed change, no vectors are
//! computed for that time, because an embedder may cost money.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use levity_core::{Timestamp, VectorStore, VectorStoreError, VectorStoreErrorKind, World};

/// The time limit of a search in the store.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of a change of the store.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(120);
/// The delay after a failure before the store is called again.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The time and error of a failure.
type Failed = Arc<Mutex<Option<(Timestamp, VectorStoreError)>>>;

/// A store and its most recent failures.
#[derive(Clone)]
pub(crate) struct StoreClient {
    pub(crate) store: Arc<dyn VectorStore>,
    /// The failure after which no call is made: the store is unavailable or denies access.
    failed: Failed,
    /// The failure after which no vectors are computed: the store did not accept a change.
    change_failed: Failed,
}

impl fmt::Debug for StoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreClient").finish_non_exhaustive()
    }
}

impl StoreClient {
    /// Wraps a store that has not failed yet.
    pub(crate) fn new(store: impl VectorStore + 'static) -> Self {
        Self {
            store: Arc::new(store),
            failed: Arc::default(),
            change_failed: Arc::default(),
        }
    }

    /// Checks that the store may be called.
    ///
    /// # Errors
    /// The last error, for 30 seconds after it.
    pub(crate) fn check_available(&self, world: &dyn World) -> Result<(), VectorStoreError> {
        check(&self.failed, world.now())
    }

    /// Checks that new vectors can probably be added.
    ///
    /// # Errors
    /// The last error of a change, for 30 seconds after it.
    pub(crate) fn check_accepts(&self, world: &dyn World) -> Result<(), VectorStoreError> {
        self.check_available(world)?;
        check(&self.change_failed, world.now())
    }

    /// Allows the next call even directly after a failure.
    pub(crate) fn forget_failure(&self) {
        set(&self.failed, None);
        set(&self.change_failed, None);
    }

    /// Waits for a call that belongs to a search.
    pub(crate) async fn search<T>(
        &self,
        world: &dyn World,
        call: impl Future<Output = Result<T, VectorStoreError>>,
    ) -> Result<T, VectorStoreError> {
        self.call(world, SEARCH_TIMEOUT, call).await
    }

    /// Waits for a call that changes or lists vectors.
    pub(crate) async fn change<T>(
        &self,
        world: &dyn World,
        call: impl Future<Output = Result<T, VectorStoreError>>,
    ) -> Result<T, VectorStoreError> {
        let result = self.call(world, CHANGE_TIMEOUT, call).await;
        let failure = result
            .as_ref()
            .err()
            .map(|error| (world.now(), error.clone()));
        set(&self.change_failed, failure);
        result
    }

    async fn call<T>(
        &self,
        world: &dyn World,
        time: Duration,
        call: impl Future<Output = Result<T, VectorStoreError>>,
    ) -> Result<T, VectorStoreError> {
        self.check_available(world)?;
        let result = match select(pin!(call), world.sleep(time)).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => {
                let message = format!("the vector store did not answer within {time:?}");
                Err(VectorStoreError::new(
                    VectorStoreErrorKind::Timeout,
                    message,
                ))
            }
        };
        let blocks = |error: &&VectorStoreError| {
            error.is_retryable() || error.kind() == VectorStoreErrorKind::Auth
        };
        let failure = result.as_ref().err().filter(blocks);
        set(
            &self.failed,
            failure.map(|error| (world.now(), error.clone())),
        );
        result
    }
}

/// Returns the error of a failure in the last 30 seconds.
fn check(failed: &Failed, now: Timestamp) -> Result<(), VectorStoreError> {
    match &*failed.lock().unwrap_or_else(PoisonError::into_inner) {
        Some((when, error)) if now >= *when && now.since(*when) < RETRY_DELAY => Err(error.clone()),
        _ => Ok(()),
    }
}

/// Remembers a failure, or forgets it.
fn set(failed: &Failed, failure: Option<(Timestamp, VectorStoreError)>) {
    *failed.lock().unwrap_or_else(PoisonError::into_inner) = failure;
}
