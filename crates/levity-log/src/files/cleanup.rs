//! Removal of old session logs.
//!
//! A session is a folder directly below the log folder. Its age is that of its newest file, so a
//! session in use is never old. The log folder's own `general.log` is not touched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use levity_core::Timestamp;

use super::disk::LOCK;
use super::writer::{GENERAL, REASONING};
use crate::error::{Error, Result};

/// A retention policy for the logs of sessions; everything is retained by default.
///
/// ```
/// # use levity_log::Retention;
/// # use std::time::Duration;
/// let month = Duration::from_secs(30 * 86_400);
/// let retention = Retention::new().older_than(month).max_bytes(1 << 30);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Removes sessions whose last entry is older than this.
    pub older_than: Option<Duration>,
    /// Limits the total size of all sessions, in bytes; the sessions with the oldest entries are
    /// removed first.
    pub max_bytes: Option<u64>,
}

impl Retention {
    /// Creates a policy that retains everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes sessions whose last entry is older than this.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// Removes the oldest sessions until the rest has at most this many bytes.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }
}

/// The result of a clean-up.
///
/// ```
/// use levity_core::Timestamp;
/// use levity_log::{LogCleanup, Retention, clean};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let cleaned = clean(dir.path(), &Retention::new(), Timestamp::default())?;
/// assert_eq!(cleaned, LogCleanup::default());
/// # Ok::<(), levity_log::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogCleanup {
    /// The number of removed sessions.
    pub sessions: u64,
    /// The number of removed bytes.
    pub bytes: u64,
    /// The number of remaining sessions.
    pub remaining: u64,
}

/// Removes session logs according to a retention policy. It removes only files that
/// [`LogFiles`](crate::LogFiles) creates, and follows no links; a folder with other files stays. A
/// session that is written to in the meantime starts new files.
///
/// ```
/// # use levity_core::{Event, EventKind, RunId};
/// use levity_core::Timestamp;
/// use levity_log::{LogFiles, Retention, clean};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path();
/// let logs = LogFiles::open(folder)?;
/// logs.session("s")(&Event::new(RunId::new("r1"), 1, Timestamp::default(), EventKind::Paused));
/// logs.flush(std::time::Duration::from_secs(5));
///
/// let cleaned = clean(folder, &Retention::new().max_bytes(10), Timestamp::default())?;
/// assert_eq!((cleaned.sessions, cleaned.bytes, cleaned.remaining), (1, 41, 0));
/// assert!(!folder.join("s").exists());
/// # Ok::<(), levity_log::Error>(())
/// ```
///
/// # Errors
/// If the folder cannot be read. Files that cannot be removed remain.
pub fn clean(
    folder: impl AsRef<Path>,
    retention: &Retention,
    now: Timestamp,
) -> Result<LogCleanup> {
    let folder = folder.as_ref();
    let folder_error = |source| Error::Folder {
        path: folder.to_owned(),
        source,
    };
    let mut sessions = sessions(folder).map_err(folder_error)?;
    sessions.sort_by_key(|session| session.newest);
    let mut total: u64 = sessions.iter().map(|session| session.bytes).sum();
    let mut cleaned = LogCleanup::default();
    for session in sessions {
        let old = retention
            .older_than
            .is_some_and(|age| now.since(session.newest) > age);
        let over_limit = retention
            .max_bytes
            .is_some_and(|max_bytes| total > max_bytes);
        if (old || over_limit) && session.remove() {
            total = total.saturating_sub(session.bytes);
            cleaned.sessions += 1;
            cleaned.bytes += session.bytes;
        } else {
            cleaned.remaining += 1;
        }
    }
    Ok(cleaned)
}

/// One session folder with those of its files that this crate creates.
struct Session {
    folder: PathBuf,
    files: Vec<PathBuf>,
    bytes: u64,
    newest: Timestamp,
}

impl Session {
    /// Returns `true` if all log files are removed. The folder stays if it has other files.
    fn remove(&self) -> bool {
        let removed = self.files.iter().all(|file| fs::remove_file(file).is_ok());
        let _ = fs::remove_file(self.folder.join(LOCK));
        let _ = fs::remove_dir(&self.folder);
        removed
    }
}

fn sessions(folder: &Path) -> io::Result<Vec<Session>> {
    let mut sessions = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            // A folder that was removed meanwhile, or cannot be read, is skipped.
            sessions.extend(session(entry.path()).ok().flatten());
        }
    }
    Ok(sessions)
}

fn session(folder: PathBuf) -> io::Result<Option<Session>> {
    let (mut files, mut bytes, mut newest) = (Vec::new(), 0, Timestamp::default());
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        let meta = fs::symlink_metadata(entry.path())?;
        if !meta.is_file() || !entry.file_name().to_str().is_some_and(is_log) {
            continue;
        }
        let since = meta
            .modified()?
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        newest = newest.max(Timestamp::from_millis(
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        ));
        bytes += meta.len();
        files.push(entry.path());
    }
    Ok((!files.is_empty()).then_some(Session {
        folder,
        files,
        bytes,
        newest,
    }))
}

/// Returns `true` for `general.log`, `reasoning.log` and their rotated files, such as
/// `general.log.3`.
fn is_log(name: &str) -> bool {
    [GENERAL, REASONING]
        .into_iter()
        .filter_map(|log| name.strip_prefix(log))
        .any(|rest| {
            rest.is_empty()
                || rest
                    .strip_prefix('.')
                    .is_some_and(|number| number.parse::<u32>().is_ok())
        })
}
