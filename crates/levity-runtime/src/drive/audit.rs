//! Replays runs after their end, to check that they give the same result.

use levity_core::{Divergence, Entry, Event, Machine, Record, RuntimeError};
use serde_json::Value;

use levity_driver::replay;

use super::Driver;
use crate::journal::NoLog;
use crate::runtime::LaterRestore;

/// The events of a run while it is driven, and the function that rebuilds its machine.
pub(crate) struct Audit<M> {
    restore: LaterRestore<M>,
    told: Vec<Event>,
    /// The first record that this process wrote.
    from: u64,
}

impl<M> Audit<M> {
    pub(crate) fn new(restore: LaterRestore<M>, from: u64) -> Self {
        Self {
            restore,
            told: Vec::new(),
            from,
        }
    }

    pub(super) fn hear(&mut self, events: &[Event]) {
        self.told.extend_from_slice(events);
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
        let records = self.around.shared.journal.read(&run).await?;
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
            .told
            .iter()
            .map(Some)
            .chain([None])
            .zip(events.iter().map(Some).chain([None]));
        let differs = pairs
            .into_iter()
            .find(|(told, again)| as_json(*told) != as_json(*again));
        if let Some((told, again)) = differs {
            let seq = told.or(again).map_or(0, |event| event.seq);
            let what = format!(
                "it emitted {}, but its replay emits {}",
                name(told),
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
