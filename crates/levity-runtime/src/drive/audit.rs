//! Replays runs after their end, to check that they give the same result.
//!
//! The audit is for tests and for programs that prefer a failure to a run that cannot be resumed.
//! It compares the events as JSON, byte for byte, and the saved state of the machine.

use levity_core::{Divergence, Entry, Event, Machine, Record, RuntimeError};
use serde_json::Value;

use levity_driver::replay;

use super::Driver;
use crate::journal::NoLog;
use crate::runtime::LaterRestore;

/// The events of a run while it is driven, and the function that rebuilds its machine.
pub(crate) struct Audit<M> {
    restore: LaterRestore<M>,
    emitted: Vec<Event>,
    /// The first record that this process wrote.
    from: u64,
}

impl<M> Audit<M> {
    pub(crate) fn new(restore: LaterRestore<M>, from: u64) -> Self {
        Self {
            restore,
            emitted: Vec::new(),
            from,
        }
    }

    pub(super) fn record_events(&mut self, events: &[Event]) {
        self.emitted.extend_from_slice(events);
    }
}

impl<M: Machine + 'static> Driver<M> {
    /// Replays the run from its journal, and compares the events and the state of the machine.
    pub(super) async fn check(&mut self) -> Result<(), RuntimeError> {
        let Some(audit) = self.audit.take().filter(|_| self.keeps()) else {
            return Ok(());
        };
        // The run has ended, and some journals can be read only while no process drives the run.
        drop(std::mem::replace(&mut self.log, Box::new(NoLog)));
        let run = self.core.run().clone();
        let records = self.env.shared.journal.read(&run).await?;
        let Some(Record {
            entry: Entry::Opened(opened),
            ..
        }) = records.first()
        else {
            return Ok(());
        };
        let restored = (audit.restore)(opened.machine.clone(), opened.state.clone()).await;
        let restored = restored.map_err(|reason| RuntimeError::Restore {
            run: run.clone(),
            reason,
        })?;
        let again = replay(&run, &records, |_, _| Ok(restored))?;
        let events: Vec<Event> = again
            .events
            .into_iter()
            .filter(|event| event.seq >= audit.from)
            .collect();
        let pairs = audit
            .emitted
            .iter()
            .map(Some)
            .chain([None])
            .zip(events.iter().map(Some).chain([None]));
        let differs = pairs
            .into_iter()
            .find(|(emitted, again)| as_json(*emitted) != as_json(*again));
        if let Some((emitted, again)) = differs {
            let seq = emitted.or(again).map_or(0, |event| event.seq);
            let what = format!(
                "it emitted {}, but its replay emits {}",
                name(emitted),
                name(again)
            );
            return Err(Divergence::new(&run, seq, None, what).into());
        }
        if again.machine.save() != self.core.machine().save() {
            let what = "its replayed machine reaches another state";
            return Err(Divergence::new(&run, self.core.seq(), None, what).into());
        }
        Ok(())
    }
}

fn as_json(event: Option<&Event>) -> Option<String> {
    event.and_then(|event| serde_json::to_string(event).ok())
}

/// Returns the name of an event, without its content, which may be confidential.
fn name(event: Option<&Event>) -> String {
    let kind = event.and_then(|event| serde_json::to_value(&event.kind).ok());
    match kind {
        Some(Value::String(name)) => format!("`{name}`"),
        Some(Value::Object(map)) => format!("`{}`", map.keys().next().map_or("", String::as_str)),
        _ => "nothing more".to_owned(),
    }
}
