//! Policy decisions that block their thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use levity_core::Permit;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Decides on a blocking thread, if there is one. Dropping the future withdraws a decision that has
/// not started.
pub(super) async fn on_thread(judge: impl FnOnce() -> Permit + Send + 'static) -> Permit {
    let Ok(runtime) = Handle::try_current() else {
        return judge();
    };
    // It panics if the system has no thread left.
    let Ok(thread) = catch_unwind(AssertUnwindSafe(|| runtime.spawn_blocking(judge))) else {
        return Permit::deny("the policy needs a separate thread, but the system has none left");
    };
    let mut thread = Thread(thread);
    match (&mut thread.0).await {
        Ok(permit) => permit,
        Err(error) if error.is_panic() => panicked(),
        // The program is shutting down, so a denial must not be recorded.
        Err(_) => std::future::pending().await,
    }
}

/// Returns the decision for a policy that panics.
pub(super) fn panicked() -> Permit {
    Permit::deny("the policy panicked on this call")
}

struct Thread(JoinHandle<Permit>);

impl Drop for Thread {
    fn drop(&mut self) {
        self.0.abort();
    }
}
