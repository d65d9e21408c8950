//! Replies in a folder, shared by any number of processes.
//!
//! There is no index and no lock. The name of a file is a hash of the key of its reply, a write
//! replaces the file atomically, and a reader that finds a partial or foreign file treats it as a
//! miss. The folder and its files are private to their owner, because replies contain
//! conversations.
//!
//! If the key depends on a secret, only its owner can write a reply: the file contains a hash of
//! the key and the reply, but never the key.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use levity_core::__private::sha256;
use levity_core::{Fold, Response};
use levity_system::{Replace, files as private};

/// The version of the file format; a reply with another version is ignored.
const VERSION: u32 = 2;
/// The number of writes between two removals of old files.
const SWEEP: usize = 64;

/// Replies in a folder, one file per reply.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) folder: PathBuf,
    pub(super) max_files: usize,
    pub(super) written: AtomicUsize,
}

/// Returns the first line of a file, which proves that the rest was written with the key.
fn head(key: &str, reply: &[u8]) -> String {
    let proof = sha256(format!("{VERSION} {key} {}", sha256(reply)).as_bytes());
    format!("{VERSION} {proof}")
}

impl Disk {
    /// Returns the file of a reply.
    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{}.json", sha256(key.as_bytes())))
    }

    /// Returns the stored reply. A damaged reply or one of another version counts as missing.
    ///
    /// Reading stops at twice the limit of a reply, which leaves room for JSON escapes.
    pub(super) fn get(&self, key: &str) -> Option<Response> {
        let mut text = Vec::new();
        let max_bytes = Fold::DEFAULT_LIMIT as u64 * 2;
        File::open(self.path(key))
            .ok()?
            .take(max_bytes)
            .read_to_end(&mut text)
            .ok()?;
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let reply = &text[end + 1..];
        let is_own = text[..end] == *head(key, reply).as_bytes();
        is_own.then(|| serde_json::from_slice(reply).ok())?
    }

    /// Stores a reply and removes old files now and then.
    ///
    /// The first write of a process sweeps as well, so that short-lived processes keep the limit.
    pub(super) fn put(&self, key: &str, response: &Response) -> io::Result<()> {
        private::make_dir(&self.folder)?;
        let reply = serde_json::to_vec(response)?;
        let file = [head(key, &reply).as_bytes(), b"\n", &reply].concat();
        Replace::new(&self.path(key)).write(&file)?;
        if self
            .written
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(SWEEP)
        {
            self.sweep()?;
        }
        Ok(())
    }

    /// Removes the oldest files beyond the limit. Other processes may do the same concurrently.
    ///
    /// The age is the time of the last write; a read does not refresh it.
    fn sweep(&self) -> io::Result<()> {
        let entries = fs::read_dir(&self.folder)?
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        let mut stored: Vec<(SystemTime, PathBuf)> = entries
            .filter(|path| is_cache_file(path))
            .filter_map(|path| Some((modified_at(&path)?, path)))
            .collect();
        stored.sort_unstable();
        let over = stored.len().saturating_sub(self.max_files);
        for (_, path) in stored.iter().take(over) {
            let _ = fs::remove_file(path);
        }
        Ok(())
    }
}

fn modified_at(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// Returns `true` if a file is a stored reply or an unfinished write of one.
///
/// Files that other programs put into the folder are never removed. Unfinished writes of a crashed
/// process age and disappear like replies.
fn is_cache_file(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let name = name.trim_start_matches('.');
    let is_key = name.len() > 64 && name.bytes().take(64).all(|byte| byte.is_ascii_hexdigit());
    is_key && (name[64..] == *".json" || name.ends_with(Replace::UNFINISHED))
}
