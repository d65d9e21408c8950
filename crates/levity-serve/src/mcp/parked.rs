//! Calls that wait for an answer of their client's between two requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::World;
use levity_rpc::mcp::{InputRequests, InputRequiredResult};
use ring::digest::{SHA256, digest};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::RequestError;
use super::drive::Case;
use super::seal::{Seal, Ticket};
use crate::access::Caller;
use crate::quota::{Permit, Quota};

/// What a request is about: its answers belong to no other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject([u8; 32]);

impl Subject {
    pub(super) fn new(
        caller: &Caller,
        method: &str,
        name: &str,
        args: &impl serde::Serialize,
    ) -> Self {
        let args = serde_json::to_string(args).unwrap_or_default();
        let whose = caller.name().unwrap_or_default();
        let hash = digest(
            &SHA256,
            format!("{whose}\0{method}\0{name}\0{args}").as_bytes(),
        );
        let mut subject = [0; 32];
        subject.copy_from_slice(hash.as_ref());
        Self(subject)
    }
}

/// A case between two requests, or about to be one.
pub(super) struct Waiting {
    pub(super) case: Case,
    subject: Subject,
    ticket: Ticket,
    /// Its place, while it waits.
    place: Option<Permit>,
    /// Whether it waits now; its time runs only then.
    waits: watch::Sender<bool>,
    /// Sees to its time. That is no part of the work: what came of work that has ended is not kept
    /// for ever, either.
    clock: JoinSet<()>,
}

/// All of them.
pub(super) struct Parked {
    seal: Seal,
    world: Arc<dyn World>,
    places: Arc<Quota>,
    limit: Duration,
    waiting: Mutex<HashMap<u128, Waiting>>,
}

impl Parked {
    pub(super) fn new(
        seal: Seal,
        world: Arc<dyn World>,
        places: Arc<Quota>,
        limit: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            seal,
            world,
            places,
            limit,
            waiting: Mutex::default(),
        })
    }

    /// A case that may come to wait.
    pub(super) fn begin(&self, case: Case, subject: Subject) -> Waiting {
        let id = u128::from(self.world.random()) << 64 | u128::from(self.world.random());
        let (waits, _) = watch::channel(false);
        let ticket = Ticket { id, round: 0 };
        Waiting {
            case,
            subject,
            ticket,
            place: None,
            waits,
            clock: JoinSet::new(),
        }
    }

    /// Lets a case wait, and says what the client has to answer.
    ///
    /// # Errors
    /// When too many wait already, of this caller or of all.
    pub(super) fn park(
        self: &Arc<Self>,
        caller: &Caller,
        mut waiting: Waiting,
        requests: InputRequests,
    ) -> Result<InputRequiredResult, RequestError> {
        let full = |_| {
            RequestError::busy("too many calls wait for answers of their clients; try again later")
        };
        waiting.place = Some(self.places.take(caller).map_err(full)?);
        let mut all = self.all();
        waiting.ticket.round = waiting.ticket.round.wrapping_add(1);
        waiting.case.send_away();
        if waiting.clock.is_empty() {
            waiting
                .clock
                .spawn(self.lapse(waiting.ticket.id, waiting.waits.subscribe()));
        }
        waiting.waits.send_replace(true);
        let state = self.seal.seal(waiting.ticket);
        all.insert(waiting.ticket.id, waiting);
        Ok(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// The case that `state` is about.
    ///
    /// # Errors
    /// When there is none: it is a stranger's, was used before, came too late, or is about another
    /// request.
    pub(super) fn take(&self, state: &str, subject: Subject) -> Result<Waiting, RequestError> {
        let ticket = self
            .seal
            .open(state)
            .ok_or_else(|| RequestError::invalid("`requestState` is not of this server"))?;
        let mut all = self.all();
        let waiting = all
            .get(&ticket.id)
            .filter(|waiting| waiting.ticket == ticket);
        let waiting = waiting.ok_or_else(|| {
            RequestError::invalid(
                "`requestState` was used before, or came too late; call again without it",
            )
        })?;
        if waiting.subject != subject {
            return Err(RequestError::invalid(
                "`requestState` belongs to another request",
            ));
        }
        let waiting = all.remove(&ticket.id);
        drop(all);
        let mut waiting =
            waiting.ok_or_else(|| RequestError::invalid("`requestState` was used before"))?;
        waiting.place = None;
        waiting.waits.send_replace(false);
        Ok(waiting)
    }

    /// Forgets the case once it has waited for as long as it may.
    fn lapse(
        self: &Arc<Self>,
        id: u128,
        mut waits: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (parked, world, limit) = (Arc::downgrade(self), self.world.clone(), self.limit);
        async move {
            loop {
                let changed = if *waits.borrow_and_update() {
                    tokio::select! {
                        changed = waits.changed() => changed,
                        () = world.sleep(limit) => {
                            let Some(parked) = parked.upgrade() else { return };
                            // Dropped behind the lock: what a handler does when it is dropped is
                            // its own.
                            drop(parked.lapsed(id, &waits));
                            continue;
                        }
                    }
                } else {
                    waits.changed().await
                };
                if changed.is_err() {
                    return;
                }
            }
        }
    }

    /// Takes out a case whose time is over, unless somebody has come for it at the last moment.
    fn lapsed(&self, id: u128, waits: &watch::Receiver<bool>) -> Option<Waiting> {
        let mut all = self.all();
        if waits.has_changed().unwrap_or(true) {
            None
        } else {
            all.remove(&id)
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u128, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
