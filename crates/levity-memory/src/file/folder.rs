//! Conversations in files, one thing after another: what may block.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use levity_core::{
    ConversationChange, ConversationId, ConversationInfo, ConversationQuery, Digest, MemoryError,
    MemoryErrorKind, Timestamp,
};

use super::cache::{Cache, Known};
use super::{disk, format, list, name};
use crate::Durability;
use crate::kept::{self, Kept};
use levity_core::World as _;
use levity_system::files as private;
use levity_system::{Owner, SystemWorld, WithoutLocks};

/// So many locks there are for all conversations of a folder.
const LOCKS: u64 = 32;

/// An id that no file name limits.
const LONGEST_ID: usize = 1_000;

pub(super) struct Folder {
    pub(super) what: What,
    pub(super) durability: Durability,
    cache: Cache,
    owner: Mutex<Option<Arc<Owner>>>,
    holds: Arc<Holds>,
}

/// What this store holds, by its name.
type Holds = Mutex<HashMap<String, Weak<Held>>>;

/// What there are files for.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A folder of conversations.
    Many(PathBuf),
    /// The file of one conversation.
    One(PathBuf),
}

/// Where a conversation is.
struct Spot {
    name: String,
    path: PathBuf,
    /// Where the next one is written before it takes the place of the old one.
    beside: PathBuf,
}

impl Folder {
    pub(super) fn new(what: What, durability: Durability) -> Self {
        Self {
            what,
            durability,
            cache: Cache::default(),
            owner: Mutex::default(),
            holds: Arc::default(),
        }
    }

    /// Where a conversation would be; `None` when it cannot be kept.
    fn spot(&self, id: &ConversationId) -> Option<Spot> {
        let (dir, file, name) = match &self.what {
            What::Many(dir) => {
                let name = name::escape(id.as_str())?;
                (dir.as_path(), format!("{name}.json"), name)
            }
            What::One(path) => {
                let file = path.file_name()?.to_str()?.to_owned();
                let fits = id.as_str().len() <= LONGEST_ID;
                (path.parent()?, file, fits.then(|| "one".to_owned())?)
            }
        };
        Some(Spot {
            name,
            path: dir.join(&file),
            beside: dir.join(format!(".{file}.new")),
        })
    }

    fn must_spot(&self, id: &ConversationId) -> Result<Spot, MemoryError> {
        self.spot(id).ok_or_else(|| {
            let message = "the id of a conversation that is kept in a file is too long: 200 bytes \
                at most, where a \
                           byte that is no small letter, digit, `-`, `_` or `.` counts three times";
            MemoryError::new(MemoryErrorKind::Refused, message)
        })
    }

    /// Where locks and holds are.
    fn side(&self) -> PathBuf {
        match &self.what {
            What::Many(dir) => dir.join(".levity"),
            What::One(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                path.with_file_name(format!(".{name}.levity"))
            }
        }
    }

    /// Keeps everybody else who wants to write this conversation waiting.
    fn lock(&self, id: &ConversationId, spot: &Spot) -> Result<fs::File, MemoryError> {
        self.check_there()?;
        let number = u64::from_str_radix(&Digest::EMPTY.with(spot.name.as_bytes()).to_string(), 16);
        let side = self.side();
        let path = side.join(format!("lock-{:02}", number.unwrap_or_default() % LOCKS));
        let linked = ["owners", "holds"].map(|name| private::refuse_link(&side.join(name)));
        let locked = linked
            .into_iter()
            .collect::<io::Result<()>>()
            .and_then(|()| disk::lock(&path));
        locked.map_err(|error| failed(id, "locked", error))
    }

    /// Fails when the folder is gone: every conversation would seem to be an empty one.
    fn check_there(&self) -> Result<(), MemoryError> {
        match &self.what {
            What::Many(dir) if !dir.is_dir() => {
                let message = format!(
                    "the folder `{}` of conversations is not there any more",
                    dir.display()
                );
                Err(MemoryError::new(MemoryErrorKind::Io, message))
            }
            _ => Ok(()),
        }
    }

    /// A conversation as its file has it, read again only if somebody else wrote it. `None` when
    /// there is none, or it is another's.
    fn find(&self, id: &ConversationId, spot: &Spot) -> Result<Option<Known>, MemoryError> {
        let Some(stamp) = disk::stamp(&spot.path).map_err(|error| failed(id, "read", error))?
        else {
            return self.check_there().map(|()| None);
        };
        let known = match self.cache.find(&spot.name, stamp) {
            Some(known) => known,
            None => {
                let Some(known) = read(id, spot)? else {
                    return Ok(None);
                };
                self.cache.put(&spot.name, known.clone());
                known
            }
        };
        let own = known.id.as_ref().is_none_or(|known| known == id);
        match &self.what {
            What::Many(_) if !own => Err(MemoryError::damaged(
                id,
                "it says that it is another conversation",
            )),
            _ => Ok(own.then_some(known)),
        }
    }

    /// Looks at a conversation; an unknown one is an empty one.
    pub(super) fn look<T: Default>(
        &self,
        id: &ConversationId,
        look: impl FnOnce(&Kept) -> T,
    ) -> Result<T, MemoryError> {
        let Some(spot) = self.spot(id) else {
            return Ok(T::default());
        };
        Ok(self
            .find(id, &spot)?
            .map(|known| look(&known.kept))
            .unwrap_or_default())
    }

    pub(super) fn save(
        &self,
        id: &ConversationId,
        change: &ConversationChange,
    ) -> Result<(), MemoryError> {
        self.change(id, |kept| {
            let changed = kept.save(id, change)?;
            if changed {
                format::check(id, change)?;
            }
            Ok(changed)
        })
    }

    pub(super) fn trim(&self, id: &ConversationId, before: u64) -> Result<(), MemoryError> {
        if self.spot(id).is_none() {
            return Ok(());
        }
        self.change(id, |kept| Ok(kept.trim(before)))
    }

    /// Changes a conversation and writes it, if `change` says that it did.
    fn change(
        &self,
        id: &ConversationId,
        change: impl FnOnce(&mut Kept) -> Result<bool, MemoryError>,
    ) -> Result<(), MemoryError> {
        let spot = self.must_spot(id)?;
        let _lock = self.lock(id, &spot)?;
        let found = self.find(id, &spot)?;
        let taken = found.is_none() && spot.path.exists();
        let mut kept = found
            .map(|known| Kept::clone(&known.kept))
            .unwrap_or_default();
        if !change(&mut kept)? {
            return Ok(());
        }
        if taken {
            return Err(another(id));
        }
        let bytes = format::write(id, &kept)?;
        if bytes.len() as u64 > disk::LARGEST {
            let message = format!("conversation `{id}` is too long for a file; keep it in SQLite");
            return Err(MemoryError::new(MemoryErrorKind::Refused, message));
        }
        let stamp = disk::replace(&spot.path, &spot.beside, &bytes, self.durability);
        match stamp.map_err(|error| failed(id, "written", error))? {
            Some(stamp) => {
                let known = Known {
                    stamp,
                    id: Some(id.clone()),
                    kept: Arc::new(kept),
                };
                self.cache.put(&spot.name, known);
            }
            None => self.cache.remove(&spot.name),
        }
        Ok(())
    }

    /// Removes a conversation that nobody holds, unless it was changed since a moment.
    pub(super) fn remove(
        &self,
        id: &ConversationId,
        unchanged_since: Option<Timestamp>,
    ) -> Result<bool, MemoryError> {
        let Some(spot) = self.spot(id) else {
            return Ok(false);
        };
        let _lock = self.lock(id, &spot)?;
        if self.is_held(id, &spot)? {
            return Err(MemoryError::busy(id));
        }
        let Some(known) = self.find(id, &spot)? else {
            // Somebody may have been killed during the first save.
            let left = unchanged_since.is_none() && !spot.path.exists();
            return if left {
                self.erase(id, &spot)
            } else {
                Ok(false)
            };
        };
        let old = unchanged_since.is_none_or(|moment| known.kept.changed < moment);
        if old {
            self.erase(id, &spot)
        } else {
            Ok(false)
        }
    }

    /// Removes all that there is of a conversation, and says whether it was there.
    fn erase(&self, id: &ConversationId, spot: &Spot) -> Result<bool, MemoryError> {
        self.cache.remove(&spot.name);
        let erase = || {
            disk::remove(&self.hold_path(spot))?;
            disk::remove(&spot.beside)?;
            let removed = disk::remove(&spot.path)?;
            disk::sync_name(&spot.path, self.durability)?;
            Ok(removed)
        };
        erase().map_err(|error| failed(id, "removed", error))
    }

    pub(super) fn list(
        &self,
        query: &ConversationQuery,
    ) -> Result<Vec<ConversationInfo>, MemoryError> {
        let infos = match &self.what {
            What::One(path) => {
                let name = path
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let id = name.into();
                let info = list::info(path, &id);
                // There is no other one that could be listed: what is wrong with it is said.
                if info.is_none() {
                    self.look(&id, |_| ())?;
                }
                info.into_iter().collect()
            }
            What::Many(dir) => list::many(dir)?,
        };
        Ok(kept::select(infos.into_iter(), query))
    }

    fn hold_path(&self, spot: &Spot) -> PathBuf {
        self.side().join("holds").join(&spot.name)
    }

    /// Whether somebody holds a conversation who is alive.
    fn is_held(&self, id: &ConversationId, spot: &Spot) -> Result<bool, MemoryError> {
        let text = match fs::read(self.hold_path(spot)) {
            Ok(bytes) => String::from_utf8(bytes).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            // Nobody can say who holds it, so nobody gets it.
            Err(error) => return Err(failed(id, "held", error)),
        };
        let holder = i64::from_str_radix(text.trim(), 16);
        Ok(holder.is_ok_and(|holder| Owner::is_alive(&self.side().join("owners"), holder)))
    }

    /// The hold on a conversation, for whoever still changes it: a save is done to its end, also if
    /// nobody waits for it any more, and whoever holds the conversation next must not come between.
    pub(super) fn held(&self, id: &ConversationId) -> Option<Arc<Held>> {
        let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.get(&self.spot(id)?.name)?.upgrade()
    }

    /// Holds a conversation and gives that away. If nobody takes it any more, it is let go of
    /// before anybody else can find it held.
    pub(super) fn hold(
        &self,
        id: &ConversationId,
        give: impl FnOnce(Arc<Held>),
    ) -> Result<(), MemoryError> {
        let spot = self.must_spot(id)?;
        let _lock = self.lock(id, &spot)?;
        if self.is_held(id, &spot)? {
            return Err(MemoryError::busy(id));
        }
        if self.find(id, &spot)?.is_none() && spot.path.exists() {
            return Err(another(id));
        }
        let path = self.hold_path(&spot);
        let owner = self.owner().and_then(|owner| {
            private::make_own_dir(path.parent().unwrap_or(&path))?;
            // A link in its place is not followed: what stands there was left by somebody who is
            // gone.
            disk::remove(&path)?;
            let mut file = private::options()
                .write(true)
                .create_new(true)
                .open(&path)?;
            file.write_all(format!("{:016x}", owner.id()).as_bytes())?;
            Ok(owner)
        });
        let owner = owner.map_err(|error| failed(id, "held", error))?;
        let (name, holds) = (spot.name, self.holds.clone());
        let held = Arc::new(Held {
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
            &self.side().join("owners"),
            || SystemWorld.random(),
            WithoutLocks::Fail,
        )?);
        Ok(owner.insert(new).clone())
    }
}

/// A conversation that is held. While its owner lives nobody else takes it, so that letting go
/// needs no lock.
pub(super) struct Held {
    path: PathBuf,
    name: String,
    holds: Arc<Holds>,
    _owner: Arc<Owner>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Before anybody else can hold it.
        self.holds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.name);
        let _ = fs::remove_file(&self.path);
    }
}

fn read(id: &ConversationId, spot: &Spot) -> Result<Option<Known>, MemoryError> {
    let Some((bytes, stamp)) = disk::read(&spot.path).map_err(|error| failed(id, "read", error))?
    else {
        return Ok(None);
    };
    let read = format::read(id, &bytes, stamp.modified())?;
    Ok(Some(Known {
        stamp,
        id: read.id,
        kept: Arc::new(read.kept),
    }))
}

fn another(id: &ConversationId) -> MemoryError {
    let message = format!("conversation `{id}` cannot be kept in a file that another one is in");
    MemoryError::new(MemoryErrorKind::Refused, message)
}

fn failed(id: &ConversationId, what: &str, error: io::Error) -> MemoryError {
    let message = format!("the file of conversation `{id}` could not be {what}");
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
    fn a_program_that_stands_still_while_it_writes_is_no_holder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(What::Many(dir.path().to_owned()), Durability::Buffered);
        let id = ConversationId::new("a");
        let lock = folder.lock(&id, &folder.must_spot(&id).unwrap()).unwrap();
        // Whoever waits for a holder would wait for this, too, again and again.
        let error = folder.hold(&id, drop).unwrap_err();
        assert_eq!(error.kind(), MemoryErrorKind::Io, "{error}");
        drop(lock);
        folder.hold(&id, drop).unwrap();
    }
}
