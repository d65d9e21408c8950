//! Folds records without a host, and compares them with the current program.

use levity_core::{
    ChildRun, Digest, Divergence, Effect, EffectId, Entry, Event, Machine, MachineKind, Record,
    RunId, RuntimeError,
};
use serde_json::Value;

use crate::fingerprint::OUTPUT_SCHEMA;
use crate::state::State;

/// The result of a replay.
///
/// ```
/// use levity_core::{
///     Ending, Entry, Input, Limits, Machine, MachineKind, MachineOutput, Record, RunHeader,
///     Timestamp,
/// };
/// use levity_driver::replay;
/// # struct Idle;
/// # impl Machine for Idle {
/// #     fn kind(&self) -> MachineKind { MachineKind::new("idle", 1) }
/// #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
/// #     fn apply(&mut self, _: Input, _: &mut MachineOutput) {}
/// #     fn ending(&self) -> Option<&Ending> { None }
/// # }
/// let kind = MachineKind::new("idle", 1);
/// let opened = RunHeader::new(kind, serde_json::Value::Null, Limits::new());
/// let records = [Record::new(0, Timestamp::default(), Entry::Opened(opened))];
/// let replayed = replay(&"r1".into(), &records, |_, _| Ok(Idle))?;
/// assert_eq!(replayed.events[0].kind.name(), "run_started");
/// assert!(replayed.in_progress.is_empty());
/// # Ok::<(), levity_core::RuntimeError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Replay<M> {
    /// The machine in its state after the records.
    pub machine: M,
    /// The events of the run, except transient ones.
    pub events: Vec<Event>,
    /// The effects that had begun and not finished: open questions and interrupted calls.
    pub in_progress: Vec<(EffectId, Effect)>,
    /// The child runs that were started, in order.
    pub children: Vec<(EffectId, ChildRun)>,
}

/// Folds a run's records without performing any effects.
///
/// `restore` builds the machine from its initial state. The events are those of the run itself,
/// byte for byte; its children have their own records.
///
/// # Errors
/// Returns an error if the machine cannot be built, or at the first record that does not match its
/// behaviour. Another machine then wrote the records, and the error names the difference.
///
/// [`Replay`] has an example of a whole replay. A run without records cannot be replayed:
///
/// ```
/// # use levity_core::{Ending, Input, Machine, MachineKind, MachineOutput};
/// # use levity_driver::replay;
/// # struct Idle;
/// # impl Machine for Idle {
/// #     fn kind(&self) -> MachineKind { MachineKind::new("idle", 1) }
/// #     fn save(&self) -> serde_json::Value { serde_json::Value::Null }
/// #     fn apply(&mut self, _: Input, _: &mut MachineOutput) {}
/// #     fn ending(&self) -> Option<&Ending> { None }
/// # }
/// assert!(replay(&"r1".into(), &[], |_, _| Ok(Idle)).is_err());
/// ```
pub fn replay<M: Machine>(
    run: &RunId,
    records: &[Record],
    restore: impl FnOnce(&MachineKind, &Value) -> Result<M, String>,
) -> Result<Replay<M>, RuntimeError> {
    let machine = restore_from(run, records, restore)?;
    let mut state = State::new(run.clone(), machine);
    let (mut events, mut children) = (Vec::new(), Vec::new());
    for record in records {
        check_inputs(&mut state, record)?;
        children.extend(started_child(&state, record));
        state.apply(record.clone(), Some(&mut events))?;
    }
    let (machine, under_way) = state.into_in_progress();
    Ok(Replay {
        machine,
        events,
        in_progress: under_way,
        children,
    })
}

/// Returns the child run that a record starts, unless it was started before.
fn started_child<M: Machine>(state: &State<M>, record: &Record) -> Option<(EffectId, ChildRun)> {
    let Entry::Started { effect, .. } = &record.entry else {
        return None;
    };
    match &state.queue.get(*effect)?.effect {
        Effect::Child(child) => Some((*effect, child.clone())),
        _ => None,
    }
}

/// Returns the setup with which a run was created, by name.
///
/// ```
/// use levity_core::{Digest, Entry, Limits, MachineKind, Record, RunHeader, Timestamp};
/// use levity_driver::setup_of;
///
/// let kind = MachineKind::new("idle", 1);
/// let mut opened = RunHeader::new(kind, serde_json::Value::Null, Limits::new());
/// opened.setup = vec![("tool `add`".to_owned(), Digest::of(&"adds"))];
/// let records = [Record::new(0, Timestamp::default(), Entry::Opened(opened))];
/// assert_eq!(setup_of(&records)[0].0, "tool `add`");
/// ```
pub fn setup_of(records: &[Record]) -> Vec<(String, Digest)> {
    match records.first().map(|record| &record.entry) {
        Some(Entry::Opened(opened)) => opened.setup.clone(),
        _ => Vec::new(),
    }
}

/// Compares the setup with which a run was created and the current one, by name; names that begin
/// with `but` are ignored.
///
/// # Errors
/// Returns an error that names the differences, if there are any.
///
/// ```
/// use levity_core::{Digest, Entry, Limits, MachineKind, Record, RunHeader, Timestamp};
/// use levity_driver::check_setup;
///
/// let setup = |tool: &str| vec![("tool `add`".to_owned(), Digest::of(&tool))];
/// let kind = MachineKind::new("idle", 1);
/// let mut opened = RunHeader::new(kind, serde_json::Value::Null, Limits::new());
/// opened.setup = setup("adds");
/// let records = [Record::new(0, Timestamp::default(), Entry::Opened(opened))];
/// assert!(check_setup(&"r1".into(), &records, &setup("adds"), "model").is_ok());
/// let error = check_setup(&"r1".into(), &records, &setup("multiplies"), "model").unwrap_err();
/// assert!(error.to_string().contains("tool `add` changed"));
/// ```
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
            format!("since the run was created, {}", changes.join(", ")),
        )),
    }
}

/// Describes the changes between two setups. A run that was created without a setup has none.
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
            None => Some(format!("{name} was removed")),
            Some(found) if found != *digest => Some(format!("{name} changed")),
            Some(_) => None,
        });
    let new = now.iter().filter(|(name, _)| find(then, name).is_none());
    old.chain(new.map(|(name, _)| format!("{name} was added")))
        .collect()
}

/// Builds the machine of a run from the state in its first record.
///
/// # Errors
/// Returns an error if there is no record, or `restore` rejects the state.
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

/// Returns the kind of machine and the state in a run's first record.
///
/// # Errors
/// Returns an error if the record does not open a run.
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

/// Compares the current inputs of an effect with the recorded ones. The inputs that the executor
/// added, such as the available tools, are not known here.
///
/// An output schema that was removed is a change as well, although no current input differs.
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
    let removed = note
        .inputs
        .iter()
        .find(|(name, _)| name == OUTPUT_SCHEMA && now.iter().all(|(n, _)| n != name));
    match differs.or(removed) {
        Some((name, _)) => {
            let what = format!("the {name} of {:?} `{}` changed", note.kind, note.name);
            Err(state.diverged(Some(*effect), what))
        }
        None => Ok(()),
    }
}
