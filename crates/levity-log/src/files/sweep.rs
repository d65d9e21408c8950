use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use levity_core::Timestamp;

use super::disk::LOCK;
use super::writer::{GENERAL, REASONING};
use crate::error::{Error, Result};

/// How long logs of sessions are kept; for ever, unless told.
///
/// ```
/// # use levity_log::Retention;
/// # use std::time::Duration;
/// let retention = Retention::new().older_than(Duration::from_secs(30 * 86_400)).max_bytes(1 << 30);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Sessions in which nothing was logged for longer go.
    pub older_than: Option<Duration>,
    /// What all sessions may have together; those go first in which nothing was logged for the
    /// longest time.
    pub max_bytes: Option<u64>,
}

impl Retention {
    /// Keeps everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes sessions in which nothing was logged for longer than this.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// Removes sessions until the rest has no more bytes than this.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }
}

/// What was cleaned up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogCleanup {
    /// How many sessions are gone.
    pub sessions: u64,
    /// How many bytes they had.
    pub bytes: u64,
    /// How many sessions are left.
    pub left: u64,
}

/// Removes logs of sessions that are kept no longer. Only files that [`LogFiles`](crate::LogFiles)
/// makes are removed, and no link is followed; a folder with anything else in it stays. A session
/// that is written to meanwhile begins anew.
///
/// # Errors
/// When the folder cannot be read. What cannot be removed is left.
pub fn clean(
    folder: impl AsRef<Path>,
    retention: &Retention,
    now: Timestamp,
) -> Result<LogCleanup> {
    let folder = folder.as_ref();
    let wrong = |source| Error::Folder {
        path: folder.to_owned(),
        source,
    };
    let mut sessions = sessions(folder).map_err(wrong)?;
    sessions.sort_by_key(|session| session.newest);
    let mut total: u64 = sessions.iter().map(|session| session.bytes).sum();
    let mut cleaned = LogCleanup::default();
    for session in sessions {
        let old = retention
            .older_than
            .is_some_and(|age| now.since(session.newest) > age);
        let much = retention.max_bytes.is_some_and(|most| total > most);
        if (old || much) && session.remove() {
            total = total.saturating_sub(session.bytes);
            cleaned.sessions += 1;
            cleaned.bytes += session.bytes;
        } else {
            cleaned.left += 1;
        }
    }
    Ok(cleaned)
}

struct Session {
    folder: PathBuf,
    files: Vec<PathBuf>,
    bytes: u64,
    newest: Timestamp,
}

impl Session {
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
            // One that goes away meanwhile, or cannot be read, is none.
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
