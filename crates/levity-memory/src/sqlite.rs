use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Lease, MemoryError,
    MemoryStore, Message, Remembered, Timestamp,
};

use crate::Durability;
use crate::blocking::on_thread;

mod desk;
mod holds;
mod index;
mod place;
mod reads;
mod rows;
mod writer;

use place::Place;
use reads::Readers;
use writer::{Work, Writer, settled};

/// So often it is tried to take messages away from a search that goes on.
const IN_VAIN: u32 = 10;

/// Keeps any number of conversations in one SQLite file, which other processes may use at the same
/// time.
///
/// - Loading a window costs what the window holds, whatever the conversation holds, and reading
///   waits for nobody.
/// - What many save at the same time goes to the disk at once; see [`Durability`] for what that
///   means.
/// - What was trimmed or forgotten is overwritten, in the file, in the log beside it and in the
///   index of words. A program that reads the file at that moment may put off the last step until
///   it is done.
/// - The first search in a conversation, and one after many saves, makes what is new known to the
///   index first.
/// - A conversation is held until whoever holds it lets go or ends, however that comes.
/// - A file of another program, of a newer version or with flaws is refused and left as it is.
///
/// Clones are the same owner of conversations. The room of what was removed is used again; the file
/// becomes smaller by `VACUUM`. It needs a tokio runtime, and a file system with locks.
/// `docs/memory.md` describes the tables.
///
/// ```
/// # use levity_core::{ConversationChange, ConversationId, MemoryStore, Message};
/// # use levity_memory::SqliteMemory;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("memory.db");
/// let store = SqliteMemory::new(&path)?;
/// let id = ConversationId::new("monday");
/// store.save(&id, &ConversationChange::at(0).with_messages([Message::user("Good morning")])).await?;
/// assert_eq!(SqliteMemory::new(&path)?.load(&id, 10).await?.end, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteMemory {
    store: Arc<Store>,
}

struct Store {
    place: Arc<Place>,
    readers: Arc<Readers>,
    /// Started by the first who writes.
    writer: Mutex<Option<Arc<Writer>>>,
}

impl SqliteMemory {
    /// Keeps conversations in this file, which is made if it is not there or empty.
    ///
    /// # Errors
    /// When the file cannot be opened or made, and when it is none that this version can read:
    /// [`Version`](levity_core::MemoryErrorKind::Version) or
    /// [`Damaged`](levity_core::MemoryErrorKind::Damaged).
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, MemoryError> {
        let (place, checked) = Place::make(&path.into())?;
        let store = Self::at(place);
        store.store.readers.keep(checked);
        Ok(store)
    }

    /// What is wrong with how the conversations are kept: other users of the system can read them,
    /// for instance. A new file can be read by its owner alone, and one that is there stays as it
    /// is.
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

    /// How safe a save is once it returned; [`Durability::Synced`] by default. The changed copy is
    /// an owner of its own.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self::at(Place {
            durability,
            ..Place::clone(&self.store.place)
        })
    }

    /// Writes the file anew, so that nothing is left in it of what was trimmed or forgotten: SQLite
    /// leaves copies behind when it moves rows from page to page. A file of up to 4 MiB is written
    /// anew whenever a conversation is forgotten; a larger one takes some ten milliseconds per MiB,
    /// and others wait meanwhile. If somebody reads the file for long, it is tried again every
    /// second.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn wipe(&self) -> Result<(), MemoryError> {
        self.writer()?.ask(|reply| Work::Wipe { reply }).await
    }

    fn writer(&self) -> Result<Arc<Writer>, MemoryError> {
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

    /// Reads, where it holds up nobody.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Readers) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let readers = self.store.readers.clone();
        let room = readers.room().await;
        let seen = on_thread(move || {
            let seen = look(&readers);
            drop(room);
            seen
        });
        seen.await
    }

    async fn remove(
        &self,
        id: &ConversationId,
        unchanged_since: Option<Timestamp>,
    ) -> Result<bool, MemoryError> {
        let writer = self.writer()?;
        // Whoever removes it may have held it until now.
        writer.ask(|reply| Work::Settle { reply }).await?;
        let wanted = id.clone();
        if self
            .look(move |readers| readers.may_go(&wanted, unchanged_since))
            .await?
        {
            unindex(&writer, id, u64::MAX).await?;
        }
        let ask = || {
            writer.ask(|reply| Work::Remove {
                id: id.clone(),
                unchanged_since,
                reply,
            })
        };
        let owner = match ask().await? {
            Ok(removed) => return Ok(removed),
            Err(owner) => owner,
        };
        settled(owner).await;
        ask().await?.map_err(|_| MemoryError::busy(id))
    }
}

/// Takes all but few messages before a position away from the search, a few at a time, so that
/// others get their turn. They are searched again if it comes no further than that. Whoever
/// searches meanwhile makes them known again; if that goes on for long, the removal has to do all
/// in one go.
async fn unindex(writer: &Writer, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
    let (mut least, mut vain) = (u64::MAX, 0);
    while vain < IN_VAIN {
        match writer
            .ask(|reply| Work::Unindex {
                id: id.clone(),
                before,
                reply,
            })
            .await?
        {
            0 => break,
            left if left < least => least = left,
            _ => vain += 1,
        }
    }
    Ok(())
}

#[async_trait]
impl MemoryStore for SqliteMemory {
    async fn load(&self, id: &ConversationId, limit: usize) -> Result<Remembered, MemoryError> {
        let id = id.clone();
        self.look(move |readers| readers.load(&id, limit)).await
    }

    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let id = id.clone();
        self.look(move |readers| readers.read(&id, from, limit))
            .await
    }

    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        let (id, change) = (id.clone(), change.clone());
        self.writer()?
            .ask(|reply| Work::Save { id, change, reply })
            .await
    }

    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let (id, query) = (id.clone(), query.to_owned());
        let wanted = id.clone();
        if !self
            .look(move |readers| readers.is_indexed(&wanted))
            .await?
        {
            let writer = self.writer()?;
            while !writer
                .ask(|reply| Work::Index {
                    id: id.clone(),
                    reply,
                })
                .await?
            {}
        }
        self.look(move |readers| readers.search(&id, &query, limit))
            .await
    }

    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        let writer = self.writer()?;
        unindex(&writer, id, before).await?;
        writer
            .ask(|reply| Work::Trim {
                id: id.clone(),
                before,
                reply,
            })
            .await
    }

    async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        self.remove(id, None).await
    }

    async fn expire(
        &self,
        id: &ConversationId,
        unchanged_since: Timestamp,
    ) -> Result<bool, MemoryError> {
        self.remove(id, Some(unchanged_since)).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError> {
        let query = query.clone();
        self.look(move |readers| readers.list(&query)).await
    }

    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
        let writer = self.writer()?;
        let ask = || {
            writer.ask(|reply| Work::Lease {
                id: id.clone(),
                writer: writer.clone(),
                reply,
            })
        };
        let owner = match ask().await? {
            Ok(held) => return Ok(Lease::new(held)),
            Err(owner) => owner,
        };
        settled(owner).await;
        ask()
            .await?
            .map(Lease::new)
            .map_err(|_| MemoryError::busy(id))
    }
}

impl fmt::Debug for SqliteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.store.place;
        f.debug_struct("SqliteMemory")
            .field("path", &place.file.path())
            .field("durability", &place.durability)
            .finish_non_exhaustive()
    }
}
