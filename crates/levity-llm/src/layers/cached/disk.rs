use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use levity_core::{Fold, Response};
use levity_system::{Replace, files as private};
use serde::{Deserialize, Serialize};

/// How a kept reply is written down; another number is another format.
const VERSION: u32 = 1;
/// How many files are written before the folder is looked through for old ones.
const SWEEP: usize = 64;

/// Replies in a folder, a file for each.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) folder: PathBuf,
    pub(super) most: usize,
    pub(super) written: AtomicUsize,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    version: u32,
    key: String,
    response: Response,
}

impl Disk {
    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }

    /// The kept reply. One that is damaged, or of another version, is as good as none.
    pub(super) fn get(&self, key: &str) -> Option<Response> {
        let mut text = Vec::new();
        let longest = Fold::DEFAULT_LIMIT as u64 * 2;
        File::open(self.path(key))
            .ok()?
            .take(longest)
            .read_to_end(&mut text)
            .ok()?;
        let entry: Entry = serde_json::from_slice(&text).ok()?;
        (entry.version == VERSION && entry.key == key).then_some(entry.response)
    }

    pub(super) fn put(&self, key: &str, response: Response) -> io::Result<()> {
        private::make_dir(&self.folder)?;
        let entry = Entry {
            version: VERSION,
            key: key.to_owned(),
            response,
        };
        Replace::new(&self.path(key)).write(&serde_json::to_vec(&entry)?)?;
        if self
            .written
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(SWEEP)
        {
            self.sweep()?;
        }
        Ok(())
    }

    /// Removes the oldest files beyond the limit. Others may do the same at the same time.
    fn sweep(&self) -> io::Result<()> {
        let entries = fs::read_dir(&self.folder)?
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        let mut kept: Vec<(SystemTime, PathBuf)> = entries
            .filter(|path| is_ours(path))
            .filter_map(|path| Some((age(&path)?, path)))
            .collect();
        kept.sort_unstable();
        let over = kept.len().saturating_sub(self.most);
        for (_, path) in kept.iter().take(over) {
            let _ = fs::remove_file(path);
        }
        Ok(())
    }
}

fn age(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// Whether a file is a kept reply, or one that was never finished.
fn is_ours(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let name = name.trim_start_matches('.');
    let is_key = name.len() > 64 && name.bytes().take(64).all(|byte| byte.is_ascii_hexdigit());
    is_key && (name[64..] == *".json" || name.ends_with(Replace::UNFINISHED))
}
