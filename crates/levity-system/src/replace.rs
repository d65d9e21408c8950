use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::files;

/// Replaces a file as a whole: whoever reads it finds the old one or the new one, also after this
/// process was killed.
///
/// The new file can be read by its owner alone. A link at its path is replaced, not followed.
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
#[must_use = "nothing is written before `write` or `fill`"]
pub struct Replace<'a> {
    path: &'a Path,
    beside: Option<&'a Path>,
    synced: bool,
    keeps_mode: bool,
}

impl<'a> Replace<'a> {
    /// The suffix of a file that is written before it is renamed.
    pub const UNFINISHED: &'static str = ".tmp";

    /// Replaces the file at this path, which is made if it is not there. Its folder must be.
    pub fn new(path: &'a Path) -> Self {
        Self {
            path,
            beside: None,
            synced: false,
            keeps_mode: false,
        }
    }

    /// Writes to this file first; by default, to one of a name that no other writer uses, in the
    /// same folder.
    pub fn through(mut self, beside: &'a Path) -> Self {
        self.beside = Some(beside);
        self
    }

    /// Waits for the disk: the new file outlives a power cut.
    pub fn synced(mut self) -> Self {
        self.synced = true;
        self
    }

    /// Lets those read the new file who may read the old one.
    pub fn keeping_mode(mut self) -> Self {
        self.keeps_mode = true;
        self
    }

    /// Replaces the file by these bytes.
    ///
    /// # Errors
    /// When the new file cannot be written. The old one is as it was then.
    pub fn write(self, bytes: &[u8]) -> io::Result<()> {
        self.fill(|file| file.write_all(bytes))
    }

    /// Replaces the file by what `fill` writes.
    ///
    /// # Errors
    /// When `fill` fails, or the new file cannot be written. The old one is as it was then.
    pub fn fill<E: From<io::Error>>(
        self,
        fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
    ) -> Result<(), E> {
        let unfinished = self
            .beside
            .map_or_else(|| beside(self.path), |path| Ok(path.to_owned()))?;
        // A process that was killed may have left one; a link there is not followed.
        let _ = fs::remove_file(&unfinished);
        let named = self
            .write_to(&unfinished, fill)
            .and_then(|()| Ok(fs::rename(&unfinished, self.path)?));
        if named.is_err() {
            // It is of no use to anybody.
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
            && let Ok(there) = fs::symlink_metadata(self.path)
            && there.is_file()
        {
            file.set_permissions(there.permissions())?;
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

/// A name in the same folder that no other writer uses, since a file of two writers would be torn.
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

/// Makes the name of a file, or that there is none any more, outlive a power cut.
///
/// # Errors
/// When the folder cannot be synced.
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
    fn file_is_replaced_whole_or_left_as_it_was() {
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
            "nothing is left beside it"
        );
    }

    #[cfg(unix)]
    #[test]
    fn new_file_is_private_and_follows_no_link() {
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
