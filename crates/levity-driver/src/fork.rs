//! Runs that continue differently from a record of an existing run.
//!
//! A fork copies records instead of referring to them, and adapts two things. The first record
//! describes the new machine and names the origin. The fingerprints of effects are computed again,
//! since the new machine may have another prompt.

use levity_core::{
    Divergence, EffectKind, Entry, ForkPoint, Machine, Record, RunHeader, RunId, RuntimeError,
    Timestamp, idempotency_key,
};

use crate::state::State;

/// Returns the first records of an existing run that a fork begins with: up to `after` or, without
/// it, all records of a run in progress and all before the last model call of an ended run.
///
/// # Errors
/// Returns an error if there are no records, or `after` is not among them.
///
/// ```
/// use levity_core::{Entry, Limits, MachineKind, Record, RunHeader, RunId, Status, Timestamp};
/// use levity_driver::cut;
///
/// let kind = MachineKind::new("agent", 1);
/// let header = RunHeader::new(kind, serde_json::Value::Null, Limits::new());
/// let entries = [Entry::Opened(header), Entry::Ended(Status::Complete)];
/// let records: Vec<_> = (0..)
///     .zip(entries)
///     .map(|(seq, entry)| Record::new(seq, Timestamp::default(), entry))
///     .collect();
/// let run = RunId::new("r1");
/// assert_eq!(cut(&run, records.clone(), None)?.len(), 1); // without the end
/// assert!(cut(&run, records, Some(7)).is_err());
/// # Ok::<(), levity_core::RuntimeError>(())
/// ```
pub fn cut(
    run: &RunId,
    mut records: Vec<Record>,
    after: Option<u64>,
) -> Result<Vec<Record>, RuntimeError> {
    let ended = matches!(
        records.last().map(|record| &record.entry),
        Some(Entry::Ended(_))
    );
    let last_call = records.iter().rposition(|record| match &record.entry {
        Entry::Started { note, .. } => note.kind == EffectKind::Model,
        _ => false,
    });
    let end = records.len() - usize::from(ended);
    let count = match after {
        Some(after) => usize::try_from(after)
            .unwrap_or(usize::MAX)
            .saturating_add(1),
        None if ended => last_call.unwrap_or(end),
        None => end,
    };
    if records.is_empty() {
        return Err(RuntimeError::NotFound(run.clone()));
    }
    if count == 0 || count > end {
        let reason = format!(
            "the last shared record must be between 0 and {}",
            end.saturating_sub(1)
        );
        return Err(RuntimeError::Fork {
            run: run.clone(),
            reason,
        });
    }
    records.truncate(count);
    Ok(records)
}

/// A fork: the first records of an existing run, adapted to the new machine.
///
/// ```
/// use levity_core::{Limits, MachineKind, RunHeader, Timestamp};
/// use levity_driver::Fork;
///
/// let kind = MachineKind::new("agent", 1);
/// let opened = RunHeader::new(kind, serde_json::Value::Null, Limits::new());
/// let fork = Fork { from: "monday".into(), opened, now: Timestamp::from_millis(5) };
/// assert_eq!(fork.from.as_str(), "monday");
/// ```
#[derive(Debug)]
pub struct Fork {
    /// The id of the existing run.
    pub from: RunId,
    /// The record that opened the existing run, with the limits and the setup of the new one.
    pub opened: RunHeader,
    /// The time at which the new run is opened.
    pub now: Timestamp,
}

impl Fork {
    /// Folds the old records into the new run, and returns them in the form that the new run
    /// writes.
    pub(crate) fn fold<M: Machine>(
        self,
        state: &mut State<M>,
        records: Vec<Record>,
    ) -> Result<Vec<Record>, Divergence> {
        let mut opened = RunHeader::new(
            state.machine.kind(),
            state.machine.save(),
            *self.opened.limits,
        );
        (opened.wrap, opened.low) = (self.opened.wrap, self.opened.low);
        (opened.setup, opened.screens_input) = (self.opened.setup, self.opened.screens_input);
        opened.forked = Some(ForkPoint::new(
            self.from.clone(),
            (records.len() as u64).saturating_sub(1),
        ));
        let mut written = Vec::with_capacity(records.len());
        for mut record in records {
            match &mut record.entry {
                Entry::Opened(old) => {
                    *old = opened.clone();
                    record.at = self.now;
                }
                // Record the current inputs, so that the fork replays without divergence.
                Entry::Started { effect, note } => {
                    for (name, digest) in state.inputs(*effect) {
                        note.inputs.retain(|(old, _)| *old != name);
                        note.inputs.push((name, digest));
                    }
                    // External services know a call that had begun by its original key.
                    if note.kind == EffectKind::Tool {
                        note.key
                            .get_or_insert_with(|| idempotency_key(&self.from, *effect));
                    }
                }
                _ => {}
            }
            state.apply(record.clone(), None)?;
            written.push(record);
        }
        Ok(written)
    }
}
