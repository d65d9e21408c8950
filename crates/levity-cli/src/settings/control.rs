//! The files that decide what levity does, each read once.
//!
//! A file could change between the check of its hash and its use: another process writes to a
//! shared folder, or `git pull` runs. Therefore levity reads each of these files once. The hash,
//! the list that the user sees and the part of levity that uses the file all get the same bytes.
//!
//! Some parts of levity read whole folders and start programs in them. They get a private copy,
//! which is written from these bytes into the state folder. A second check after the folder was
//! loaded would not be enough: the files could be changed and changed back in between, and a
//! program is opened again by each call.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use levity::core::__private::sha256;
use levity::core::World as _;
use levity::runtime::SystemWorld;
use levity_system::{Owner, Replace, WithoutLocks, files};

use super::FILE;
use crate::state;
use crate::terminal::sanitize;

/// The maximum number of files that an agreement covers.
pub(super) const MAX_FILES: usize = 2_000;

/// The maximum size of these files together: 64 MiB.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// The private copies of this process.
static COPIES: Mutex<Vec<PrivateCopy>> = Mutex::new(Vec::new());

/// The content of control files, by their paths as the settings name them.
#[derive(Default)]
pub(super) struct Contents {
    files: BTreeMap<String, ControlFile>,
    bytes: u64,
}

/// A file as it was when levity read it.
struct ControlFile {
    hash: String,
    content: Content,
}

/// The content of a control file at the moment of the check.
enum Content {
    Missing,
    /// A link to a folder. What the folder contains is not covered.
    FolderLink(PathBuf),
    File {
        bytes: Arc<[u8]>,
        is_executable: bool,
        /// The target of a link that leads out of the named folder.
        outside: Option<PathBuf>,
    },
}

impl Contents {
    /// Reads a file, or all files below a folder. A missing one counts too, because levity would
    /// use it once it exists.
    ///
    /// Links are followed only if they are named in the settings. Within a folder, the target of a
    /// link counts as its content, and what the target contains does too if it is a file.
    pub(super) fn add(&mut self, named: &Path) -> Result<(), String> {
        let mut open = vec![named.to_owned()];
        while let Some(path) = open.pop() {
            let failed = |error: io::Error| format!("cannot read `{}`: {error}", shown(&path));
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound && path == named => {
                    self.insert(&path, "missing".to_owned(), Content::Missing)?;
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            let is_dir = match path == named {
                true => path.is_dir(),
                false => metadata.is_dir(),
            };
            if is_dir {
                let entries = fs::read_dir(&path).map_err(failed)?;
                for entry in entries.take(MAX_FILES + 1) {
                    open.push(entry.map_err(failed)?.path());
                }
                self.check_number(open.len() + self.files.len(), named)?;
                continue;
            }
            let target = match metadata.is_symlink() {
                true => Some(fs::read_link(&path).map_err(failed)?),
                false => None,
            };
            let (hash, content) = self.content(named, &path, target.as_deref())?;
            let target = target.map_or_else(String::new, |target| target.display().to_string());
            self.insert(&path, format!("{hash}{target}"), content)?;
        }
        Ok(())
    }

    /// Reads a file or a link below a named path, or the named file.
    fn content(
        &mut self,
        named: &Path,
        path: &Path,
        link: Option<&Path>,
    ) -> Result<(String, Content), String> {
        match (fs::metadata(path), link) {
            (Ok(found), _) if found.is_file() => {
                let bytes = self.read(path)?;
                let outside = link.filter(|_| path != named);
                let outside = outside.and_then(|_| target_outside(named, path));
                let is_executable = is_executable(&found);
                // A text that becomes executable is a new program.
                let hash = match is_executable {
                    true => format!("{} executable", sha256(&bytes)),
                    false => sha256(&bytes),
                };
                let content = Content::File {
                    bytes: bytes.into(),
                    is_executable,
                    outside,
                };
                Ok((hash, content))
            }
            (Ok(found), Some(target)) if found.is_dir() => {
                Ok(("folder".to_owned(), Content::FolderLink(target.to_owned())))
            }
            (Err(_), Some(_)) => Ok(("missing".to_owned(), Content::Missing)),
            (Ok(_), _) => Err(format!(
                "`{}` is neither a file nor a folder; remove it",
                shown(path)
            )),
            (Err(error), None) => Err(format!("cannot read `{}`: {error}", shown(path))),
        }
    }

    /// Reads a file, and counts its bytes towards the limit of all control files.
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let bytes = files::read_at_most(path, MAX_BYTES)
            .map_err(|error| format!("cannot read `{}`: {error}", shown(path)))?;
        self.bytes += bytes.len() as u64;
        match self.bytes > MAX_BYTES {
            true => Err(format!(
                "the files that `{FILE}` names have more than {} MiB together, too much to check; \
                    name smaller ones",
                MAX_BYTES >> 20
            )),
            false => Ok(bytes),
        }
    }

    /// Two names that are not UTF-8 could look the same in the list, so they are errors.
    fn insert(&mut self, path: &Path, hash: String, content: Content) -> Result<(), String> {
        let Some(name) = path.to_str() else {
            return Err(format!(
                "the name of `{}` is not UTF-8, so it cannot be checked; rename the file",
                shown(path)
            ));
        };
        self.files
            .insert(name.to_owned(), ControlFile { hash, content });
        self.check_number(self.files.len(), path)
    }

    /// Rejects folders with more files than a user could accept knowingly.
    fn check_number(&self, files: usize, path: &Path) -> Result<(), String> {
        match files > MAX_FILES {
            true => Err(format!(
                "`{}`: the folders that `{FILE}` names have more than {MAX_FILES} files, too many \
                    to check; name smaller ones",
                shown(path)
            )),
            false => Ok(()),
        }
    }

    /// Returns the hash of each file, by its path.
    pub(super) fn hashes(&self) -> BTreeMap<String, String> {
        let hashes = self.files.iter();
        hashes
            .map(|(path, file)| (path.clone(), file.hash.clone()))
            .collect()
    }

    /// Returns the hash of each file below a named path, by its path.
    pub(super) fn hashes_below(&self, named: &Path) -> BTreeMap<String, String> {
        let mut hashes = self.hashes();
        hashes.retain(|path, _| Path::new(path).starts_with(named));
        hashes
    }

    /// Returns the text of a named file.
    pub(super) fn text(&self, path: &Path) -> Result<String, String> {
        let file = path.to_str().and_then(|path| self.files.get(path));
        match file.map(|file| &file.content) {
            Some(Content::File { bytes, .. }) => String::from_utf8(bytes.to_vec())
                .map_err(|_| format!("`{}` is not UTF-8; save it as UTF-8", shown(path))),
            Some(Content::Missing) => Err(format!(
                "cannot read `{}`: no such file or folder; check the path",
                shown(path)
            )),
            _ => Err(format!(
                "cannot read `{}`: it is not a regular file; use the path of one",
                shown(path)
            )),
        }
    }

    /// Returns the files below a named folder, by their paths in it.
    fn below(&self, named: &Path) -> impl Iterator<Item = (PathBuf, &Content)> {
        self.files.iter().filter_map(move |(path, file)| {
            let below = Path::new(path).strip_prefix(named).ok()?;
            let is_below = !below.as_os_str().is_empty();
            is_below.then(|| (below.to_owned(), &file.content))
        })
    }

    /// Writes the files of a named folder into another one, and removes all others from it.
    ///
    /// A link within the folder becomes a copy of its target. A link out of the folder stays a
    /// link, which every part of levity that reads folders rejects by its name.
    pub(super) fn write(&self, named: &Path, folder: &Path) -> Result<(), String> {
        let failed = |error: io::Error| {
            format!(
                "cannot copy `{}` to `{}`: {error}",
                shown(named),
                folder.display()
            )
        };
        if let Some(file) = named.to_str().and_then(|named| self.files.get(named)) {
            return Err(match file.content {
                Content::Missing => format!(
                    "cannot read `{}`: no such file or folder; check the path",
                    shown(named)
                ),
                _ => format!("`{}` is not a folder; use the path of one", shown(named)),
            });
        }
        let wanted: BTreeSet<PathBuf> = self
            .below(named)
            .flat_map(|(below, _)| below.ancestors().map(Path::to_owned).collect::<Vec<_>>())
            .collect();
        remove_others(folder, folder, &wanted).map_err(failed)?;
        for (below, content) in self.below(named) {
            write(&folder.join(below), content).map_err(failed)?;
        }
        Ok(())
    }
}

/// Returns a path for one line of a message.
pub(super) fn shown(path: &Path) -> String {
    plain(&path.display().to_string())
}

/// Replaces characters of an untrusted text that could imitate another line or hide a part of this
/// one.
pub(crate) fn plain(text: &str) -> String {
    sanitize(text).replace(['\n', '\r', '\t'], "\u{fffd}")
}

/// Returns the target of a link in a folder, if it leads out of the folder.
fn target_outside(folder: &Path, link: &Path) -> Option<PathBuf> {
    let target = link.canonicalize().ok()?;
    let is_inside = folder
        .canonicalize()
        .is_ok_and(|folder| target.starts_with(folder));
    (!is_inside).then_some(target)
}

/// Removes what a folder contains, except for some paths below it.
fn remove_others(top: &Path, folder: &Path, wanted: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, is_dir) = (entry.path(), entry.file_type()?.is_dir());
        let is_wanted = path
            .strip_prefix(top)
            .is_ok_and(|below| wanted.contains(below));
        match (is_dir, is_wanted) {
            (true, true) => remove_others(top, &path, wanted)?,
            (true, false) => fs::remove_dir_all(&path)?,
            (false, true) => {}
            (false, false) => fs::remove_file(&path)?,
        }
    }
    Ok(())
}

/// Writes one file of a private copy. A file that a program executes right now is replaced, not
/// changed.
fn write(path: &Path, content: &Content) -> io::Result<()> {
    if let Some(above) = path.parent() {
        files::make_dir(above)?;
    }
    match content {
        Content::Missing => Ok(()),
        Content::FolderLink(target) => {
            // Another target may contain files that are not covered.
            let is_inside = target
                .components()
                .all(|part| matches!(part, Component::Normal(_)));
            if is_inside {
                link(target, path)
            } else {
                Ok(())
            }
        }
        Content::File {
            outside: Some(target),
            ..
        } => link(target, path),
        Content::File {
            bytes,
            is_executable,
            ..
        } => {
            if is_unchanged(path, bytes, *is_executable) {
                return Ok(());
            }
            Replace::new(path).write(bytes)?;
            set_executable(path, *is_executable)
        }
    }
}

/// Returns `true` if a file of the copy still has the content that was checked.
fn is_unchanged(path: &Path, bytes: &[u8], should_execute: bool) -> bool {
    let metadata = fs::symlink_metadata(path).ok();
    metadata.is_some_and(|found| found.is_file() && is_executable(&found) == should_execute)
        && files::read_at_most(path, MAX_BYTES).is_ok_and(|found| found == bytes)
}

#[cfg(unix)]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    match std::os::unix::fs::symlink(target, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            std::os::unix::fs::symlink(target, path)
        }
        linked => linked,
    }
}

/// Links need a privilege on other systems.
#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn is_executable(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &fs::Metadata) -> bool {
    false
}

#[cfg(unix)]
fn set_executable(path: &Path, is_executable: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = if is_executable { 0o700 } else { 0o600 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_executable(_: &Path, _: bool) -> io::Result<()> {
    Ok(())
}

/// A folder of this process in the state folder, which no workspace contains for its tools.
struct PrivateCopy {
    folder: PathBuf,
    /// Others remove the folder once this process has ended.
    _owner: Owner,
}

impl Drop for PrivateCopy {
    /// Removes the copy. A killed process leaves it behind; the next start removes it then.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Creates an empty folder that exists until this process ends.
pub(crate) fn new_folder() -> Result<PathBuf, String> {
    let above = state::folder()?.join("copies");
    state::create(&above)?;
    let owners = above.join("owners");
    let failed = |error: io::Error| format!("cannot write `{}`: {error}", above.display());
    let owner = Owner::new(&owners, || SystemWorld.random(), WithoutLocks::Alive);
    let owner = owner.map_err(failed)?;
    remove_abandoned(&above, &owners);
    let folder = above.join(format!("{:016x}", owner.id()));
    fs::create_dir(&folder).map_err(failed)?;
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    copies.push(PrivateCopy {
        folder: folder.clone(),
        _owner: owner,
    });
    Ok(folder)
}

/// Removes the copies of killed processes.
fn remove_abandoned(above: &Path, owners: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name
            .to_str()
            .and_then(|name| i64::from_str_radix(name, 16).ok());
        if id.is_some_and(|id| !Owner::is_alive(owners, id)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes the private copies of this process.
pub(crate) fn remove_copies() {
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    copies.clear();
}
