use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Lease, MemoryError,
    MemoryErrorKind, MemoryStore, Message, Remembered, Timestamp,
};
use tokio::sync::{Semaphore, oneshot};

use crate::Durability;
use crate::blocking::on_thread;

mod cache;
mod disk;
mod folder;
mod format;
mod list;
pub(crate) mod name;

use folder::{Folder, What};

/// Returns whether every store takes an id: 200 bytes, where each that is no small letter, digit,
/// `-`, `_` or `.` counts three times.
///
/// Servers check ids with it before they hand them to a store.
///
/// ```
/// use levity_memory::conversation_id_fits;
/// assert!(conversation_id_fits("monday") && conversation_id_fits(&"a".repeat(200)));
/// assert!(!conversation_id_fits(&"a".repeat(201)) && !conversation_id_fits(&"A".repeat(67)) && !conversation_id_fits(""));
/// ```
pub fn conversation_id_fits(id: &str) -> bool {
    !id.is_empty() && name::escape(id).is_some()
}

/// How many may read or write at the same time; others wait until they may.
const MOST: usize = 32;

/// Keeps each conversation in a JSON file of its own: `{"summary": "..", "history": [..]}`.
///
/// It is for a few conversations that people want to look at, move or edit. A file that has only
/// these two keys is read, too.
///
/// - A save reads the file if somebody else wrote it, and writes all of it: its cost grows with the
///   conversation. `SqliteMemory`'s does not.
/// - A file is replaced as a whole: whatever happens, it has what was there before or after a save.
/// - Two programs that save at the same time wait for each other. One that cannot be read is
///   refused and left as it is, and so is a link.
/// - Any id has a name of its own in the folder, and none leads out of it.
///
/// Clones are the same store. It needs a tokio runtime, and a file system with locks; `.levity` in
/// the folder is where they are. What was removed is gone from the file system; what a disk keeps
/// of it is not overwritten.
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
/// store.save(&id, &ConversationChange::at(0).with_messages([Message::user("Good morning")])).await?;
/// assert!(std::fs::read_to_string(path.join("monday.json")).unwrap().contains("Good morning"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FileMemory {
    folder: Arc<Folder>,
    room: Arc<Semaphore>,
}

impl FileMemory {
    /// Keeps conversations in this folder, which is made if it is not there.
    ///
    /// # Errors
    /// When the folder can neither be found nor made.
    pub fn new(dir: impl Into<PathBuf>) -> Result<Self, MemoryError> {
        let dir = whole(&dir.into())?;
        levity_system::files::make_dir(&dir).map_err(|error| {
            let message = format!("the folder `{}` could not be made", dir.display());
            MemoryError::new(MemoryErrorKind::Io, message).with_source(error)
        })?;
        Ok(Self::of(What::Many(dir), Durability::default()))
    }

    /// Keeps one conversation, in this file. It is called whatever it is called when it is first
    /// saved; others are empty here and cannot be saved.
    ///
    /// # Errors
    /// When that is no path of a file.
    pub fn at(file: impl Into<PathBuf>) -> Result<Self, MemoryError> {
        let file = whole(&file.into())?;
        if file.file_name().and_then(|name| name.to_str()).is_none() {
            let message = format!("`{}` is no path of a file", file.display());
            return Err(MemoryError::new(MemoryErrorKind::Refused, message));
        }
        Ok(Self::of(What::One(file), Durability::default()))
    }

    /// What is wrong with how the conversations are kept: other users of the system can read them,
    /// for instance. New files can be read by their owner alone, and those that are there stay as
    /// they are.
    pub fn problems(&self) -> Vec<String> {
        let warning = match &self.folder.what {
            What::Many(dir) => levity_system::files::warning(dir),
            What::One(file) => levity_system::files::warning_of(file),
        };
        warning.into_iter().collect()
    }

    fn of(what: What, durability: Durability) -> Self {
        Self {
            folder: Arc::new(Folder::new(what, durability)),
            room: Arc::new(Semaphore::new(MOST)),
        }
    }

    /// How safe a save is once it returned; [`Durability::Synced`] by default.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self::of(self.folder.what.clone(), durability)
    }

    /// Does what may block where it holds up nobody.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let folder = self.folder.clone();
        // Nobody ever closes the door, so there always is room some time.
        let room = self.room.clone().acquire_owned().await.ok();
        let done = on_thread(move || {
            let done = work(&folder);
            drop(room);
            done
        });
        done.await
    }
}

/// The path from the root, so that the program may change its folder.
fn whole(path: &Path) -> Result<PathBuf, MemoryError> {
    std::path::absolute(path).map_err(|error| {
        let message = format!("`{}` is no path of a memory", path.display());
        MemoryError::new(MemoryErrorKind::Refused, message).with_source(error)
    })
}

#[async_trait]
impl MemoryStore for FileMemory {
    async fn load(&self, id: &ConversationId, limit: usize) -> Result<Remembered, MemoryError> {
        let id = id.clone();
        self.with(move |folder| folder.look(&id, |kept| kept.load(limit)))
            .await
    }

    async fn read(
        &self,
        id: &ConversationId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Message>)>, MemoryError> {
        let id = id.clone();
        self.with(move |folder| folder.look(&id, |kept| kept.read(from, limit)))
            .await
    }

    async fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        let (id, change, held) = (id.clone(), change.clone(), self.folder.held(id));
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
        self.with(move |folder| folder.look(&id, |kept| kept.search(&query, limit)))
            .await
    }

    async fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        let (id, held) = (id.clone(), self.folder.held(id));
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
        let (give, mut given) = oneshot::channel();
        let hold = move |folder: &Folder| folder.hold(&id, |held| drop(give.send(held)));
        self.with(hold).await?;
        given.try_recv().map(Lease::new).map_err(|error| {
            MemoryError::new(MemoryErrorKind::Io, "what was to be held got lost").with_source(error)
        })
    }
}

impl fmt::Debug for FileMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMemory")
            .field("files", &self.folder.what)
            .field("durability", &self.folder.durability)
            .finish()
    }
}
