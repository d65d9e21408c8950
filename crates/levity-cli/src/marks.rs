//! Marks of the runs that this user started on this machine.
//!
//! A journal in a folder of another user may contain calls that the other user approved. Therefore
//! levity marks each run that it starts in the user's state folder, which a cloned folder cannot
//! change. It drives only marked runs.
//!
//! A mark is one line with two hashes: of the run's id, and of the id, the time and the machine of
//! its first record. The second hash binds the mark to one run, so a stranger cannot replace it by
//! another run with the same id. A third word names the kind of server that started the run,
//! because servers and other commands may share a journal. Hashes have a fixed form, so an id with
//! blanks or line breaks cannot forge a second mark. Removing a run adds a line that replaces its
//! mark, because a run with the same start may be imported later.
//!
//! The file of marks belongs to one journal, by the resolved path of the journal. A journal that is
//! moved or copied therefore needs `--trust-journal` once. Journals inside the state folder are
//! trusted as a whole.
//!
//! A mark does not cover the records of a run, which a command of an agent could change if the
//! journal is in its workspace. The records must also match the [seal](crate::seals) of the run.
//!
//! The check sits in the journal that the runtime uses and not in the commands, so no command can
//! drive a run without it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clap::Args;
use levity::core::__private::sha256;
use levity::core::{
    EffectKind, Entry, Journal, JournalError, JournalErrorKind, OpenRun, Record, RunId, RunLog,
    RunQuery, RunRequest, RunSummary, Snapshot, World as _,
};
use levity::runtime::SystemWorld;

use crate::runs::approved_calls;
use crate::seals::{self, RecordChain, Seal, SentDecisions};
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

impl Trust {
    /// For commands that drive no run.
    pub(crate) const NONE: Self = Self {
        trust_journal: false,
    };
}

/// A journal that drives only runs of this user and trusted runs.
///
/// Reading and listing pass through; only opening a run to drive it is checked.
pub(crate) struct OwnJournal {
    inner: Arc<dyn Journal>,
    marks: Arc<Marks>,
    /// `true` to open runs of others too.
    for_any_run: bool,
}

/// The marks of a journal's runs.
pub(crate) struct Marks {
    /// The file with the marks, or an error if there is no state folder.
    file: Result<PathBuf, String>,
    /// The marks that this process has read or added.
    entries: Mutex<MarkEntries>,
    /// True with `--trust-journal`, or for a journal inside the state folder.
    trusted: bool,
    /// True for a journal inside the state folder.
    is_private: bool,
    /// The path as the user gave it, for messages.
    journal: PathBuf,
    /// Limits the warning about marks that cannot be stored to one per process.
    warned: Once,
    /// The kind of this server, if the process is one.
    server: OnceLock<&'static str>,
}

/// The marks in memory.
#[derive(Default)]
struct MarkEntries {
    /// The marks by a hash of the run's id: a hash of the id and the start of the run, followed by
    /// the server that started it, or [`REMOVED`].
    by_id: BTreeMap<String, String>,
    /// The number of bytes of the file that were read.
    read: u64,
}

/// Stands in place of a mark whose run was removed. It differs from each hash.
const REMOVED: &str = "removed";

/// The number of attempts to read a run in progress until its records match its seal.
const READ_ATTEMPTS: u32 = 10;

/// The pause between two attempts.
const READ_INTERVAL: Duration = Duration::from_millis(20);

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
        let is_private = inside.is_ok_and(|folder| place.starts_with(folder));
        let marks = Marks {
            file,
            entries: Mutex::default(),
            trusted: trust.trust_journal || is_private,
            is_private,
            journal: path.to_owned(),
            warned: Once::new(),
            server: OnceLock::new(),
        };
        Self {
            inner,
            marks: Arc::new(marks),
            for_any_run: false,
        }
    }

    /// Also opens runs that do not belong to the user, and writes to them without a seal. This is
    /// for requests that only stop something.
    pub(crate) fn for_any_run(mut self) -> Self {
        self.for_any_run = true;
        self
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
            .is_some_and(|first| !self.marks.is_marked(run, first))
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
        let is_own = !self.is_foreign(run, records);
        if is_own && self.marks.is_sealed(run, records) {
            return Ok(());
        }
        if !self.marks.trusted {
            return Err(match is_own {
                true => self.marks.rejection_of_changed(run),
                false => self.marks.rejection(run),
            });
        }
        for (member, records) in self.print_approved(run, records).await? {
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
            if let Some(first) = records.first() {
                self.marks.add(&member, first);
            }
            self.marks.seal(&member, &chain_of(&member, &records)?);
        }
        Ok(())
    }

    /// Stores a decision in the state folder, with the question that it decides. A denial needs no
    /// question, so that it also stops runs of others.
    async fn store_decision(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        let chain = if seals::denies(post) {
            None
        } else {
            Some(chain_of(run, &self.read_to_continue(run).await?)?)
        };
        let Some(sent) = self.marks.sent_decisions(run) else {
            return Ok(());
        };
        match sent.add(post, chain.as_ref()) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let message = format!(
                    "run `{run}` does not wait for this decision, or another process has decided; \
                        `levity runs show {}` shows its state",
                    shell_quote(run.as_str())
                );
                Err(JournalError::new(JournalErrorKind::Refused, message))
            }
            Err(error) => {
                let message =
                    "levity cannot store that you sent a decision, so no run would accept it";
                Err(JournalError::new(JournalErrorKind::Io, message).with_source(error))
            }
        }
    }

    /// Reads the records of any run to show them. Prints a note if the user started the run and
    /// another program changed its records.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read.
    pub(crate) async fn read_to_show(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        if let Ok(records) = self.read_to_continue(run).await {
            return Ok(records);
        }
        let records = self.inner.read(run).await?;
        if !self.is_foreign(run, &records) {
            note(&format!(
                "another program changed the records of run `{run}`, or the run is in progress: what \
                    they show may not have happened"
            ));
        }
        Ok(records)
    }

    /// Returns `true` if the session of this run belongs to the user or is trusted.
    ///
    /// A session remains usable without the records of its run, so the id alone counts if they were
    /// removed or cannot be read.
    pub(crate) async fn admits_session(&self, run: &RunId) -> bool {
        let records = self.inner.read(run).await.unwrap_or_default();
        let is_own = match records.first() {
            Some(first) => self.marks.is_marked(run, first),
            None => self.marks.mark(run).is_some(),
        };
        is_own || self.marks.trusted
    }

    /// Prints the calls that were approved in a run and its child runs. Returns these runs with
    /// their records, the run itself first.
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
    ) -> Result<Vec<(RunId, Vec<Record>)>, JournalError> {
        let listed = self.inner.list(&RunQuery::new().below(run.clone())).await?;
        let mut queue: VecDeque<RunId> = children(run, records).collect();
        queue.extend(listed.into_iter().map(|summary| summary.run));
        let (mut seen, mut found) = (BTreeSet::from([run.clone()]), Vec::new());
        print_approved_calls(records);
        found.push((run.clone(), records.to_vec()));
        while let Some(run) = queue.pop_front() {
            if !seen.insert(run.clone()) {
                continue;
            }
            let records = self.inner.read(&run).await?;
            print_approved_calls(&records);
            queue.extend(children(&run, &records));
            if !records.is_empty() {
                found.push((run, records));
            }
        }
        Ok(found)
    }
}

/// Computes the hashes of a run's records.
fn chain_of(run: &RunId, records: &[Record]) -> Result<RecordChain, JournalError> {
    RecordChain::new(run, records).map_err(|error| unreadable(run, error))
}

/// Returns the error for records whose hashes cannot be computed.
fn unreadable(run: &RunId, error: io::Error) -> JournalError {
    let message = format!("levity cannot write the records of run `{run}` as JSON");
    JournalError::new(JournalErrorKind::Io, message).with_source(error)
}

/// Returns the child runs that the records of a run name.
pub(crate) fn children(run: &RunId, records: &[Record]) -> impl Iterator<Item = RunId> {
    records.iter().filter_map(|record| match &record.entry {
        Entry::Started { effect, note } if note.kind == EffectKind::Child => {
            Some(run.child(*effect))
        }
        _ => None,
    })
}

/// Prints the calls that records approve without a question of the run, before the run resumes.
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
    /// Marks the runs that this process starts from now on as those of a kind of server. A second
    /// call has no effect.
    pub(crate) fn serve_as(&self, server: &'static str) {
        let _ = self.server.set(server);
    }

    /// Returns `true` if the user started a run with this kind of server.
    pub(crate) fn is_of_server(&self, run: &RunId) -> bool {
        let entry = self.entry(run);
        let server = entry.as_deref().and_then(|entry| entry.split_once(' '));
        server.map(|(_, server)| server) == self.server.get().copied()
    }

    /// Returns `true` if the user started a run with another command.
    pub(crate) fn is_of_other_command(&self, run: &RunId) -> bool {
        let is_own = self.mark(run).is_some_and(|mark| mark != REMOVED);
        is_own && !self.is_of_server(run)
    }

    /// Checks a run by its id, before anything of it is read.
    ///
    /// Servers use it for all runs of a journal at the start, when reading each would be slow.
    /// Opening a run checks its first record again.
    ///
    /// # Errors
    /// Returns an error if the run is neither marked nor trusted.
    pub(crate) fn check(&self, run: &RunId) -> Result<(), JournalError> {
        if self.trusted || self.mark(run).is_some_and(|mark| mark != REMOVED) {
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

    /// Returns `true` if only levity has written the records of a run.
    fn is_sealed(&self, run: &RunId, records: &[Record]) -> bool {
        records.is_empty() || Seal::matches(&self.read_seal(run), run, records)
    }

    /// Returns the content of a run's seal; nothing if the run has none.
    fn read_seal(&self, run: &RunId) -> Vec<u8> {
        let folder = self.beside("seals");
        folder.map_or_else(Vec::new, |folder| Seal::read(&seals::path(&folder, run)))
    }

    /// Returns the error for a run whose records do not match its seal, with the ways to continue.
    fn rejection_of_changed(&self, run: &RunId) -> JournalError {
        let (id, journal) = (
            shell_quote(run.as_str()),
            self.journal.display().to_string(),
        );
        let journal = shell_quote(&journal);
        let message = format!(
            "another program changed the records of run `{run}` and may have approved calls, or \
                the run is in progress; inspect it with `levity runs show {id} --journal \
                {journal}`, then try again, or use `--trust-journal` to resume it"
        );
        JournalError::new(JournalErrorKind::Refused, message)
    }

    /// Starts the seal of a run that is about to be driven. A run that cannot be sealed is driven
    /// anyway, but rejected later, so a warning is printed now.
    fn seal(&self, run: &RunId, chain: &RecordChain) -> Option<Seal> {
        let path = seals::path(&self.beside("seals")?, run);
        Seal::start(&path, chain)
            .map_err(|error| self.warn(&format!("cannot write `{}`: {error}", path.display())))
            .ok()
    }

    /// Returns a path next to the file of marks.
    fn beside(&self, suffix: &str) -> Option<PathBuf> {
        let mut path = self.file.as_ref().ok()?.clone().into_os_string();
        path.push(".");
        path.push(suffix);
        Some(path.into())
    }

    /// Returns the decisions that levity sent to a run.
    fn sent_decisions(&self, run: &RunId) -> Option<SentDecisions> {
        let folder = self.beside("decisions")?;
        let mark = self.mark(run).unwrap_or_default();
        Some(SentDecisions::new(seals::path(&folder, run), mark))
    }

    /// Drops the decisions for a run that levity did not send.
    fn drop_forged(
        &self,
        run: &RunId,
        chain: &RecordChain,
        mut requests: Vec<RunRequest>,
    ) -> Vec<RunRequest> {
        if self.is_private || !requests.iter().any(seals::decides) {
            return requests;
        }
        let dropped = self
            .sent_decisions(run)
            .map_or(0, |sent| sent.drop_others(chain, &mut requests));
        if dropped > 0 {
            note(&format!(
                "run {run}: levity dropped decisions in its inbox ({dropped}), because another \
                    program wrote them; decide with `levity runs approve`"
            ));
        }
        requests
    }

    /// Returns the marks in memory.
    fn lock(&self) -> MutexGuard<'_, MarkEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if a run is marked and still has the same first record.
    fn is_marked(&self, run: &RunId, first: &Record) -> bool {
        self.mark(run) == Some(start_hash(run, first))
    }

    /// Returns the mark of a run, without the server that started it.
    fn mark(&self, run: &RunId) -> Option<String> {
        let entry = self.entry(run)?;
        let mark = entry.split(' ').next().unwrap_or_default();
        Some(mark.to_owned())
    }

    /// Returns the mark of a run, and the server that started it.
    ///
    /// Reads the lines that this or another process has added to the file since the last call;
    /// later lines win over earlier ones with the same id.
    fn entry(&self, run: &RunId) -> Option<String> {
        let mut entries = self.lock();
        if let Some(Ok(lines)) = self.file.as_ref().ok().map(|file| read(file, entries.read)) {
            entries.read = lines.end;
            let lines = lines.text.lines().filter_map(|line| line.split_once(' '));
            let lines = lines.map(|(name, start)| (name.to_owned(), start.to_owned()));
            entries.by_id.extend(lines);
        }
        entries.by_id.get(&sha256(run.as_str().as_bytes())).cloned()
    }

    /// Removes the mark of a run that no longer exists. Writes nothing if the run has none.
    ///
    /// # Errors
    /// Returns an error if the file of marks cannot be written.
    fn remove(&self, run: &RunId) -> Result<(), JournalError> {
        if self.mark(run).is_none_or(|mark| mark == REMOVED) {
            return Ok(());
        }
        if let Some(folder) = self.beside("seals") {
            seals::remove(&seals::path(&folder, run));
        }
        if let Some(sent) = self.sent_decisions(run) {
            sent.remove_all();
        }
        let name = sha256(run.as_str().as_bytes());
        self.lock().by_id.insert(name.clone(), REMOVED.to_owned());
        if let Ok(file) = &self.file {
            write(file, &format!("{name} {REMOVED}\n")).map_err(|error| {
                let message = format!(
                    "levity cannot store that run `{run}` no longer belongs to you: cannot write \
                        `{}`",
                    file.display()
                );
                JournalError::new(JournalErrorKind::Io, message).with_source(error)
            })?;
        }
        Ok(())
    }

    /// Marks a run. A run that cannot be marked is driven anyway, but rejected later, so a warning
    /// is printed now.
    ///
    /// The mark is written before the first record, see `OwnLog`. A crash in between leaves a mark
    /// without a run, which does no harm; the reverse would lock the user out of an own run.
    fn add(&self, run: &RunId, first: &Record) {
        let (name, mut start) = (sha256(run.as_str().as_bytes()), start_hash(run, first));
        if let Some(server) = self.server.get() {
            start = format!("{start} {server}");
        }
        // The last line in the file decides, so the memory must not change after the write.
        self.lock().by_id.insert(name.clone(), start.clone());
        let written = match &self.file {
            Ok(file) => write(file, &format!("{name} {start}\n"))
                .map_err(|error| format!("cannot write `{}`: {error}", file.display())),
            Err(problem) => Err(problem.clone()),
        };
        if let Err(problem) = written {
            self.warn(&problem);
        }
    }

    /// Warns once that runs of this journal cannot be resumed without `--trust-journal`.
    fn warn(&self, problem: &str) {
        if self.trusted {
            return;
        }
        self.warned.call_once(|| {
            note(&format!(
                "levity cannot store that you started runs of `{}`, so resuming them requires \
                    `--trust-journal`: {problem}",
                self.journal.display()
            ));
        });
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

/// Complete lines of a file.
struct Lines {
    text: String,
    /// The offset after them.
    end: u64,
}

/// Reads the complete lines from an offset on, or all lines if the file is shorter.
fn read(file: &Path, from: u64) -> io::Result<Lines> {
    let mut file = File::open(file)?;
    let from = if file.metadata()?.len() < from {
        0
    } else {
        from
    };
    file.seek(SeekFrom::Start(from))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    text.truncate(text.rfind('\n').map_or(0, |last| last + 1));
    let end = from + text.len() as u64;
    Ok(Lines { text, end })
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
        let is_own =
            || !self.is_foreign(run, &open.records) && self.marks.is_sealed(run, &open.records);
        if self.for_any_run && !is_own() {
            return Ok(open);
        }
        if marked {
            self.admit_open(run, &open.records, Some(&mut *open.log))
                .await?;
        } else {
            // Decisions that were posted before the run started do not answer a question of the
            // run.
            open.log.posted_by_now().await?;
        }
        let chain = chain_of(run, &open.records)?;
        let log = OwnLog {
            inner: open.log,
            run: run.clone(),
            seal: self.marks.seal(run, &chain),
            chain,
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

    /// Checks the records that it returns. A run in progress may have one append more between two
    /// of the steps here, so its seal is read before and after the records.
    async fn read_to_continue(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        let mut attempts = READ_ATTEMPTS;
        loop {
            let seal = self.marks.read_seal(run);
            let records = self.inner.read(run).await?;
            let is_own = !self.is_foreign(run, &records);
            let is_sealed =
                || Seal::matches(&seal, run, &records) || self.marks.is_sealed(run, &records);
            if self.marks.trusted || (is_own && is_sealed()) {
                return Ok(records);
            }
            if !is_own {
                return Err(self.marks.rejection(run));
            }
            attempts -= 1;
            if attempts == 0 {
                return Err(self.marks.rejection_of_changed(run));
            }
            SystemWorld.sleep(READ_INTERVAL).await;
        }
    }

    /// Removes the marks too: a run that is imported under the same id does not belong to the user.
    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let below = self.inner.list(&RunQuery::new().below(run.clone())).await?;
        let existed = self.inner.remove(run).await?;
        self.marks.remove(run)?;
        for child in below {
            self.marks.remove(&child.run)?;
        }
        Ok(existed)
    }

    /// Stores a decision in the state folder before it is posted, so that the run accepts it.
    async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        if !self.marks.is_private && seals::decides(post) {
            self.store_decision(run, post).await?;
        }
        self.inner.post(run, post).await
    }

    fn keeps(&self) -> bool {
        self.inner.keeps()
    }
}

/// A journal that receives imported runs, which do not belong to the user.
pub(crate) struct ImportJournal(pub(crate) Arc<OwnJournal>);

#[async_trait]
impl Journal for ImportJournal {
    /// Removes the mark of an earlier run with this id before a record is written: both runs can
    /// have the same start.
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let open = self.0.inner.open(run).await?;
        if open.records.is_empty() {
            self.0.marks.remove(run)?;
        }
        Ok(open)
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.0.inner.list(query).await
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.0.inner.read(run).await
    }

    fn keeps(&self) -> bool {
        self.0.inner.keeps()
    }
}

/// The log of a run, which is marked before its first record is written. It takes no snapshots,
/// because none would be read.
///
/// `marked` starts as true for an existing run, which `open` has admitted.
struct OwnLog {
    inner: Box<dyn RunLog>,
    run: RunId,
    /// The seal; `None` if it cannot be written.
    seal: Option<Seal>,
    chain: RecordChain,
    marks: Arc<Marks>,
    marked: bool,
}

impl OwnLog {
    /// Stops sealing after an error.
    fn keep_seal(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.marks.warn(&format!("cannot write its seal: {error}"));
            self.seal = None;
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl RunLog for OwnLog {
    /// Marks a new run before its first record, seals the records, and then forwards. When the
    /// records are stored, the seal matches only with them, and the decisions that they contain
    /// cannot be used again.
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if records.is_empty() {
            return self.inner.append(records).await;
        }
        if let Some(first) = records.first().filter(|_| !self.marked) {
            self.marks.add(&self.run, first);
            self.marked = true;
        }
        let finished = self.chain.finished_keys(records);
        let lines = self.chain.extend(records);
        let lines = lines.map_err(|error| unreadable(&self.run, error))?;
        if let Some(seal) = &self.seal {
            let written = seal.write(lines).await;
            self.keep_seal(written);
        }
        self.inner.append(records).await?;
        if let Some(seal) = &self.seal {
            let written = seal.write_soon(self.chain.line()).await;
            self.keep_seal(written);
        }
        let has_ended = |record: &Record| matches!(record.entry, Entry::Ended(_));
        let has_ended = records.iter().any(has_ended);
        if (has_ended || !finished.is_empty())
            && let Some(sent) = self.marks.sent_decisions(&self.run)
        {
            match has_ended {
                true => sent.remove_all(),
                false => sent.remove(&finished),
            }
        }
        Ok(())
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
        let requests = self.inner.posted().await?;
        Ok(self.marks.drop_forged(&self.run, &self.chain, requests))
    }

    async fn posted_by_now(&mut self) -> Result<Vec<RunRequest>, JournalError> {
        let requests = self.inner.posted_by_now().await?;
        Ok(self.marks.drop_forged(&self.run, &self.chain, requests))
    }
}
