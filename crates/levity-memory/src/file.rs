//! Conversations as JSON files, one each.
//!
//! The store is made for people who read and edit their conversations. So a file is one readable
//! document, and a save rewrites all of it. A cache avoids reading a file again that this process
//! wrote last.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Lease,
    LoadedConversation, MemoryError, MemoryErrorKind, MemoryStore, Message, Timestamp,
};
use tokio::sync::{Semaphore, oneshot};

use crate::Durability;
use crate::blocking::run_blocking;

mod cache;
mod disk;
mod folder;
mod format;
mod list;
pub(crate) mod name;

use folder::{Folder, Location};

/// Returns `true` if every store accepts the id: at most 200 bytes.
///
/// A byte other than a lower-case letter, digit, `-`, `_` or `.` counts three times.
///
/// Use it in a server to check an id before passing it to a store.
///
/// ```
/// use levity_memory::is_valid_conversation_id;
/// assert!(is_valid_conversation_id("monday") && is_valid_conversation_id(&"a".repeat(200)));
/// assert!(!is_valid_conversation_id(&"a".repeat(201)) && !is_valid_conversation_id(""));
/// assert!(!is_valid_conversation_id(&"A".repeat(67)));
/// ```
pub fn is_valid_conversation_id(id: &str) -> bool {
    !id.is_empty() && name::escape(id).is_some()
}

/// The maximum number of concurrent reads and writes; others wait.
const MAX_CONCURRENT: usize = 32;

/// A store with one JSON file per conversation: `{"summary": "..", "history": [..]}`.
///
/// Use it for a small number of conversations that people inspect, move or edit. It also reads a
/// file that contains only these two keys.
///
/// - A save reads the file if another process changed it, and rewrites all of it. The cost grows
///   with the conversation, unlike with `SqliteMemory`.
/// - The store replaces a file atomically: after a crash it has the content from before or after
///   the save.
/// - Two programs that save at the same time wait for each other. The store rejects unreadable
///   files and links, and leaves them unchanged.
/// - Every id has a unique file name in the folder, and none leads outside the folder.
///
/// Clones share the same store. The store needs a tokio runtime and a file system with locks; the
/// locks are in `.levity` in the folder. Removing a conversation deletes its file, but does not
/// overwrite its data on the disk.
///
/// ```
/// # use levity_core::{ConversationChange, ConversationId, MemoryStore, Message};
/// # use levity_memory::FileMemory;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_core::MemoryError> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("memory");
/// let store = FileMemory::new(&path)?;
/// let id = ConversationId::new("monday");
/// let change = ConversationChange::at(0).with_messages([Message::user("Good morning")]);
/// store.save(&id, &change).await?;
/// assert!(std::fs::read_to_string(path.join("monday.json")).unwrap().contains("Good morning"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FileMemory {
    folder: Arc<Folder>,
    permits: Arc<Semaphore>,
}

impl FileMemory {
    /// Opens a store in this folder, and creates the folder if it does not exist.
    ///
    /// # Errors
    /// If the folder neither exists nor can be created.
    pub fn new(dir: impl Into<PathBuf>) -> Result<Self, MemoryError> {
        let dir = absolute_path(&dir.into())?;
        levity_system::files::make_dir(&dir).map_err(|error| {
            let message = format!("cannot create the folder `{}`", dir.display());
            MemoryError::new(MemoryErrorKind::Io, message).with_source(error)
        })?;
        Ok(Self::with_location(
            Location::Directory(dir),
            Durability::default(),
        ))
    }

    /// Opens a store for a single conversation in this file. The first save sets its id; other
    /// conversations read as empty and cannot be saved.
    ///
    /// # Errors
    /// If the path does not name a file.
    ///
    /// ```
    /// use levity_core::{
    ///     ConversationChange, ConversationId, MemoryErrorKind, MemoryStore, Message,
    /// };
    /// use levity_memory::FileMemory;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_core::MemoryError> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = FileMemory::single_file(dir.path().join("chat.json"))?;
    /// let change = ConversationChange::at(0).with_messages([Message::user("Good morning")]);
    /// store.save(&ConversationId::new("monday"), &change).await?;
    /// let error = store.save(&ConversationId::new("tuesday"), &change).await.unwrap_err();
    /// assert_eq!(error.kind(), MemoryErrorKind::Refused);
    /// # Ok(())
    /// # }
    /// ```
    pub fn single_file(file: impl Into<PathBuf>) -> Result<Self, MemoryError> {
        let file = absolute_path(&file.into())?;
        if file.file_name().and_then(|name| name.to_str()).is_none() {
            let message = format!("`{}` is not the path of a file", file.display());
            return Err(MemoryError::new(MemoryErrorKind::Refused, message));
        }
        Ok(Self::with_location(
            Location::SingleFile(file),
            Durability::default(),
        ))
    }

    /// Returns warnings about the storage, for instance that other users of the system can read the
    /// files. New files are readable by their owner only; existing files keep their permissions.
    pub fn warnings(&self) -> Vec<String> {
        let warning = match &self.folder.location {
            Location::Directory(dir) => levity_system::files::warning(dir),
            Location::SingleFile(file) => levity_system::files::warning_of(file),
        };
        warning.into_iter().collect()
    }

    fn with_location(location: Location, durability: Durability) -> Self {
        Self {
            folder: Arc::new(Folder::new(location, durability)),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        }
    }

    /// Sets the durability of a completed save; [`Durability::Synced`] by default.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self::with_location(self.folder.location.clone(), durability)
    }

    /// Runs blocking work on a thread where it delays no other task.
    ///
    /// The permit moves into the work, so that abandoned calls still count as concurrent ones.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let folder = self.folder.clone();
        // No code closes the semaphore, so a permit always becomes available.
        let permits = self.permits.clone().acquire_owned().await.ok();
        let result = run_blocking(move || {
            let result = work(&folder);
            drop(permits);
            result
        });
        result.await
    }
}

/// Makes a path absolute, so that the program may change its working directory.
fn absolute_path(path: &Path) -> Result<PathBuf, MemoryError> {
    std::path::absolute(path).map_err(|error| {
        let message = format!(
            "`{}` is not a valid path for a memory store",
            path.display()
        );
        MemoryError::new(MemoryErrorKind::Refused, message).with_source(error)
    })
}

#[async_trait]
impl MemoryStore for FileMemory {
    async fn load(
        &self,
        id: &ConversationId,
        limit: usize,
    ) -> Result<LoadedConversation, MemoryError> {
        let id = id.clone();
        self.with(move |folder| folder.with_conversation(&id, |stored| stored.load(limit)))
            .await
    }

    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let id = id.clone();
        self.with(move |folder| folder.with_conversation(&id, |stored| stored.read(from, limit)))
            .await
    }

    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        let (id, change, held) = (id.clone(), change.clone(), self.folder.current_hold(id));
        let saved = self.with(move |folder| {
            let saved = folder.save(&id, &change);
            drop(held);
            saved
        });
        saved.await
    }

    async fn search(
        &self,
        id: &ConversationId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let (id, query) = (id.clone(), query.to_owned());
        self.with(move |folder| {
            folder.with_conversation(&id, |stored| stored.search(&query, limit))
        })
        .await
    }

    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        let (id, held) = (id.clone(), self.folder.current_hold(id));
        let trimmed = self.with(move |folder| {
            let trimmed = folder.trim(&id, before);
            drop(held);
            trimmed
        });
        trimmed.await
    }

    async fn forget(&self, id: &ConversationId) -> Result<bool, MemoryError> {
        let id = id.clone();
        self.with(move |folder| folder.remove(&id, None)).await
    }

    async fn expire(
        &self,
        id: &ConversationId,
        unchanged_since: Timestamp,
    ) -> Result<bool, MemoryError> {
        let id = id.clone();
        self.with(move |folder| folder.remove(&id, Some(unchanged_since)))
            .await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, MemoryError> {
        let query = query.clone();
        self.with(move |folder| folder.list(&query)).await
    }

    async fn hold(&self, id: &ConversationId) -> Result<Lease, MemoryError> {
        let id = id.clone();
        let (sender, mut receiver) = oneshot::channel();
        let hold = move |folder: &Folder| folder.hold(&id, |held| drop(sender.send(held)));
        self.with(hold).await?;
        receiver.try_recv().map(Lease::new).map_err(|error| {
            MemoryError::new(
                MemoryErrorKind::Io,
                "the lease on the conversation was lost before \
                it was returned",
            )
            .with_source(error)
        })
    }
}

impl fmt::Debug for FileMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMemory")
            .field("files", &self.folder.location)
            .field("durability", &self.folder.durability)
            .finish()
    }
}
