//! Files that several processes append to, and that become old ones when they are full.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where files are turned over by one process at a time.
pub(super) const LOCK: &str = ".lock";

/// The most that is written at once.
const MAX_PIECE: usize = 1 << 20;

/// Appends to files. Each is opened anew for what is written at once: another process may have
/// turned it over, or cleaned it up, since.
pub(super) struct Disk {
    max_file: u64,
    keep: usize,
    /// Files that end in the middle of a line, since there was no more room.
    torn: HashSet<PathBuf>,
}

impl Disk {
    pub(super) fn new(max_file: u64, keep: usize) -> Self {
        Self {
            max_file,
            keep,
            torn: HashSet::new(),
        }
    }

    /// Appends lines to a file of a folder; `Err` has how many of them were not written.
    pub(super) fn append(
        &mut self,
        folder: &Path,
        name: &str,
        lines: &[String],
    ) -> Result<(), (u64, io::Error)> {
        let mut left = lines;
        while !left.is_empty() {
            match self.some(folder, name, left) {
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(error) => return Err((left.len() as u64, error)),
            }
        }
        Ok(())
    }

    /// Writes as many lines as the file has room for, one at least, in one piece: other processes'
    /// lines then stand before or behind them, and not between.
    fn some(&mut self, folder: &Path, name: &str, lines: &[String]) -> io::Result<usize> {
        let path = folder.join(name);
        let mut file = open(folder, &path)?;
        let mut size = file.metadata()?.len();
        let first = lines.first().map_or(0, |line| line.len() as u64);
        if size > 0
            && size.saturating_add(first) > self.max_file
            && self.turn_over(folder, name, first)?
        {
            file = open(folder, &path)?;
            size = file.metadata()?.len();
        }
        let mut piece = String::from(if self.torn.contains(&path) { "\n" } else { "" });
        let mut taken = 0;
        for line in lines {
            let full = size.saturating_add((piece.len() + line.len()) as u64) > self.max_file;
            if taken > 0 && (full || piece.len() + line.len() > MAX_PIECE) {
                break;
            }
            piece.push_str(line);
            taken += 1;
        }
        let written = file.write_all(piece.as_bytes());
        if written.is_ok() {
            self.torn.remove(&path);
        } else if self.torn.len() < 1024 {
            self.torn.insert(path);
        }
        written.map(|()| taken)
    }

    /// Makes the file an old one. It is left to whichever process is at it already.
    fn turn_over(&self, folder: &Path, name: &str, more: u64) -> io::Result<bool> {
        let lock = options().open(folder.join(LOCK))?;
        if lock.try_lock().is_err() {
            return Ok(false);
        }
        let path = folder.join(name);
        // Another process may have done it a moment ago.
        match fs::metadata(&path) {
            Ok(file) if file.len().saturating_add(more) > self.max_file => {}
            _ => return Ok(true),
        }
        let old = |number: usize| folder.join(format!("{name}.{number}"));
        for number in (1..self.keep).rev() {
            match fs::rename(old(number), old(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.keep == 0 {
            fs::remove_file(path)?;
        } else {
            fs::rename(path, old(1))?;
        }
        Ok(true)
    }
}

fn open(folder: &Path, path: &Path) -> io::Result<File> {
    match options().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(folder)?;
            options().append(true).open(path)
        }
        opened => opened,
    }
}

/// Makes a folder that only its owner looks into.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// For files that only their owner reads. A link in the place of one is not followed: whoever can
/// make links there could have others write where they cannot.
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
    fn full_files_become_old_ones_and_the_oldest_goes() {
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
    fn a_line_that_is_too_long_for_any_file_has_one_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        Disk::new(8, 3)
            .append(dir.path(), "f.log", &lines(&["a", "bbbbbbbbbbbbbbbb", "c"]))
            .unwrap();
        assert_eq!(read(dir.path(), "f.log.2"), "a\n");
        assert_eq!(read(dir.path(), "f.log.1"), "bbbbbbbbbbbbbbbb\n");
        assert_eq!(read(dir.path(), "f.log"), "c\n");
    }

    #[test]
    fn nothing_waits_for_a_process_that_turns_a_file_over() {
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
    fn links_are_not_followed_and_others_cannot_read() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let folder = dir.path().join("s");
        make(&folder).unwrap();
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
