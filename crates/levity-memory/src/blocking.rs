//! Work that may block.

use levity_core::{MemoryError, MemoryErrorKind};

/// Does what may block where it holds up nobody. It is done to its end, also if nobody waits for it
/// any more.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MemoryError> + Send + 'static,
) -> Result<T, MemoryError> {
    let ending = |_| {
        MemoryError::new(
            MemoryErrorKind::Io,
            "the memory's work was given up: the program is ending",
        )
    };
    tokio::task::spawn_blocking(work).await.map_err(ending)?
}
