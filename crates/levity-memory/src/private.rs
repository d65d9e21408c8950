//! Files that only their owner can read: they hold all that was said.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// How many files of a folder are looked at for a warning.
#[cfg(unix)]
const MOST: usize = 1_000;

/// Makes a folder that only its owner can look into, and those above it that are missing.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// How a file is opened that only its owner can read if it is made now. One that is there stays as it is, and a link in
/// its place is not followed.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options
}

/// Fails if a path is a link. levity writes through none: a folder from elsewhere could lead it to any file of the user's.
pub(crate) fn refuse_link(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "`{}` is a link, and levity writes through none; remove it, or name what it leads to",
                path.display()
            ),
        )),
        _ => Ok(()),
    }
}

/// Makes a folder within one of ours; a link in its place is refused.
pub(crate) fn make_own_dir(path: &Path) -> io::Result<()> {
    refuse_link(path)?;
    make_dir(path)
}

/// Opens a file of ours to write to it; a link in its place is refused.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    refuse_link(path)?;
    options.open(path)
}

/// A warning, if other users can read files of a folder. Nothing is changed: somebody may share them on purpose.
#[cfg(unix)]
pub(crate) fn warning(folder: &Path) -> Option<String> {
    let real = folder.canonicalize().ok()?;
    let entries = fs::read_dir(&real).ok()?.flatten().take(MOST);
    entries.into_iter().find(|entry| is_open(&entry.path())).map(|entry| told(&entry.path(), folder))
}

/// The same for one file.
#[cfg(unix)]
pub(crate) fn warning_of(file: &Path) -> Option<String> {
    is_open(file).then(|| told(file, file))
}

/// Whether other users can read a file, and reach it.
#[cfg(unix)]
fn is_open(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::metadata(path).map_or(0, |there| there.permissions().mode());
    let Ok(real) = file.canonicalize() else { return false };
    // Whoever may not pass a folder reaches nothing below it.
    let is_reached = real.ancestors().skip(1).all(|above| mode(above) & 0o011 != 0);
    real.is_file() && mode(&real) & 0o044 != 0 && is_reached
}

#[cfg(unix)]
fn told(open: &Path, place: &Path) -> String {
    let quoted = place.display().to_string().replace('\'', "'\\''");
    format!(
        "other users of this system can read `{}`, which holds what was said; `chmod -R go-rwx '{quoted}'` keeps them out",
        open.display()
    )
}

#[cfg(not(unix))]
pub(crate) fn warning(_: &Path) -> Option<String> {
    None
}

#[cfg(not(unix))]
pub(crate) fn warning_of(_: &Path) -> Option<String> {
    None
}
