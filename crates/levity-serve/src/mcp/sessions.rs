//! Sessions over HTTP, limited in number and idle time.
//!
//! A session is idle while no stream of it is open. Idle sessions end after 30 minutes by default.
//! If no permit is free, the session that has been idle longest makes room, once it was idle for a
//! minute. A session belongs to the token that opened it: other tokens get 404, as if it did not
//! exist.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use levity_core::{Timestamp, World};
use levity_rpc::mcp::http_server::{ServerSseMessage, SessionId, SessionManager};
use levity_rpc::mcp::{ClientJsonRpcMessage, ServerJsonRpcMessage};

use super::event_stream::Reader;
use super::link::{Link, SessionError, Wire};
use crate::access::Caller;
use crate::quota::{Permit, Quota};

/// If no permit is free, a session that was idle for this long is closed.
const EVICTABLE_AFTER: Duration = Duration::from_secs(60);
/// The minimum and maximum interval of checks for idle sessions.
const SWEEP_INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// The open sessions.
///
/// The library's own manager has no limit of sessions. It also ends a session that is silent for a
/// while even if a call is in progress, and cannot end all at once. Here a session is idle only if
/// no client waits for anything.
pub(super) struct Sessions {
    world: Arc<dyn World>,
    quota: Arc<Quota>,
    idle: Duration,
    all: Mutex<HashMap<SessionId, SessionEntry>>,
}

/// A session with its usage. Dropping it ends the session.
struct SessionEntry {
    link: Arc<Link>,
    usage: Arc<SessionUsage>,
    /// The owner of the session.
    owner: Owner,
    permit: Permit,
}

tokio::task_local! {
    /// The caller of the current request, because the library opens sessions without one.
    pub(super) static CALLER: Caller;
}

/// The name of a token; `None` for the owner of the server.
type Owner = Option<Arc<str>>;

fn owner(caller: &Caller) -> Owner {
    caller.name().map(Into::into)
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// The activity of a session. An open stream keeps it alive without further requests.
#[derive(Default)]
struct SessionUsage {
    /// The number of open streams.
    open: AtomicUsize,
    /// The time of the last request, in milliseconds.
    last: AtomicU64,
}

impl SessionUsage {
    /// Returns the time for which the session has been idle.
    fn idle(&self, now: Timestamp) -> Duration {
        match self.open.load(Ordering::Relaxed) {
            0 => now.since(Timestamp::from_millis(self.last.load(Ordering::Relaxed))),
            _ => Duration::ZERO,
        }
    }
}

impl Sessions {
    pub(super) fn new(world: Arc<dyn World>, quota: Arc<Quota>, idle: Duration) -> Self {
        Self {
            world,
            quota,
            idle,
            all: Mutex::default(),
        }
    }

    /// Returns `true` if another session can be opened; idle sessions are closed for it.
    pub(super) fn has_room(&self, caller: &Caller) -> bool {
        self.sweep();
        self.take_permit(caller).is_some()
    }

    /// Takes a permit for another session. If none is free, the session that was idle longest is
    /// closed: one of the caller's tenant if that tenant has too many.
    fn take_permit(&self, caller: &Caller) -> Option<Permit> {
        if let Ok(permit) = self.quota.take(caller) {
            return Some(permit);
        }
        let own = self.quota.is_share_exhausted(caller);
        let now = self.world.now();
        let mut all = self.all();
        let candidates = all
            .iter()
            .filter(|(_, entry)| !own || entry.permit.tenant() == caller.namespace());
        let oldest = candidates.max_by_key(|(_, entry)| entry.usage.idle(now));
        let spare = oldest
            .filter(|(_, entry)| entry.usage.idle(now) >= EVICTABLE_AFTER)
            .map(|(id, _)| id.clone());
        let evicted = spare.and_then(|id| all.remove(&id));
        drop(all);
        drop(evicted?);
        self.quota.take(caller).ok()
    }

    /// Returns `true` if a session belongs to this caller.
    pub(super) fn is_owned_by(&self, id: &str, caller: &Caller) -> bool {
        self.all()
            .get(id)
            .is_some_and(|entry| entry.owner == owner(caller))
    }

    /// Closes sessions that have been idle for too long.
    fn sweep(&self) {
        let now = self.world.now();
        let mut all = self.all();
        all.retain(|_, entry| entry.usage.idle(now) < self.idle);
        all.values().for_each(|entry| entry.link.remove_expired());
    }

    /// Closes idle sessions periodically, while the server exists.
    pub(super) async fn sweep_all(sessions: Weak<Self>) {
        loop {
            let Some((world, idle)) = sessions.upgrade().map(|all| (all.world.clone(), all.idle))
            else {
                return;
            };
            world
                .sleep((idle / 4).clamp(SWEEP_INTERVAL.0, SWEEP_INTERVAL.1))
                .await;
            sessions.upgrade().iter().for_each(|all| all.sweep());
        }
    }

    /// Returns `true` if a client resumes a stream that has no more events.
    pub(super) fn is_stream_finished(&self, id: &str, event: &str) -> bool {
        self.get(&id.into())
            .is_ok_and(|(link, _)| !link.has_more(event))
    }

    /// Closes all sessions by removing them.
    pub(super) fn close_all(&self) {
        self.all().clear();
    }

    fn get(&self, id: &SessionId) -> Result<(Arc<Link>, Arc<SessionUsage>), SessionError> {
        let all = self.all();
        let entry = all.get(id).ok_or(SessionError::Session)?;
        entry
            .usage
            .last
            .store(self.world.now().as_millis(), Ordering::Relaxed);
        Ok((entry.link.clone(), entry.usage.clone()))
    }

    fn active_stream(&self, usage: Arc<SessionUsage>, reader: Reader) -> ActiveStream {
        usage.open.fetch_add(1, Ordering::Relaxed);
        ActiveStream {
            reader,
            usage,
            world: self.world.clone(),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, SessionEntry>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that keeps its session from being idle.
struct ActiveStream {
    reader: Reader,
    usage: Arc<SessionUsage>,
    world: Arc<dyn World>,
}

impl Stream for ActiveStream {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        Pin::new(&mut self.reader).poll_next(cx)
    }
}

impl Drop for ActiveStream {
    fn drop(&mut self) {
        self.usage
            .last
            .store(self.world.now().as_millis(), Ordering::Relaxed);
        self.usage.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionManager for Sessions {
    type Error = SessionError;
    type Transport = Wire;

    async fn create_session(&self) -> Result<(SessionId, Wire), SessionError> {
        let id: SessionId =
            format!("{:016x}{:016x}", self.world.random(), self.world.random()).into();
        let (link, wire) = Link::new(self.world.clone());
        let caller = CALLER
            .try_with(Clone::clone)
            .unwrap_or_else(|_| Caller::anonymous());
        let permit = self.take_permit(&caller).ok_or(SessionError::Full)?;
        let entry = SessionEntry {
            link,
            usage: Arc::default(),
            owner: owner(&caller),
            permit,
        };
        self.all().insert(id.clone(), entry);
        self.get(&id)?;
        Ok((id, wire))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        self.get(id)?.0.initialize(message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.get(id).is_ok())
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.all().remove(id);
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let (link, usage) = self.get(id)?;
        Ok(self.active_stream(usage, link.request(message).await?))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionError> {
        self.get(id)?.0.push(message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let (link, usage) = self.get(id)?;
        Ok(self.active_stream(usage, link.common()?))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let (link, usage) = self.get(id)?;
        Ok(self.active_stream(usage, link.resume(&last_event_id)?))
    }
}
