use levity_core::SharedError;

/// Does work that blocks, on a thread that may be blocked where there is one.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SharedError> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.map_err(SharedError::new),
        Err(_) => Ok(work()),
    }
}
