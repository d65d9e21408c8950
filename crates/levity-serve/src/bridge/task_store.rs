//! The records of tasks beside their journal: the signal files, and how far each has got.
//!
//! One JSON file per task, replaced atomically and synced. A lock file keeps a second host out.
//! Files that are damaged, too large, not named after their task or name files that are not part of
//! it are ignored when the folder is opened, because it may come from an untrusted source. At most
//! 10,000 records are kept; the oldest signalled ones are removed first, and unfinished tasks
//! never.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use levity_core::Timestamp;
use levity_system::Replace;
use levity_system::files::{open as open_own, options, read_at_most, refuse_link};
use serde::{Deserialize, Serialize};

use super::signal::{has_valid_names, own_name};

/// The maximum length of a task id in bytes.
const MAX_ID: usize = 64;

/// The maximum size of a record file in bytes; a record has two file names and a digest.
const MAX_RECORD_BYTES: u64 = 64 << 10;

/// The maximum size of all records of a folder, which may come from an untrusted source.
const MAX_FOLDER_BYTES: usize = 64 << 20;

/// Returns `true` if a text is a valid task id, which is also part of a file name.
pub(super) fn is_task_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(plain)
}

/// The record of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TaskRecord {
    pub(super) task: String,
    /// The digest of the prompt, so that an id is not reused for another prompt.
    pub(super) prompt: String,
    /// The time at which the task was created.
    pub(super) made: Timestamp,
    /// The names of the signal files for an answer and for a failure.
    pub(super) done: String,
    pub(super) failed: String,
    pub(super) stage: Stage,
}

/// The progress of writing the signal file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// The task has not ended, as far as the record shows.
    Open,
    /// The file is complete under the name `from` and is renamed to `path` next. If `from` does not
    /// exist, the rename has happened.
    Signalling {
        from: String,
        path: String,
        good: bool,
    },
    /// The file was published. A client that waited for it may have removed it since.
    Signalled { path: Option<String>, good: bool },
}

impl TaskRecord {
    /// Returns `true` if nothing is left to do for the task.
    pub(super) fn is_signalled(&self) -> bool {
        matches!(self.stage, Stage::Signalled { .. })
    }
}

/// The records of all tasks: in memory and, if there is a folder, in one file each.
#[derive(Debug)]
pub(super) struct TaskStore {
    folder: Option<Folder>,
    records: Mutex<BTreeMap<String, TaskRecord>>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Held while the folder is in use: two hosts would publish the same signal file twice.
    _lock: File,
}

impl TaskStore {
    /// The maximum number of records; the oldest finished tasks are removed first.
    pub(super) const MAX_RECORDS: usize = 10_000;

    pub(super) fn in_memory() -> Self {
        Self {
            folder: None,
            records: Mutex::default(),
        }
    }

    /// Opens the records of a folder, which is created if it does not exist.
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
            fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another host uses this folder")
            }
            fs::TryLockError::Error(error) => error,
        })?;
        let mut records = BTreeMap::new();
        let mut total = 0;
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            let Some(task) = path
                .file_name()
                .and_then(|name| name.to_str()?.strip_suffix(".json"))
            else {
                continue;
            };
            // The task id becomes part of a file name again, and the folder may come from an
            // untrusted source.
            let bytes = if is_task_id(task) {
                read_at_most(&path, MAX_RECORD_BYTES).ok()
            } else {
                None
            };
            total += bytes.as_ref().map_or(0, Vec::len);
            if total > MAX_FOLDER_BYTES {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "the records have more than {} MiB, which no host writes; name another \
                            journal",
                        MAX_FOLDER_BYTES >> 20
                    ),
                ));
            }
            let record = bytes.and_then(|bytes| serde_json::from_slice::<TaskRecord>(&bytes).ok());
            let is_valid = |record: &TaskRecord| record.task == task && has_valid_names(record);
            if let Some(record) = record.filter(is_valid) {
                records.insert(record.task.clone(), record);
            }
        }
        let folder = Some(Folder {
            path: path.to_owned(),
            _lock: lock,
        });
        Ok(Self {
            folder,
            records: Mutex::new(records),
        })
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<String, TaskRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, task: &str) -> Option<TaskRecord> {
        self.records().get(task).cloned()
    }

    /// Returns the newest records first.
    pub(super) fn newest(&self, limit: usize) -> Vec<TaskRecord> {
        let records = self.records();
        let mut newest: Vec<_> = records.values().collect();
        newest.sort_by(|a, b| (b.made, &b.task).cmp(&(a.made, &a.task)));
        newest.into_iter().take(limit).cloned().collect()
    }

    /// Returns the records of tasks whose end was not signalled, the oldest first.
    pub(super) fn unsignalled(&self) -> Vec<TaskRecord> {
        let mut records: Vec<_> = self
            .records()
            .values()
            .filter(|record| !record.is_signalled())
            .cloned()
            .collect();
        records.sort_by_key(|record| record.made);
        records
    }

    /// Returns `true` if another unfinished task may create a file with one of these names.
    pub(super) fn reserves_name(&self, task: &str, names: &[&str]) -> bool {
        let records = self.records();
        let mut others = records
            .values()
            .filter(|record| record.task != task && !record.is_signalled());
        others.any(|record| {
            let own = own_name(&record.task, true);
            names
                .iter()
                .any(|name| *name == record.done || *name == record.failed || *name == own)
        })
    }

    /// Saves a record and replaces an older one of the task. The record is on disk when this
    /// returns.
    pub(super) fn save(&self, record: &TaskRecord) -> io::Result<()> {
        if let Some(folder) = &self.folder {
            folder.write(record)?;
        }
        let mut records = self.records();
        records.insert(record.task.clone(), record.clone());
        let removed = match records.len() > Self::MAX_RECORDS {
            true => records
                .values()
                .filter(|record| record.is_signalled())
                .min_by_key(|record| record.made),
            false => None,
        };
        let removed = removed.map(|record| record.task.clone());
        drop(records);
        removed.iter().for_each(|task| self.forget(task));
        Ok(())
    }

    /// Removes a record from memory and from disk. If the file cannot be removed, the next start
    /// loads it again.
    pub(super) fn forget(&self, task: &str) {
        self.records().remove(task);
        if let Some(folder) = &self.folder {
            let _ = fs::remove_file(folder.file(task));
        }
    }
}

impl Folder {
    fn file(&self, task: &str) -> PathBuf {
        self.path.join(format!("{task}.json"))
    }

    /// Writes a record atomically, so that a killed process leaves no partial record.
    fn write(&self, record: &TaskRecord) -> io::Result<()> {
        let (path, part) = (
            self.file(&record.task),
            self.path.join(format!("{}.part", record.task)),
        );
        Replace::new(&path)
            .through(&part)
            .synced()
            .write(&serde_json::to_vec(record)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(task: &str, made: u64, stage: Stage) -> TaskRecord {
        let made = Timestamp::from_millis(made);
        let (done, failed) = (format!("DONE_{task}"), format!("FAILED_{task}"));
        TaskRecord {
            task: task.into(),
            prompt: String::new(),
            made,
            done,
            failed,
            stage,
        }
    }

    #[test]
    fn records_survive_reopening_and_folder_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let task_store = TaskStore::open(folder.path()).unwrap();
        task_store.save(&record("a", 2, Stage::Open)).unwrap();
        task_store.save(&record("b", 1, Stage::Open)).unwrap();
        task_store
            .save(&record(
                "c",
                3,
                Stage::Signalled {
                    path: None,
                    good: true,
                },
            ))
            .unwrap();
        task_store.forget("c");
        assert_eq!(
            TaskStore::open(folder.path()).unwrap_err().kind(),
            io::ErrorKind::ResourceBusy
        );
        drop(task_store);
        // Leftovers of a killed process are not valid records.
        fs::write(folder.path().join("d.part"), "{").unwrap();
        fs::write(folder.path().join("e.json"), "{").unwrap();
        let task_store = TaskStore::open(folder.path()).unwrap();
        let tasks: Vec<_> = task_store
            .unsignalled()
            .into_iter()
            .map(|record| record.task)
            .collect();
        assert_eq!(tasks, ["b", "a"]);
        assert_eq!(task_store.newest(1)[0].task, "a");
    }

    #[test]
    fn open_ignores_records_with_forged_task_ids() {
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
            let planted = serde_json::to_vec(&record(task, 1, Stage::Open)).unwrap();
            fs::write(tasks.join(format!("{file}.json")), planted).unwrap();
        }
        fs::write(
            tasks.join("long.json"),
            vec![b' '; MAX_RECORD_BYTES as usize + 1],
        )
        .unwrap();
        let task_store = TaskStore::open(&tasks).unwrap();
        assert_eq!(task_store.unsignalled(), []);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    }

    #[test]
    fn open_limits_size_of_all_records() {
        let folder = tempfile::tempdir().unwrap();
        for at in 0..1_100 {
            let task = format!("task{at}");
            let text = serde_json::to_string(&record(&task, 1, Stage::Open)).unwrap();
            let path = folder.path().join(format!("{task}.json"));
            fs::write(path, format!("{text:<61440}")).unwrap();
        }
        let error = TaskStore::open(folder.path()).err().unwrap();
        assert!(error.to_string().contains("more than 64 MiB"), "{error}");
    }

    #[test]
    fn open_ignores_records_with_forged_file_names() {
        let folder = tempfile::tempdir().unwrap();
        let plant = |task: &str, change: &dyn Fn(&mut TaskRecord)| {
            let mut record = record(task, 1, Stage::Open);
            change(&mut record);
            let path = folder.path().join(format!("{task}.json"));
            fs::write(path, serde_json::to_vec(&record).unwrap()).unwrap();
        };
        let signalling = |from: &str, path: &str, good: bool| Stage::Signalling {
            from: from.to_owned(),
            path: path.to_owned(),
            good,
        };
        let moved = [
            signalling("mine.txt", "DONE_a", true),
            signalling(".levity-signal-a", "mine.txt", true),
            signalling(".levity-signal-b", "DONE_a", true),
            signalling("sub/.levity-signal-a", "DONE_a", true),
            signalling(".levity-signal-a", "DONE_a", false),
            Stage::Signalled {
                path: Some("mine.txt".to_owned()),
                good: true,
            },
        ];
        for stage in moved {
            plant("a", &|record| record.stage = stage.clone());
            assert_eq!(TaskStore::open(folder.path()).unwrap().newest(9), []);
        }
        for done in ["../x", "/etc/x", "a//b", ".levity-signal-b", "a*", ""] {
            plant("a", &|record| record.done = done.to_owned());
            assert_eq!(TaskStore::open(folder.path()).unwrap().newest(9), []);
        }
        plant("a", &|record| record.failed = "sub/mine.txt".to_owned());
        assert_eq!(TaskStore::open(folder.path()).unwrap().newest(9), []);

        // These are the names that a host chooses, also if the requested one is taken.
        let own = [
            signalling("sub/.levity-signal-a", "sub/READY", true),
            signalling("sub/.levity-signal-a", "DONE_a", true),
            signalling(".levity-signal-a", "DONE_a", true),
            signalling(".levity-signal-a", "FAILED_a", false),
        ];
        for stage in own {
            plant("a", &|record| {
                record.done = "sub/READY".to_owned();
                record.stage = stage.clone();
            });
            let records = TaskStore::open(folder.path()).unwrap().unsignalled();
            assert_eq!(records.len(), 1, "{stage:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn records_are_not_written_through_symlinks() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("elsewhere")).unwrap();
        symlink(at("elsewhere"), at("linked")).unwrap();
        assert!(
            TaskStore::open(&at("linked"))
                .unwrap_err()
                .to_string()
                .contains("is a symbolic link")
        );

        fs::create_dir(at("tasks")).unwrap();
        fs::write(at("mine"), "mine").unwrap();
        symlink(at("mine"), at("tasks/a.part")).unwrap();
        let task_store = TaskStore::open(&at("tasks")).unwrap();
        task_store.save(&record("a", 1, Stage::Open)).unwrap();
        assert_eq!(fs::read_to_string(at("mine")).unwrap(), "mine");
        assert!(fs::symlink_metadata(at("tasks/a.json")).unwrap().is_file());
        drop(task_store);
        fs::remove_file(at("tasks/lock")).unwrap();
        symlink(at("mine"), at("tasks/lock")).unwrap();
        assert!(TaskStore::open(&at("tasks")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn record_files_are_private_to_the_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/tasks");
        let task_store = TaskStore::open(&path).unwrap();
        task_store.save(&record("a", 2, Stage::Open)).unwrap();
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
    fn save_beyond_limit_removes_oldest_finished_record() {
        let task_store = TaskStore::in_memory();
        task_store.save(&record("open", 0, Stage::Open)).unwrap();
        for at in 1..=TaskStore::MAX_RECORDS {
            let over = Stage::Signalled {
                path: None,
                good: true,
            };
            task_store
                .save(&record(&format!("t{at}"), at as u64, over))
                .unwrap();
        }
        assert_eq!(task_store.records().len(), TaskStore::MAX_RECORDS);
        assert!(
            task_store.get("open").is_some()
                && task_store.get("t1").is_none()
                && task_store.get("t2").is_some()
        );
    }
}
