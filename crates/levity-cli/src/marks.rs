//! Marks of the runs that this user started on this machine.
//!
//! A journal in a folder of somebody else's may hold calls that somebody else approved. So each run
//! that is started here is marked in the user's state folder, where nothing in a cloned folder
//! reaches, and only marked runs are driven.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use async_trait::async_trait;
use clap::Args;
use levity::core::__private::sha256;
use levity::core::{
    Entry, Journal, JournalError, JournalErrorKind, OpenRun, Record, RunId, RunLog, RunQuery,
    RunRequest, RunSummary, Snapshot,
};

use crate::state;
use crate::terminal::{note, shell};

/// The choice to trust the runs of a journal, whoever started them.
#[derive(Args, Clone, Copy)]
pub(crate) struct Trust {
    /// Resume runs of the journal that you did not start on this machine, with what somebody
    /// approved in them, and remember them as yours. Look at them first with `levity runs show`.
    #[arg(long)]
    pub(crate) trust_journal: bool,
}

/// A journal that drives only runs of this user's, or that are trusted.
pub(crate) struct OwnJournal {
    inner: Arc<dyn Journal>,
    marks: Arc<Marks>,
}

/// The marks of a journal's runs.
pub(crate) struct Marks {
    /// The file that keeps them; none if there is no state folder.
    file: Result<PathBuf, String>,
    /// By a hash of the run's id: a hash of the id and how the run began.
    known: Mutex<BTreeMap<String, String>>,
    trusted: bool,
    journal: PathBuf,
    warned: Once,
}

impl OwnJournal {
    /// Guards the journal at a path, which is there.
    pub(crate) fn new(inner: Arc<dyn Journal>, path: &Path, trust: Trust) -> Self {
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = state::folder();
        let file = folder
            .as_ref()
            .map(|folder| folder.join("journals").join(state::name_of(&place)));
        let file = file.map_err(Clone::clone);
        // Nobody but the user writes into the state folder.
        let inside =
            folder.and_then(|folder| fs::canonicalize(folder).map_err(|error| error.to_string()));
        let trusted = trust.trust_journal || inside.is_ok_and(|folder| place.starts_with(folder));
        let marks = Marks {
            file,
            known: Mutex::default(),
            trusted,
            journal: path.to_owned(),
            warned: Once::new(),
        };
        Self {
            inner,
            marks: Arc::new(marks),
        }
    }

    /// The marks, for whoever decides about runs by their ids.
    pub(crate) fn marks(&self) -> Arc<Marks> {
        self.marks.clone()
    }

    /// Returns whether a run with these records is trusted without being the user's own.
    pub(crate) fn is_foreign(&self, run: &RunId, records: &[Record]) -> bool {
        records
            .first()
            .is_some_and(|first| !self.marks.knows(run, Some(first)))
    }

    /// Refuses a run that is neither the user's own nor trusted. A trusted one is marked, together
    /// with those below it.
    ///
    /// # Errors
    /// When it is refused, or the journal cannot be listed.
    pub(crate) async fn admit(&self, run: &RunId, records: &[Record]) -> Result<(), JournalError> {
        let Some(first) = records
            .first()
            .filter(|first| !self.marks.knows(run, Some(first)))
        else {
            return Ok(());
        };
        if !self.marks.trusted {
            return Err(self.marks.refused(run));
        }
        self.marks.add(run, first);
        for below in self.inner.list(&RunQuery::new().below(run.clone())).await? {
            // One that cannot be read is not driven, either.
            let records = self.inner.read(&below.run).await.unwrap_or_default();
            if let Some(first) = records.first() {
                self.marks.add(&below.run, first);
            }
        }
        Ok(())
    }
}

impl Marks {
    /// Refuses a run by its id, before anything of it is read.
    ///
    /// # Errors
    /// When it is neither marked nor trusted.
    pub(crate) fn check(&self, run: &RunId) -> Result<(), JournalError> {
        if self.trusted || self.knows(run, None) {
            Ok(())
        } else {
            Err(self.refused(run))
        }
    }

    fn refused(&self, run: &RunId) -> JournalError {
        let (id, journal) = (shell(run.as_str()), self.journal.display().to_string());
        let journal = shell(&journal);
        let message = format!(
            "run `{run}` was not started by you on this machine (or an older version started it), \
                and may hold calls that somebody else \
             approved; look at it with `levity runs show {id} --journal {journal}`, then say \
             `--trust-journal` to resume it"
        );
        JournalError::new(JournalErrorKind::Refused, message)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a run is marked; with its first record, whether it is still the one that
    /// was.
    fn knows(&self, run: &RunId, first: Option<&Record>) -> bool {
        let (name, begun) = (
            sha256(run.as_str().as_bytes()),
            first.map(|first| beginning(run, first)),
        );
        let has = |known: &BTreeMap<String, String>| {
            known
                .get(&name)
                .is_some_and(|mark| begun.as_ref().is_none_or(|begun| begun == mark))
        };
        let mut known = self.lock();
        if has(&known) {
            return true;
        }
        // Another process may have started it meanwhile.
        let text = self
            .file
            .as_ref()
            .ok()
            .and_then(|file| fs::read_to_string(file).ok())
            .unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        known.extend(lines.map(|(name, begun)| (name.to_owned(), begun.to_owned())));
        has(&known)
    }

    /// Marks a run. One that cannot be marked is driven all the same: it is refused later, and that
    /// is said now.
    fn add(&self, run: &RunId, first: &Record) {
        let (name, begun) = (sha256(run.as_str().as_bytes()), beginning(run, first));
        let written = match &self.file {
            Ok(file) => write(file, &format!("{name} {begun}\n"))
                .map_err(|error| format!("`{}` cannot be written: {error}", file.display())),
            Err(problem) => Err(problem.clone()),
        };
        self.lock().insert(name, begun);
        if let (Err(problem), false) = (written, self.trusted) {
            self.warned.call_once(|| {
                note(&format!(
                    "nothing remembers that you started runs of `{}`, so that resuming them needs \
                        `--trust-journal`: {problem}",
                    self.journal.display()
                ));
            });
        }
    }
}

/// Adds a line at the end of a file that only its owner reads.
fn write(file: &Path, line: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        state::make(folder).map_err(io::Error::other)?;
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(file)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

/// A hash of how a run began: another run of the same id began at another time.
fn beginning(run: &RunId, first: &Record) -> String {
    let machine = match &first.entry {
        Entry::Opened(opened) => &*opened.machine.name,
        _ => "",
    };
    sha256(format!("{run}\n{}\n{machine}", first.at.as_millis()).as_bytes())
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Journal for OwnJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let mut open = self.inner.open(run).await?;
        let marked = !open.records.is_empty();
        if marked {
            self.admit(run, &open.records).await?;
        } else {
            // Decisions that wait for a run before it has begun were made for no question.
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

    /// Reads all records: a mark is of the first, and a snapshot in a folder that others wrote
    /// proves nothing.
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
/// since none would be read.
struct OwnLog {
    inner: Box<dyn RunLog>,
    run: RunId,
    marks: Arc<Marks>,
    marked: bool,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl RunLog for OwnLog {
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
