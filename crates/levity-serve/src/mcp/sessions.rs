//! Sessions over HTTP: so many at most, and none that nobody uses.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use levity_core::{Timestamp, World};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};

/// The library's sessions, counted.
///
/// The library ends a session in which nothing is said for a while, also while a call is being worked on; here one is idle only when
/// nobody waits for anything.
pub(super) struct Sessions {
    inner: LocalSessionManager,
    world: Arc<dyn World>,
    most: usize,
    idle: Duration,
    used: Mutex<HashMap<SessionId, Arc<Used>>>,
}

/// How a session is used.
#[derive(Default)]
struct Used {
    /// How many streams are open.
    open: AtomicUsize,
    /// When something was last wanted of it, in milliseconds.
    last: AtomicU64,
}

impl Sessions {
    pub(super) fn new(world: Arc<dyn World>, most: usize, idle: Duration) -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config.keep_alive = None;
        Self { inner, world, most, idle, used: Mutex::default() }
    }

    /// Whether there is room for one more; those that nobody uses make room.
    pub(super) async fn has_room(&self) -> bool {
        self.sweep().await;
        self.used().len() < self.most
    }

    async fn sweep(&self) {
        let now = self.world.now();
        let idle = |used: &Used| {
            let last = Timestamp::from_millis(used.last.load(Ordering::Relaxed));
            used.open.load(Ordering::Relaxed) == 0 && now.since(last) >= self.idle
        };
        let gone: Vec<SessionId> =
            self.used().iter().filter(|(_, used)| idle(used)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            let _ = self.close_session(&id).await;
        }
    }

    fn touch(&self, id: &SessionId) -> Option<Arc<Used>> {
        let used = self.used().get(id).cloned()?;
        used.last.store(self.world.now().as_millis(), Ordering::Relaxed);
        Some(used)
    }

    fn hold<S>(&self, id: &SessionId, stream: S) -> Held<S> {
        let used = self.touch(id).unwrap_or_default();
        used.open.fetch_add(1, Ordering::Relaxed);
        Held { stream: Box::pin(stream), used, world: self.world.clone() }
    }

    fn used(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Used>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that keeps its session from being idle.
struct Held<S> {
    stream: Pin<Box<S>>,
    used: Arc<Used>,
    world: Arc<dyn World>,
}

impl<S: Stream> Stream for Held<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl<S> Drop for Held<S> {
    fn drop(&mut self) {
        self.used.last.store(self.world.now().as_millis(), Ordering::Relaxed);
        self.used.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.inner.create_session().await?;
        self.used().insert(id.clone(), Arc::default());
        self.touch(&id);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.inner.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.touch(id);
        self.inner.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.used().remove(id);
        self.inner.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.hold(id, self.inner.create_stream(id, message).await?))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.touch(id);
        self.inner.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.hold(id, self.inner.create_standalone_stream(id).await?))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.hold(id, self.inner.resume(id, last_event_id).await?))
    }
}
