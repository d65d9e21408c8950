//! Calls that wait for an answer of their client between two requests.
//!
//! Since protocol version 2026-07-28, a question is the result of the call, and the client repeats
//! the call with its answers. In between, the work continues here. The client gets a sealed ticket,
//! `requestState`, which names the call and its round, so an answer can neither be forged nor used
//! twice. The call is also bound to its caller, method, name and arguments. A client that does not
//! come back within [`McpLimits::answer`](super::McpLimits::answer) loses the call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::World;
use levity_rpc::mcp::{InputRequests, InputRequiredResult};
use ring::digest::{SHA256, digest};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::RequestError;
use super::seal::{Seal, Ticket};
use super::work::CallWork;
use crate::access::Caller;
use crate::quota::{Permit, Quota};

/// Identifies a request, so that its answers belong to no other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestSubject([u8; 32]);

impl RequestSubject {
    /// Hashes everything that identifies a request: caller, method, name and arguments, separated
    /// by zero bytes.
    pub(super) fn new(
        caller: &Caller,
        method: &str,
        name: &str,
        args: &impl serde::Serialize,
    ) -> Self {
        let args = serde_json::to_string(args).unwrap_or_default();
        let name_of_caller = caller.name().unwrap_or_default();
        let hash = digest(
            &SHA256,
            format!("{name_of_caller}\0{method}\0{name}\0{args}").as_bytes(),
        );
        let mut subject = [0; 32];
        subject.copy_from_slice(hash.as_ref());
        Self(subject)
    }
}

/// A call that waits between two requests, or may do so.
pub(super) struct PausedCall {
    pub(super) call: CallWork,
    subject: RequestSubject,
    ticket: Ticket,
    /// Its permit while it waits.
    permit: Option<Permit>,
    /// `true` while the call waits; its timeout runs only then.
    is_waiting: watch::Sender<bool>,
    /// Runs the timeout. It is separate from the work, so that results of finished work expire as
    /// well.
    clock: JoinSet<()>,
}

/// All paused calls of a server.
pub(super) struct PausedCalls {
    seal: Seal,
    world: Arc<dyn World>,
    quota: Arc<Quota>,
    limit: Duration,
    waiting: Mutex<HashMap<u128, PausedCall>>,
}

impl PausedCalls {
    pub(super) fn new(
        seal: Seal,
        world: Arc<dyn World>,
        quota: Arc<Quota>,
        limit: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            seal,
            world,
            quota,
            limit,
            waiting: Mutex::default(),
        })
    }

    /// Creates a call that may be paused later.
    pub(super) fn begin(&self, call: CallWork, subject: RequestSubject) -> PausedCall {
        let id = u128::from(self.world.random()) << 64 | u128::from(self.world.random());
        let (is_waiting, _) = watch::channel(false);
        let ticket = Ticket { id, round: 0 };
        PausedCall {
            call,
            subject,
            ticket,
            permit: None,
            is_waiting,
            clock: JoinSet::new(),
        }
    }

    /// Pauses a call, and returns the questions that the client has to answer.
    ///
    /// # Errors
    /// Fails if too many calls wait already, of this caller or in total.
    pub(super) fn pause(
        self: &Arc<Self>,
        caller: &Caller,
        mut waiting: PausedCall,
        requests: InputRequests,
    ) -> Result<InputRequiredResult, RequestError> {
        let full = |_| {
            RequestError::busy(
                "too many calls are waiting for answers of their clients; try again \
                later",
            )
        };
        waiting.permit = Some(self.quota.take(caller).map_err(full)?);
        let mut all = self.all();
        waiting.ticket.round = waiting.ticket.round.wrapping_add(1);
        waiting.call.move_to_background();
        if waiting.clock.is_empty() {
            waiting
                .clock
                .spawn(self.expire(waiting.ticket.id, waiting.is_waiting.subscribe()));
        }
        waiting.is_waiting.send_replace(true);
        let state = self.seal.seal(waiting.ticket);
        all.insert(waiting.ticket.id, waiting);
        Ok(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// Returns the paused call that `state` identifies.
    ///
    /// # Errors
    /// Fails if there is none: the state is foreign, was used before, expired, or belongs to
    /// another request.
    pub(super) fn take(
        &self,
        state: &str,
        subject: RequestSubject,
    ) -> Result<PausedCall, RequestError> {
        let ticket = self.seal.open(state).ok_or_else(|| {
            RequestError::invalid(
                "`requestState` is not from this server; call \
                again without it",
            )
        })?;
        let mut all = self.all();
        let waiting = all
            .get(&ticket.id)
            .filter(|waiting| waiting.ticket == ticket);
        let waiting = waiting.ok_or_else(|| {
            RequestError::invalid(
                "`requestState` was used before or has expired; call again without it",
            )
        })?;
        if waiting.subject != subject {
            return Err(RequestError::invalid(
                "`requestState` belongs to another request; send it with that one",
            ));
        }
        let waiting = all.remove(&ticket.id);
        drop(all);
        let mut waiting = waiting.ok_or_else(|| {
            RequestError::invalid(
                "`requestState` was used before; call \
                again without it",
            )
        })?;
        waiting.permit = None;
        waiting.is_waiting.send_replace(false);
        Ok(waiting)
    }

    /// Removes the call when its timeout has expired.
    fn expire(
        self: &Arc<Self>,
        id: u128,
        mut is_waiting: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (paused_calls, world, limit) = (Arc::downgrade(self), self.world.clone(), self.limit);
        async move {
            loop {
                let changed = if *is_waiting.borrow_and_update() {
                    tokio::select! {
                        changed = is_waiting.changed() => changed,
                        () = world.sleep(limit) => {
                            let Some(paused_calls) = paused_calls.upgrade() else { return };
                            // The call is dropped outside the lock, because a handler may run its
                            // own code on drop.
                            drop(paused_calls.take_expired(id, &is_waiting));
                            continue;
                        }
                    }
                } else {
                    is_waiting.changed().await
                };
                if changed.is_err() {
                    return;
                }
            }
        }
    }

    /// Removes an expired call, unless it was resumed at the last moment.
    fn take_expired(&self, id: u128, is_waiting: &watch::Receiver<bool>) -> Option<PausedCall> {
        let mut all = self.all();
        if is_waiting.has_changed().unwrap_or(true) {
            None
        } else {
            all.remove(&id)
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u128, PausedCall>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
