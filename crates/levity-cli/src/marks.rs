//! Marks of the runs that this user started on this machine.
//!
//! A journal in a folder of another user may contain calls that the other user approved. Therefore
//! levity marks each run that it starts in the user's state folder, which a cloned folder cannot
//! change. It drives only marked runs.
//!
//! A mark is one line with two hashes: of the run's id, and of the id, the time and the machine of
//! its first record. The second hash binds the mark to one run, so a stranger cannot replace it by
//! another run with the same id. Hashes have a fixed form, so an id with blanks or line breaks
//! cannot forge a second mark.
//!
//! The file of marks belongs to one journal, by the resolved path of the journal. A journal that is
//! moved or copied therefore needs `--trust-journal` once. Journals inside the state folder are
//! trusted as a whole.
//!
//! The check sits in the journal that the runtime uses and not in the commands, so no command can
//! drive a run without it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use async_trait::async_trait;
use clap::Args;
use levity::core::__private::sha256;
use levity::core::{
    EffectKind, Entry, Journal, JournalError, JournalErrorKind, OpenRun, Record, RunId, RunLog,
    RunQuery, RunRequest, RunSummary, Snapshot,
};

use crate::runs::approved_calls;
use crate::state;
use crate::terminal::{note, shell_quote};

/// The option to trust the runs of a journal, no matter who started them.
#[derive(Args, Clone, Copy)]
pub(crate) struct Trust {
    /// Resume runs of the journal that you did not start on this machine, including calls approved
    /// by others, and remember them as yours. Inspect them first with `levity runs show`.
    #[arg(long)]
    pub(crate) trust_journal: bool,
}

/// A journal that drives only runs of this user and trusted runs.
///
/// Reading and listing pass through; only opening a run to drive it is checked.
pub(crate) struct OwnJournal {
    inner: Arc<dyn Journal>,
    marks: Arc<Marks>,
}

/// The marks of a journal's runs.
pub(crate) struct Marks {
    /// The file with the marks, or an error if there is no state folder.
    file: Result<PathBuf, String>,
    /// The marks by a hash of the run's id: a hash of the id and the start of the run.
    entries: Mutex<BTreeMap<String, String>>,
    /// True with `--trust-journal`, or for a journal inside the state folder.
    trusted: bool,
    /// The path as the user gave it, for messages.
    journal: PathBuf,
    /// Limits the warning about marks that cannot be stored to one per process.
    warned: Once,
}

impl OwnJournal {
    /// Guards the existing journal at a path.
    ///
    /// A missing state folder does not fail here: reading works without it, and the error appears
    /// when a run is to be marked or checked.
    pub(crate) fn new(inner: Arc<dyn Journal>, path: &Path, trust: Trust) -> Self {
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = state::folder();
        let file = folder
            .as_ref()
            .map(|folder| folder.join("journals").join(state::name_of(&place)));
        let file = file.map_err(Clone::clone);
        // Only the user writes into the state folder.
        let inside =
            folder.and_then(|folder| fs::canonicalize(folder).map_err(|error| error.to_string()));
        let trusted = trust.trust_journal || inside.is_ok_and(|folder| place.starts_with(folder));
        let marks = Marks {
            file,
            entries: Mutex::default(),
            trusted,
            journal: path.to_owned(),
            warned: Once::new(),
        };
        Self {
            inner,
            marks: Arc::new(marks),
        }
    }

    /// Returns the marks, for checks of runs by their ids.
    pub(crate) fn marks(&self) -> Arc<Marks> {
        self.marks.clone()
    }

    /// Returns `true` if a run with these records does not belong to the user.
    ///
    /// A run without records does not exist yet and is not foreign.
    pub(crate) fn is_foreign(&self, run: &RunId, records: &[Record]) -> bool {
        records
            .first()
            .is_some_and(|first| !self.marks.is_marked(run, Some(first)))
    }

    /// Rejects a run that neither belongs to the user nor is trusted. Prints the approved calls of
    /// a trusted run and its child runs, drops the requests that others left for them, and marks
    /// them.
    ///
    /// Child runs are marked together with their parent, because the resumed parent opens them
    /// without asking again.
    ///
    /// # Errors
    /// Returns an error if the run is rejected, or if the journal cannot be listed or read.
    pub(crate) async fn admit(&self, run: &RunId, records: &[Record]) -> Result<(), JournalError> {
        self.admit_open(run, records, None).await
    }

    /// Admits a run, whose log is given if the caller has opened it.
    async fn admit_open(
        &self,
        run: &RunId,
        records: &[Record],
        mut log: Option<&mut dyn RunLog>,
    ) -> Result<(), JournalError> {
        if !self.is_foreign(run, records) {
            return Ok(());
        }
        if !self.marks.trusted {
            return Err(self.marks.rejection(run));
        }
        for (member, first) in self.print_approved(run, records).await? {
            // A crash after the mark must not leave requests that the next driver accepts.
            match log.as_deref_mut().filter(|_| member == *run) {
                Some(log) => drop_requests(&member, log).await?,
                None => match self.inner.open(&member).await {
                    Ok(mut open) => drop_requests(&member, &mut *open.log).await?,
                    // Another process drives the run. It stays foreign until it can be opened.
                    Err(error) if error.kind() == JournalErrorKind::Busy => continue,
                    Err(error) => return Err(error),
                },
            }
            self.marks.add(&member, &first);
        }
        Ok(())
    }

    /// Prints the calls that were approved in a run and its child runs. Returns these runs with
    /// their first records, the run itself first.
    ///
    /// The list of a journal that a stranger wrote may lack a run. Therefore the run itself needs
    /// no entry in the list, and child runs are also found by the records of their parents. A child
    /// run that neither shows is admitted, and its calls are printed, when its parent opens it.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be listed, or if one of the runs cannot be read.
    pub(crate) async fn print_approved(
        &self,
        run: &RunId,
        records: &[Record],
    ) -> Result<Vec<(RunId, Record)>, JournalError> {
        let listed = self.inner.list(&RunQuery::new().below(run.clone())).await?;
        let mut queue: VecDeque<RunId> = children(run, records).collect();
        queue.extend(listed.into_iter().map(|summary| summary.run));
        let (mut seen, mut found) = (BTreeSet::from([run.clone()]), Vec::new());
        print_approved_calls(records);
        found.extend(records.first().map(|first| (run.clone(), first.clone())));
        while let Some(run) = queue.pop_front() {
            if !seen.insert(run.clone()) {
                continue;
            }
            let records = self.inner.read(&run).await?;
            print_approved_calls(&records);
            queue.extend(children(&run, &records));
            found.extend(records.into_iter().next().map(|first| (run, first)));
        }
        Ok(found)
    }
}

/// Returns the child runs that the records of a run name.
fn children(run: &RunId, records: &[Record]) -> impl Iterator<Item = RunId> {
    records.iter().filter_map(|record| match &record.entry {
        Entry::Started { effect, note } if note.kind == EffectKind::Child => {
            Some(run.child(*effect))
        }
        _ => None,
    })
}

fn print_approved_calls(records: &[Record]) {
    for call in approved_calls(records) {
        note(&format!("already approved: {call}"));
    }
}

/// Drops the requests that others left for a run: a decision among them would approve a call that
/// nobody has shown to the user.
async fn drop_requests(run: &RunId, log: &mut dyn RunLog) -> Result<(), JournalError> {
    let count = log.posted_by_now().await?.len();
    if count > 0 {
        log.append(&[]).await?;
        note(&format!(
            "run {run}: levity dropped the requests in its inbox ({count}), because others may \
                have sent them"
        ));
    }
    Ok(())
}

impl Marks {
    /// Checks a run by its id, before anything of it is read.
    ///
    /// Servers use it for all runs of a journal at the start, when reading each would be slow.
    /// Opening a run checks its first record again.
    ///
    /// # Errors
    /// Returns an error if the run is neither marked nor trusted.
    pub(crate) fn check(&self, run: &RunId) -> Result<(), JournalError> {
        if self.trusted || self.is_marked(run, None) {
            Ok(())
        } else {
            Err(self.rejection(run))
        }
    }

    /// The message tells how to inspect the run and how to trust it, in commands that can be
    /// copied.
    fn rejection(&self, run: &RunId) -> JournalError {
        let (id, journal) = (
            shell_quote(run.as_str()),
            self.journal.display().to_string(),
        );
        let journal = shell_quote(&journal);
        let message = format!(
            "run `{run}` was not started by you on this machine (or an older version started it), \
                and may contain calls that someone else approved; inspect it with `levity runs \
                show {id} --journal {journal}`, then use `--trust-journal` to resume it"
        );
        JournalError::new(JournalErrorKind::Refused, message)
    }

    /// Returns the marks that this process has read or added.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if a run is marked; with its first record, only if it is still the same run.
    ///
    /// Reads the file only if the memory has no matching mark; later lines win over earlier ones
    /// with the same id.
    fn is_marked(&self, run: &RunId, first: Option<&Record>) -> bool {
        let (name, start) = (
            sha256(run.as_str().as_bytes()),
            first.map(|first| start_hash(run, first)),
        );
        let has = |entries: &BTreeMap<String, String>| {
            entries
                .get(&name)
                .is_some_and(|mark| start.as_ref().is_none_or(|start| start == mark))
        };
        let mut entries = self.lock();
        if has(&entries) {
            return true;
        }
        // Another process may have started the run in the meantime.
        let text = self
            .file
            .as_ref()
            .ok()
            .and_then(|file| fs::read_to_string(file).ok())
            .unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        entries.extend(lines.map(|(name, start)| (name.to_owned(), start.to_owned())));
        has(&entries)
    }

    /// Marks a run. A run that cannot be marked is driven anyway, but rejected later, so a warning
    /// is printed now.
    ///
    /// The mark is written before the first record, see `OwnLog`. A crash in between leaves a mark
    /// without a run, which does no harm; the reverse would lock the user out of an own run.
    fn add(&self, run: &RunId, first: &Record) {
        let (name, start) = (sha256(run.as_str().as_bytes()), start_hash(run, first));
        let written = match &self.file {
            Ok(file) => write(file, &format!("{name} {start}\n"))
                .map_err(|error| format!("cannot write `{}`: {error}", file.display())),
            Err(problem) => Err(problem.clone()),
        };
        self.lock().insert(name, start);
        if let (Err(problem), false) = (written, self.trusted) {
            self.warned.call_once(|| {
                note(&format!(
                    "levity cannot store that you started runs of `{}`, so resuming them requires \
                        `--trust-journal`: {problem}",
                    self.journal.display()
                ));
            });
        }
    }
}

/// Appends a line to a file that only its owner can read.
///
/// The line is appended in one write and synced, so processes that mark runs at the same time do
/// not lose lines.
fn write(file: &Path, line: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        state::create(folder).map_err(io::Error::other)?;
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(file)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

/// Returns a hash of the start of a run: another run with the same id started at another time.
///
/// The state of the machine is not part of it: the hash identifies a run, it does not authenticate
/// its content.
fn start_hash(run: &RunId, first: &Record) -> String {
    let machine = match &first.entry {
        Entry::Opened(opened) => &*opened.machine.name,
        _ => "",
    };
    sha256(format!("{run}\n{}\n{machine}", first.at.as_millis()).as_bytes())
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Journal for OwnJournal {
    /// Requests that were posted before a run exists or is trusted are read and dropped: a stranger
    /// could otherwise place an approval into the journal in advance.
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let mut open = self.inner.open(run).await?;
        let marked = !open.records.is_empty();
        if marked {
            self.admit_open(run, &open.records, Some(&mut *open.log))
                .await?;
        } else {
            // Decisions that were posted before the run started do not answer a question of the
            // run.
            open.log.posted_by_now().await?;
        }
        let log = OwnLog {
            inner: open.log,
            run: run.clone(),
            marks: self.marks.clone(),
            marked,
        };
        Ok(OpenRun::new(open.records, log))
    }

    /// Reads all records: a mark covers the first record, and a snapshot in a folder that others
    /// can write proves nothing.
    async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.open(run).await
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.inner.list(query).await
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.inner.read(run).await
    }

    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        self.inner.remove(run).await
    }

    async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        self.inner.post(run, post).await
    }

    fn keeps(&self) -> bool {
        self.inner.keeps()
    }
}

/// The log of a run, which is marked before its first record is written. It takes no snapshots,
/// because none would be read.
///
/// `marked` starts as true for an existing run, which `open` has admitted.
struct OwnLog {
    inner: Box<dyn RunLog>,
    run: RunId,
    marks: Arc<Marks>,
    marked: bool,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl RunLog for OwnLog {
    /// Marks a new run before its first record, and then forwards.
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if let Some(first) = records.first().filter(|_| !self.marked) {
            self.marks.add(&self.run, first);
            self.marked = true;
        }
        self.inner.append(records).await
    }

    fn takes_snapshots(&self) -> bool {
        false
    }

    fn wants_snapshot(&self) -> bool {
        false
    }

    async fn snapshot(&mut self, _: Snapshot) -> Result<(), JournalError> {
        Ok(())
    }

    async fn posted(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        self.inner.posted().await
    }

    async fn posted_by_now(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        self.inner.posted_by_now().await
    }
}
