use levity_core::{
    Digest, Divergence, Effect, EffectId, Entry, Event, Machine, MachineKind, Record, RunId,
    RuntimeError,
};
use serde_json::Value;

use crate::fingerprint::OUTPUT_SCHEMA;
use crate::state::State;

/// What a replay gives.
#[derive(Debug)]
#[non_exhaustive]
pub struct Replay<M> {
    /// The machine as the records left it.
    pub machine: M,
    /// What was told, but for what was fleeting.
    pub events: Vec<Event>,
    /// The effects that had begun and not finished: questions that wait, calls that were lost.
    pub under_way: Vec<(EffectId, Effect)>,
}

/// Folds a run's records without performing anything.
///
/// `restore` builds the machine from the state it began with. The events are those of the run
/// itself, the same to the byte; its children have records of their own.
///
/// # Errors
/// When the machine cannot be built, or at the first record that does not fit what it does: then it
/// is not the machine that wrote them, and the error says what differs.
pub fn replay<M: Machine>(
    run: &RunId,
    records: &[Record],
    restore: impl FnOnce(&MachineKind, &Value) -> Result<M, String>,
) -> Result<Replay<M>, RuntimeError> {
    let machine = restore_from(run, records, restore)?;
    let mut state = State::new(run.clone(), machine);
    let mut events = Vec::new();
    for record in records {
        check_inputs(&mut state, record)?;
        state.apply(record.clone(), Some(&mut events))?;
    }
    let (machine, under_way) = state.into_under_way();
    Ok(Replay {
        machine,
        events,
        under_way,
    })
}

/// What a run was made with, by name.
pub fn setup_of(records: &[Record]) -> Vec<(String, Digest)> {
    match records.first().map(|record| &record.entry) {
        Some(Entry::Opened(opened)) => opened.setup.clone(),
        _ => Vec::new(),
    }
}

/// Compares what a run was made with and what there is now, by name; names that begin with `but`
/// are left aside.
///
/// # Errors
/// When something differs; the error names it.
pub fn check_setup(
    run: &RunId,
    records: &[Record],
    now: &[(String, Digest)],
    but: &str,
) -> Result<(), Divergence> {
    let then: Vec<_> = setup_of(records)
        .into_iter()
        .filter(|(name, _)| !name.starts_with(but))
        .collect();
    match &*changes(&then, now) {
        [] => Ok(()),
        changes => Err(Divergence::new(
            run,
            0,
            None,
            format!("since then, {}", changes.join(", ")),
        )),
    }
}

/// What has changed between two setups, in words. A run that was made without one tells nothing.
///
/// ```
/// # use levity_core::Digest;
/// # use levity_driver::changes;
/// let setup = |tool: &str| vec![("tool `add`".to_owned(), Digest::of(&tool))];
/// assert_eq!(changes(&setup("adds"), &setup("adds two numbers")), ["tool `add` changed"]);
/// ```
pub fn changes(then: &[(String, Digest)], now: &[(String, Digest)]) -> Vec<String> {
    if then.is_empty() {
        return Vec::new();
    }
    let find = |setup: &[(String, Digest)], name: &str| {
        setup
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, digest)| *digest)
    };
    let old = then
        .iter()
        .filter_map(|(name, digest)| match find(now, name) {
            None => Some(format!("{name} is gone")),
            Some(found) if found != *digest => Some(format!("{name} changed")),
            Some(_) => None,
        });
    let new = now.iter().filter(|(name, _)| find(then, name).is_none());
    old.chain(new.map(|(name, _)| format!("{name} is new")))
        .collect()
}

/// Builds the machine of a run from the state that its first record holds.
///
/// # Errors
/// When there is no record, or `restore` refuses the state.
pub fn restore_from<M>(
    run: &RunId,
    records: &[Record],
    restore: impl FnOnce(&MachineKind, &Value) -> Result<M, String>,
) -> Result<M, RuntimeError> {
    let Some(first) = records.first() else {
        return Err(RuntimeError::NotFound(run.clone()));
    };
    let (kind, state) = opened(run, first)?;
    restore(kind, state).map_err(|reason| RuntimeError::Restore {
        run: run.clone(),
        reason,
    })
}

/// The machine and the state that a run's first record names.
///
/// # Errors
/// When the record does not open a run.
pub fn opened<'a>(
    run: &RunId,
    first: &'a Record,
) -> Result<(&'a MachineKind, &'a Value), RuntimeError> {
    match &first.entry {
        Entry::Opened(opened) => Ok((&opened.machine, &opened.state)),
        _ => Err(Divergence::new(
            run,
            first.seq,
            None,
            "the first record does not open the run",
        )
        .into()),
    }
}

/// Compares what goes into an effect now with what went in then. What the executor added, such as
/// the tools on offer, is not known here.
fn check_inputs<M: Machine>(state: &mut State<M>, record: &Record) -> Result<(), Divergence> {
    let Entry::Started { effect, note } = &record.entry else {
        return Ok(());
    };
    let wanted: Option<&Effect> = state.queue.get(*effect).map(|wanted| &wanted.effect);
    let Some(now) = wanted.map(|wanted| state.fingerprint.inputs(wanted)) else {
        return Ok(());
    };
    let then = |name: &str| {
        note.inputs
            .iter()
            .find(|(then, _)| then == name)
            .map(|(_, digest)| digest)
    };
    let differs = now.iter().find(|(name, digest)| then(name) != Some(digest));
    let gone = note
        .inputs
        .iter()
        .find(|(name, _)| name == OUTPUT_SCHEMA && now.iter().all(|(n, _)| n != name));
    match differs.or(gone) {
        Some((name, _)) => {
            let what = format!(
                "the {name} of {:?} `{}` is not what it was",
                note.kind, note.name
            );
            Err(state.diverged(Some(*effect), what))
        }
        None => Ok(()),
    }
}
