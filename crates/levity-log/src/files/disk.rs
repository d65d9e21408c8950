//! Log files that several processes append to, with rotation.
//!
//! Any process may append at any time. Each batch is one `write` in append mode, so batches do not
//! interleave. Only rotation needs a lock; a process that does not get it appends to the full file
//! instead of waiting. After a failed write, the next one starts with a line break, so that half a
//! line does not spoil the following one.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The lock file for rotation, which one process at a time performs.
pub(super) const LOCK: &str = ".lock";

/// The maximum number of bytes in one write.
const MAX_WRITE_BYTES: usize = 1 << 20;

/// Appends to log files. Each write reopens the file, because another process may have rotated or
/// removed it.
pub(super) struct Disk {
    max_file: u64,
    max_old_files: usize,
    /// Files that end in the middle of a line, because a write failed.
    incomplete: HashSet<PathBuf>,
}

impl Disk {
    pub(super) fn new(max_file: u64, max_old_files: usize) -> Self {
        Self {
            max_file,
            max_old_files,
            incomplete: HashSet::new(),
        }
    }

    /// Appends lines to a file in a folder; `Err` has the number of unwritten lines.
    pub(super) fn append(
        &mut self,
        folder: &Path,
        name: &str,
        lines: &[String],
    ) -> Result<(), (u64, io::Error)> {
        let mut remaining = lines;
        while !remaining.is_empty() {
            match self.append_some(folder, name, remaining) {
                Ok(written) => remaining = remaining.get(written..).unwrap_or_default(),
                Err(error) => return Err((remaining.len() as u64, error)),
            }
        }
        Ok(())
    }

    /// Writes as many lines as the file has room for, at least one, in a single write. Lines of
    /// other processes then come before or after them, not between.
    fn append_some(&mut self, folder: &Path, name: &str, lines: &[String]) -> io::Result<usize> {
        let path = folder.join(name);
        let mut file = open(folder, &path)?;
        let mut size = file.metadata()?.len();
        let first = lines.first().map_or(0, |line| line.len() as u64);
        if size > 0
            && size.saturating_add(first) > self.max_file
            && self.rotate(folder, name, first)?
        {
            file = open(folder, &path)?;
            size = file.metadata()?.len();
        }
        let mut chunk = String::from(if self.incomplete.contains(&path) {
            "\n"
        } else {
            ""
        });
        let mut count = 0;
        for line in lines {
            let full = size.saturating_add((chunk.len() + line.len()) as u64) > self.max_file;
            if count > 0 && (full || chunk.len() + line.len() > MAX_WRITE_BYTES) {
                break;
            }
            chunk.push_str(line);
            count += 1;
        }
        let written = file.write_all(chunk.as_bytes());
        if written.is_ok() {
            self.incomplete.remove(&path);
        } else if self.incomplete.len() < 1024 {
            self.incomplete.insert(path);
        }
        written.map(|()| count)
    }

    /// Rotates the file, unless another process is already rotating it.
    fn rotate(&self, folder: &Path, name: &str, more: u64) -> io::Result<bool> {
        let lock = options().open(folder.join(LOCK))?;
        if lock.try_lock().is_err() {
            return Ok(false);
        }
        let path = folder.join(name);
        // Another process may have rotated it a moment ago.
        match fs::metadata(&path) {
            Ok(file) if file.len().saturating_add(more) > self.max_file => {}
            _ => return Ok(true),
        }
        let old = |number: usize| folder.join(format!("{name}.{number}"));
        for number in (1..self.max_old_files).rev() {
            match fs::rename(old(number), old(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.max_old_files == 0 {
            fs::remove_file(path)?;
        } else {
            fs::rename(path, old(1))?;
        }
        Ok(true)
    }
}

/// Opens a file for appending, and creates the folder if a clean-up has removed it.
fn open(folder: &Path, path: &Path) -> io::Result<File> {
    match options().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(folder)?;
            options().append(true).open(path)
        }
        opened => opened,
    }
}

/// Creates a folder that only its owner can access.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Returns options for files that only their owner can read. Links are not followed: they could
/// redirect writes to other files.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| format!("{text}\n")).collect()
    }

    fn read(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap_or_default()
    }

    #[test]
    fn append_rotates_full_files_and_removes_oldest() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Disk::new(8, 2);
        for text in ["aaaa", "bbb", "cccc", "dddd"] {
            disk.append(dir.path(), "f.log", &lines(&[text])).unwrap();
        }
        assert_eq!(read(dir.path(), "f.log"), "dddd\n");
        assert_eq!(read(dir.path(), "f.log.1"), "cccc\n");
        assert_eq!(read(dir.path(), "f.log.2"), "bbb\n");
        assert!(!dir.path().join("f.log.3").exists());
    }

    #[test]
    fn line_longer_than_limit_gets_separate_file() {
        let dir = tempfile::tempdir().unwrap();
        Disk::new(8, 3)
            .append(dir.path(), "f.log", &lines(&["a", "bbbbbbbbbbbbbbbb", "c"]))
            .unwrap();
        assert_eq!(read(dir.path(), "f.log.2"), "a\n");
        assert_eq!(read(dir.path(), "f.log.1"), "bbbbbbbbbbbbbbbb\n");
        assert_eq!(read(dir.path(), "f.log"), "c\n");
    }

    #[test]
    fn append_does_not_wait_for_rotation_by_other_process() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Disk::new(4, 1);
        disk.append(dir.path(), "f.log", &lines(&["aaa"])).unwrap();
        let other = options().open(dir.path().join(LOCK)).unwrap();
        other.lock().unwrap();
        disk.append(dir.path(), "f.log", &lines(&["bbb"])).unwrap();
        assert_eq!(read(dir.path(), "f.log"), "aaa\nbbb\n");
        drop(other);
        disk.append(dir.path(), "f.log", &lines(&["ccc"])).unwrap();
        assert_eq!(read(dir.path(), "f.log"), "ccc\n");
        assert_eq!(read(dir.path(), "f.log.1"), "aaa\nbbb\n");
    }

    #[cfg(unix)]
    #[test]
    fn append_rejects_links_and_creates_private_files() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let folder = dir.path().join("s");
        create_folder(&folder).unwrap();
        symlink(&victim, folder.join("f.log")).unwrap();
        let mut disk = Disk::new(100, 1);
        assert_eq!(
            disk.append(&folder, "f.log", &lines(&["a", "b"]))
                .unwrap_err()
                .0,
            2
        );
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
        disk.append(&folder, "g.log", &lines(&["a"])).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("g.log"))), (0o700, 0o600));
    }
}
