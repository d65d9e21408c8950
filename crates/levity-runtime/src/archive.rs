//! Exports runs as bytes, imports them into another journal, and removes runs that have ended.
//!
//! An export is untrusted input: [`import`] checks every line, every checksum and the tree of runs
//! before it writes anything. An import writes children before their parent, because a run whose
//! children are missing would start them again.

use std::collections::{BTreeMap, BTreeSet};

use levity_core::{
    Entry, Journal, JournalError, JournalErrorKind, OpenRun, Record, RunId, RunQuery, RunSummary,
    RuntimeError, Timestamp,
};

use crate::files::format::{self, Flaw};

/// The maximum size of an export, in bytes.
const MAX_EXPORT: usize = 256 << 20;

/// The number of passes that look for newly started runs: one for each level of child runs.
/// A run that starts children without end cannot make an export endless.
const LEVELS: usize = 64;

/// Exports a run and all its child runs as lines of JSON.
///
/// Each run has the same lines as in a file of [`FileJournal`](crate::FileJournal), with long texts
/// inline, and precedes its children. So the export of a run without children is itself a file that
/// a `FileJournal` reads. `docs/journal.md` describes the format.
///
/// A run in progress is exported as it was at some moment; the runs that it had started by then are
/// in the export as well.
///
/// ```
/// # use levity_core::{Entry, Journal, Limits, MachineKind, RunHeader, Record, RunId, Timestamp};
/// # use levity_runtime::{MemoryJournal, export, import};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::RuntimeError> {
/// # let (here, run) = (MemoryJournal::new(), RunId::new("monday"));
/// # let kind = MachineKind::new("agent", 1);
/// # let opened = RunHeader::new(kind, serde_json::Value::Null, Limits::default());
/// # let record = Record::new(0, Timestamp::from_millis(1), Entry::Opened(opened));
/// # here.open(&run).await?.log.append(&[record]).await?;
/// let bytes = export(&here, &run).await?;
/// let there = MemoryJournal::new();
/// assert_eq!(import(&there, &bytes).await?, [run.clone()]);
/// assert_eq!(there.records(&run), here.records(&run));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns an error if there is no such run, if it takes more than 256 MiB, or if the journal
/// fails.
pub async fn export(journal: &dyn Journal, run: &RunId) -> Result<Vec<u8>, RuntimeError> {
    let mut found = BTreeMap::from([(run.clone(), journal.read(run).await?)]);
    if found.values().all(Vec::is_empty) {
        return Err(RuntimeError::NotFound(run.clone()));
    }
    // A run is read before its children are looked up, so none that it names is missed.
    for _ in 0..LEVELS {
        let listed = journal.list(&RunQuery::new().below(run.clone())).await?;
        let new: Vec<_> = listed
            .into_iter()
            .map(|run| run.run)
            .filter(|run| !found.contains_key(run))
            .collect();
        if new.is_empty() {
            break;
        }
        for run in new {
            let records = journal.read(&run).await?;
            found.insert(run, records);
        }
    }
    found.retain(|_, records| !records.is_empty());
    let mut bytes = Vec::new();
    for (run, records) in &found {
        write(run, records, &mut bytes)?;
    }
    Ok(bytes)
}

fn write(run: &RunId, records: &[Record], bytes: &mut Vec<u8>) -> Result<(), RuntimeError> {
    bytes.extend_from_slice(&format::header(run));
    for record in records {
        format::write(record, None, bytes)?;
        if bytes.len() > MAX_EXPORT {
            let message = format!(
                "run `{run}` and its parents take more than 256 MiB; export fewer runs at once"
            );
            return Err(JournalError::new(JournalErrorKind::Refused, message).into());
        }
    }
    Ok(())
}

/// Imports the output of [`export`], and returns the runs in it, the first one first.
///
/// The whole input is validated before anything is written. A run that already exists with the same
/// records is left as it is. Child runs are written first and the first run last, so you can repeat
/// the import after a crash.
///
/// # Errors
/// - [`RuntimeError::Archive`] if a line is damaged, foreign, or from a newer version;
/// - [`RuntimeError::Exists`] if a run exists with other records;
/// - [`RuntimeError::Journal`] if the journal fails, or stores nothing.
pub async fn import(journal: &dyn Journal, bytes: &[u8]) -> Result<Vec<RunId>, RuntimeError> {
    let runs = parse(bytes)?;
    if !journal.keeps() {
        let message = "this journal stores no records, so it cannot import runs";
        return Err(JournalError::new(JournalErrorKind::Refused, message).into());
    }
    let mut missing = Vec::new();
    for (run, records) in &runs {
        match journal.read(run).await? {
            there if there.is_empty() => missing.push((run, records)),
            there if there == *records => {}
            _ => return Err(RuntimeError::Exists(run.clone())),
        }
    }
    // No process may start the first run while its children are being written.
    let mut missing = missing.into_iter();
    let first = match missing.next() {
        Some((run, records)) => Some((run, records, vacant(journal, run).await?)),
        None => None,
    };
    for (run, records) in missing.rev() {
        vacant(journal, run).await?.log.append(records).await?;
    }
    if let Some((_, records, mut open)) = first {
        open.log.append(records).await?;
    }
    Ok(runs.into_keys().collect())
}

/// Opens a run that has no records yet.
///
/// The log that it returns holds the run, so no other process can begin it during the import.
async fn vacant(journal: &dyn Journal, run: &RunId) -> Result<OpenRun, RuntimeError> {
    let open = journal.open(run).await?;
    if open.records.is_empty() {
        Ok(open)
    } else {
        Err(RuntimeError::Exists(run.clone()))
    }
}

/// Removes the runs that ended before this time, with all their children, and returns their number.
///
/// It considers only runs without a parent, and skips a run that a process has open. It also skips
/// a run whose id is a prefix of another run's id, such as `monday` beside `monday.two`, unless
/// that run has ended as well: the two would be removed together.
///
/// # Errors
/// Returns an error if the journal fails or does not support removal. Runs removed before the error
/// stay removed.
///
/// ```
/// use levity_core::{
///     Entry, Journal, Limits, MachineKind, Record, RunHeader, RunId, Status, Timestamp,
/// };
/// use levity_runtime::{MemoryJournal, remove_ended_before};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::RuntimeError> {
/// let journal = MemoryJournal::new();
/// let kind = MachineKind::new("agent", 1);
/// let header = RunHeader::new(kind, serde_json::Value::Null, Limits::new());
/// let entries = [Entry::Opened(header), Entry::Ended(Status::Complete)];
/// let records: Vec<_> = (0..)
///     .zip(entries)
///     .map(|(seq, entry)| Record::new(seq, Timestamp::from_millis(seq), entry))
///     .collect();
/// journal.open(&RunId::new("monday")).await?.log.append(&records).await?;
/// assert_eq!(remove_ended_before(&journal, Timestamp::from_millis(10)).await?, 1);
/// # Ok(())
/// # }
/// ```
pub async fn remove_ended_before(
    journal: &dyn Journal,
    time: Timestamp,
) -> Result<usize, RuntimeError> {
    let roots = journal.list(&RunQuery::new().roots()).await?;
    let over = |run: &RunSummary| run.state().is_end() && run.updated < time;
    let (over, remaining): (Vec<_>, Vec<_>) = roots.into_iter().partition(over);
    let remaining: BTreeSet<RunId> = remaining.into_iter().map(|run| run.run).collect();
    let mut removed = 0;
    for run in over.into_iter().map(|run| run.run) {
        let next = remaining.range(RunId::from(format!("{run}."))..).next();
        if next.is_some_and(|next| next.is_within(&run)) {
            continue;
        }
        match journal.remove(&run).await {
            Ok(there) => removed += usize::from(there),
            Err(error) if error.kind() == JournalErrorKind::Busy => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(removed)
}

/// Parses the runs in an export, each with its records.
///
/// Lines are numbered from 1 in errors. The first run of the export is the root; every other run
/// must be one of its descendants.
fn parse(bytes: &[u8]) -> Result<BTreeMap<RunId, Vec<Record>>, RuntimeError> {
    if bytes.len() > MAX_EXPORT {
        return Err(at(
            1,
            Flaw::damaged("the export has more than 256 MiB; import fewer runs at once"),
        ));
    }
    let mut runs = Runs::default();
    let mut last = 0;
    for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        runs.take(number, line).map_err(|flaw| at(number, flaw))?;
        last = number;
    }
    runs.close().map_err(|flaw| at(last.max(1), flaw))?;
    runs.check_parents()?;
    Ok(runs
        .all
        .into_iter()
        .map(|(run, (_, records))| (run, records))
        .collect())
}

fn at(line: usize, flaw: Flaw) -> RuntimeError {
    RuntimeError::Archive {
        line,
        cause: flaw.into_error(""),
    }
}

/// A header line ends the run before it and begins the next one.
#[derive(Default)]
struct Runs {
    /// The runs, each with its first line and its records.
    all: BTreeMap<RunId, (usize, Vec<Record>)>,
    first: Option<RunId>,
    /// The run whose records are being read.
    now: Option<RunId>,
}

impl Runs {
    fn take(&mut self, number: usize, line: &[u8]) -> Result<(), Flaw> {
        if self.now.is_none() || format::is_header(line) {
            if self.now.is_some() {
                self.close()?;
            }
            return self.begin(number, line);
        }
        let now = self.now.as_ref().and_then(|now| self.all.get_mut(now));
        let Some((_, records)) = now else {
            return Err(Flaw::damaged("it does not belong to a run"));
        };
        let record = format::record(line, records.len() as u64, None)?;
        if format::is_too_deep(line) {
            return Err(Flaw::damaged("it is nested too deep"));
        }
        if records.is_empty() != matches!(record.entry, Entry::Opened(_)) {
            return Err(Flaw::damaged(
                "the first record of a run, and only that one, must open it",
            ));
        }
        if matches!(
            records.last(),
            Some(Record {
                entry: Entry::Ended(_),
                ..
            })
        ) {
            return Err(Flaw::damaged("it follows the end of the run"));
        }
        records.push(record);
        Ok(())
    }

    fn begin(&mut self, number: usize, line: &[u8]) -> Result<(), Flaw> {
        if !line.ends_with(b"\n") {
            return Err(Flaw::damaged("it is incomplete"));
        }
        let run = format::parse_header(line)?;
        let first = self.first.get_or_insert_with(|| run.clone());
        if !run.is_within(first) {
            return Err(Flaw::damaged(format!(
                "run `{run}` is not a child of `{first}`"
            )));
        }
        if self.all.insert(run.clone(), (number, Vec::new())).is_some() {
            return Err(Flaw::damaged(format!("run `{run}` occurs twice")));
        }
        self.now = Some(run);
        Ok(())
    }

    /// Checks that the run before has records.
    fn close(&self) -> Result<(), Flaw> {
        match self.now.as_ref().and_then(|now| self.all.get(now)) {
            Some((_, records)) if !records.is_empty() => Ok(()),
            Some(_) => Err(Flaw::damaged("the run before it has no records")),
            None => Err(Flaw::damaged("it contains no run")),
        }
    }

    /// Checks that the parent of each run is in the export, except that of the first run.
    fn check_parents(&self) -> Result<(), RuntimeError> {
        for (run, (number, records)) in &self.all {
            let child = matches!(
                records.first(),
                Some(Record { entry: Entry::Opened(opened), .. }) if opened.origin.is_some()
            );
            let alone = run
                .parent()
                .is_none_or(|parent| !self.all.contains_key(&parent));
            if child && alone && self.first.as_ref() != Some(run) {
                return Err(at(
                    *number,
                    Flaw::damaged(format!("the parent of run `{run}` is missing")),
                ));
            }
        }
        Ok(())
    }
}
