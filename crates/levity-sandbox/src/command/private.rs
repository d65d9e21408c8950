use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

/// A folder for the commands of one sandbox, removed with it.
#[derive(Debug)]
pub(super) struct Private {
    root: PathBuf,
}

impl Private {
    pub(super) fn new() -> io::Result<Self> {
        let base = std::env::temp_dir().canonicalize()?;
        let private = Self { root: fresh(&base)? };
        for folder in [private.temp(), private.home(), private.empty()] {
            fs::create_dir(folder)?;
        }
        fs::write(private.canary(), "nobody reads this")?;
        Ok(private)
    }

    /// Where commands put temporary files.
    pub(super) fn temp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// What commands take for the user's home.
    pub(super) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// What is seen in place of a folder that is hidden.
    pub(super) fn empty(&self) -> PathBuf {
        self.root.join("empty")
    }

    /// A file that is out of reach of commands, to try that.
    pub(super) fn canary(&self) -> PathBuf {
        self.root.join("canary")
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if fs::remove_dir_all(&self.root).is_err() {
            open_up(&self.root, 0);
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// A new folder that only this user can enter.
fn fresh(base: &Path) -> io::Result<PathBuf> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    loop {
        let name = RandomState::new().build_hasher().finish();
        let path = base.join(format!("levity-{name:016x}"));
        match builder.create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes back the rights that a command took from itself, so that its folders can be removed.
fn open_up(folder: &Path, depth: usize) {
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let _ = fs::set_permissions(folder, mode);
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if depth < 64 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path(), depth + 1);
        }
    }
}
