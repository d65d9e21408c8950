//! Replaces files by renaming, so that no reader sees half of a file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::files;

/// Replaces a file atomically: a reader finds the old or the new content, even after this process
/// was killed.
///
/// Only its owner can read the new file. A symbolic link at its path is replaced, not followed.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("notes");
/// use levity_system::Replace;
///
/// Replace::new(&path).synced().write(b"all of it")?;
/// assert_eq!(std::fs::read(&path)?, b"all of it");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is written until `write` or `fill` is called"]
pub struct Replace<'a> {
    path: &'a Path,
    beside: Option<&'a Path>,
    synced: bool,
    keeps_mode: bool,
}

impl<'a> Replace<'a> {
    /// The suffix of a file that is written before it is renamed.
    pub const UNFINISHED: &'static str = ".tmp";

    /// Replaces the file at this path, or creates it. Its folder must exist.
    pub fn new(path: &'a Path) -> Self {
        Self {
            path,
            beside: None,
            synced: false,
            keeps_mode: false,
        }
    }

    /// Writes to this file first; by default, to a file of a unique name in the same folder.
    pub fn through(mut self, beside: &'a Path) -> Self {
        self.beside = Some(beside);
        self
    }

    /// Waits for the disk, so that the new file survives a power failure.
    pub fn synced(mut self) -> Self {
        self.synced = true;
        self
    }

    /// Gives the new file the permissions of the old one.
    pub fn keeping_mode(mut self) -> Self {
        self.keeps_mode = true;
        self
    }

    /// Replaces the file with these bytes.
    ///
    /// # Errors
    /// Returns an error if the new file cannot be written. The old one is then unchanged.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("notes");
    /// use levity_system::Replace;
    ///
    /// Replace::new(&path).write(b"the old text")?;
    /// Replace::new(&path).write(b"the new text")?;
    /// assert_eq!(std::fs::read(&path)?, b"the new text");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write(self, bytes: &[u8]) -> io::Result<()> {
        self.fill(|file| file.write_all(bytes))
    }

    /// Replaces the file with the output of `fill`.
    ///
    /// # Errors
    /// Returns an error if `fill` fails or the new file cannot be written. The old one is then
    /// unchanged.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("notes");
    /// use std::io::Write as _;
    ///
    /// use levity_system::Replace;
    ///
    /// Replace::new(&path).fill(|file| writeln!(file, "one line"))?;
    /// assert_eq!(std::fs::read(&path)?, b"one line\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fill<E: From<io::Error>>(
        self,
        fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
    ) -> Result<(), E> {
        let unfinished = self
            .beside
            .map_or_else(|| beside(self.path), |path| Ok(path.to_owned()))?;
        refuse_special(self.path)?;
        // A killed process may have left one; a symbolic link there is not followed.
        let _ = fs::remove_file(&unfinished);
        let named = self
            .write_to(&unfinished, fill)
            .and_then(|()| Ok(fs::rename(&unfinished, self.path)?));
        if named.is_err() {
            // The unfinished file is useless.
            let _ = fs::remove_file(&unfinished);
        }
        named?;
        if self.synced {
            Ok(sync_name(self.path)?)
        } else {
            Ok(())
        }
    }

    fn write_to<E: From<io::Error>>(
        &self,
        unfinished: &Path,
        fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
    ) -> Result<(), E> {
        let file = files::options()
            .write(true)
            .create_new(true)
            .open(unfinished)?;
        if self.keeps_mode
            && let Ok(metadata) = fs::symlink_metadata(self.path)
            && metadata.is_file()
        {
            file.set_permissions(metadata.permissions())?;
        }
        let mut file = BufWriter::with_capacity(1 << 16, file);
        fill(&mut file)?;
        file.flush()?;
        if self.synced {
            Ok(file.get_ref().sync_all()?)
        } else {
            Ok(())
        }
    }
}

/// Returns an error if the path leads to a device, a socket, a pipe or a folder. A rename would
/// remove it: as root, even `/dev/null`.
fn refuse_special(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "`{}` is not a regular file; use another path",
                path.display()
            ),
        )),
        _ => Ok(()),
    }
}

/// Returns a unique name in the same folder, because two writers would corrupt a shared file.
fn beside(path: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let (pid, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let unfinished = format!(
        ".{}.{pid}-{next}{}",
        name.to_string_lossy(),
        Replace::UNFINISHED
    );
    Ok(path.with_file_name(unfinished))
}

/// Makes the creation or removal of a file survive a power failure.
///
/// # Errors
/// Returns an error if the folder cannot be synced.
pub fn sync_name(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) if cfg!(unix) => {
            let dir = if dir.as_os_str().is_empty() {
                Path::new(".")
            } else {
                dir
            };
            File::open(dir)?.sync_all()
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replace_writes_whole_file_or_leaves_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        Replace::new(&path).write(b"old").unwrap();
        let failed = Replace::new(&path).fill(|file| {
            file.write_all(b"half of")?;
            Err(io::Error::other("the writer fails"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        Replace::new(&path).synced().write(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "no other file remains"
        );
    }

    #[cfg(unix)]
    #[test]
    fn replace_of_socket_folder_or_device_link_fails() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink("/dev/null", at("device")).unwrap();
        for name in ["socket", "folder", "device"] {
            let before = fs::symlink_metadata(at(name)).unwrap().file_type();
            assert!(Replace::new(&at(name)).write(b"text").is_err(), "{name}");
            let after = fs::symlink_metadata(at(name)).unwrap().file_type();
            assert_eq!(before, after, "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn replace_creates_private_file_and_follows_no_link() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("notes"), folder.path().join("other"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::write(&other, "theirs").unwrap();
        symlink(&other, &path).unwrap();
        Replace::new(&path).keeping_mode().write(b"ours").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"theirs");
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        Replace::new(&path).keeping_mode().write(b"shared").unwrap();
        assert_eq!(mode(&path), 0o640);
        Replace::new(&path).write(b"private").unwrap();
        assert_eq!(mode(&path), 0o600);
    }
}
