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

mod desk;
mod file;
mod log;
mod mailbox;
mod owner;
mod reads;
mod writer;

use file::Place;
use log::{LastRow, SqliteLog};
use reads::{AfterSnapshot, Readers};
use writer::{Held, Work, Writer};

/// A lease is renewed three times before it runs out.
const LEASE: Duration = Duration::from_secs(10);

/// An index of ids has to stay small.
const LONGEST_ID: usize = 1_000;

/// Keeps any number of runs in one SQLite file, which other processes may list and leave word in.
///
/// It is for thousands of runs, and for programs that look at the runs of others: a list reads no
/// records, and whoever drives a run gets what others [`post`](Journal::post). `docs/journal.md`
/// describes the tables; any program that reads SQLite can look into the file.
///
/// - What many runs append at the same time goes to the disk at once; see [`Durability`] for what
///   that means.
/// - A run is driven by one journal at a time: whoever opens it has a lease, which is renewed while
///   the log lives. The runs of a process that is gone are free at once, those of one that stands
///   still when its lease has run out.
/// - Each opening of a run has a number, and every append names it. So whoever wakes up after
///   another took the run over writes nothing: it gets [`Fenced`](JournalErrorKind::Fenced).
/// - A file of another program, of a newer version or with flaws is refused and left as it is.
///
/// Clones are the same owner of runs. The room of runs that were removed is used again; the file
/// becomes smaller by `VACUUM`.
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

struct Store {
    place: Arc<Place>,
    readers: Arc<Readers>,
    /// Started by the first who writes.
    writer: Mutex<Option<Arc<Writer>>>,
}

impl SqliteJournal {
    /// Keeps runs in this file, which is made if it is not there or empty.
    ///
    /// # Errors
    /// When the file cannot be opened or made, and when it is no journal that this version can
    /// read: [`Version`](JournalErrorKind::Version) or [`Damaged`](JournalErrorKind::Damaged).
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let (place, checked) = Place::make(&path.into(), LEASE, Arc::new(SystemWorld))?;
        let journal = Self::at(place);
        journal.store.readers.keep(checked);
        #[cfg(feature = "tracing")]
        journal
            .problems()
            .iter()
            .for_each(|problem| tracing::warn!("{problem}"));
        Ok(journal)
    }

    /// What is wrong with how the runs are kept: other users of the system can read them, for
    /// instance. A new file can be read by its owner alone, and one that is there stays as it is.
    pub fn problems(&self) -> Vec<String> {
        self.store.place.file.exposed().into_iter().collect()
    }

    fn at(place: Place) -> Self {
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

    /// How safe a record is once it was appended; [`Durability::Synced`] by default. The changed
    /// copy is an owner of its own.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self::at(Place {
            durability,
            ..Place::clone(&self.store.place)
        })
    }

    /// How long a process may stand still before others may take its runs over; 10 seconds by
    /// default, and 10 milliseconds at least. The changed copy is an owner of its own.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        let lease = lease.max(Duration::from_millis(10));
        Self::at(Place {
            lease,
            ..Place::clone(&self.store.place)
        })
    }

    /// Goes by another clock for its lease. The changed copy is an owner of its own.
    #[must_use]
    pub fn with_world(self, world: impl World + 'static) -> Self {
        Self::at(Place {
            world: Arc::new(world),
            ..Place::clone(&self.store.place)
        })
    }

    /// Takes a snapshot of a run whenever so many bytes were appended since the last one, and at
    /// least as many as that one has; 1 MiB by default. A run is resumed from its last snapshot, so
    /// that resuming it takes no longer the longer it gets. The changed copy is an owner of its
    /// own.
    #[must_use]
    pub fn with_snapshot_interval(self, bytes: usize) -> Self {
        Self::at(Place {
            snapshots: bytes,
            ..Place::clone(&self.store.place)
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

    /// Reads, where it holds up nobody; `room` is given back at the end.
    async fn look<T: Send + 'static>(
        &self,
        room: impl Send + 'static,
        look: impl FnOnce(&Readers) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let readers = self.store.readers.clone();
        let seen = on_thread(move || {
            let seen = look(&readers);
            drop(room);
            seen
        });
        seen.await
    }

    async fn read_whole(&self, run: &RunId) -> Result<(Vec<Record>, LastRow), JournalError> {
        let run = run.clone();
        let room = self.store.readers.room_for_whole().await;
        self.look(room, move |readers| readers.records(&run)).await
    }

    /// A run that was taken, with all its records.
    async fn open_whole(&self, run: &RunId, held: Held) -> Result<OpenRun, JournalError> {
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
    async fn take(&self, run: &RunId) -> Result<Held, JournalError> {
        let writer = self.writer()?;
        let ask = || {
            writer.ask(|reply| Work::Take {
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

/// Another journal of this process may have let go of a run, and not have come to write that down:
/// waits until it has.
async fn settled(owner: i64) -> bool {
    let Some(other) = owner::in_this_process(owner) else {
        return false;
    };
    other.ask(|reply| Work::Settle { reply }).await.is_ok()
}

fn check_id(run: &RunId) -> Result<(), JournalError> {
    if run.as_str().len() <= LONGEST_ID {
        return Ok(());
    }
    let message = format!("the id of a run has at most {LONGEST_ID} bytes here");
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
        let (id, room) = (run.clone(), self.store.readers.room_for_whole().await);
        match self
            .look(room, move |readers| readers.after_snapshot(&id))
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
            // Flaws are found again when all records are read.
            _ => self.open_whole(run, held).await,
        }
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        Ok(self.read_whole(run).await?.0)
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        let query = query.clone();
        let room = self.store.readers.room().await;
        self.look(room, move |readers| readers.list(&query)).await
    }

    async fn remove(&self, run: &RunId) -> Result<bool, JournalError> {
        let writer = self.writer()?;
        let ask = || {
            writer.ask(|reply| Work::Remove {
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
        let post = file::json(post, "what is posted")?;
        self.writer()?
            .ask(|reply| Work::Post {
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
