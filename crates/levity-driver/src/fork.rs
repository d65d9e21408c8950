//! Runs that go another way from a record of an old one.

use levity_core::{
    Divergence, EffectKind, Entry, Forked, Machine, Opened, Record, RunId, RuntimeError, Timestamp,
    idempotency_key,
};

use crate::state::State;

/// The first records of an old run that a new one begins with: up to one of them or, of a run that
/// has ended, all before the last call of a model.
///
/// # Errors
/// When there are no records, or `after` is not among them.
pub fn cut(
    run: &RunId,
    mut records: Vec<Record>,
    after: Option<u64>,
) -> Result<Vec<Record>, RuntimeError> {
    let ended = matches!(
        records.last().map(|record| &record.entry),
        Some(Entry::Ended(_))
    );
    let last_call = records.iter().rposition(
        |record| matches!(&record.entry, Entry::Started { note, .. } if note.kind == EffectKind::Model),
    );
    let most = records.len() - usize::from(ended);
    let count = match after {
        Some(after) => usize::try_from(after)
            .unwrap_or(usize::MAX)
            .saturating_add(1),
        None if ended => last_call.unwrap_or(most),
        None => most,
    };
    if records.is_empty() {
        return Err(RuntimeError::NotFound(run.clone()));
    }
    if count == 0 || count > most {
        let reason = format!(
            "its last record to begin with is one of 0 to {}",
            most.saturating_sub(1)
        );
        return Err(RuntimeError::Fork {
            run: run.clone(),
            reason,
        });
    }
    records.truncate(count);
    Ok(records)
}

/// What a fork is made of: the old run's first records, told as the new machine takes them.
#[derive(Debug)]
pub struct Fork {
    /// The old run.
    pub from: RunId,
    /// The record that opened the old run, with the limits and the setup of the new one.
    pub opened: Opened,
    /// The time at which the new run is opened.
    pub now: Timestamp,
}

impl Fork {
    /// Folds the old records into the new run, and returns them as they are written there.
    pub(crate) fn fold<M: Machine>(
        self,
        state: &mut State<M>,
        records: Vec<Record>,
    ) -> Result<Vec<Record>, Divergence> {
        let mut opened = Opened::new(
            state.machine.kind(),
            state.machine.save(),
            *self.opened.limits,
        );
        (opened.wrap, opened.low) = (self.opened.wrap, self.opened.low);
        (opened.setup, opened.hears) = (self.opened.setup, self.opened.hears);
        opened.forked = Some(Forked::new(
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
                // What goes in now is told, so that the fork replays as it is.
                Entry::Started { effect, note } => {
                    for (name, digest) in state.inputs(*effect) {
                        note.inputs.retain(|(old, _)| *old != name);
                        note.inputs.push((name, digest));
                    }
                    // What had begun is known outside by the key that it had then.
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
