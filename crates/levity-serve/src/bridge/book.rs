//! What is known of tasks beside their journal: where their end is to be seen, and whether it was.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use levity_core::Timestamp;
use levity_system::Replace;
use levity_system::files::{open as open_own, options, read_at_most, refuse_link};
use serde::{Deserialize, Serialize};

use super::signal::own_name;

/// The longest id of a task, in bytes.
const MAX_ID: usize = 64;

/// The largest note that is read, in bytes; a note has two names of files and a digest.
const LARGEST_NOTE: u64 = 1 << 20;

/// Returns whether a text may be the id of a task, and with it the name of a file.
pub(super) fn is_task_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(plain)
}

/// One task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) task: String,
    /// What stands for the prompt, so that an id is not used for another one.
    pub(super) prompt: String,
    /// When it was made.
    pub(super) made: Timestamp,
    /// The signal file when there is an answer, and when there is none.
    pub(super) done: String,
    pub(super) failed: String,
    pub(super) stage: Stage,
}

/// How far the signal file is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// The task has not ended, as far as is written here.
    Open,
    /// The file is whole under `from` and is given its name next. When there is no `from`, it has
    /// its name.
    Signalling {
        from: String,
        path: String,
        good: bool,
    },
    /// It had its name. Whoever waited for it may have removed it since.
    Signalled { path: Option<String>, good: bool },
}

impl Note {
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Signalled { .. })
    }
}

/// The notes of all tasks: in memory and, if there is a folder, in a file each.
#[derive(Debug)]
pub(super) struct Book {
    folder: Option<Folder>,
    notes: Mutex<BTreeMap<String, Note>>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Held while the folder is used: two hosts that signal the same end would do so twice.
    _lock: File,
}

impl Book {
    /// How many notes there are at most; the oldest of tasks that are over leave first.
    pub(super) const MOST: usize = 10_000;

    pub(super) fn in_memory() -> Self {
        Self {
            folder: None,
            notes: Mutex::default(),
        }
    }

    /// The notes of a folder, which is made if it is not there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        refuse_link(path)?;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)?;
        let lock = open_own(
            &path.join("lock"),
            options().create(true).truncate(false).write(true),
        )?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another host works with these tasks",
            ),
            fs::TryLockError::Error(error) => error,
        })?;
        let mut notes = BTreeMap::new();
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            let Some(task) = path
                .file_name()
                .and_then(|name| name.to_str()?.strip_suffix(".json"))
            else {
                continue;
            };
            // The task becomes the name of a file again, and the folder may come from elsewhere.
            let bytes = if is_task_id(task) {
                read_at_most(&path, LARGEST_NOTE).ok()
            } else {
                None
            };
            let note = bytes.and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok());
            if let Some(note) = note.filter(|note| note.task == task) {
                notes.insert(note.task.clone(), note);
            }
        }
        let folder = Some(Folder {
            path: path.to_owned(),
            _lock: lock,
        });
        Ok(Self {
            folder,
            notes: Mutex::new(notes),
        })
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<String, Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, task: &str) -> Option<Note> {
        self.notes().get(task).cloned()
    }

    /// The newest first.
    pub(super) fn newest(&self, most: usize) -> Vec<Note> {
        let mut notes: Vec<_> = self.notes().values().cloned().collect();
        notes.sort_by(|a, b| (b.made, &b.task).cmp(&(a.made, &a.task)));
        notes.truncate(most);
        notes
    }

    /// Those whose end was not signalled, the oldest first.
    pub(super) fn open_ones(&self) -> Vec<Note> {
        let mut notes: Vec<_> = self
            .notes()
            .values()
            .filter(|note| !note.is_over())
            .cloned()
            .collect();
        notes.sort_by_key(|note| note.made);
        notes
    }

    /// Whether another task, whose end was not signalled yet, may make a file of one of these
    /// names.
    pub(super) fn promises(&self, task: &str, names: &[&str]) -> bool {
        let notes = self.notes();
        let mut others = notes
            .values()
            .filter(|note| note.task != task && !note.is_over());
        others.any(|note| {
            let own = own_name(&note.task, true);
            names
                .iter()
                .any(|name| *name == note.done || *name == note.failed || *name == own)
        })
    }

    /// Keeps a note, in place of an older one of the task. It is on the disk when this returns.
    pub(super) fn keep(&self, note: &Note) -> io::Result<()> {
        if let Some(folder) = &self.folder {
            folder.write(note)?;
        }
        let mut notes = self.notes();
        notes.insert(note.task.clone(), note.clone());
        let leaves = match notes.len() > Self::MOST {
            true => notes
                .values()
                .filter(|note| note.is_over())
                .min_by_key(|note| note.made),
            false => None,
        };
        let leaves = leaves.map(|note| note.task.clone());
        drop(notes);
        leaves.iter().for_each(|task| self.forget(task));
        Ok(())
    }

    pub(super) fn forget(&self, task: &str) {
        self.notes().remove(task);
        if let Some(folder) = &self.folder {
            let _ = fs::remove_file(folder.file(task));
        }
    }
}

impl Folder {
    fn file(&self, task: &str) -> PathBuf {
        self.path.join(format!("{task}.json"))
    }

    /// Nobody sees half a note, whenever the process is killed.
    fn write(&self, note: &Note) -> io::Result<()> {
        let (path, part) = (
            self.file(&note.task),
            self.path.join(format!("{}.part", note.task)),
        );
        Replace::new(&path)
            .through(&part)
            .synced()
            .write(&serde_json::to_vec(note)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(task: &str, made: u64, stage: Stage) -> Note {
        let made = Timestamp::from_millis(made);
        let (done, failed) = (format!("DONE_{task}"), format!("FAILED_{task}"));
        Note {
            task: task.into(),
            prompt: String::new(),
            made,
            done,
            failed,
            stage,
        }
    }

    #[test]
    fn notes_outlive_the_book_and_have_one_reader() {
        let folder = tempfile::tempdir().unwrap();
        let book = Book::open(folder.path()).unwrap();
        book.keep(&note("a", 2, Stage::Open)).unwrap();
        book.keep(&note("b", 1, Stage::Open)).unwrap();
        book.keep(&note(
            "c",
            3,
            Stage::Signalled {
                path: None,
                good: true,
            },
        ))
        .unwrap();
        book.forget("c");
        assert_eq!(
            Book::open(folder.path()).unwrap_err().kind(),
            io::ErrorKind::ResourceBusy
        );
        drop(book);
        // What a process that was killed has left is no note.
        fs::write(folder.path().join("d.part"), "{").unwrap();
        fs::write(folder.path().join("e.json"), "{").unwrap();
        let book = Book::open(folder.path()).unwrap();
        let tasks: Vec<_> = book.open_ones().into_iter().map(|note| note.task).collect();
        assert_eq!(tasks, ["b", "a"]);
        assert_eq!(book.newest(1)[0].task, "a");
    }

    #[test]
    fn planted_note_names_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let (tasks, victim) = (
            folder.path().join("tasks"),
            folder.path().join("victim.json"),
        );
        fs::create_dir(&tasks).unwrap();
        fs::write(&victim, "mine").unwrap();
        let absolute = folder.path().join("victim").to_str().unwrap().to_owned();
        for (file, task) in [
            ("a", "../victim"),
            ("b", &absolute),
            ("c", "d"),
            (".x", ".x"),
            ("e f", "e f"),
        ] {
            let planted = serde_json::to_vec(&note(task, 1, Stage::Open)).unwrap();
            fs::write(tasks.join(format!("{file}.json")), planted).unwrap();
        }
        fs::write(
            tasks.join("long.json"),
            vec![b' '; LARGEST_NOTE as usize + 1],
        )
        .unwrap();
        let book = Book::open(&tasks).unwrap();
        assert_eq!(book.open_ones(), []);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    }

    #[cfg(unix)]
    #[test]
    fn notes_are_not_written_through_links() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("elsewhere")).unwrap();
        symlink(at("elsewhere"), at("linked")).unwrap();
        assert!(
            Book::open(&at("linked"))
                .unwrap_err()
                .to_string()
                .contains("is a link")
        );

        fs::create_dir(at("tasks")).unwrap();
        fs::write(at("mine"), "mine").unwrap();
        symlink(at("mine"), at("tasks/a.part")).unwrap();
        let book = Book::open(&at("tasks")).unwrap();
        book.keep(&note("a", 1, Stage::Open)).unwrap();
        assert_eq!(fs::read_to_string(at("mine")).unwrap(), "mine");
        assert!(fs::symlink_metadata(at("tasks/a.json")).unwrap().is_file());
        drop(book);
        fs::remove_file(at("tasks/lock")).unwrap();
        symlink(at("mine"), at("tasks/lock")).unwrap();
        assert!(Book::open(&at("tasks")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn notes_are_kept_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/tasks");
        let book = Book::open(&path).unwrap();
        book.keep(&note("a", 2, Stage::Open)).unwrap();
        let inner = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let all: Vec<PathBuf> = inner
            .chain([path.clone(), folder.path().join("deep")])
            .collect();
        assert_eq!(all.len(), 4, "{all:?}");
        for path in all {
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o077,
                0,
                "{path:?}"
            );
        }
    }

    #[test]
    fn the_oldest_that_are_over_leave() {
        let book = Book::in_memory();
        book.keep(&note("open", 0, Stage::Open)).unwrap();
        for at in 1..=Book::MOST {
            let over = Stage::Signalled {
                path: None,
                good: true,
            };
            book.keep(&note(&format!("t{at}"), at as u64, over))
                .unwrap();
        }
        assert_eq!(book.notes().len(), Book::MOST);
        assert!(book.get("open").is_some() && book.get("t1").is_none() && book.get("t2").is_some());
    }
}
