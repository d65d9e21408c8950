//! Runs blocking work on a separate thread.
//!
//! Disk access may take seconds on a busy system. It therefore never runs on the threads of the
//! async runtime.

use levity_core::{MemoryError, MemoryErrorKind};

/// Runs blocking work on a thread where it delays no other task. The work completes even if the
/// caller drops the returned future.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MemoryError> + Send + 'static,
) -> Result<T, MemoryError> {
    let ending = |_| {
        MemoryError::new(
            MemoryErrorKind::Io,
            "memory operation cancelled: the tokio runtime is shutting down",
        )
    };
    tokio::task::spawn_blocking(work).await.map_err(ending)?
}
