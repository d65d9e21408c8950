//! Large events that several streams send at the same time, each kept in memory once.
//!
//! A snapshot of a view has up to several megabytes. A client that opens many streams and reads
//! none of them must not occupy that much memory for each. Streams therefore share the snapshot of
//! a run: a new stream gets an existing one, and the changes since then. Other large events are
//! shared if they are equal. The cache holds only weak references, so an event lives as long as a
//! stream sends it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use levity_core::{RunId, Timestamp};
use levity_observe::RunView;
use ring::digest::{SHA256, digest};
use serde::Serialize;

use super::problem::cause_text;
use crate::runs::{LiveRun, RunOutcome};

/// The maximum number of bytes that are handed to a connection at once.
pub(super) const PIECE: usize = 16 << 10;

/// An event of a stream with its revision, if it is a snapshot of a live run.
pub(super) struct SharedEvent {
    bytes: Bytes,
    pub(super) revision: u64,
}

/// The part of an event that a stream has not sent yet.
pub(super) struct UnsentEvent {
    event: Arc<SharedEvent>,
    sent: usize,
}

impl UnsentEvent {
    pub(super) fn new(event: Arc<SharedEvent>) -> Self {
        Self { event, sent: 0 }
    }

    /// Returns the next piece without copying it; `None` if all pieces were returned.
    pub(super) fn next_piece(&mut self) -> Option<Bytes> {
        let all = &self.event.bytes;
        let start = self.sent.min(all.len());
        let end = all.len().min(start + PIECE);
        self.sent = end;
        (start < end).then(|| all.slice(start..end))
    }
}

/// The relation of a run to this process, as a page shows it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct RunPlace {
    /// `true` if this process drives the run.
    pub(super) here: bool,
    /// The reason for which the run could not be driven to its end.
    pub(super) stopped: Option<String>,
}

impl RunPlace {
    pub(super) fn of(run: Option<&LiveRun>) -> Self {
        let outcome = run.and_then(LiveRun::ended);
        let here = run.is_some() && outcome.is_none();
        let stopped = match outcome {
            Some(RunOutcome::Stopped(cause)) => Some(cause_text(&cause)),
            _ => None,
        };
        Self { here, stopped }
    }
}

/// The data of a `view` event that is a snapshot.
#[derive(Serialize)]
struct SnapshotData<'a> {
    run: &'a RunId,
    view: &'a RunView,
    here: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<&'a str>,
}

/// The events that streams send at the moment.
#[derive(Default)]
pub(super) struct SharedEvents(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    snapshots: HashMap<RunId, CachedSnapshot>,
    /// Other events by the hash of their bytes.
    others: HashMap<[u8; 32], Weak<SharedEvent>>,
}

struct CachedSnapshot {
    source: SnapshotSource,
    place: RunPlace,
    event: Weak<SharedEvent>,
}

/// The state of a run that a snapshot shows.
enum SnapshotSource {
    Live(Weak<LiveRun>),
    /// The number of events, and the time of the last one.
    Stored(u64, Option<Timestamp>),
}

impl SharedEvents {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a snapshot of a run in memory that is newer than revision `after`. It may be older
    /// than the latest event; the run knows the changes since its revision.
    pub(super) fn live(&self, run: &Arc<LiveRun>, after: Option<u64>) -> Arc<SharedEvent> {
        let (mut inner, place) = (self.inner(), RunPlace::of(Some(run)));
        let is_same = |source: &SnapshotSource| match source {
            SnapshotSource::Live(source) => Weak::as_ptr(source) == Arc::as_ptr(run),
            SnapshotSource::Stored(..) => false,
        };
        let is_current = |event: &SharedEvent| {
            after.is_none_or(|after| event.revision > after)
                && run.view_changes(event.revision).0.is_some()
        };
        if let Some(event) = inner.snapshot(run.id(), &place, is_same)
            && is_current(&event)
        {
            return event;
        }
        let view = run.view();
        let event = snapshot_event(run.id(), &view, &place);
        inner.add(
            run.id(),
            SnapshotSource::Live(Arc::downgrade(run)),
            place,
            &event,
        );
        event
    }

    /// Returns the snapshot of a run that was read from the journal. `updated` is the time of its
    /// last event.
    pub(super) fn stored(
        &self,
        id: &RunId,
        view: &RunView,
        place: RunPlace,
        updated: Option<Timestamp>,
    ) -> Arc<SharedEvent> {
        let mut inner = self.inner();
        let is_same = |source: &SnapshotSource| {
            matches!(source, SnapshotSource::Stored(count, at)
                if (*count, *at) == (view.len(), updated))
        };
        if let Some(event) = inner.snapshot(id, &place, is_same) {
            return event;
        }
        let event = snapshot_event(id, view, &place);
        inner.add(
            id,
            SnapshotSource::Stored(view.len(), updated),
            place,
            &event,
        );
        event
    }

    /// Returns an event with these bytes, which is shared with other streams if it is large.
    pub(super) fn share(&self, bytes: Vec<u8>) -> Arc<SharedEvent> {
        let shared = |bytes: Vec<u8>| {
            Arc::new(SharedEvent {
                bytes: bytes.into(),
                revision: 0,
            })
        };
        if bytes.len() <= PIECE {
            return shared(bytes);
        }
        let mut inner = self.inner();
        let hash = hash(&bytes);
        if let Some(event) = inner.others.get(&hash).and_then(Weak::upgrade) {
            return event;
        }
        let event = shared(bytes);
        inner.others.retain(|_, event| event.strong_count() > 0);
        inner.others.insert(hash, Arc::downgrade(&event));
        event
    }
}

impl Inner {
    fn snapshot(
        &self,
        id: &RunId,
        place: &RunPlace,
        is_same: impl Fn(&SnapshotSource) -> bool,
    ) -> Option<Arc<SharedEvent>> {
        let cached = self.snapshots.get(id)?;
        let is_same = cached.place == *place && is_same(&cached.source);
        is_same.then(|| cached.event.upgrade())?
    }

    fn add(
        &mut self,
        id: &RunId,
        source: SnapshotSource,
        place: RunPlace,
        event: &Arc<SharedEvent>,
    ) {
        self.snapshots
            .retain(|_, cached| cached.event.strong_count() > 0);
        let event = Arc::downgrade(event);
        let cached = CachedSnapshot {
            source,
            place,
            event,
        };
        self.snapshots.insert(id.clone(), cached);
    }
}

/// Returns the SHA-256 hash of a text.
pub(super) fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn snapshot_event(run: &RunId, view: &RunView, place: &RunPlace) -> Arc<SharedEvent> {
    let data = SnapshotData {
        run,
        view,
        here: place.here,
        stopped: place.stopped.as_deref(),
    };
    Arc::new(SharedEvent {
        bytes: event_bytes("view", &data).into(),
        revision: view.revision(),
    })
}

/// Returns the bytes of a server-sent event.
pub(super) fn event_bytes(name: &str, data: &impl Serialize) -> Vec<u8> {
    let mut bytes = format!("event: {name}\ndata: ").into_bytes();
    let start = bytes.len();
    // Views and JSON values always serialize; an empty object is valid in any case.
    if serde_json::to_writer(&mut bytes, data).is_err() {
        bytes.truncate(start);
        bytes.extend_from_slice(b"{}");
    }
    bytes.extend_from_slice(b"\n\n");
    bytes.shrink_to_fit();
    bytes
}
