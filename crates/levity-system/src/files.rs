//! Private files, readable only by their owner, because they contain conversations.
//!
//! A folder of levity may be writable by others, or come with a repository. So nothing is written
//! through a symbolic link, reads have a limit, and opening a pipe never blocks.
//!
//! ```
//! use levity_system::files;
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("private");
//! files::make_dir(&path)?;
//! assert!(files::warning(&path).is_none(), "nobody else can read it");
//! assert!(files::read_at_most(&path, 10).is_err(), "it is a folder");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

/// The maximum number of files of a folder to check for a warning.
#[cfg(unix)]
const MAX_CHECKED: usize = 1_000;

/// Creates a private folder, and its missing parents.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("a/b");
/// levity_system::files::make_dir(&path)?;
/// assert!(path.is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn make_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Returns options that create a file as private to its owner. The mode of an existing file stays
/// unchanged, a symbolic link in its place is not followed, and a pipe in its place does not block.
pub fn options() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;

        use rustix::fs::OFlags;
        options
            .mode(0o600)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    }
    options
}

/// The maximum size of a file to read from an untrusted folder: 1 GiB. No run of levity is near
/// that size, because long texts are stored separately.
pub const MAX_SIZE: u64 = 1 << 30;

/// Returns an error if a file is not a regular file or has more than `limit` bytes: it might never
/// end, or fill the memory.
pub fn check_size(file: &File, limit: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    let problem = match () {
        () if !metadata.is_file() => "it is not a regular file; use the path of one".to_owned(),
        () if metadata.len() > limit => {
            format!("it is larger than {} MiB; use a smaller file", limit >> 20)
        }
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, problem))
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// Returns `InvalidInput` if it is not a regular file, and `InvalidData` if it is larger than
/// `limit`.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use levity_system::files;
///
/// let path = folder.path().join("notes");
/// std::fs::write(&path, b"Good morning")?;
/// assert_eq!(files::read_at_most(&path, 100)?, b"Good morning");
/// assert!(files::read_at_most(&path, 5).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Opening a pipe might never return.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file; use the path of one",
        ));
    }
    // A file of the system, such as `/proc/kmsg`, has no size and may never end.
    let file = open_without_waiting(path)?;
    check_size(&file, limit)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is larger than {} MiB; use a smaller file", limit >> 20),
        ));
    }
    Ok(bytes)
}

/// Returns an error if a path is a symbolic link. levity never writes through one: an untrusted
/// folder could redirect it to any file of the user.
///
/// # Errors
/// Returns `InvalidInput` if the path is a link. A missing file is no error.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// let missing = folder.path().join("notes");
/// assert!(levity_system::files::refuse_link(&missing).is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn refuse_link(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "`{}` is a symbolic link, which levity does not write through; remove it, or use \
                    its target",
                path.display()
            ),
        )),
        _ => Ok(()),
    }
}

/// Creates a folder within a folder of levity; rejects a symbolic link in its place.
pub fn make_own_dir(path: &Path) -> io::Result<()> {
    refuse_link(path)?;
    make_dir(path)
}

/// Opens a file of levity for writing; rejects a symbolic link, a pipe or a device in its place.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use std::io::Write as _;
///
/// use levity_system::files;
///
/// let path = folder.path().join("notes");
/// let mut file = files::open(&path, files::options().write(true).create(true))?;
/// file.write_all(b"Good morning")?;
/// assert_eq!(std::fs::read(&path)?, b"Good morning");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    refuse_link(path)?;
    // The system itself rejects a folder, with an error that says so.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        return Err(not_regular(path));
    }
    let file = options.open(path)?;
    // Another process may have replaced the file in between.
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_regular(path)),
    }
}

fn not_regular(path: &Path) -> io::Error {
    let problem = format!("`{}` is not a regular file; remove it", path.display());
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{problem}, or use another path"),
    )
}

/// Opens a file that the user named, for writing. Rejects a symbolic link in its place, except
/// those of the system such as `/dev/stdout`.
pub fn open_named(path: &Path, options: &OpenOptions) -> io::Result<File> {
    if !path.starts_with("/dev") {
        return open(path, options);
    }
    let mut append = OpenOptions::new();
    append.append(true).open(path)
}

/// Opens a file for reading. If a pipe took its place, the call does not wait for a writer.
pub fn open_without_waiting(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    options.open(path)
}

/// Returns a warning if other users can read files of a folder. It changes nothing, because they
/// may be shared on purpose.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use levity_system::files;
///
/// let path = folder.path().join("private");
/// files::make_dir(&path)?;
/// assert_eq!(files::warning(&path), None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(unix)]
pub fn warning(folder: &Path) -> Option<String> {
    let real = folder.canonicalize().ok()?;
    let entries = fs::read_dir(&real).ok()?.flatten().take(MAX_CHECKED);
    entries
        .into_iter()
        .find(|entry| is_open(&entry.path()))
        .map(|entry| exposure_warning(&entry.path(), folder))
}

/// Returns a warning if other users can read this file.
#[cfg(unix)]
pub fn warning_of(file: &Path) -> Option<String> {
    is_open(file).then(|| exposure_warning(file, file))
}

/// Returns `true` if other users can read a file and reach it.
#[cfg(unix)]
fn is_open(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    let Ok(real) = file.canonicalize() else {
        return false;
    };
    // A user without access to a folder cannot reach files below it.
    let is_reached = real
        .ancestors()
        .skip(1)
        .all(|above| mode(above) & 0o011 != 0);
    real.is_file() && mode(&real) & 0o044 != 0 && is_reached
}

#[cfg(unix)]
fn exposure_warning(open: &Path, place: &Path) -> String {
    let quoted = place.display().to_string().replace('\'', "'\\''");
    format!(
        "other users of this system can read `{}`, which contains conversations; `chmod -R go-rwx \
            '{quoted}'` keeps them out",
        open.display()
    )
}

/// Returns `true` if a file is still the one at this path.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let name = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (open, metadata) = (
        file.metadata().map(name),
        fs::symlink_metadata(path).map(name),
    );
    matches!((open, metadata), (Ok(open), Ok(metadata)) if open == metadata)
}

/// Returns `None`, because only Unix has modes.
#[cfg(not(unix))]
pub fn warning(_: &Path) -> Option<String> {
    None
}

/// Returns `None`, because only Unix has modes.
#[cfg(not(unix))]
pub fn warning_of(_: &Path) -> Option<String> {
    None
}

/// Returns `true` if there is a file at this path, because files have no numbers to compare here.
#[cfg(not(unix))]
pub fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::fs::{CWD, mkfifoat};

    #[test]
    fn open_without_waiting_returns_for_pipe_without_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mkfifoat(CWD, &path, 0o600.into()).unwrap();
        assert!(
            !super::open_without_waiting(&path)
                .unwrap()
                .metadata()
                .unwrap()
                .is_file()
        );
    }
}
