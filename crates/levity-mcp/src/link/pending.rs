//! Which requests still wait for an answer.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, RequestId};

/// The requests that were sent and not yet answered or cancelled.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<HashMap<RequestId, Asked>>);

#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: Kind,
    /// Whether all of it was written.
    written: bool,
}

/// What was asked, as far as it decides how the answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request that stays open while the connection lasts, and that rmcp itself reads the answer to.
    Listen,
    /// Anything else.
    Other,
}

impl Pending {
    /// Notes a message that is about to be sent.
    pub(crate) fn sent(&self, message: &ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(request) => {
                let kind = match &request.request {
                    ClientRequest::SubscriptionsListenRequest(_) => Kind::Listen,
                    _ => Kind::Other,
                };
                self.lock().insert(request.id.clone(), Asked { kind, written: false });
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.cancel(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    /// Notes that a request was written to its end.
    pub(crate) fn written(&self, id: &RequestId) {
        if let Some(asked) = self.lock().get_mut(id) {
            asked.written = true;
        }
    }

    /// Forgets a request that nobody waits for any more; says whether the server may know of it.
    pub(crate) fn cancel(&self, id: &RequestId) -> bool {
        self.lock().remove(id).is_none_or(|asked| asked.written)
    }

    /// Forgets a request that was never sent.
    pub(crate) fn forget(&self, id: &RequestId) {
        self.lock().remove(id);
    }

    /// What was asked by this id; none when nothing waits for it.
    pub(crate) fn kind(&self, id: &RequestId) -> Option<Kind> {
        let pending = self.lock();
        pending.get(id).or_else(|| pending.get(&other(id)?)).map(|asked| asked.kind)
    }

    /// Takes the request that an answer with this id belongs to, by the id it was sent with. Servers that turn numbers into
    /// strings, or back, are understood.
    pub(crate) fn take(&self, id: &RequestId) -> Option<(RequestId, Kind)> {
        let mut pending = self.lock();
        let found = pending.remove_entry(id).or_else(|| pending.remove_entry(&other(id)?));
        found.map(|(id, asked)| (id, asked.kind))
    }

    /// Takes every request that an answer without an id may belong to: nobody can tell which it is, and a request that fails for
    /// another's sake is better than one that waits for ever. What stays open by design is left out, unless it is alone.
    pub(crate) fn take_any(&self) -> Vec<RequestId> {
        let mut pending = self.lock();
        let alone = pending.values().all(|asked| asked.kind == Kind::Listen);
        let taken = pending.extract_if(|_, asked| asked.kind != Kind::Listen || alone);
        taken.map(|(id, _)| id).collect()
    }

    /// How many requests wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Asked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same id written the other way: a number as a string, or a string as the number it spells.
fn other(id: &RequestId) -> Option<RequestId> {
    match id {
        RequestId::Number(number) => Some(RequestId::String(number.to_string().into())),
        RequestId::String(text) => text.parse().ok().map(RequestId::Number),
    }
}
