//! Conversations in one SQLite file.
//!
//! One thread writes and groups the requests of all callers into transactions; four connections
//! read beside it. The word index is filled lazily, by the first search, since most conversations
//! are never searched.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Lease,
    LoadedConversation, MemoryError, MemoryStore, Message, Timestamp,
};

use crate::Durability;
use crate::blocking::run_blocking;

mod database;
mod holds;
mod index;
mod readers;
mod rows;
mod worker;
mod writer;

use database::Database;
use readers::Readers;
use writer::{WriteRequest, Writer, wait_for_flush};

/// The maximum number of unindexing attempts without progress during concurrent searches.
const MAX_FRUITLESS: u32 = 10;

/// A store for any number of conversations in one SQLite file, which several processes may share.
///
/// - Loading a window costs what the window holds, regardless of the length of the conversation.
///   Readers never wait for writers.
/// - Concurrent saves are written to the disk together; see [`Durability`] for the guarantees.
/// - Trimmed and forgotten messages are overwritten in the file, in the log beside it and in the
///   word index. A program that reads the file at that moment may delay the last step.
/// - The first search in a conversation, and one after many saves, adds the new messages to the
///   index first.
/// - A hold lasts until its holder releases it or its process ends for any reason.
/// - The store rejects files of other programs, of newer versions and with damage, and leaves them
///   unchanged.
///
/// Clones act as the same owner of conversations. The file reuses the space of removed data;
/// `VACUUM` makes it smaller. The store requires a tokio runtime and a file system with locks.
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
/// let change = ConversationChange::at(0).with_messages([Message::user("Good morning")]);
/// store.save(&id, &change).await?;
/// assert_eq!(SqliteMemory::new(&path)?.load(&id, 10).await?.end, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteMemory {
    store: Arc<Store>,
}

struct Store {
    database: Arc<Database>,
    readers: Arc<Readers>,
    /// Started by the first write.
    writer: Mutex<Option<Arc<Writer>>>,
}

impl SqliteMemory {
    /// Opens this file, and creates it if it does not exist or is empty.
    ///
    /// # Errors
    /// If the file cannot be opened or created, and if this version cannot read it:
    /// [`Version`](levity_core::MemoryErrorKind::Version) or
    /// [`Damaged`](levity_core::MemoryErrorKind::Damaged).
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, MemoryError> {
        let (database, checked) = Database::make(&path.into())?;
        let store = Self::open(database);
        store.store.readers.return_connection(checked);
        Ok(store)
    }

    /// Returns warnings about the file, for instance that other users of the system can read it. A
    /// new file is readable by its owner only; an existing file keeps its permissions.
    pub fn warnings(&self) -> Vec<String> {
        self.store
            .database
            .file
            .exposure_warning()
            .into_iter()
            .collect()
    }

    fn open(database: Database) -> Self {
        let database = Arc::new(database);
        let readers = Arc::new(Readers::new(database.clone()));
        Self {
            store: Arc::new(Store {
                database,
                readers,
                writer: Mutex::new(None),
            }),
        }
    }

    /// Sets the durability of a completed save; [`Durability::Synced`] by default. The returned
    /// store is a separate owner of conversations.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self::open(Database {
            durability,
            ..Database::clone(&self.store.database)
        })
    }

    /// Rewrites the file, so that no trimmed or forgotten data remains in it: SQLite leaves copies
    /// behind when it moves rows from page to page.
    ///
    /// The store rewrites a file of up to 4 MiB whenever a conversation is forgotten. A larger one
    /// takes some ten milliseconds per MiB, and other calls wait meanwhile. If another program
    /// reads the file for long, the store retries every second.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// ```
    /// use levity_core::{ConversationId, MemoryStore};
    /// use levity_memory::SqliteMemory;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = SqliteMemory::new(dir.path().join("memory.db"))?;
    /// store.forget(&ConversationId::new("monday")).await?;
    /// store.wipe().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wipe(&self) -> Result<(), MemoryError> {
        self.writer()?
            .submit(|reply| WriteRequest::Wipe { reply })
            .await
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
        let started = Writer::start(&self.store.database, self.store.readers.clone())?;
        Ok(writer.insert(started).clone())
    }

    /// Runs a read where it delays no other task.
    async fn read_blocking<T: Send + 'static>(
        &self,
        read_blocking: impl FnOnce(&Readers) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let readers = self.store.readers.clone();
        let permit = readers.acquire_permit().await;
        let result = run_blocking(move || {
            let result = read_blocking(&readers);
            drop(permit);
            result
        });
        result.await
    }

    /// The index is cleaned in small steps before the transaction that removes the rows, so that
    /// other writers wait for milliseconds and not for seconds.
    async fn remove(
        &self,
        id: &ConversationId,
        unchanged_since: Option<Timestamp>,
    ) -> Result<bool, MemoryError> {
        let writer = self.writer()?;
        // The caller of the removal may have held the conversation until now.
        writer.submit(|reply| WriteRequest::Flush { reply }).await?;
        let target = id.clone();
        if self
            .read_blocking(move |readers| readers.is_removable(&target, unchanged_since))
            .await?
        {
            unindex(&writer, id, u64::MAX).await?;
        }
        let submit = || {
            writer.submit(|reply| WriteRequest::Remove {
                id: id.clone(),
                unchanged_since,
                reply,
            })
        };
        let owner = match submit().await? {
            Ok(removed) => return Ok(removed),
            Err(owner) => owner,
        };
        wait_for_flush(owner).await;
        submit().await?.map_err(|_| MemoryError::busy(id))
    }
}

/// Removes all but a few messages before a position from the index, a few at a time, so that other
/// work can run in between. They are indexed again if the removal stops here. Concurrent searches
/// also index them again; if that persists, the removal does the rest at once.
async fn unindex(writer: &Writer, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
    let (mut lowest, mut fruitless) = (u64::MAX, 0);
    while fruitless < MAX_FRUITLESS {
        match writer
            .submit(|reply| WriteRequest::Unindex {
                id: id.clone(),
                before,
                reply,
            })
            .await?
        {
            0 => break,
            remaining if remaining < lowest => lowest = remaining,
            _ => fruitless += 1,
        }
    }
    Ok(())
}

#[async_trait]
impl MemoryStore for SqliteMemory {
    async fn load(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<LoadedConversation, MemoryError> {
        let id = id.clone();
        self.read_blocking(move |readers| readers.load(&id, limit))
            .await
    }

    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let id = id.clone();
        self.read_blocking(move |readers| readers.read(&id, from, limit))
            .await
    }

    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        let (id, change) = (id.clone(), change.clone());
        self.writer()?
            .submit(|reply| WriteRequest::Save { id, change, reply })
            .await
    }

    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let (id, query) = (id.clone(), query.to_owned());
        let target = id.clone();
        if !self
            .read_blocking(move |readers| readers.is_indexed(&target))
            .await?
        {
            let writer = self.writer()?;
            while !writer
                .submit(|reply| WriteRequest::Index {
                    id: id.clone(),
                    reply,
                })
                .await?
            {}
        }
        self.read_blocking(move |readers| readers.search(&id, &query, limit))
            .await
    }

    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        let writer = self.writer()?;
        unindex(&writer, id, before).await?;
        writer
            .submit(|reply| WriteRequest::Trim {
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
        self.read_blocking(move |readers| readers.list(&query))
            .await
    }

    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
        let writer = self.writer()?;
        let submit = || {
            writer.submit(|reply| WriteRequest::Lease {
                id: id.clone(),
                writer: writer.clone(),
                reply,
            })
        };
        let owner = match submit().await? {
            Ok(held) => return Ok(Lease::new(held)),
            Err(owner) => owner,
        };
        wait_for_flush(owner).await;
        submit()
            .await?
            .map(Lease::new)
            .map_err(|_| MemoryError::busy(id))
    }
}

impl fmt::Debug for SqliteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = &self.store.database;
        f.debug_struct("SqliteMemory")
            .field("path", &database.file.path())
            .field("durability", &database.durability)
            .finish_non_exhaustive()
    }
}
