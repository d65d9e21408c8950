//! File work off the async threads.
//!
//! A blocking task cannot be cancelled, but the work of this crate only reads, within fixed limits.

use levity_core::SharedError;

/// Runs blocking work on a blocking thread, or inline outside a tokio runtime.
///
/// # Errors
/// Fails if the work panics or the runtime shuts down.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SharedError> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.map_err(SharedError::new),
        Err(_) => Ok(work()),
    }
}
