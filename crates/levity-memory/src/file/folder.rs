//! Blocking operations on conversations in files.
//!
//! A write takes one of 32 lock files, chosen by the hash of the name. The number is fixed, so that
//! a folder of thousands of conversations does not collect thousands of lock files. A hold is a
//! file with the number of its owner; it counts only while that owner lives.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Digest, MemoryError,
    MemoryErrorKind, Timestamp,
};

use super::cache::{Cache, CachedConversation};
use super::{disk, format, list, name};
use crate::Durability;
use crate::stored::{self, StoredConversation};
use levity_core::World as _;
use levity_system::files as private;
use levity_system::{Owner, SystemWorld, WithoutLocks};

/// The number of lock files for all conversations of a folder.
const LOCK_COUNT: u64 = 32;

/// The maximum length of an id that does not become a file name.
const MAX_ID_BYTES: usize = 1_000;

/// `owner` is created by the first hold; a store that only reads leaves no trace in the folder.
pub(super) struct Folder {
    pub(super) location: Location,
    pub(super) durability: Durability,
    cache: Cache,
    owner: Mutex<Option<Arc<Owner>>>,
    holds: Arc<Holds>,
}

/// The conversations that this store holds, by file name.
type Holds = Mutex<HashMap<String, Weak<HoldGuard>>>;

/// The location of the files.
#[derive(Clone, Debug)]
pub(super) enum Location {
    /// A folder with one file per conversation.
    Directory(PathBuf),
    /// A file with a single conversation.
    SingleFile(PathBuf),
}

/// The paths of one conversation.
struct FilePaths {
    name: String,
    path: PathBuf,
    /// The temporary file that replaces the old one once it is written.
    temp: PathBuf,
}

impl Folder {
    pub(super) fn new(location: Location, durability: Durability) -> Self {
        Self {
            location,
            durability,
            cache: Cache::default(),
            owner: Mutex::default(),
            holds: Arc::default(),
        }
    }

    /// Returns the paths of a conversation; `None` if it cannot be stored.
    fn paths(&self, id: &ConversationId) -> Option<FilePaths> {
        let (dir, file, name) = match &self.location {
            Location::Directory(dir) => {
                let name = name::escape(id.as_str())?;
                (dir.as_path(), format!("{name}.json"), name)
            }
            Location::SingleFile(path) => {
                let file = path.file_name()?.to_str()?.to_owned();
                let fits = id.as_str().len() <= MAX_ID_BYTES;
                (path.parent()?, file, fits.then(|| "one".to_owned())?)
            }
        };
        Some(FilePaths {
            name,
            path: dir.join(&file),
            temp: dir.join(format!(".{file}.new")),
        })
    }

    fn require_paths(&self, id: &ConversationId) -> Result<FilePaths, MemoryError> {
        self.paths(id).ok_or_else(|| {
            let message = "the conversation id is too long for a file: the limit is 200 bytes, \
                where \
                a byte other than a lower-case letter, digit, `-`, `_` or `.` counts three times";
            MemoryError::new(MemoryErrorKind::Refused, message)
        })
    }

    /// Returns the folder of the locks and holds.
    fn state_dir(&self) -> PathBuf {
        match &self.location {
            Location::Directory(dir) => dir.join(".levity"),
            Location::SingleFile(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                path.with_file_name(format!(".{name}.levity"))
            }
        }
    }

    /// Locks a conversation against all other writers.
    fn lock(&self, id: &ConversationId, paths: &FilePaths) -> Result<fs::File, MemoryError> {
        self.check_folder_exists()?;
        let number =
            u64::from_str_radix(&Digest::EMPTY.with(paths.name.as_bytes()).to_string(), 16);
        let state_dir = self.state_dir();
        let path = state_dir.join(format!(
            "lock-{:02}",
            number.unwrap_or_default() % LOCK_COUNT
        ));
        let linked = ["owners", "holds"].map(|name| private::refuse_link(&state_dir.join(name)));
        let locked = linked
            .into_iter()
            .collect::<io::Result<()>>()
            .and_then(|()| disk::lock(&path));
        locked.map_err(|error| io_error(id, "lock", error))
    }

    /// Fails if the folder no longer exists, because every conversation would then seem empty.
    fn check_folder_exists(&self) -> Result<(), MemoryError> {
        match &self.location {
            Location::Directory(dir) if !dir.is_dir() => {
                let message = format!(
                    "the conversation folder `{}` no longer exists",
                    dir.display()
                );
                Err(MemoryError::new(MemoryErrorKind::Io, message))
            }
            _ => Ok(()),
        }
    }

    /// Returns a conversation as stored in its file, and reads the file again only if another
    /// process has written it since. Returns `None` if there is no such conversation, or if the
    /// file contains another conversation.
    fn find(
        &self,
        id: &ConversationId,
        paths: &FilePaths,
    ) -> Result<Option<CachedConversation>, MemoryError> {
        let Some(stamp) = disk::stamp(&paths.path).map_err(|error| io_error(id, "read", error))?
        else {
            return self.check_folder_exists().map(|()| None);
        };
        let cached = match self.cache.find(&paths.name, stamp) {
            Some(cached) => cached,
            None => {
                let Some(cached) = read(id, paths)? else {
                    return Ok(None);
                };
                self.cache.put(&paths.name, cached.clone());
                cached
            }
        };
        let matches = cached.id.as_ref().is_none_or(|cached| cached == id);
        match &self.location {
            Location::Directory(_) if !matches => Err(MemoryError::damaged(
                id,
                "its file contains the id of another conversation",
            )),
            _ => Ok(matches.then_some(cached)),
        }
    }

    /// Reads a conversation; an unknown one reads as empty.
    pub(super) fn with_conversation<T: Default>(
        &self,
        id: &ConversationId,
        read: impl FnOnce(&StoredConversation) -> T,
    ) -> Result<T, MemoryError> {
        let Some(paths) = self.paths(id) else {
            return Ok(T::default());
        };
        Ok(self
            .find(id, &paths)?
            .map(|cached| read(&cached.stored))
            .unwrap_or_default())
    }

    pub(super) fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        self.change(id, |stored| {
            let changed = stored.save(id, change)?;
            if changed {
                format::check(id, change)?;
            }
            Ok(changed)
        })
    }

    pub(super) fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        if self.paths(id).is_none() {
            return Ok(());
        }
        self.change(id, |stored| Ok(stored.trim(before)))
    }

    /// Applies `change` to a conversation, and writes the file if `change` returns `true`.
    ///
    /// The lock is held from reading to replacing the file, so no other writer can be overwritten.
    fn change(
        &self,
        id: &ConversationId,
        change: impl FnOnce(&mut StoredConversation) -> Result<bool, MemoryError>,
    ) -> Result<(), MemoryError> {
        let paths = self.require_paths(id)?;
        let _lock = self.lock(id, &paths)?;
        let found = self.find(id, &paths)?;
        let occupied = found.is_none() && paths.path.exists();
        let mut stored = found
            .map(|cached| StoredConversation::clone(&cached.stored))
            .unwrap_or_default();
        if !change(&mut stored)? {
            return Ok(());
        }
        if occupied {
            return Err(occupied_error(id));
        }
        let bytes = format::write(id, &stored)?;
        if bytes.len() as u64 > disk::MAX_FILE_BYTES {
            let message = format!(
                "conversation `{id}` is larger than 1 GiB, the limit for a file; \
                use `SqliteMemory`"
            );
            return Err(MemoryError::new(MemoryErrorKind::Refused, message));
        }
        let stamp = disk::replace(&paths.path, &paths.temp, &bytes, self.durability);
        match stamp.map_err(|error| io_error(id, "write", error))? {
            Some(stamp) => {
                let cached = CachedConversation {
                    stamp,
                    id: Some(id.clone()),
                    stored: Arc::new(stored),
                };
                self.cache.put(&paths.name, cached);
            }
            None => self.cache.remove(&paths.name),
        }
        Ok(())
    }

    /// Removes a conversation that no process holds, unless it changed after `unchanged_since`.
    pub(super) fn remove(
        &self,
        id: &ConversationId,
        unchanged_since: Option<Timestamp>,
    ) -> Result<bool, MemoryError> {
        let Some(paths) = self.paths(id) else {
            return Ok(false);
        };
        let _lock = self.lock(id, &paths)?;
        if self.is_held(id, &paths)? {
            return Err(MemoryError::busy(id));
        }
        let Some(cached) = self.find(id, &paths)? else {
            // A process may have been killed during the first save.
            let leftover = unchanged_since.is_none() && !paths.path.exists();
            return if leftover {
                self.erase(id, &paths)
            } else {
                Ok(false)
            };
        };
        let expired = unchanged_since.is_none_or(|moment| cached.stored.changed < moment);
        if expired {
            self.erase(id, &paths)
        } else {
            Ok(false)
        }
    }

    /// Removes all files of a conversation, and returns `true` if the conversation existed.
    ///
    /// The hold, the temporary file and the document go in this order: a crash in between leaves
    /// the conversation as it was.
    fn erase(&self, id: &ConversationId, paths: &FilePaths) -> Result<bool, MemoryError> {
        self.cache.remove(&paths.name);
        let erase = || {
            disk::remove(&self.hold_path(paths))?;
            disk::remove(&paths.temp)?;
            let removed = disk::remove(&paths.path)?;
            disk::sync_name(&paths.path, self.durability)?;
            Ok(removed)
        };
        erase().map_err(|error| io_error(id, "remove", error))
    }

    pub(super) fn list(
        &self,
        query: &ConversationQuery,
    ) -> Result<Vec<ConversationInfo>, MemoryError> {
        let infos = match &self.location {
            Location::SingleFile(path) => {
                let name = path
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let id = name.into();
                let info = list::info(path, &id);
                // No other conversation could be listed, so an unreadable file is reported as an
                // error.
                if info.is_none() {
                    self.with_conversation(&id, |_| ())?;
                }
                info.into_iter().collect()
            }
            Location::Directory(dir) => list::many(dir)?,
        };
        Ok(stored::select(infos.into_iter(), query))
    }

    fn hold_path(&self, paths: &FilePaths) -> PathBuf {
        self.state_dir().join("holds").join(&paths.name)
    }

    /// Returns `true` if a live process holds a conversation.
    ///
    /// A hold file that cannot be parsed counts as not held; one that cannot be read is an error.
    fn is_held(&self, id: &ConversationId, paths: &FilePaths) -> Result<bool, MemoryError> {
        let text = match fs::read(self.hold_path(paths)) {
            Ok(bytes) => String::from_utf8(bytes).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            // The holder cannot be determined, so the conversation counts as unavailable.
            Err(error) => return Err(io_error(id, "hold", error)),
        };
        let holder = i64::from_str_radix(text.trim(), 16);
        Ok(holder.is_ok_and(|holder| Owner::is_alive(&self.state_dir().join("owners"), holder)))
    }

    /// Returns the current hold on a conversation, for the duration of a change. A save completes
    /// even if its caller has gone, and the next holder must not interleave with it.
    pub(super) fn current_hold(&self, id: &ConversationId) -> Option<Arc<HoldGuard>> {
        let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.get(&self.paths(id)?.name)?.upgrade()
    }

    /// Holds a conversation and passes the hold to `give`. If the receiver has gone, the hold ends
    /// before another caller can see it.
    pub(super) fn hold(
        &self,
        id: &ConversationId,
        give: impl FnOnce(Arc<HoldGuard>),
    ) -> Result<(), MemoryError> {
        let paths = self.require_paths(id)?;
        let _lock = self.lock(id, &paths)?;
        if self.is_held(id, &paths)? {
            return Err(MemoryError::busy(id));
        }
        if self.find(id, &paths)?.is_none() && paths.path.exists() {
            return Err(occupied_error(id));
        }
        let path = self.hold_path(&paths);
        let owner = self.owner().and_then(|owner| {
            private::make_own_dir(path.parent().unwrap_or(&path))?;
            // A link is not followed: whatever is at this path belonged to a holder that no longer
            // runs.
            disk::remove(&path)?;
            let mut file = private::options()
                .write(true)
                .create_new(true)
                .open(&path)?;
            file.write_all(format!("{:016x}", owner.id()).as_bytes())?;
            Ok(owner)
        });
        let owner = owner.map_err(|error| io_error(id, "hold", error))?;
        let (name, holds) = (paths.name, self.holds.clone());
        let held = Arc::new(HoldGuard {
            path,
            name,
            holds,
            _owner: owner,
        });
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.insert(held.name.clone(), Arc::downgrade(&held));
        drop(holds);
        give(held);
        Ok(())
    }

    fn owner(&self) -> io::Result<Arc<Owner>> {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = &*owner {
            return Ok(owner.clone());
        }
        let new = Arc::new(Owner::new(
            &self.state_dir().join("owners"),
            || SystemWorld.random(),
            WithoutLocks::Fail,
        )?);
        Ok(owner.insert(new).clone())
    }
}

/// The hold on a conversation. While its owner lives, no other process takes it, so releasing it
/// needs no lock.
pub(super) struct HoldGuard {
    path: PathBuf,
    name: String,
    holds: Arc<Holds>,
    _owner: Arc<Owner>,
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        // This must precede the removal of the file, after which another caller can hold it.
        self.holds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.name);
        let _ = fs::remove_file(&self.path);
    }
}

fn read(id: &ConversationId, paths: &FilePaths) -> Result<Option<CachedConversation>, MemoryError> {
    let Some((bytes, stamp)) =
        disk::read(&paths.path).map_err(|error| io_error(id, "read", error))?
    else {
        return Ok(None);
    };
    let read = format::read(id, &bytes, stamp.modified())?;
    Ok(Some(CachedConversation {
        stamp,
        id: read.id,
        stored: Arc::new(read.stored),
    }))
}

fn occupied_error(id: &ConversationId) -> MemoryError {
    let message = format!(
        "cannot save conversation `{id}`: the file contains another \
        conversation; use a different file"
    );
    MemoryError::new(MemoryErrorKind::Refused, message)
}

fn io_error(id: &ConversationId, action: &str, error: io::Error) -> MemoryError {
    let message = format!("cannot {action} the file of conversation `{id}`");
    let kind = match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge => MemoryErrorKind::Refused,
        _ => MemoryErrorKind::Io,
    };
    MemoryError::new(kind, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_while_file_is_locked_returns_io_error_not_busy() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(
            Location::Directory(dir.path().to_owned()),
            Durability::Buffered,
        );
        let id = ConversationId::new("a");
        let lock = folder
            .lock(&id, &folder.require_paths(&id).unwrap())
            .unwrap();
        // A caller that waits for a holder would otherwise wait for this lock again and again.
        let error = folder.hold(&id, drop).unwrap_err();
        assert_eq!(error.kind(), MemoryErrorKind::Io, "{error}");
        drop(lock);
        folder.hold(&id, drop).unwrap();
    }
}
