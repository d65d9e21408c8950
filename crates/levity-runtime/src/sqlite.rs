//! The journal in one SQLite file, for many runs and several processes.
//!
//! One thread per journal writes, and groups the jobs of all runs into one transaction: a thousand
//! runs that append at the same time need one sync of the disk. Readers use their own connections
//! and do not block the writer, because the file is in WAL mode.
//!
//! A run belongs to an owner, which is one journal of one process. Ownership has two safeguards. A
//! lease, renewed by the writer, shows that the owner works. A lock file shows that its process
//! exists, so that runs of a killed process are free at once. In addition each opening increments
//! the `fence` of the run, and an append with an older number changes nothing.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Journal, JournalError, JournalErrorKind, OpenRun, Record, RunId, RunQuery, RunRequest,
    RunSummary, Timestamp, World,
};

use crate::Durability;
use crate::files::on_thread;
use levity_system::SystemWorld;

mod file;
mod job_runner;
mod log;
mod mailbox;
mod owner;
mod readers;
mod writer;

use file::JournalFile;
use log::{LastRow, SqliteLog};
use readers::{AfterSnapshot, Readers};
use writer::{HeldRun, Job, Writer};

/// The default duration of a lease, which is renewed three times before it expires.
const LEASE: Duration = Duration::from_secs(10);

/// The maximum length of an id: an index of ids has to stay small.
///
/// Longer ids are refused when a run is opened.
const MAX_ID: usize = 1_000;

/// A journal that stores any number of runs in one SQLite file, which other processes may list and
/// post to.
///
/// Use it for thousands of runs, and for programs that inspect the runs of others: a list reads no
/// records, and the driver of a run receives what others [`post`](Journal::post). `docs/journal.md`
/// describes the tables; any program that reads SQLite can read the file.
///
/// - Records that many runs append at the same time go to the disk at once; see [`Durability`] for
///   the guarantees.
/// - One journal at a time drives a run: opening it takes a lease, which is renewed while the log
///   lives. The runs of a process that has ended are free at once, those of one that hangs when its
///   lease has expired.
/// - Each opening of a run has a number, and every append names it. So a process that wakes up
///   after another took the run over writes nothing: it gets [`Fenced`](JournalErrorKind::Fenced).
/// - A file of another program, of a newer version or with damage is rejected and left unchanged.
///
/// Clones are the same owner of runs. The space of removed runs is reused; use `VACUUM` to make the
/// file smaller.
///
/// ```
/// # use levity_core::{Journal, RunId};
/// # use levity_runtime::SqliteJournal;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::JournalError> {
/// # let dir = std::env::temp_dir().join(format!("levity-sqlite-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let path = dir.join("runs.db");
/// let journal = SqliteJournal::new(&path)?;
/// let run = RunId::new("r1");
/// let open = journal.open(&run).await?;
/// assert!(SqliteJournal::new(&path)?.open(&run).await.is_err(), "one writer at a time");
/// # drop((open, journal));
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteJournal {
    store: Arc<Store>,
}

/// The state that clones share: they are the same owner.
struct Store {
    place: Arc<JournalFile>,
    readers: Arc<Readers>,
    /// The writer, started by the first write.
    writer: Mutex<Option<Arc<Writer>>>,
}

impl SqliteJournal {
    /// Opens a journal in this file, which is created if it does not exist or is empty.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or created, and if this version cannot read it
    /// as a journal: [`Version`](JournalErrorKind::Version) or
    /// [`Damaged`](JournalErrorKind::Damaged).
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let (place, checked) = JournalFile::make(&path.into(), LEASE, Arc::new(SystemWorld))?;
        let journal = Self::at(place);
        journal.store.readers.return_connection(checked);
        #[cfg(feature = "tracing")]
        journal
            .problems()
            .iter()
            .for_each(|problem| tracing::warn!("{problem}"));
        Ok(journal)
    }

    /// Returns problems with the stored runs, such as read access for other users of the system.
    ///
    /// A new file can be read by its owner alone; an existing one stays as it is.
    pub fn problems(&self) -> Vec<String> {
        self.store
            .place
            .file
            .exposure_warning()
            .into_iter()
            .collect()
    }

    fn at(place: JournalFile) -> Self {
        let place = Arc::new(place);
        let readers = Arc::new(Readers::new(place.clone()));
        Self {
            store: Arc::new(Store {
                place,
                readers,
                writer: Mutex::new(None),
            }),
        }
    }

    /// Sets how safe an appended record is; [`Durability::Synced`] by default. The changed copy is
    /// a separate owner.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self::at(JournalFile {
            durability,
            ..JournalFile::clone(&self.store.place)
        })
    }

    /// Sets how long a process may hang before others may take over its runs; 10 seconds by
    /// default, and at least 10 milliseconds. The changed copy is a separate owner.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use levity_runtime::SqliteJournal;
    /// # let dir = std::env::temp_dir().join(format!("levity-doc-lease-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// let journal = SqliteJournal::new(dir.join("runs.db"))?.with_lease(Duration::from_secs(30));
    /// # drop(journal);
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok::<(), levity_core::JournalError>(())
    /// ```
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        let lease = lease.max(Duration::from_millis(10));
        Self::at(JournalFile {
            lease,
            ..JournalFile::clone(&self.store.place)
        })
    }

    /// Sets another clock for the lease. The changed copy is a separate owner.
    #[must_use]
    pub fn with_world(self, world: impl World + 'static) -> Self {
        Self::at(JournalFile {
            world: Arc::new(world),
            ..JournalFile::clone(&self.store.place)
        })
    }

    /// Sets the number of bytes between two snapshots of a run; 1 MiB by default.
    ///
    /// A snapshot is taken once this many bytes were appended since the last one, and at least as
    /// many as that one has. A run is resumed from its last snapshot, so that resuming does not
    /// take longer as the run grows. The changed copy is a separate owner.
    #[must_use]
    pub fn with_snapshot_interval(self, bytes: usize) -> Self {
        Self::at(JournalFile {
            snapshots: bytes,
            ..JournalFile::clone(&self.store.place)
        })
    }

    fn writer(&self) -> Result<Arc<Writer>, JournalError> {
        let mut writer = self
            .store
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = &*writer {
            return Ok(writer.clone());
        }
        let started = Writer::start(&self.store.place, self.store.readers.clone())?;
        Ok(writer.insert(started).clone())
    }

    /// Reads on a blocking thread; `room` is released at the end.
    async fn read_blocking<T: Send + 'static>(
        &self,
        room: impl Send + 'static,
        work: impl FnOnce(&Readers) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let readers = self.store.readers.clone();
        let seen = on_thread(move || {
            let seen = work(&readers);
            drop(room);
            seen
        });
        seen.await
    }

    async fn read_whole(&self, run: &RunId) -> Result<(Vec<Record>, LastRow), JournalError> {
        let run = run.clone();
        let room = self.store.readers.whole_run_permits().await;
        self.read_blocking(room, move |readers| readers.records(&run))
            .await
    }

    /// Opens a run that was taken, with all its records.
    async fn open_whole(&self, run: &RunId, held: HeldRun) -> Result<OpenRun, JournalError> {
        let (records, last) = if held.new {
            Default::default()
        } else {
            self.read_whole(run).await?
        };
        let summary = RunSummary::of(run, &records);
        let summary = summary.unwrap_or_else(|| RunSummary::new(run.clone(), Timestamp::default()));
        Ok(OpenRun::new(
            records,
            SqliteLog::new(held, summary, last, 0, self.store.place.snapshots),
        ))
    }

    /// Takes the run for this owner.
    ///
    /// If another journal of this process has just released the run, the release may still be in
    /// that writer's queue. It is awaited once before the run counts as busy.
    async fn take(&self, run: &RunId) -> Result<HeldRun, JournalError> {
        let writer = self.writer()?;
        let ask = || {
            writer.ask(|reply| Job::Take {
                run: run.clone(),
                writer: writer.clone(),
                reply,
            })
        };
        let owner = match ask().await? {
            Ok(held) => return Ok(held),
            Err(owner) => owner,
        };
        if settled(owner).await
            && let Ok(held) = ask().await?
        {
            return Ok(held);
        }
        Err(JournalError::busy(run))
    }
}

/// Waits for another journal of this process that has released a run and has not written that yet.
async fn settled(owner: i64) -> bool {
    let Some(other) = owner::in_this_process(owner) else {
        return false;
    };
    other.ask(|reply| Job::Settle { reply }).await.is_ok()
}

fn check_id(run: &RunId) -> Result<(), JournalError> {
    if run.as_str().len() <= MAX_ID {
        return Ok(());
    }
    let message = format!("the id of a run must have at most {MAX_ID} bytes in this journal");
    Err(JournalError::new(JournalErrorKind::Refused, message))
}

#[async_trait]
impl Journal for SqliteJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        check_id(run)?;
        let held = self.take(run).await?;
        self.open_whole(run, held).await
    }

    async fn open_latest(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        check_id(run)?;
        let held = self.take(run).await?;
        if held.new {
            return self.open_whole(run, held).await;
        }
        let (id, room) = (run.clone(), self.store.readers.whole_run_permits().await);
        match self
            .read_blocking(room, move |readers| readers.after_snapshot(&id))
            .await
        {
            Ok(Some(AfterSnapshot {
                snapshot,
                len,
                records,
                last,
                summary,
            })) => {
                let log = SqliteLog::new(held, summary, last, len, self.store.place.snapshots);
                Ok(OpenRun::new(records, log).with_snapshot(snapshot))
            }
            // Damage is reported when all records are read.
            _ => self.open_whole(run, held).await,
        }
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        Ok(self.read_whole(run).await?.0)
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        let query = query.clone();
        let room = self.store.readers.room().await;
        self.read_blocking(room, move |readers| readers.list(&query))
            .await
    }

    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let writer = self.writer()?;
        let ask = || {
            writer.ask(|reply| Job::Remove {
                run: run.clone(),
                reply,
            })
        };
        let (owner, driven) = match ask().await? {
            Ok(removed) => return Ok(removed),
            Err(driven) => driven,
        };
        if settled(owner).await {
            return ask()
                .await?
                .map_err(|(_, driven)| JournalError::busy(&driven));
        }
        Err(JournalError::busy(&driven))
    }

    async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        let post = file::json(post, "the post")?;
        self.writer()?
            .ask(|reply| Job::Post {
                run: run.clone(),
                post,
                reply,
            })
            .await
    }
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.store.place;
        f.debug_struct("SqliteJournal")
            .field("path", &place.path())
            .field("durability", &place.durability)
            .field("lease", &place.lease)
            .finish_non_exhaustive()
    }
}
