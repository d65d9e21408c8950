//! The events of runs that were recently viewed at an earlier point.
//!
//! A page that moves a scrubber requests many views of the same run. Without the cache, each
//! request would replay the run from the journal. Only runs that cannot have changed are taken from
//! it: ended ones, for a minute, and runs in this process that have emitted no event since.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity_core::{Event, EventKind, RunId, Timestamp};

/// The maximum number of runs.
const MAX_RUNS: usize = 4;
/// The maximum size of all events as JSON.
const MAX_BYTES: usize = 16 << 20;
/// The time for which an ended run is cached: another process may remove it.
const MAX_AGE: Duration = Duration::from_secs(60);

/// The cached events, the latest run last.
#[derive(Default)]
pub(super) struct EventCache(Mutex<VecDeque<CachedRun>>);

struct CachedRun {
    id: RunId,
    events: Arc<Vec<Event>>,
    bytes: usize,
    ended: bool,
    at: Timestamp,
}

impl EventCache {
    fn runs(&self) -> MutexGuard<'_, VecDeque<CachedRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the events of a run. `live` is the number of its events, if it is in memory.
    pub(super) fn get(
        &self,
        id: &RunId,
        live: Option<u64>,
        now: Timestamp,
    ) -> Option<Arc<Vec<Event>>> {
        let runs = self.runs();
        let run = runs.iter().find(|run| run.id == *id)?;
        let current = match live {
            Some(count) => run.events.len() as u64 == count,
            None => run.ended && now.since(run.at) < MAX_AGE,
        };
        current.then(|| run.events.clone())
    }

    /// Adds the events of a run in place of earlier ones, unless they are too large.
    pub(super) fn add(&self, id: &RunId, events: &Arc<Vec<Event>>, now: Timestamp) {
        let bytes = size_of(events);
        let is_end =
            |event: &Event| event.run == *id && matches!(event.kind, EventKind::RunEnded(_));
        let run = CachedRun {
            id: id.clone(),
            events: events.clone(),
            bytes,
            ended: events.iter().any(is_end),
            at: now,
        };
        self.remove(id);
        if bytes > MAX_BYTES {
            return;
        }
        let mut runs = self.runs();
        runs.push_back(run);
        while runs.len() > MAX_RUNS || runs.iter().map(|run| run.bytes).sum::<usize>() > MAX_BYTES {
            runs.pop_front();
        }
    }

    pub(super) fn remove(&self, id: &RunId) {
        self.runs().retain(|run| run.id != *id);
    }
}

/// Returns the size of events as JSON.
fn size_of(events: &[Event]) -> usize {
    let mut count = Count(0);
    for event in events {
        // Counting cannot fail, and an event that is no JSON has no size.
        let _ = serde_json::to_writer(&mut count, event);
    }
    count.0
}

/// Counts the bytes that are written to it.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(count: u64, ended: bool) -> Arc<Vec<Event>> {
        let event = |seq, kind| Event::new("r".into(), seq, Timestamp::default(), kind);
        let mut events: Vec<_> = (0..count)
            .map(|seq| event(seq, EventKind::Paused))
            .collect();
        if ended {
            let ending = levity_core::Ending::new(levity_core::Status::Complete);
            events.push(event(count, EventKind::RunEnded(Box::new(ending))));
        }
        events.into()
    }

    #[test]
    fn cache_returns_only_runs_that_cannot_have_changed() {
        let (cache, at) = (EventCache::default(), Timestamp::from_millis);
        let id = RunId::new("r");
        cache.add(&id, &events(3, false), at(0));
        assert!(cache.get(&id, Some(3), at(1)).is_some());
        assert!(cache.get(&id, Some(4), at(1)).is_none());
        assert!(
            cache.get(&id, None, at(1)).is_none(),
            "another process may drive it"
        );
        cache.add(&id, &events(3, true), at(0));
        assert_eq!(cache.get(&id, None, at(59_999)).unwrap().len(), 4);
        assert!(cache.get(&id, None, at(60_000)).is_none());
        cache.remove(&id);
        assert!(cache.get(&id, None, at(0)).is_none());
    }

    #[test]
    fn cache_is_bounded() {
        let cache = EventCache::default();
        for run in ["a", "b", "c", "d", "e"] {
            cache.add(&run.into(), &events(2, true), Timestamp::default());
        }
        assert!(
            cache
                .get(&"a".into(), Some(3), Timestamp::default())
                .is_none()
        );
        assert!(
            cache
                .get(&"e".into(), Some(3), Timestamp::default())
                .is_some()
        );
    }
}
