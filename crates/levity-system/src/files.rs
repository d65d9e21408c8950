//! Files that only their owner can read: they hold all that was said.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

/// How many files of a folder are looked at for a warning.
#[cfg(unix)]
const MOST: usize = 1_000;

/// Makes a folder that only its owner can look into, and those above it that are missing.
pub fn make_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// How a file is opened that only its owner can read if it is made now. One that is there stays as
/// it is, and a link in its place is not followed.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options
}

/// The most bytes that are read of a file which a folder from elsewhere may hold: 1 GiB. No run of
/// levity's comes near, since long texts are kept aside.
pub const LARGEST: u64 = 1 << 30;

/// Fails if a file is no plain file, or has more bytes than `most`: it might never end, or fill the
/// memory.
pub fn check_size(file: &File, most: u64) -> io::Result<()> {
    let there = file.metadata()?;
    let problem = match () {
        () if !there.is_file() => "it is not a plain file".to_owned(),
        () if there.len() > most => format!("it is larger than {} MiB", most >> 20),
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, problem))
}

/// Reads a plain file of at most so many bytes.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Opening a pipe might never end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a plain file",
        ));
    }
    let file = File::open(path)?;
    check_size(&file, most)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Fails if a path is a link. levity writes through none: a folder from elsewhere could lead it to
/// any file of the user's.
pub fn refuse_link(path: &Path) -> io::Result<()> {
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
pub fn make_own_dir(path: &Path) -> io::Result<()> {
    refuse_link(path)?;
    make_dir(path)
}

/// Opens a file of ours to write to it; a link in its place is refused.
pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    refuse_link(path)?;
    options.open(path)
}

/// Opens a file that the user named, to write to it. A link in its place is refused, but for those
/// of the system: `/dev/stdout` is one.
pub fn open_named(path: &Path, options: &OpenOptions) -> io::Result<File> {
    if !path.starts_with("/dev") {
        return open(path, options);
    }
    let mut append = OpenOptions::new();
    append.append(true).open(path)
}

/// Opens a file to read it. If a pipe took its place, the call does not wait for a writer.
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

/// A warning, if other users can read files of a folder. Nothing is changed: somebody may share
/// them on purpose.
#[cfg(unix)]
pub fn warning(folder: &Path) -> Option<String> {
    let real = folder.canonicalize().ok()?;
    let entries = fs::read_dir(&real).ok()?.flatten().take(MOST);
    entries
        .into_iter()
        .find(|entry| is_open(&entry.path()))
        .map(|entry| told(&entry.path(), folder))
}

/// A warning, if other users can read this file.
#[cfg(unix)]
pub fn warning_of(file: &Path) -> Option<String> {
    is_open(file).then(|| told(file, file))
}

/// Returns whether other users can read a file, and reach it.
#[cfg(unix)]
fn is_open(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::metadata(path).map_or(0, |there| there.permissions().mode());
    let Ok(real) = file.canonicalize() else {
        return false;
    };
    // Whoever may not pass a folder reaches nothing below it.
    let is_reached = real
        .ancestors()
        .skip(1)
        .all(|above| mode(above) & 0o011 != 0);
    real.is_file() && mode(&real) & 0o044 != 0 && is_reached
}

#[cfg(unix)]
fn told(open: &Path, place: &Path) -> String {
    let quoted = place.display().to_string().replace('\'', "'\\''");
    format!(
        "other users of this system can read `{}`, which holds what was said; `chmod -R go-rwx \
            '{quoted}'` keeps them out",
        open.display()
    )
}

/// Returns whether a file is still the one that its path leads to.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let name = |there: fs::Metadata| (there.dev(), there.ino());
    let (open, there) = (
        file.metadata().map(name),
        fs::symlink_metadata(path).map(name),
    );
    matches!((open, there), (Ok(open), Ok(there)) if open == there)
}

#[cfg(not(unix))]
pub fn warning(_: &Path) -> Option<String> {
    None
}

#[cfg(not(unix))]
pub fn warning_of(_: &Path) -> Option<String> {
    None
}

#[cfg(not(unix))]
pub fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::fs::{CWD, mkfifoat};

    #[test]
    fn open_without_waiting_returns_for_a_pipe_without_a_writer() {
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
