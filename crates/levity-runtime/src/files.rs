//! The journal in files: one file per run, one line per record.
//!
//! The file is the lock: a process that drives a run holds an exclusive lock on it, and the end of
//! the process releases the lock. On Unix, every append checks that the file is still the one at
//! its path and has the expected length. A run whose file was moved or extended by someone else is
//! fenced and not overwritten.
//!
//! Opening, reading and syncing happen on blocking threads; the write of an append itself only
//! passes the bytes to the system. Reads have a limited number of permits, since each one holds a
//! whole run in memory.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    Durability, EffectKind, Entry, Journal, JournalError, JournalErrorKind, OpenRun, Record, RunId,
    RunLog, RunQuery, RunSummary, Snapshot,
};
use tokio::sync::Semaphore;

mod bodies;
pub(crate) mod format;
mod list;
mod remove;
mod snapshot;

use bodies::{Bodies, TextGuard, Texts};
#[cfg(feature = "sqlite")]
pub(crate) use format::{DEEP, depth};
use levity_system::files as private;
use snapshot::LastLine;

/// A journal that stores each run in its own file, with one JSON object per line for each record.
///
/// The file of run `r` is `r.jsonl`; read it with `cat` and `jq`, attach it to a bug report, delete
/// it. If a record has more than 64 KiB, its texts of more than 16 KiB are stored beside
/// it, in `bodies/`, under their SHA-256. `docs/journal.md` describes the format.
///
/// - A record is on disk when `append` returns, as far as that matters: see [`Durability`].
/// - One process at a time drives a run: its file is locked.
/// - A run is resumed from its last snapshot, `.r.snapshot`, which you may delete at any time.
/// - An incomplete last line is cut off when the run is opened. A file with any other damage is
///   rejected and left unchanged.
///
/// ```
/// # use levity_core::{Journal, RunId};
/// # use levity_runtime::FileJournal;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::JournalError> {
/// # let dir = std::env::temp_dir().join(format!("levity-doc-{}", std::process::id()));
/// let journal = FileJournal::new(&dir)?;
/// let run = journal.open(&RunId::new("r1")).await?;
/// assert!(run.records.is_empty());
/// # drop(run);
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FileJournal {
    dir: Arc<Path>,
    durability: Durability,
    /// The minimum number of bytes between two snapshots.
    snapshots: u64,
    room: Arc<ReadPermits>,
}

/// The default number of bytes of records between two snapshots.
const SNAPSHOTS: u64 = 1 << 20;

/// The number of further concurrent readers.
#[derive(Debug)]
struct ReadPermits {
    /// The permits for reading runs.
    reads: Arc<Semaphore>,
    /// The permits for listing runs: runs that have not ended are read completely, one after the
    /// other.
    lists: Arc<Semaphore>,
}

/// The maximum number of concurrent readers of runs, each with its whole run in memory; further
/// ones wait.
const READS: usize = 8;

/// The maximum number of concurrent lists of runs.
const LISTS: usize = 4;

impl FileJournal {
    /// Opens a journal in this folder, which is created if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the folder neither exists nor can be created.
    pub fn new(dir: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let dir = dir.into();
        private::make_dir(&dir).map_err(|error| failed(&dir, "made", error))?;
        let journal = Self {
            dir: dir.into(),
            durability: Durability::default(),
            snapshots: SNAPSHOTS,
            room: Arc::new(ReadPermits {
                reads: Arc::new(Semaphore::new(READS)),
                lists: Arc::new(Semaphore::new(LISTS)),
            }),
        };
        #[cfg(feature = "tracing")]
        journal
            .problems()
            .iter()
            .for_each(|problem| tracing::warn!("{problem}"));
        Ok(journal)
    }

    /// Returns problems with the stored runs, such as read access for other users of the system.
    ///
    /// New files can be read by their owner alone; existing ones stay as they are.
    ///
    /// ```
    /// # use levity_runtime::FileJournal;
    /// # let dir = std::env::temp_dir().join(format!("levity-doc-p-{}", std::process::id()));
    /// let journal = FileJournal::new(&dir)?;
    /// assert!(journal.problems().is_empty(), "a new folder is private");
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), levity_core::JournalError>(())
    /// ```
    pub fn problems(&self) -> Vec<String> {
        private::warning(&self.dir).into_iter().collect()
    }

    /// Sets how safe an appended record is; [`Durability::Synced`] by default.
    ///
    /// ```
    /// # use levity_runtime::{Durability, FileJournal};
    /// # let dir = std::env::temp_dir().join(format!("levity-doc-b-{}", std::process::id()));
    /// let fast = FileJournal::new(&dir)?.with_durability(Durability::Buffered);
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), levity_core::JournalError>(())
    /// ```
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the number of bytes between two snapshots of a run; 1 MiB by default.
    ///
    /// A snapshot is taken once this many bytes were appended since the last one, and at least as
    /// many as that one has. A run is resumed from its last snapshot, so that resuming does not
    /// take longer as the run grows.
    #[must_use]
    pub fn with_snapshot_interval(mut self, bytes: u64) -> Self {
        self.snapshots = bytes;
        self
    }

    /// The id becomes a file name unchanged, so an id that could leave the folder or hide a file is
    /// refused.
    fn path(&self, run: &RunId) -> Result<PathBuf, JournalError> {
        let id = run.as_str();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if id.is_empty() || id.len() > 200 || id.starts_with('.') || !id.bytes().all(plain) {
            let message = format!(
                "run `{}` cannot be stored in a file, which needs an id of at most 200 letters, \
                 digits, `.`, `_` and `-` that does not begin with `.`; choose another id",
                levity_core::text::one_line(id, 80)
            );
            return Err(JournalError::new(JournalErrorKind::Refused, message));
        }
        Ok(self.dir.join(format!("{id}.jsonl")))
    }

    /// Removes long texts that no run refers to any more, and returns their number.
    ///
    /// [`remove`](Journal::remove) leaves them, since other runs may refer to them, too. This reads
    /// every file of the folder, so call it after removing many runs. Runs may continue meanwhile:
    /// a text that is about to be referred to is not removed.
    ///
    /// # Errors
    /// Returns `Busy` if a long text is being written at this moment, and `Io` if a file cannot be
    /// read, since its references are then unknown. In neither case is a text removed that a run
    /// needs.
    ///
    /// ```
    /// # use levity_runtime::FileJournal;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::JournalError> {
    /// # let dir = std::env::temp_dir().join(format!("levity-doc-texts-{}", std::process::id()));
    /// let journal = FileJournal::new(&dir)?;
    /// assert_eq!(journal.remove_unused_texts().await?, 0);
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remove_unused_texts(&self) -> Result<usize, JournalError> {
        let bodies = self.bodies();
        on_thread(move || bodies.sweep()).await
    }

    fn bodies(&self) -> Bodies {
        Bodies::new(&self.dir, self.durability)
    }

    /// An incomplete last line was never confirmed to anyone, so cutting it off loses nothing.
    /// Other damage is an error, since the records behind it may have been relied on.
    fn open_now(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let path = self.path(run)?;
        let mut file = lock(&path, run)?;
        let bodies = self.bodies();
        let mut bytes = Vec::new();
        private::check_size(&file, private::MAX_SIZE)
            .map_err(|error| failed(&path, "read", error))?;
        file.read_to_end(&mut bytes)
            .map_err(|error| failed(&path, "read", error))?;
        let read = format::read(run, &path, &bytes, &bodies)?;
        if read.records.is_empty() {
            // A snapshot of a run that was deleted by hand does not belong to this one.
            snapshot::remove(&path);
        }
        let good = bytes.get(..read.good).unwrap_or_default();
        let last = LastLine::of(good, read.good as u64);
        let mut log = self.log(run, path, file, (bytes.len(), last))?;
        (log.next, log.since_snapshot) = (read.records.len() as u64, last.end);
        Ok(OpenRun::new(read.records, log))
    }

    /// Opens a run from its last snapshot, if there is a valid one.
    fn open_latest_now(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let path = self.path(run)?;
        let mut file = lock(&path, run)?;
        match self.read_after_snapshot(run, &path, &mut file) {
            Some(AfterSnapshot {
                snapshot,
                at,
                len,
                records,
                found,
            }) => {
                let mut log = self.log(run, path, file, found)?;
                log.next = snapshot.seq + records.len() as u64;
                (log.since_snapshot, log.last_snapshot) = (log.len.saturating_sub(at), len);
                Ok(OpenRun::new(records, log).with_snapshot(snapshot))
            }
            None => {
                drop(file);
                self.open_now(run)
            }
        }
    }

    /// Reads the snapshot of a run and the records behind it. Damage is reported later, when the
    /// whole file is read.
    fn read_after_snapshot(
        &self,
        run: &RunId,
        path: &Path,
        file: &mut File,
    ) -> Option<AfterSnapshot> {
        let (snapshot, last, len) = snapshot::read(path, run, file)?;
        let at = last.end;
        private::check_size(file, private::MAX_SIZE).ok()?;
        file.seek(SeekFrom::Start(last.end)).ok()?;
        let (mut bytes, place) = (Vec::new(), usize::try_from(last.end).ok()?);
        file.read_to_end(&mut bytes).ok()?;
        let read = format::read_from(path, &bytes, (snapshot.seq, place), &self.bodies()).ok()?;
        let last = match bytes.get(..read.good - place) {
            Some(good) if !good.is_empty() => LastLine::of(good, read.good as u64),
            _ => last,
        };
        let found = (place + bytes.len(), last);
        Some(AfterSnapshot {
            snapshot,
            at,
            len,
            records: read.records,
            found,
        })
    }

    /// Returns the log of a file of this length, without the bytes behind its last valid line.
    ///
    /// `len` is the length of the file and `last` the last line that is valid.
    fn log(
        &self,
        run: &RunId,
        path: PathBuf,
        file: File,
        (len, last): (usize, LastLine),
    ) -> Result<FileLog, JournalError> {
        if last.end < len as u64 {
            file.set_len(last.end)
                .map_err(|error| failed(&path, "mended", error))?;
        }
        Ok(FileLog {
            file: Arc::new(file),
            run: run.clone(),
            dir: self.dir.clone(),
            path,
            bodies: self.bodies(),
            len: last.end,
            last,
            next: 0,
            since_snapshot: 0,
            last_snapshot: 0,
            interval: self.snapshots,
            listed: false,
            durability: self.durability,
            usable: true,
        })
    }

    /// Reads without the lock and without repairing anything: another process may be writing.
    fn read_now(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        let path = self.path(run)?;
        let bytes = match read_regular(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(not_regular(&path));
            }
            Err(error) => return Err(failed(&path, "read", error)),
        };
        Ok(format::read(run, &path, &bytes, &self.bodies())?.records)
    }

    fn list_now(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        let bodies = self.bodies();
        let asked = |run: &RunId| {
            query
                .below
                .as_ref()
                .is_none_or(|above| run.is_within(above))
        };
        let (files, by_first) = (self.files(asked)?, list::by_first(query));
        // A file that was removed meanwhile, or cannot be read, does not hide the others.
        let found = files
            .iter()
            .filter_map(|(run, path)| list::summary(run, path, &by_first, &bodies));
        Ok(query.select(found))
    }

    /// Returns the files of the requested runs.
    fn files(&self, asked: impl Fn(&RunId) -> bool) -> Result<Vec<(RunId, PathBuf)>, JournalError> {
        let unread = |error| failed(&self.dir, "read", error);
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            let name = entry.file_name();
            let run = name
                .to_str()
                .and_then(|name| name.strip_suffix(".jsonl"))
                .map(RunId::new);
            let Some(run) = run.filter(&asked) else {
                continue;
            };
            let path = entry.path();
            let plain = entry.file_type().is_ok_and(|kind| kind.is_file())
                || fs::metadata(&path).is_ok_and(|there| there.is_file());
            if plain {
                files.push((run, path));
            }
        }
        Ok(files)
    }
}

#[async_trait]
impl Journal for FileJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let (journal, run) = (self.clone(), run.clone());
        on_thread(move || journal.open_now(&run)).await
    }

    async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let (journal, run) = (self.clone(), run.clone());
        on_thread(move || journal.open_latest_now(&run)).await
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        let (journal, run) = (self.clone(), run.clone());
        with_permit(&self.room.reads, move || journal.read_now(&run)).await
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        let (journal, query) = (self.clone(), query.clone());
        with_permit(&self.room.lists, move || journal.list_now(&query)).await
    }

    /// Removes the file of a run and those of all its child runs. Long texts stay until
    /// [`remove_unused_texts`](FileJournal::remove_unused_texts). You can call it again after a
    /// crash.
    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let (journal, run) = (self.clone(), run.clone());
        on_thread(move || journal.remove_now(&run)).await
    }
}

/// A run from its last snapshot on.
struct AfterSnapshot {
    snapshot: Snapshot,
    /// The offset in the file at which the snapshot was taken, and its length.
    at: u64,
    len: u64,
    records: Vec<Record>,
    /// The length of the file, and its last valid line.
    found: (usize, LastLine),
}

/// The open file of one run. `usable` is `false` during each append: if the future of the append is
/// dropped, the state of the file is unknown, and every later append fails.
struct FileLog {
    file: Arc<File>,
    run: RunId,
    dir: Arc<Path>,
    path: PathBuf,
    bodies: Bodies,
    len: u64,
    last: LastLine,
    /// The number of the next record.
    next: u64,
    /// The bytes appended since the last snapshot, the length of that snapshot, and the minimum
    /// interval between two.
    since_snapshot: u64,
    last_snapshot: u64,
    interval: u64,
    /// `true` once the file's name is certain to survive a power failure.
    listed: bool,
    durability: Durability,
    /// `false` after a failure, or an append that was dropped half-way: the content of the file is
    /// then unknown.
    usable: bool,
}

#[async_trait]
impl RunLog for FileLog {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        if let Some(first) = records.first().filter(|first| first.seq != self.next) {
            let message = format!(
                "record {} cannot follow {} records of run `{}`",
                first.seq, self.next, self.run
            );
            return Err(JournalError::new(JournalErrorKind::Refused, message));
        }
        if !std::mem::replace(&mut self.usable, false) {
            let message = format!(
                "an earlier write of run `{}` failed; open the run again",
                self.run
            );
            return Err(JournalError::new(JournalErrorKind::Io, message));
        }
        let new = self.len == 0;
        let mut bytes = if new {
            format::header(&self.run)
        } else {
            Vec::new()
        };
        let mut texts = Texts::new();
        for record in records {
            format::write(record, Some(&mut texts), &mut bytes)?;
        }
        let text_guard = self.store(texts).await?;
        let last = LastLine::of(&bytes, self.len + bytes.len() as u64);
        self.since_snapshot += bytes.len() as u64;
        if cfg!(unix) && new && records.len() > 1 {
            self.write_whole(bytes).await?;
        } else {
            self.write(&bytes)?;
        }
        drop(text_guard);
        if self.durability == Durability::Synced && records.iter().any(needs_sync) {
            let (file, dir) = (self.file.clone(), (!self.listed).then(|| self.dir.clone()));
            let synced = on_thread(move || {
                file.sync_data()
                    .and_then(|()| dir.map_or(Ok(()), |dir| sync_dir(&dir)))
            });
            synced
                .await
                .map_err(|error| failed(&self.path, "synced", error))?;
            self.listed = true;
        }
        (self.usable, self.last) = (true, last);
        self.next += records.len() as u64;
        Ok(())
    }

    fn takes_snapshots(&self) -> bool {
        true
    }

    fn wants_snapshot(&self) -> bool {
        self.usable && self.since_snapshot >= self.interval.max(self.last_snapshot)
    }

    async fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), JournalError> {
        let (path, run, last) = (self.path.clone(), self.run.clone(), self.last);
        // If it fails, the next one is as far away.
        self.since_snapshot = 0;
        self.last_snapshot =
            on_thread(move || snapshot::write(&path, &run, snapshot, last)).await?;
        Ok(())
    }
}

impl FileLog {
    /// Stores long texts, and protects them until the file refers to them.
    async fn store(&self, texts: Texts) -> Result<Option<TextGuard>, JournalError> {
        if texts.is_empty() {
            return Ok(None);
        }
        let bodies = self.bodies.clone();
        on_thread(move || bodies.store(&texts).map(Some)).await
    }

    /// Begins a run with many records: an import or a fork. After a crash, all of them are there or
    /// none, since half of an old run would look like a run in progress.
    async fn write_whole(&mut self, bytes: Vec<u8>) -> Result<(), JournalError> {
        let (path, run, durability) = (self.path.clone(), self.run.clone(), self.durability);
        let len = bytes.len() as u64;
        let whole =
            on_thread(move || ReplacementFile::write(&path, &run, &bytes, durability)).await?;
        // Only this code changes the run's own file, while this log still holds it.
        if !is_in_place(&self.file, &self.path, Some(0)) {
            return Err(JournalError::fenced(&self.run));
        }
        self.file = whole
            .become_file(&self.path)
            .map_err(|error| failed(&self.path, "written", error))?;
        self.len = len;
        Ok(())
    }

    /// Passes all bytes to the system at once; a partial write is undone.
    fn write(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        if !is_in_place(&self.file, &self.path, Some(self.len)) {
            return Err(JournalError::fenced(&self.run));
        }
        if let Err(error) = (&*self.file).write_all(bytes) {
            // If this fails too, the torn line is cut off when the run is opened again.
            let _ = self.file.set_len(self.len);
            return Err(failed(&self.path, "written", error));
        }
        self.len += bytes.len() as u64;
        Ok(())
    }
}

/// A file that is locked and written, and then replaces another.
///
/// It is locked under its temporary name already, so that no other process can take the run between
/// the rename and the lock.
struct ReplacementFile {
    file: Arc<File>,
    path: PathBuf,
}

impl ReplacementFile {
    fn write(
        path: &Path,
        run: &RunId,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<Self, JournalError> {
        // No run has an id that begins with a dot. An existing file was left by a process that was
        // killed, or is a link.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let path = path.with_file_name(format!(".{name}.new"));
        let whole = Self {
            file: Arc::new(lock(&path, run)?),
            path,
        };
        let written = whole
            .file
            .set_len(0)
            .and_then(|()| (&*whole.file).write_all(bytes));
        let synced = written.and_then(|()| match durability {
            Durability::Buffered => Ok(()),
            _ => whole.file.sync_data(),
        });
        synced.map_err(|error| failed(&whole.path, "written", error))?;
        Ok(whole)
    }

    fn become_file(self, path: &Path) -> io::Result<Arc<File>> {
        fs::rename(&self.path, path).map(|()| self.file.clone())
    }
}

impl Drop for ReplacementFile {
    /// Removes the file unless it has replaced the other.
    fn drop(&mut self) {
        if is_in_place(&self.file, &self.path, None) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for FileLog {
    /// Removes the file of a run without records. The lock is released explicitly: a thread that
    /// still waits for the disk holds the file as well.
    fn drop(&mut self) {
        if cfg!(unix) && self.len == 0 && is_in_place(&self.file, &self.path, Some(0)) {
            let _ = fs::remove_file(&self.path);
        }
        let _ = self.file.unlock();
    }
}

/// Returns `true` if a record must be on disk before anything relies on it.
///
/// A start of an effect that may be repeated needs no sync. If a power failure loses it, the effect
/// is performed again, which its class allows.
pub(crate) fn needs_sync(record: &Record) -> bool {
    match &record.entry {
        // Money that may have been spent, and runs that may have spent some, must not be forgotten.
        Entry::Started { note, .. }
            if note.reserved.is_some() || note.kind == EffectKind::Child =>
        {
            true
        }
        Entry::Started { note, .. } => note.kind == EffectKind::Tool && !note.class.may_repeat(),
        _ => true,
    }
}

/// Reads a regular file and nothing else: reading a pipe might never end.
fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    private::read_at_most(path, private::MAX_SIZE)
}

/// Opens a file and locks it against other processes.
fn lock(path: &Path, run: &RunId) -> Result<File, JournalError> {
    let found = try_lock(
        path,
        run,
        private::options().read(true).append(true).create(true),
    )?;
    found.ok_or_else(|| failed(path, "opened", io::ErrorKind::NotFound.into()))
}

/// Does the same, and returns `None` if the file does not exist.
///
/// It retries if the file was replaced between opening and locking it: such a lock would protect a
/// file that is no longer at the path.
fn try_lock(path: &Path, run: &RunId, how: &OpenOptions) -> Result<Option<File>, JournalError> {
    loop {
        let file = match private::open(path, how) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(refused(&error));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(path, "opened", error)),
        };
        if !file.metadata().is_ok_and(|there| there.is_file()) {
            return Err(not_regular(path));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::busy(run)),
            Err(TryLockError::Error(error)) => return Err(failed(path, "locked", error)),
        }
        // The previous holder of the lock may have removed the file in the meantime.
        if is_in_place(&file, path, None) {
            return Ok(Some(file));
        }
    }
}

/// Returns `true` if a file is still where it was opened, and has this length.
#[cfg(unix)]
pub(crate) fn is_in_place(file: &File, path: &Path, len: Option<u64>) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(there)) => {
            (open.dev(), open.ino()) == (there.dev(), there.ino())
                && len.is_none_or(|len| len == there.len())
        }
        (_, there) => !there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound),
    }
}

#[cfg(not(unix))]
pub(crate) fn is_in_place(_: &File, _: &Path, _: Option<u64>) -> bool {
    true
}

/// Makes a new name in a folder durable.
fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(dir)?.sync_all()
    } else {
        Ok(())
    }
}

fn not_regular(path: &Path) -> JournalError {
    let message = format!("the journal `{}` is not a regular file", path.display());
    JournalError::new(JournalErrorKind::Refused, message)
}

fn refused(error: &io::Error) -> JournalError {
    JournalError::new(
        JournalErrorKind::Refused,
        format!("the journal cannot be written: {error}"),
    )
}

fn failed(path: &Path, what: &str, error: io::Error) -> JournalError {
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    let message = format!("the journal `{name}` could not be {what}");
    JournalError::new(JournalErrorKind::Io, message).with_source(error)
}

/// Runs blocking work once there is room for it. Dropping the future does not stop the work, so
/// that it keeps its room.
///
/// The permit moves into the work. A caller that gives up does not make room for another reader
/// before the disk is done.
async fn with_permit<T: Send + 'static>(
    room: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> Result<T, JournalError> {
    // The semaphore is never closed.
    let room = room.clone().acquire_owned().await.ok();
    let work = on_thread(move || {
        let done = work();
        drop(room);
        done
    });
    work.await
}

/// Runs blocking work on a thread for it.
pub(crate) async fn on_thread<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<ShuttingDown> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(ShuttingDown.into()),
    }
}

/// The error of work whose runtime is shutting down.
pub(crate) struct ShuttingDown;

impl From<ShuttingDown> for JournalError {
    fn from(_: ShuttingDown) -> Self {
        Self::new(
            JournalErrorKind::Io,
            "the journal did not finish its work: the program is shutting down",
        )
    }
}

impl From<ShuttingDown> for io::Error {
    fn from(_: ShuttingDown) -> Self {
        Self::other("the program is shutting down")
    }
}
