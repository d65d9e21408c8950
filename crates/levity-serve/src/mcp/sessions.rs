//! Sessions over HTTP: so many at most, and none that nobody uses.

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

use super::link::{Gone, Link, Wire};
use super::strand::Reader;
use crate::access::Caller;
use crate::quota::{Permit, Quota};

/// When there is no room, a session that was not used for this long makes room.
const SPARE: Duration = Duration::from_secs(60);
/// How often, at most and at least, it is looked which are used no more.
const SWEEP: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// The sessions that there are.
///
/// The library's own manager has no limit to them, ends one in which nothing is said for a while,
/// also while a call is being worked on, and cannot end all at once. Here one is idle only when
/// nobody waits for anything.
pub(super) struct Sessions {
    world: Arc<dyn World>,
    places: Arc<Quota>,
    idle: Duration,
    all: Mutex<HashMap<SessionId, Kept>>,
}

/// A session, which ends with this, and how it is used.
struct Kept {
    link: Arc<Link>,
    used: Arc<Used>,
    /// Whose it is.
    owner: Owner,
    _place: Permit,
}

tokio::task_local! {
    /// Who sends the request that is being answered: the library opens sessions without saying for
    /// whom.
    pub(super) static CALLER: Caller;
}

/// The name of a token; the owner of the server has none.
type Owner = Option<Arc<str>>;

fn owner(caller: &Caller) -> Owner {
    caller.name().map(Into::into)
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.link.close();
    }
}

#[derive(Default)]
struct Used {
    /// How many streams are open.
    open: AtomicUsize,
    /// When something was last wanted of it, in milliseconds.
    last: AtomicU64,
}

impl Used {
    /// How long nobody has wanted anything of it.
    fn idle(&self, now: Timestamp) -> Duration {
        match self.open.load(Ordering::Relaxed) {
            0 => now.since(Timestamp::from_millis(self.last.load(Ordering::Relaxed))),
            _ => Duration::ZERO,
        }
    }
}

impl Sessions {
    pub(super) fn new(world: Arc<dyn World>, places: Arc<Quota>, idle: Duration) -> Self {
        Self {
            world,
            places,
            idle,
            all: Mutex::default(),
        }
    }

    /// Whether there is room for one more; those that nobody uses make room.
    pub(super) fn has_room(&self, caller: &Caller) -> bool {
        self.sweep();
        self.take_place(caller).is_some()
    }

    /// A place for one more. Where there is none, the session that was idle longest makes room: one
    /// of the caller's own when those are too many.
    fn take_place(&self, caller: &Caller) -> Option<Permit> {
        if let Ok(place) = self.places.take(caller) {
            return Some(place);
        }
        let own = self.places.is_share_exhausted(caller);
        let now = self.world.now();
        let mut all = self.all();
        let candidates = all
            .iter()
            .filter(|(_, kept)| !own || kept.owner == owner(caller));
        let oldest = candidates.max_by_key(|(_, kept)| kept.used.idle(now));
        let spare = oldest
            .filter(|(_, kept)| kept.used.idle(now) >= SPARE)
            .map(|(id, _)| id.clone());
        let made = spare.and_then(|id| all.remove(&id));
        drop(all);
        drop(made?);
        self.places.take(caller).ok()
    }

    /// Whether a session is this caller's.
    pub(super) fn is_of(&self, id: &str, caller: &Caller) -> bool {
        self.all()
            .get(id)
            .is_some_and(|kept| kept.owner == owner(caller))
    }

    /// Ends those that nobody has used for long.
    fn sweep(&self) {
        let now = self.world.now();
        let mut all = self.all();
        all.retain(|_, kept| kept.used.idle(now) < self.idle);
        all.values().for_each(|kept| kept.link.forget());
    }

    /// Ends what nobody uses as time goes by, while there are sessions at all.
    pub(super) async fn sweep_all(sessions: Weak<Self>) {
        loop {
            let Some((world, idle)) = sessions.upgrade().map(|all| (all.world.clone(), all.idle))
            else {
                return;
            };
            world.sleep((idle / 4).clamp(SWEEP.0, SWEEP.1)).await;
            sessions.upgrade().iter().for_each(|all| all.sweep());
        }
    }

    /// Whether a client that comes back to a session has come for nothing.
    pub(super) fn has_no_more(&self, id: &str, event: &str) -> bool {
        self.get(&id.into())
            .is_ok_and(|(link, _)| !link.has_more(event))
    }

    /// Ends all of them.
    pub(super) fn close_all(&self) {
        self.all().clear();
    }

    fn get(&self, id: &SessionId) -> Result<(Arc<Link>, Arc<Used>), Gone> {
        let all = self.all();
        let kept = all.get(id).ok_or(Gone::Session)?;
        kept.used
            .last
            .store(self.world.now().as_millis(), Ordering::Relaxed);
        Ok((kept.link.clone(), kept.used.clone()))
    }

    fn hold(&self, used: Arc<Used>, reader: Reader) -> Held {
        used.open.fetch_add(1, Ordering::Relaxed);
        Held {
            reader,
            used,
            world: self.world.clone(),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Kept>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that keeps its session from being idle.
struct Held {
    reader: Reader,
    used: Arc<Used>,
    world: Arc<dyn World>,
}

impl Stream for Held {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        Pin::new(&mut self.reader).poll_next(cx)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.used
            .last
            .store(self.world.now().as_millis(), Ordering::Relaxed);
        self.used.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionManager for Sessions {
    type Error = Gone;
    type Transport = Wire;

    async fn create_session(&self) -> Result<(SessionId, Wire), Gone> {
        let id: SessionId =
            format!("{:016x}{:016x}", self.world.random(), self.world.random()).into();
        let (link, wire) = Link::new(self.world.clone());
        let caller = CALLER
            .try_with(Clone::clone)
            .unwrap_or_else(|_| Caller::anonymous());
        let place = self.take_place(&caller).ok_or(Gone::Full)?;
        let kept = Kept {
            link,
            used: Arc::default(),
            owner: owner(&caller),
            _place: place,
        };
        self.all().insert(id.clone(), kept);
        self.get(&id)?;
        Ok((id, wire))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Gone> {
        self.get(id)?.0.initialize(message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Gone> {
        Ok(self.get(id).is_ok())
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Gone> {
        self.all().remove(id);
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Gone> {
        let (link, used) = self.get(id)?;
        Ok(self.hold(used, link.request(message).await?))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Gone> {
        self.get(id)?.0.push(message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Gone> {
        let (link, used) = self.get(id)?;
        Ok(self.hold(used, link.common()?))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Gone> {
        let (link, used) = self.get(id)?;
        Ok(self.hold(used, link.resume(&last_event_id)?))
    }
}
