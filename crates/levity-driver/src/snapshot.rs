//! The state of a run as data.
//!
//! A snapshot is an optimization and never the only copy: it may be deleted, rejected or outdated
//! at any time, and the records then give the same state. So it accepts only its own version,
//! unknown fields are an error, and nothing of it is migrated.

use levity_core::{
    CallId, Effect, EffectId, EffectNote, Machine, MachineKind, RunHeader, RunId, Snapshot,
    Spending, Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::Tally;
use crate::driver::{DriverSettings, RunDriver};
use crate::state::{Running, State};

/// The version of levity whose snapshots are accepted. Other versions may save machines
/// differently.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The state of a run after some of its records: enough to resume it without those records.
///
/// A [`RunDriver`] creates one with [`snapshot`](RunDriver::snapshot), and a driver resumes from
/// one with [`restore`](RunDriver::restore).
///
/// ```
/// use levity_core::Snapshot;
/// use levity_driver::RunSnapshot;
/// use serde_json::json;
///
/// let old = Snapshot::new(40, json!({"version": "0.0.1"}));
/// let error = RunSnapshot::read(old).unwrap_err();
/// assert_eq!(error, "the snapshot is from another version of levity");
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSnapshot {
    version: String,
    /// The record that opened the run, without the first state of its machine.
    opened: RunHeader,
    opened_at: Timestamp,
    seq: u64,
    /// The kind of the machine at the time of the snapshot, and its state.
    kind: MachineKind,
    machine: Value,
    wanted: Vec<(EffectId, Effect)>,
    under_way: Vec<EffectInProgress>,
    /// The calls without a final outcome, in order, and whether they run alone.
    line: Vec<(CallId, bool)>,
    paused: bool,
    wrapped: bool,
    low: bool,
    said: usize,
    spent: Spending,
}

/// An effect that has begun and not finished.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EffectInProgress {
    id: EffectId,
    effect: Effect,
    note: EffectNote,
    seq: u64,
    cleared: bool,
    again: bool,
}

impl RunSnapshot {
    /// Reads a snapshot from a journal.
    ///
    /// # Errors
    /// Returns an error if it is from another version of levity or damaged. Fold the records
    /// instead.
    ///
    /// ```
    /// use levity_core::Snapshot;
    /// use levity_driver::RunSnapshot;
    /// use serde_json::json;
    ///
    /// let foreign = Snapshot::new(40, json!({"some": "other state"}));
    /// assert!(RunSnapshot::read(foreign).is_err()); // use the records instead
    /// ```
    pub fn read(snapshot: Snapshot) -> Result<Self, String> {
        let version = snapshot.state.get("version").and_then(Value::as_str);
        if version != Some(VERSION) {
            return Err("the snapshot is from another version of levity".to_owned());
        }
        let read: Self =
            serde_json::from_value(snapshot.state).map_err(|error| error.to_string())?;
        if read.seq != snapshot.seq || read.seq == 0 {
            return Err("the snapshot does not match its record number".to_owned());
        }
        Ok(read)
    }

    /// Returns the record that opened the run, without the first state of its machine.
    pub fn opened(&self) -> &RunHeader {
        &self.opened
    }

    /// Returns the number of the first record that is not included.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the kind and the state of the machine.
    pub fn machine(&self) -> (&MachineKind, &Value) {
        (&self.kind, &self.machine)
    }
}

impl<M: Machine> RunDriver<M> {
    /// Returns the state of the run after its last record, for the journal. Returns `None` if there
    /// is nothing to resume: before the run is opened, once it has ended, or if
    /// [`DriverSettings::snapshots`] is off.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let state = self.state();
        let opened = state
            .opened_as
            .as_deref()
            .filter(|_| !state.ended && self.settings().snapshots)?;
        let effect = |id, running: &Running| {
            let stored = running.effect.as_ref().or(running.launched.as_deref());
            stored.or_else(|| self.pending_lookup(id)).cloned()
        };
        let under_way = state.running.iter().map(|(id, running)| {
            let (note, seq, cleared, again) = (
                running.note.clone(),
                running.seq,
                running.cleared,
                running.again,
            );
            Some(EffectInProgress {
                id,
                effect: effect(id, running)?,
                note,
                seq,
                cleared,
                again,
            })
        });
        let snapshot = RunSnapshot {
            version: VERSION.to_owned(),
            opened: opened.clone(),
            opened_at: state.opened,
            seq: state.seq,
            kind: state.machine.kind(),
            machine: state.machine.save(),
            wanted: state
                .queue
                .iter()
                .map(|(id, wanted)| (id, wanted.effect.clone()))
                .collect(),
            under_way: under_way.collect::<Option<_>>()?,
            line: state
                .line
                .calls()
                .map(|(call, alone)| (call.clone(), alone))
                .collect(),
            paused: state.paused,
            wrapped: state.wrapped,
            low: state.low,
            said: state.pending_messages,
            spent: state.tally.0,
        };
        let state = serde_json::to_value(&snapshot).ok()?;
        Some(Snapshot::new(snapshot.seq, state))
    }

    /// Creates a driver that resumes from a snapshot. Build `machine` from
    /// [`RunSnapshot::machine`], and feed the driver the records that follow.
    pub fn restore(
        run: RunId,
        machine: M,
        snapshot: RunSnapshot,
        settings: DriverSettings,
    ) -> Self {
        let mut state = State::new(run, machine);
        state.opened_as = settings.snapshots.then(|| Box::new(snapshot.opened));
        (state.opened, state.seq) = (snapshot.opened_at, snapshot.seq);
        (state.paused, state.wrapped, state.low) =
            (snapshot.paused, snapshot.wrapped, snapshot.low);
        (state.pending_messages, state.tally) = (snapshot.said, Tally(snapshot.spent));
        for (call, alone) in &snapshot.line {
            state.line.join(call, *alone);
        }
        for (id, effect) in snapshot.wanted {
            state.rejoin(&effect);
            state.want(id, effect);
        }
        for EffectInProgress {
            id,
            effect,
            note,
            seq,
            cleared,
            again,
        } in snapshot.under_way
        {
            state.running.insert(
                id,
                Running {
                    again,
                    cleared,
                    ..Running::new(note, seq, effect)
                },
            );
        }
        Self::of(state, settings)
    }
}
