//! Files that only their owner can read: they hold all that was said in a run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
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
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options
}

/// The most bytes that are read of a file which a folder from elsewhere may hold: 1 GiB. No run of levity's comes near, since long texts
/// are kept aside.
pub const LARGEST: u64 = 1 << 30;

/// Fails if a file is no plain file, or has more bytes than `most`: it might never end, or fill the memory.
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
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"));
    }
    let file = File::open(path)?;
    check_size(&file, most)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Fails if a path is a link. levity writes through none: a folder from elsewhere could lead it to any file of the user's.
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
#[cfg(feature = "sqlite")]
pub(crate) fn make_own_dir(path: &Path) -> io::Result<()> {
    refuse_link(path)?;
    make_dir(path)
}

/// Opens a file of ours to write to it; a link in its place is refused.
pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    refuse_link(path)?;
    options.open(path)
}

/// Opens a file that the user named, to write to it. A link in its place is refused, but for those of the system: `/dev/stdout` is
/// one.
pub fn open_named(path: &Path, options: &OpenOptions) -> io::Result<File> {
    if !path.starts_with("/dev") {
        return open(path, options);
    }
    let mut append = OpenOptions::new();
    append.append(true).open(path)
}

/// A warning, if other users can read files of a folder. Nothing is changed: somebody may share them on purpose.
#[cfg(unix)]
pub(crate) fn warning(folder: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::symlink_metadata(path).map_or(0, |there| there.permissions().mode());
    let real = folder.canonicalize().ok()?;
    // Whoever may not pass a folder reaches nothing below it.
    if real.ancestors().any(|above| mode(above) & 0o011 == 0) {
        return None;
    }
    let entries = fs::read_dir(&real).ok()?.flatten().take(MOST);
    let open = entries.into_iter().find(|entry| {
        entry.file_type().is_ok_and(|kind| kind.is_file()) && mode(&entry.path()) & 0o044 != 0
    })?;
    let quoted = folder.display().to_string().replace('\'', "'\\''");
    Some(format!(
        "other users of this system can read `{}`, which holds what was said; `chmod -R go-rwx '{quoted}'` keeps them out",
        open.path().display()
    ))
}

#[cfg(not(unix))]
pub(crate) fn warning(_: &Path) -> Option<String> {
    None
}
