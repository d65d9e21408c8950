use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Signals work to stop because its result is no longer needed.
///
/// An async tool does not need to check the token, because its future is dropped. Use it for work
/// that would otherwise continue, such as a blocking function or a process.
///
/// ```
/// # use levity_core::CancelToken;
/// let token = CancelToken::new();
/// let guard = token.clone().into_guard();
/// assert!(!token.is_cancelled());
/// drop(guard);
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Shared>);

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the token; further calls have no effect.
    ///
    /// ```
    /// # use levity_core::CancelToken;
    /// let token = CancelToken::new();
    /// token.clone().cancel(); // clones share one state
    /// assert!(token.is_cancelled());
    /// ```
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        let wakers = std::mem::take(&mut self.0.waiting().wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Returns `true` if the token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Waits until the token is cancelled.
    ///
    /// Any number of tasks can wait; dropping the future removes its registration.
    ///
    /// ```
    /// # use levity_core::CancelToken;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let token = CancelToken::new();
    /// let stop = token.clone();
    /// tokio::join!(token.cancelled(), async move { stop.cancel() });
    /// assert!(token.is_cancelled());
    /// # }
    /// ```
    pub async fn cancelled(&self) {
        let mut waiter = Waiter {
            shared: &self.0,
            key: None,
        };
        poll_fn(|cx| {
            if self.is_cancelled() {
                return Poll::Ready(());
            }
            waiter.park(cx.waker());
            // A cancellation between the check and the registration found no waker to wake.
            if self.is_cancelled() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Converts the token into a guard that cancels it when dropped.
    ///
    /// ```
    /// # use levity_core::CancelToken;
    /// let token = CancelToken::new();
    /// let guard = token.clone().into_guard();
    /// assert!(!token.is_cancelled());
    /// drop(guard);
    /// assert!(token.is_cancelled());
    /// ```
    pub fn into_guard(self) -> CancelGuard {
        CancelGuard(self)
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelToken")
            .field(&self.is_cancelled())
            .finish()
    }
}

/// A guard that cancels its token when it is dropped.
///
/// Hold it in the future of the work: if the caller drops that future, the work stops as well.
///
/// ```
/// # use levity_core::CancelToken;
/// fn work(token: CancelToken) -> bool {
///     let _guard = token.into_guard();
///     true // the guard is dropped here, also on an early return or a panic
/// }
///
/// let token = CancelToken::new();
/// assert!(work(token.clone()) && token.is_cancelled());
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard cancels the token"]
pub struct CancelGuard(CancelToken);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The registration of a waiter, removed when the waiter is dropped.
struct Waiter<'a> {
    shared: &'a Shared,
    key: Option<u64>,
}

impl Waiter<'_> {
    fn park(&mut self, waker: &Waker) {
        let mut waiting = self.shared.waiting();
        let key = *self.key.get_or_insert_with(|| {
            waiting.next += 1;
            waiting.next
        });
        waiting.wakers.insert(key, waker.clone());
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shared.waiting().wakers.remove(&key);
        }
    }
}
