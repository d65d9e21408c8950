//! Signal files that appear exactly once when a task has ended.
//!
//! A client waits for a file, so the file must be complete when it appears. It must not appear
//! again after the client has removed it. The stages in the task record make that true after a
//! crash at any moment: `Open`, then `Signalling` once the temporary file is on disk, then
//! `Signalled` once the rename is on disk. Existing files are never overwritten; if the name is
//! taken, the task's own name is used instead.

use levity_core::{Ending, Timestamp};
use levity_sandbox::{PathError, Workspace, WriteOptions};
use serde_json::json;

use super::error::{Error, ErrorKind, Result};
use super::task_store::{Stage, TaskRecord, TaskStore};

/// The maximum length of the answer in a signal file, in bytes. The journal has all of it.
const MAX_ANSWER: usize = 32 << 10;

/// Validates the requested name of a signal file.
///
/// It must be a plain relative path that means the same on every system, and must not exist yet.
pub(super) fn validate_name(space: &Workspace, done: &str) -> Result<String> {
    if done.starts_with('/') || done.split('/').any(|name| name == "..") {
        return Err(PathError::Outside(done.to_owned()).into());
    }
    if !is_plain_path(done) {
        let message = "`done` must be a plain relative path, such as `DONE_plan` or `signals/plan`";
        return Err(Error::invalid(message));
    }
    ensure_free(space, done)?;
    Ok(done.to_owned())
}

/// Returns `true` for a relative path that is plain on every system.
fn is_plain_path(path: &str) -> bool {
    // Glob characters are rejected as well, because clients wait for the file with a glob.
    let is_forbidden = |char: char| char.is_control() || "\\:*?\"<>|[]{},!".contains(char);
    let plain = |name: &str| {
        !matches!(name, "" | "." | "..")
            && !name.ends_with(['.', ' '])
            && !name.starts_with(".levity-")
    };
    path.len() <= 400 && !path.contains(is_forbidden) && path.split('/').all(plain)
}

/// Returns `true` if a host can have chosen all file names of a record. Others may have written the
/// record, and it must not rename or remove files that are not part of its task.
pub(super) fn has_valid_names(record: &TaskRecord) -> bool {
    let final_names = |good| {
        let requested = if good { &record.done } else { &record.failed };
        [requested.clone(), own_name(&record.task, good)]
    };
    let is_stage_valid = match &record.stage {
        Stage::Open | Stage::Signalled { path: None, .. } => true,
        Stage::Signalled {
            path: Some(path),
            good,
        } => final_names(*good).contains(path),
        // If the requested name is taken, the temporary file stays in the folder of that name.
        Stage::Signalling { from, path, good } => {
            let names = final_names(*good);
            let is_temp = |name: &String| *from == temp_name(name, &record.task);
            names.contains(path) && names.iter().any(is_temp)
        }
    };
    is_plain_path(&record.done) && record.failed == own_name(&record.task, false) && is_stage_valid
}

/// Fails if a file or folder with the name already exists.
pub(super) fn ensure_free(space: &Workspace, done: &str) -> Result<()> {
    match space.metadata(done) {
        Err(PathError::NotFound(_)) => Ok(()),
        Err(PathError::NotADirectory(_)) => Err(Error::new(
            ErrorKind::NotAFile,
            format!("`{done}` has a file as its folder; choose another `done`"),
        )),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Error::new(
            ErrorKind::Exists,
            format!(
                "`{done}` already exists, so it cannot signal the end; remove it, or choose \
                    another `done` or `task`"
            ),
        )),
    }
}

/// Publishes the end of a task: writes its signal file, unless an earlier process did. Returns the
/// record with the path.
///
/// The file is first written under a temporary name, then the record says that a rename follows,
/// and then the file is renamed. After a crash, the temporary file shows if the rename is still
/// missing.
pub(super) fn signal(
    space: &Workspace,
    task_store: &TaskStore,
    mut record: TaskRecord,
    ending: &Ending,
    at: Timestamp,
) -> Result<TaskRecord> {
    let good = ending.status.is_answer();
    if space.is_read_only() {
        return finish(task_store, record, None, good);
    }
    if record.stage == Stage::Open {
        let requested = if good {
            record.done.clone()
        } else {
            record.failed.clone()
        };
        let content = content(&record, ending, at);
        let write = |path: String| {
            let from = temp_name(&path, &record.task);
            space.write_with(
                &from,
                content.as_bytes(),
                WriteOptions::new().parents().synced(),
            )?;
            space.sync_names(&from)?;
            Ok::<_, PathError>((from, path))
        };
        // The folder of the requested name may have become something else.
        let (from, path) = write(requested).or_else(|_| write(own_name(&record.task, good)))?;
        record.stage = Stage::Signalling { from, path, good };
        save(task_store, &record)?;
    }
    publish(space, task_store, record)
}

/// Renames a temporary file to its final name.
pub(super) fn publish(
    space: &Workspace,
    task_store: &TaskStore,
    mut record: TaskRecord,
) -> Result<TaskRecord> {
    let Stage::Signalling { from, path, good } = record.stage.clone() else {
        return Ok(record);
    };
    match space.rename_new(&from, &path) {
        Ok(()) | Err(PathError::NotFound(_)) => {
            finish_published(space, task_store, record, path, good)
        }
        Err(PathError::Exists(_)) if is_same(space, &from, &path) => {
            let _ = space.remove(&from);
            finish_published(space, task_store, record, path, good)
        }
        // Another process or the agent created a file with that name. It is not overwritten.
        Err(PathError::Exists(_)) => {
            let own = own_name(&record.task, good);
            if path == own {
                let _ = space.remove(&from);
                return finish(task_store, record, None, good);
            }
            record.stage = Stage::Signalling {
                from,
                path: own,
                good,
            };
            save(task_store, &record)?;
            publish(space, task_store, record)
        }
        Err(error) => Err(error.into()),
    }
}

/// Records that a file is published once the rename is durable, because the record is not checked
/// again.
fn finish_published(
    space: &Workspace,
    task_store: &TaskStore,
    record: TaskRecord,
    path: String,
    good: bool,
) -> Result<TaskRecord> {
    match space.sync_names(&path) {
        // The client that waited removed the folder as well.
        Ok(()) | Err(PathError::NotFound(_)) => finish(task_store, record, Some(path), good),
        Err(error) => Err(error.into()),
    }
}

/// Returns the default name, which no other task's file has.
pub(super) fn own_name(task: &str, good: bool) -> String {
    format!("{}_{task}", if good { "DONE" } else { "FAILED" })
}

/// Saves the last stage. A record in this stage is not looked at again after a restart.
fn finish(
    task_store: &TaskStore,
    mut record: TaskRecord,
    path: Option<String>,
    good: bool,
) -> Result<TaskRecord> {
    record.stage = Stage::Signalled { path, good };
    save(task_store, &record)?;
    Ok(record)
}

fn save(task_store: &TaskStore, record: &TaskRecord) -> Result<()> {
    task_store
        .save(record)
        .map_err(|error| Error::failed(format!("cannot record task `{}`: {error}", record.task)))
}

/// Returns a hidden temporary name in the same folder.
fn temp_name(path: &str, task: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/.levity-signal-{task}"),
        None => format!(".levity-signal-{task}"),
    }
}

/// Returns `true` if both files have the same content: without an atomic rename, a crash may leave
/// two.
fn is_same(space: &Workspace, one: &str, other: &str) -> bool {
    // A control character takes six bytes in JSON.
    let read = |path| space.read(path, 8 * MAX_ANSWER as u64).ok();
    read(one).is_some_and(|bytes| read(other) == Some(bytes))
}

/// Returns the content of the file: status, answer, statistics and usage as JSON. The answer is cut
/// to 32 KiB at a whole character, and `complete` says if all of it is there.
fn content(record: &TaskRecord, ending: &Ending, at: Timestamp) -> String {
    let starts = ending
        .text
        .char_indices()
        .map(|(at, _)| at)
        .chain([ending.text.len()]);
    let end = starts
        .take_while(|&at| at <= MAX_ANSWER)
        .last()
        .unwrap_or(0);
    let content = json!({
        "task": record.task,
        "status": ending.status.to_string(),
        "answer": &ending.text[..end],
        "complete": end == ending.text.len(),
        "ended": at.to_string(),
        "stats": ending.stats,
        "usage": ending.usage,
    });
    format!("{content:#}\n")
}

#[cfg(test)]
mod tests;
