//! A file that holds one secret of its owner, such as a token or a key.
//!
//! The file is created completely or not at all, readable by its owner alone, and is refused if
//! other users can read it.
//!
//! ```
//! use levity_system::secret;
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("key");
//! secret::create(&path, &secret::random()?)?;
//! assert_eq!(secret::read(&path)?.trim().len(), 64);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use crate::files;

/// The number of bytes that are read of a secret: 64 KiB.
const MAX_SIZE: u64 = 64 << 10;

/// Returns 256 random bits as 64 hexadecimal digits.
///
/// # Errors
/// The system provides no randomness.
pub fn random() -> io::Result<String> {
    let mut bits = [0; 32];
    fill(&mut bits)?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads a secret.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// let missing = folder.path().join("key");
/// assert!(levity_system::secret::read(&missing).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The file cannot be read or is not UTF-8, or users other than its owner have a permission on it;
/// the kind is then `PermissionDenied`.
pub fn read(path: &Path) -> io::Result<String> {
    if is_open_to_others(path)? {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "users other than the owner can read it; run chmod 600 `{}`",
                path.display()
            ),
        ));
    }
    // A shell may pass the secret through a pipe, so the path need not be that of a regular file.
    let mut text = String::new();
    File::open(path)?.take(MAX_SIZE).read_to_string(&mut text)?;
    Ok(text)
}

/// Creates the file with this secret, and its folder.
///
/// The file appears with its whole content, so two processes that start at the same time use the
/// same secret, and neither reads half of one.
///
/// # Errors
/// The file exists, with the kind `AlreadyExists`, or cannot be created.
pub fn create(path: &Path, secret: &str) -> io::Result<()> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        files::make_dir(folder)?;
    }
    if path.try_exists()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mut salt = [0; 8];
    fill(&mut salt)?;
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{:016x}.part", u64::from_ne_bytes(salt)));
    let part = Path::new(&part);
    write(part, secret)?;
    let created = match fs::hard_link(part, path) {
        // The file system may not support hard links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => write(path, secret),
        linked => linked,
    };
    let _ = fs::remove_file(part);
    created
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| io::Error::other(format!("the system provides no randomness: {error}")))
}

/// Writes a new file that only its owner can read, and waits until it is on disk. Fails if the file
/// exists.
fn write(path: &Path, secret: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(format!("{secret}\n").as_bytes())?;
    file.sync_all()
}

/// Returns `true` if the group or other users have any permission on the file.
#[cfg(unix)]
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(fs::metadata(path)?.mode() & 0o077 != 0)
}

/// Returns `false`, because this system has no mode bits; access lists of the folder protect the
/// file.
#[cfg(not(unix))]
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    fs::metadata(path).map(|_| false)
}
